"""Write out the rounds of a short loop whose count is known when it is compiled.

When: a Triton kernel with a loop over `range` of compile-time constants, of at most 16 rounds at
    every launch in this file. Not one whose counter makes a negative number that `//` or `%` is
    taken of: Triton rounds that of constants as Python does, and towards zero at run time.
Do: `for i in range(...)` -> `for i in tl.static_range(...)`: each round is compiled on its own,
    with `i` a constant.
Risk: none to results. Code grows with the rounds, and registers with what they hold at once.
Source: FlagGems and Triton's own kernels use it throughout; Helion searches it for every loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import add, floordiv, mul, sub
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.counting_loops import read
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import HostView, language, launches_in_sight
from agent.analysis.triton.unrolled import changed_division, handed_over, wrapped
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.triton.edits import Edit
from agent.syntax import Source, Untraceable, descendants, positional

RANGES = ("builtins.range", "triton.language.range")
MOST_ROUNDS = 16
COMBINED: Mapping[type[cst.BaseBinaryOp], Callable[..., int]] = {
    cst.Add: add,
    cst.FloorDivide: floordiv,
    cst.Multiply: mul,
    cst.Subtract: sub,
}
"""What a bound may do with constants: the result is one."""


class StaticRanges(OfEachKernel):
    """`range(N)` -> `tl.static_range(N)`."""

    name = "static-ranges"
    title = "static ranges"
    backend = "triton"
    family = "loops"
    priority: ClassVar = {KernelClass.MEMORY: 44, KernelClass.BALANCED: 44, KernelClass.COMPUTE: 60}
    expected = "more loads in flight and addresses that are constants; to be measured"
    hypothesis = "Rounds that are known are scheduled together, without a counter between them."
    idle_in_interpreter = "Triton's interpreter unrolls nothing"
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def powers_kernel(x_ptr, y_ptr, n, TERMS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in range(TERMS):
        total = total * x + 1.0
    tl.store(y_ptr + offsets, total, mask=offsets < n)


def powers(x):
    y = torch.empty_like(x)
    powers_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), TERMS=4, BLOCK=1024)
    return y
"""
    after = before.replace("in range(TERMS)", "in tl.static_range(TERMS)")

    trial = TritonTrial(kernel="powers_kernel", types=(P, P, "i32", 4, 1024), function="powers")

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> dict[cst.CSTNode, Edit]:
        """Change every such loop."""
        source = subject.source
        ranges = of_each(
            descendants(kernel.function.node.body, cst.For),
            lambda loop: _range(source, kernel, loop),
            _without_loop(source, kernel),
        )
        return {called.func: _static(language(source, kernel)) for called in ranges}


def _without_loop(source: Source, kernel: Kernel) -> str:
    """Why a kernel without a loop of its own stays: it has none, or helpers do."""
    for helper in TRITON.reached(source, kernel)[1:]:
        for loop in descendants(helper.node.body, cst.For):
            where = f"{helper.name}, which it calls, at line {source.line(loop)}"
            return f"{kernel.name} has no loop of its own; that of {where} stays"
    return f"{kernel.name} has no loop"


def _static(tl: str) -> Edit:
    return lambda _: cst.parse_expression(f"{tl}.static_range")


def _range(source: Source, kernel: Kernel, loop: cst.For) -> cst.Call:
    """The range of a loop with few rounds. Raises `NotApplicable` for any other."""
    line = source.line(loop)
    call = loop.iter
    if not isinstance(call, cst.Call) or source.name(call.func) not in RANGES:
        raise NotApplicable(f"the loop at line {line} is over no plain range")
    if len(positional(call)) != len(call.args):
        raise NotApplicable(f"the loop at line {line} has options of its own")
    if any(True for kind in (cst.Break, cst.Continue, cst.Return)
           for _ in descendants(loop.body, kind)):  # fmt: skip
        raise NotApplicable(f"the loop at line {line} is left early")
    if any(_is_own(loop, a.value) for a in descendants(loop.body, cst.Attribute)):
        raise NotApplicable(f"the loop at line {line} uses methods of its counter, a constant then")
    counts: list[range] = []
    for launch in launches_in_sight(source, kernel):
        view = HostView(source, launch)
        values = [_value(view, kernel, bound) for bound in positional(call)]
        for bound, value in zip(positional(call), values, strict=True):
            own = {*kernel.constants, language(source, kernel)}
            if value is None and {name.value for name in read(bound)} <= own:
                code = source.code(bound)
                how = f"the rounds of the loop at line {line} are computed: `{code}`"
                if isinstance(bound, cst.Name):
                    how = f"line {line} loops {code} times, which the launch does not show"
                raise NotApplicable(how)
            if value is None:
                raise NotApplicable(f"the rounds of the loop at line {line} are no constants")
        counts.append(range(*(v for v in values if v is not None)))
        rounds = len(counts[-1])
        if rounds > MOST_ROUNDS:
            raise NotApplicable(f"the loop at line {line} has {rounds} rounds, over {MOST_ROUNDS}")
    if (division := changed_division(source, kernel, loop, counts)) is not None:
        code, place = source.code(division), source.line(division)
        raise NotApplicable(f"`{code}` at line {place} is rounded otherwise where it is a constant")
    if (number := wrapped(source, kernel, loop, counts)) is not None:
        code, place = source.code(number), source.line(number)
        raise NotApplicable(f"`{code}` at line {place} may leave 32 bits, as a constant does not")
    if (helper := handed_over(source, kernel, loop, counts)) is not None:
        code, place = source.code(helper.func), source.line(helper)
        raise NotApplicable(f"{code} is given at line {place} what would be a constant then")
    return call


def _is_own(loop: cst.For, expression: cst.BaseExpression) -> bool:
    return loop.target.deep_equals(expression)


def _value(view: HostView, kernel: Kernel, bound: cst.BaseExpression) -> int | None:
    """What a bound is at a launch; None when it is no constant."""
    try:
        if isinstance(bound, cst.Name) and bound.value in kernel.constants:
            given = view.given(bound.value)
            return view.source.trace(given).value if given is not None else None
        if isinstance(bound, cst.BinaryOperation):
            sides = [_value(view, kernel, side) for side in (bound.left, bound.right)]
            combined = COMBINED.get(type(bound.operator))
            if combined is None or None in sides or min(s for s in sides if s is not None) < 1:
                return None
            return combined(*sides)
        return view.source.trace(bound).value if isinstance(bound, cst.Integer) else None
    except Untraceable:
        return None
