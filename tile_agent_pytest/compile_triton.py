"""Compiles Triton kernels ahead of time, for a GPU that need not be there."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from tile_agent_pytest.compiled_apart import asking, for_another_process, is_plain
from tile_agent_pytest.stand_in_driver import StandInDriver, gpu_target

KEPT = "TILE_AGENT_KEPT_TRITON"
CACHE = "TRITON_CACHE_DIR"
Place = tuple[int, ...]
"""Of a parameter, and of an element within it where it is a tuple."""


@dataclass(frozen=True)
class Specialization:
    """What Triton compiles a kernel for."""

    function: Any
    """The `JITFunction`."""
    signature: Mapping[str, Any]
    """Parameter -> type in Triton's notation: '*fp16', 'i32', 'constexpr'."""
    constants: Mapping[Place, Any]
    attributes: Mapping[Place, Any]
    """[['tt.divisibility', 16]] for what is divisible by 16."""
    options: Mapping[str, Any]
    """Those that differ from Triton's defaults."""

    @classmethod
    def recorded(cls, function: Any, compiled: Mapping[str, Any]) -> Specialization:
        """What a call of `jit_cache_hook` tells."""
        return cls(
            function,
            dict(compiled["signature"]),
            dict(compiled["constants"]),
            dict(compiled["configs"][0]),
            _given(compiled),
        )

    def describe(self) -> dict[str, str]:
        """One text a parameter."""
        texts = {}
        for index, (name, kind) in enumerate(self.signature.items()):
            if (index,) in self.constants:
                texts[name] = f"= {self.constants[index,]}"
            else:
                aligned = bool(self.attributes.get((index,)))
                texts[name] = f"{kind}{', divisible by 16' if aligned else ''}"
        return texts


def compile_kernel(specialization: Specialization, sm: int, folder: Path) -> dict[str, Any]:
    """Write the cubin and the PTX, and say what only Triton knows of them.

    Where `KEPT` names a folder Triton keeps the code there, for processes that launch it. Called in
    a process of its own.

    Returns:
        `cubin` and `listing`, paths; `shared_bytes` of dynamic shared memory; `seconds`.
    """
    triton: Any = importlib.import_module("triton")
    s = specialization
    begin = time.perf_counter()
    source = triton.compiler.ASTSource(
        s.function, dict(s.signature), dict(s.constants), dict(s.attributes)
    )
    compiling = partial(triton.compile, source, target=gpu_target(sm), options=dict(s.options))
    with asking(StandInDriver(sm)):
        compiled = _kept(compiling, s.function, sm) or compiling()
    seconds = time.perf_counter() - begin
    cubin, listing = folder / "kernel.cubin", folder / "kernel.ptx"
    cubin.write_bytes(compiled.asm["cubin"])
    listing.write_text(compiled.asm["ptx"], encoding="utf-8")
    return {
        "cubin": str(cubin),
        "listing": str(listing),
        "shared_bytes": compiled.metadata.shared,
        "seconds": seconds,
    }


def _kept(compiling: Callable[[], Any], function: Any, sm: int) -> Any | None:
    """What a function compiles to, kept for others; None where it is not, or does not compile."""
    folder = os.environ.get(KEPT)
    if folder is None or not is_plain(function):
        return None
    with contextlib.suppress(Exception):  # it is said where it is compiled for this process
        with mock.patch.dict(os.environ, {CACHE: folder}), for_another_process(StandInDriver(sm)):
            return compiling()
    return None


def _given(compiled: Mapping[str, Any]) -> dict[str, Any]:
    """The options that somebody chose: the defaults of the recorded GPU may not fit another."""
    compiler: Any = importlib.import_module("triton.compiler.compiler")
    driver: Any = importlib.import_module("triton.runtime").driver
    recorded = json.loads(compiled["specialization_data"])
    backend = compiler.make_backend(driver.active.get_current_target())
    default = json.loads(json.dumps(backend.parse_options({}).__dict__, default=str))
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in recorded["options"].items()
        if default.get(name) != value
    }
