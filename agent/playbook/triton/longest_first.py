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
        names = frozenset((name,) if name is not None else ())
        if names and _runs_further(source, kernel.function, names, names):
            return same
    reason = f"no loop of {kernel.name} runs further in later programs"
    varying = names_by_program(kernel, source)
    for loop in descendants(kernel.function.node.body, cst.For):
        first, end = _bounds(source, loop)
        if end is None or not names_in(end) & varying:
            continue
        if first is not None and names_in(first) & varying:
            reason += f": that at line {source.line(loop)} begins further on in them, too"
        else:
            reason += f", as far as line {source.line(loop)} is followed"
        break
    raise NotApplicable(reason)


def _runs_further(
    source: Source,
    function: Function,
    names: frozenset[str],
    sure: frozenset[str],
    seen: frozenset[Function] = frozenset(),
) -> bool:
    """Whether a loop of a function, or of what it calls, runs the further the larger a name is.

    One that begins the further on as well takes as long for each: `range(i * 8, (i + 1) * 8)`.

    Args:
        source: the file.
        function: the kernel, or what it calls.
        names: what is larger in later programs, or may be.
        sure: those of them that are.
        seen: functions that call this one.
    """
    body = function.node.body
    for first, end in (_bounds(source, loop) for loop in descendants(body, cst.For)):
        begins_later = first is not None and _grows(source, first, sure, surely=True)
        if end is not None and not begins_later and _grows(source, end, names):
            return True
    for call in descendants(body, cst.Call):
        helper = source.function_of(call.func)
        if helper is None or helper in seen:
            continue
        given = given_to(helper, call).items()
        growing = frozenset(taken for taken, value in given if _grows(source, value, names))
        surely = frozenset(t for t, value in given if _grows(source, value, sure, surely=True))
        if growing and _runs_further(source, helper, growing, surely, seen | {function, helper}):
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


def _bounds(
    source: Source, loop: cst.For
) -> tuple[cst.BaseExpression | None, cst.BaseExpression | None]:
    """Where a loop over a range begins, if it says so, and where it ends."""
    if not isinstance(loop.iter, cst.Call) or source.name(loop.iter.func) not in RANGES:
        return None, None
    match positional(loop.iter):
        case [first, end, *_]:
            return first, end
        case [end]:
            return None, end
    return None, None


def _grows(
    source: Source,
    expression: cst.BaseExpression,
    names: frozenset[str],
    seen: frozenset[str] = frozenset(),
    *,
    surely: bool = False,
) -> bool:
    """Whether a sum or product of sizes holds one of the names; sizes are not negative.

    Of several values, in a branch or of `min`, one has to; for it to grow surely, all of them.
    """
    behind = value_of(source, expression)
    if isinstance(expression, cst.Name) and expression.value in names:
        return True

    def among(*each: cst.BaseExpression) -> list[bool]:
        return [_grows(source, one, names, seen, surely=surely) for one in each]

    def chosen(*each: cst.BaseExpression) -> bool:
        return bool(each) and (all if surely else any)(among(*each))

    match behind:
        case cst.Name(value=other):
            if other in names or other in seen:
                return other in names
            seen |= {other}
            return chosen(*all_values(source, behind))
        case cst.BinaryOperation(operator=cst.Add() | cst.Multiply()):
            return any(among(behind.left, behind.right))
        case cst.BinaryOperation(operator=cst.FloorDivide()):
            return any(among(behind.left))
        case cst.IfExp():
            return chosen(behind.body, behind.orelse)
        case cst.Call() if source.name(behind.func) in EITHER:
            return chosen(*positional(behind))
        case cst.Call() if source.name(behind.func) in TRITON.cdivs and behind.args:
            return any(among(behind.args[0].value))
    return False
