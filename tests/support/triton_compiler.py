"""Compiles Triton kernels of a file for GPUs that need not be here."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

GENERATIONS = pytest.mark.parametrize(
    "sm",
    [pytest.param(80, marks=pytest.mark.full), 90, pytest.param(100, marks=pytest.mark.full)],
)
"""For which a test compiles: the one that all are measured on, and in the full tier the others."""
BY_16 = ":16"
"""After the type of an integer that 16 divides, as it does every pointer here."""


def compiled(path: Path, kernel: str, types: list[Any], sm: int, options: dict[str, int]) -> Any:
    """A kernel of a file for an architecture.

    Args:
        path: the file.
        kernel: its name.
        types: of its parameters, in order; an integer or None is a constant, and 16 divides every
            pointer.
        sm: the architecture.
        options: such as `num_warps`.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, kernel)
    while not hasattr(function, "cache_key"):
        function = function.fn  # below the autotuner and heuristics
    constants = {(i,): value for i, value in enumerate(types) if not isinstance(value, str)}
    signature = {
        name: kind.removesuffix(BY_16) if isinstance(kind, str) else "constexpr"
        for name, kind in zip(function.arg_names, types, strict=True)
    }
    divisible = {
        (i,): [["tt.divisibility", 16]]
        for i, kind in enumerate(types)
        if str(kind).startswith("*") or str(kind).endswith(BY_16)
    }
    source = ASTSource(function, signature, constants, divisible)
    return triton.compile(source, target=GPUTarget("cuda", sm, 32), options=options)
