"""Loops of the host that launch a cuTile kernel once for each item of lists of arrays.

Such launches can be one where none reads what another one writes, and where a block can tell
whether its item is long enough to have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import libcst as cst

from agent.analysis.common.aliases import not_launched
from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.reaching_definitions import binds, definition, value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.dialect import CT, CUTILE, grid_axis
from agent.analysis.cutile.tile_shapes import edges_of
from agent.analysis.cutile.uses import Uses
from agent.syntax import Source, argument, descendants, is_commented, keyword, names_in, positional

FRESH = ("torch.empty_like", "torch.zeros_like", "torch.ones_like", "torch.full_like")
STORE, READS = f"{CT}store", (f"{CT}load", f"{CT}gather")
BLOCKS = f"{CT}num_blocks"


@dataclass(frozen=True)
class Limit:
    """How many blocks an item has along an axis of the grid, in the kernel's terms."""

    axis: int
    array: str
    """A parameter of the kernel."""
    dimension: int
    edge: str
    """Of the tiles that the array has along its dimension."""


@dataclass(frozen=True)
class Batch:
    """A loop of launches."""

    kernel: Kernel
    launch: Launch
    loop: cst.For
    targets: dict[str, cst.BaseExpression]
    """A variable of the loop -> the list that it goes through."""
    items: dict[str, str]
    """A parameter of the kernel -> the variable that it is given."""
    grid: tuple[cst.BaseExpression, ...]
    limits: tuple[Limit, ...] = ()
    """Of each axis along which one item may have more blocks than another."""


def batch_of(source: Source, kernel: Kernel) -> Batch:
    """The loop whose launches of a kernel can be one.

    Raises:
        NotApplicable: there is none, or something may depend on the order of the launches.
    """
    batch = _loop_of(source, kernel)
    check_builtins(source, batch.loop, "len", "list", "max")
    _check_kernel(source, batch)
    return replace(batch, limits=_limits(source, batch))


def _loop_of(source: Source, kernel: Kernel) -> Batch:
    name = kernel.name
    if not kernel.launches:
        raise not_launched(source, kernel)
    if len(kernel.launches) != 1 or len(source.mentions(kernel.function)) != 1:
        raise NotApplicable(f"{name} is not launched in one place alone")
    launch = kernel.launches[0]
    loop = next((a for a in source.ancestors(launch.node) if isinstance(a, cst.For)), None)
    if loop is None or launch.function is None or source.enclosing(loop) is not launch.function:
        raise NotApplicable(f"{name} is launched in no loop over arrays")
    line = source.line(loop)
    if loop.orelse is not None or loop.asynchronous is not None or not _is_alone(loop, launch):
        raise NotApplicable(f"the loop at line {line} does more than launch {name}")
    if is_commented(loop.body):
        raise NotApplicable(f"the loop at line {line} has comments that would get lost")
    targets = _targets(source, loop, launch)
    if len(positional(launch.node)) != 4 or len(launch.node.args) != 4:
        raise NotApplicable(f"line {source.line(launch.node)} launches by keywords")
    if not launch.complete or any(binds(kernel.function.node.body, n) for n in launch.arguments):
        raise NotApplicable(f"line {source.line(launch.node)} does not show what {name} is given")
    items = {
        parameter: value.value
        for parameter, value in launch.arguments.items()
        if isinstance(value, cst.Name) and value.value in targets
    }
    uses = Uses(source, kernel)
    others = [v for n, v in launch.arguments.items() if n not in items]
    shared = targets.keys() | {source.code(listed) for listed in targets.values()}
    if not items or set(items) - uses.arrays or any(names_in(v) & shared for v in others):
        raise NotApplicable(f"line {source.line(launch.node)} hands on more of an item than arrays")
    written = {items.get(name) for name in uses.stored}
    for variable, given in targets.items():
        if variable in written or not _is_parameter(source, given):
            _check_fresh(source, loop, given)
    if None in written:
        raise NotApplicable(f"{name} writes an array that all launches share")
    grid = source.resolve(launch.grid)
    extents = [e.value for e in grid.elements] if isinstance(grid, cst.Tuple) else []
    if not extents or any(source.code(extent) != "1" for extent in extents[2:]):
        raise NotApplicable(f"the grid of {name} has no axis left, or is not written out")
    return Batch(kernel, launch, loop, targets, items, tuple(extents[:2]))


