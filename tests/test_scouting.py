"""What is left is looked at before one of it is chosen: an order by gain, and no decision."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent.analysis.common.subject import Subject
from agent.events import (
    Candidate,
    Event,
    Gathered,
    Proposed,
    Scouted,
    Screened,
    Skipped,
    StopReason,
)
from agent.evidence.duplicates import CompiledCommit
from agent.foresight import Foresight
from agent.harness.processes.worker_session import Checkout
from agent.journal import read
from agent.loop import drive
from agent.measuring.decision import Status
from agent.measuring.screening import Look
from agent.options import Options, Request
from agent.past_looks import past_looks
from agent.report.progress import Commentary
from agent.report.result import to_result
from agent.session import begin, opened
from agent.state import Phase, Run
from tests.support.repo import changed, git, isolate, make_repo, snapshot
from tests.support.scenario import ENTRIES, ORIGIN
from tests.support.scripted import (
    KERNEL,
    ScriptedCompiler,
    ScriptedEntry,
    ScriptedJudge,
    ScriptedLineUps,
    ScriptedRun,
)
from tests.support.warm_python import warm_interpreter
from tests.support.workers import eventually


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def scouted(
    tmp_path: Path, entries: Sequence[ScriptedEntry] = ENTRIES, **options: Any
) -> tuple[Run, list[Event], list[str]]:
    """A run to its end, its events, and what was said of it."""
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    scripted = ScriptedRun(repo, (), Options(**options), entries=entries)
    run, journal = scripted.begin()
    commentary, said = Commentary(), list[str]()

    def observe(state: Run, event: Event) -> None:
        said.extend(commentary.lines(state, event))

    run = drive(run, journal, scripted.effects().table(), observe)
    journal.close()
    return run, [line.event for line in read(scripted.folder / "journal.jsonl")], said


def test_what_may_gain_most_comes_first(tmp_path: Path) -> None:
    """And the run ends where what is left promises less than the rules reward."""
    run, _, said = scouted(tmp_path)
    assert [(row.optimization, row.status.value) for row in run.rows] == [
        ("baseline", "keep"),
        ("major (factor=0.7)", "keep"),
        ("after-it (factor=0.9)", "keep"),
        ("minor (factor=0.97)", "keep"),
        ("after-it (factor=0.9)", "keep"),
    ]
    assert run.stopped is not None and run.stopped.reason is StopReason.EXHAUSTED
    assert run.stopped.detail == "short looks promise less than 2.0 % of what is left"
    flat = next(each for each in run.skipped if each.optimization == "flat")
    assert flat.reason == "a short look found its best variant 0.5 % faster, 1.0 % more or less"
    looks = [line for line in said if line.startswith(("scout", "looks"))]
    assert looks[0].startswith("scout      10 variants of 6 optimizations (")
    assert looks[1].startswith(
        "looks      major +30.0 %, minor +3.0 %, flat +0.5 %, flat-too +0.2 %, 2 slower; the rest "
        "after what comes first; 1.0 % more or less ("
    )


def test_what_was_looked_at_is_committed_once_and_ranked_by_that_look(tmp_path: Path) -> None:
    """A sweep has its first look behind it, and the incumbent's variants are not made again."""
    _, events, _ = scouted(tmp_path, max_iterations=1)
    (gathered,) = (event for event in events if isinstance(event, Gathered))
    (looks,) = (event for event in events if isinstance(event, Scouted))
    (proposed,) = (event for event in events if isinstance(event, Proposed))
    (screened,) = (event for event in events if isinstance(event, Screened))
    assert proposed.candidates in [each.candidates for each in gathered.proposals]
    assert [event.optimization for event in gathered.passed_over] == ["foreign"]
    assert len(looks.results) == 10 and looks.error == 0.01
    seen = {result.sha: result for result in screened.results}
    ranked = [seen[sha].improvement for sha in screened.order]
    assert ranked == [pytest.approx(each, abs=1e-6) for each in (0.3, 0.2, 0.1)]
    refs = git(tmp_path / "repo", "for-each-ref", "--format=%(refname)", "refs/tile-agent/")
    assert refs.count("major") == 3


