"""Whether what masks a loop's last block ends where the loop does.

A larger block reaches further past a loop's end. Where that is a segment's and the mask is the
whole array's, `range(begin, begin + length, BLOCK)` with `at < n`, the last round takes in elements
of the next segment, which then count twice. Ends and masks are compared as sums of products, in
which nothing is negative: lengths, sizes and numbers of programs are not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.derived_names import derived_names
from agent.analysis.common.dialect import SHAPING
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.sums import Terms, number, plus, times
from agent.syntax import argument, assigned, children, descendants, keyword, names_in

_IOTA = "iota of "
_DEEPEST = 6
_BELOW, _ABOVE = cst.LessThan | cst.LessThanEqual, cst.GreaterThan | cst.GreaterThanEqual
_LEAST = frozenset({"min", "minimum"})
_HINTS = frozenset({"max_constancy", "max_contiguous", "multiple_of"})


def reads_past_loop(flow: Flow) -> cst.Call | None:
    """An access of a loop's block whose mask may end behind the loop; None where none does."""
    for loop in descendants(flow.body, cst.For):
        if flow.carries(loop.iter):
            places = _blocks_of(flow, loop)
            for call in _along(flow, loop):
                if any(not _ends(flow, loop, call, end, place) for end, place in places):
                    return call
    return None


def tile_past_loop(flow: Flow) -> cst.Call | None:
    """A load of a loop's tile, by its number, of which elements behind the loop's end count.

    How many these are the size decides, be it larger or smaller: a block of rows that takes in
    whole tiles of columns up to its own end does so by the tile.
    """
    for loop in descendants(flow.body, cst.For):
        if flow.carries(loop.iter):
            places = _blocks_of(flow, loop)
            for call in _tiles_along(flow, loop):
                if any(not _is_whole(flow, loop, end, place) for end, place in places):
                    return call
    return None


def _is_whole(flow: Flow, loop: cst.For, end: cst.CSTNode, place: Terms) -> bool:
    """Whether nothing counts of a tile behind one of the ends that a loop may have.

    Behind the array's end there is padding, which is followed elsewhere, so that a length by itself
    is taken for the array's. What is left of a product of sizes, as of `(i + 1) * ROWS`, is none.
    """
    past = plus(place, _terms(flow, end), -1)
    if any(_covers(flow, loop, each, past, place) for each in _beside(flow, loop)):
        return True
    return len(_terms(flow, end)) < 2


def _tiles_along(flow: Flow, loop: cst.For) -> Iterator[cst.Call]:
    """The loads of a loop's tiles, by the number of the tile."""
    if not isinstance(loop.target, cst.Name):
        return
    for call in descendants(loop.body, cst.Call):
        called = flow.called(call)
        if called not in flow.dialect.indexed_loads:
            continue
        index, shape = (slot.of(call) for slot in flow.dialect.indexed_loads[called])
        if not isinstance(index, cst.Tuple) or not isinstance(shape, cst.Tuple):
            continue
        for place, edge in zip(index.elements, shape.elements, strict=False):
            number = value_of(flow.source, place.value)
            is_counter = isinstance(number, cst.Name) and number.value == loop.target.value
            if is_counter and flow.carries(edge.value):
                yield call


def _ends(flow: Flow, loop: cst.For, call: cst.Call, end: cst.CSTNode, place: Terms) -> bool:
    """Whether a mask leaves nothing of a block behind one of the ends that a loop may have."""
    masks = [
        a.value for a in call.args[1:] if a.value is not flow.dialect.stored(flow.source, call)
    ]
    own = [c for mask in masks for c in _comparisons(flow, mask)]
    has_mask = bool(own) or keyword(call, "mask") is not None
    if flow.dialect.stored(flow.source, call) is None:
        own += _beside(flow, loop)
    past = plus(place, _terms(flow, end), -1)
    if any(_covers(flow, loop, each, past, place) for each in own):
        return True
    return not has_mask and len(_terms(flow, end)) < 2


def _covers(flow: Flow, loop: cst.For, test: cst.Comparison, past: Terms, place: Terms) -> bool:
    """Whether a comparison is false wherever an element is past the loop's end."""
    (target,) = test.comparisons
    left, right = test.left, target.comparator
    if isinstance(target.operator, _ABOVE):
        left, right = right, left
    moving = {n.value for s in descendants(loop.body, cst.AugAssign)
              for n in descendants(s.target, cst.Name)}  # fmt: skip
    index = _terms(flow, left)
    if any(name in moving for product in index for name in product):
        index = place
    iotas = [p for p in index for name in p if len(p) == 1 and name.startswith(_IOTA)
             and flow.constant in name.removeprefix(_IOTA).split()]  # fmt: skip
    if len(iotas) == 1:  # of a multiple of the size, where the block is that
        past = {iotas[0] if p == (_IOTA + flow.constant,) else p: c for p, c in past.items()}
    reached = isinstance(target.operator, cst.LessThanEqual | cst.GreaterThanEqual)
    index = plus(index, {(): 1}, -1) if reached else index
    return any(
        _is_never_less(plus(index, _terms(flow, end), -1), past)
        for end in (right, *_alternatives_of_least(flow, right))
    )


