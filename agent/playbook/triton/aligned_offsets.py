"""Tell the compiler that a computed offset is a multiple of 16.

When: a Triton kernel whose addresses hold a quotient, `n_cols // 3`, as those of a fused query, key
    and value do. Not a plain parameter, a product or a half: those Triton looks at by itself.
Do: `tl.multiple_of(third, 16)` where a heuristic finds, at the launch, that it is.
Risk: none to results: the hint is given only where it is true. Each case is compiled.
Source: compiled with Triton 3.9 for sm_90, two fp16 loads at `n_cols // 3` are 16 scalar
    instructions, and two of 16 bytes with the hint; after `// 2` the hint changes nothing. Nor does
    a hint on a parameter, or `tl.assume`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.reaching_definitions import binds
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import language, launches_in_sight, triton_module
from agent.analysis.triton.program_ids import unused
from agent.playbook.base import Optimization
from agent.rewriting.triton.edits import Edit, decorated, heuristics, with_parameters
from agent.syntax import Source, descendants

MULTIPLE = 16
HINT = "triton.language.multiple_of"


class AlignedOffsets(Optimization):
    """`third = n // 3` -> `tl.multiple_of(third, 16)`, where it is one."""

    name = "aligned-offsets"
    title = "aligned offsets"
    backend = "triton"
    family = "alignment"
    priority: ClassVar = {KernelClass.MEMORY: 28, KernelClass.BALANCED: 28, KernelClass.COMPUTE: 59}
    expected = "up to the width of a vector load, where loads were scalar"
    hypothesis = "Loads that are known to be aligned move 16 bytes a thread at once."
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def mix_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    third = n_cols // 3
    for start in range(0, third, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        a = tl.load(x_ptr + row * n_cols + cols, mask=cols < third)
        b = tl.load(x_ptr + row * n_cols + third + cols, mask=cols < third)
        c = tl.load(x_ptr + row * n_cols + 2 * third + cols, mask=cols < third)
        tl.store(y_ptr + row * third + cols, a * b + c, mask=cols < third)


def mix(x):
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols // 3), device=x.device, dtype=x.dtype)
    mix_kernel[(n_rows,)](x, y, n_cols, BLOCK=1024)
    return y
"""
    after = (
        before.replace(
            "@triton.jit\n",
            '@triton.heuristics({"ALIGNED": lambda args: args["n_cols"] // 3 % 16 == 0})\n'
            "@triton.jit\n",
        )
        .replace("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, ALIGNED: tl.constexpr)")
        .replace(
            "    third = n_cols // 3\n",
            "    third = n_cols // 3\n    if ALIGNED:\n        third = tl.multiple_of(third, 16)\n",
        )
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """One: every such quotient."""
        self.apply(subject, {})
        return [{}]

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Give the hint in every launched kernel that can take it."""
        if subject.hardware.interpreted:
            raise NotApplicable("Triton's interpreter takes no hints")
        source = subject.source
        edits: dict[cst.CSTNode, Edit] = {}
        reasons: list[str] = []
        for kernel in TRITON.launched(source):
            try:
                edits |= _hinted(source, kernel)
            except NotApplicable as reason:
                reasons.append(str(reason))
        if not edits:
            raise NotApplicable("; ".join(reasons[:2]) or "no Triton kernel is launched here")
        return source.rewrite(edits)


def _followed(hint: cst.BaseStatement) -> Edit:
    return lambda line: cst.FlattenSentinel([line, hint])


@dataclass(frozen=True)
class Quotient:
    """`third = n_cols // 3`."""

    line: cst.SimpleStatementLine
    name: str
    value: str
    """In terms of the arguments."""


def _hinted(source: Source, kernel: Kernel) -> dict[cst.CSTNode, Edit]:
    found = list(_quotients(source, kernel))
    if not found:
        raise NotApplicable(f"{kernel.name} computes no quotient that needs a hint")
    asked = {n.value for q in found for n in _parameters(kernel, q.line)}
    for launch in launches_in_sight(source, kernel):
        if missing := sorted(asked - launch.arguments.keys()):
            line = source.line(launch.node)
            raise NotApplicable(f"the launch at line {line} does not give {missing[0]}")
    tl = language(source, kernel)
    flag = unused(kernel, "ALIGNED")
    condition = " and ".join(f"{quotient.value} % {MULTIPLE} == 0" for quotient in found)
    edits = with_parameters(source, kernel, [f"{flag}: {tl}.constexpr"], "False")
    edits |= decorated(
        kernel, heuristics(triton_module(source, kernel), {flag: f"lambda args: {condition}"})
    )
    for quotient in found:
        text = f"if {flag}:\n    {quotient.name} = {tl}.multiple_of({quotient.name}, {MULTIPLE})\n"
        hint = cst.ensure_type(cst.parse_statement(text), cst.If)
        edits[quotient.line] = _followed(hint)
    return edits


def _quotients(source: Source, kernel: Kernel) -> Iterator[Quotient]:
    """The statements at the kernel's top level that divide a parameter by an integer."""
    body = kernel.function.node.body
    if any(True for _ in TRITON.find(source, body, (HINT,))):
        return
    for line in body.body:
        match line:
            case cst.SimpleStatementLine(
                body=[
                    cst.Assign(
                        targets=[cst.AssignTarget(target=cst.Name(value=name))],
                        value=cst.BinaryOperation(
                            left=cst.Name(value=left),
                            operator=cst.FloorDivide(),
                            right=cst.Integer(value=right),
                        ),
                    )
                ]
            ) if not any(binds(s, name) for s in body.body if s is not line):
                own = left in {n.value for n in _parameters(kernel, line)}
                by_itself = int(right) in (1, 2)
                if own and not by_itself and not binds(body, left) and left not in kernel.constants:
                    yield Quotient(line, name, f'args["{left}"] // {right}')


def _parameters(kernel: Kernel, line: cst.CSTNode) -> Iterator[cst.Name]:
    names = {p.name.value for p in kernel.function.parameters}
    return (n for n in descendants(line, cst.Name) if n.value in names)
