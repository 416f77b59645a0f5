"""What Tile IR's tensor descriptors lack: gathers, atomics, padding, and offsets anywhere.

CUDA 13.1 has views that are cut into tiles, so that a load names a tile by its number: the backend
divides each offset by the tile's extent (ConvertDescriptorLoadOp), and one that is no multiple of
it loads a tile that begins elsewhere, with a warning at most. The padding is zero whatever the
kernel says. Both are silent, and both are gone with CUDA 13.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from agent.analysis.triton.dialect import MAKE_DESCRIPTOR, TRITON
from agent.analysis.triton.heuristics import ON_HOST
from agent.analysis.triton.operations import Operations
from agent.syntax import Function, Source, argument, descendants, positional

AT_OFFSETS = ("load_tensor_descriptor", "store_tensor_descriptor")
OPERATIONS: Mapping[str, str] = {
    "gather_tensor_descriptor": "gathers through a descriptor (TMA gather)",
    "scatter_tensor_descriptor": "scatters through a descriptor (TMA scatter)",
    **{
        f"atomic_{name}_tensor_descriptor": f"atomic_{name} through a descriptor (TMA reduce)"
        for name in ("add", "and", "max", "min", "or", "xor")
    },
}
"""What descriptors do from CUDA 13.4 on."""
Told = Iterator[tuple[cst.CSTNode, str]]


def paddings(operations: Operations) -> Told:
    """Descriptors that ask for anything but zero past an end, in the kernel or on the host."""
    source = operations.source
    made = [(call, argument(call, 4, "padding_option"))
            for _, call in operations.find(("make_tensor_descriptor",))]  # fmt: skip
    for launch in operations.kernel.launches:
        for given in launch.arguments.values():
            host = source.resolve(given)
            if isinstance(host, cst.Call) and (place := _PADDED.get(source.name(host.func) or "")):
                made.append((host, argument(host, place, "padding")))
    for call, padding in made:
        if padding is not None and source.code(padding).strip("\"'") != "zero":
            yield (
                call,
                (
                    f"before CUDA 13.4 no padding: zero is loaded past an end, for "
                    f"{source.code(padding)} too"
                ),
            )


_PADDED = {ON_HOST: 4, f"{ON_HOST}.from_tensor": 2}


def wide_offsets(operations: Operations) -> Told:
    """Coordinates that are made 64-bit, which Triton itself refuses."""
    for function, call in operations.find(AT_OFFSETS):
        for offset in _offsets(operations, call):
            for node in operations.behind(function, offset):
                if not isinstance(node, cst.Call) or operations.operation(node) not in _CASTS:
                    continue
                narrow = any(operations.source.code(a.value).endswith("int32") for a in node.args)
                outer = operations.source.code(offset)
                if not narrow and _is_64(operations.source, node) and "int32" not in outer:
                    yield (
                        call,
                        (
                            "descriptors take no 64-bit coordinates, under Tile IR and in Triton: "
                            f"line {operations.source.line(node)} makes one"
                        ),
                    )
                    break


_CASTS = ("to", "cast")


def _is_64(source: Source, call: cst.Call) -> bool:
    return any(source.code(a.value).endswith("int64") for a in call.args)


def offsets_anywhere(operations: Operations) -> Told:
    """Offsets that are not seen to be multiples of the tile, and whose tile is known."""
    source = operations.source
    for function, call in operations.find(AT_OFFSETS):
        extents = _extents(operations, function, call)
        for offset, extent in zip(_offsets(operations, call), extents, strict=False):
            if not _Multiples(operations, extent).holds(function, offset):
                yield (
                    call,
                    f"before CUDA 13.4 a descriptor's tile begins at a multiple of its size: "
                    f"`{source.code(offset)}`, not seen to be one of {extent}, is rounded down",
                )


def _offsets(operations: Operations, call: cst.Call) -> list[cst.BaseExpression]:
    listed = operations.source.resolve(operations.address(call)[-1])
    return [e.value for e in listed.elements] if isinstance(listed, cst.List | cst.Tuple) else []


def _extents(operations: Operations, function: Function, call: cst.Call) -> list[str]:
    """The extents of a descriptor's tile as the kernel names them; none where they are not seen."""
    source, kernel = operations.source, operations.kernel
    descriptor = operations.address(call)[0]
    for node in operations.behind(function, descriptor):
        if isinstance(node, cst.Call) and source.name(node.func) == MAKE_DESCRIPTOR:
            return _codes(source, argument(node, 3, "block_shape"))
    roots = operations.roots(function, descriptor)
    if len(roots) != 1:
        return []
    (name,) = roots
    for made in _by_heuristic(source, kernel.function, name):
        return [_parameter(code) for code in _codes(source, argument(made, 3, "block_shape"))]
    for launch in kernel.launches:
        host = source.resolve(launch.arguments[name]) if name in launch.arguments else None
        if isinstance(host, cst.Call) and (source.name(host.func) or "").startswith(ON_HOST):
            place = 1 if (source.name(host.func) or "").endswith("from_tensor") else 3
            given = {source.code(v): n for n, v in launch.arguments.items()}
            codes = _codes(source, argument(host, place, "block_shape"))
            if all(code in given or code.isdigit() for code in codes):
                return [code if code.isdigit() else given[code] for code in codes]
    return []


