"""What the loop knows of a kernel language. A backend reads; it never edits and never launches.

Two backends exist, `cutile` and `triton`. To add a third, write a module that satisfies `Backend`
and name it in `agent.backends.BACKENDS`.
"""

from __future__ import annotations

from typing import Protocol

from agent.analysis.common.kernels import Classification, KernelFunction
from agent.analysis.common.structure import Structure
from agent.environment import Environment
from agent.syntax import Source


class Backend(Protocol):
    """A kernel language."""

    name: str
    without_gpu: tuple[str, ...]
    """Options that pytest needs to run tests of a kernel where there is no GPU."""

    def kernels(self, source: Source) -> tuple[KernelFunction, ...]:
        """The kernels of a file, found by resolved imports; empty when it holds none."""

    def classify(self, source: Source) -> Classification:
        """Estimate what bounds the file's launched kernels."""

    def structure(self, source: Source) -> Structure:
        """What the kernel does that the file is tuned for, whatever its text calls it."""

    def lacks(self, environment: Environment) -> str | None:
        """Why this machine's hardware cannot run such a kernel, whatever is installed; None when it
        can."""

    def unlaunchable(self, source: Source, environment: Environment) -> str | None:
        """Why a kernel of the file can be launched on no machine, or not on this one."""

    def refusal(self, environment: Environment) -> str | None:
        """Why this machine cannot time such a kernel, with the mend; None when it can."""

    def latency_meaning(self, environment: Environment) -> str:
        """What 'latency' means on this machine, in one plain sentence."""

    def worker_environment(self, environment: Environment) -> dict[str, str]:
        """Environment variables that a worker needs before it imports anything."""
