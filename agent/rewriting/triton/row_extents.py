"""Infers which values of a kernel with one row a program vary along the row, line by line.

Reading a kernel so is also where it is refused: at the first line that may mix rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.reduced_axes import expanded_axis
from agent.rewriting.triton.edits import Edit, writing
from agent.rewriting.triton.row_shapes import (
    DIMENSIONS,
    RowExtent,
    RowNames,
    TileForm,
    both,
    laid,
    of_cast,
    with_rows,
)
from agent.syntax import Source, argument, descendants, keyword, with_keyword

TL = "triton.language."
REDUCTIONS = tuple(
    f"{TL}{name}" for name in ("sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce")
)
"""What makes one number of a tile."""
SCANS = tuple(f"{TL}{name}" for name in ("cumsum", "cumprod", "associative_scan"))
"""What keeps the shape of a tile."""
ELEMENTWISE = frozenset(
    (*TRITON.arithmetic, *(f"{TL}{name}" for name in (
        "cast", "cdiv", "clamp", "rand", "randint", "randn", "zeros_like")))
)  # fmt: skip
"""What computes each element from those at its place."""
OF_SCALARS = (f"{TL}multiple_of", f"{TL}max_contiguous", "builtins.abs", "builtins.float",
              "builtins.int", "builtins.max", "builtins.min")  # fmt: skip
"""What may be asked of numbers that all rows share."""
SAYS = (f"{TL}static_assert", f"{TL}static_print", f"{TL}assume")
"""What computes nothing."""
LOAD, STORE = f"{TL}load", f"{TL}store"
PLAIN = ("mask", "other", "value", "pointer", "cache_modifier", "eviction_policy", "volatile")
"""Arguments of a load or store that have a meaning for tiles of pointers."""


@dataclass
class Reading:
    """Walks a kernel in the order it runs, with the extent of each name."""

    source: Source
    kernel: Kernel
    form: TileForm
    names: RowNames
    row: Mapping[cst.Call, Edit]
    """Where the kernel asks for its row, and what becomes of it there."""
    edits: dict[Any, Edit] = field(default_factory=dict)
    under_way: frozenset[str] = frozenset()
    """The helpers that are being read: one may call itself."""
    of_rows: int = 0
    """How often something is computed from a whole row, or loaded for one."""

    def _refuse(self, node: cst.CSTNode, what: str) -> NotApplicable:
        return NotApplicable(f"line {self.source.line(node)} of {self.kernel.name} {what}")

    @property
    def _last(self) -> cst.CSTNode:
        """What stands last in the kernel, where a `return` says what its end does without one."""
        line = self.kernel.function.node.body.body[-1]
        return line.body[-1] if isinstance(line, cst.SimpleStatementLine) else line

    # --- statements -----------------------------------------------------------------------------

    def block_of(self, statements: Sequence[cst.CSTNode], known: dict[str, RowExtent]) -> None:
        for statement in statements:
            match statement:
                case cst.SimpleStatementLine():
                    for small in statement.body:
                        self._small(small, known)
                case cst.For(body=cst.IndentedBlock(), orelse=None):
                    self._loop(statement, known)
                case cst.If(body=cst.IndentedBlock()):
                    self._branch(statement, known)
                case _:
                    raise self._refuse(statement, "is no plain statement, loop or branch")

    def _small(self, small: cst.BaseSmallStatement, known: dict[str, RowExtent]) -> None:
        match small:
            case cst.Pass() | cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
                pass
            case cst.Expr(value=cst.Call() as call) if self.source.name(call.func) == STORE:
                self._store(call, known)
            case cst.Expr(value=cst.Call() as call) if self.source.name(call.func) in SAYS:
                if any(self._of(a.value, known) for a in call.args):
                    raise self._refuse(call, "says something of a row")
            case cst.Return(value=None) if small is self._last:
                pass
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value):
                known[name] = self._of(value, known)
            case cst.AnnAssign(target=cst.Name(value=name), value=cst.BaseExpression() as value):
                known[name] = self._of(value, known)
            case cst.AugAssign(target=cst.Name(value=name) as target, value=value):
                known[name] = self._joined([target, value], known)
            case _:
                raise self._refuse(small, f"is more than a tile can do: `{self._text(small)}`")

    def _loop(self, loop: cst.For, known: dict[str, RowExtent]) -> None:
        bounds = loop.iter
        if not isinstance(loop.target, cst.Name) or not isinstance(bounds, cst.Call):
            raise self._refuse(loop, "is no loop over a range")
        if self.source.name(bounds.func) not in TRITON.ranges:
            raise self._refuse(loop, "is no loop over a range")
        if any(self._of(a.value, known) for a in bounds.args):
            raise self._refuse(loop, "loops as often as its row says")
        before, earlier = dict(known), self.edits.keys() - set()
        known[loop.target.value] = RowExtent.NONE
        self.block_of(loop.body.body, known)
        self._check_same(loop, before, known)
        again, later = replace(self, edits={}), dict(known)
        again.block_of(loop.body.body, later)  # an unrolled loop reads what its last round left
        if later != known or again.edits.keys() != self.edits.keys() - earlier:
            raise self._refuse(loop, "changes the shape of a tile from one round to the next")

    def _branch(self, branch: cst.If, known: dict[str, RowExtent]) -> None:
        if self._of(branch.test, known):
            raise self._refuse(branch, "branches by the row")
        before = dict(known)
        self.block_of(branch.body.body, known)
        other = dict(before)
        if isinstance(branch.orelse, cst.If):
            self._branch(branch.orelse, other)
        elif branch.orelse is not None:
            self.block_of(branch.orelse.body.body, other)
        self._check_same(branch, other, known)
        known |= {name: extent for name, extent in other.items() if name not in known}

    def _check_same(
        self, node: cst.CSTNode, one: Mapping[str, RowExtent], other: Mapping[str, RowExtent]
    ) -> None:
        """What Triton asks of a name that a loop or a branch changes: one shape on every way."""
        for name, extent in one.items():
            if other.get(name, extent) != extent:
                raise self._refuse(node, f"would make tiles of different shapes of `{name}`")

    # --- expressions ----------------------------------------------------------------------------

    def _of(self, node: cst.BaseExpression, known: Mapping[str, RowExtent]) -> RowExtent:
        """Along what a value has elements; what has to change in it is noted on the way."""
        match node:
            case cst.Name(value=name):
                return known.get(name, RowExtent.NONE)
            case cst.Integer() | cst.Float() | cst.SimpleString():
                return RowExtent.NONE
            case cst.Attribute():
                return self._attribute(node, known)
            case cst.UnaryOperation(operator=operator, expression=inside):
                found = self._of(inside, known)
                if found and isinstance(operator, cst.Not):
                    raise self._refuse(node, "asks of a tile whether it is true")
                return found
            case cst.BinaryOperation() if not isinstance(node.operator, cst.MatrixMultiply):
                return self._joined([node.left, node.right], known)
            case cst.Comparison():
                sides = [node.left, *(c.comparator for c in node.comparisons)]
                found = self._joined(sides, known)
                if found and len(sides) > 2:
                    raise self._refuse(node, "asks of a tile whether it is true")
                return found
            case cst.BooleanOperation():
                if joined := self._joined([node.left, node.right], known):
                    raise self._refuse(node, "asks of a tile whether it is true")
                return joined
            case cst.IfExp():
                if self._of(node.test, known):
                    raise self._refuse(node, "branches by the row")
                ways = {self._of(node.body, known), self._of(node.orelse, known)}
                if len(ways) > 1:
                    raise self._refuse(node, "has a value of one shape or another")
                return ways.pop()
            case cst.Call():
                return self._call(node, known)
            case cst.Subscript() if (axis := expanded_axis(node)) is not None:
                return self._expanded(node, axis, known)
        raise self._refuse(node, f"may mix rows: `{self._text(node)}`")

    def _joined(
        self, nodes: Sequence[cst.BaseExpression], known: Mapping[str, RowExtent]
    ) -> RowExtent:
        found, forms = RowExtent.NONE, set[RowExtent]()
        for node in nodes:
            own = self._of(node, known)
            found |= own
            forms |= {own & RowExtent.FLAT} if own & self.form.whole else set()
        if len(forms) > 1:
            raise self._refuse(nodes[0], "has a tile of one dimension beside one of two")
        if RowExtent.FLAT in found and self.form.whole in found:
            raise self._refuse(nodes[0], "has a run of one dimension beside one of the other")
        return found

    def _expanded(
        self, node: cst.Subscript, axis: int, known: Mapping[str, RowExtent]
    ) -> RowExtent:
        """`offsets[:, None]`: it lies along its dimension from the first line on."""
        inside = self._of(node.value, known)
        if inside & ~RowExtent.ROWS != DIMENSIONS[axis] | RowExtent.FLAT:
            raise self._refuse(
                node, f"lays along a dimension what may be another: `{self._text(node)}`"
            )
        self.edits[node] = _unlaid
        return inside & ~RowExtent.FLAT

    def _attribute(self, node: cst.Attribute, known: Mapping[str, RowExtent]) -> RowExtent:
        """`tl.float32`, or `x.dtype`, or `y_ptr.dtype.element_ty`."""
        base: cst.BaseExpression = node
        chain: list[str] = []
        while isinstance(base, cst.Attribute):
            chain, base = [*chain, base.attr.value], base.value
        known_base = self._of(base, known)
        if "dtype" in chain or (isinstance(base, cst.Name) and not known_base):
            return RowExtent.NONE
        raise self._refuse(node, f"may mix rows: `{self._text(node)}`")

    def _call(self, call: cst.Call, known: Mapping[str, RowExtent]) -> RowExtent:
        called = self.source.name(call.func) or ""
        values = [arg.value for arg in call.args]
        if call in self.row:
            self.edits[call] = self.row[call]
            return RowExtent.ROWS
        if called in TRITON.program_ids:
            return RowExtent.NONE
        if called in TRITON.iotas and self._text(values[0]) == "0" and len(values) == 2:
            if (dimension := self.form.runs.get(call)) is None:
                raise self._refuse(call, f"counts in a helper: `{self._text(call)}`")
            places = self.form.laid(dimension)
            self.edits[call] = lambda updated: laid(updated, places)
            return self.form.flat(dimension)
        if called in TRITON.accumulators:
            return self._filled(call, known)
        if called == LOAD:
            return self._load(call, known)
        if called in REDUCTIONS or called in SCANS:
            return self._reduced(call, called, known)
        if not called.startswith(TL) and (inside := of_cast(call)) is not None:
            for part in (p for v in values for p in descendants(v, cst.Attribute)):
                self._attribute(part, known)
            return self._of(inside, known)
        joined = self._joined(values, known)
        if called in ELEMENTWISE or (called in OF_SCALARS and not joined):
            return joined
        if (returned := self._helped(call, known)) is not None:
            return returned
        raise self._refuse(call, f"calls `{self._text(call.func)}`, which may mix rows")

    def _helped(self, call: cst.Call, known: Mapping[str, RowExtent]) -> RowExtent | None:
        """What a helper of the file returns, if all it does is compute with its arguments."""
        helper = self.source.function_of(call.func)
        if helper is None or not isinstance(helper.node.body, cst.IndentedBlock):
            return None
        alike = [f for f in self.source.functions if f.name == helper.name]
        if len(alike) > 1 or helper.name in self.under_way:
            return None
        *lines, last = helper.node.body.body
        inside = replace(self, edits={}, under_way=self.under_way | {helper.name})
        own: dict[str, RowExtent] = {}
        for place, parameter in enumerate(helper.parameters):
            name = parameter.name.value
            given = argument(call, place, name) or parameter.default
            own[name] = self._of(given, known) if given is not None else RowExtent.NONE
        match last:
            case cst.SimpleStatementLine(body=[cst.Return(value=cst.BaseExpression() as value)]):
                try:
                    inside.block_of(lines, own)
                    returned = inside._of(value, own)
                except NotApplicable:
                    return None
                return None if inside.edits else returned
        return None

    def _filled(self, call: cst.Call, known: Mapping[str, RowExtent]) -> RowExtent:
        """`tl.zeros((BLOCK,), ...)`: a tile that each row has."""
        shape = argument(call, 0, "shape")
        elements = shape.elements if isinstance(shape, cst.Tuple | cst.List) else ()
        texts = [self._text(element.value) for element in elements]
        blocks, rows = self.form.blocks, self.names.rows
        whole = texts == [*blocks]
        along = [place for place, n in enumerate(blocks) if whole or texts == [n]]
        if shape is None or (not whole and len(along) != 1):
            raise self._refuse(call, "makes a tile of another shape than the block's")
        if self._joined([a.value for a in call.args if a.value is not shape], known):
            raise self._refuse(call, "fills a tile with what depends on the row")
        lengths = tuple(n if place in along else "1" for place, n in enumerate(blocks))
        self.edits[shape] = lambda updated: with_rows(updated, rows, lengths)
        return RowExtent.ROWS | (self.form.whole if whole else self.form.flat(along[0]))

    def _reduced(self, call: cst.Call, called: str, known: Mapping[str, RowExtent]) -> RowExtent:
        tile, axis = argument(call, 0, "input"), argument(call, 1, "axis")
        scans = called in SCANS
        if tile is None:
            raise self._refuse(call, "reduces along another axis than the row")
        found = self._of(tile, known)
        dimension = self._dimension(call, axis, found)
        others = [a for a in call.args if a.value is not tile and a.value is not axis]
        if any(a.keyword is None and self.source.function_of(a.value) is None for a in others) or (
            not scans and keyword(call, "keep_dims") is not None
        ) or keyword(call, "return_indices") is not None:  # fmt: skip
            raise self._refuse(call, f"reduces in a way of its own: `{self._text(call)}`")
        by_position = axis is not None and not any(a.keyword and a.value is axis for a in call.args)

        def edit(updated: cst.Call) -> cst.Call:
            if by_position:
                place = next(i for i, a in enumerate(call.args) if a.value is axis)
                args = list(updated.args)
                args[place] = args[place].with_changes(value=cst.Integer(str(dimension + 1)))
                updated = updated.with_changes(args=args)
            else:
                updated = with_keyword(updated, "axis", str(dimension + 1))
            return updated if scans else with_keyword(updated, "keep_dims", "True")

        self.edits[call] = edit
        self.of_rows += 1
        left = found & self.form.whole & ~DIMENSIONS[dimension]
        if scans:
            return found
        return RowExtent.ROWS | left | (RowExtent.FLAT if left else RowExtent.NONE)

    def _dimension(self, call: cst.Call, axis: cst.BaseExpression | None, tile: RowExtent) -> int:
        """The dimension that a tile is reduced along."""
        text = self._text(axis) if axis is not None else "None"
        dimensions = [place for place, each in enumerate(DIMENSIONS) if each & tile]
        lines_up = len(dimensions) == 1 and (RowExtent.FLAT in tile or len(self.form.blocks) == 1)
        known = {"0": 0, "1": 1, "-1": 1} if not lines_up else dict.fromkeys(("0", "-1", "None"), 0)
        if text not in known:
            raise self._refuse(call, "reduces along another axis than the row")
        if RowExtent.ROWS not in tile or not (lines_up or len(dimensions) == 2):
            raise self._refuse(call, "reduces what is no tile of the row")
        return dimensions[known[text]]

    # --- memory ---------------------------------------------------------------------------------

    def _load(self, call: cst.Call, known: Mapping[str, RowExtent]) -> RowExtent:
        pointer = argument(call, 0, "pointer")
        mask, other = argument(call, 1, "mask"), argument(call, 2, "other")
        where = self._address(call, pointer, known)
        beside = [value for value in (mask, other) if value is not None]
        if self._joined(beside, known) & ~where:
            raise self._refuse(call, "masks what all rows share by the row")
        if RowExtent.ROWS in where:
            self._mask(call, mask, known)
        self.of_rows += where is RowExtent.ROWS
        return where

    def _store(self, call: cst.Call, known: Mapping[str, RowExtent]) -> None:
        pointer, value = argument(call, 0, "pointer"), argument(call, 1, "value")
        mask = argument(call, 2, "mask")
        where = self._address(call, pointer, known)
        if RowExtent.ROWS not in where:
            raise self._refuse(call, "stores to the same place for every row")
        beside = [node for node in (value, mask) if node is not None]
        if self._joined(beside, known) & ~where:
            raise self._refuse(call, "stores a tile of another shape")
        self._mask(call, mask, known)

    def _address(
        self, call: cst.Call, pointer: cst.BaseExpression | None, known: Mapping[str, RowExtent]
    ) -> RowExtent:
        keywords = {a.keyword.value for a in call.args if a.keyword is not None}
        if pointer is None or any(a.star for a in call.args) or not keywords <= set(PLAIN):
            raise self._refuse(call, f"is no plain access: `{self._text(call)}`")
        return self._of(pointer, known)

    def _mask(
        self, call: cst.Call, mask: cst.BaseExpression | None, known: Mapping[str, RowExtent]
    ) -> None:
        """Leave the rows behind the last one alone."""
        name = self.names.mask
        if mask is None:
            self.edits[call] = lambda updated: with_keyword(updated, "mask", name)
        elif self._text(mask) in ("None", "True"):
            self.edits[mask] = writing(name)
        else:
            self.edits.pop(mask, None)  # a mask may be looked at more than once
            if not self._of(mask, known):
                raise self._refuse(call, f"has one mask for all rows: `{self._text(mask)}`")
            inner = self.edits.get(mask, lambda updated: updated)
            self.edits[mask] = lambda updated: both(inner(updated), name)

    def _text(self, node: cst.CSTNode) -> str:
        return self.source.code(node)


def _unlaid(updated: cst.Subscript) -> cst.BaseExpression:
    """`offsets` of `offsets[:, None]`."""
    inner = updated.value
    return inner.with_changes(lpar=[*updated.lpar, *inner.lpar], rpar=[*inner.rpar, *updated.rpar])
