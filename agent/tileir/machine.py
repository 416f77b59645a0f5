"""Which steps of the Tile IR workflow a machine can take, and why not the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.environment import Environment, Gpu, generation, too_old
from agent.tileir.steps import Step, StepStatus, TileIrPhase

FIRST_BLACKWELL = 100
PAIRED_SMS = range(100, 110)
"""Data-center Blackwell, which runs one tile on two SMs; workstation Blackwell, 120, does not."""
STALE = {
    "CUTILE_ENABLE_APPROX": "nothing reads it any more: set TILEIR_ENABLE_APPROX",
    "CUTILE_ENABLE_FTZ": "nothing reads it any more: set TILEIR_ENABLE_FTZ",
    "TILEIR_OPT_LEVEL": "nothing reads it: opt_level is an option of triton.Config",
}
READ = ("ENABLE_TILE", "TILEIR_ENABLE_APPROX", "TILEIR_ENABLE_FTZ", "TRITON_TILEIRAS_PATH",
        "TRITON_TILEIR_RUNTIME_FALLBACK")  # fmt: skip
TOOLS = ("ptxas", "libnvvm")
"""What tileiras needs beside itself, by the backend's README."""
WHEELS = "the release wheels of github.com/triton-lang/Triton-to-tile-IR"


@dataclass(frozen=True)
class Machine:
    """What `check` found."""

    installed: Mapping[str, str | None]
    """As `tile_agent_pytest.tile_ir.installed` tells it."""
    gpu: Gpu | None
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment."""
    active: str | None = None
    """The backend that compiles now; None where none does, or nobody asked."""
    active_with_tile: str | None = None
    """The one that would with ENABLE_TILE=1."""
    import_error: str | None = None
    """Why Triton cannot be imported."""
    error: str | None = None
    """Why nothing compiles, in Triton's words."""

    @property
    def nvtriton(self) -> str:
        """'backend', 'placeholder' or 'absent'. The distribution's presence proves nothing."""
        if self.installed.get("backend"):
            return "backend"
        return "placeholder" if self.installed.get("nvtriton") else "absent"

    @property
    def blackwell(self) -> bool:
        """Whether the GPU is one."""
        return self.gpu is not None and self.gpu.sm >= FIRST_BLACKWELL

    @property
    def no_triton(self) -> str | None:
        """Why nothing can be run at all; None where Triton is there."""
        if not self.installed.get("triton"):
            return "triton is not installed: pip install 'tile-agent[triton]'"
        if old := too_old(self.installed.get("version")):
            return old
        if self.import_error:
            return f"triton cannot be imported, reinstall it: {self.import_error}"
        return None

    @property
    def no_tile_ir(self) -> str | None:
        """Why no kernel can be run by Tile IR here, with the mend; None when one can."""
        if self.no_triton:
            return self.no_triton
        if self.nvtriton == "placeholder":
            return (
                f"nvtriton {self.installed['nvtriton']} is PyPI's empty placeholder: "
                f"pip uninstall nvtriton, and install one of {WHEELS}"
            )
        if self.nvtriton == "absent":
            version = self.installed.get("version") or "of this machine"
            return f"stock Triton {version} has no Tile IR backend: install one of {WHEELS}"
        if self.gpu is None:
            return "there is no GPU that NVML can see: the Tile IR backend needs a Blackwell"
        if not self.blackwell:
            return (
                f"{self.gpu.name} is a {generation(self.gpu.sm)} (sm_{self.gpu.sm}), and the Tile "
                "IR backend is validated on Blackwell (sm_100 and later) only"
            )
        if self.active_with_tile != "tileir" and (self.active_with_tile or self.error):
            said = self.error or f"its target is {self.active_with_tile}"
            return f"the backend is installed but ENABLE_TILE=1 does not activate it: {said}"
        return None

    @property
    def problems(self) -> tuple[str, ...]:
        """Variables that do not do what somebody hopes."""
        found = [f"{n}: {why}" for n, why in STALE.items() if n in self.variables]
        enabled = self.variables.get("ENABLE_TILE")
        if enabled == "1" and self.nvtriton != "backend":
            found.append("ENABLE_TILE=1 is set, and no Triton here reads it")
        elif enabled not in (None, "0", "1"):
            found.append(f"ENABLE_TILE={enabled}: the backend is enabled by 1")
        if self.nvtriton == "backend" and not self.installed.get("compiler"):
            found.append(
                "no tileiras where the backend looks for it: set TRITON_TILEIRAS_PATH to its folder"
            )
        elif self.nvtriton == "backend":
            found += [
                f"no {name} is seen beside tileiras, nor in CUDA_HOME; without it tileiras ends "
                "with return code 5: set CUDA_HOME to the folder of the same CUDA release"
                for name in TOOLS
                if not self.installed.get(name)
            ]
        if "," in (several := self.installed.get("distributions") or ""):
            found.append(f"{several} write into one folder: keep one, and reinstall it")
        return tuple(found)

    @property
    def recommendation(self) -> str:
        """What to do next, in one line."""
        if self.no_triton:
            return self.no_triton
        if reason := self.no_tile_ir:
            return f"prepare configs, which wait behind their gate: {reason}"
        if not PAIRED_SMS.start <= (self.gpu.sm if self.gpu else 0) < PAIRED_SMS.stop:
            return "take every step, without num_ctas=2: this Blackwell does not pair its SMs"
        return "take every step"

    def steps(self) -> tuple[Step, ...]:
        """What each step would do here."""
        where = "on the GPU" if self.gpu else "in Triton's interpreter, on the CPU"
        ready, not_run = StepStatus.READY, StepStatus.NOT_RUN
        no_triton, no_tile_ir = self.no_triton, self.no_tile_ir
        return (
            Step(TileIrPhase.COMPATIBILITY, not_run, no_triton)
            if no_triton
            else Step(TileIrPhase.COMPATIBILITY, ready, f"ENABLE_TILE=0, {where}"),
            Step(TileIrPhase.CLASSIFY, ready, "reads the source"),
            Step(
                TileIrPhase.TRANSFORM,
                ready,
                "writes the source; other backends pass the configs by",
            ),
            *(
                Step(phase, not_run, no_tile_ir) if no_tile_ir else Step(phase, ready, how)
                for phase, how in (
                    (TileIrPhase.VALIDATE, "ENABLE_TILE=1, on the GPU"),
                    (TileIrPhase.BENCHMARK, "ENABLE_TILE=0 against 1, on the GPU"),
                )
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; the first six are the skill's."""
        return {
            "nvtriton_installed": self.nvtriton == "backend",
            "tileir_active": self.active == "tileir",
            "blackwell_gpu": self.blackwell,
            "triton_installed": bool(self.installed.get("triton")),
            "gpu_capability": list(divmod(self.gpu.sm, 10)) if self.gpu else None,
            "recommendation": self.recommendation,
            "nvtriton": self.nvtriton,
            "triton_version": self.installed.get("version"),
            "backend": self.installed.get("backend"),
            "compiler": self.installed.get("compiler"),
            **{name: self.installed.get(name) for name in TOOLS},
            "distributions": self.installed.get("distributions"),
            "gpu": self.gpu.name if self.gpu else None,
            "gpu_generation": generation(self.gpu.sm) if self.gpu else None,
            "variables": {n: v for n, v in self.variables.items() if n in (*READ, *STALE)},
            "problems": list(self.problems),
            "error": self.import_error or self.error,
            "steps": [step.to_json() for step in self.steps()],
        }


def of_environment(environment: Environment) -> Machine:
    """What can be told without starting a process: `doctor` shows it."""
    return Machine(environment.tile_ir, environment.gpu)


def of_probe(
    gpu: Gpu | None,
    variables: Mapping[str, str],
    now: Mapping[str, Any],
    with_tile: Mapping[str, Any] | None,
) -> Machine:
    """What two probes of the user's interpreter found; the second ran with ENABLE_TILE=1."""
    installed = {k: v for k, v in now["installed"].items() if k != "event"}
    installed["version"] = now["triton_version"] or installed.get("version")
    last = with_tile or now
    return Machine(
        installed=installed,
        gpu=gpu,
        variables=variables,
        active=_backend(now),
        active_with_tile=_backend(last),
        import_error=now["triton_error"] or last["triton_error"],
        error=last["target_error"],
    )


def _backend(probed: Mapping[str, Any]) -> str | None:
    target = probed["target"]
    return str(target["backend"]) if target else None
