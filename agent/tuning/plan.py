"""The decision tree: from what a kernel is to the template, the dimensions and the configs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.size_changes import SizeChanges
from agent.analysis.cutile import traits
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.traits import Traits
from agent.analysis.cutile.uses import Uses
from agent.syntax import Literal, Source, Untraceable, argument, keyword, names_in
from agent.tuning.form import Form, form_of
from agent.tuning.templates import (
    MOST_ACCUMULATED,
    MOST_CONFIGS,
    OCCUPANCIES,
    TEMPLATES,
    NotTunable,
    Row,
    Space,
    Template,
    rows_for,
)

OCCUPANCY, NUM_CTAS = "occupancy", "num_ctas"


@dataclass(frozen=True)
class TunableSizes:
    """Which constants of a kernel may take another value; found by who knows the kernel's flow."""

    literals: Mapping[str, Literal] = field(default_factory=dict)
    """Constant -> the integer of the file that sets it."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Constant that may not change -> why."""
    changes: Mapping[str, SizeChanges] = field(default_factory=dict)
    """Constant -> whether it may grow, and shrink; both where there is none."""


@dataclass(frozen=True)
class SearchPlan:
    """What will be searched for one kernel, and why."""

    form: Form
    template: Template
    tiles: tuple[str, ...]
    """Constants that are searched, in the order of the rows."""
    hints: tuple[str, ...]
    literals: Mapping[str, Literal]
    extents: tuple[str, ...]
    """For the first tiles, the extent each covers, in terms of the kernel's parameters."""
    space: Space
    fixed: tuple[int | None, ...]
    """The config that the file has now; None for a hint that is not given by one integer."""
    why: tuple[str, ...]
    traits: Traits

    @property
    def kernel(self) -> str:
        """Its name."""
        return self.form.kernel.name

    @property
    def dimensions(self) -> tuple[str, ...]:
        """What a config holds, in order."""
        return (*self.tiles, *self.hints)

    @property
    def configs(self) -> int:
        """The most configs that one search tries, the fixed one included."""
        return 1 + max(len(rows) for rows in self.space.values())

    def configs_for(self, sm: int) -> list[dict[str, int | None]]:
        """What a search on a GPU of that compute capability times ten tries, whatever the shape."""
        rows = (self.fixed, *rows_for(self.space, sm))
        return [dict(zip(self.dimensions, row, strict=True)) for row in rows]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "kernel": self.kernel,
            "template": self.template.name,
            "kind": self.template.kind,
            "dimensions": list(self.dimensions),
            "configs": self.configs,
            "in_place": list(self.form.in_place),
            "scratch": list(self.form.scratch),
            "space": {f"sm_{sm}": [list(row) for row in rows] for sm, rows in self.space.items()},
            "why": list(self.why),
        }


def plan(
    source: Source,
    kernel: Kernel,
    kernel_class: KernelClass,
    sizes: TunableSizes,
    template: str | None = None,
) -> SearchPlan:
    """Choose a template for a kernel, and its search space.

    Args:
        source: the file.
        kernel: one of its launched kernels.
        kernel_class: what bounds it; told, not decided upon: the tree asks what it computes.
        sizes: which tile sizes may change.
        template: the name of another template than the tree's own.

    Raises:
        NotTunable: the file does not have the form, or the template asked for does not fit.
    """
    uses = Uses(source, kernel)
    form = form_of(source, kernel, uses)
    read = traits.read(source, kernel, uses)
    chosen, reason = _branch(read, form)
    why = [f"{kernel_class.value}: {reason}"]
    if template is not None and template != chosen.name:
        chosen = _asked_for(template, read)
        why.append(f"{chosen.name} was asked for")
    tiles, refused = _tiles(source, chosen, read, sizes)
    if template is not None and chosen.axes and refused:
        raise NotTunable(f"{template} searches tile sizes that cannot change: {refused}")
    if refused:
        why.append(f"occupancy only: {refused}")
    hints = (OCCUPANCY, NUM_CTAS) if tiles and chosen.clusters else (OCCUPANCY,)
    constants = tuple(tiles.values())
    extents = {c: e for c in constants if (e := _extent(source, kernel, c)) is not None}
    order = (*extents, *(c for c in constants if c not in extents))
    fixed = _fixed_row(source, form, order, hints, sizes)
    return SearchPlan(
        form=form,
        template=chosen,
        tiles=order,
        hints=hints,
        literals={c: sizes.literals[c] for c in order},
        extents=tuple(extents.values()),
        space=_space(chosen, tiles, order, sizes, read, fixed),
        fixed=fixed,
        why=tuple(why),
        traits=read,
    )


