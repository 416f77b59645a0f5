"""`diff` and `history` on runs of a real repository."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import ExitCode
from agent.loop import drive
from tests.support.finished_run import repo_with_run
from tests.support.project import MAIN, tile_agent
from tests.support.repo import git, isolate, make_repo, snapshot, write
from tests.support.scenario import ORIGIN, STEPS
from tests.support.scripted import KERNEL, ScriptedRun, Step, kernel


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def run_in(repo: Path, steps: tuple[Step, ...] = STEPS, number: int = 1) -> None:
    """A scripted run to its end."""
    scripted = ScriptedRun(
        repo, steps, run_id=f"kernel-{number}", branch=f"tile-agent/kernel-{number}"
    )
    run, journal = scripted.begin()
    drive(run, journal, scripted.effects().table(), lambda *_: None)
    journal.close()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """With a run that met every verdict."""
    return repo_with_run(tmp_path)


def test_the_best_against_the_origin_is_a_patch_and_changes_nothing(repo: Path) -> None:
    before = snapshot(repo)
    end = tile_agent(repo, "diff")
    assert end.code == ExitCode.DONE
    assert "-LATENCY_MS = 1.0\n+LATENCY_MS = 0.58\n" in end.out
    assert tile_agent(repo, "diff", "kernel-1").out == end.out
    assert snapshot(repo) == before
    (repo / "change.patch").write_text(end.out)
    git(repo, "apply", "change.patch")
    assert (repo / KERNEL).read_text() == kernel(0.58)


def test_an_iteration_is_shown_against_the_best_before_it(repo: Path) -> None:
    swept = tile_agent(repo, "diff", "kernel-1", "3").out
    assert "-LATENCY_MS = 0.8\n+LATENCY_MS = 0.6\n" in swept
    assert tile_agent(repo, "diff", "3").out == swept  # of the latest
    crashed = tile_agent(repo, "diff", "6", "--json").json
    assert (crashed["title"], crashed["status"]) == ("crash (n=0)", "crash")
    assert "-LATENCY_MS = 0.58\n+LATENCY_MS = 0.1\n+CRASH = True\n" in crashed["diff"]


def test_a_patch_of_a_file_without_a_last_newline_applies(tmp_path: Path) -> None:
    made = make_repo(tmp_path, {KERNEL: ORIGIN.rstrip("\n")})
    run_in(made, (Step("major", (kernel(0.8).rstrip("\n"),)),))
    patch = tile_agent(made, "diff").out
    assert patch.count("\\ No newline at end of file\n") == 2
    (made / "change.patch").write_text(patch)
    git(made, "apply", "change.patch")
    assert (made / KERNEL).read_text() == kernel(0.8).rstrip("\n")


def test_nothing_kept_is_told_and_what_git_lost_is_refused(tmp_path: Path) -> None:
    made = make_repo(tmp_path, {KERNEL: ORIGIN})
    run_in(made, (Step("slower", (kernel(2.0),)),))
    assert tile_agent(made, "diff").out == "no change: kernel.py is the same in both\n"
    git(made, "update-ref", "-d", "refs/tile-agent/kernel-1/01-slower-1")
    git(made, "reflog", "expire", "--expire=now", "--all")
    git(made, "gc", "--quiet", "--prune=now")
    end = tile_agent(made, "diff", "1")
    assert (end.code, end.err.count("\n")) == (ExitCode.USAGE, 1)
    assert "git no longer has commit" in end.err


def test_it_is_highlighted_on_a_terminal_only(repo: Path) -> None:
    main_end, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    subprocess.run(
        [sys.executable, "-c", MAIN, "diff"],
        cwd=repo,
        check=True,
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    os.close(terminal)
    shown = os.read(main_end, 65536).decode()
    os.close(main_end)
    assert "\x1b[31m-LATENCY_MS = 1.0\x1b[0m" in shown
    assert "\x1b[32m+LATENCY_MS = 0.58\x1b[0m" in shown
    assert "\x1b" not in tile_agent(repo, "diff").out


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        (("diff", "nope"), "there is no run nope here; there are: kernel-1"),
        (("diff", "10"), "run kernel-1 has no iteration 10; there are: 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        (("diff", "kernel-1", "best"), "should be a valid integer"),
        (("history", "--kernel", "other.py"), "no run on other.py here; there are runs on: kernel"),
        (("history", "--kernel", "/kernel.py"), "not in a git repository"),
    ],
)
def test_what_is_refused(repo: Path, arguments: tuple[str, ...], saying: str) -> None:
    end = tile_agent(repo, *arguments)
    assert end.code == ExitCode.USAGE
    assert end.err.count("\n") == 1
    assert saying in end.err


def test_the_history_holds_the_iterations_of_all_runs_on_the_kernel(repo: Path) -> None:
    write(repo, {"sandbox/runs/damaged/journal.jsonl": "{}\n{}\n"})
    run_in(repo, (Step("only", (kernel(0.5),)),), number=2)
    found = tile_agent(repo, "history", "--kernel", KERNEL, "--json").json
    first, second = found["runs"]
    assert [step["status"] for step in first["tried"]] == [
        "keep", "revert", "keep", "revert", "keep", "crash", "crash", "revert", "revert",
    ]  # fmt: skip
    swept = first["tried"][2]
    assert (swept["title"], swept["params"]) == ("sweep (n=1)", {"n": 1})
    assert swept["improvement"] == pytest.approx(0.25, abs=0.01)
    assert swept["low"] < swept["improvement"] < swept["high"]
    assert first["tried"][0]["at_s"] <= swept["at_s"] <= second["tried"][0]["at_s"]
    assert first["did_not_apply"][0]["reason"] == "needs a loop, and there is none"
    assert [each["run"] for each in found["unreadable"]] == ["damaged"]


def test_the_table_of_the_history_has_a_row_an_iteration(repo: Path) -> None:
    (repo / KERNEL).unlink()  # what is gone has a history too
    end = tile_agent(repo, "history", "--kernel", KERNEL)
    assert end.code == ExitCode.DONE
    rows = [line for line in end.out.splitlines() if "| kernel-1 |" in line]
    assert len(rows) == 9
    assert "| 3 | sweep (n=1) | keep | +25.0 % | [+24.9 %, +25.1 %] | no GPU |" in rows[2]
    assert "| 6 | crash (n=0) | crash |  |  | no GPU |" in rows[5]


def test_a_run_that_tried_nothing_is_in_the_history(tmp_path: Path) -> None:
    made = make_repo(tmp_path, {KERNEL: ORIGIN})
    run_in(made, (Step("declined", refusal="needs a loop"),))
    end = tile_agent(made, "history", "--kernel", KERNEL)
    assert "| nothing (the playbook is exhausted) |" in end.out
