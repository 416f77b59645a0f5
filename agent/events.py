"""What happens in a run: events, each a fact that the journal keeps, and what they are made of.

Pure values. Their layout is the journal's schema: a change of it is a new version of the journal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agent.decision import Rules, Status
from agent.measurement import Calibration
from agent.statistics import Comparison


class StopReason(StrEnum):
    """Why a run ended."""

    EXHAUSTED = "the playbook is exhausted"
    NO_IMPROVEMENT = "no improvement in consecutive iterations"
    SMALL_IMPROVEMENT = "the last improvement was under 2 %"
    ITERATIONS = "the iteration limit is reached"
    TIME = "the time budget is spent"
    ESCALATED = "escalated to the user"


@dataclass(frozen=True)
class Options:
    """What the user may set for a run; recorded with it, so that a resumed run is the same run."""

    max_iterations: int = 25
    patience: int = 2
    """Iterations in a row without improvement after which the run stops."""
    keep_going: bool = False
    """Go on after an improvement under 2 %."""
    time_budget_s: float | None = None
    iteration_timeout_s: float = 600.0
    only: tuple[str, ...] = ()
    """Names of the optimizations to try; all when empty."""
    compare_on: tuple[str, ...] = ()
    """Parts of perf test ids; comparisons run the tests that hold one of them. Chosen by cost when
    empty."""
    recalibrate_every: int = 5
    """Iterations after which the noise floor is measured again."""
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True)
class Record:
    """The timing of one config in one pass of the perf tests.

    `method` says how it was taken, in words: 'CUDA events, L2 flushed', 'pytest-benchmark'.
    """

    config: str
    latency_ms: float
    method: str
    samples_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class TestPlan:
    """The frozen tests of a run: node ids, in pytest's order."""

    __test__ = False

    files: tuple[str, ...]
    correctness: tuple[str, ...]
    perf: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A commit under judgement: one optimization with its parameters filled in."""

    sha: str
    params: dict[str, Any]
    title: str
    """What the table says: 'occupancy hint (occupancy=4)'."""


@dataclass(frozen=True)
class SortedOut:
    """A variant that was compiled and will not be run."""

    title: str
    reason: str


@dataclass(frozen=True)
class ScreenResult:
    """What the cheap look at one variant of a sweep gave."""

    sha: str
    latency_ms: float | None
    """None: the variant failed, and `reason` says how."""
    reason: str = ""
    improvement: float | None = None
    """Against the incumbent, beside which it was looked at."""


# --- events: past participles, each a fact that the journal keeps -------------------------------


@dataclass(frozen=True)
class Event:
    """Something that happened. `took_s` is the wall time of the effect behind it."""

    took_s: float = field(default=0.0, kw_only=True)


@dataclass(frozen=True)
class Started(Event):
    run_id: str
    kernel: str
    backend: str
    kernel_class: str
    branch: str
    origin_sha: str
    began_at_s: int
    """Seconds since the epoch."""
    python: str
    """The interpreter that runs the tests."""
    tests: TestPlan
    environment: dict[str, Any]
    latency_meaning: str
    """What 'latency' means on the machine of the run, in one sentence."""
    options: Options


@dataclass(frozen=True)
class Baselined(Event):
    records: tuple[Record, ...]
    correctness_tests: int
    pass_s: float
    """Wall time of one pass of the perf tests in a ready worker."""
    skipped: tuple[str, ...] = ()
    """Tests that skip themselves on this machine; they judge nothing from here on."""
    compared: tuple[str, ...] = ()
    """The perf tests that comparisons run, where all of them would take too long; else empty."""
    comparison_s: float = 0.0
    """What a comparison takes, about."""


@dataclass(frozen=True)
class Calibrated(Event):
    """The incumbent has been compared with itself."""

    calibration: Calibration


@dataclass(frozen=True)
class Skipped(Event):
    """An optimization that does not apply here; it costs no iteration."""

    optimization: str
    reason: str


@dataclass(frozen=True)
class Proposed(Event):
    optimization: str
    family: str
    hypothesis: str
    candidates: tuple[Candidate, ...]
    sorted_out: tuple[SortedOut, ...] = ()
    """Variants that need no timing, by what they compile to."""


@dataclass(frozen=True)
class Screened(Event):
    """The variants of a sweep, looked at cheaply; `order` is the shas, most promising first."""

    results: tuple[ScreenResult, ...]
    order: tuple[str, ...]


@dataclass(frozen=True)
class Verified(Event):
    sha: str
    passed: int
    rejected: tuple[ScreenResult, ...] = ()
    """More promising variants whose results were wrong."""


@dataclass(frozen=True)
class Measured(Event):
    comparison: Comparison


@dataclass(frozen=True)
class Failed(Event):
    """The candidate ended before a comparison: wrong, dead, hung, or not measurable."""

    status: Status
    correct: bool
    """Whether its results were found right before it failed."""
    reason: str
    incumbent: bool = False
    """The incumbent failed, not the candidate: the tests or the machine are at fault."""
    unmeasured: bool = False
    """Nobody failed: what was measured is no evidence."""


@dataclass(frozen=True)
class Settled(Event):
    """Git has followed the verdict; `sha` is the incumbent from here on."""

    sha: str
    note: str = ""
    """Why the user's branch could not be moved, if it could not."""


@dataclass(frozen=True)
class Stopped(Event):
    reason: StopReason
    detail: str = ""


@dataclass(frozen=True)
class Finished(Event):
    """The last word: origin against best, measured afresh. None when nothing was kept."""

    comparison: Comparison | None
    note: str = ""
    faded: tuple[int, ...] = ()
    """Iterations whose kept gain did not show when it was measured once more."""


EVENTS: tuple[type[Event], ...] = (
    Started,
    Baselined,
    Calibrated,
    Skipped,
    Proposed,
    Screened,
    Verified,
    Measured,
    Failed,
    Settled,
    Stopped,
    Finished,
)