def _is_alone(loop: cst.For, launch: Launch) -> bool:
    """Whether a loop does nothing but launch, and name its grid before."""
    match loop.body.body:
        case [*before, cst.SimpleStatementLine(body=[cst.Expr(value=value)])]:
            named = launch.grid.value if isinstance(launch.grid, cst.Name) else ""
            return value is launch.node and all(_names_grid(line, named) for line in before)
    return False


def _names_grid(line: cst.CSTNode, name: str) -> bool:
    match line:
        case cst.SimpleStatementLine(
            body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=target))])]
        ):
            return target == name
    return False


def _targets(source: Source, loop: cst.For, launch: Launch) -> dict[str, cst.BaseExpression]:
    names = [n.value for n in descendants(loop.target, cst.Name)]
    lists: Sequence[cst.BaseExpression] = [loop.iter]
    if isinstance(loop.iter, cst.Call) and source.name(loop.iter.func) in ("zip", "builtins.zip"):
        lists = positional(loop.iter)
    if len(names) != len(lists) or not all(isinstance(given, cst.Name) for given in lists):
        raise NotApplicable(f"the loop at line {source.line(loop)} goes through no named lists")
    function = source.enclosing(loop)
    assert function is not None
    inside = set(descendants(loop, cst.Name))
    bound = {*names, source.code(launch.grid)}
    end = source.place(loop).end.line
    for other in descendants(function.node.body, cst.Name):
        if other not in inside and other.value in bound and source.line(other) > end:
            raise NotApplicable(f"line {source.line(other)} may use `{other.value}` of the loop")
    return dict(zip(names, lists, strict=True))


def _is_parameter(source: Source, given: cst.BaseExpression) -> bool:
    function = source.enclosing(given)
    assert function is not None
    name = cst.ensure_type(given, cst.Name).value
    known = {parameter.name.value for parameter in function.parameters}
    return name in known and not binds(function.node.body, name)


def _check_fresh(source: Source, loop: cst.For, given: cst.BaseExpression) -> None:
    """Raise `NotApplicable` unless a list holds arrays that this function has just made."""
    name = cst.ensure_type(given, cst.Name).value
    made = source.resolve(given)
    element = made.elt if isinstance(made, cst.ListComp) else None
    if not isinstance(element, cst.Call) or source.name(element.func) not in FRESH:
        raise NotApplicable(f"`{name}` may hold what another launch reads or writes")
    function = source.enclosing(loop)
    assert function is not None
    before = source.line(loop)
    assigned_at = source.line(made)
    for other in descendants(function.node.body, cst.Name):
        if other.value == name and assigned_at < source.line(other) < before:
            raise NotApplicable(f"line {source.line(other)} uses `{name}` before the loop")


def _check_kernel(source: Source, batch: Batch) -> None:
    """Raise `NotApplicable` for a kernel that does more than load and store at its block."""
    kernel, body = batch.kernel, batch.kernel.function.node.body
    if len(CUTILE.reached(source, kernel)) > 1:
        raise NotApplicable(f"{kernel.name} calls helpers")
    if any(p.annotation for p in kernel.function.parameters if p.name.value in batch.items):
        raise NotApplicable(f"{kernel.name} says what arrays it takes")
    for kind in (cst.For, cst.While):
        for loop in descendants(body, kind):
            raise NotApplicable(f"line {source.line(loop)} of {kernel.name} loops")
    for end in descendants(body, cst.Return):
        raise NotApplicable(f"line {source.line(end)} of {kernel.name} returns")
    for call in descendants(body, cst.Call):
        called = source.name(call.func) or ""
        if called in (*CUTILE.loads, *CUTILE.stores) and called not in (STORE, *READS):
            raise NotApplicable(f"line {source.line(call)} is no plain load or store")
        third = called in CUTILE.program_ids and grid_axis(call) not in (0, 1)
        if called == BLOCKS or third or keyword(call, "check_bounds") is not None:
            raise NotApplicable(f"line {source.line(call)} of {kernel.name} rests on its grid")
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if not CUTILE.owns(called) and method in ("store", "load", "slice", "tiled_view"):
            raise NotApplicable(f"line {source.line(call)} is no plain load or store")


