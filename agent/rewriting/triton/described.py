"""Rewrites loads and stores of tiles to tensor descriptors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel, callees
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.triton.aliasing import alike
from agent.analysis.triton.arguments import rewritten
from agent.analysis.triton.dialect import THROUGH_DESCRIPTOR, TRITON
from agent.analysis.triton.heuristics import ON_HOST
from agent.analysis.triton.index_ranges import is_scalar
from agent.analysis.triton.pointers import root
from agent.analysis.triton.tile_axes import is_broadcast
from agent.analysis.triton.tiles import LOAD, NO_TILE, STORE, Dimension, TileAccess, tile_access
from agent.rewriting.common.formatting import STEP, NewCall, Place, laid_out
from agent.rewriting.triton.descriptors import Layout, branching, replaced
from agent.rewriting.triton.edits import Edit
from agent.syntax import Source, argument, descendants, keyword

FIRST_TMA = 90
MAKE = "triton.language.make_tensor_descriptor"
KINDS = {"loads": (LOAD,), "loads and stores": (LOAD, STORE)}


@dataclass(frozen=True)
class Described:
    """A tile access with its descriptor."""

    access: TileAccess
    name: str
    """Of the descriptor."""
    leading: tuple[str, ...] = ()
    """Where the tile lies along the dimensions that come before its own two."""


def check_hardware(subject: Subject) -> None:
    """Raise `NotApplicable` where no tensor memory accelerator is."""
    if subject.hardware.interpreted or 0 < subject.hardware.sm < FIRST_TMA:
        where = f"sm_{subject.hardware.sm}" if subject.hardware.sm else "Triton's interpreter"
        raise NotApplicable(f"{where} has no tensor memory accelerator")


def check_undescribed(source: Source, kernel: Kernel) -> None:
    """Raise `NotApplicable` for a kernel that has tensor descriptors."""
    if TRITON.has(source, kernel.function.node.body, (MAKE,)):
        raise NotApplicable(f"{kernel.name} makes tensor descriptors already")
    made = [n for n in descendants(source.module, cst.Name) if source.name(n) == ON_HOST]
    through = (f for f in (*TRITON.loads, *TRITON.stores) if f.endswith(THROUGH_DESCRIPTOR))
    if made and TRITON.has(source, kernel.function.node.body, tuple(through)):
        raise NotApplicable(f"the host makes tensor descriptors for {kernel.name} already")
    launching = {launch.function for launch in kernel.launches}
    for name in made:
        if not launching or source.enclosing(name) in launching - {None}:
            raise NotApplicable(
                f"line {source.line(name)} makes tensor descriptors already, where "
                + (f"{kernel.name} is launched" if launching else "others may be launched")
            )


def _unfound(source: Source, kernel: Kernel) -> str:
    """Why a kernel has no access that a descriptor could stand for."""
    for helper in callees(source, kernel.function):
        call = next(TRITON.find(source, helper.node.body, (LOAD, STORE)), None)
        if call is not None:
            return (
                f"{kernel.name} leaves its tiles to {helper.name}, as line {source.line(call)}: "
                "what helpers load is not followed"
            )
    return f"{kernel.name} loads no tiles of two dimensions in a loop"


def usable(source: Source, kernel: Kernel, call: cst.Call) -> TileAccess:
    """A tile that a descriptor can stand for. Raises `NotApplicable` for an access of another."""
    access = tile_access(source, kernel, call)
    line = source.line(call)
    other = argument(call, 2, "other") if source.name(call.func) == LOAD else None
    if other is not None and source.code(other) not in ("0", "0.0", "0."):
        raise NotApplicable(f"line {line} fills with {source.code(other)}; a descriptor, with 0")
    if any(isinstance(around, cst.If) for around in source.ancestors(call)):
        raise NotApplicable(f"line {line} stands under an `if`: there may be no array")
    value = argument(call, 1, "value") if source.name(call.func) == STORE else None
    if value is not None and is_scalar(source, value):
        raise NotApplicable(f"line {line} stores a number, not a tile")
    if value is not None and is_broadcast(source, kernel, value):
        raise NotApplicable(f"line {line} stores a row or a column, broadcast to a tile")
    if keyword(call, "volatile") is not None:
        raise NotApplicable(f"line {line} is volatile")
    stores = [root(source, kernel, c.args[0].value) if c.args else None
              for c in TRITON.find(source, kernel.function.node.body, (STORE,))]  # fmt: skip
    if source.name(call.func) == STORE and (None in stores or stores.count(access.base) > 1):
        raise NotApplicable(f"line {line} is not the only store to {access.base}")
    if access.transposed and source.name(call.func) == STORE:
        raise NotApplicable(f"line {line} stores a tile that is transposed in memory")
    _line_of(source, call)
    return access


def check_kernel(
    source: Source, kernel: Kernel, accesses: Iterable[TileAccess], reasons: Sequence[str]
) -> None:
    """Raise `NotApplicable` unless what can be described is worth it, and keeps its order.

    Args:
        source: the file.
        kernel: the kernel.
        accesses: what can be described.
        reasons: why others cannot.
    """
    found = list(accesses)
    looped = any(isinstance(a, cst.For) for access in found for a in source.ancestors(access.call))
    if not found or (not looped and TRITON.has_dot(source, kernel)):
        told = sorted(reasons, key=lambda reason: reason.endswith(NO_TILE))
        raise NotApplicable("; ".join(told[:1]) or _unfound(source, kernel))
    same = alike(source, kernel)
    again = {same.get(name, name) for name in rewritten(source, kernel)}
    for access in found:
        if same.get(access.base, access.base) in again:
            raise NotApplicable(f"{kernel.name} loads and stores {access.base}: TMA may overtake")


def in_memory(access: TileAccess) -> tuple[Dimension, Dimension]:
    """The dimensions of a tile, the one whose elements lie side by side last."""
    first, last = access.dimensions
    return (last, first) if access.transposed else (first, last)


def layout(access: TileAccess) -> Layout:
    """How the array of a tile lies in memory."""
    rows, columns = in_memory(access)
    return Layout(access.base, access.offsets, (rows.stride,), columns.stride, columns.extent)


def origin(source: Source, access: TileAccess) -> str:
    """What the addresses of a tile begin at, as it can be written where the access stands."""
    return " + ".join(map(source.code, access.origin))


def wanted_name(access: TileAccess) -> str:
    """What a descriptor of an array is called: 'a_desc' of `a_ptr`."""
    return f"{access.base.removesuffix('_ptr').lower()}_desc"


def branches(
    source: Source, described: Iterable[Described], flag: str, tl: str
) -> dict[cst.CSTNode, Edit]:
    """The edits that go through descriptors where a constant says so."""
    lines: dict[cst.SimpleStatementLine, dict[cst.Call, str]] = {}
    loads_first = sorted(described, key=lambda each: source.name(each.access.call.func) == STORE)
    for each in loads_first:  # a store may hold some
        texts = lines.setdefault(_line_of(source, each.access.call), {})
        texts[each.access.call] = _text(source, each, texts, tl)
    return {line: branching(line, texts, flag) for line, texts in lines.items()}


def _line_of(source: Source, call: cst.Call) -> cst.SimpleStatementLine:
    for around in source.ancestors(call):
        if isinstance(around, cst.SimpleStatementLine) and len(around.body) == 1:
            return around
        if isinstance(around, cst.BaseCompoundStatement | cst.Lambda | cst.BaseComp):
            break
    raise NotApplicable(f"line {source.line(call)} is no statement of its own")


def _text(source: Source, described: Described, within: Mapping[cst.Call, str], tl: str) -> str:
    """The access through its descriptor, whose tile has a dimension more for each leading one.

    Args:
        source: the file.
        described: the access.
        within: what becomes of accesses that it may hold.
        tl: how the file spells triton.language.
    """
    here = Place.of(source, described.access.call)
    place = Place(here.block + STEP, here.indent + STEP, here.before + STEP, here.behind)
    access, name = described.access, described.name
    rows, columns = in_memory(access)
    starts = [f"({d.start}).to({tl}.int32)" if d.is_wide else d.start for d in (rows, columns)]
    at = ", ".join([*described.leading, *starts])
    own = f"{rows.extent}, {columns.extent}"
    ones = "".join("1, " for _ in described.leading)
    if source.name(access.call.func) == STORE:
        value = argument(access.call, 1, "value")
        assert value is not None
        stored: str | NewCall = source.code(replaced(value, within))
        stored = NewCall(f"{tl}.reshape", [str(stored), f"({ones}{own})"]) if ones else stored
        return laid_out(NewCall(f"{name}.store", [f"[{at}]", stored]), place)
    loaded = NewCall(f"{name}.load", [f"[{at}]"])
    loaded = NewCall(f"{tl}.reshape", [loaded, f"({own})"]) if ones else loaded
    text = laid_out(loaded, place)
    return f"{text}.T" if access.transposed else text
