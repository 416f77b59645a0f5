"""Which axis of its tiles a Triton kernel reduces, and whether a constant's is another.

Triton's tiles have no shape in the source: `rows[:, None] * stride + cols[None, :]` tells that rows
run along dimension 0. That says where a reduction runs as long as nothing turns tiles around.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.derived_names import derived_names
from agent.analysis.common.dialect import Dialect
from agent.analysis.common.numbers import signed_integer
from agent.syntax import Source, argument, children, descendants

TL = "triton.language."
TURNING = frozenset(
    f"{TL}{name}"
    for name in (
        "cat", "dot", "dot_scaled", "expand_dims", "flip", "gather", "interleave", "join",
        "make_block_ptr", "make_tensor_descriptor", "permute", "ravel", "reshape", "split", "trans",
        "view",
    )
)  # fmt: skip
"""Makes tiles whose dimensions are not those of what it is given."""
SCANS = frozenset(f"{TL}{name}" for name in ("associative_scan", "cumprod", "cumsum"))
"""Run along an axis, and leave it."""
METHODS = frozenset({"cast", "to"})
"""Methods of tiles that leave their dimensions."""
NUMBERS = frozenset({"builtins.float", "builtins.int"})
"""What `-float("inf")` calls: it makes no tile."""


Begins = Callable[[cst.CSTNode], bool]


def reduces_elsewhere(
    dialect: Dialect, source: Source, body: cst.BaseSuite, sizes: frozenset[str]
) -> bool:
    """Whether every reduction certainly runs along another dimension than a constant's.

    Args:
        dialect: Triton.
        source: the file.
        body: a kernel's statements, whose tiles have one or two dimensions.
        sizes: the constant, and the names that are computed from it.
    """
    reductions = list(dialect.find(source, body, dialect.reductions))
    axes = {_axis(call) for call in reductions}
    operands = [call.args[0].value for call in reductions if call.args]
    if (
        axes not in ({0}, {1})
        or len(operands) < len(reductions)
        or not _plain(dialect, source, body)
    ):
        return False

    def counts(node: cst.CSTNode) -> bool:
        """A tile of one dimension and of the constant's size: `tl.arange`, `tl.zeros((BLOCK,))`."""
        if not isinstance(node, cst.Call):
            return False
        called = dialect.called(source, node)
        sized = called in dialect.iotas or called in dialect.shapes
        return sized and any(name.value in sizes for name in descendants(node, cst.Name))

    def reduces(node: cst.CSTNode) -> bool:
        if (
            node not in reductions
            or dialect.called(source, cst.ensure_type(node, cst.Call)) in SCANS
        ):
            return False
        return argument(cst.ensure_type(node, cst.Call), 9, "keep_dims") is None

    kept = 0 if axes == {1} else 1
    counted, reduced = (_Flat.of(body, begins) for begins in (counts, reduces))
    if any(flat.holds(operand) for flat in (counted, reduced) for operand in operands):
        return False
    return counted.expanded(body) == {kept} and reduced.expanded(body) <= {kept}


def laid_along(body: cst.BaseSuite, begins: Begins) -> set[int]:
    """The dimensions of tiles of two that values of one are laid along.

    Args:
        body: a kernel's statements.
        begins: whether a node makes one of those values.
    """
    return _Flat.of(body, begins).expanded(body)


def expanded_axis(subscript: cst.Subscript) -> int | None:
    """0 of `[:, None]`, 1 of `[None, :]`: the dimension that an index of one runs along in two."""
    kinds = []
    for element in subscript.slice:
        match element.slice:
            case cst.Index(value=cst.Name(value="None")):
                kinds.append("None")
            case cst.Slice(lower=None, upper=None, step=None):
                kinds.append(":")
    return {":None": 0, "None:": 1}.get("".join(kinds)) if len(kinds) == 2 else None


def _axis(reduction: cst.Call) -> int | None:
    """Of two dimensions."""
    axis = signed_integer(argument(reduction, 1, "axis"))
    return 1 if axis == -1 else axis


def _plain(dialect: Dialect, source: Source, body: cst.BaseSuite) -> bool:
    """Whether every call leaves the dimensions of its tiles, or reduces them."""
    for call in descendants(body, cst.Call):
        called = dialect.called(source, call) or ""
        if called in TURNING:
            return False
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        known = called in dialect.ranges or source.name(call.func) in NUMBERS or method in METHODS
        if not called.startswith(TL) and not known:
            return False
    return not any(attribute.attr.value == "T" for attribute in descendants(body, cst.Attribute))


@dataclass(frozen=True)
class _Flat:
    """Values of one dimension that come from one kind of node."""

    begins: Begins
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, body: cst.BaseSuite, begins: Begins) -> _Flat:
        """Those of a kernel, by the names that hold them."""
        names = derived_names(body, lambda value, known: cls(begins, frozenset(known)).holds(value))
        return cls(begins, frozenset(names))

    def holds(self, node: cst.CSTNode) -> bool:
        """Whether a value may still be one of these, not laid along one of two dimensions."""
        if self.begins(node) or (isinstance(node, cst.Name) and node.value in self.names):
            return True
        if isinstance(node, cst.Subscript) and expanded_axis(node) is not None:
            return False
        inner = [node.value] if isinstance(node, cst.Attribute | cst.Arg) else children(node)
        return any(self.holds(child) for child in inner)

    def expanded(self, body: cst.BaseSuite) -> set[int]:
        """The dimensions that they are laid along."""
        return {
            axis
            for subscript in descendants(body, cst.Subscript)
            if (axis := expanded_axis(subscript)) is not None and self.holds(subscript.value)
        }
