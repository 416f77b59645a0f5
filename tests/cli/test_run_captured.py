"""`run --capture COMMAND`: a kernel without perf tests is judged by the calls of a command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from agent.environment import probe
from agent.errors import ExitCode
from tests.support.project import KERNEL, PROJECT, Outcome, tile_agent
from tests.support.repo import changed, git, isolate, make_repo, snapshot, write
from tests.support.warm_python import warm_interpreter

USE = """\
import torch
from double import double

for n in (1000, 1000):
    assert double(torch.ones(n)).sum() == 2 * n
"""
USING = "{python} use.py"
BARE = {"double.py": KERNEL, "use.py": USE}


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


def run(repo: Path, command: str, *options: str) -> Outcome:
    python = warm_interpreter()
    command = command.replace("{python}", python)
    given = ("run", "--kernel", "double.py", "--capture", command, "--python", python)
    return tile_agent(repo, *given, *options, "--json")


@pytest.mark.full
def test_a_repository_without_tests(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, BARE)
    before = snapshot(repo)
    end = run(repo, USING, "--only", "block-size", "--max-iterations", "1", "--branch", "faster")
    assert end.code == ExitCode.STOPPED, end.err
    assert [row["status"] for row in end.json["rows"]] == ["keep", "keep"]
    assert "captured: 1 correctness and 1 perf cases" in end.err
    ours = ("refs/", "sandbox", "git info/exclude")
    assert all(key.startswith(ours) for key in changed(before, snapshot(repo)))
    made = git(repo, "diff", "--name-only", "HEAD", "faster~1").split()
    assert made == ["double_origin.py", "test_double_captured.py"]
    assert git(repo, "show", "faster:double_origin.py") == KERNEL.rstrip()
    assert git(repo, "log", "-1", "--format=%b", "faster~1").endswith("use.py")


def test_perf_tests_give_way_to_what_is_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = make_repo(tmp_path, PROJECT | {"use.py": USE})
    write(repo, {"tests/notes": "not committed"})
    monkeypatch.setenv("SERVICE_TOKEN", "swordfish-swordfish")
    secret = f"{USING} --token swordfish-swordfish"
    end = run(repo, secret, "--time-budget-s", "1", "--branch", "faster")
    assert end.code == ExitCode.STOPPED, end.err
    from_files = "tests/test_double.py, tests/test_double_captured.py"
    assert f"tests      2 correctness, 1 perf from {from_files}" in end.err
    assert "swordfish" not in git(repo, "log", "-p", "faster") + end.err + end.out
    (told,) = (note for note in end.json["notes"] if note.startswith("captured: "))
    git(repo, "branch", "--delete", "--force", "faster")
    git(repo, *told.partition("`git ")[2].partition("`")[0].split())  # a run without a gain
    assert (repo / "tests/test_double_captured.py").exists()


PRODUCT = """

