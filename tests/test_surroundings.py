"""Whole runs in repositories as people have them: locks left behind, hooks, full and odd disks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.errors import ExitCode, GitError, JournalError, TileAgentError, UsageError
from agent.events import Event
from agent.journal import Journal, replay
from agent.loop import drive
from agent.measuring.decision import Status
from agent.report.table import render
from agent.state import Phase, Run
from tests.support.disk import fill, mounted
from tests.support.project import KERNEL as DOUBLE
from tests.support.project import TEST, tile_agent
from tests.support.repo import changed, git, isolate, make_repo, snapshot, write
from tests.support.scenario import ORIGIN
from tests.support.scripted import KERNEL, ScriptedRun, Step, kernel

STEPS = (
    Step("fast", (kernel(0.8),)),
    Step("sweep", (kernel(0.7), kernel(0.6), kernel(0.65))),
    Step("wrong", (kernel(0.1, "WRONG"),)),
    Step("minor", (kernel(0.58),), family="cache"),
)
STATUSES = ["keep", "keep", "keep", "revert", "keep"]


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, {KERNEL: ORIGIN, "other.py": "x = 1\n"}, executable=[KERNEL])


def nothing(_run: Run, _event: Event) -> None:
    pass


def statuses(run: Run) -> list[str]:
    return [row.status.value for row in run.rows]


# --- what lies in git's folder ------------------------------------------------------------------


def lock(name: str) -> Callable[[Path, Path], Path]:
    def left(repo: Path, _tmp_path: Path) -> Path:
        (repo / ".git" / name).touch()
        return repo

    return left


def hooks(repo: Path, tmp_path: Path) -> Path:
    """Hooks where the configuration says, each of which fails, and signatures that nobody gives."""
    git(repo, "config", "core.hooksPath", "hooks")
    for key in ("commit.gpgSign", "tag.gpgSign", "core.logAllRefUpdates"):
        git(repo, "config", key, "true")
    git(repo, "config", "gpg.program", "/bin/false")
    for name in ("pre-commit", "post-checkout", "reference-transaction", "post-index-change"):
        write(repo, {f"hooks/{name}": f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n"})
        (repo / "hooks" / name).chmod(0o755)
    return repo


def no_modes(repo: Path, _tmp_path: Path) -> Path:
    git(repo, "config", "core.fileMode", "false")
    (repo / KERNEL).chmod(0o644)
    return repo


def linked(repo: Path, tmp_path: Path) -> Path:
    git(repo, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    return tmp_path / "linked"


def submodule(repo: Path, tmp_path: Path) -> Path:
    outer = make_repo(tmp_path, {"README": "outer\n"}, name="outer")
    add = ("submodule", "--quiet", "add", str(repo), "inner")
    git(outer, "-c", "protocol.file.allow=always", *add)
    return outer / "inner"


ODD = {
    "index.lock": lock("index.lock"),
    "HEAD.lock": lock("HEAD.lock"),
    "packed-refs.lock": lock("packed-refs.lock"),
    "config.lock": lock("config.lock"),
    "hooks and signatures": hooks,
    "core.fileMode": no_modes,
    "a linked worktree": linked,
    "a submodule": submodule,
}


@pytest.mark.full
@pytest.mark.parametrize("odd", ODD)
def test_a_whole_run_in_an_odd_repository(repo: Path, tmp_path: Path, odd: str) -> None:
    checkout = ODD[odd](repo, tmp_path)
    if odd != "index.lock":
        write(checkout, {"other.py": "x = 2\n", "staged.py": "", "notes.txt": "mine"})
        (checkout / "staged.py").touch()
    before = snapshot(checkout)
    scripted = ScriptedRun(checkout, STEPS)
    run, journal = scripted.begin()
    run = drive(run, journal, scripted.effects().table(), nothing)
    assert statuses(run) == STATUSES and run.notes == ()
    differing = changed(before, snapshot(checkout))
    ours = {key for key in differing if key.startswith(("sandbox", "refs/tile-agent/"))}
    assert differing - ours <= {f"refs/heads/{scripted.branch}", "git info/exclude"}
    assert git(checkout, "rev-parse", scripted.branch) == run.incumbent_sha
    assert not (tmp_path / "ran").exists()
    if odd.endswith(".lock"):
        assert (repo / ".git" / odd).exists()


def test_a_lock_on_the_branch_is_told_before_anything_is_written(repo: Path) -> None:
    write(repo, {".git/refs/heads/tile-agent/kernel.lock": ""})
    before = snapshot(repo)
    with pytest.raises(UsageError, match=r"kernel\.lock.*mend that"):
        ScriptedRun(repo, STEPS).begin()
    assert changed(before, snapshot(repo)) == set()


def test_a_branch_that_is_locked_meanwhile_stays_and_the_run_says_so(repo: Path) -> None:
    scripted = ScriptedRun(repo, STEPS[:1])
    run, journal = scripted.begin()
    write(repo, {".git/refs/heads/tile-agent/kernel.lock": ""})
    run = drive(run, journal, scripted.effects().table(), nothing)
    assert run.rows[1].status is Status.KEEP and "did not move" in run.branch_behind
    assert git(repo, "rev-parse", "refs/tile-agent/kernel-1/best") == run.incumbent_sha
    assert git(repo, "rev-parse", scripted.branch) == git(repo, "rev-parse", "main")


def test_a_ref_of_ours_that_is_locked_ends_the_run_which_goes_on_later(repo: Path) -> None:
    scripted = ScriptedRun(repo, STEPS)
    run, journal = scripted.begin()
    left = repo / ".git" / "refs" / "tile-agent" / "kernel-1" / "best.lock"
    left.touch()
    with pytest.raises(GitError, match=r"best\.lock"):
        drive(run, journal, scripted.effects().table(), nothing)
    left.unlink()
    run = drive(replay(journal.events), journal, scripted.effects().table(), nothing)
    assert statuses(run) == STATUSES


# --- disks --------------------------------------------------------------------------------------


def ends_as_ever(repo: Path, disk: Path, failure: type[Exception]) -> None:
    """The disk fills up in iteration 2; when there is room again, the run goes on to its end."""
    before = snapshot(repo)
    scripted = ScriptedRun(repo, STEPS)
    run, journal = scripted.begin()
    ballast: list[Path] = []

    def filling(state: Run, _event: Event) -> None:
        if state.iteration == 2 and state.phase is Phase.PROPOSE:
            ballast.append(fill(disk))

    with pytest.raises(failure):
        drive(run, journal, scripted.effects().table(), filling)
    journal.close()
    differing = {key for key in changed(before, snapshot(repo)) if not key.startswith("sandbox")}
    ours = {key for key in differing if key.startswith("refs/tile-agent/")}
    assert differing - ours <= {
        f"refs/heads/{scripted.branch}",
        "git info/exclude",
        "git worktrees",
    }
    ballast[0].unlink()
    journal = Journal(scripted.folder / "journal.jsonl")
    run = replay(journal.events)
    assert run.iteration == 2
    run = drive(run, journal, scripted.effects().table(), nothing)
    assert statuses(run) == STATUSES
    assert render(replay(Journal(journal.path).events).rows) == render(run.rows)
    assert "git worktrees" not in changed(before, snapshot(repo))


def test_a_sandbox_whose_disk_fills_up(repo: Path) -> None:
    with mounted(repo / "sandbox", "size=128k") as disk:
        ends_as_ever(repo, disk, JournalError)


def test_worktrees_whose_disk_fills_up(repo: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "state", "size=1m") as disk:
        ends_as_ever(repo, disk, TileAgentError)


def test_a_sandbox_that_is_read_only_is_refused(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"double.py": DOUBLE, "tests/test_double.py": TEST})
    with mounted(repo / "sandbox", "ro"):
        before = snapshot(repo)
        end = tile_agent(repo, "run", "--kernel", "double.py")
        assert end.code == ExitCode.USAGE and "cannot be written" in end.err, end.err
        assert end.err.count("\n") == 1
        assert changed(before, snapshot(repo)) == set()


# --- names --------------------------------------------------------------------------------------

BY_PATH = """\
import importlib.util
import os
import sys
import time
from pathlib import Path

