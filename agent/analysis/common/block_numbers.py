"""Whether a kernel addresses by the number of a block, so that the block can have one size only.

A product with a scale for each 64 rows of K steps over K in blocks of BK = 64 and loads the scale
by the number of the block. With another BK it loads other scales: the result is wrong, and nothing
in the arithmetic shows it. The number of a block may be multiplied by the size again, taken apart
by how many blocks there are, or compared; an address that takes it as it is stands for something
else that comes in blocks of the same size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias

import libcst as cst

from agent.analysis.common.constant_flow import Flow, is_multiple_of
from agent.analysis.common.derived_names import derived_names
from agent.analysis.common.dialect import callees, given_to
from agent.analysis.common.given_blocks import adds_given, begun_at_given
from agent.analysis.common.growth import stores_without
from agent.analysis.common.induction import induction_variables
from agent.syntax import argument, assigned, descendants

Expression: TypeAlias = cst.BaseExpression
CASTS = frozenset({"astype", "cast", "to"})
"""Methods that give the same number in another type."""
DEEPEST = 4
"""Helpers of helpers that are looked into."""
_UNDONE_BY = (cst.Multiply, cst.FloorDivide, cst.Modulo)
"""Operators that turn the number of a block into a number of elements, or of a row of blocks."""


def counting_access(flow: Flow) -> cst.Call | None:
    """A load or store whose address counts blocks of the flow's constant, or a range that does."""
    return counting_in_loops(flow) or _by_index(flow) or _by_program(flow)


def counting_in_loops(flow: Flow) -> cst.Call | None:
    """The same in the `for` loops that go on by blocks."""
    for loop in descendants(flow.body, cst.For):
        step = step_of(flow, loop)
        by_blocks = step is None or not flow.carries(step)
        if by_blocks and (bounds := begun_at_given(flow, loop)) is not None:
            return bounds
        if not flow.carries(loop.iter if step is None else step):
            continue
        if (found := _in_loop(flow, loop, counts=step is None)) is not None:
            return found
    return None


def step_of(flow: Flow, loop: cst.For) -> Expression | None:
    """The BLOCK of `range(0, n, BLOCK)`; None where the counter goes on by one."""
    bounds = loop.iter
    if not isinstance(bounds, cst.Call):
        return None
    if flow.called(bounds) not in flow.dialect.ranges:
        return None
    step = argument(bounds, 2, "step")
    return None if step is None or flow.source.code(step) == "1" else step


def _in_loop(flow: Flow, loop: cst.For, *, counts: bool) -> cst.Call | None:
    """The same in a loop that goes on by a block in each round, and perhaps counts the rounds."""
    steps = induction_variables(flow, loop)
    if counts and isinstance(loop.target, cst.Name):
        steps.add(loop.target.value)
    if not steps:
        return None
    return _addressed(flow, loop.body, _computed_in(flow, loop.body, steps))


def _computed_in(
    flow: Flow,
    body: cst.BaseSuite,
    names: set[str] | frozenset[str],
    axes: Collection[str] = (),
) -> frozenset[str]:
    """The names of a body that carry the number of a block, or of a program along an axis."""

    def carries(value: Expression, known: set[str]) -> bool:
        return _bare(flow, value, known, axes=axes) and not flow.has(value, flow.dialect.loads)

    return frozenset(derived_names(body, carries, names))


def _bare(
    flow: Flow,
    node: Expression,
    names: set[str] | frozenset[str],
    within: cst.CSTNode | None = None,
    axes: Collection[str] = (),
) -> bool:
    """Whether a value takes one of the names as it is, or the program's number along an axis.

    `within` is what is looked at around it.
    """
    if any(
        name.value in names and not _is_undone(flow, name, within or node, by_any=bool(axes))
        for name in descendants(node, cst.Name)
    ):
        return True
    return bool(axes) and any(
        flow.source.code(axis) in axes and not _is_undone(flow, call, within or node, by_any=True)
        for call in flow.find(node, _numbering(flow))
        if (axis := argument(call, 0, "axis")) is not None
    )


def _numbering(flow: Flow) -> tuple[str, ...]:
    """What says which program this is, or how many there are: both go with the size of a block."""
    return (*flow.dialect.program_ids, *flow.dialect.program_counts)


