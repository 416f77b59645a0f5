"""Whether a kernel asks of a block's size nothing but how its loops step over an axis.

Stricter than that no result depends on the size, as where the grid is made for it as well: here the
host, other blocks of the kernel and callers may keep the size that they had. So no bound of a loop
may be so many blocks, no branch may ask which block it is, nothing of the block may be read outside
the loops that step by it, and it may be a factor of strides and of the number of a round alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.derived_names import derived_names
from agent.analysis.common.reaching_definitions import value_of
from agent.syntax import assigned, children, descendants, names_in, positional

_SAYING = ("static_assert", "device_assert", "assume")


def why_not_alone(flow: Flow) -> str | None:
    """What a kernel does with a constant besides stepping by it, in words; None for nothing."""
    return next(_otherwise(flow), None)


def _otherwise(flow: Flow) -> Iterator[str]:
    source, body = flow.source, flow.body
    stepping: dict[cst.For, str] = {}
    for loop in descendants(body, cst.For):
        if not names_in(loop.iter) & flow.names:
            continue
        counter = _counter(flow, loop)
        if counter is None:
            yield f"the loop at line {source.line(loop)} does not go over an axis by it alone"
        else:
            stepping[loop] = counter
    places = derived_names(body, lambda value, names: _places(flow, value, names))
    counters = {counter for loop in stepping for counter in names_in(loop.target)}
    yield from _outside(flow, stepping, places)
    yield from _asked(flow, stepping, counters | places)
    yield from _factors(flow, set(stepping.values()))
    yield from _by_round(flow, stepping, counters, places)


def _counter(flow: Flow, loop: cst.For) -> str | None:
    """What is multiplied by the size in a loop over blocks; empty where the counter is a place.

    None of a loop that is not `range(a, b, BLOCK)` or `range(cdiv(n, BLOCK))`.
    """
    if not isinstance(loop.iter, cst.Call) or not isinstance(loop.target, cst.Name):
        return None
    if flow.called(loop.iter) not in flow.dialect.ranges:
        return None
    given = positional(loop.iter)
    if len(given) != len([a for a in loop.iter.args if not a.keyword]):
        return None
    match given:
        case [start, end, step] if flow.source.code(step) == flow.constant:
            free = not any(_reaches(flow, bound) for bound in (start, end))
            return "" if free else None
        case [end] | [cst.Integer(value="0"), end]:
            return loop.target.value if _counts(flow, value_of(flow.source, end)) else None
    return None


def _counts(flow: Flow, count: cst.BaseExpression) -> bool:
    """Whether it is `tl.cdiv(n, BLOCK)`."""
    if not isinstance(count, cst.Call):
        return False
    if flow.called(count) not in flow.dialect.cdivs or len(count.args) != 2:
        return False
    of, by = (arg.value for arg in count.args)
    return flow.source.code(by) == flow.constant and not _reaches(flow, of)


def _reaches(flow: Flow, bound: cst.BaseExpression) -> bool:
    """Whether a bound is computed from the size, or from how many programs there are."""
    behind = value_of(flow.source, bound)
    counts = flow.find(behind, flow.dialect.program_counts)
    return bool(names_in(behind) & flow.names) or any(True for _ in counts)


def _places(flow: Flow, value: cst.BaseExpression, names: set[str]) -> bool:
    """Whether a value is computed from element numbers of a block, without what is read there."""
    if isinstance(value, cst.Name):
        return value.value in names
    if isinstance(value, cst.Call):
        called = flow.called(value)
        if called in flow.dialect.iotas:
            return flow.constant in names_in(value)
        stopping = (*flow.dialect.loads, *flow.dialect.dots, *flow.dialect.reductions)
        if called in stopping or called in flow.dialect.shapes:
            return False
    return any(_places(flow, child, names) for child in children(value))  # type: ignore[arg-type]


def _outside(flow: Flow, stepping: dict[cst.For, str], places: set[str]) -> Iterator[str]:
    """Loads and stores at element numbers of a block where no loop steps by it."""
    source = flow.source
    accesses = (*flow.dialect.loads, *flow.dialect.stores)
    for call in flow.find(flow.body, accesses):
        at_block = any(_places(flow, arg.value, places) for arg in call.args)
        if at_block and stepping.keys().isdisjoint(source.ancestors(call)):
            yield f"line {source.line(call)} takes a block of it outside of a loop over them"


def _asked(flow: Flow, stepping: dict[cst.For, str], names: set[str]) -> Iterator[str]:
    """Branches and assertions that ask for the size, which round it is, or what one has found."""
    source, asked = flow.source, names | flow.names
    for loop in stepping:
        asked |= {n for target, _ in assigned(loop.body) for n in names_in(target)}
    for node in descendants(flow.body, cst.CSTNode):  # type: ignore[type-abstract]
        match node:
            case cst.If() if flow.dialect.masks_edges(source, node):
                continue
            case cst.If() | cst.IfExp() | cst.While() | cst.Assert():
                test = node.test
            case cst.Call() if source.code(node.func).rpartition(".")[2] in _SAYING:
                test = node
            case _:
                continue
        if names_in(test) & asked:
            yield f"line {source.line(node)} asks for it, which round it is, or what one has found"


def _by_round(
    flow: Flow, stepping: dict[cst.For, str], counters: set[str], places: set[str]
) -> Iterator[str]:
    """What a round does once, however many elements its block has."""
    source = flow.source
    numbered = derived_names(
        flow.body, lambda value, names: bool(names_in(value) & names) and not _loads(flow, value),
        counters,
    )  # fmt: skip

    def asks(side: cst.BaseExpression) -> bool:
        return bool(names_in(side) & numbered)

    for loop in stepping:
        for node in descendants(loop.body, cst.CSTNode):  # type: ignore[type-abstract]
            match node:
                case cst.Comparison(left=left, comparisons=[other]):
                    sides = (left, other.comparator)
                    at = [_places(flow, x, places) for x in sides]
                    twice = all(map(asks, sides))
                    once = any(map(asks, sides)) and not any(at)
                    if (twice or once) and not _is_of_edge(flow, node):
                        yield f"line {source.line(node)} compares which round it is"
                case cst.Call() if _is_once(flow, node):
                    yield f"line {source.line(node)} does once a round what it does"
                case cst.AugAssign(
                    target=cst.Name(value=name),
                    operator=cst.AddAssign() | cst.SubtractAssign(),
                    value=value,
                ) if _is_count(flow, value) and not _begins(loop, name):
                    yield f"line {source.line(node)} counts rounds"


def _is_once(flow: Flow, call: cst.Call) -> bool:
    """Whether a call adds to memory, or draws numbers."""
    called = flow.called(call)
    last = called.rpartition(".")[2]
    return last.startswith(("atomic", "rand", "philox")) and flow.dialect.owns(called)


def _is_count(flow: Flow, value: cst.BaseExpression) -> bool:
    """Whether what is added is the kernel's own number or the launch's, and not times the size."""
    given = {p.name.value for p in flow.kernel.function.parameters} - {flow.constant}
    calls = any(True for _ in descendants(value, cst.Call))
    return not calls and names_in(value) <= given


def _begins(loop: cst.For, name: str) -> bool:
    """Whether each round gives a name another value, to which it then adds."""
    return any(
        isinstance(target.target, cst.Name) and target.target.value == name
        for assign in descendants(loop.body, cst.Assign)
        for target in assign.targets
    )


def _loads(flow: Flow, node: cst.BaseExpression) -> bool:
    found = (*flow.dialect.loads, *flow.dialect.dots)
    return flow.has(node, found)


def _factors(flow: Flow, counters: set[str]) -> Iterator[str]:
    """Where the size is part of arithmetic other than a stride's or the number of a round's."""
    source = flow.source
    parameters = {p.name.value for p in flow.kernel.function.parameters}
    for node in descendants(flow.body, cst.BinaryOperation):
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if not isinstance(one, cst.Name) or one.value != flow.constant:
                continue
            is_factor = isinstance(node.operator, cst.Multiply) and (
                isinstance(other, cst.Integer)
                or (isinstance(other, cst.Name) and other.value in parameters | counters)
            )
            if not is_factor and not _is_step(flow, node, other) and not _is_of_edge(flow, node):
                yield f"line {source.line(node)} computes with it: `{source.code(node)}`"


def _is_step(flow: Flow, node: cst.BinaryOperation, other: cst.BaseExpression) -> bool:
    """`pointers = pointers + BLOCK`."""
    match next(flow.source.ancestors(node)):
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=target))]):
            return (
                isinstance(node.operator, cst.Add)
                and isinstance(other, cst.Name)
                and other.value == target
            )
    return False


def _is_of_edge(flow: Flow, node: cst.CSTNode) -> bool:
    """Whether a node stands in a condition under which tiles are masked."""
    inner = node
    for around in flow.source.ancestors(node):
        if isinstance(around, cst.If):
            return around.test is inner and flow.dialect.masks_edges(flow.source, around)
        if isinstance(around, cst.BaseStatement):
            return False
        inner = around
    return False
