"""Loops of a Triton kernel that count, and what depends on the round.

From 0: `for start in range(0, n, STEP)`, or `for i in range(n)`. From the program's number, which
makes the kernel persistent: `for tile in range(pid, n_tiles, NUM_SMS)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.provenance import tile_names
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.index_ranges import RANGES
from agent.analysis.triton.program_ids import NUM_PROGRAMS, PROGRAM_ID
from agent.syntax import Source, assigned, children, descendants, positional

OPTIONS = frozenset(
    {
        *("num_stages", "loop_unroll_factor", "flatten", "warp_specialize", "disable_licm"),
        "disallow_acc_multi_buffer",
    }
)
"""What `tl.range` takes by name and what does not say how far it goes."""


@dataclass(frozen=True)
class Counting:
    """A loop that counts from 0: `range(0, n, STEP)`, or `range(n)`."""

    loop: cst.For
    name: str
    """Its variable."""
    bound: cst.BaseExpression
    step: cst.BaseExpression | None
    """None for one."""


def counting(source: Source, loop: cst.For) -> Counting | None:
    """A loop over blocks, as far as it is one that counts from 0 and goes by no other rule."""
    call = loop.iter
    if not (isinstance(call, cst.Call) and source.name(call.func) in RANGES):
        return None
    given = positional(call)
    named = {arg.keyword.value if arg.keyword else arg.star for arg in call.args[len(given) :]}
    if not isinstance(loop.target, cst.Name) or not given or loop.orelse or named - OPTIONS:
        return None
    begin = source.code(value_of(source, given[0])) if len(given) > 1 else "0"
    if begin != "0":
        return None
    bound, step = given[min(len(given), 2) - 1], given[2] if len(given) == 3 else None
    if not all(_is_again(source, part) for part in (bound, step) if part is not None):
        return None
    return Counting(loop, loop.target.value, bound, step)


def over_programs(source: Source, kernel: Kernel) -> cst.For | None:
    """A loop in which a program does what others would, were there more of them; None: no such.

    It counts in steps of `tl.num_programs`, or from the number of the program, along the only axis
    that the kernel asks for, by something else than one: how many programs there are. By what a
    tile is as long as, it goes over tiles: `range(row, n, BLOCK)`, right of a diagonal.
    """
    body = kernel.function.node.body
    tiles = tile_names(TRITON, source, kernel)
    numbers = list(TRITON.find(source, body, (PROGRAM_ID,)))
    one_axis = len({source.code(call.args[0].value) for call in numbers if call.args}) == 1
    for loop in descendants(body, cst.For):
        if TRITON.has(source, loop.iter, (NUM_PROGRAMS,)):
            return loop
        if not (isinstance(loop.iter, cst.Call) and source.name(loop.iter.func) in RANGES):
            continue
        given = positional(loop.iter)
        step = source.code(value_of(source, given[2])) if len(given) == 3 else "1"
        if one_axis and step != "1" and step not in tiles:
            begin = value_of(source, given[0])
            if isinstance(begin, cst.Call) and source.name(begin.func) == PROGRAM_ID:
                return loop
    return None


def _is_again(source: Source, part: cst.BaseExpression) -> bool:
    """Whether an expression gives the same each time: names, numbers, sums, products, `cdiv`."""
    match part:
        case cst.Name() | cst.Integer():
            return True
        case cst.BinaryOperation():
            return _is_again(source, part.left) and _is_again(source, part.right)
        case cst.Call() if source.name(part.func) in TRITON.cdivs:
            return all(_is_again(source, arg.value) for arg in part.args)
    return False


def names_bound_in(body: cst.CSTNode) -> set[str]:
    """The names that a loop's body gives values."""
    return {n.value for target, _ in assigned(body) for n in descendants(target, cst.Name)} | {
        n.value for walrus in descendants(body, cst.NamedExpr)
        for n in descendants(walrus.target, cst.Name)
    }  # fmt: skip


def depends(counted: Counting, expression: cst.CSTNode) -> bool:
    """Whether an expression may be another one in each round."""
    names = names_bound_in(counted.loop.body) | {counted.name}
    return any(name.value in names for name in read(expression))


def read(node: cst.CSTNode) -> Iterable[cst.Name]:
    """The names below a node whose values it asks for, targets and keywords apart."""
    match node:
        case cst.Name():
            yield node
        case cst.Attribute():
            yield from read(node.value)
        case cst.Arg():
            yield from read(node.value)
        case cst.Assign():
            yield from read(node.value)
        case cst.For():
            for part in (node.iter, node.body):
                yield from read(part)
        case _:
            for child in children(node):
                yield from read(child)