def _is_undone(flow: Flow, name: Expression, within: cst.CSTNode, *, by_any: bool = False) -> bool:
    """Whether the number of a block is multiplied, divided or compared before it is used.

    The number of a program may stand for a row and a column: what it is divided by, or the rest of
    that, is another number, whatever divides it (`by_any`).
    """
    node: cst.CSTNode = name
    if name is within:
        return False
    for around in flow.source.ancestors(name):
        match around:
            case cst.Comparison():
                return True
            case cst.Attribute() if around.attr.value not in CASTS:
                return True
            case cst.Arg() if around.keyword is name:
                return True
            case cst.BinaryOperation(operator=operator) if isinstance(operator, _UNDONE_BY):
                other = around.left if node is around.right else around.right
                apart = by_any and not isinstance(operator, cst.Multiply) and node is around.left
                if apart or flow.carries(other):
                    return True
            case cst.Call() if _is_index_of(flow, around, name):
                return True
            case cst.Call() if flow.source.function_of(around.func) is not None:
                return True  # a helper takes it apart, as those of persistent kernels do
        if around is within:
            return False
        node = around
    return False


# --- programs that are counted ------------------------------------------------------------------


def _by_program(flow: Flow) -> cst.Call | None:
    """An access by the number of a program that works on the block of that number, or what stores
    something that it is a part of.

    `pid` of `pid * BLOCK + arange(0, BLOCK)` in `scales + pid`. Not where a loop goes on by blocks:
    then as many programs share an axis as there are, whatever the size of a block.
    """
    if any(_counts_blocks(flow, loop) for loop in descendants(flow.body, cst.For)):
        return None
    asked = _program_numbers(flow)
    numbers: set[str] = set()
    axes: set[str] = set()
    for count in multiplied(flow):
        axes |= _axes_asked(flow, count)
        for name in descendants(count, cst.Name):
            if name.value in asked:
                numbers.add(name.value)
                axes |= asked[name.value]
    if not axes:
        return None
    numbers |= _plain(flow, axes)
    names = _computed_in(flow, flow.body, numbers, axes)
    return _addressed(flow, flow.body, names, axes) or _storing(flow, numbers, axes)


def _storing(flow: Flow, names: set[str], axes: Collection[str]) -> cst.Call | None:
    """A store of what the number of a program is part of, by more than what it loads."""
    while True:
        found = {
            name.value
            for target, value in assigned(flow.body)
            if isinstance(target, cst.Name | cst.Tuple) and _is_part(flow, value, names, axes)
            for name in descendants(target, cst.Name)
        }
        if found <= names:
            break
        names = names | found
    for call in descendants(flow.body, cst.Call):
        stored = flow.dialect.stored(flow.source, call)
        if stored is not None and _is_part(flow, stored, names, axes):
            return call
    return None


def _is_part(flow: Flow, node: Expression, names: set[str], axes: Collection[str]) -> bool:
    """`_bare`, of what stands beside loads."""
    loads = [*flow.find(node, flow.dialect.loads)]
    below = {name.value for load in loads for name in descendants(load, cst.Name)}
    return _bare(flow, node, names - below, axes=() if loads else axes)


def multiplied(flow: Flow) -> Iterator[Expression]:
    """What is multiplied by the constant, or by a multiple of it."""
    for product in descendants(flow.body, cst.BinaryOperation):
        if isinstance(product.operator, cst.Multiply):
            for count, size in ((product.left, product.right), (product.right, product.left)):
                if is_multiple_of(size, flow.sizes):
                    yield count
    for step in descendants(flow.body, cst.AugAssign):
        by_size = isinstance(step.operator, cst.MultiplyAssign)
        if by_size and is_multiple_of(step.value, flow.sizes) and isinstance(step.target, cst.Name):
            yield step.target


def _axes_asked(flow: Flow, node: cst.CSTNode) -> set[str]:
    """The axes of the grid along which a value asks for the program's number, as text."""
    found: set[str] = set()
    for call in descendants(node, cst.Call):
        if flow.called(call) in _numbering(flow):
            axis = argument(call, 0, "axis")
            found.add(flow.source.code(axis) if axis is not None else "")
            continue
        helper = flow.source.function_of(call.func)
        if helper is not None and helper not in callees(flow.source, helper):
            found |= _axes_asked(flow, helper.node.body)
    return found


def _program_numbers(flow: Flow) -> dict[str, set[str]]:
    """The names that are computed from the number of the program, and not loaded by it -> the axes
    that it is asked along."""
    names: dict[str, set[str]] = {}
    while True:
        found = {name: set(axes) for name, axes in names.items()}
        for target, value in assigned(flow.body):
            if flow.has(value, flow.dialect.loads):
                continue
            axes = _axes_asked(flow, value)
            for name in descendants(value, cst.Name):
                axes |= names.get(name.value, set())
            for name in descendants(target, cst.Name) if axes else ():
                found[name.value] = found.get(name.value, set()) | axes
        if found == names:
            return names
        names = found


