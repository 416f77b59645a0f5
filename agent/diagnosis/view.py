"""What is known of a kernel, from the side that the rules look at: its longest timing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.analysis.common.kernels import KernelClass
from agent.evidence.counters import Counters
from agent.evidence.model import Artifact, Result, TimedWork
from agent.evidence.peaks import Peaks
from agent.evidence.roofline import Position, position

NEAR_BANDWIDTH = 0.8
"""Of the peak bandwidth: the goal of TileGym's performance model, and what fast kernels reach."""
NEAR_TENSOR_PEAK = 0.7
"""Of the data sheet's peak. On an H200 `torch.matmul` reaches 0.77 in bf16."""
FAR = 0.5
"""Of the nearest roof; below this a kernel waits for something else."""


@dataclass(frozen=True)
class Facts:
    """What is known of the incumbent. All but the class may be missing."""

    kernel_class: KernelClass
    flop_per_byte: float
    """By the tiles of the source: operations for each byte that a block asks for."""
    multiplying: frozenset[str] = frozenset()
    """Names of the kernels whose source asks for matrix products."""
    rewritten: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Kernel -> its parameters that it reads and writes, where its source shows them."""
    results: tuple[Result, ...] = ()
    timed: tuple[tuple[TimedWork, float], ...] = ()
    """Work of a timing, and its latency in ms; 0 where only the work is known."""
    peaks: Peaks | None = None
    """Of the GPU that the latencies are of."""
    gpu: str = ""
    counters: tuple[Counters, ...] = ()
    """Of one perf test, the longest kernel first."""
    copies: tuple[tuple[int, str], ...] = ()
    """Line and call of each copy of a tensor that host code makes around the launches."""
    missing: tuple[str, ...] = ()
    """Why something of the above is not known, a line each."""


@dataclass(frozen=True)
class View:
    """The facts from the side of the rules: of the longest timing."""

    facts: Facts
    work: TimedWork | None
    latency_ms: float
    """0 where none is known."""
    at: Position | None
    kernels: Mapping[str, Sequence[Artifact]]
    """What each of its kernels compiles to: several where it is tuned, or tests differ."""

    @property
    def memory_busy(self) -> str | None:
        """The figures that show it; None where they do not. Counters go before the timing."""
        if self.facts.counters:
            longest = self.facts.counters[0]
            return str(longest) if (longest.dram_share or 0.0) >= NEAR_BANDWIDTH else None
        if self.at is None or not NEAR_BANDWIDTH <= self.at.memory_share <= 1:
            return None
        return f"{self.at.gb_s:.0f} GB/s, {self.at.memory_share:.0%} of the peak bandwidth"

    @property
    def compute_busy(self) -> str | None:
        """The figures that show it; None where they do not."""
        if self.at is not None and self.at.compute_share >= NEAR_TENSOR_PEAK:
            share = f"{self.at.compute_share:.0%} of the tensor cores' peak"
            return f"{self.at.tflops:.0f} TFLOP/s, {share}"
        if self.facts.counters and (self.facts.counters[0].sm_share or 0.0) >= NEAR_TENSOR_PEAK:
            return str(self.facts.counters[0])
        return None

    @property
    def waits(self) -> bool:
        """Whether what was measured is far from every roof."""
        if self.facts.counters:
            longest = self.facts.counters[0]
            return max(longest.dram_share or 0.0, longest.sm_share or 0.0) < FAR
        return self.at is not None and self.roofs_known and self.at.nearest_share < FAR

    @property
    def roofs_known(self) -> bool:
        """Whether no third roof can be nearer: where there is arithmetic, it must be counted."""
        if self.at is None or self.at.memory_share > 1:
            return False
        return bool(self.at.flop) or self._moves_memory

    @property
    def _moves_memory(self) -> bool:
        """Whether bandwidth is the only roof: where there is arithmetic, it must be counted."""
        launched = set(self.work.kernels) if self.work else self.kernels.keys()
        multiplies = self.facts.multiplying & launched
        return self.facts.kernel_class is KernelClass.MEMORY and not multiplies


def view_of(facts: Facts) -> View:
    """Look at the longest timing; without timings at all that was compiled."""
    work, latency_ms = max(facts.timed, key=lambda pair: pair[1], default=(None, 0.0))
    at = None
    if work is not None and facts.peaks is not None:
        at = position(work, latency_ms, facts.peaks, facts.multiplying, facts.rewritten)
    artifacts = [result for result in facts.results if isinstance(result, Artifact)]
    names = work.kernels if work else tuple(a.launch.kernel for a in artifacts)
    kernels = {name: _of(name, artifacts, work.test if work else "") for name in names}
    return View(facts, work, latency_ms, at, {name: of for name, of in kernels.items() if of})


def _of(kernel: str, artifacts: Sequence[Artifact], test: str) -> list[Artifact]:
    """What a test launches of a kernel; all of it where the same code was seen elsewhere first."""
    found = [a for a in artifacts if a.launch.kernel == kernel]
    return [a for a in found if a.launch.test == test] or found