@dataclass
class Telling(ScriptedCompiler):
    """Notes how many it is asked for, and whether something is measured meanwhile."""

    asked: list[tuple[int, bool]] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def compile(
        self,
        checkouts: Sequence[Checkout],
        tests: Sequence[str],
        until: float = math.inf,
        given_up: threading.Event | None = None,
    ) -> tuple[CompiledCommit | None, ...]:
        self.asked.append((len(checkouts), given_up is not None))
        if given_up is not None and not self.is_over.is_set():
            given_up.wait(60)
            return (None,) * len(checkouts)
        compiled = super().compile(checkouts, tests)
        texts = [(checkout.root / checkout.kernel).read_text() for checkout in checkouts]
        return tuple(
            found and replace(found, sequence=text)  # no two compile to the same
            for found, text in zip(compiled, texts, strict=True)
        )


def compiled_beside_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: Telling, **options: Any
) -> tuple[Run, list[Event], ScriptedRun]:
    """A run to its end where there are processors to spare, and its events."""
    monkeypatch.setattr("agent.foresight.processors", lambda: 16)
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    scripted = ScriptedRun(repo, (), Options(**options), entries=ENTRIES, compiler=compiler)
    run = scripted.finish()
    return run, [line.event for line in read(scripted.folder / "journal.jsonl")], scripted


def test_what_will_be_looked_at_is_compiled_while_the_noise_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: the run goes on with those commits, as it would have made them later."""
    compiler = Telling()
    compiler.is_over.set()
    run, events, _ = compiled_beside_calibration(tmp_path, monkeypatch, compiler, max_iterations=1)
    assert compiler.asked == [(9, True), (1, False)]  # the second is the incumbent
    gathered = next(event for event in events if isinstance(event, Gathered))
    assert sum(len(each.candidates) for each in gathered.proposals) == 9  # one says nothing new
    assert [row.optimization for row in run.rows[1:]] == ["major (factor=0.7)"]


def test_what_follows_a_large_gain_is_compiled_while_that_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not what follows a small one, after which the looks that there are hold."""
    compiler = Telling()
    compiler.is_over.set()
    run, events, _ = compiled_beside_calibration(tmp_path, monkeypatch, compiler)
    gained = [row.optimization for row in run.rows if row.status is Status.KEEP]
    assert gained[1:3] == ["major (factor=0.7)", "after-it (factor=0.9)"]
    alone = [count for count, beside in compiler.asked if not beside]
    assert [count for count, beside in compiler.asked if beside][:3] == [9, 7, 5]
    assert alone[0] == 1 and max(alone) < 6
    gathered = [event for event in events if isinstance(event, Gathered)]
    assert len(gathered[1].proposals) == 5