def _branch(read: Traits, form: Form) -> tuple[Template, str]:
    """The tree itself, from the rarest kind to the commonest."""
    if not read.multiplies:
        if form.in_place:
            return TEMPLATES["T2"], f"no product, and {', '.join(form.in_place)} is overwritten"
        return TEMPLATES["T1"], "no product, so that nothing but the occupancy hides memory latency"
    if read.attends:
        name = "T8" if read.ragged else "T5"
        return TEMPLATES[name], "two products around an exponential whose maximum is taken off"
    if read.grouped:
        return TEMPLATES["T7"], "a product for each of several groups, whose sizes a grid ignores"
    if read.products > 1:
        return TEMPLATES["T9"], f"{read.products} products in one loop share registers and memory"
    if read.eight_bit:
        return TEMPLATES["T6"], "8-bit floats, whose scales fix the tile's N and K"
    if read.persistent:
        return TEMPLATES["T4"], "a product whose blocks stride over the tiles"
    return TEMPLATES["T3"], "a product, whose tile sizes decide how often what is loaded is used"


def _asked_for(name: str, read: Traits) -> Template:
    if name not in TEMPLATES:
        raise NotTunable(f"there is no template {name!r}: choose from {', '.join(TEMPLATES)}")
    found = TEMPLATES[name]
    if found.axes and not read.multiplies:
        raise NotTunable(f"{name} is for a {found.kind}, and the kernel multiplies no tiles")
    return found


def _tiles(
    source: Source, template: Template, read: Traits, sizes: TunableSizes
) -> tuple[dict[str, str], str]:
    """Axis -> constant, for all axes of the template or for none; and why none."""
    if not template.axes:
        return {}, ""
    missing = [axis for axis in template.axes if axis not in read.axes]
    if missing:
        return {}, f"no constant is plainly the tile size of {', '.join(missing)}"
    tiles = {axis: read.axes[axis] for axis in template.axes}
    reasons = [f"{c} {sizes.fixed[c]}" for c in tiles.values() if c in sizes.fixed]
    reasons += [f"{c} is no parameter of the kernel" for c in tiles.values()
                if c not in sizes.fixed and c not in sizes.literals]  # fmt: skip
    if reasons:
        return {}, "; ".join(reasons)
    nodes = [sizes.literals[c].node for c in tiles.values()]
    if len({id(node) for node in nodes}) < len(nodes):
        line = source.line(nodes[0])
        return {}, f"one integer, at line {line}, sets several of {', '.join(tiles.values())}"
    return tiles, ""


def _space(
    template: Template,
    tiles: Mapping[str, str],
    order: tuple[str, ...],
    sizes: TunableSizes,
    read: Traits,
    fixed: tuple[int | None, ...],
) -> Space:
    """The template's rows, in the order of the dimensions, less the fixed one and unsafe ones."""
    if not tiles or template.rows is None:
        return {80: tuple((n,) for n in OCCUPANCIES if (n,) != fixed)}
    places = [tuple(tiles.values()).index(constant) for constant in order]
    found: dict[int, tuple[Row, ...]] = {}
    for sm, listed in template.rows.items():
        kept: dict[Row, None] = {}
        for row in listed:
            sized = tuple(row[place] for place in places)
            new = (*sized, *row[len(tiles) :])
            fits = _accumulated(template, row) * max(read.products, 1) <= MOST_ACCUMULATED
            safe = all(
                sizes.changes.get(c, SizeChanges()).allow(s, sizes.literals[c].value)
                for c, s in zip(order, sized, strict=True)
            )
            if fits and safe and new != fixed:
                kept[new] = None
        found[sm] = tuple(kept)[: MOST_CONFIGS - 1]
    return found


def _accumulated(template: Template, row: Row) -> int:
    """Elements of the accumulator, where the template knows both of its edges."""
    return row[0] * row[1] if template.axes[:2] == ("M", "N") else row[0]


def _fixed_row(
    source: Source,
    form: Form,
    order: tuple[str, ...],
    hints: tuple[str, ...],
    sizes: TunableSizes,
) -> tuple[int | None, ...]:
    given = (hint_of(form, hint) for hint in hints)
    values = tuple(_traced(source, g) if g is not None else None for g in given)
    return (*(sizes.literals[c].value for c in order), *values)


def hint_of(form: Form, hint: str) -> cst.BaseExpression | None:
    """What the kernel's decorator gives for a hint."""
    decorator = form.kernel.decorator.decorator
    return keyword(decorator, hint) if isinstance(decorator, cst.Call) else None


def _traced(source: Source, expression: cst.BaseExpression) -> int | None:
    try:
        return source.trace(expression).value
    except Untraceable:
        return None


def _extent(source: Source, kernel: Kernel, constant: str) -> str | None:
    """The extent that tiles of a constant's size cover: 'a.shape[0]'.

    By a load whose axes are those of its array, so that the place in the shape tells the axis.
    """
    parameters = {p.name.value for p in kernel.function.parameters}
    for call in CUTILE.find(source, kernel.function.node.body, CUTILE.loads):
        array, index = argument(call, 0, "array"), argument(call, 1, "index")
        shape = traits.shape_of(source, call)
        index = source.resolve(index) if index is not None else None
        if not isinstance(array, cst.Name) or array.value not in parameters:
            continue
        plain = keyword(call, "order") is None and isinstance(index, cst.Tuple)
        if plain and isinstance(shape, cst.Tuple):
            for place, element in enumerate(shape.elements):
                if constant in names_in(element.value):
                    return f"{array.value}.shape[{place}]"
    return None
