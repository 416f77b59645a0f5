"""The signature that a cuTile kernel is compiled for where nothing runs, from the source alone.

Ahead of time the compiler has to be told what a launch would show it: which parameters are arrays,
of which type and how many dimensions, and what the constants are. What the source does not tell is
assumed, and every assumption can be read in `Signature.assumptions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.cutile import host
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.uses import Uses
from agent.syntax import Source, Untraceable, names_in

ROW, EDGE, SQUARE, COUNT = 1024, 4, 64, 8
"""Sizes that the source does not tell: a tile's last dimension, its other ones, any dimension of a
tile that is multiplied or transposed, and an integer that is in no tile's shape."""
ASSUMED = "assumed"
"""How the reason of a value begins that nothing tells."""
_ROW, _EDGE = "assumed for a row", "assumed for a tile's edge"
ELEMENTS = (
    ("float16", "float16"),
    ("float16", "float32"),
    ("float32", "float32"),
    ("int32", "int32"),
)
"""Element types to try in turn: of arrays that are read, and of those that are only written."""


class ParameterKind(StrEnum):
    """What a parameter is."""

    ARRAY = "array"
    LIST = "list"
    """Of arrays."""
    SCALAR = "scalar"
    CONSTANT = "constant"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel, as the compiler is told it."""

    name: str
    kind: ParameterKind
    dtype: str = ""
    """Its name in `cuda.tile`; empty for a constant."""
    ndim: int = 0
    index_dtype: str = "int32"
    value: host.Value = 0
    """Of a constant."""
    is_output: bool = False
    """An array that is written and never read."""
    open: bool = False
    """The element type is a guess, so that another may be tried."""
    why: str = ""
    """What a guess rests on; empty where the source tells."""

    @property
    def is_assumed(self) -> bool:
        """A constant whose value nothing in the file tells."""
        return self.kind is ParameterKind.CONSTANT and self.why.startswith(ASSUMED)

    def to_json(self) -> dict[str, Any]:
        """What `tile_agent_pytest.compile_cutile` needs of it."""
        keys = ("name", "kind", "dtype", "ndim", "index_dtype", "value")
        return {key: getattr(self, key) for key in keys}


@dataclass(frozen=True)
class Signature:
    """A kernel and what its parameters are taken to be."""

    kernel: str
    line: int
    parameters: tuple[Parameter, ...]
    hints: Mapping[str, int]
    """Compiler hints that its first launch gives."""

    @property
    def variants(self) -> tuple[Signature, ...]:
        """The signatures to try, the likeliest first; they differ in guessed element types."""
        told = {p.dtype for p in self.parameters if not p.open and p.kind is ParameterKind.ARRAY}
        half = "bfloat16" if "bfloat16" in told and "float16" not in told else "float16"
        tried = (tuple(half if d == "float16" else d for d in dtypes) for dtypes in ELEMENTS)
        return tuple(dict.fromkeys(self._with(half, *dtypes) for dtypes in tried))

    def _with(self, half: str, read: str, written: str) -> Signature:
        parameters = []
        for p in self.parameters:
            if p.open:
                dtype = written if p.is_output else read
                why = p.why if dtype == half else f"{p.why}, since {half} does not compile"
                p = replace(p, dtype=dtype, why=why)
            parameters.append(p)
        return replace(self, parameters=tuple(parameters))

    def __hash__(self) -> int:
        return hash((self.kernel, self.parameters))

    @property
    def assumed(self) -> tuple[str, ...]:
        """The constants whose values nothing in the file tells."""
        return tuple(p.name for p in self.parameters if p.is_assumed)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """One line for each parameter, or group of arrays, that the source does not tell all of."""
        groups: dict[tuple[str, str], list[str]] = {}
        lines = []
        for p in self.parameters:
            if p.kind in (ParameterKind.ARRAY, ParameterKind.LIST):
                several = "a list of " if p.kind is ParameterKind.LIST else ""
                shape = f"{several}{p.ndim}-dimensional {p.dtype}"
                groups.setdefault((shape, p.why), []).append(p.name)
            elif p.kind is ParameterKind.SCALAR and p.why:
                lines.append(f"{p.name}: {p.dtype} scalar ({p.why})")
            elif p.why:
                lines.append(f"{p.name} = {p.value} ({p.why})")
        told = [
            f"{', '.join(names)}: {shape}" + (f" ({why})" if why else "")
            for (shape, why), names in groups.items()
        ]
        if told:
            told.append("arrays: last stride 1, address, strides and extents divisible by 16")
        return tuple(f"{self.kernel}: {line}" for line in (*told, *lines))


def signatures(source: Source) -> tuple[Signature, ...]:
    """A signature for each kernel that the file launches; for all of them when it launches none."""
    return tuple(_signature(source, kernel) for kernel in CUTILE.launched(source))


def _signature(source: Source, kernel: Kernel) -> Signature:
    uses = Uses(source, kernel)
    hints: dict[str, int] = {}
    for name, value in (kernel.launches[0].hints if kernel.launches else {}).items():
        try:
            hints[name] = source.trace(value).value
        except Untraceable:
            continue
    parameters = []
    for node in kernel.function.parameters:
        name = node.name.value
        if name in kernel.constants:
            parameters.append(_constant(source, kernel, uses, node))
        elif name in uses.arrays or _made_as_array(source, kernel, name) is not None:
            parameters.append(_array(source, kernel, uses, node))
        else:
            parameters.append(_scalar(source, kernel, uses, node))
    line = source.line(kernel.function.node)
    told = tuple(_related(source, kernel, tuple(_of_one_row(parameters))))
    return Signature(kernel.name, line, told, hints)


def _of_one_row(parameters: Sequence[Parameter]) -> Iterator[Parameter]:
    """The same with the last of several guessed rows a row, the others edges.

    Numbers that are spread over two dimensions, as of a gather, are rows by themselves: a tile of
    1024 x 1024 takes minutes to compile.
    """
    rows = [each for each in parameters if each.why.startswith(_ROW)]
    for each in parameters:
        is_edge = each in rows[:-1]
        why = each.why.replace(_ROW, _EDGE, 1)
        yield replace(each, value=EDGE, why=why) if is_edge else each


def _related(
    source: Source, kernel: Kernel, parameters: Sequence[Parameter]
) -> Iterator[Parameter]:
    """The same with what the first launch computes of other constants computed of their values.

    `(x, n, f, n // f)` gives three numbers that belong together.
    """
    given = kernel.launches[0].arguments if kernel.launches else {}
    values = {
        source.code(given[p.name]): p.value
        for p in parameters
        if p.kind is ParameterKind.CONSTANT and isinstance(given.get(p.name), cst.Name)
    }
    for p in parameters:
        expression = given.get(p.name)
        if p.is_assumed and isinstance(expression, cst.BinaryOperation):
            value = host.computed(source, expression, values)
            if value is not None and value > 0:
                why = f"{ASSUMED}: `{source.code(expression)}` of the other values"
                p = replace(p, value=value, why=why)
        yield p


# --- arrays and scalars -------------------------------------------------------------------------


def _array(source: Source, kernel: Kernel, uses: Uses, node: cst.Param) -> Parameter:
    name = node.name.value
    ndim, why = uses.ndim(name), []
    if ndim is None:
        ndim = 1
        why.append("dimensions assumed")
    made = _made_as_array(source, kernel, name)
    is_open = made is None and name not in uses.integers
    if made is None:
        made = "int32" if name in uses.integers else "float16"
        why.append("its values index an array" if name in uses.integers else "type assumed")
    return Parameter(
        name,
        ParameterKind.LIST if name in uses.lists else ParameterKind.ARRAY,
        made,
        ndim,
        index_dtype="int64" if _annotation(source, node) == f"{CT}IndexedWithInt64" else "int32",
        is_output=name in uses.stored and name not in uses.loaded,
        open=is_open,
        why=", ".join(why),
    )


def _made_as_array(source: Source, kernel: Kernel, name: str) -> str | None:
    """The element type of what the launches pass, where the file makes it in plain sight."""
    for launch in kernel.launches:
        if name in launch.arguments:
            found = host.element_type(source, launch.arguments[name])
            if found is not None:
                return found
    return None


def _scalar(source: Source, kernel: Kernel, uses: Uses, node: cst.Param) -> Parameter:
    name = node.name.value
    annotated = _annotation(source, node)
    if annotated == f"{CT}ScalarInt64":
        return Parameter(name, ParameterKind.SCALAR, "int64")
    if annotated in host.SCALARS:
        return Parameter(name, ParameterKind.SCALAR, host.SCALARS[annotated])
    for launch in kernel.launches:
        if name in launch.arguments:
            found = host.scalar_type(source, launch.arguments[name])
            if found is not None:
                return Parameter(name, ParameterKind.SCALAR, found)
    if name in uses.integers:
        return Parameter(
            name, ParameterKind.SCALAR, "int32", why="it is used in an index or a range"
        )
    if name in uses.floats:
        return Parameter(
            name, ParameterKind.SCALAR, "float32", why="the kernel computes values with it"
        )
    return Parameter(name, ParameterKind.SCALAR, "int32", why="nothing tells its type")


def _annotation(source: Source, node: cst.Param) -> str | None:
    return source.name(node.annotation.annotation) if node.annotation else None


# --- constants ----------------------------------------------------------------------------------


def _constant(source: Source, kernel: Kernel, uses: Uses, node: cst.Param) -> Parameter:
    """What the launches bind a constant to; a guess, with its reason, where they do not show it."""
    name = node.name.value
    found: dict[host.Value, str] = {}
    reason = "" if kernel.launches else "this file does not launch the kernel in plain sight"
    for launch in kernel.launches:
        line = source.line(launch.node)
        expression = launch.arguments.get(name)
        if expression is None:
            reason = reason or f"the launch at line {line} does not show its arguments"
            continue
        known = host.constant(source, expression)
        if known is None:
            reason = reason or f"line {line} passes `{source.code(expression)}`, not a constant"
        else:
            is_default = "a caller may pass another" if known.is_default else ""
            found.setdefault(known.value, is_default)
    if found:
        value, why = next(iter(found.items()))
        if len(found) > 1:
            why = f"the launches give {', '.join(str(v) for v in found)}"
        elif reason and not why:
            why = f"one launch gives it; {reason}"
        return Parameter(name, ParameterKind.CONSTANT, value=value, why=why)
    value, meaning = _guess(source, uses, node)
    return Parameter(name, ParameterKind.CONSTANT, value=value, why=f"{meaning}: {reason}")


def _guess(source: Source, uses: Uses, node: cst.Param) -> tuple[host.Value, str]:
    annotation = node.annotation.annotation if node.annotation else None
    inner = names_in(annotation) if annotation else set()
    alias = source.resolve(annotation) if annotation is not None else None
    inner |= names_in(alias) if alias is not None else set()
    if "bool" in inner:
        return False, "assumed"
    if "float" in inner:
        return 1.0, "assumed"
    places = uses.tile_dimensions.get(node.name.value)
    if places is None:
        return COUNT, "assumed, in no tile's shape"
    if uses.multiplies:
        return SQUARE, "assumed for a tile that is multiplied"
    if places >= {"last", "outer"}:
        return SQUARE, "assumed for a tile that is transposed"
    return (EDGE, _EDGE) if "outer" in places else (ROW, _ROW)