def test_what_is_compiled_for_nobody_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that stops after its calibration waits for no compiler, and leaves no worktree."""
    compiler, real = Telling(), Foresight.begin

    def begun(foresight: Foresight, *what: Any) -> None:
        """Not before it compiles."""
        real(foresight, *what)
        assert eventually(lambda: bool(compiler.asked))

    monkeypatch.setattr(Foresight, "begin", begun)
    begin = time.monotonic()
    run, events, scripted = compiled_beside_calibration(
        tmp_path, monkeypatch, compiler, max_iterations=0
    )
    assert time.monotonic() - begin < 30
    assert run.stopped is not None and not any(isinstance(e, Gathered) for e in events)
    assert [beside for _, beside in compiler.asked] == [True]
    left = git(scripted.repo, "worktree", "list").splitlines()
    assert not [line for line in left if "/kernel-1/" in line and "candidate" in line]


def test_ctrl_c_ends_the_compilers_that_run_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Telling()

    def interrupted(*_: Any, **__: Any) -> None:
        assert eventually(lambda: bool(compiler.asked))
        raise KeyboardInterrupt

    monkeypatch.setattr(ScriptedJudge, "calibrate", interrupted)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compiled_beside_calibration(tmp_path, monkeypatch, compiler)
    assert time.monotonic() - begin < 30
    assert len(git(tmp_path / "repo", "worktree", "list").splitlines()) <= 2  # and the incumbent's


def test_nothing_is_compiled_again_to_be_looked_at(tmp_path: Path) -> None:
    """What was cut off comes last in the looks, and holds up nobody before them."""

    class CutOff(Telling):
        """Never gets anything done."""

        def compile(
            self, checkouts: Sequence[Checkout], *rest: Any, **more: Any
        ) -> tuple[CompiledCommit | None, ...]:
            self.asked.append((len(checkouts), False))
            return (None,) * len(checkouts)

    compiler = CutOff()
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    ScriptedRun(repo, (), Options(max_iterations=1), entries=ENTRIES, compiler=compiler).finish()
    assert compiler.asked == [(11, False)]  # the incumbent, and all variants


def test_after_a_large_gain_all_that_is_left_is_looked_at_again(tmp_path: Path) -> None:
    """What bounds the kernel has moved; after a small one only what that made doubtful is."""
    _, events, _ = scouted(tmp_path)
    names = [
        {each.optimization for each in (*event.proposals, *event.passed_over)}
        for event in events
        if isinstance(event, Gathered)
    ]
    every = {entry.name for entry in ENTRIES}
    assert names == [
        every,
        every - {"major"},
        every - {"major", "after-it"},
        {"after-it", "foreign"},  # one depends on what was kept last, one did not apply before
        every - {"major", "after-it", "minor"},
    ]


def test_what_lost_beyond_doubt_is_tried_only_by_a_run_that_keeps_going(tmp_path: Path) -> None:
    entries = (
        ScriptedEntry("slower", 1.3),
        ScriptedEntry("faster", 0.96),
    )
    run, events, _ = scouted(tmp_path / "ends", entries)
    assert [row.optimization for row in run.rows[1:]] == ["faster (factor=0.96)"]
    (skipped,) = (event for event in events if isinstance(event, Skipped))
    assert skipped.reason == (
        "a short look found its best variant 30.0 % slower, 1.0 % more or less"
    )
    run, _, _ = scouted(tmp_path / "goes_on", entries, keep_going=True)
    assert [(row.optimization, row.status) for row in run.rows[1:]] == [
        ("faster (factor=0.96)", Status.KEEP),
        ("slower (factor=1.3)", Status.REVERT),
    ]


def looking(
    tmp_path: Path, entries: Sequence[ScriptedEntry], change: Callable[[Run, Scouted], Scouted]
) -> tuple[Run, list[Event]]:
    """A run to its end whose looks say something else, and its events."""
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    scripted = ScriptedRun(repo, (), entries=entries)
    run, journal = scripted.begin()
    table = scripted.effects().table()

    def look(now: Run) -> Event:
        found = table[Phase.SCOUT](now)
        assert isinstance(found, Scouted)
        return change(now, found)

    run = drive(run, journal, {**table, Phase.SCOUT: look}, lambda *_: None)
    journal.close()
    return run, [line.event for line in read(scripted.folder / "journal.jsonl")]


FLAT = (ScriptedEntry("flat", 0.995), ScriptedEntry("flat-too", 0.996))


def test_what_may_gain_little_is_not_tried(tmp_path: Path) -> None:
    run, _, _ = scouted(tmp_path, FLAT)
    assert [row.optimization for row in run.rows] == ["baseline"]
    assert {each.optimization for each in run.skipped} == {"flat", "flat-too"}


@pytest.mark.parametrize("options", [{"keep_going": True}, {"only": ("flat", "flat-too")}])
def test_what_may_gain_little_is_tried_on_demand(tmp_path: Path, options: dict[str, Any]) -> None:
    run, _, _ = scouted(tmp_path, FLAT, **options)
    assert run.rows[1].optimization.startswith("flat")
    assert not run.skipped


def test_what_may_gain_in_configs_that_no_look_had_is_tried(tmp_path: Path) -> None:
    run, _ = looking(tmp_path, FLAT, lambda _, found: replace(found, configs=("one of two",)))
    assert run.rows[1].optimization.startswith("flat")


@pytest.mark.parametrize("factor", [0.996, 1.2])
def test_what_a_look_did_not_see_out_is_tried_and_not_remembered(
    factor: float, tmp_path: Path
) -> None:
    """What it lost in its first config it may gain in the others."""

    def until_time_is_over(_: Run, found: Scouted) -> Scouted:
        cut, whole = sorted(found.results, key=lambda each: -abs(each.improvement or 0.0))
        return replace(found, results=(replace(cut, is_cut=True), whole))

    entries = (ScriptedEntry("cut-off", factor), ScriptedEntry("flat", 0.999))
    run, events = looking(tmp_path, entries, until_time_is_over)
    assert [row.optimization for row in run.rows[1:]] == [f"cut-off (factor={factor})"]
    past = past_looks(events)
    assert len(past) == 1 and not past[0].result.is_cut


def test_a_sweep_ranks_by_looks_that_saw_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its line-ups were cut off in is looked at alone; here they saw the opposite."""
    look = ScriptedLineUps.look

    def cut(self: ScriptedLineUps, *args: Any, **kwargs: Any) -> dict[str, Look]:
        seen = look(self, *args, **kwargs).items()
        return {n: replace(each, log_ratio=-each.log_ratio, is_cut=True) for n, each in seen}

    monkeypatch.setattr(ScriptedLineUps, "look", cut)
    run, events, _ = scouted(tmp_path, (ScriptedEntry("sweep", 1.1, 0.8, 0.9),))
    (screened,) = (event for event in events if isinstance(event, Screened))
    assert [row.optimization for row in run.kept] == ["sweep (factor=0.8)"]
    assert [each.is_cut for each in screened.results] == [False] * 3


