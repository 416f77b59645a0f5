"""What a run knows of those before it: failed edits are passed over, open ones are not."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.attempts import PastAttempt, attempts
from agent.events import (
    Calibrated,
    Event,
    Failed,
    Finished,
    Measured,
    Proposed,
    Scouted,
    Settled,
    StopReason,
    Verified,
)
from agent.journal import Journal, read
from agent.loop import drive
from agent.measuring.decision import Status
from agent.memory import PastRun, PastRuns
from agent.options import Options
from agent.playbook import by_class
from agent.proposers.agenda import agenda
from agent.proposers.brief import brief_for
from agent.proposers.build import judged
from agent.state import Phase, Run
from agent.syntax import Source
from tests.support.history import HISTORY, comparison, proposed
from tests.support.project import PROJECT
from tests.support.repo import git, isolate, make_repo, write
from tests.support.scenario import ENTRIES, ORIGIN
from tests.support.scenario import STEPS as SCENARIO
from tests.support.scripted import KERNEL, ScriptedJudge, ScriptedRun, Step, kernel

ENDLESS = Options(patience=100, keep_going=True)
STEPS = SCENARIO[:-1]
"""Without the one whose name is none for a ref of git."""


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def again(scripted: ScriptedRun, number: int = 2) -> ScriptedRun:
    """The same, as another run from where the user stands."""
    return replace(scripted, run_id=f"kernel-{number}", branch=f"tile-agent/kernel-{number}")


def tried(run: Run) -> list[str]:
    return [row.optimization for row in run.rows[1:]]


def test_a_second_run_repeats_no_failed_edit(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    first = ScriptedRun(repo, STEPS, ENDLESS)
    before = first.finish()
    kept = [row.optimization for row in before.kept]
    assert tried(before) != kept

    after = again(first).finish()
    assert tried(after) == kept
    reasons = {skipped.optimization: skipped.reason for skipped in after.skipped}
    assert reasons["slower"].startswith("tried before (run kernel-1, iteration 4): ")
    assert reasons["wrong"].endswith("test_right: off by one")
    git(repo, "merge", "-q", "--ff-only", "tile-agent/kernel-2")

    merged = again(first, 3).finish()  # the steps that were kept are other edits of this code
    assert tried(merged) == kept
    assert merged.stopped is not None and merged.stopped.reason is StopReason.EXHAUSTED


def test_the_values_of_a_sweep_that_lost_are_passed_over_with_the_best(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: kernel(1.0)})
    steps = [Step("sweep", (kernel(1.2), kernel(0.8), kernel(1.1)))]
    first = ScriptedRun(repo, steps, ENDLESS)
    assert tried(first.finish()) == ["sweep (n=1)"]
    second = again(first)
    assert tried(second.finish()) == ["sweep (n=1)"]
    (proposed,) = (
        entry.event
        for entry in read(second.folder / "journal.jsonl")
        if isinstance(entry.event, Proposed)
    )
    assert [out.title for out in proposed.filtered_out] == ["sweep (n=0)", "sweep (n=2)"]
    assert "looked slower than another value" in proposed.filtered_out[0].reason


OPEN = Step("open", (kernel(1.001),))


@pytest.mark.parametrize(("noise", "again_tried"), [(0.05, []), (0.04, []), (0.03, ["open (n=0)"])])
def test_what_a_comparison_left_open_is_tried_where_one_now_tells_more(
    tmp_path: Path, noise: float, again_tried: list[str]
) -> None:
    repo = make_repo(tmp_path, {KERNEL: kernel(1.0)})
    first = ScriptedRun(repo, [OPEN], ENDLESS, noise=0.05)
    assert tried(first.finish()) == ["open (n=0)"]
    write(repo, {"notes": "so that it is calibrated anew"})
    git(repo, "add", "notes")
    git(repo, "commit", "-qm", "Note")
    second = replace(again(first), noise=noise).finish()
    assert tried(second) == again_tried
    if not again_tried:
        assert second.skipped[0].reason.endswith("; one now would tell no more")


def calibrated(scripted: ScriptedRun) -> Calibrated:
    """What it knows of its noise."""
    events = (entry.event for entry in read(scripted.folder / "journal.jsonl"))
    return next(event for event in events if isinstance(event, Calibrated))


def test_the_calibration_of_a_known_kernel_is_taken_over(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: kernel(1.0), "tests": "# the test\n"})
    first = ScriptedRun(repo, [Step("slower", (kernel(1.2),))], ENDLESS)
    first.finish()
    for number in (2, 3):  # the third from the first too, so that its age is known
        run = again(first, number)
        run.finish()
        assert calibrated(run).known_from == "kernel-1"
        assert calibrated(run).calibration == calibrated(first).calibration


@pytest.mark.parametrize(
    "change", ["--retry", "another machine", "a day", "another file", "another budget", "less time"]
)
def test_a_calibration_is_made_anew_where_it_may_not_hold(tmp_path: Path, change: str) -> None:
    repo = make_repo(tmp_path, {KERNEL: kernel(1.0), "helper.py": "# one\n"})
    first = ScriptedRun(repo, [Step("slower", (kernel(1.2),))], ENDLESS)
    first.finish()
    second = again(first)
    changes: dict[str, dict[str, Any]] = {
        "--retry": {"options": replace(ENDLESS, retry=True)},
        "another machine": {"torch": "2.1"},
        "a day": {"began_at_s": first.began_at_s + 24 * 3600},
        "another budget": {"options": replace(ENDLESS, calibration_budget_s=7.0)},
        "less time": {"options": replace(ENDLESS, time_budget_s=1e4)},
    }
    if change == "another file":
        write(repo, {"helper.py": "# two\n"})
        git(repo, "commit", "-qam", "Another helper")
    second = replace(second, **changes.get(change, {}))
    second.finish()
    assert calibrated(second).known_from == ""


@pytest.mark.parametrize("profiles", [False, True])
def test_a_calibration_without_a_profile_is_none_for_who_chooses_by_one(
    tmp_path: Path, profiles: bool
) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    first = ScriptedRun(repo, (), entries=ENTRIES)
    first.finish()
    assert not calibrated(first).profiled
    second = again(first)
    if profiles:
        options = replace(second.options, proposers=("playbook", "assistant"))
        second = replace(second, options=options)
    run, journal = second.begin()
    run = drive(
        run, journal, second.effects().table(), lambda *_: None, lambda now: bool(now.calibration)
    )
    journal.close()
    assert calibrated(second).known_from == ("" if profiles else "kernel-1")
    assert calibrated(second).profiled is profiles


def measured(scripted: ScriptedRun) -> list[Measured]:
    """The comparisons on which its steps were judged."""
    events = (entry.event for entry in read(scripted.folder / "journal.jsonl"))
    return [event for event in events if isinstance(event, Measured)]


KEPT = (Step("first", (kernel(0.8),)), Step("second", (kernel(0.6),), family="cache"))


def test_a_kept_step_is_not_compared_twice_while_its_calibration_holds(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    first = ScriptedRun(repo, KEPT, ENDLESS, began_at_s=int(time.time()))
    first.finish()
    assert [event.known_from for event in measured(first)] == ["", ""]
    for number in (2, 3):  # the third names the one that measured, too
        later = again(first, number)
        run = later.finish()
        known = measured(later)
        assert [event.known_from for event in known] == ["kernel-1", "kernel-1"]
        assert [e.comparison for e in known] == [e.comparison for e in measured(first)]
        assert run.rows[1].reason.endswith("; as run kernel-1 measured it")
        assert run.finished is not None and run.finished.comparison is not None  # afresh
        assert run.incumbent_ms == pytest.approx(0.6)


def test_no_comparison_is_prepared_where_one_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    prepared: list[bool] = []
    verify = ScriptedJudge.verify

    def seen(judge: ScriptedJudge, *given: Any, **named: Any) -> Any:
        if "origin" in named:  # of a candidate
            prepared.append(named["incumbent"] is not None)
        return verify(judge, *given, **named)

    monkeypatch.setattr(ScriptedJudge, "verify", seen)
    first = ScriptedRun(repo, KEPT, ENDLESS, began_at_s=int(time.time()))
    first.finish()
    again(first).finish()
    assert prepared == [True, True, False, False]


@pytest.mark.parametrize("change", ["--retry", "another file", "a day"])
def test_a_kept_step_is_compared_again_where_the_calibration_may_not_hold(
    tmp_path: Path, change: str
) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN, "helper.py": "# one\n"})
    first = ScriptedRun(repo, KEPT, ENDLESS, began_at_s=int(time.time()))
    first.finish()
    second = again(first)
    if change == "another file":
        write(repo, {"helper.py": "# two\n"})
        git(repo, "commit", "-qam", "Another helper")
    changes: dict[str, dict[str, Any]] = {
        "--retry": {"options": replace(ENDLESS, retry=True)},
        "a day": {"began_at_s": first.began_at_s + 24 * 3600},
    }
    second = replace(second, **changes.get(change, {}))
    second.finish()
    assert [event.known_from for event in measured(second)] == ["", ""]


def test_a_kept_step_is_compared_again_under_another_limit_of_power(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    first = ScriptedRun(repo, KEPT, ENDLESS, began_at_s=int(time.time()))
    first.finish()
    second = again(first)
    run, journal = second.begin()
    effects = second.effects().table()
    run = drive(run, journal, effects, lambda *_: None, lambda run: run.phase is Phase.MEASURE)
    journal.close()
    assert run.candidate is not None and run.calibration is not None
    past = PastRuns(first.repository)
    assert past.compared(run, "") is not None
    assert past.compared(run, "less") is None
    anew = replace(run, calibration=replace(run.calibration, setting="less"))
    assert past.compared(anew, "less") is None  # calibrated anew, under other limits than it was


def finished_as(scripted: ScriptedRun, **otherwise: Any) -> None:
    """Have a run's last comparisons say something else."""
    path = scripted.folder / "journal.jsonl"
    events = [entry.event for entry in read(path)]
    path.unlink()
    rewritten = Journal(path)
    for event in events:
        rewritten.append(replace(event, **otherwise) if isinstance(event, Finished) else event)
    rewritten.close()


