"""A run without pytest and without a GPU: the judge reads its verdicts from the kernel's text.

The kernel says `LATENCY_MS = 1.0`, may say `# times 0.9` of a line that makes it faster, and
`WRONG = True`, `CRASH = True` or `HANG = True`.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.candidates import Candidates
from agent.events import Record, Started
from agent.evidence.duplicates import CompiledCommit
from agent.evidence.model import Artifact, CompiledLaunch, NotCompiled, Result
from agent.evidence.sass import InstructionMix
from agent.frozen_tests import TestPlan
from agent.harness.measuring.line_ups import AT_ONCE_WITH_ROOM, Enough
from agent.harness.measuring.result_check import AS_PRECISE, Allowance
from agent.harness.measuring.timed_pass import PassLimit, TimedPass
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.worker_session import Checkout, Telling
from agent.journal import Journal
from agent.loop import Effects, drive
from agent.measuring.decision import Status
from agent.measuring.measurement import Calibration, Failure
from agent.measuring.pair_cost import PairTime
from agent.measuring.screening import Look
from agent.measuring.statistics import Blocks, Comparison, compare
from agent.measuring.subset import Subset
from agent.memory import PastRuns
from agent.options import Options
from agent.playbook.base import Optimization
from agent.proposers.base import Declined, Exhausted, Proposal, ProposedVariant
from agent.proposers.playbook import PlaybookProposer
from agent.repository import Repository
from agent.state import Phase, Run
from agent.transitions import advance
from agent.workspace import Workspace

KERNEL = "kernel.py"
PLAN = TestPlan(("tests",), ("tests::test_right",), ("tests::test_perf",))


@dataclass(frozen=True)
class Step:
    """One scripted optimization: the kernel texts of its variants, or a refusal."""

    name: str
    texts: tuple[str, ...] = ()
    family: str = "tiles"
    refusal: str = ""


def kernel(latency_ms: float, *flags: str) -> str:
    """A kernel text that the scripted judge reads."""
    return "\n".join([f"LATENCY_MS = {latency_ms}", *(f"{flag} = True" for flag in flags), ""])


class TimedByText:
    """The part of a judge that times, exactly and repeatably: what a kernel's text says it takes.

    `noise` spreads the pairs.
    """

    noise: float | None = None

    def latency_ms(self, checkout: Checkout) -> float:
        """What the kernel of a checkout takes."""
        raise NotImplementedError

    def config(self) -> str:
        """The one that is timed."""
        raise NotImplementedError

    def failure(self, candidate: Checkout) -> Failure | None:
        """Why a candidate cannot be timed beside the incumbent; None where it can."""
        return None

    def calibrate(
        self,
        checkout: Checkout,
        deadline: float,
        after_first: Callable[[PairTime], None] = lambda _: None,
        until: float = math.inf,
    ) -> Calibration | Failure:
        resolvable = {self.config(): self.noise} if self.noise else {}
        latency_ms = {self.config(): self.latency_ms(checkout)}
        return Calibration(0.001, latency_ms, 0.1, 8, resolvable)

    def quick_compare(
        self, incumbent: Checkout, variant: Checkout, quads: int, deadline: float
    ) -> Look | Failure:
        if failure := self.failure(variant):
            return failure
        before, after = self.latency_ms(incumbent), self.latency_ms(variant)
        return Look(math.log(before / after), after)

    def line_ups(
        self, incumbent: Checkout, variants: Mapping[str, Checkout], configs: int | None = None
    ) -> ScriptedLineUps:
        return ScriptedLineUps(self, incumbent, variants)

    def compare(
        self,
        incumbent: Checkout,
        candidate: Checkout,
        calibration: Calibration | None,
        deadline: float,
        *,
        attempts: int = 1,
    ) -> Comparison | Failure:
        if failure := self.failure(candidate):
            return failure
        before, after = self.latency_ms(incumbent), self.latency_ms(candidate)
        noise = self.noise or 0.001
        wobbles = (1 - noise, 1.0, 1 + noise, 1.0)
        pairs = [{self.config(): Blocks((before * wobble,), (after,))} for wobble in wobbles]
        return compare(pairs, alpha=0.0125 / attempts)


@dataclass
class ScriptedJudge(TimedByText):
    """Verdicts by the text too."""

    launching: tuple[str, ...] = ("test_kernel.py::test_right",)
    noise: float | None = None

    def latency_ms(self, checkout: Checkout) -> float:
        return _latency(checkout)

    def config(self) -> str:
        return "c"

    def failure(self, candidate: Checkout) -> Failure | None:
        if "HANG" in _text(candidate):
            return Failure(Status.CRASH, correct=True, reason="timed out")
        if "SICK" in _text(candidate):
            return Failure(Status.CRASH, correct=True, reason="incumbent failed", incumbent=True)
        return None

    def leave_out(self, nodeids: Collection[str]) -> None:
        assert not nodeids

    def verify_in(self, workers: int, forerun: bool = False) -> None:
        assert workers == 1

    def expect_launches(self, nodeids: tuple[str, ...]) -> None:
        pass

    def compare_on(self, subset: Subset | None) -> None:
        assert subset is None

    def weigh(self, weights: Mapping[str, float]) -> None:
        assert weights == {}

    def verify(
        self,
        checkout: Checkout,
        deadline: float,
        *,
        may_skip: bool = False,
        origin: Checkout | None = None,
        allowance: Allowance = AS_PRECISE,
        incumbent: Checkout | None = None,
        tell: Telling | None = None,
        as_timed: bool = False,
    ) -> Verification | Failure:
        text = _text(checkout)
        if as_timed and "BAD CONFIG" in text:
            return Failure(Status.REVERT, correct=False, reason="test_right: off by two")
        if "CRASH" in text:
            return Failure(Status.CRASH, correct=False, reason="killed by SIGSEGV")
        if "WRONG" in text:
            return Failure(Status.REVERT, correct=False, reason="test_right: off by one")
        return Verification(1, launching=self.launching)

    def time(
        self,
        checkout: Checkout,
        deadline: float,
        *,
        may_skip: bool = False,
        limit: PassLimit | None = None,
    ) -> TimedPass | Failure:
        if "HANG" in _text(checkout):
            return Failure(Status.CRASH, correct=True, reason="timed out")
        return TimedPass((Record("c", _latency(checkout), "scripted"),), 0.01)

    def setting(self) -> str:
        return ""


@dataclass
class ScriptedLineUps:
    """Line-ups of a scripted judge: its pairs, without what fails in them."""

    judge: TimedByText
    incumbent: Checkout
    variants: Mapping[str, Checkout]

    def look(
        self,
        names: Sequence[str],
        quads: int,
        deadline: float,
        *,
        fresh: bool = False,
        last: bool = False,
        enough: Enough | None = None,
    ) -> Mapping[str, Look]:
        compare, seen = self.judge.quick_compare, dict[str, Look]()
        left = list(names)
        while left:
            group, left = left[:AT_ONCE_WITH_ROOM], left[AT_ONCE_WITH_ROOM:]
            looks = {n: compare(self.incumbent, self.variants[n], quads, deadline) for n in group}
            seen |= {name: look for name, look in looks.items() if isinstance(look, Look)}
            if left and enough is not None and enough(seen, left):
                break
        return seen

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class ScriptedCompiler:
    """Compiles a kernel to its text without comments; `BROKEN = True` does not compile."""

    def compile(
        self,
        checkouts: Sequence[Checkout],
        tests: Sequence[str],
        until: float = math.inf,
        given_up: threading.Event | None = None,
    ) -> tuple[CompiledCommit | None, ...]:
        return tuple(
            CompiledCommit((_compiled(_text(c)),), "once", complete=True) for c in checkouts
        )


def _compiled(text: str) -> Result:
    launch = CompiledLaunch("kernel", ())
    if "BROKEN" in text:
        return NotCompiled(launch, 90, "does not compile")
    return Artifact(
        launch=launch,
        sm=90,
        registers=32,
        stack_bytes=0,
        shared_bytes=0,
        threads=128,
        instructions=InstructionMix(),
        digest="".join(line for line in text.splitlines() if not line.startswith("#")),
        cubin_bytes=1,
        compile_s=0.1,
    )


@dataclass
class ScriptedProposer:
    """Goes through its steps once."""

    steps: Sequence[Step]

    def propose(self, run: Run, subject: Subject) -> Proposal | Declined | Exhausted:
        for step in self.steps:
            if step.name in run.tried:
                continue
            if step.refusal:
                return Declined(step.name, step.refusal)
            variants = tuple(
                ProposedVariant({"n": n}, f"{step.name} (n={n})", text)
                for n, text in enumerate(step.texts)
            )
            return Proposal(step.name, step.family, "it should help", variants)
        return Exhausted()


@dataclass
class ScriptedAssistant:
    """Goes through its steps once, and mends each to its next text while it may."""

    steps: Sequence[Step]

    def propose(self, run: Run, subject: Subject) -> Proposal | Exhausted:
        mending = run.phase is Phase.REPAIR
        for step in self.steps:
            asked = run.proposal is not None and step.name == run.proposal.optimization
            if asked if mending else step.name not in run.tried:
                number = run.attempt if mending else 0
                variant = ProposedVariant({}, f"{step.name} {number + 1}", step.texts[number])
                return Proposal(step.name, step.family, "it should help", (variant,))
        return Exhausted()


class ScriptedEntry(Optimization):
    """An entry of a playbook that makes a kernel as fast as it says, whatever the kernel is."""

    backend = "triton"
    priority: ClassVar[Mapping[KernelClass, int]] = {}
    hypothesis = "it should help"

    def __init__(self, name: str, *factors: float, family: str = "", after: str = "") -> None:
        """Take the factor of the latency of each variant, and a family that it depends on."""
        self.name = name  # type: ignore[misc]
        self.title = name  # type: ignore[misc]
        self.family = family or name  # type: ignore[misc]
        self.revisit_after = frozenset({after} - {""})  # type: ignore[misc]
        self.factors = factors

    def variants(self, subject: Subject) -> Sequence[Mapping[str, str]]:
        if not self.factors:
            raise NotApplicable("it needs a loop, and there is none")
        return [{"factor": str(factor)} for factor in self.factors]  # no number: it has no end

    def apply(self, subject: Subject, params: Mapping[str, Any]) -> str:
        return f"{subject.source.text}# times {params['factor']}\n"


@dataclass
class ScriptedRun:
    """Everything a scripted run needs in a repository, opened as `run` or `resume` would."""

    repo: Path
    steps: Sequence[Step]
    options: Options = field(default_factory=Options)
    run_id: str = "kernel-1"
    branch: str = "tile-agent/kernel"
    compiler: ScriptedCompiler | None = None
    torch: str = "2.0"
    """Its version, on the machine of the run."""
    plan: TestPlan = PLAN
    python: str = "python3"
    began_at_s: int = 1_700_000_000
    noise: float | None = None
    entries: Sequence[Optimization] = ()
    """The playbook, in place of the steps; what is left of it is looked at before it is chosen."""

    def __post_init__(self) -> None:
        self.repository = Repository.open(self.repo)
        self.workspace = Workspace(self.repository, self.run_id)
        self.folder = self.repo / "sandbox" / "runs" / self.run_id

    def begin(self) -> tuple[Run, Journal]:
        """Set up and write the first event."""
        origin = self.repository.head()
        assert origin is not None
        self.workspace.set_up(self.branch, origin, self.folder)
        journal = Journal(self.folder / "journal.jsonl")
        started = Started(
            run_id=self.run_id,
            kernel=KERNEL,
            backend="triton",
            kernel_class=KernelClass.MEMORY.value,
            branch=self.branch,
            origin_sha=origin,
            began_at_s=self.began_at_s,
            python=self.python,
            tests=self.plan,
            environment={"gpus": [], "versions": {"torch": self.torch}},
            latency_meaning="scripted",
            options=self.options,
        )
        journal.append(started)
        return advance(Run(), started), journal

    def finish(self) -> Run:
        """Begin, and go on to the end."""
        run, journal = self.begin()
        run = drive(run, journal, self.effects().table(), lambda *_: None)
        journal.close()
        return run

    def effects(self) -> Effects:
        """The loop's own effects over the scripted judge and proposer."""
        return Effects(
            workspace=self.workspace,
            candidates=Candidates(
                self.workspace, lambda root: (root,), self.compiler, PastRuns(self.repository)
            ),
            judge=ScriptedJudge(noise=self.noise)
            if self.plan is PLAN
            else ScriptedJudge(self.plan.correctness, self.noise),
            proposers={
                "playbook": PlaybookProposer(self.entries)
                if self.entries
                else ScriptedProposer(self.steps),
                "assistant": ScriptedAssistant(self.steps),
            },
            hardware=Hardware(),
            scouts=bool(self.entries),
        )


def _text(checkout: Checkout) -> str:
    return (checkout.root / checkout.kernel).read_text()


def _latency(checkout: Checkout) -> float:
    text = _text(checkout)
    found = re.search(r"LATENCY_MS = ([\d.]+)", text)
    assert found is not None
    return float(found.group(1)) * math.prod(map(float, re.findall(r"# times ([\d.]+)", text)))
