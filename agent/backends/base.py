"""What the loop knows of a kernel language. A backend reads; it never edits and never launches.

Two backends exist, `cutile` and `triton`. To add a third, write a module that satisfies `Backend`
and name it in `agent.backends.BACKENDS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agent.environment import Environment
from agent.syntax import Source


class KernelClass(StrEnum):
    """What bounds a kernel on the roofline; it only orders the playbook."""

    MEMORY = "memory-bound"
    """Fewer than 10 floating-point operations for each byte of device memory."""
    BALANCED = "balanced"
    """10 to 50 operations a byte."""
    COMPUTE = "compute-bound"
    """More than 50 operations a byte."""


@dataclass(frozen=True)
class KernelFunction:
    """A kernel in the file."""

    name: str
    line: int
    parameters: tuple[str, ...]
    """All of them, in order."""
    constants: tuple[str, ...]
    """Those fixed at compile time: `tl.constexpr`, `ct.Constant`."""
    launched_from: tuple[str, ...]
    """Functions of the same file that launch it, in order; empty for a helper."""


@dataclass(frozen=True)
class Classification:
    """An estimate of the arithmetic intensity from the source alone, and what it rests on."""

    kernel_class: KernelClass
    flop_per_byte: float
    evidence: tuple[str, ...]


class Backend(Protocol):
    """A kernel language."""

    name: str

    def kernels(self, source: Source) -> tuple[KernelFunction, ...]:
        """The kernels of a file, found by resolved imports; empty when it holds none."""

    def classify(self, source: Source) -> Classification:
        """Estimate what bounds the file's launched kernels."""

    def refusal(self, environment: Environment) -> str | None:
        """Why this machine cannot time such a kernel, with the mend; None when it can."""

    def latency_meaning(self, environment: Environment) -> str:
        """What 'latency' means on this machine, in one plain sentence."""

    def worker_environment(self, environment: Environment) -> dict[str, str]:
        """Environment variables that a worker needs before it imports anything."""


def class_of(flop_per_byte: float) -> KernelClass:
    """The class of an arithmetic intensity: below 10 memory, to 50 balanced, above compute."""
    if flop_per_byte < 10:
        return KernelClass.MEMORY
    return KernelClass.BALANCED if flop_per_byte <= 50 else KernelClass.COMPUTE
