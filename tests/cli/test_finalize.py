"""`finalize`: runs whose verdicts are scripted, over a kernel whose tests are run in earnest."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import ExitCode, UsageError
from agent.events import Finished
from agent.finalizing.checkout import swap
from agent.frozen_tests import TestPlan
from agent.loop import drive
from agent.repository import Repository
from agent.state import Phase
from tests.support.history import comparison
from tests.support.project import KERNEL as DOUBLE
from tests.support.project import tile_agent
from tests.support.repo import changed, git, isolate, make_repo, snapshot, write
from tests.support.scripted import KERNEL, ScriptedRun, Step
from tests.support.tiers import others_full
from tests.support.warm_python import warm_interpreter

ORIGIN = DOUBLE.replace(
    "BLOCK_SIZE = 256\n", "LATENCY_MS = 1.0\nBLOCK_SIZE = 256\n\nWARPS = 1\n\nSTAGES = 1\n"
)
TEST = """\
import torch
from kernel import BLOCK_SIZE, STAGES, double


def test_double_triton():
    x = torch.arange(700, dtype=torch.float32)
    torch.testing.assert_close(double(x), 2 * x)


def test_perf_double_triton(record_property):
    double(torch.ones(2048))
    ms = 0.01 * -(-2048 // BLOCK_SIZE) + STAGES
    record_property("benchmark", {"Triton": {"forward": {"median": ms}}})
"""
"""The number of warps makes no difference to it."""
PLAN = TestPlan(
    ("tests/test_kernel.py",),
    ("tests/test_kernel.py::test_double_triton",),
    ("tests/test_kernel.py::test_perf_double_triton",),
)
FILES = {KERNEL: ORIGIN, "tests/test_kernel.py": TEST, "pyproject.toml": "[tool.pytest]\n"}

BLOCKS = ORIGIN.replace("BLOCK_SIZE = 256\n", "BLOCK_SIZE = 512  # times 0.8\n")
WARPS = BLOCKS.replace("WARPS = 1\n", "WARPS = 4  # times 0.9\n")
STAGES = WARPS.replace("STAGES = 1\n", "STAGES = 0  # times 0.9\n")
REWRITTEN = STAGES.replace("512  # times 0.8", "1024").replace(
    "LATENCY_MS = 1.0", "LATENCY_MS = 0.7"
)
STEPS = (
    Step("blocks", (BLOCKS,)),
    Step("warps", (WARPS,)),
    Step("slower", (WARPS.replace("0.9", "1.9"),)),
    Step("stages", (STAGES,)),
)


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def run_in(
    repo: Path,
    steps: tuple[Step, ...] = STEPS,
    faded: tuple[int, ...] = (),
    gained: float | None = None,
) -> None:
    """A run to its end.

    Args:
        repo: where.
        steps: what it tries.
        faded: the iterations that did not show their gain in its last comparisons.
        gained: what origin against best came to there, if not what the texts say.
    """
    scripted = ScriptedRun(repo, steps, plan=PLAN, python=warm_interpreter())
    run, journal = scripted.begin()
    effects = scripted.effects().table()
    run = drive(
        run, journal, effects, lambda *_: None, lambda r: r.phase in (Phase.FINISH, Phase.DONE)
    )
    if run.phase is Phase.FINISH:
        event = effects[Phase.FINISH](run)
        assert isinstance(event, Finished)
        compared = event.comparison if gained is None else comparison(gained)
        journal.append(replace(event, faded=faded, comparison=compared))
    journal.close()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, FILES)


def titles(repo: Path, revisions: str) -> list[str]:
    """The subjects of commits, oldest first."""
    return git(repo, "log", "--reverse", "--format=%s", revisions).splitlines()


def kernel_at(repo: Path, revision: str) -> str:
    return git(repo, "show", f"{revision}:{KERNEL}") + "\n"


def refused(repo: Path, *arguments: str, code: int = ExitCode.USAGE) -> str:
    """What is said of a call that changes nothing."""
    before = snapshot(repo)
    end = tile_agent(repo, "finalize", *arguments)
    assert (end.code, end.out, end.err.splitlines()[-1][:12]) == (code, "", "tile-agent: ")
    assert snapshot(repo) == before
    return end.err.splitlines()[-1]


def test_each_kept_step_is_a_commit_and_nothing_of_the_users_changes(repo: Path) -> None:
    run_in(repo)
    hook = repo / ".git/hooks/post-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    write(repo, {"notes.txt": "of the user's", "tests/test_kernel.py": f"{TEST}\n# being edited\n"})
    git(repo, "config", "commit.gpgSign", "true")
    before = snapshot(repo)
    end = tile_agent(repo, "finalize")
    assert (end.code, end.err) == (ExitCode.DONE, end.err), end.err
    branch = "tile-agent/kernel-final"
    text = "sandbox/runs/kernel-1/pull_request.md"
    assert changed(before, snapshot(repo)) == {f"refs/heads/{branch}", text}
    assert titles(repo, f"main..{branch}") == [
        "kernel: blocks (n=0)", "kernel: warps (n=0)", "kernel: stages (n=0)",
    ]  # fmt: skip
    assert kernel_at(repo, branch) == STAGES
    assert "+20.0 % [" in git(repo, "show", "--no-patch", f"{branch}~2")
    told = (repo / text).read_text()
    assert told.startswith("## kernel.py: 1.54x faster, 3 optimizations\n")
    assert "The correctness tests pass on each commit of the branch." in told
    assert git(repo, "rev-parse", "--short=12", branch) in told


def test_a_step_that_the_user_does_not_want_is_left_out(repo: Path) -> None:
    """Whatever it gained: the others keep their order, their messages and their tests."""
    run_in(repo, faded=(4,))
    end = tile_agent(repo, "finalize", "--without", "2")
    assert end.code == ExitCode.DONE, end.err
    assert "left out     iteration 2: warps" in end.out
    branch = "tile-agent/kernel-final"
    assert titles(repo, f"main..{branch}") == ["kernel: blocks (n=0)", "kernel: stages (n=0)"]
    assert kernel_at(repo, branch) == STAGES.replace("WARPS = 4  # times 0.9", "WARPS = 1")
    told = (repo / "sandbox/runs/kernel-1/pull_request.md").read_text()
    assert "warps (n=0) (iteration 2) is left out: as asked" in told
    assert "without them it was not measured" in told


def test_what_cannot_be_left_out_is_refused(repo: Path) -> None:
    run_in(repo, (*STEPS, Step("rewritten", (REWRITTEN,))))
    assert refused(repo, "--without", "3").endswith(
        "--without 3: no such step was kept; the run kept 1, 2, 4, 5"
    )
    assert refused(repo, "--without", "1").endswith(
        "--without 1: iteration 5 (rewritten (n=0)) builds on it; "
        "leave that out too with --without 5"
    )
    every = [word for number in (1, 2, 4, 5) for word in ("--without", str(number))]
    assert refused(repo, *every).endswith(
        "--without leaves none of the kept steps: there is nothing to finalize"
    )
    both = tile_agent(repo, "finalize", "--without", "1", "--without", "5", "--json").json
    assert [step["iteration"] for step in both["steps"]] == [2, 4]


@pytest.mark.full
def test_it_is_replayed_on_a_branch_that_went_on_elsewhere(repo: Path) -> None:
    run_in(repo)
    write(repo, {"other.py": "A = 1\n"})
    git(repo, "add", "other.py")
    git(repo, "commit", "--quiet", "--message", "Something else")
    found = tile_agent(repo, "finalize", "--branch", "mine", "--json").json
    assert titles(repo, "main..mine")[0] == "kernel: blocks (n=0)"
    assert git(repo, "show", "mine:other.py") == "A = 1"
    assert "Other files have changed since it was measured: other.py." in found["notes"]
    assert (found["onto"], found["sha"]) == ("main", git(repo, "rev-parse", "mine"))


def test_steps_that_contribute_nothing_are_left_out_and_told(repo: Path) -> None:
    run_in(repo, (*STEPS, Step("rewritten", (REWRITTEN,))), faded=(2,), gained=0.3)
    found = tile_agent(repo, "finalize", "--json").json
    assert [step["title"] for step in found["steps"]] == ["stages (n=0)", "rewritten (n=0)"]
    replaced, faded = found["dropped"]
    assert replaced["reason"] == "rewritten (n=0) (iteration 5) replaced all that it wrote"
    assert faded["reason"] == "its gain did not show when the run measured it again at its end"
    branch = found["branch"]
    assert "BLOCK_SIZE = 256" in kernel_at(repo, f"{branch}~1")  # without what was replaced
    assert kernel_at(repo, branch) == REWRITTEN.replace("WARPS = 4  # times 0.9", "WARPS = 1")
    message = git(repo, "show", "--no-patch", "--format=%B", branch)
    assert "It holds the change of iteration 1 (blocks (n=0)), which it replaced" in message
    assert "| 1 | `blocks" not in found["text"]
    assert "**warps (n=0)** (iteration 2, dropped): its gain did not show" in found["text"]
    assert "without them it was not measured" in found["text"]
    git(repo, "branch", "--delete", "--force", branch)
    told = tile_agent(repo, "finalize").out
    assert f"left out     iteration 1: blocks (n=0): {replaced['reason']}" in told
    assert told.count(replaced["reason"]) == told.count(faded["reason"]) == 1


@pytest.mark.full
def test_figures_of_fewer_steps_say_what_they_are_of(repo: Path) -> None:
    run_in(repo, (*STEPS, Step("rewritten", (REWRITTEN,))))
    found = tile_agent(repo, "finalize", "--json").json
    assert [step["reason"] for step in found["dropped"]]
    assert "which is the code at the end of the branch" in found["text"]


@pytest.mark.full
def test_a_step_that_may_be_a_part_of_the_whole_gain_stays(repo: Path) -> None:
    run_in(repo, faded=(2,))  # the others do not account for what origin against best gained
    assert tile_agent(repo, "finalize", "--json").json["dropped"] == []


@pytest.mark.full
def test_all_steps_are_kept_where_that_is_asked_for(repo: Path) -> None:
    run_in(repo, (*STEPS, Step("rewritten", (REWRITTEN,))), faded=(2,), gained=0.3)
    found = tile_agent(repo, "finalize", "--keep-all", "--json").json
    assert (len(found["steps"]), found["dropped"]) == (4, [])
    # the same commits again, and so the same branch
    assert tile_agent(repo, "finalize", "--keep-all", "--json").json == found
    assert "branch tile-agent/kernel-final exists" in refused(repo)


@pytest.mark.full
def test_a_step_that_makes_no_difference_is_found_by_measuring(repo: Path) -> None:
    run_in(repo)
    end = tile_agent(repo, "finalize", "--measure", "--json")
    assert end.code == ExitCode.DONE, end.err
    found = end.json
    assert [step["title"] for step in found["dropped"]] == ["warps (n=0)"]
    assert "the end with it is not told from the end without it" in found["dropped"][0]["reason"]
    improvement = found["measured"]["overall"]["improvement"]
    assert improvement == pytest.approx(1 - 0.04 / 1.08, abs=0.01)
    assert f"## kernel.py: {1 / (1 - improvement):.2f}x faster" in found["text"]
    assert kernel_at(repo, found["branch"]) == STAGES.replace("4  # times 0.9", "1")
    said = tile_agent(repo, "finalize", "--measure").out
    assert re.search(r"^measured +\+96\.\d % \[\+.*\] \d\.\d+ -> \d\.\d+ ms$", said, re.MULTILINE)


def test_the_kernel_is_written_to_the_checkout_on_request_alone(repo: Path) -> None:
    run_in(repo, STEPS[:1])
    (repo / KERNEL).chmod(0o755)
    before = snapshot(repo)
    end = tile_agent(repo, "finalize", "--apply")
    assert (end.code, (repo / KERNEL).read_text()) == (ExitCode.DONE, BLOCKS), end.err
    assert (repo / KERNEL).stat().st_mode & 0o777 == 0o755
    assert changed(before, snapshot(repo)) == {
        KERNEL, "refs/heads/tile-agent/kernel-final", "sandbox/runs/kernel-1/pull_request.md",
    }  # fmt: skip
    (take,) = (line for line in end.out.splitlines() if line.startswith("take it "))
    subprocess.run(take.removeprefix("take it"), shell=True, cwd=repo, check=True)
    assert (repo / KERNEL).read_text() == BLOCKS and not git(repo, "status", "--porcelain")
    git(repo, "reset", "--quiet", "--hard", "HEAD~1")
    write(repo, {KERNEL: ORIGIN + "# mine\n"})
    assert "is not, byte for byte, what the run began with" in refused(
        repo, "--apply", "--branch", "other"
    )


def test_the_file_is_compared_again_before_it_is_swapped(repo: Path) -> None:
    repository = Repository.open(repo)
    content = (repo / KERNEL).read_bytes()
    swap(repository, KERNEL, content, b"new")
    assert (repo / KERNEL).read_bytes() == b"new"
    for expected in (content, b""):
        with pytest.raises(UsageError, match="is not, byte for byte"):
            swap(repository, KERNEL, expected, b"newer")
    (repo / KERNEL).unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        swap(repository, KERNEL, b"new", b"newer")
    outside = repo.parent / "outside.py"
    outside.write_bytes(b"new")
    (repo / KERNEL).symlink_to(outside)
    with pytest.raises(UsageError, match="is not, byte for byte"):
        swap(repository, KERNEL, b"new", b"newer")
    assert outside.read_bytes() == b"new"
    assert sorted(path.name for path in repo.iterdir()) == [
        ".git", KERNEL, "pyproject.toml", "tests",
    ]  # fmt: skip


def test_what_is_refused(repo: Path) -> None:
    run_in(repo)
    assert "nope names no commit here" in refused(repo, "--onto", "nope")
    assert "'a b' cannot name a branch" in refused(repo, "--branch", "a b")
    assert "main exists" in refused(repo, "--branch", "main")
    assert "has all that run kernel-1 kept already" in refused(repo, "--onto", "tile-agent/kernel")
    write(repo, {KERNEL: ORIGIN.replace("WARPS = 1", "WARPS = 2")})
    git(repo, "commit", "--quiet", "--all", "--message", "Two warps")
    said = refused(repo)
    assert "kernel.py in main is not what the run began with (" in said
    assert "Two warps): what was measured does not hold for it; run again, or" in said


def test_a_run_that_kept_nothing_or_is_not_done_is_refused(repo: Path) -> None:
    run_in(repo, STEPS[2:3])
    assert "run kernel-1 kept nothing: there is nothing to finalize" in refused(repo)
    journal = repo / "sandbox/runs/kernel-1/journal.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-2]))
    assert "run kernel-1 is not done: `tile-agent status kernel-1` says" in refused(repo)


@pytest.mark.parametrize("broken", others_full((True, False)))
def test_tests_that_the_branch_has_by_now_judge_it(repo: Path, broken: bool) -> None:
    run_in(repo, STEPS[:1])
    more = "    assert BLOCK_SIZE == 256\n" if broken else "    assert BLOCK_SIZE\n"
    write(
        repo,
        {
            "tests/test_kernel.py": TEST.replace(
                "    x = torch.arange", f"{more}    x = torch.arange"
            )
        },
    )
    git(repo, "commit", "--quiet", "--all", "--message", "Test more")
    if broken:
        said = refused(repo, code=ExitCode.NO_IMPROVEMENT)
        assert "tests fail on the end of the branch, so none is made: " in said
        assert "test_double_triton" in said
    else:
        assert tile_agent(repo, "finalize").code == ExitCode.DONE


@pytest.mark.full
def test_tests_that_the_run_captured_come_before_the_steps(tmp_path: Path) -> None:
    made = make_repo(tmp_path, {name: text for name, text in FILES.items() if "test_" not in name})
    git(made, "checkout", "--quiet", "-b", "captured")
    write(made, {"tests/test_kernel.py": TEST})
    git(made, "add", "--all")
    git(made, "commit", "--quiet", "--message", "tests/test_kernel.py: captured")
    run_in(made, STEPS[:1])
    git(made, "checkout", "--quiet", "main")
    end = tile_agent(made, "finalize")
    assert end.code == ExitCode.DONE, end.err
    assert titles(made, "main..tile-agent/kernel-final") == [
        "tests/test_kernel.py: captured", "kernel: blocks (n=0)",
    ]  # fmt: skip
    assert "has 2 commits on main" in end.out
    assert "tests that the run captured: tests/test_kernel.py" in end.out