def _is_never_less(one: Terms, other: Terms) -> bool:
    """Whether a difference of sums has nothing that is taken off, wherever in a tile it is."""
    least: Terms = {}
    for product, count in plus(one, other, -1).items():
        if count < 0 and len(product) == 1 and product[0].startswith(_IOTA):
            size = product[0].removeprefix(_IOTA)
            least = plus(plus(least, {(size,): 1}, count), {(): 1}, -count)
        else:
            least = plus(least, {product: 1}, count)
    return all(count >= 0 for count in least.values())


def _alternatives_of_least(flow: Flow, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What a mask's end is at most: each of the values that it is the least of."""
    behind = value_of(flow.source, node)
    called = flow.called(behind) if isinstance(behind, cst.Call) else ""
    if not isinstance(behind, cst.Call) or called.rpartition(".")[2] not in _LEAST:
        return []
    return [argument.value for argument in behind.args[:2]]


def _comparisons(flow: Flow, node: cst.CSTNode, deep: int = 0) -> Iterator[cst.Comparison]:
    """The comparisons that a mask is the conjunction of, also behind names."""
    if isinstance(node, cst.Comparison):
        if len(node.comparisons) == 1 and isinstance(node.comparisons[0].operator, _BELOW | _ABOVE):
            yield node
        return
    if isinstance(node, cst.BinaryOperation) and not isinstance(
        node.operator, cst.BitAnd | cst.Multiply
    ):
        return
    if isinstance(node, cst.BooleanOperation) and not isinstance(node.operator, cst.And):
        return
    if isinstance(node, cst.UnaryOperation):
        return
    if isinstance(node, cst.Name):
        if deep < _DEEPEST:
            for target, value in assigned(flow.body):
                if isinstance(target, cst.Name) and target.value == node.value:
                    yield from _comparisons(flow, value, deep + 1)
        return
    for child in children(node):
        yield from _comparisons(flow, child, deep)


def _beside(flow: Flow, loop: cst.For) -> list[cst.Comparison]:
    """The comparisons of a loop that may leave out what a load has too much.

    Those of the masks of other loads do so only for what they are multiplied with, as in a product
    of matrices.
    """
    found = [c for c in descendants(loop.body, cst.Comparison) if c in _comparisons(flow, c)
             and not _is_one_of_several(flow, c)]  # fmt: skip
    products = flow.has(loop.body, flow.dialect.dots)
    summed = flow.find(loop.body, flow.dialect.reductions)
    products |= any(
        isinstance(each.operator, cst.Multiply)
        for call in summed
        for each in descendants(call, cst.BinaryOperation)
    )
    if products:
        return found
    loads = flow.find(loop.body, flow.dialect.loads)
    masks = {c for load in loads for a in load.args[1:] for c in _comparisons(flow, a.value)}
    return [each for each in found if each not in masks]


def _is_one_of_several(flow: Flow, test: cst.Comparison) -> bool:
    """Whether a comparison need not hold, as another may do instead."""
    return any(
        isinstance(around, cst.UnaryOperation)
        or isinstance(getattr(around, "operator", None), cst.BitOr | cst.Or)
        for around in flow.source.ancestors(test)
        if isinstance(around, cst.BaseExpression)
    )


def _blocks_of(flow: Flow, loop: cst.For) -> list[tuple[cst.BaseExpression, Terms]]:
    """Where a loop may end, and the place of an element of its block, as far as that is known."""
    bounds = loop.iter
    if not isinstance(bounds, cst.Call) or not isinstance(loop.target, cst.Name):
        return []
    if flow.called(bounds) not in flow.dialect.ranges or not bounds.args:
        return []
    counter: Terms = {(loop.target.value,): 1}
    iota: Terms = {(_IOTA + flow.constant,): 1}
    last = bounds.args[min(1, len(bounds.args) - 1)].value
    step = argument(bounds, 2, "step")
    if step is not None and flow.carries(step):
        return [(end, plus(counter, iota)) for end in _alternatives(flow, last)]
    return [
        (length, plus(times(counter, _terms(flow, size)), iota))
        for blocks in _alternatives(flow, last)
        if (found := _divided(flow, blocks)) is not None
        for size in (found[1],)
        for length in _alternatives(flow, found[0])
    ]


def _divided(
    flow: Flow, node: cst.BaseExpression
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The length and the size of `tl.cdiv(n, BLOCK)`, where that is what a loop counts up to."""
    if not isinstance(node, cst.Call):
        return None
    if flow.called(node) not in flow.dialect.cdivs:
        return None
    length, size = argument(node, 0, "x"), argument(node, 1, "div")
    if length is None or size is None or not flow.carries(size) or flow.carries(length):
        return None
    return length, size


def _alternatives(
    flow: Flow, node: cst.BaseExpression, seen: frozenset[str] = frozenset()
) -> list[cst.BaseExpression]:
    """The values that one may have: by branches, or as the least of several."""
    if isinstance(node, cst.Name) and node.value not in seen:
        behind = value_of(flow.source, node)
        if behind is not node and not isinstance(behind, cst.Name):
            return _alternatives(flow, behind, seen)
        values = [v for t, v in assigned(flow.body)
                  if isinstance(t, cst.Name) and t.value == node.value]  # fmt: skip
        seen = seen | {node.value}
        return [e for v in values for e in _alternatives(flow, v, seen)] or [node]
    if isinstance(node, cst.Name):
        return []
    if isinstance(node, cst.IfExp):
        return [e for v in (node.body, node.orelse) for e in _alternatives(flow, v, seen)]
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        for switch, length in ((node.left, node.right), (node.right, node.left)):
            if _is_switch(flow, switch):
                return _alternatives(flow, length, seen)
    if isinstance(node, cst.Call):
        called = flow.called(node).rpartition(".")[2]
        if called in _LEAST:
            return [e for a in node.args[:2] for e in _alternatives(flow, a.value, seen)]
    return [node]


def _is_switch(flow: Flow, node: cst.BaseExpression) -> bool:
    """Whether a value is `tl.where(condition, 1, 0)`: a loop has all its rounds, or none."""
    call = value_of(flow.source, node)
    if not isinstance(call, cst.Call) or len(call.args) != 3:
        return False
    return [flow.source.code(a.value) for a in call.args[1:]] == ["1", "0"]


def _along(flow: Flow, loop: cst.For) -> Iterator[cst.Call]:
    """The accesses of a loop's blocks, element by element."""
    steps = names_in(loop.target).union(
        *(names_in(step.target) for step in descendants(loop.body, cst.AugAssign))
    )
    indexes = derived_names(flow.body, lambda value, known: _counts(flow, value, known))
    moving = derived_names(flow.body, lambda value, known: bool(names_in(value) & known), steps)
    below = {*descendants(loop.body, cst.Call)}
    for call in flow.accesses:
        if call in below and call.args:
            address = call.args[0].value
            if names_in(address) & moving and _counts(flow, address, indexes):
                yield call


def _counts(flow: Flow, node: cst.CSTNode, indexes: Collection[str]) -> bool:
    """Whether a value is made of the numbers of a block's elements, and loads nothing."""
    if flow.has(node, flow.dialect.loads):
        return False
    return any(name.value in indexes for name in descendants(node, cst.Name)) or any(
        name.value == flow.constant
        for call in flow.find(node, flow.dialect.iotas)
        for name in descendants(call, cst.Name)
    )


def _terms(flow: Flow, node: cst.CSTNode, deep: int = 0) -> Terms:
    """A value as a sum of products."""
    source = flow.source
    match node:
        case cst.Integer():
            return number(node.evaluated_value)
        case cst.Name() if deep < _DEEPEST * 2:
            behind = value_of(source, node)
            if behind is not node and not isinstance(behind, cst.Name):
                return _terms(flow, behind, deep + 1)
        case cst.Subscript(value=inner):
            return _terms(flow, inner, deep)
        case cst.BinaryOperation(left=left, operator=operator, right=right):
            one, other = _terms(flow, left, deep), _terms(flow, right, deep)
            if isinstance(operator, cst.Add | cst.Subtract):
                return plus(one, other, 1 if isinstance(operator, cst.Add) else -1)
            if isinstance(operator, cst.Multiply):
                return times(one, other)
        case cst.Call():
            called = flow.called(node)
            if called in flow.dialect.iotas:
                given = [
                    a.value for a in node.args if not (a.keyword and a.keyword.value == "dtype")
                ]
                return {(_IOTA + source.code(given[-1]),): 1}
            if called.rpartition(".")[2] in _HINTS and node.args:
                return _terms(flow, node.args[0].value, deep)
            method = node.func
            if isinstance(method, cst.Attribute) and method.attr.value in SHAPING:
                return _terms(flow, method.value, deep)
    return {(source.code(node),): 1}