@pytest.mark.parametrize("seen", [0.995, 1.2])
def test_what_has_a_variant_that_no_look_saw_is_tried(tmp_path: Path, seen: float) -> None:
    """The time for looks may be over before the second variants."""

    def without_the_last(now: Run, found: Scouted) -> Scouted:
        titles = {c.sha: c.title for p in now.gathered.values() for c in _candidates(p)}
        return replace(found, results=tuple(
            replace(each, improvement=None) if "0.6" in titles[each.sha] else each
            for each in found.results
        ))  # fmt: skip

    entries = (ScriptedEntry("sweep", seen, 0.6), ScriptedEntry("other", 1.0))
    run, _ = looking(tmp_path, entries, without_the_last)
    assert [row.optimization for row in run.kept] == ["sweep (factor=0.6)"]


def test_whoever_comes_next_is_not_asked_for_what_a_look_passed_over(tmp_path: Path) -> None:
    """The incumbent was compared with it; what no program could do, another may."""
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    options = Options(proposers=("playbook", "assistant"))
    foreign = next(entry for entry in ENTRIES if entry.name == "foreign")
    scripted = ScriptedRun(repo, (), options, entries=(*FLAT, foreign))
    run, journal = scripted.begin()
    run = drive(
        run, journal, scripted.effects().table(), lambda *_: None, lambda now: now.stage == 1
    )
    journal.close()
    assert set(run.tried) == {"flat", "flat-too"}


def test_what_was_not_seen_is_tried_before_what_may_gain_little(tmp_path: Path) -> None:
    """A keep of less than 2 % ends a run."""
    entries = (
        ScriptedEntry("little", 0.985),
        ScriptedEntry("nothing", 1.0),
        ScriptedEntry("unseen", 0.7),
    )
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    scripted = ScriptedRun(repo, (), entries=entries)
    run, journal = scripted.begin()
    table = scripted.effects().table()

    def without_it(now: Run) -> Event:
        found = table[Phase.SCOUT](now)
        assert isinstance(found, Scouted)
        names = {c.sha: c.title for p in now.gathered.values() for c in _candidates(p)}
        seen = tuple(each for each in found.results if "unseen" not in names.get(each.sha, ""))
        return replace(found, results=seen)

    run = drive(run, journal, {**table, Phase.SCOUT: without_it}, lambda *_: None)
    journal.close()
    assert [row.optimization for row in run.rows[1:]][:1] == ["unseen (factor=0.7)"]


def _candidates(gathered: Proposed | Skipped) -> Sequence[Candidate]:
    return gathered.candidates if isinstance(gathered, Proposed) else ()