@triton.jit
def product_kernel(x_ptr, y_ptr, K, BLOCK: tl.constexpr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    acc = tl.zeros((16, 16), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        acc += tl.dot(tl.load(x_ptr + at), tl.load(x_ptr + at))
    tl.store(y_ptr + at, acc)


def product(x):
    y = torch.empty_like(x)
    product_kernel[(1,)](x, y, 16, BLOCK=16)
    return y
"""


@pytest.mark.full
def test_a_product_that_the_command_does_not_call_decides_nothing(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, BARE | {"double.py": KERNEL + PRODUCT})
    classified = tile_agent(repo, "classify", "--kernel", "double.py", "--json")
    assert classified.json["kernel_class"] == "balanced"
    end = run(repo, USING, "--time-budget-s", "1")
    assert end.code == ExitCode.STOPPED, end.err
    assert end.json["kernel_class"] == "memory-bound"
    assert "no perf test launches product_kernel: left as they are" in end.json["notes"]
    assert "source: memory-bound" in end.json["diagnosis"]["evidence"][0]


NEEDS = "import module_that_is_not_there\n"
SETS_UP = """\
import pytest

@pytest.fixture(autouse=True)
def seed_of_all_devices():
    raise RuntimeError("not for CPUs")
"""


@pytest.mark.parametrize(
    ("conftest", "why"),
    [(NEEDS, "No module named 'module_that_is_not_there'"), (SETS_UP, "not for CPUs")],
    ids=["import", "fixture"],
)
def test_a_conftest_that_lets_no_test_run_is_left_behind(
    tmp_path: Path, conftest: str, why: str
) -> None:
    own = {"test_double.py": "from double import double\n\ndef test_none():\n    assert double\n"}
    repo = make_repo(tmp_path, PROJECT | own | {"use.py": USE, "tests/conftest.py": conftest})
    end = run(repo, USING, "--time-budget-s", "1", "--branch", "faster")
    assert end.code == ExitCode.STOPPED, end.err
    beside = "test_double.py, test_double_captured.py"  # what that conftest is not for judges, too
    assert f"tests      2 correctness, 1 perf from {beside}" in end.err
    (note,) = (note for note in end.json["notes"] if "beside the kernel" in note)
    assert "judge without those beside the project's conftest.py" in note and why in note


BUILDS = """\
import double

raise OSError("CUDA_HOME environment variable is not set. Please set it to your CUDA install root.")
"""


def test_own_tests_that_cannot_be_collected_give_way(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, BARE | {"tests/test_builds.py": BUILDS})
    end = run(repo, USING, "--time-budget-s", "1", "--branch", "faster")
    assert end.code == ExitCode.STOPPED, end.err
    assert "tests      1 correctness, 1 perf from tests/test_double_captured.py" in end.err
    (note,) = (note for note in end.json["notes"] if "left out" in note)
    assert note.startswith(
        "tests/test_builds.py is left out, and the captured tests judge without: "
        "tests/test_builds.py:3: OSError: CUDA_HOME environment variable is not set."
    )


SCRIPT = """\
import torch
from double import double


def test_correct(n, dtype):
    assert double(torch.ones(n, dtype=dtype)).sum() == 2 * n


def test_speed(n):
    double(torch.ones(n))


if __name__ == "__main__":
    test_correct(1000, torch.float32)
    test_speed(1000)
"""


def test_functions_of_a_script_that_pytest_cannot_call_judge_nothing(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, BARE | {"test_double.py": SCRIPT})
    end = run(repo, "{python} test_double.py", "--time-budget-s", "1", "--branch", "faster")
    assert end.code == ExitCode.STOPPED, end.err
    assert "tests      1 correctness, 1 perf from test_double_captured.py" in end.err
    (note,) = (note for note in end.json["notes"] if "left out" in note)
    assert note == (
        "test_double.py::test_correct and 1 more are left out: pytest knows no fixture `n`, `dtype`"
    )


def test_a_baseline_that_fails_names_no_commit_that_goes_with_it(tmp_path: Path) -> None:
    wrong = "import double\n\ndef test_wrong():\n    assert not double\n"
    repo = make_repo(tmp_path, BARE | {"test_double.py": wrong})
    before = snapshot(repo)
    end = run(repo, USING, "--branch", "faster")
    assert (end.code, "test_double.py::test_wrong" in end.err) == (ExitCode.USAGE, True), end.err
    assert "captured: 1 correctness and 1 perf cases, as test_double_captured.py in the" in end.err
    assert "cherry-pick" not in end.err + end.out
    assert changed(before, snapshot(repo)) <= {"sandbox", "git info/exclude"}


PREPARED = """

settings = []


def prepared(x):
    assert settings, "not prepared"
    return double(x)
"""
"""What rests on something that its caller has set."""


def test_calls_that_fail_are_told_where_no_conftest_is_to_blame(tmp_path: Path) -> None:
    use = "import torch\nimport double\n\ndouble.settings.append(1)\n"
    files = {
        "double.py": f"{KERNEL}{PREPARED}",
        "use.py": f"{use}double.prepared(torch.ones(1000))\n",
        "tests/conftest.py": "def f(:\n",
        "tests/test_double.py": "from double import double\n",
    }
    end = run(make_repo(tmp_path, files), USING)
    assert end.code == ExitCode.USAGE
    assert "every call fails on the code itself: test_prepared" in end.json["error"]
    assert "not prepared" in end.json["error"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("{python} -c 'raise SystemExit(7)'", "the command failed (exit code 7)"),
        ("{python} -c 'import double'", "made no call that launches a kernel"),
        ("no-such-program", "no-such-program cannot be run"),
        ("python 'use.py", "cannot be split into words"),
    ],
)
def test_a_command_that_gives_no_tests_is_refused(tmp_path: Path, command: str, said: str) -> None:
    repo = make_repo(tmp_path, BARE)
    before = snapshot(repo)
    end = run(repo, command)
    assert (end.code, said in end.json["error"]) == (ExitCode.USAGE, True), end.err
    assert changed(before, snapshot(repo)) == set()
    assert not git(repo, "branch", "--list", "tile-agent/*")


def test_what_is_there_is_not_captured_again(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, BARE | {"test_double_captured.py": "# mine\n"})
    end = run(repo, "touch was-run")
    assert end.code == ExitCode.USAGE
    assert "leave --capture out" in end.json["error"]
    assert not (repo / "was-run").exists()


def test_nothing_is_run_for_a_branch_that_exists(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, BARE)
    git(repo, "branch", "faster")
    end = run(repo, "touch was-run", "--branch", "faster")
    assert (end.code, "branch faster exists" in end.json["error"]) == (ExitCode.USAGE, True)
    assert not (repo / "was-run").exists()


@pytest.mark.full
def test_an_assistant_begins_with_what_is_captured_and_goes_on(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, BARE)
    python = warm_interpreter()
    given = ("--kernel", "double.py", "--capture", f"{python} use.py", "--python", python)
    begun = tile_agent(repo, "begin", *given, "--json", "--yes")
    assert begun.code == ExitCode.DONE, begun.err
    offered = tile_agent(repo, "next", "--json")
    assert offered.code == ExitCode.DONE, offered.err
    assert offered.json["run"] == begun.json["run"]
    ended = tile_agent(repo, "finish", "--json")
    assert ended.json["rows"][0]["optimization"] == "baseline", ended.err


@pytest.mark.skipif(probe().versions["triton"] is None, reason="triton is not installed")
def test_what_the_summary_points_to_works_where_only_the_run_has_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is taken from the summary as it stands there."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    repo = make_repo(tmp_path, BARE)
    ended = run(repo, USING, "--only", "folded-exp2", "--branch", "faster")
    (command,) = set(re.findall(r"`tile-agent (explain .*?)` tells", ended.out))
    before = snapshot(repo)
    end = tile_agent(repo, *shlex.split(command), "--sm", "90")
    assert end.code == ExitCode.DONE, end.err
    note, *_ = end.out.splitlines()
    assert re.fullmatch(
        r"note: the tests are those that run \S+ captured; `git cherry-pick \w+` takes them over",
        note,
    )
    assert "as test_double_captured.py::test_perf_double[" in end.out
    compared = tile_agent(repo, *shlex.split(command), "--sm", "90", "--against", "HEAD")
    assert compared.out.splitlines()[-1].endswith(": the same code")
    assert tile_agent(repo, "diagnose", "--kernel", "double.py").code == ExitCode.DONE
    assert snapshot(repo) == before
    assert git(repo, "worktree", "list").count("\n") == 0
    git(repo, "cherry-pick", "faster")
    assert "captured;" not in tile_agent(repo, *shlex.split(command), "--sm", "90").out