def _plain(flow: Flow, axes: set[str]) -> set[str]:
    """The names that hold the number of the program itself, along one of these axes."""
    return {
        name.value
        for target, value in assigned(flow.body)
        if isinstance(value, cst.Call) and _axes_asked(flow, value) & axes
        for name in descendants(target, cst.Name)
    }


def _counts_blocks(flow: Flow, loop: cst.For) -> bool:
    """Whether a loop's rounds are blocks: by its step, or by how many there are."""
    step = step_of(flow, loop)
    if step is not None:
        return flow.carries(step)
    behind = map(flow.source.resolve, descendants(loop.iter, cst.Name))
    return any(is_count_of_blocks(flow, node) for node in (loop.iter, *behind))


def is_count_of_blocks(flow: Flow, node: cst.BaseExpression) -> bool:
    """Whether a number is made of a quotient by the size, or of how many tiles of it there are."""
    quotients = (d for d in descendants(node, cst.BinaryOperation)
                 if isinstance(d.operator, cst.FloorDivide))  # fmt: skip
    counts = flow.find(node, {*flow.dialect.cdivs, *flow.dialect.shape_queries})
    return any(flow.carries(each) for each in (*counts, *quotients))


def _addressed(
    flow: Flow,
    body: cst.BaseSuite,
    names: set[str] | frozenset[str],
    axes: Collection[str] = (),
    deep: int = 0,
) -> cst.Call | None:
    """A load or store whose address takes one of the names, or the program's number along one of
    the axes, as it is; or the call of a helper that is given it so and has such a one."""
    accesses = {*flow.dialect.loads, *flow.dialect.stores, *flow.dialect.random}
    for call in descendants(body, cst.Call):
        helper = flow.source.function_of(call.func)
        if flow.called(call) in accesses:
            stored = flow.dialect.stored(flow.source, call)
            addresses = [a.value for a in call.args if a.value is not stored]
            if any(_bare(flow, address, names, call, axes) for address in addresses):
                return call
        elif helper is not None and axes and deep < DEEPEST:
            given = given_to(helper, call).items()
            bare = {name for name, value in given if _bare(flow, value, names, axes=axes)}
            inside = _computed_in(flow, helper.node.body, bare, axes)
            if _addressed(flow, helper.node.body, inside, axes, deep + 1) is not None:
                return call
    return None


# --- tiles that are indexed by their number -----------------------------------------------------


def _by_index(flow: Flow) -> cst.Call | None:
    """An access by an index that elsewhere is the number of a tile of that size."""
    counted = [place for _, axes in _indexed(flow) for place, size in axes if flow.carries(size)]
    numbers = frozenset(place.value for place in counted if isinstance(place, cst.Name))
    for call, axes in _indexed(flow):
        for place, size in axes:
            if not flow.carries(size) and _bare(flow, place, numbers):
                return call
            if flow.carries(size) and adds_given(flow, place):
                return call
    asked = set().union(*(_axes_asked(flow, c) for c in counted if isinstance(c, cst.Call)))
    for call in stores_without(flow):
        if flow.called(call) in flow.dialect.indexed_stores:
            index = argument(call, 1, "index")
            if any(_bare(flow, place, numbers, call, asked) for place in _listed(flow, index)):
                return call
    return None


def _is_index_of(flow: Flow, call: cst.Call, name: Expression) -> bool:
    """Whether a name is the index of a tile along an axis where the tile has the flow's size.

    Of a store the shape is the stored tile's: where that has elements along the size at all, the
    index is taken to be that of their axis.
    """
    if flow.called(call) in flow.dialect.indexed_stores:
        return call not in stores_without(flow)
    return any(
        flow.carries(size) and any(n is name for n in descendants(place, cst.Name))
        for one, axes in _indexed(flow)
        if one is call
        for place, size in axes
    )


def _indexed(flow: Flow) -> Iterator[tuple[cst.Call, list[tuple[Expression, Expression]]]]:
    """The loads by the number of a tile: that number and the tile's size, axis by axis."""
    for call in flow.find(flow.body, flow.dialect.indexed_loads):
        index_of, shape_of = flow.dialect.indexed_loads[flow.called(call)]
        index, shape = (_listed(flow, slot.of(call)) for slot in (index_of, shape_of))
        if len(index) == len(shape):
            yield call, list(zip(index, shape, strict=True))


def _listed(flow: Flow, node: Expression | None) -> list[Expression]:
    """The elements of a tuple; a lone number is a tuple of one."""
    behind = flow.source.resolve(node) if isinstance(node, cst.Name) else node
    if isinstance(behind, cst.Tuple | cst.List):
        return [element.value for element in behind.elements]
    return [node] if node is not None else []