def test_what_the_time_did_not_suffice_for_is_looked_at_before_the_next_choice(
    tmp_path: Path,
) -> None:
    """Else two that promised a little within the noise would end the run before it."""
    entries = (
        ScriptedEntry("noisy", 1.0),
        ScriptedEntry("noisy-too", 1.0),
        ScriptedEntry("unseen", 0.7, 0.8),
        ScriptedEntry("failing", 1.1),
    )
    looks: list[set[str]] = []

    def as_far_as_time_goes(now: Run, found: Scouted) -> Scouted:
        titles = {c.sha: c.title for p in now.gathered.values() for c in _candidates(p)}
        looks.append({titles[each.sha].split()[0] for each in found.results})
        hidden = ("unseen", "failing") if len(looks) == 1 else ("failing",)
        return replace(found, results=tuple(
            replace(each, improvement=None) if titles[each.sha].startswith(hidden)
            else replace(each, improvement=0.03) if "noisy" in titles[each.sha]
            else each
            for each in found.results
        ))  # fmt: skip

    run, _ = looking(tmp_path, entries, as_far_as_time_goes)
    tried = [row.optimization for row in run.rows[1:]]
    assert tried[:2] == ["noisy (factor=1.0)", "unseen (factor=0.7)"]
    assert run.rows[2].status is Status.KEEP
    assert looks[:2] == [{"noisy", "noisy-too", "unseen", "failing"}, {"unseen", "failing"}]


def test_what_saves_something_else_may_be_a_little_slower_in_a_look(tmp_path: Path) -> None:
    class Saver(ScriptedEntry):
        saves = "tuning"

    entries = (Saver("saver", 1.015), ScriptedEntry("faster", 0.96))
    run, _, _ = scouted(tmp_path, entries)
    assert [row.optimization for row in run.rows[1:]] == [
        "faster (factor=0.96)",
        "saver (factor=1.015)",
    ]


def test_a_single_choice_is_not_looked_at_before(tmp_path: Path) -> None:
    run, events, _ = scouted(tmp_path, (ScriptedEntry("faster", 0.9),))
    assert len(run.rows) == 2
    assert not any(isinstance(event, Gathered | Scouted) for event in events)


def test_estimates_are_told_with_the_run(tmp_path: Path) -> None:
    run, _, _ = scouted(tmp_path, max_iterations=1)
    found = to_result(run)["estimates"]
    assert found["minor"] == {
        "iteration": 1, "gain": pytest.approx(0.03), "error": 0.01,
        "all_variants": True, "all_configs": True, "is_cut": False, "is_put_off": False,
        "looks": 1, "slowed": "",
    }  # fmt: skip
    assert found["foreign"] == {
        "iteration": 1, "gain": None, "error": 0.0,
        "all_variants": True, "all_configs": True, "is_cut": False, "is_put_off": False,
        "looks": 2, "slowed": "",
    }  # fmt: skip


NORM = (Path(__file__).parent.parent / "examples/triton_layer_norm/layer_norm.py").read_text()
TEST = """\
import torch
from layer_norm import layer_norm


def arguments(rows, columns):
    torch.manual_seed(0)
    return torch.randn(rows, columns), torch.randn(columns), torch.randn(columns)


def test_layer_norm_triton():
    x, weight, bias = arguments(3, 1500)
    expected = torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias)
    torch.testing.assert_close(layer_norm(x, weight, bias), expected)


def test_perf_layer_norm_triton(tile_bench):
    given = arguments(2, 16384)  # long enough for a processor that others want, too
    tile_bench(lambda: layer_norm(*given), warmup_ms=1, rep_ms=20)
"""


