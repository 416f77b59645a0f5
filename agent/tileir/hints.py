"""Hints of a kernel, as the documents of Triton-to-tile-IR have them: ranges, and what is ignored.

The backend checks none of it (`TileIROptions` at 50ec1da): an occupancy out of range is handed on
to tileiras, and what PTX's compiler takes as an order is passed by.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from agent.analysis.triton.operations import DOTS, Operations
from agent.syntax import Source, descendants, keyword

OCCUPANCY = range(1, 33)
"""By the backend's README."""
TUNED_OCCUPANCY = range(1, 11)
"""By its performance tuning tips, which are older and speak of kernels that compute."""
RANGES = "1 to 32 by the backend's README, 1 to 10 by its tuning tips"
COMPILER_FAULT = (
    "the Tile IR compiler ran out of shared or tensor memory, which no hint may make it do: that "
    "is a fault of the compiler; report it to github.com/triton-lang/Triton-to-tile-IR"
)
_OUT_OF_MEMORY = re.compile(
    r"OutOfResources|uses too much shared data|out of resource|tensor memory|\bTMEM\b|\bSMEM\b",
    re.IGNORECASE,
)
SLICING = "SUBTILE"
"""Of the names of constants by which kernels slice their epilogue: EPILOGUE_SUBTILE."""

Told = Iterator[tuple[cst.CSTNode, str]]


def is_compilers_fault(text: str) -> bool:
    """Whether a failure under Tile IR is one that no hint may cause."""
    return _OUT_OF_MEMORY.search(text) is not None


def told(operations: Operations) -> Told:
    """What there is to say of a kernel's hints."""
    yield from _occupancies(operations)
    yield from _specialized(operations)
    yield from _sliced(operations)


def _occupancies(operations: Operations) -> Told:
    for node, value in _given(operations, "occupancy"):
        if not isinstance(value, cst.Integer | cst.UnaryOperation):
            continue
        code = operations.source.code(value)
        number = int(code) if code.lstrip("-").isdigit() else None
        if number is None or number in TUNED_OCCUPANCY:
            continue
        beside = "both" if number not in OCCUPANCY else "the second"
        yield node, f"occupancy {number} is outside of {beside} of its ranges: {RANGES}"


def _specialized(operations: Operations) -> Told:
    found = [
        (call, value)
        for function in operations.functions
        for call in descendants(function.node.body, cst.Call)
        if (value := keyword(call, "warp_specialize")) is not None
    ]
    for node, value in (*found, *_given(operations, "warp_specialize")):
        if operations.source.code(value) != "False":
            yield node, "warp_specialize is passed by: Tile IR specializes warps as it sees fit"


def _sliced(operations: Operations) -> Told:
    """An epilogue that is stored in slices: a constant that says so, or a split of a product."""
    if not any(True for _ in operations.find(DOTS)):
        return
    text = "slicing the tile by hand, as EPILOGUE_SUBTILE does, may gain nothing under Tile IR"
    for parameter in operations.kernel.function.parameters:
        name = parameter.name.value
        if SLICING in name.upper() and name in operations.kernel.constants:
            yield parameter, text
            return
    for function, call in operations.find(("split",)):
        behind = operations.behind(function, call)
        if any(isinstance(n, cst.Call) and operations.operation(n) in DOTS for n in behind):
            yield call, text
            return


def _given(operations: Operations, option: str) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """Where a kernel's launches, its decorators and the configs that they name give an option."""
    source, kernel = operations.source, operations.kernel
    for launch in kernel.launches:
        if option in launch.hints:
            yield launch.node, launch.hints[option]
        elif option in launch.arguments:
            yield launch.node, launch.arguments[option]
    for decorator in kernel.function.node.decorators:
        for config in _configs(source, decorator):
            if (value := keyword(config, option)) is not None:
                yield config, value
            for element in descendants(config, cst.DictElement):
                if source.code(element.key).strip("\"'") == option:
                    yield config, element.value


def _configs(source: Source, decorator: cst.Decorator) -> Iterator[cst.Call]:
    """The `triton.Config(...)` of a decorator, and of the lists and functions that it names."""
    nodes: list[cst.CSTNode] = [decorator]
    for name in descendants(decorator, cst.Name):
        function = source.function_of(name)
        nodes += [source.resolve(name)] if function is None else [function.node]
    seen: set[cst.CSTNode] = set()
    for node in nodes:
        for call in descendants(node, cst.Call):
            if source.name(call.func) == "triton.Config" and call not in seen:
                seen.add(call)
                yield call