def test_a_kept_step_that_faded_at_the_end_is_compared_again(tmp_path: Path) -> None:
    """Also where a later run, which had it from the first, did not find its gain."""
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    first = ScriptedRun(repo, KEPT, ENDLESS, began_at_s=int(time.time()))
    first.finish()
    second = again(first)
    second.finish()
    finished_as(second, faded=(2,))
    third = again(first, 3)
    third.finish()
    assert [event.known_from for event in measured(second)] == ["kernel-1", "kernel-1"]
    assert [event.known_from for event in measured(third)] == ["kernel-1", ""]


def test_a_single_step_is_compared_again_where_best_and_origin_did_not_differ(
    tmp_path: Path,
) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    first = ScriptedRun(repo, KEPT[:1], ENDLESS, began_at_s=int(time.time()))
    first.finish()
    finished_as(first, comparison=comparison(-0.1))
    second = again(first)
    second.finish()
    assert [event.known_from for event in measured(second)] == [""]


def test_a_kept_step_is_compared_again_after_a_day_in_a_run_that_began_before(
    tmp_path: Path,
) -> None:
    """As one does that is resumed, or that an assistant leads."""
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    first = ScriptedRun(repo, KEPT, ENDLESS, began_at_s=int(time.time()) - 2 * 24 * 3600)
    first.finish()
    second = again(first)
    second.finish()
    assert calibrated(second).known_from == "kernel-1"
    assert [event.known_from for event in measured(second)] == ["", ""]


