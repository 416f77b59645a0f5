"""The loop over a scripted judge: every verdict, every stop, and a kill at every point."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.causes import Cause, Diagnosis
from agent.events import (
    Baselined,
    CodeChange,
    Event,
    Measured,
    Proposed,
    Screened,
    Skipped,
    StopReason,
)
from agent.harness.diagnostician import UNPROFILED
from agent.harness.measuring.timed_pass import PassLimit, TimedPass
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.worker_session import Checkout
from agent.journal import Journal, read, replay
from agent.loop import drive
from agent.measuring.decision import Gain, Status, Verdict, decide
from agent.measuring.measurement import Calibration, Failure
from agent.measuring.screening import Look
from agent.measuring.statistics import Comparison
from agent.measuring.subset import PerfTestCost, Subset
from agent.options import ASSISTANT, Options
from agent.report.progress import lines
from agent.report.table import render
from agent.state import ATTEMPTS, Phase, Run
from tests.support.finished_run import repo_with_run
from tests.support.repo import git, isolate, make_repo, snapshot
from tests.support.scenario import ENTRIES, ORIGIN, STEPS
from tests.support.scripted import (
    KERNEL,
    ScriptedCompiler,
    ScriptedEntry,
    ScriptedJudge,
    ScriptedLineUps,
    ScriptedRun,
    Step,
    kernel,
)
from tests.support.scripted_run import SCENARIOS
from tests.support.warm_python import run_python

REPO_ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def test_a_run_meets_every_verdict(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    run = ScriptedRun(repo, STEPS).finish()
    assert [(r.optimization, r.status.value, r.correct) for r in run.rows] == [
        ("baseline", "keep", True),
        ("major (n=0)", "keep", True),
        ("wrong (n=0)", "revert", False),
        ("sweep (n=1)", "keep", True),
        ("slower (n=0)", "revert", True),
        ("minor (n=0)", "keep", True),
        ("crash (n=0)", "crash", False),
        ("hang (n=0)", "crash", True),
        ("slow (n=0)", "revert", True),
        ("as-slow (n=0)", "revert", True),
    ]
    assert run.stopped is not None and run.stopped.reason is StopReason.NO_IMPROVEMENT
    assert [s.optimization for s in run.skipped] == ["declined"]
    assert run.demoted == {"cache"}
    assert run.finished is not None and run.finished.comparison is not None
    assert run.finished.comparison.overall.improvement == pytest.approx(0.42)


def test_a_candidate_is_mended_within_its_iteration(tmp_path: Path) -> None:
    """At most three attempts, each a commit and each in the journal; one row an iteration."""
    scripted = SCENARIOS["assistant"](make_repo(tmp_path, {KERNEL: ORIGIN}))
    shares: list[int] = []

    class Shared(ScriptedJudge):
        def compare(self, *arguments: Any, attempts: int = 1) -> Comparison | Failure:
            shares.append(attempts)
            return super().compare(*arguments, attempts=attempts)

    run, journal = scripted.begin()
    effects = replace(scripted.effects(), judge=Shared())
    run = drive(run, journal, effects.table(), lambda *_: None)
    journal.close()
    assert [(r.iteration, r.optimization, r.status.value, r.attempts) for r in run.rows] == [
        (0, "baseline", "keep", 1),
        (1, "mask 3", "keep", 3),
        (2, "hopeless 3", "revert", 3),
        (3, "at-once 1", "keep", 1),
        (4, "slower-each-time 3", "revert", 3),
    ]
    assert (run.misses, run.stopped and run.stopped.reason) == (1, StopReason.EXHAUSTED)
    assert shares == [ATTEMPTS] * 7 + [1]  # the last word shares nothing
    refs = git(scripted.repo, "for-each-ref", "--format=%(refname)", "refs/tile-agent/")
    tried = [ref.rsplit("/", 1)[1] for ref in refs.splitlines()]
    assert [name for name in tried if name.startswith("01")] == [
        f"01-mask-{number}" for number in (1, 2, 3)
    ]
    table = render(run.rows)
    assert "| mask 3, 3 attempts" in table and "| at-once 1 " in table
    events = [line.event for line in read(scripted.folder / "journal.jsonl")]
    assert sum(isinstance(event, Proposed) for event in events) == 10


def test_what_does_not_compile_is_judged_where_it_may_be_mended(tmp_path: Path) -> None:
    """And what the compiler made of the rest is told beside the incumbent's code."""
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    steps = (Step("a", (kernel(0.5, "BROKEN", "CRASH"), kernel(0.8))),)
    options = Options(proposers=(ASSISTANT,))
    run = ScriptedRun(repo, steps, options, compiler=ScriptedCompiler()).finish()
    assert [(row.status, row.attempts) for row in run.rows[1:]] == [(Status.KEEP, 2)]
    assert run.proposal is not None
    assert run.proposal.code == (CodeChange("kernel", (32, 32), (0, 0), (0, 0), run.shown.sha),)