def _limits(source: Source, batch: Batch) -> tuple[Limit, ...]:
    """Raise `NotApplicable` unless each store is where its block is."""
    limits = []
    for axis, extent in enumerate(batch.grid):
        if not names_in(extent) & batch.targets.keys():
            continue
        array, dimension, edge = _tiles(source, extent)
        found = None
        for call in CUTILE.find(source, batch.kernel.function.node.body, (STORE,)):
            found = _stored_there(source, batch, call, (axis, array, dimension, edge))
            if found is None:
                raise NotApplicable(
                    f"line {source.line(call)} of {batch.kernel.name} is not seen to store within "
                    f"`{source.code(extent)}` blocks"
                )
        if found is None:
            raise NotApplicable(f"{batch.kernel.name} stores nothing")
        limits.append(found)
    return tuple(limits)


def _tiles(source: Source, extent: cst.BaseExpression) -> tuple[str, str, str]:
    """Array, dimension and edge of an extent such as `ct.cdiv(x.shape[0], TILE)`."""
    size, edge = extent, "1"
    if isinstance(extent, cst.Call) and source.name(extent.func) in CUTILE.cdivs:
        size, edge = extent.args[0].value, source.code(extent.args[1].value)
    match size:
        case cst.Subscript(
            value=cst.Attribute(value=cst.Name(value=array), attr=cst.Name(value="shape")),
            slice=[cst.SubscriptElement(slice=cst.Index(value=cst.Integer(value=dimension)))],
        ):
            return array, dimension, edge
    raise NotApplicable(f"`{source.code(extent)}` does not say how many tiles an array has")


def _stored_there(
    source: Source, batch: Batch, call: cst.Call, wanted: tuple[int, str, str, str]
) -> Limit | None:
    """The limit of a store that puts tile number `ct.bid(axis)` along a dimension of an array."""
    axis, like, dimension, edge = wanted
    array, index, tile = (argument(call, i, n) for i, n in enumerate(("array", "index", "tile")))
    if not isinstance(array, cst.Name) or index is None or tile is None:
        return None
    variable = batch.items.get(array.value, "")
    if variable != like and not _is_like(source, batch, variable, like):
        return None
    places, edges = value_of(source, index), edges_of(source, tile)
    at = int(dimension)
    if (
        not isinstance(places, cst.Tuple)
        or not edges
        or not at < len(edges) == len(places.elements)
    ):
        return None
    block = value_of(source, places.elements[at].value)
    if not isinstance(block, cst.Call) or source.name(block.func) not in CUTILE.program_ids:
        return None
    given = edges[at]
    if isinstance(given, cst.Name) and given.value in batch.launch.arguments:
        given = batch.launch.arguments[given.value]
    elif not isinstance(given, cst.Integer) and not _is_global(source, given):
        return None
    if grid_axis(block) != axis or source.code(given) != edge:
        return None
    return Limit(axis, array.value, at, source.code(edges[at]))


def _is_global(source: Source, expression: cst.BaseExpression) -> bool:
    """Whether it is a name of the module, for the kernel as for the host."""
    if not isinstance(expression, cst.Name):
        return False
    found = definition(source, expression.value, expression)
    return found is not None and source.enclosing(found.node) is None


def _is_like(source: Source, batch: Batch, variable: str, like: str) -> bool:
    """Whether each item of a variable was made with the shape of that of another one."""
    if variable not in batch.targets or like not in batch.targets:
        return False
    match source.resolve(batch.targets[variable]):
        case cst.ListComp(
            elt=cst.Call(args=[cst.Arg(value=cst.Name(value=item)), *_]),
            for_in=cst.CompFor(
                target=cst.Name(value=each), iter=through, ifs=[], inner_for_in=None
            ),
        ):
            return item == each and source.code(through) == source.code(batch.targets[like])
    return False
