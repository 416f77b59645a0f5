"""What happens in a run: events, each a fact that the journal keeps, and what they are made of.

Pure values. Their layout is the journal's schema: a change with which old journals cannot be read
is a new version of the journal.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agent.causes import Diagnosis
from agent.frozen_tests import TestPlan
from agent.launches import ObservedLaunch
from agent.least_time import LeastTimes
from agent.measuring.decision import Status, Verdict
from agent.measuring.measurement import Calibration, Failure
from agent.measuring.screening import ScreenResult
from agent.measuring.statistics import Comparison, weighted_latency_ms
from agent.measuring.subset import PerfTestCost, Subset
from agent.options import Options
from agent.usage import Usage


class StopReason(StrEnum):
    """Why a run ended."""

    EXHAUSTED = "the playbook is exhausted"
    UNANSWERED = "whoever writes candidates does not answer"
    UNUSABLE = "whoever writes candidates gives none that can be tried"
    ASKING = "a budget for asking the model is spent"
    NO_IMPROVEMENT = "no improvement in consecutive iterations"
    SMALL_IMPROVEMENT = "the last improvement was under 2 %"
    AT_ROOF = "the memory's bandwidth leaves nothing to gain"
    ITERATIONS = "the iteration limit is reached"
    TIME = "the time budget is spent"
    ESCALATED = "escalated to the user"
    ASKED = "the assistant ended it"


ENDED_EARLY = frozenset({StopReason.UNANSWERED, StopReason.UNUSABLE, StopReason.ASKING})
"""Something was left, and nobody was there to carry it out: it is not known what it would gain."""


@dataclass(frozen=True)
class Record:
    """The timing of one config in one pass of the perf tests.

    `method` says how it was taken, in words: 'CUDA events, L2 flushed', 'pytest-benchmark'.
    """

    config: str
    latency_ms: float
    method: str
    samples_ms: tuple[float, ...] = ()
    weight: float = 1.0
    """How much it counts beside the other configs, as its test says."""


@dataclass(frozen=True)
class Candidate:
    """A commit under judgement: one optimization with its parameters filled in."""

    sha: str
    params: dict[str, Any]
    title: str
    """What the table says: 'occupancy hint (occupancy=4)'."""


@dataclass(frozen=True)
class FilteredOut:
    """A variant that was compiled and will not be run."""

    title: str
    reason: str


@dataclass(frozen=True)
class CodeChange:
    """What the compiler made of a launch of the incumbent, and of a candidate's."""

    kernel: str
    registers: tuple[int, int]
    """Before and after, a thread; so are the spilled bytes. Shared memory is that of a block."""
    spilled_bytes: tuple[int, int]
    shared_bytes: tuple[int, int]
    sha: str = ""
    """Of the candidate; empty in journals that tell of the first one alone."""


# --- events: past participles, each a fact that the journal keeps -------------------------------