def test_a_calibration_holds_under_its_limits_while_the_kernel_is_as_fast(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: kernel(1.0)})
    first = ScriptedRun(repo, [], ENDLESS)
    first.finish()
    run, journal = again(first).begin()
    effects = again(first).effects().table()
    run = drive(run, journal, effects, lambda *_: None, lambda run: run.phase is Phase.CALIBRATE)
    journal.close()
    past = PastRuns(first.repository)
    assert past.calibrated(run, "") is not None
    assert past.calibrated(run, "another limit of power") is None
    assert run.baseline is not None
    slower = tuple(replace(r, latency_ms=1.2 * r.latency_ms) for r in run.baseline.records)
    assert past.calibrated(replace(run, baseline=replace(run.baseline, records=slower)), "") is None
    chosen = replace(run.baseline, compared=("c",))  # by the user
    assert past.calibrated(replace(run, baseline=chosen), "") is None


def test_an_edit_of_other_code_is_tried(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: kernel(1.0)})
    first = ScriptedRun(repo, [Step("slower", (kernel(1.2),))], ENDLESS)
    assert tried(first.finish()) == ["slower (n=0)"]
    write(repo, {KERNEL: kernel(1.0) + "# mended\n"})
    git(repo, "commit", "-qam", "Mend")
    assert tried(again(first).finish()) == ["slower (n=0)"]


