"""The steps of the Tile IR workflow, what became of them, and when to give up. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class TileIrPhase(StrEnum):
    """The five steps, in order."""

    COMPATIBILITY = "compatibility"
    CLASSIFY = "classify"
    TRANSFORM = "transform"
    VALIDATE = "validate"
    BENCHMARK = "benchmark"


class StepStatus(StrEnum):
    """What became of a step."""

    READY = "ready"
    """It can be taken here; only `check` says so."""
    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Step:
    """One step."""

    phase: TileIrPhase
    status: StepStatus
    reason: str
    """What was done, or why nothing was."""
    max_abs_diff: float | None = None
    max_rel_diff: float | None = None
    details: tuple[str, ...] = ()
    """What is wrong, case by case."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "phase": self.phase.value,
            "status": self.status.value,
            "reason": self.reason,
            "max_abs_diff": self.max_abs_diff,
            "max_rel_diff": self.max_rel_diff,
            "details": list(self.details),
        }


@dataclass(frozen=True)
class SizeTiming:
    """One size: what PTX took, and what Tile IR took. Latencies are geometric means, in ms."""

    case: str
    """What was called with which shapes."""
    size: int | None
    ptx_ms: float
    tileir_ms: float | None = None
    speedup: float | None = None
    low: float | None = None
    """`speedup` lies between these two, each at the error rate of one look."""
    high: float | None = None
    method: str = ""


@dataclass(frozen=True)
class Timed:
    """A benchmark."""

    step: Step
    rows: tuple[SizeTiming, ...] = ()
    ptx_ms: float | None = None
    """Geometric means over the rows."""
    tileir_ms: float | None = None

    @property
    def speedup(self) -> float | None:
        """Of the geometric means over the rows; None where Tile IR was not timed."""
        if self.ptx_ms is None or self.tileir_ms is None:
            return None
        return self.ptx_ms / self.tileir_ms


class Reason(StrEnum):
    """Why the workflow ends before its end."""

    NO_TRITON = "no triton"
    COMPATIBILITY = "compatibility"
    """The kernel is wrong, or fails, before anything was changed."""
    VALIDATION = "validation"
    """Tile IR computes something else."""
    NO_SPEEDUP = "no speedup"


@dataclass(frozen=True)
class Abort:
    """The end of the workflow. A GPU that is no Blackwell is none: configs are prepared for it."""

    reason: Reason
    detail: str

    def to_json(self) -> dict[str, str]:
        """Plain JSON values."""
        return {"reason": self.reason.value, "detail": self.detail}


_FATAL = {
    TileIrPhase.COMPATIBILITY: Reason.COMPATIBILITY,
    TileIrPhase.VALIDATE: Reason.VALIDATION,
    TileIrPhase.BENCHMARK: Reason.NO_SPEEDUP,
}


def abort_of(no_triton: str | None, steps: Iterable[Step]) -> Abort | None:
    """Why to stop, if anything says so: no Triton, or the first step that failed."""
    if no_triton is not None:
        return Abort(Reason.NO_TRITON, no_triton)
    for step in steps:
        if step.status is StepStatus.FAILED and step.phase in _FATAL:
            detail = step.details[0] if step.details else step.reason
            return Abort(_FATAL[step.phase], detail)
    return None
