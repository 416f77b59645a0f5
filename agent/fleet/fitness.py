"""Whether a machine can do a job of a fleet: asked on the worker, before anything is started."""

from __future__ import annotations

import os

from agent.backends import BACKENDS
from agent.environment import Environment
from agent.fleet.jobs import KernelJob, ResumePoint

_COMPARED = ("torch", "triton", "cuda-tile", "nvidia-cuda-tileiras")
INTERPRETED = "TRITON_INTERPRET"


def unfit(
    job: KernelJob, point: ResumePoint | None, begun_on: Environment, here: Environment
) -> str | None:
    """Why this machine cannot do the job; None when it can.

    Args:
        job: which one.
        point: from what its run is to go on, where it has begun already.
        begun_on: the machine that the fleet was begun on. Rows of one table speak of the same
            versions.
        here: this one.
    """
    if differing := _differing(begun_on, here):
        return f"{differing}: install the same versions on all machines"
    if job.gpus and here.gpu is None and os.environ.get(INTERPRETED) != "1":
        return (
            "Ray gives it a GPU, and the NVIDIA driver shows none: mend the machine, or ask for "
            "none with --gpus-per-run 0"
        )
    backend = BACKENDS[job.backend]
    if refusal := backend.refusal(here):
        return refusal
    if point and point.latency_meaning != (meaning := backend.latency_meaning(here)):
        return f"its run measured {point.latency_meaning}; here it would be {meaning}"
    return None


def _differing(begun_on: Environment, here: Environment) -> str:
    """What is installed in other versions than where the fleet was begun."""
    told = []
    for name in _COMPARED:
        there, mine = (_public(each.versions.get(name)) for each in (begun_on, here))
        if there != mine:
            told.append(f"{name} {mine or 'missing'}, not {there or 'missing'}")
    if _minor(begun_on.python) != _minor(here.python):
        told.append(f"Python {here.python}, not {begun_on.python}")
    if begun_on.gpu and here.gpu and begun_on.gpu.driver != here.gpu.driver:
        told.append(f"driver {here.gpu.driver}, not {begun_on.gpu.driver}")
    if begun_on.tileiras and not here.tileiras:
        told.append("tileiras missing")
    return "; ".join(told)


def _public(version: str | None) -> str | None:
    """Without the name of the build: 2.13.0+cu130 and 2.13.0+cpu are the same code."""
    return version.partition("+")[0] if version else None


def _minor(python: str) -> list[str]:
    return python.split(".")[:2]