def _by_heuristic(source: Source, kernel: Function, name: str) -> Iterator[cst.Call]:
    """The `TensorDescriptor(...)` of the function that a heuristic computes a parameter by."""
    by_name = {function.name: function for function in source.functions}
    for decorator in kernel.node.decorators:
        for element in descendants(decorator, cst.DictElement):
            maker = by_name.get(source.code(element.value))
            if maker is not None and source.code(element.key).strip("\"'") == name:
                for call in descendants(maker.node.body, cst.Call):
                    if source.name(call.func) == ON_HOST:
                        yield call


def _codes(source: Source, shape: cst.BaseExpression | None) -> list[str]:
    listed = source.resolve(shape) if shape is not None else None
    if not isinstance(listed, cst.List | cst.Tuple):
        return []
    return [source.code(element.value) for element in listed.elements]


def _parameter(code: str) -> str:
    """`BLOCK` of a heuristic's `args["BLOCK"]`."""
    inner = code.removeprefix("args[").removesuffix("]")
    return inner.strip("\"'") if inner != code else code


class _Multiples:
    """Whether an expression is a multiple of an extent, as far as the text shows."""

    def __init__(self, operations: Operations, extent: str) -> None:
        self.operations = operations
        self.source = operations.source
        self.extent = extent
        self._open: set[tuple[str, str]] = set()

    def holds(self, function: Function, node: cst.CSTNode) -> bool:
        """Whether it is; every value of a name has to be, in whatever order they are assigned."""
        code = self.source.code(node)
        if self.extent == "1" or code == self.extent:
            return True
        match node:
            case cst.Integer():
                size = int(self.extent) if self.extent.isdigit() else 0
                return not node.evaluated_value or (size > 0 and node.evaluated_value % size == 0)
            case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
                return self.holds(function, left) or self.holds(function, right)
            case cst.BinaryOperation(left=left, operator=cst.Add() | cst.Subtract(), right=right):
                return self.holds(function, left) and self.holds(function, right)
            case cst.Call():
                return self._call(function, node)
            case cst.Name(value=name):
                return self._name(function, name)
        return False

    def _call(self, function: Function, call: cst.Call) -> bool:
        operation = self.operations.operation(call)
        if operation == "multiple_of":
            by = argument(call, 1, "values")
            return by is not None and self.source.code(by) == self.extent
        if operation in _CASTS and isinstance(call.func, cst.Attribute):
            method = not TRITON.owns(self.source.name(call.func))
            return self.holds(function, call.func.value if method else call.args[0].value)
        if operation in ("minimum", "maximum") or self.source.name(call.func) in _SMALLEST:
            return all(self.holds(function, a.value) for a in call.args)
        return False

    def _name(self, function: Function, name: str) -> bool:
        if (function.name, name) in self._open:
            return True  # a name that is computed from itself adds nothing by that
        self._open.add((function.name, name))
        if self._assumed(function, name):
            return True
        values = self.operations.definitions(function, name)
        return bool(values) and all(self._value(where, value) for where, value in values)

    def _value(self, function: Function, node: cst.CSTNode) -> bool:
        """A value that a name is assigned: an expression, a step, or the range of a loop."""
        if isinstance(node, cst.AugAssign):
            adds = isinstance(node.operator, cst.AddAssign | cst.SubtractAssign)
            return adds and self.holds(function, node.value)
        if isinstance(node, cst.Call) and TRITON.called(self.source, node) in TRITON.ranges:
            step = argument(node, 2, "step")
            return step is not None and all(
                self.holds(function, part) for part in (positional(node)[0], step)
            )
        return self.holds(function, node)

    def _assumed(self, function: Function, name: str) -> bool:
        """`tl.assume(name % EXTENT == 0)`, as the backend's warning asks for."""
        wanted = f"{name}%{self.extent}==0"
        return any(
            self.operations.operation(call) == "assume"
            and any(self.source.code(a.value).replace(" ", "") == wanted for a in call.args)
            for call in descendants(function.node.body, cst.Call)
        )


_SMALLEST = ("builtins.min", "builtins.max")