@pytest.mark.full
def test_variants_of_the_playbook_are_looked_at_in_real_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several entries, all beside one incumbent; the one tried first is the one that led."""
    repo = make_repo(tmp_path, {"layer_norm.py": NORM, "test_layer_norm.py": TEST})
    monkeypatch.chdir(repo)
    before = snapshot(repo)
    options = Options(max_iterations=1, keep_going=True)
    request = Request(repo / "layer_norm.py", options=options, python=warm_interpreter())
    with opened(request, lambda _: None) as session:
        run, journal, _ = begin(session)
        effects = replace(session.effects(), scouts=True).table()
        run = drive(run, journal, effects, lambda *_: None, lambda run: run.proposal is not None)
        journal.close()
    led = max(run.estimates, key=lambda name: run.estimates[name].gain or -1.0)
    assert run.proposal is not None and run.proposal.optimization == led
    seen = [name for name, estimate in run.estimates.items() if estimate.gain is not None]
    assert {"block-size", "row-in-registers"} <= set(seen)
    gain = run.estimates["block-size"].gain
    assert gain is not None and gain > 0.2, "a pass over a row in a quarter of the steps"
    touched = changed(before, snapshot(repo))
    assert {key for key in touched if not key.startswith(("sandbox", "refs/tile-agent/"))} == {
        f"refs/heads/{session.branch}",
        "git info/exclude",
    }


class WrongEntry(ScriptedEntry):
    """As fast as it says, and no test passes."""

    def apply(self, subject: Subject, params: Mapping[str, Any]) -> str:
        return f"{super().apply(subject, params)}# WRONG\n"


LITTLE = (
    ScriptedEntry("flat", 0.995),
    ScriptedEntry("many", *(0.995 + n / 10_000 for n in range(12))),
)


def test_looks_end_once_what_gains_most_is_clear(tmp_path: Path) -> None:
    """Its keep makes them all be taken again: the rest would have been in vain."""
    large = ScriptedEntry("large", 0.5, 0.6, 0.7)
    run, events, said = scouted(tmp_path, (large, *LITTLE))
    first, second = (event for event in events if isinstance(event, Scouted))
    assert sum(result.improvement is not None for result in first.results) == 8
    assert (len(first.results), first.ended_early) == (16, True)
    assert (len(second.results), second.ended_early) == (13, False)
    assert all(result.improvement is not None for result in second.results)
    assert [row.optimization for row in run.rows] == ["baseline", "large (factor=0.5)"]
    (looks, _) = (line for line in said if line.startswith("looks"))
    assert "; the rest after what comes first; 1.0 % more or less (" in looks


def test_what_was_left_out_of_the_looks_is_looked_at_where_the_first_fails(tmp_path: Path) -> None:
    run, events, _ = scouted(tmp_path, (WrongEntry("large", 0.5), *LITTLE))
    first, second = (event for event in events if isinstance(event, Scouted))
    seen = [result.improvement is not None for result in first.results]
    assert (len(seen), sum(seen)) == (14, 8)
    assert len(second.results) <= 12  # of the other all was seen
    assert run.estimates["many"].all_variants and not run.estimates["many"].is_put_off
    assert [row.status.value for row in run.rows] == ["keep", "revert"]
    assert {each.optimization for each in run.skipped if each.by_look} == {"flat", "many"}


def test_all_are_looked_at_where_no_gain_is_clear_or_the_run_keeps_going(tmp_path: Path) -> None:
    for name, factor, options in (("small", 0.95, {}), ("going-on", 0.5, {"keep_going": True})):
        entries = (ScriptedEntry("one", factor), *LITTLE)
        _, events, _ = scouted(tmp_path / name, entries, max_iterations=1, **options)
        (looks,) = (event for event in events if isinstance(event, Scouted))
        assert all(result.improvement is not None for result in looks.results)
        assert (len(looks.results), looks.ended_early) == (14, False)


def test_a_large_gain_is_taken_before_all_were_looked_at(tmp_path: Path) -> None:
    """Of ten optimizations a screen has eight."""
    others = [ScriptedEntry(f"flat-{n}", 0.995 + n / 10_000) for n in range(9)]
    for name, factor, seen in (("large", 0.7, 8), ("clear", 0.85, 10)):
        entries = (ScriptedEntry("gains", factor), *others)
        _, events, _ = scouted(tmp_path / name, entries, max_iterations=1)
        (looks,) = (event for event in events if isinstance(event, Scouted))
        assert sum(result.improvement is not None for result in looks.results) == seen
