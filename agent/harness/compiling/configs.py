"""Compiles a cuTile kernel with each config of a search space, where nothing can run it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import tile_agent_pytest
from agent.analysis.cutile.signature import Signature
from agent.errors import UsageError
from agent.harness.compiling.cutile import import_roots, module_name, to_compile
from agent.harness.compiling.missing import missing_in_words
from agent.harness.processes.script import ScriptEnd, run_script

Config: TypeAlias = Mapping[str, int | None]
"""Constants of the kernel and compiler hints, by name; None for a hint that is not given."""
CONFIG_TIMEOUT_S = 30
"""The limit that a written search sets too."""


@dataclass(frozen=True)
class CompiledConfig:
    """What became of one config."""

    config: Config
    ok: bool
    seconds: float | None = None
    error: str | None = None
    """The compiler's first line."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "config": dict(self.config),
            "ok": self.ok,
            "seconds": self.seconds,
            "error": self.error,
        }

    def __str__(self) -> str:
        named = ", ".join(f"{name}={value}" for name, value in self.config.items())
        return f"{named}: {f'{self.seconds:.2f} s' if self.ok else self.error}"


def compile_configs(
    signature: Signature,
    file: Path,
    configs: Sequence[Config],
    *,
    python: str,
    target: str,
    timeout_s: float,
) -> tuple[CompiledConfig, ...]:
    """Compile a kernel, as it lies on disk, with each of several configs.

    Args:
        signature: what its parameters are taken to be.
        file: where it is; imported from there.
        configs: what to give its constants and hints.
        python: the interpreter that has cuda-tile and what the file imports.
        target: a GPU architecture such as 'sm_90'.
        timeout_s: for all of them together; what is not done by then is an error.

    Raises:
        UsageError: the target is no architecture, or the interpreter lacks what is needed.
    """
    if not re.fullmatch(r"sm_[0-9]{2,3}", target):
        raise UsageError(f"--compile {target}: name an architecture such as sm_90")
    file = file.resolve()
    roots = import_roots(file)
    job = {
        "module": module_name(file, roots),
        "file": str(file),
        "sys_path": [str(root) for root in roots],
        "targets": [target],
        "kernels": [to_compile(_with(signature, config)) for config in configs],
    }
    script = Path(tile_agent_pytest.__file__).parent / "compile_cutile.py"
    with tempfile.TemporaryDirectory(prefix="tile-agent-compile-") as scratch:
        variables = {
            "CUDA_TILE_CACHE_DIR": "0",
            "CUDA_TILE_TEMP_DIR": scratch,
            "CUDA_TILE_COMPILER_TIMEOUT_SEC": str(CONFIG_TIMEOUT_S),
        }
        ended = run_script(
            [python, str(script)],
            job,
            cwd=roots[-1],
            variables=variables,
            scratch=Path(scratch),
            timeout_s=timeout_s,
        )
    return _read(configs, ended, python)


def _with(signature: Signature, config: Config) -> Signature:
    """The signature with a config's constants, its hints being all the hints."""
    parameters = tuple(
        replace(p, value=value) if (value := config.get(p.name)) is not None else p
        for p in signature.parameters
    )
    constants = {p.name for p in parameters}
    hints = {n: v for n, v in config.items() if n not in constants and v is not None}
    return replace(signature, parameters=parameters, hints=hints)


def _read(configs: Sequence[Config], ended: ScriptEnd, python: str) -> tuple[CompiledConfig, ...]:
    """The answers come in the order of the configs."""
    for answer in ended.answers:
        if answer["event"] == "missing":
            raise UsageError(missing_in_words(python, answer))
        if answer["event"] == "import-failed":
            raise UsageError(
                f"{python} cannot import the kernel: {answer['type']}: {answer['text']}; mend "
                "that, or name another interpreter with --python"
            )
    done = [answer for answer in ended.answers if answer["event"] == "done"]
    found = [
        CompiledConfig(config, answer["ok"], answer["seconds"], answer.get("error"))
        for config, answer in zip(configs, done, strict=False)
    ]
    left = configs[len(found) :]
    return (*found, *(CompiledConfig(config, ok=False, error=ended.fate) for config in left))