def test_an_attempt_that_compiles_to_the_incumbents_code_costs_none(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    steps = (Step("a", (kernel(1.2), f"# mended\n{ORIGIN}")),)
    options = Options(proposers=(ASSISTANT,))
    scripted = ScriptedRun(repo, steps, options, compiler=ScriptedCompiler())
    run, journal = scripted.begin()
    table, seen = scripted.effects().table(), list[Event]()

    def skipped(_: Run) -> bool:
        return bool(seen) and isinstance(seen[-1], Skipped)

    run = drive(run, journal, table, lambda _, event: seen.append(event), skipped)
    journal.close()
    assert (run.phase, run.attempt, run.skipped) == (Phase.REPAIR, 1, ())


def journal_in(repo: Path) -> Path:
    """Of the only run."""
    (found,) = (repo / "sandbox" / "runs").glob("*/journal.jsonl")
    return found


def otherwise(*_: object, **__: object) -> Verdict:
    """Rules that set everything aside."""
    return Verdict(Status.REVERT, Gain.NONE, "nothing is good enough any more")


def test_the_verdict_is_decided_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the rules change between the measurement and its settlement, and afterwards."""
    scripted = ScriptedRun(make_repo(tmp_path, {KERNEL: ORIGIN}), STEPS[:1])
    run, journal = scripted.begin()
    table = scripted.effects().table()
    run = drive(run, journal, table, lambda *_: None, lambda run: run.phase is Phase.SETTLE)
    journal.close()
    assert run.verdict is not None and run.verdict.status is Status.KEEP
    monkeypatch.setattr("agent.state.decide", otherwise)
    journal = Journal(scripted.folder / "journal.jsonl")
    assert replay(journal.events).verdict == run.verdict
    run = drive(replay(journal.events), journal, scripted.effects().table(), lambda *_: None)
    assert [row.status for row in run.rows] == [Status.KEEP, Status.KEEP]
    assert git(scripted.repo, "rev-parse", scripted.branch) == run.incumbent_sha
    assert replay(journal.events) == run


def test_every_measured_event_holds_the_verdict_that_its_row_tells(tmp_path: Path) -> None:
    events = [line.event for line in read(journal_in(repo_with_run(tmp_path)))]
    run = replay(events)
    verdicts = [event.verdict for event in events if isinstance(event, Measured)]
    timed = [row for row in run.rows[1:] if row.latency_ms is not None]
    assert [(v.status, v.reason) for v in verdicts if v] == [(r.status, r.reason) for r in timed]
    assert len(verdicts) == 6


def test_a_run_of_before_reads_as_git_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal holds no verdict, and the rules are others now."""
    scripted = ScriptedRun(make_repo(tmp_path, {KERNEL: ORIGIN}), STEPS)
    run = scripted.finish()
    events = [
        replace(line.event, verdict=None) if isinstance(line.event, Measured) else line.event
        for line in read(scripted.folder / "journal.jsonl")
    ]
    assert replay(events) == run
    monkeypatch.setattr("agent.state.decide", otherwise)
    again = replay(events)
    assert [(r.status, r.sha) for r in again.rows] == [(r.status, r.sha) for r in run.rows]
    assert again.incumbent_sha == git(scripted.repo, "rev-parse", scripted.branch)


def test_a_secret_in_the_name_of_a_config_is_nothing_that_a_verdict_goes_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was kept before is known by the names that are in the journal."""

    class Named(ScriptedJudge):
        def compare(self, *arguments: Any, **rest: Any) -> Comparison | Failure:
            found = super().compare(*arguments, **rest)
            assert isinstance(found, Comparison)
            (config,) = found.configs
            return replace(found, configs=(replace(config, config="correct-horse-battery"),))

    def noted(comparison: Comparison, *_: object, **given: Any) -> Verdict:
        (config,) = comparison.configs
        known.append((config.config, set(given["since_origin"])))
        return decide(comparison, *_, **given)

    known: list[tuple[str, set[str]]] = []
    monkeypatch.setenv("MY_API_KEY", "correct-horse-battery")
    monkeypatch.setattr("agent.state.decide", noted)
    scripted = ScriptedRun(
        make_repo(tmp_path, {KERNEL: ORIGIN}), (STEPS[0], Step("b", (kernel(0.6),)))
    )
    run, journal = scripted.begin()
    drive(run, journal, replace(scripted.effects(), judge=Named()).table(), lambda *_: None)
    (first, before), (second, kept) = known
    assert first == second and "horse" not in first
    assert (before, kept) == (set(), {first})


def test_the_branch_holds_one_commit_a_kept_optimization(tmp_path: Path) -> None:
    repo = repo_with_run(tmp_path)
    run = replay([line.event for line in read(journal_in(repo))])
    subjects = git(repo, "log", "--format=%s", "main..tile-agent/kernel").splitlines()
    assert subjects == ["kernel: minor (n=0)", "kernel: sweep (n=1)", "kernel: major (n=0)"]
    assert git(repo, "show", f"tile-agent/kernel:{KERNEL}") + "\n" == kernel(0.58)
    body = git(repo, "log", "-1", "--format=%b", "tile-agent/kernel")
    assert "it should help" in body
    assert "0.600000 ms -> 0.580000 ms" in body
    assert run.incumbent_sha == git(repo, "rev-parse", "tile-agent/kernel")


def test_rejected_candidates_stay_reachable(tmp_path: Path) -> None:
    repo = repo_with_run(tmp_path)
    kept = git(repo, "for-each-ref", "--format=%(refname)", "refs/tile-agent/kernel-1/")
    assert "refs/tile-agent/kernel-1/02-wrong-1" in kept.splitlines()
    wrong = git(repo, "show", f"refs/tile-agent/kernel-1/02-wrong-1:{KERNEL}") + "\n"
    assert wrong == kernel(0.1, "WRONG")


def test_the_users_checkout_is_untouched(tmp_path: Path) -> None:
    files = {KERNEL: ORIGIN, "other.py": "x = 1\n", ".gitignore": "*.log\n"}
    repo = make_repo(tmp_path, files)
    (repo / "other.py").write_text("x = 2  # not committed\n")
    (repo / "untracked.txt").write_text("mine")
    (repo / "run.log").write_text("ignored")
    (repo / "stashed.py").write_text("y = 1\n")
    git(repo, "stash", "push", "--include-untracked", "--quiet", "--", "stashed.py")
    git(repo, "add", "--intent-to-add", "untracked.txt")
    before = snapshot(repo)
    ScriptedRun(repo, STEPS).finish()
    after = snapshot(repo)
    differing = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    ours = {key for key in differing if key.startswith(("sandbox", "refs/tile-agent/"))}
    assert differing - ours == {"refs/heads/tile-agent/kernel", "git info/exclude"}


@pytest.mark.parametrize(
    ("options", "steps", "reason"),
    [
        (Options(max_iterations=1), STEPS, StopReason.ITERATIONS),
        (Options(time_budget_s=0.0), STEPS, StopReason.TIME),
        (Options(), (Step("a", (kernel(0.99),)), Step("b", (kernel(0.5),))), None),
        (Options(), (Step("a", (kernel(0.9),)),), StopReason.EXHAUSTED),
        (Options(), (Step("a", (kernel(0.9, "SICK"),)), *STEPS), StopReason.ESCALATED),
    ],
)
def test_it_stops(
    tmp_path: Path, options: Options, steps: tuple[Step, ...], reason: StopReason | None
) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    run = ScriptedRun(repo, steps, options).finish()
    assert run.stopped is not None
    assert run.stopped.reason is (reason or StopReason.SMALL_IMPROVEMENT)


@pytest.mark.parametrize(
    ("latencies", "again"), [((0.9, 0.8), 0), ((0.9, 0.87), 1), ((0.97, 0.94), 2), ((0.97,), 0)]
)
def test_kept_steps_that_are_in_doubt_are_measured_once_more(
    tmp_path: Path, latencies: tuple[float, ...], again: int
) -> None:
    compared: list[bool] = []

    class Counting(ScriptedJudge):
        def compare(self, *arguments: Any, attempts: int = 1) -> Comparison | Failure:
            compared.append(arguments[2] is None)  # without a calibration: the last word
            return super().compare(*arguments, attempts=attempts)

    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    steps = tuple(Step(f"s{n}", (kernel(ms),)) for n, ms in enumerate(latencies))
    scripted = ScriptedRun(repo, steps)
    run, journal = scripted.begin()
    effects = replace(scripted.effects(), judge=Counting())
    run = drive(run, journal, effects.table(), lambda *_: None)
    journal.close()
    assert len(run.kept) == len(latencies)
    assert sum(compared) == 1 + again


class Profiling:
    """A diagnostician that notes until when it may profile."""

    def __init__(self) -> None:
        self.until: list[float] = []

    def diagnose(self, *given: Any) -> None:
        self.until.append(given[-1])

    def least_times(self, *_: Any) -> None:
        """Nothing is known of a roof."""


def test_the_last_keep_is_not_profiled(tmp_path: Path) -> None:
    """Nobody is to choose by what that would tell, and it takes ten seconds and more."""
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    scripted = ScriptedRun(repo, (Step("a", (kernel(0.9),)), Step("b", (kernel(0.89),))))
    doctor: Any = Profiling()
    effects = replace(scripted.effects(), diagnostician=doctor)
    run, journal = scripted.begin()
    run = drive(run, journal, effects.table(), lambda *_: None)
    journal.close()
    assert len(run.kept) == 2
    *before, last = doctor.until
    assert last == UNPROFILED
    assert UNPROFILED not in before


def test_where_looks_give_the_order_nothing_is_profiled(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    scripted = ScriptedRun(repo, (), entries=ENTRIES)
    doctor: Any = Profiling()
    effects = replace(scripted.effects(), diagnostician=doctor)
    run, journal = scripted.begin()
    run = drive(run, journal, effects.table(), lambda *_: None)
    journal.close()
    assert doctor.until == [UNPROFILED] * (1 + len(run.kept))


class Asked(Profiling):
    """One that knows the cause once it may profile; or does not even then."""

    def __init__(self, cause: Cause) -> None:
        super().__init__()
        self.cause = cause

    def diagnose(self, *given: Any) -> Diagnosis:  # type: ignore[override]
        super().diagnose(*given)
        if given[-1] == UNPROFILED:
            return Diagnosis(Cause.UNKNOWN, ("nothing that is known explains it",))
        return Diagnosis(self.cause, ("measured: by a profile",))


@pytest.mark.parametrize(
    ("cause", "reason"),
    [(Cause.MEMORY, StopReason.EXHAUSTED), (Cause.UNKNOWN, StopReason.ESCALATED)],
)
def test_nobody_is_called_before_a_profile_was_taken(
    tmp_path: Path, cause: Cause, reason: StopReason
) -> None:
    """A run that goes by looks takes none, until it ends with nothing kept and no cause."""
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    scripted = ScriptedRun(repo, (), entries=(ScriptedEntry("a", 1.0), ScriptedEntry("b", 0.999)))
    doctor: Any = Asked(cause)
    effects = replace(scripted.effects(), diagnostician=doctor)
    run, journal = scripted.begin()
    run = drive(run, journal, effects.table(), lambda *_: None)
    journal.close()
    assert run.stopped is not None and run.stopped.reason is reason
    assert "short looks promise less than 2.0 % of what is left" in run.stopped.detail
    assert [until == UNPROFILED for until in doctor.until] == [True, False]
    assert run.diagnosis is not None and run.diagnosis.cause is cause


class LongPass(ScriptedJudge):
    """Eight configs, whose pairs take 10 s each by the baseline's word."""

    def __init__(self) -> None:
        self.on: tuple[str, ...] = ()
        self.looked_on: set[tuple[str, ...]] = set()
        self.compared_on: set[tuple[str, ...]] = set()

    def compare_on(self, subset: Subset | None) -> None:
        self.on = subset.configs if subset else ()

    def time(self, checkout: Checkout, deadline: float, **rest: Any) -> TimedPass | Failure:
        timed = super().time(checkout, deadline, **rest)
        if isinstance(timed, Failure):
            return timed
        costs = [PerfTestCost(f"t{n}", 2.0, {f"c{n}": 1.0 + n}, stepped=False) for n in range(8)]
        records = (replace(timed.records[0], config=f"c{n}", latency_ms=1.0 + n) for n in range(8))
        return replace(timed, records=tuple(records), costs=tuple(costs))

    def line_ups(self, *args: Any) -> ScriptedLineUps:
        self.looked_on.add(self.on)
        return super().line_ups(*args)

    def compare(self, *args: Any, **rest: Any) -> Comparison | Failure:
        self.compared_on.add(self.on)
        return super().compare(*args, **rest)


def test_a_sweep_is_looked_at_on_fewer_configs_than_it_is_judged_by(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    judge = LongPass()
    scripted = ScriptedRun(repo, STEPS[3:4], Options(calibration_budget_s=90.0))
    run, journal = scripted.begin()
    effects = replace(scripted.effects(), judge=judge)
    run = drive(run, journal, effects.table(), lambda *_: None, lambda run: len(run.rows) > 1)
    journal.close()
    assert run.subset is not None and len(run.subset.configs) == 3
    assert judge.looked_on == {("c0", "c7")}
    assert judge.compared_on == {run.subset.configs, ("c1", "c6")}  # two of the left out
    (screened,) = (e.event for e in read(journal.path) if isinstance(e.event, Screened))
    assert screened.configs == ("c0", "c7")


class SlowLineUps(ScriptedLineUps):
    def look(self, *args: Any, **kwargs: Any) -> Mapping[str, Look]:
        time.sleep(0.6)
        return {}


class SlowLooks(ScriptedJudge):
    """The first look at a sweep takes longer than all of it may."""

    def line_ups(self, *args: Any) -> ScriptedLineUps:
        return SlowLineUps(self, *args[:2])


def test_a_sweep_that_ran_out_of_time_says_nothing_of_its_variants(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    variants = tuple(kernel(0.5, f"V{n}") for n in range(4))
    scripted = ScriptedRun(repo, (Step("sweep", variants),), Options(iteration_timeout_s=1.0))
    run, journal = scripted.begin()
    effects = replace(scripted.effects(), judge=SlowLooks())
    run = drive(run, journal, effects.table(), lambda *_: None, lambda run: len(run.rows) > 1)
    assert run.rows[1].status is Status.CRASH
    assert run.rows[1].reason.startswith("none of 4 variants could be timed")
    assert (run.misses, run.unmeasured) == (0, 1)


class TooManyTests(ScriptedJudge):
    """Has time for one perf test of two."""

    def __init__(self) -> None:
        self.limits: list[PassLimit | None] = []
        self.without: set[str] = set()

    def leave_out(self, nodeids: Collection[str]) -> None:
        self.without |= set(nodeids)

    def time(
        self, checkout: Checkout, deadline: float, limit: PassLimit | None = None, **rest: Any
    ) -> TimedPass | Failure:
        self.limits.append(limit)
        timed = super().time(checkout, deadline, **rest)
        assert isinstance(timed, TimedPass)
        return replace(timed, left_out=("test_kernel.py::test_slow",))


def test_perf_tests_that_the_budget_has_no_time_for_are_left_out_of_the_run(
    tmp_path: Path,
) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    judge = TooManyTests()
    scripted = ScriptedRun(repo, STEPS[:1], Options(calibration_budget_s=50.0, max_iterations=1))
    run, journal = scripted.begin()
    effects = replace(scripted.effects(), judge=judge)
    told: list[str] = []
    run = drive(run, journal, effects.table(), lambda run, event: told.extend(lines(run, event)))
    assert judge.limits == [PassLimit(50.0)]
    assert judge.without == {"test_kernel.py::test_slow"}
    assert run.baseline is not None and run.baseline.left_out == judge.without
    (note,) = (line for line in told if "left out" in line)
    assert note.startswith("note       1 perf test left out, which the budget has no time for")


class Tampers(ScriptedJudge):
    """Writes a file where it judges a kernel that says so, as such a kernel would."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text

    def verify(self, checkout: Checkout, deadline: float, **rest: Any) -> Verification | Failure:
        if "TAMPERS" in (checkout.root / KERNEL).read_text():
            (checkout.root / self.path).write_text(self.text)
        return super().verify(checkout, deadline, **rest)


@pytest.mark.parametrize(
    ("path", "verdict", "reason"),
    [
        ("test_kernel.py", Status.TAMPERED, "it changed test_kernel.py"),
        ("pytest.ini", Status.TAMPERED, "it added pytest.ini"),
        ("{repo}/.git/config", Status.TAMPERED, "it changed git's configuration"),
        ("result.txt", Status.KEEP, "faster by"),
        ("usual.py", Status.KEEP, "faster by"),
    ],
)
def test_what_a_candidate_writes(tmp_path: Path, path: str, verdict: Status, reason: str) -> None:
    """The tests of this project write to `usual.py` themselves, which the baseline has seen."""
    repo = make_repo(tmp_path, {KERNEL: ORIGIN, "test_kernel.py": "", "usual.py": ""})
    scripted = ScriptedRun(repo, (Step("fast", (kernel(0.5, "TAMPERS"),)),))
    run, journal = scripted.begin()
    effects = scripted.effects()
    effects.judge = Tampers(path.format(repo=repo), f"[core]\n# {path}\n")
    table = dict(effects.table())
    baseline = table[Phase.BASELINE]

    def writes(run: Run) -> Event:
        event = baseline(run)
        assert isinstance(event, Baselined) and event.written == ()
        return replace(event, written=("usual.py",))

    run = drive(run, journal, table | {Phase.BASELINE: writes}, lambda *_: None)
    assert run.rows[1].status is verdict and run.rows[1].reason.startswith(reason)
    assert (git(repo, "rev-parse", scripted.branch) == git(repo, "rev-parse", "main")) == (
        verdict is Status.TAMPERED
    )


class OnGpu(ScriptedJudge):
    """A judge whose tuners choose: on a GPU."""

    def setting(self) -> str:
        return "driver 580"

    def calibrate(self, *args: Any, **kwargs: Any) -> Calibration | Failure:
        found = super().calibrate(*args, **kwargs)
        assert isinstance(found, Calibration)
        return replace(found, setting=self.setting())


@pytest.mark.parametrize(
    ("tuner", "roughly"),
    [("triton_autotune", True), ("exhaustive_search", True), ("autotune_launch", False)],
)
def test_what_tunes_itself_is_kept_where_it_is_right_as_it_is_timed(
    tmp_path: Path, tuner: str, roughly: bool
) -> None:
    """Its correctness tests have run with configs that few launches chose, or that are known."""
    repo = make_repo(tmp_path, {KERNEL: kernel(1.0, tuner), "test_kernel.py": ""})
    steps = (
        Step("bad", (kernel(0.5, tuner).replace("\n", "  # BAD CONFIG\n", 1),)),
        Step("good", (kernel(0.4, tuner),)),
        Step("slow", (kernel(0.9, tuner).replace("\n", "  # BAD CONFIG\n", 1),)),
    )
    scripted = ScriptedRun(repo, steps)
    run, journal = scripted.begin()
    effects = scripted.effects()
    effects.judge = OnGpu()
    run = drive(run, journal, effects.table(), lambda *_: None)
    statuses = [row.status for row in run.rows[1:]]
    assert statuses[:2] == [Status.REVERT if roughly else Status.KEEP, Status.KEEP]
    assert (run.rows[1].reason == "test_right: off by two") is roughly
    assert statuses[2:] == [Status.REVERT] and "off by two" not in run.rows[3].reason


def test_what_the_tests_write_themselves_is_seen_at_the_baseline(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: kernel(1.0, "TAMPERS"), "usual.py": ""})
    scripted = ScriptedRun(repo, (Step("fast", (kernel(0.5, "TAMPERS"),)),))
    run, journal = scripted.begin()
    effects = scripted.effects()
    effects.judge = Tampers("usual.py", "x = 1")
    run = drive(run, journal, effects.table(), lambda *_: None)
    assert run.baseline is not None and run.baseline.written == ("usual.py",)
    assert [row.status for row in run.rows] == [Status.KEEP] * 2


def test_what_changes_in_the_users_repository_meanwhile_is_a_note(tmp_path: Path) -> None:
    """An edit of the user's, while a candidate is judged."""
    repo = make_repo(tmp_path, {KERNEL: ORIGIN, "other.py": ""})
    scripted = ScriptedRun(repo, (Step("fast", (kernel(0.5, "TAMPERS"),)),))
    run, journal = scripted.begin()
    effects = scripted.effects()
    effects.judge = Tampers(str(repo / "other.py"), "x = 1")
    run = drive(run, journal, effects.table(), lambda *_: None)
    assert [row.status for row in run.rows] == [Status.KEEP] * 2
    assert run.notes == (
        "changed other.py in your repository during iteration 1 (verify): "
        "if it was not you, it was what ran there",
    )


@pytest.mark.full
def test_what_compiles_to_code_already_known_is_not_run(tmp_path: Path) -> None:
    steps = (
        Step("comment", (f"# a remark\n{ORIGIN}",)),
        Step("broken", (kernel(0.1, "BROKEN"),)),
        Step("sweep", (kernel(0.9), f"# again\n{kernel(0.9)}", kernel(0.8), ORIGIN)),
        Step("late", (f"# later\n{kernel(0.9)}",)),
        Step("back", (f"# as it was\n{ORIGIN}",)),
    )
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    run = ScriptedRun(repo, steps, compiler=ScriptedCompiler()).finish()
    assert [row.optimization for row in run.rows] == ["baseline", "sweep (n=2)"]
    assert [(s.optimization, s.reason) for s in run.skipped] == [
        ("comment", "the compiler makes the incumbent's code of it"),
        ("broken", "kernel() for sm_90: does not compile"),
        ("late", "the compiler makes the same code of it as of sweep (n=0)"),
        ("back", "the compiler makes the same code of it as of an earlier incumbent"),
    ]
    assert run.proposal is not None
    assert [(v.title, v.reason) for v in run.proposal.filtered_out] == [
        ("sweep (n=1)", "the compiler makes the same code of it as of sweep (n=0)"),
        ("sweep (n=3)", "the compiler makes the incumbent's code of it"),
    ]


def test_keep_going_passes_over_a_small_improvement(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    steps = (Step("a", (kernel(0.99),)), Step("b", (kernel(0.5),)))
    run = ScriptedRun(repo, steps, Options(keep_going=True)).finish()
    assert [row.status for row in run.rows] == [Status.KEEP] * 3


def test_a_checked_out_branch_is_not_moved_under_the_user(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    scripted = ScriptedRun(repo, STEPS)
    run, journal = scripted.begin()
    git(repo, "checkout", "--quiet", scripted.branch)
    run = drive(run, journal, scripted.effects().table(), lambda *_: None)
    assert git(repo, "rev-parse", "HEAD") == run.started.origin_sha  # type: ignore[union-attr]
    assert git(repo, "rev-parse", "refs/tile-agent/kernel-1/best") == run.incumbent_sha
    assert any("checked out" in note for note in run.notes)


Outcome = tuple[str, str, list[str]]


def outcome(repo: Path) -> Outcome:
    """What a run leaves behind, without the shas, whose dates hold the time that was spent."""
    scripted = ScriptedRun(repo, STEPS)
    run = replay(Journal(scripted.folder / "journal.jsonl").events)
    log = git(repo, "log", "--format=%s%n%T", "tile-agent/kernel")
    refs = git(repo, "for-each-ref", "--format=%(refname)", "refs/tile-agent/").splitlines()
    return render(run.rows), log, refs


def attempt(repo: Path, phase: str = "-", moment: str = "-", proposer: str = "playbook") -> int:
    program = "import sys, tests.support.scripted_run as run; run.main(*sys.argv[1:])"
    end = run_python(
        program, str(repo), phase, moment, proposer, cwd=REPO_ROOT, kind="command-line"
    )
    assert end.returncode in (0, -9), end.stderr
    return end.returncode


def left_alone(folder: Path, proposer: str = "playbook") -> Outcome:
    """What a run leaves behind that nobody kills."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        isolate(monkeypatch, folder)
        repo = make_repo(folder, {KERNEL: ORIGIN})
        assert attempt(repo, proposer=proposer) == 0
        return outcome(repo)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return left_alone(tmp_path_factory.mktemp("calm"))


@pytest.fixture(scope="module")
def scouting(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Of one that looks at what is left before it chooses."""
    return left_alone(tmp_path_factory.mktemp("calm"), "scouting")


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Of one whose candidates are mended."""
    return left_alone(tmp_path_factory.mktemp("calm"), ASSISTANT)


NOT_SEEN = (Phase.SETUP, Phase.SCOUT, Phase.REPAIR, Phase.DONE)
PHASES = [phase.value for phase in Phase if phase not in NOT_SEEN]


@pytest.mark.full
@pytest.mark.parametrize("phase", PHASES)
def test_a_run_killed_anywhere_ends_where_an_undisturbed_one_ends(
    tmp_path: Path, phase: str, undisturbed: Outcome
) -> None:
    """Killed at every moment of a phase, one after the other, and resumed each time."""
    repo = make_repo(tmp_path / "disturbed", {KERNEL: ORIGIN})
    for moment in ("before", "after", "torn", "written"):
        assert attempt(repo, phase, moment) == -9, moment
        if moment == "torn":  # a restart may have emptied what the state directory lies on
            shutil.rmtree(tmp_path / "state")
        if phase in ("baseline", "finish") and moment == "written":
            break
    attempt(repo)
    assert outcome(repo) == undisturbed
    assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "worktree", "list").count("\n") == 0


@pytest.mark.full
@pytest.mark.parametrize("phase", ["propose", "scout", "screen", "settle"])
def test_a_run_killed_anywhere_goes_by_the_looks_that_it_took(
    tmp_path: Path, phase: str, scouting: Outcome
) -> None:
    """Those that it had not written down are taken again."""
    repo = make_repo(tmp_path / "disturbed", {KERNEL: ORIGIN})
    for moment in ("before", "after", "torn", "written"):
        assert attempt(repo, phase, moment, "scouting") == -9, moment
    attempt(repo, proposer="scouting")
    assert outcome(repo) == scouting
    assert git(repo, "worktree", "list").count("\n") == 0


@pytest.mark.full
@pytest.mark.parametrize("phase", ["propose", "verify", "measure", "settle", "repair"])
def test_a_run_killed_anywhere_is_mended_as_an_undisturbed_one_is(
    tmp_path: Path, phase: str, mended: Outcome
) -> None:
    """No attempt is lost, and none is counted twice."""
    repo = make_repo(tmp_path / "disturbed", {KERNEL: ORIGIN})
    for moment in ("before", "after", "torn", "written"):
        assert attempt(repo, phase, moment, ASSISTANT) == -9, moment
    attempt(repo, proposer=ASSISTANT)
    assert outcome(repo) == mended
    assert git(repo, "worktree", "list").count("\n") == 0


@pytest.mark.full
def test_a_sandbox_that_is_removed_meanwhile_is_put_back(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    scripted = ScriptedRun(repo, STEPS)
    run, journal = scripted.begin()

    def clean(state: Run, _event: object) -> None:
        if state.iteration == 2:
            shutil.rmtree(repo / "sandbox", ignore_errors=True)

    run = drive(run, journal, scripted.effects().table(), clean)
    assert replay(Journal(scripted.folder / "journal.jsonl").events).rows == run.rows
