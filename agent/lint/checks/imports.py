"""CT014: cuTile imported by a name that it does not have."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.cutile.dialect import CT
from agent.analysis.cutile.kernel_file import KernelFile
from agent.lint.base import Found, Severity, check
from agent.syntax import Function, descendants

MISNAMED = "CT014"
RIGHT = CT.rstrip(".")
WRONG = frozenset({"cutile", "cuTile", "cuda.cutile", "cuda_tile", "cutile_python"})
"""What cuTile is called elsewhere, on the package index and in its documentation, and is no module
of Python."""


@check(
    MISNAMED,
    "wrong-module",
    Severity.ERROR,
    mend="`import cuda.tile as ct`, of the package cuda-tile",
    source="TileGym's cuTile API reference, rule 1; what cuda-tile 1.7 installs is `cuda.tile`",
    bad="""
import cutile  # <-

@cutile.kernel
def k(x):
    cutile.store(x, (cutile.bid(0),), 0.0)
""",
    good="""
import cuda.tile as cutile

@cutile.kernel
def k(x):
    cutile.store(x, (cutile.bid(0),), 0.0)
""",
)
def wrong_module(file: KernelFile) -> Iterator[Found]:
    """The module is `cuda.tile`. Under another name its kernels are none to any tool either."""
    used = {module for function in file.source.functions for module in _decorating(file, function)}
    for statement in _imports(file):
        for module in sorted(_modules(file, statement) & WRONG & used):
            yield statement, f"there is no module `{module}`: cuTile is `{RIGHT}`"


def _decorating(file: KernelFile, function: Function) -> Iterator[str]:
    """The modules whose `kernel` decorates a function."""
    for decorator in function.node.decorators:
        named = decorator.decorator
        name = file.source.name(named.func if isinstance(named, cst.Call) else named) or ""
        module, _, attribute = name.rpartition(".")
        if attribute == "kernel":
            yield module


def _imports(file: KernelFile) -> Iterator[cst.Import | cst.ImportFrom]:
    yield from descendants(file.source.module, cst.Import)
    yield from descendants(file.source.module, cst.ImportFrom)


def _modules(file: KernelFile, statement: cst.Import | cst.ImportFrom) -> set[str]:
    """The modules that a statement may import."""
    if isinstance(statement, cst.Import):
        return {alias.evaluated_name for alias in statement.names}
    if statement.module is None or statement.relative:
        return set()
    module = file.source.code(statement.module)
    names = () if isinstance(statement.names, cst.ImportStar) else statement.names
    return {module, *(f"{module}.{alias.evaluated_name}" for alias in names)}