@pytest.mark.parametrize("change", ["--retry", "another machine", "other tests"])
def test_what_failed_elsewhere_is_tried(tmp_path: Path, change: str) -> None:
    repo = make_repo(tmp_path, {KERNEL: kernel(1.0), "tests": "# the test\n"})
    first = ScriptedRun(repo, [Step("slower", (kernel(1.2),))], ENDLESS)
    first.finish()
    assert tried(again(first).finish()) == []
    second = again(first, 3)
    if change == "--retry":
        second = replace(second, options=replace(ENDLESS, retry=True))
    elif change == "other tests":
        write(repo, {"tests": "# another test\n"})
        git(repo, "commit", "-qam", "Another test")
    else:
        second = replace(second, torch="2.1")
    assert tried(second.finish()) == ["slower (n=0)"]


def judged_by(*events: Event) -> PastAttempt:
    """The one attempt of a run in which a candidate met these events."""
    (attempt,) = attempts((*HISTORY[:3], proposed("tiles", "a1"), *events, Settled("0" * 40)))
    return attempt


@pytest.mark.parametrize(("noise", "failed"), [(0.03, False), (0.001, True)])
def test_a_comparison_that_left_a_good_step_possible_says_nothing(
    noise: float, failed: bool
) -> None:
    attempt = judged_by(Verified("a1", 12), Measured(comparison(0.0, noise)))
    assert attempt.status is Status.REVERT
    assert attempt.failed is failed


@pytest.mark.parametrize(
    ("failure", "failed"),
    [
        (Failed(Status.CRASH, False, "killed by SIGSEGV"), True),
        (Failed(Status.REVERT, False, "test_softmax: off by one"), True),
        (Failed(Status.TAMPERED, False, "it wrote to the tests"), False),
        (Failed(Status.CRASH, True, "the incumbent failed", incumbent=True), False),
        (Failed(Status.CRASH, True, "the GPU was busy", unmeasured=True), False),
    ],
)
def test_only_what_the_candidate_did_itself_counts(failure: Failed, failed: bool) -> None:
    assert judged_by(failure).failed is failed


def test_a_damaged_journal_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: kernel(1.0)})
    first = ScriptedRun(repo, [Step("slower", (kernel(1.2),))], ENDLESS)
    first.finish()
    journal = first.folder / "journal.jsonl"
    journal.write_bytes(b"{" + journal.read_bytes())
    assert tried(again(first).finish()) == ["slower (n=0)"]


def test_an_edit_that_git_no_longer_has_is_known_by_its_title(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: kernel(1.0)})
    first = ScriptedRun(repo, [Step("slower", (kernel(1.2),))], ENDLESS)
    first.finish()
    for ref in git(repo, "for-each-ref", "--format=%(refname)", "refs/tile-agent").split():
        git(repo, "update-ref", "-d", ref)
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")
    assert tried(again(first).finish()) == []


