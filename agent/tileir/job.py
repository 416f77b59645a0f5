"""What `verify` and `bench` run beside what is right, and how. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.options import Options
from agent.tileir.call import KernelCall
from agent.tileir.machine import Machine
from tile_agent_pytest.tile_ir import WANTED_BACKEND


@dataclass(frozen=True)
class Job:
    """What is run, and how."""

    file: Path
    call: KernelCall
    python: str
    machine: Machine
    timeout_s: float
    """For the calls, for the reference, and for the comparison of PTX and Tile IR."""
    stop: str | None = None
    """Why Tile IR must not run this kernel, whatever the machine."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """For Tile IR only: TILEIR_ENABLE_APPROX and TILEIR_ENABLE_FTZ."""
    options: Options = field(default_factory=Options)
    """How workers are confined."""

    @property
    def interpreted(self) -> bool:
        """Whether Triton's interpreter stands in for a GPU."""
        return self.machine.gpu is None

    def cannot(self, *, tile: bool) -> str | None:
        """Why this machine cannot run the kernel that way."""
        if tile:
            return self.stop or self.machine.no_tile_ir
        if self.machine.no_triton:
            return self.machine.no_triton
        return None

    def environment(self, *, tile: bool) -> dict[str, str]:
        """Of its workers, whatever the user's own says: what ran is told in the step."""
        variables = {
            "ENABLE_TILE": "1" if tile else "0",
            "TRITON_INTERPRET": "1" if self.interpreted else "0",
        }
        if not tile:
            return variables
        # A silent fall back to PTX would be taken for Tile IR.
        backend = {"TRITON_TILEIR_RUNTIME_FALLBACK": "0", WANTED_BACKEND: "tileir"}
        return {**variables, **backend, **self.variables}


@dataclass(frozen=True)
class Reference:
    """What is right: an expression over the arguments' names, or a function of a file."""

    expression: str | None = None
    file: Path | None = None
    function: str | None = None
    rtol: float | None = None
    atol: float | None = None