@dataclass(frozen=True)
class Event:
    """Something that happened. `took_s` is the wall time of the effect behind it."""

    took_s: float = field(default=0.0, kw_only=True)
    touched: tuple[str, ...] = field(default=(), kw_only=True)
    """What changed in the user's repository meanwhile, by whomever; a phrase each."""


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
    not_timed: tuple[str, ...] = ()
    """Perf tests that the budget left no time for; nor do they."""
    compared: tuple[str, ...] = ()
    """The configs that the user chose for comparisons; empty: those that fit into the budgets."""
    launching: tuple[str, ...] = ()
    """The correctness tests that launch a kernel of the file: candidates have to do so, too."""
    notes: tuple[str, ...] = ()
    """Kernels that differ from themselves when a launch is repeated."""
    comparison_s: float = 0.0
    """What a comparison on all configs takes, about."""
    costs: tuple[PerfTestCost, ...] = ()
    """What each perf test costs."""
    start_s: float = 0.0
    """What a worker takes until it has collected them; 0 where nobody looked."""
    correctness_s: float = 0.0
    """Wall time of a candidate's correctness tests, about."""
    workers: int = 1
    """In how many workers at once those run."""
    written: tuple[str, ...] = ()
    """Files of a commit that the tests themselves write to."""
    launches: tuple[ObservedLaunch, ...] = ()
    """Of the perf tests, each different one once."""
    kernel_class: str = ""
    """What bounds the kernels that these launch, by their source; empty where none was seen."""

    @property
    def kernels(self) -> dict[str, frozenset[str]]:
        """Perf test -> the kernels of the file that it was seen to launch."""
        found: dict[str, set[str]] = {}
        for launch in self.launches:
            for test in {launch.test, *(test for test, _ in launch.timings)}:
                found.setdefault(test, set()).add(launch.kernel)
        return {test: frozenset(kernels) for test, kernels in found.items()}

    @property
    def left_out(self) -> frozenset[str]:
        """The tests that nothing is judged by."""
        return frozenset((*self.skipped, *self.not_timed))

    @property
    def weights(self) -> dict[str, float]:
        """Config -> how much it counts, of those whose tests say so."""
        return {r.config: r.weight for r in self.records if r.weight != 1.0}

    @property
    def longest_ms(self) -> dict[str, float]:
        """Node id of a perf test -> its longest timing."""
        return {c.nodeid: max(c.latencies_ms.values(), default=0.0) for c in self.costs}

    def latency_ms(self, configs: Collection[str] | None = None) -> float:
        """The weighted geometric mean over these configs; over all when left out."""
        found = {
            record.config: record.latency_ms
            for record in self.records
            if configs is None or record.config in configs
        }
        return weighted_latency_ms(found, self.weights)


@dataclass(frozen=True)
class Calibrated(Event):
    """The incumbent has been compared with itself."""

    calibration: Calibration
    diagnosis: Diagnosis | None = None
    """What holds the incumbent back."""
    subset: Subset | None = None
    """The configs that it was made on, and that comparisons measure; None: all."""
    compile_s: float | None = None
    """What compiling the incumbent took, 0 where nothing is compiled; None: not known."""
    least_times: LeastTimes | None = None
    """What the GPU needs for the configs at least, as far as that is known."""
    known_from: str = ""
    """The earlier run that measured it; empty: this one did."""
    profiled: bool = True
    """Whether its diagnosis asks a profiler, where there is one."""


@dataclass(frozen=True)
class Skipped(Event):
    """An optimization that gives no candidate here; it costs no iteration."""

    optimization: str
    reason: str
    usage: Usage | None = None
    """What finding that out took, where a model or a program was asked."""
    by_look: bool = False
    """A short look left it no chance: it does apply."""


@dataclass(frozen=True)
class Offered(Event):
    """The ONE optimization that an assistant is asked to carry out."""

    optimization: str
    family: str
    title: str


@dataclass(frozen=True)
class Dropped(Event):
    """The assistant leaves behind what it was asked for, or the iteration that came of it.

    Whatever state that was in: a candidate whose judgement never comes to an end holds up no run.
    """

    reason: str


@dataclass(frozen=True)
class HandedOver(Event):
    """One proposer has nothing left, or gained nothing any more: the next one goes on."""

    to: str
    reason: str
    early: bool = False
    """It had something left, but nobody to carry it out, or no budget."""


@dataclass(frozen=True)
class Proposed(Event):
    optimization: str
    family: str
    hypothesis: str
    candidates: tuple[Candidate, ...]
    filtered_out: tuple[FilteredOut, ...] = ()
    """Variants that need no timing, by what they compile to."""
    expected_gain: float | None = None
    """The part of the latency that its author expects to save."""
    risk: str = ""
    """What could go wrong, in the author's words."""
    rounding: float = 0.0
    """The relative error, root mean square, that lies in the nature of the edit."""
    doubts: tuple[str, ...] = ()
    """What a look at the text found out of place in a kernel file; it decides nothing."""
    usage: Usage | None = None
    """What writing it took, where a model or a program was asked."""
    saves: str = ""
    """What it saves that is no latency; it is kept where it is as fast."""
    code: tuple[CodeChange, ...] = ()
    """Of the candidates' launches, where they were compiled."""