import torch

file = os.fsdecode({path!r})
spec = importlib.util.spec_from_file_location("odd", Path(__file__).parent / file)
odd = importlib.util.module_from_spec(spec)
sys.modules["odd"] = odd
spec.loader.exec_module(odd)


def test_odd():
    x = torch.arange(700, dtype=torch.float32)
    torch.testing.assert_close(odd.double(x), 2 * x)


def test_perf_odd(record_property):
    odd.double(torch.ones(2048))
    ms = odd.BLOCK_SIZE**-0.5 * (1 + time.perf_counter_ns() % 1000 / 1e6)
    record_property("benchmark", {{"Triton": {{"forward": {{"median": ms}}}}}})
"""


@pytest.mark.full
def test_a_run_on_a_kernel_with_an_odd_path(tmp_path: Path) -> None:
    """A space, a newline, a leading dash, and bytes that are no text."""
    path = b"-my dir/-k \n\xff$(x).py"
    name = os.fsdecode(path)
    repo = make_repo(tmp_path, {name: DOUBLE, "test_odd.py": BY_PATH.format(path=path)})
    before = snapshot(repo)
    only = ("--only", "block-size", "--max-iterations", "1")
    options = ("--tests", "test_odd.py", "--json", *only)
    end = tile_agent(repo, "run", f"--kernel=./{name}", *options)
    assert end.code == ExitCode.STOPPED, end.err
    assert [row["status"] for row in end.json["rows"]] == ["keep", "keep"]
    ours = {f"refs/heads/{end.json['branch']}", "git info/exclude"}
    differing = {key for key in changed(before, snapshot(repo)) if key not in ours}
    assert all(key.startswith(("sandbox", "refs/tile-agent/")) for key in differing), differing
    listed = git(repo, "diff", "--name-only", "main", end.json["best_sha"])
    assert listed == '"-my dir/-k \\n\\377$(x).py"'
