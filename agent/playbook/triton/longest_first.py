"""Start the programs that take longest first.

When: a Triton kernel whose loop runs the further the higher the number of its program, as that of a
    causal attention does: `range(0, (pid_m + 1) * BLOCK_M, BLOCK_N)`.
Do: count that axis of the grid from its end: `tl.num_programs(0) - 1 - tl.program_id(0)`. Blocks
    are started in the order of their number, so that the last ones to run are then short.
Risk: none to results: the programs are the same ones in another order. Programs that wait for one
    another might hang, so kernels with locks are refused.
Source: Graham's bound for list scheduling: the end is off by the last job at most, and by a third
    of the optimum with the longest first. With 128 rows a block at 2048 positions, the last program
    takes 16 times as long as the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel, given_to
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.arguments import names_in
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import language
from agent.analysis.triton.index_ranges import RANGES, all_values
from agent.analysis.triton.pointers import names_by_program
from agent.analysis.triton.program_ids import (
    ProgramIndex,
    name_among_several,
    program_indices,
)
from agent.analysis.triton.waiting import check_never_waits
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.triton.edits import Edit, parenthesized, writing
from agent.syntax import Function, Source, assigned, descendants, positional

EITHER = ("triton.language.minimum", "triton.language.maximum", "builtins.min", "builtins.max")
"""Functions that give one of their arguments."""


class LongestFirst(OfEachKernel):
    """`tl.program_id(0)` -> `tl.num_programs(0) - 1 - tl.program_id(0)`."""

    name = "longest-first"
    title = "longest programs first"
    backend = "triton"
    family = "order"
    priority: ClassVar = {KernelClass.COMPUTE: 26, KernelClass.BALANCED: 36, KernelClass.MEMORY: 38}
    expected = "a few percent of a causal kernel, what its last programs keep the GPU waiting"
    hypothesis = "The GPU runs empty sooner when the programs that end last are short ones."
    idle_in_interpreter = "Triton's interpreter runs one program after the other"
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def prefix_sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    before = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, pid * BLOCK, BLOCK):
        before += tl.load(x_ptr + start + tl.arange(0, BLOCK))
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, tl.sum(before, axis=0) + tl.cumsum(x, axis=0), mask=offsets < n)


def prefix_sum(x):
    y = torch.empty_like(x)
    n = x.numel()
    prefix_sum_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
    return y
"""
    after = before.replace(
        "pid = tl.program_id(0)", "pid = tl.num_programs(0) - 1 - tl.program_id(0)"
    )

    trial = TritonTrial(
        kernel="prefix_sum_kernel",
        types=(P, P, "i32", 256),
        function="prefix_sum",
        calls=(((1,),), ((256,),), ((1000,),)),
    )

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> dict[cst.CSTNode, Edit]:
        """Turn the axis round that the loops depend on, wherever the kernel asks for it."""
        source = subject.source
        growing = _growing(source, kernel)
        last = f"{language(source, kernel)}.num_programs({growing[0].axis}) - 1"
        turned = {each.call: f"{last} - {source.code(each.call)}" for each in growing}
        return {call: writing(parenthesized(source, call, text)) for call, text in turned.items()}


def _growing(source: Source, kernel: Kernel) -> list[ProgramIndex]:
    """Where the program id is asked for that decides how far a loop runs."""
    check_never_waits(source, kernel)
    indices = program_indices(source, kernel)
    for index in indices:
        same = [other for other in indices if other.axis == index.axis]
        name = index.name or name_among_several(kernel, index.call) or _again(kernel, same)
        if name is not None and _runs_further(source, kernel.function, name):
            return same
    reason = f"no loop of {kernel.name} runs further in later programs"
    varying = names_by_program(kernel, source)
    for loop in descendants(kernel.function.node.body, cst.For):
        end = _end(source, loop)
        if end is not None and names_in(end) & varying:
            reason += f", as far as line {source.line(loop)} is followed"
            break
    raise NotApplicable(reason)


def _runs_further(
    source: Source, function: Function, name: str, seen: frozenset[Function] = frozenset()
) -> bool:
    """Whether a loop of a function, or of what it calls, runs the further the larger a name is."""
    body = function.node.body
    ends = (_end(source, loop) for loop in descendants(body, cst.For))
    if any(end is not None and _grows(source, end, name) for end in ends):
        return True
    for call in descendants(body, cst.Call):
        helper = source.function_of(call.func)
        if helper is None or helper in seen:
            continue
        for taken, given in given_to(helper, call).items():
            if _grows(source, given, name) and _runs_further(
                source, helper, taken, seen | {function, helper}
            ):
                return True
    return False


def _again(kernel: Kernel, same: Sequence[ProgramIndex]) -> str | None:
    """The one name that is given an axis several times, as flash attention does to save registers,
    and nothing else."""
    calls = [index.call for index in same]
    named = [
        (assign.targets[0].target, assign.value in calls)
        for assign in descendants(kernel.function.node.body, cst.Assign)
    ]
    found = {target.value for target, asks in named if asks and isinstance(target, cst.Name)}
    if len(found) != 1:
        return None
    (name,) = found
    targets = [target for target, _ in assigned(kernel.function.node.body)]
    bound = sum(name in names_in(target) for target in targets)
    return name if bound == len(calls) else None


def _end(source: Source, loop: cst.For) -> cst.BaseExpression | None:
    if not isinstance(loop.iter, cst.Call) or source.name(loop.iter.func) not in RANGES:
        return None
    given = positional(loop.iter)
    return given[min(len(given), 2) - 1] if given else None


def _grows(
    source: Source, expression: cst.BaseExpression, name: str, seen: frozenset[str] = frozenset()
) -> bool:
    """Whether a sum or product of sizes holds the name, or one of those that the smaller or the
    chosen one is of, in a branch too; sizes are not negative."""
    behind = value_of(source, expression)
    if isinstance(expression, cst.Name) and expression.value == name:
        return True

    def either(*each: cst.BaseExpression) -> bool:
        return any(_grows(source, one, name, seen) for one in each)

    match behind:
        case cst.Name(value=other):
            if other == name or other in seen:
                return other == name
            seen |= {other}
            return either(*all_values(source, behind))
        case cst.BinaryOperation(operator=cst.Add() | cst.Multiply()):
            return either(behind.left, behind.right)
        case cst.BinaryOperation(operator=cst.FloorDivide()):
            return either(behind.left)
        case cst.IfExp():
            return either(behind.body, behind.orelse)
        case cst.Call() if source.name(behind.func) in EITHER:
            return either(*positional(behind))
        case cst.Call() if source.name(behind.func) in TRITON.cdivs and behind.args:
            return either(behind.args[0].value)
    return False