@dataclass(frozen=True)
class Gathered(Event):
    """What the playbook has left for the incumbent, before one of it is chosen."""

    proposals: tuple[Proposed, ...]
    """Each with its variants committed and compiled; several are looked at next."""
    passed_over: tuple[Skipped, ...] = ()
    """What gives nothing to look at, and why."""


@dataclass(frozen=True)
class Scouted(Event):
    """Short looks at all variants that were gathered; by them the next choices are ordered."""

    results: tuple[ScreenResult, ...]
    error: float
    """How far each may be off, as a share of the latency."""
    configs: tuple[str, ...] = ()
    """Those that were looked at, where comparisons measure more."""
    known: tuple[str, ...] = ()
    """Commits whose results an earlier run saw, of the same edit."""
    ended_early: bool = False
    """Whether some were left out: what gains most was clear, and moves all others."""


@dataclass(frozen=True)
class Screened(Event):
    """The variants of a sweep, looked at cheaply; `order` is the shas, most promising first."""

    results: tuple[ScreenResult, ...]
    order: tuple[str, ...]
    configs: tuple[str, ...] = ()
    """Those that were looked at, where comparisons measure more."""


@dataclass(frozen=True)
class Verified(Event):
    sha: str
    passed: int
    rejected: tuple[ScreenResult, ...] = ()
    """More promising variants whose results were wrong."""
    launches: tuple[ObservedLaunch, ...] = ()
    """Of the perf tests, where they were seen; else it is not known what the candidate launches."""


@dataclass(frozen=True)
class Measured(Event):
    comparison: Comparison
    verdict: Verdict | None = None
    """The decision on it, by the rules of its time; None in journals that do not hold it."""
    mendable: bool = False
    """The candidate is not kept, and may be mended within its iteration."""
    known_from: str = ""
    """The run that measured it, where that holds for this one."""
    elsewhere: Comparison | None = None
    """On configs that comparisons leave out, of what would be kept, as far as there was time."""


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
    detail: str = ""
    """All that was said of it: pytest's account, with the compiler's message."""
    mendable: bool = False
    """The candidate may be mended within its iteration."""

    @classmethod
    def of(cls, failure: Failure, *, may_mend: bool = False) -> Failed:
        """The event that a failure is; nobody can mend what is not the candidate's."""
        return cls(
            failure.status, failure.correct, failure.reason, incumbent=failure.incumbent,
            unmeasured=failure.unmeasured, detail=failure.detail,
            mendable=may_mend and failure.is_the_candidates,
        )  # fmt: skip


@dataclass(frozen=True)
class GivenUp(Event):
    """The assistant mends a candidate no more: the iteration ends as its last attempt did."""

    reason: str


@dataclass(frozen=True)
class Settled(Event):
    """Git has followed the verdict; `sha` is the incumbent from here on."""

    sha: str
    note: str = ""
    """Why the user's branch could not be moved, if it could not."""
    diagnosis: Diagnosis | None = None
    """What holds the incumbent back from here on; None where that was not looked into again."""


@dataclass(frozen=True)
class Stopped(Event):
    reason: StopReason
    detail: str = ""
    diagnosis: Diagnosis | None = None
    """What holds the incumbent back, where it was asked for that word alone."""


@dataclass(frozen=True)
class Finished(Event):
    """The last word: origin against best, measured afresh. None when nothing was kept."""

    comparison: Comparison | None
    note: str = ""
    faded: tuple[int, ...] = ()
    """Iterations whose kept gain did not show when it was measured once more."""
    left_out: tuple[str, ...] = ()
    """Configs that the comparison does not cover, for lack of time."""
    too_large: tuple[str, ...] = ()
    """The same for want of memory: the GPU does not hold them twice."""


EVENTS: tuple[type[Event], ...] = tuple(Event.__subclasses__())
