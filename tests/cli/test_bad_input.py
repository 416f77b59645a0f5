"""Bad input: one line that names the fault and the mend, exit code 2, nothing changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import ExitCode
from agent.journal import Journal
from agent.options import ASSISTANT, PLAYBOOK, Options
from agent.runs import usual_branch
from tests.support.history import STARTED
from tests.support.project import KERNEL, PROJECT, TEST, command, tile_agent
from tests.support.repo import changed, git, isolate, make_repo, snapshot, write
from tests.support.tiers import others_full
from tests.support.warm_python import warm_interpreter


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, PROJECT)


def refused(repo: Path, *arguments: str, saying: str, json: bool = True) -> None:
    """The run is refused with one line, and the repository is as it was."""
    before = snapshot(repo)
    end = tile_agent(repo, "run", "--yes", *arguments)
    line = end.err.strip().splitlines()[-1]
    assert end.code == ExitCode.USAGE, end.err
    assert line.startswith("tile-agent: ")
    assert saying in line, line
    assert "Traceback" not in end.err
    assert end.out == ""
    assert changed(before, snapshot(repo)) == set()
    if json:
        end = tile_agent(repo, "run", "--yes", "--json", *arguments)
        assert end.json == {"error": line.removeprefix("tile-agent: "), "exit_code": 2}


def edit(name: str, content: str | bytes) -> Callable[[Path], None]:
    """Write a file and commit it."""

    def change(repo: Path) -> None:
        write(repo, {name: content})
        git(repo, "add", "--all")
        git(repo, "commit", "--quiet", "--message", "change")

    return change


def test_no_such_file(repo: Path) -> None:
    refused(repo, "--kernel", "nothing.py", saying="no such file")


def test_no_repository(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    write(folder, PROJECT)
    end = tile_agent(folder, "run", "--kernel", "double.py")
    assert end.code == ExitCode.USAGE
    assert "git init" in end.err or "not in a git repository" in end.err, end.err
    assert not (folder / "sandbox").exists()


def test_a_bare_repository(tmp_path: Path, repo: Path) -> None:
    bare = tmp_path / "bare.git"
    git(repo, "clone", "--quiet", "--bare", str(repo), str(bare))
    (bare / "double.py").write_text(KERNEL)
    end = tile_agent(bare, "run", "--kernel", "double.py")
    assert (end.code, "bare" in end.err) == (ExitCode.USAGE, True), end.err


def test_a_folder(repo: Path) -> None:
    refused(repo, "--kernel", "tests", saying="is a folder")


def test_a_link_out_of_the_repository(repo: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text(KERNEL)
    (repo / "link.py").symlink_to(outside)
    refused(repo, "--kernel", "link.py", saying="outside the repository")


def test_not_utf8(repo: Path) -> None:
    edit("double.py", KERNEL.encode() + b"# \xff\n")(repo)
    refused(repo, "--kernel", "double.py", saying="not UTF-8")


def test_a_syntax_error(repo: Path) -> None:
    edit("double.py", KERNEL + "def broken(:\n")(repo)
    refused(repo, "--kernel", "double.py", saying="double.py:22")


def test_no_kernel_in_it(repo: Path) -> None:
    edit("double.py", "# @triton.jit\ndef double(x):\n    return 2 * x\n")(repo)
    refused(repo, "--kernel", "double.py", saying="no tile kernel")


@pytest.mark.parametrize("staged", [False, True])
def test_uncommitted_changes(repo: Path, staged: bool) -> None:
    write(repo, {"double.py": KERNEL + "# mine\n"})
    if staged:
        git(repo, "add", "double.py")
    refused(repo, "--kernel", "double.py", saying="uncommitted changes")


def test_no_tests(repo: Path) -> None:
    git(repo, "rm", "--quiet", "-r", "tests")
    git(repo, "commit", "--quiet", "--message", "no tests")
    refused(repo, "--kernel", "double.py", saying="--tests")


def test_no_perf_tests(repo: Path) -> None:
    edit("tests/test_double.py", TEST.partition("def test_perf")[0])(repo)
    refused(repo, "--kernel", "double.py", saying="no perf tests")


def test_tests_that_fail_before_any_change(repo: Path) -> None:
    edit("tests/test_double.py", TEST.replace("2 * x)", "3 * x)"))(repo)
    said = (
        "the correctness tests fail before any change: tests/test_double.py::test_double_triton: "
        "AssertionError: Tensor-likes are not close! Mismatched elements: 699 / 700 (99.9%); "
        "Greatest absolute difference: 699.0 at index (699,) (up to 1e-05 allowed): "
        "mend it, or leave it out, such as with "
        "--correctness-k 'not test_double_triton and not perf' (see /"
    )
    refused(repo, "--kernel", "double.py", saying=said, json=False)
    end = tile_agent(repo, "verify", "--kernel", "double.py")
    assert end.code == 3
    log = Path(end.out.partition(" (see ")[2].rpartition(")")[0])
    assert "Greatest absolute difference" in log.read_text()


def test_perf_tests_that_fail_before_any_change(repo: Path) -> None:
    edit("tests/test_double.py", TEST.replace("ones(1024)", "ones(1024, 'no')"))(repo)
    said = "mend it, or leave test_perf_double_triton out with --perf-k (see /"
    refused(repo, "--kernel", "double.py", saying=said, json=False)


def test_perf_tests_that_record_nothing(repo: Path) -> None:
    silent = TEST.partition("    tile_bench")[0] + "    assert double(x) is not None\n"
    edit("tests/test_double.py", silent)(repo)
    refused(repo, "--kernel", "double.py", saying="recorded no timing", json=False)


@pytest.mark.parametrize("value", others_full(["float('nan')", "0.0", "-1.0", "float('inf')"]))
def test_perf_tests_that_record_nonsense(repo: Path, value: str) -> None:
    nonsense = (
        TEST.partition("def test_perf")[0]
        + "def test_perf_double_triton(record_property):\n"
        + f"    double(torch.ones(8))\n    latency = {value}\n"
        + "    record_property('benchmark', {'triton': {'forward': {'median': latency}}})\n"
    )
    edit("tests/test_double.py", nonsense)(repo)
    refused(repo, "--kernel", "double.py", saying="'median'] = ", json=False)


def test_a_branch_of_that_name(repo: Path) -> None:
    git(repo, "branch", "mine")
    said = "branch mine exists: give another, such as --branch mine-2"
    refused(repo, "--kernel", "double.py", "--branch", "mine", saying=said)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kernel", "proposer", "said"),
    [
        (
            "double.py",
            PLAYBOOK,
            "go on with it (`tile-agent resume first`), abandon it (`git branch -D mine`), or",
        ),
        (
            "double.py",
            ASSISTANT,
            "go on with it (`tile-agent status first` says how), abandon it (`git ",
        ),
        ("other/double.py", PLAYBOOK, "branch mine exists: give another, such as --branch mine-2"),
    ],
)
def test_the_branch_of_a_run_that_is_not_done(
    repo: Path, kernel: str, proposer: str, said: str
) -> None:
    git(repo, "branch", "mine")
    (repo / "sandbox" / "runs" / "first").mkdir(parents=True)
    journal = Journal(repo / "sandbox" / "runs" / "first" / "journal.jsonl")
    options = Options(proposers=(proposer,))
    journal.append(replace(STARTED, run_id="first", kernel=kernel, branch="mine", options=options))
    journal.close()
    refused(repo, "--kernel", "double.py", "--branch", "mine", saying=said, json=False)


def test_the_branch_of_the_day_is_refused_only_for_a_run_that_can_go_on(repo: Path) -> None:
    usual = usual_branch(Path("double.py"))
    plan = ("plan", "--kernel", "double.py", "--json")
    git(repo, "branch", usual)
    git(repo, "branch", f"{usual}-2")
    assert tile_agent(repo, *plan).json["branch"] == f"{usual}-3"
    (repo / "sandbox" / "runs" / "first").mkdir(parents=True)
    journal = Journal(repo / "sandbox" / "runs" / "first" / "journal.jsonl")
    journal.append(replace(STARTED, run_id="first", kernel="double.py", branch=f"{usual}-2"))
    journal.close()
    said = f"branch {usual}-2 is that of run first, which is not done"
    planned = tile_agent(repo, *plan).json
    assert planned["notes"][0].startswith(said)
    assert planned["notes"][0].endswith(f"or begin another on --branch {planned['branch']}")
    refused(repo, "--kernel", "double.py", saying=said, json=False)


def test_a_run_without_its_branch_is_abandoned(repo: Path) -> None:
    (repo / "sandbox" / "runs" / "first").mkdir(parents=True)
    journal = Journal(repo / "sandbox" / "runs" / "first" / "journal.jsonl")
    looping = replace(STARTED, run_id="first", kernel="double.py", branch="gone", options=Options())
    journal.append(looping)
    journal.close()
    (run,) = tile_agent(repo, "status", "--json").json["runs"]
    assert (run["standing"], run["next"]) == ("abandoned", "tile-agent run --kernel double.py")
    assert "its branch gone is gone; `git branch gone " in run["reason"]
    git(repo, "branch", "gone")
    (run,) = tile_agent(repo, "status", "--json").json["runs"]
    assert (run["standing"], run["next"]) == ("interrupted", "tile-agent resume first")
    assert run["summary"].endswith("; `git branch -D gone` abandons it")


def test_a_branch_that_another_run_made_anew_is_nobody_elses(repo: Path) -> None:
    """Whoever was told to delete it would lose what the other has kept."""
    usual = usual_branch(Path("double.py"))
    for number, name in enumerate(("first", "second")):
        (repo / "sandbox" / "runs" / name).mkdir(parents=True)
        journal = Journal(repo / "sandbox" / "runs" / name / "journal.jsonl")
        began_at_s = STARTED.began_at_s + number
        started = replace(STARTED, run_id=name, kernel="double.py", branch=usual)
        journal.append(replace(started, began_at_s=began_at_s, options=Options()))
        journal.close()
    git(repo, "branch", usual)
    first, second = tile_agent(repo, "status", "--json").json["runs"]
    assert (first["standing"], second["standing"]) == ("abandoned", "interrupted")
    assert first["reason"] == (
        f"its branch {usual} is that of second now; `tile-agent resume first` goes on with it"
    )
    said = f"branch {usual} is that of run second, which is not done"
    refused(repo, "--kernel", "double.py", saying=said, json=False)
    git(repo, "branch", "-D", usual)
    states = [run["reason"] for run in tile_agent(repo, "status", "--json").json["runs"]]
    assert "is that of second now" in states[0] and f"git branch {usual} " in states[1]


def test_what_a_run_kept_is_found_without_its_branch(repo: Path) -> None:
    end = tile_agent(
        repo, "run", "--kernel", "double.py", "--only", "block-size", "--max-iterations", "1",
        "--json",
    )  # fmt: skip
    assert len(end.json["rows"]) == 2, end.err
    git(repo, "branch", "-D", end.json["branch"])
    (run,) = tile_agent(repo, "status", "--json").json["runs"]
    best = f"refs/tile-agent/{run['run']}/best"
    assert run["next"].endswith(f"..{best}")
    assert git(repo, *run["next"].split()[1:])
    assert run["reason"].endswith(f"is gone: `git branch NEW {best}` makes another")


@pytest.mark.parametrize("name", ["nb.ipynb", "never/nb.ipynb"])
def test_a_notebook(repo: Path, name: str) -> None:
    write(repo, {"nb.ipynb": "{}"})
    said = f"{name} is a notebook: export it to a Python file with"
    refused(repo, "--kernel", name, saying=said, json=False)


@pytest.mark.parametrize("name", others_full(["-x", "a..b", "a b", ""]))
def test_no_name_for_a_branch(repo: Path, name: str) -> None:
    refused(repo, "--kernel", "double.py", f"--branch={name}", saying="branch", json=False)


def test_a_name_for_a_branch_is_looked_at_before_anything_is_started(
    repo: Path, tmp_path: Path
) -> None:
    refused(repo, "--kernel", "double.py", "--branch=a..b", saying="cannot name a branch")
    assert not (tmp_path / "state").exists()


def test_an_unknown_optimization(repo: Path) -> None:
    refused(repo, "--kernel", "double.py", "--only", "blok-size", saying="block-size")


def test_an_optimization_of_the_other_language(repo: Path, tmp_path: Path) -> None:
    said = "tile-sizes is for cuTile; this is a Triton kernel: see `tile-agent playbook list"
    refused(repo, "--kernel", "double.py", "--only", "tile-sizes", saying=said)
    assert not (tmp_path / "state").exists()


def test_an_optimization_without_a_transform(repo: Path, tmp_path: Path) -> None:
    said = "split-k has no transform, only prose: give --proposer model or command, or"
    refused(repo, "--kernel", "double.py", "--only", "split-k", saying=said)
    assert not (tmp_path / "state").exists()


def test_an_interpreter_without_pytest(repo: Path, tmp_path: Path) -> None:
    bare = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    python = str(bare / "bin" / "python")
    refused(repo, "--kernel", "double.py", "--python", python, saying="has no pytest")


def test_no_such_interpreter(repo: Path) -> None:
    refused(repo, "--kernel", "double.py", "--python", "/no/python", saying="--python")


@pytest.mark.full
def test_another_run_is_alive(repo: Path) -> None:
    slow = TEST + "\n\ndef test_slow_triton():\n    import time\n    time.sleep(600)\n"
    edit("tests/test_double.py", slow)(repo)
    with subprocess.Popen(
        command("run", "--kernel", "double.py", "--python", warm_interpreter()),
        cwd=repo,
        stderr=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stderr is not None
        while not first.stderr.readline().startswith("limits"):
            assert first.poll() is None
        end = tile_agent(repo, "run", "--kernel", "double.py")
        first.terminate()
        first.stderr.read()
    assert first.returncode == ExitCode.STOPPED
    assert end.code == ExitCode.USAGE
    assert f"pid {first.pid}" in end.err, end.err


@pytest.mark.skipif(os.geteuid() != 0, reason="filling a disk needs a small file system: root")
def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        repo = make_repo(disk, PROJECT)
        refused(repo, "--kernel", "double.py", saying="MiB are free")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.full
def test_detached_head_works_and_says_so(repo: Path) -> None:
    git(repo, "checkout", "--quiet", "--detach")
    end = tile_agent(repo, "run", "--kernel", "double.py", "--only", "loop-stages")
    assert end.code == ExitCode.NO_IMPROVEMENT, end.err
    assert "HEAD is detached" in end.err
    shutil.rmtree(repo / "sandbox")
    assert git(repo, "status", "--porcelain") == ""


@pytest.mark.parametrize("verb", ["run", "plan", "lint", "classify"])
def test_a_kernel_without_its_option_is_told_how_it_is_named(repo: Path, verb: str) -> None:
    end = tile_agent(repo, verb, "double.py")
    assert end.code == ExitCode.USAGE
    assert f" Write --kernel double.py. (see tile-agent {verb} --help)" in end.err
    assert "Write" not in tile_agent(repo, verb).err
