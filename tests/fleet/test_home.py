"""What a worker tells comes home: files, how a kernel stands, commits, a branch, and the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.environment import Environment
from agent.errors import ExitCode, UsageError
from agent.events import Event
from agent.fleet.bundles import bundled, packed, unpacked
from agent.fleet.home import Fleet, FleetOutcome, Home, KernelStanding, branch_of, spent
from agent.fleet.jobs import Ended, KernelJob, Placed, Progressed, RefusedByMachine, ResumePoint
from agent.fleet.summary import headline, table, to_result_of
from agent.journal import Journal
from agent.report.result import exit_code
from agent.repository import Repository
from agent.state import Phase
from agent.store.database import stored
from agent.workspace import Workspace
from tests.support.history import HISTORY, REACHING, STARTED
from tests.support.project import KERNEL as TRITON_KERNEL
from tests.support.repo import KERNEL, changed, git, isolate, make_repo, snapshot, write

FLEET, PATH = "fleet-20260102-030405", "kernels/softmax.py"
HERE = Environment((), {"torch": "2.13.0"}, None, "3.11.9", "Linux")


def job(name: str) -> KernelJob:
    return KernelJob(name, PATH, "triton", branch_of(FLEET, name), (), ".", "", 1)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Home:
    """A fleet of two kernels that has begun."""
    isolate(monkeypatch, tmp_path)
    repository = Repository.open(make_repo(tmp_path))
    made = Home(repository, FLEET)
    jobs = (job("softmax"), job("other"))
    fleet = Fleet(FLEET, repository.head() or "", HERE, jobs)
    made.begin(fleet, [KernelStanding(each.name, each.kernel) for each in jobs])
    return made


def journal_of(folder: Path, events: tuple[Event, ...]) -> bytes:
    folder.mkdir(exist_ok=True)
    path = folder / "journal.jsonl"
    path.unlink(missing_ok=True)
    journal = Journal(path)
    for event in events:
        journal.append(event)
    journal.close()
    return path.read_bytes()


def progressed(
    home: Home, tmp_path: Path, events: tuple[Event, ...], *texts: str, held_s: float = 60.0
) -> Progressed:
    """What a worker tells whose run has kept these texts of the kernel, one after the other."""
    root = tmp_path / f"clone-{len(texts)}"
    root.mkdir()
    clone = unpacked(packed(home.repository, home.fleet().ref), root)
    base = clone.head() or ""
    workspace = Workspace(clone, STARTED.run_id)
    workspace.keep_ref("origin", base)
    workspace.create_branch(job("softmax").branch, base)
    parent = base
    for number, text in enumerate(texts, 1):
        parent = workspace.commit_candidate(parent, PATH, text.encode(), "faster", 1e9)
        workspace.keep_ref(f"{number:02}-block-size-1", parent)
        assert workspace.advance_branch(job("softmax").branch, parent) is None
    bundle = bundled(clone, STARTED.run_id, job("softmax").branch, base)
    journal = journal_of(tmp_path / "journals", events)
    point = ResumePoint(STARTED.run_id, STARTED.latency_meaning, journal, bundle)
    return Progressed(point, held_s, {"perf_results.md": b"| table |\n"})


ONCE, TWICE = KERNEL.replace("128", "256"), KERNEL.replace("128", "512")


def test_a_fleet_is_read_as_it_was_written(home: Home) -> None:
    assert [each.name for each in home.fleet().jobs] == ["softmax", "other"]
    assert home.fleet().begun_on == HERE
    assert [each.name for each in home.standings()] == ["other", "softmax"]
    assert git(home.repository.root, "status", "--short") == ""
    with pytest.raises(UsageError, match="began in this second"):
        home.begin(home.fleet(), [])


def test_a_run_comes_home_with_its_branch(home: Home, tmp_path: Path) -> None:
    before = snapshot(home.repository.root)
    home.heard("softmax", Placed("node-1", "an H200"))
    told = progressed(home, tmp_path, HISTORY, ONCE)
    home.heard("softmax", told)
    home.heard("softmax", Ended(0, "Branch ...", 90.0, b"all that it printed"))
    now = home.take_in(job("softmax"))
    assert (now.outcome, now.code, now.reason) == (FleetOutcome.ENDED, 0, "")
    assert now.branch == f"tile-agent/{FLEET}/softmax"
    repo = home.repository.root
    assert git(repo, "show", f"{now.branch}:{PATH}") == ONCE.strip()
    assert git(repo, "rev-parse", f"refs/tile-agent/{FLEET}/softmax/01-block-size-1") == git(
        repo, "rev-parse", now.branch
    )
    assert home.point("softmax") == told.point
    assert (home.folder / "softmax" / "perf_results.md").read_bytes() == b"| table |\n"
    assert "1 optimization kept" in (home.folder / "softmax" / "report.md").read_text()
    mine = {key for key in changed(before, snapshot(repo)) if not key.startswith("sandbox")}
    assert all(key.startswith(("refs/heads/tile-agent/", "refs/tile-agent/")) for key in mine)


@pytest.mark.parametrize("remember", [True, False])
def test_what_a_run_judged_is_remembered_at_home_where_it_asks_for_that(
    home: Home, remember: bool
) -> None:
    repo = home.repository.root
    write(repo, {"double.py": TRITON_KERNEL})
    git(repo, "add", "double.py")
    git(repo, "commit", "-qm", "A kernel")
    began = replace(
        STARTED,
        kernel="double.py",
        origin_sha=home.repository.head() or "",
        options=replace(STARTED.options, remember=remember),
    )
    journal_of(home.folder / "softmax", (began, *HISTORY[1:]))
    assert home.remember(job("softmax")) == ""
    known = stored()
    assert len(known) == (5 if remember else 0)
    assert {each.gpu for each in known} <= {"NVIDIA H200"}
    assert home.remember(job("softmax")) == ""  # as after a fleet that was resumed
    assert stored() == known


def test_a_run_that_kept_nothing_makes_no_branch(home: Home, tmp_path: Path) -> None:
    home.heard("softmax", progressed(home, tmp_path, HISTORY[:3]))
    assert home.take_in(job("softmax")).branch == ""
    assert "tile-agent" not in git(home.repository.root, "branch", "--list")


def test_a_branch_of_the_users_stays(home: Home, tmp_path: Path) -> None:
    repo = home.repository.root
    git(repo, "branch", job("softmax").branch)
    home.heard("softmax", progressed(home, tmp_path, HISTORY, ONCE))
    now = home.take_in(job("softmax"))
    assert git(repo, "rev-parse", job("softmax").branch) == git(repo, "rev-parse", "main")
    kept = f"refs/tile-agent/{FLEET}/softmax/best"
    assert now.branch == "" and kept in now.reason
    assert git(repo, "show", f"{kept}:{PATH}") == ONCE.strip()


@pytest.mark.parametrize("checked_out", [False, True])
def test_a_branch_moves_forward_unless_somebody_works_on_it(
    home: Home, tmp_path: Path, checked_out: bool
) -> None:
    repo, branch = home.repository.root, job("softmax").branch
    home.heard("softmax", progressed(home, tmp_path, HISTORY[:8], ONCE))
    home.take_in(job("softmax"))
    if checked_out:
        git(repo, "checkout", "--quiet", branch)
    home.heard("softmax", progressed(home, tmp_path, HISTORY, ONCE, TWICE))
    now = home.take_in(job("softmax"))
    assert git(repo, "show", f"{branch}:{PATH}") == (ONCE if checked_out else TWICE).strip()
    assert ("is checked out" in now.reason) == checked_out
    assert git(repo, "show", f"refs/tile-agent/{FLEET}/softmax/best:{PATH}") == TWICE.strip()


@pytest.mark.parametrize(
    ("phase", "code", "outcome"),
    [
        (Phase.DONE, ExitCode.DONE, FleetOutcome.ENDED),
        (Phase.DONE, ExitCode.STOPPED, FleetOutcome.ENDED),
        (Phase.MEASURE, ExitCode.STOPPED, FleetOutcome.WAITING),
        (Phase.MEASURE, -15, FleetOutcome.WAITING),
        (Phase.MEASURE, ExitCode.FAULT, FleetOutcome.ENDED),
        (Phase.BASELINE, ExitCode.STOPPED, FleetOutcome.ENDED),
        (Phase.BASELINE, ExitCode.USAGE, FleetOutcome.REFUSED),
    ],
)
def test_an_end_is_the_end_or_an_interruption(
    home: Home, tmp_path: Path, phase: Phase, code: int, outcome: FleetOutcome
) -> None:
    home.heard("softmax", progressed(home, tmp_path, tuple(REACHING[phase])))
    assert home.heard("softmax", Ended(int(code), "why", 1.0, b"")).outcome is outcome


def test_a_run_has_ended_whose_journal_came_home_to_its_end(home: Home, tmp_path: Path) -> None:
    """Its machine was lost before it told the exit code."""
    assert home.ended("softmax") is None
    home.heard("softmax", progressed(home, tmp_path, tuple(REACHING[Phase.MEASURE])))
    assert home.ended("softmax") is None
    home.heard("softmax", progressed(home, tmp_path, HISTORY, ONCE))
    now = home.ended("softmax")
    assert now is not None and now == home.standing("softmax")
    run = home.run("softmax")
    assert run is not None
    assert (now.outcome, now.code) == (FleetOutcome.ENDED, int(exit_code(run)))


def test_hours_add_up_over_tasks_and_count_once(home: Home, tmp_path: Path) -> None:
    home.heard("softmax", Placed("node-1", "an H200"))
    told = progressed(home, tmp_path, HISTORY[:5], held_s=1800.0)
    home.heard("softmax", told)
    home.heard("softmax", replace(told, held_s=3600.0))
    home.heard("softmax", Placed("node-2", "an H200"))
    now = home.heard("softmax", replace(told, held_s=1800.0))
    assert (now.attempts, now.spent_s) == (2, 5400.0)
    assert to_result_of(home)["gpu_h"] == 1.5


def test_hours_are_spent_when_those_of_all_kernels_are(home: Home) -> None:
    for standing in home.standings():
        home.write(replace(standing, held_before_s=1800.0, held_s=900.0))
    assert spent(home.standings(), 1, None) == spent(home.standings(), 1, 1.6) == ""
    assert spent(home.standings(), 1, 1.5) == "1.50 of 1.5 GPU hours are spent"
    home.grant(replace(home.fleet(), gpu_hours=2.0))
    assert home.fleet().gpu_hours == 2.0


def test_the_table_has_what_gained_first_and_says_why_others_have_nothing(
    home: Home, tmp_path: Path
) -> None:
    home.heard("softmax", Placed("node-1", "an H200"))
    home.heard("softmax", progressed(home, tmp_path, HISTORY, ONCE))
    home.heard("softmax", Ended(0, "", 60.0, b""))
    home.take_in(job("softmax"))
    assert to_result_of(home)["exit_code"] == ExitCode.STOPPED, "one kernel is waiting"
    now = home.heard("other", RefusedByMachine("a1", "node-2", "torch 2.9.0, not 2.13.0"))
    assert now.refused_by == ("a1",)
    result = to_result_of(home)
    assert result["exit_code"] == ExitCode.DONE
    first, second = result["kernels"]
    assert first["gain_low"] < first["gain"] < first["gain_high"]
    assert (first["kept"], second["standing"]) == (1, "refused")
    lines = table(result).splitlines()
    assert "+10.0 % [" in lines[2] and first["branch"] in lines[2]
    assert lines[-1] == f"{PATH}: node-2: torch 2.9.0, not 2.13.0"
    assert headline(result) == (
        f"{FLEET}: 2 kernels, 1 ended, 1 refused; 1 made faster, 0.02 GPU hours"
    )


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((FleetOutcome.ENDED, FleetOutcome.LOST), ExitCode.NO_IMPROVEMENT),
        ((FleetOutcome.REFUSED, FleetOutcome.LOST), ExitCode.USAGE),
        ((FleetOutcome.ENDED, FleetOutcome.RUNNING), ExitCode.STOPPED),
    ],
)
def test_the_exit_code_without_a_gain(
    home: Home, outcomes: tuple[FleetOutcome, ...], code: ExitCode
) -> None:
    for standing, outcome in zip(home.standings(), outcomes, strict=True):
        home.write(replace(standing, outcome=outcome))
    assert to_result_of(home)["exit_code"] == code


def test_a_journal_that_is_damaged_at_home_is_told(home: Home, tmp_path: Path) -> None:
    home.heard("softmax", progressed(home, tmp_path, HISTORY[:4]))
    path = home.folder / "softmax" / "journal.jsonl"
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(UsageError, match="damaged at line 1"):
        home.point("softmax")


def test_a_fleet_of_another_version_is_told(home: Home) -> None:
    (home.folder / "fleet.json").write_text('{"schema": 2}')
    with pytest.raises(UsageError, match="the version of tile-agent that began the fleet"):
        home.fleet()