@pytest.mark.parametrize(("family", "known"), [("tiles", False), ("cache", True)])
def test_a_keep_of_what_it_depends_on_makes_another_try(family: str, known: bool) -> None:
    """More stages were no gain before the tiles were changed."""
    past = PastRun.of(
        (
            *HISTORY[:3],
            proposed("occupancy-hint", "a1", family="occupancy"),
            Verified("a1", 12),
            Measured(comparison(-0.1)),
            Settled("0" * 40),
            proposed("tile-sizes", "b1", family=family),
            Verified("b1", 12),
            Measured(comparison(0.2)),
            Settled("b2"),
        )
    )
    assert [attempt.after for attempt in past.failed_at(2)] == ["a1"]
    assert bool(list(past.failed_at(3))) is known


def test_a_brief_tells_what_was_tried_with_hypothesis_and_change(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    first = ScriptedRun(repo, STEPS, ENDLESS)
    earlier = first.finish()
    second = again(first)
    run, journal = second.begin()
    journal.close()
    known = PastRuns(second.repository).tried(run)
    assert len(known) == len(earlier.rows) - 1
    subject = Subject(Source(PROJECT["double.py"], KERNEL), KernelClass.MEMORY, Hardware())
    task = agenda(run, subject, by_class(judged("triton"), subject.kernel_class.value))[0]
    text = brief_for(run, subject, task, known).text
    assert "Nothing yet in this run." in text
    assert "kernel-1, 4. slower (n=0): revert; " in text
    assert "hypothesis: it should help" in text
    assert "+LATENCY_MS = " in text
    own = brief_for(earlier, subject, task, PastRuns(first.repository).tried(earlier)).text
    assert "By earlier runs" not in own
    assert "+LATENCY_MS = " in own


def looks(scripted: ScriptedRun) -> list[Scouted]:
    journal = scripted.folder / "journal.jsonl"
    return [line.event for line in read(journal) if isinstance(line.event, Scouted)]


def test_what_short_looks_saw_is_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of a second run is that of the first, and no worker starts for it."""
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    asked: list[int] = []
    line_ups = ScriptedJudge.line_ups

    def seen(judge: ScriptedJudge, *given: Any, **named: Any) -> Any:
        asked.append(len(given[1]))
        return line_ups(judge, *given, **named)

    monkeypatch.setattr(ScriptedJudge, "line_ups", seen)
    first = ScriptedRun(repo, (), entries=ENTRIES, began_at_s=int(time.time()))
    kept = [row.optimization for row in first.finish().kept]
    assert asked and not any(event.known for event in looks(first))
    for number in (2, 3):  # the third has them from the first, which saw them
        asked.clear()
        later = again(first, number)
        assert [row.optimization for row in later.finish().kept] == kept
        for event in looks(later):
            assert event.results and set(event.known) == {each.sha for each in event.results}
    saw = {each.improvement for event in looks(first) for each in event.results}
    assert all(each.improvement in saw for event in looks(later) for each in event.results)


@pytest.mark.parametrize("change", ["--retry", "another file", "a day"])
def test_short_looks_are_taken_again_where_they_may_not_hold(tmp_path: Path, change: str) -> None:
    repo = make_repo(tmp_path, {KERNEL: ORIGIN, "other.py": "x = 1\n"})
    age_s = 25 * 3600 if change == "a day" else 0
    first = ScriptedRun(repo, (), entries=ENTRIES, began_at_s=int(time.time()) - age_s)
    first.finish()
    later = replace(again(first), began_at_s=int(time.time()))
    if change == "--retry":
        later = replace(later, options=replace(later.options, retry=True))
    if change == "another file":
        write(repo, {"other.py": "x = 2\n"})
        git(repo, "commit", "-qam", "Another file")
    later.finish()
    assert looks(later) and not any(event.known for event in looks(later))
