"""`tile-agent plan` and `run --dry-run`: what a run would do, and that nothing is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.planning.entries import passed_over
from agent.runs import usual_branch
from tests.support.project import COUNTED, KERNEL, TEST, tile_agent
from tests.support.repo import changed, git, isolate, make_repo, snapshot, write

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return make_repo(tmp_path, COUNTED)


def test_a_plan_says_what_a_run_then_does(repo: Path) -> None:
    marker = repo.parent / "ran"
    conftest = (
        "import pathlib, pytest\n\n\n"
        "@pytest.fixture(autouse=True)\n"
        "def seen():\n"
        f"    pathlib.Path({str(marker)!r}).touch()\n"
    )
    write(repo, {"tests/conftest.py": conftest})
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--no-gpg-sign", "--message", "Tell when a test runs")
    before = snapshot(repo)
    objects = sorted((repo / ".git" / "objects").iterdir())
    # not confined: a test that ran could leave its mark
    options = ("--kernel", "double.py", "--only", "block-size", "--sandbox", "off")
    planned = tile_agent(repo, "plan", *options, "--json")
    assert planned.code == 0, planned.err
    told = tile_agent(repo, "run", "--dry-run", *options)
    assert told.code == 0, told.err
    assert snapshot(repo) == before
    assert sorted((repo / ".git" / "objects").iterdir()) == objects
    assert not (repo / ".git" / "worktrees").exists()
    assert not marker.exists()  # collected, and not run
    plan = planned.json
    assert [kernel["name"] for kernel in plan["kernels"]] == ["double_kernel"]
    assert plan["tests"]["correctness"] == ["tests/test_double.py::test_double_triton"]
    assert plan["tests"]["perf"] == ["tests/test_double.py::test_perf_double_triton"]
    assert plan["branch"] == usual_branch(Path("double.py"))
    assert (plan["earlier"], plan["refusal"], plan["launches"]) == (None, "", [])
    (entry,) = plan["entries"]["tried"]
    count = len(entry["variants"])
    assert f"[ 1] try    block-size: {count} variants" in told.out
    assert "no earlier run on this kernel says how long it takes" in told.out
    assert told.out.splitlines()[-1] == "Nothing was run or changed."

    ran = tile_agent(repo, "run", *options, "--max-iterations", "1", "--json")
    assert ran.code in (0, 3, 5), ran.err
    assert f"try    block-size: {count} variants" in ran.err
    assert marker.exists()
    assert git(repo, "rev-parse", "--verify", plan["branch"])

    # A plan of a branch that is taken is refused, as the run would be.
    taken = tile_agent(repo, "plan", "--kernel", "double.py", "--branch", plan["branch"])
    assert taken.code == 2
    assert plan["branch"] in taken.err
    again = tile_agent(repo, "plan", "--kernel", "double.py", "--json").json
    assert again["branch"] == f"{plan['branch']}-2", "another of the same day"
    assert again["earlier"]["run_id"] == ran.json["run"]
    assert again["earlier"]["same_text"] is True
    assert again["earlier"]["iterations"] == 1
    assert again["earlier"]["baseline_s"] > 0 < again["earlier"]["calibration_s"]
    assert again["launches"][0]["kernel"] == "double_kernel"
    assert again["cost"][0].startswith(f"as run {ran.json['run']} took on ")
    assert not any(line.startswith("that run had") for line in again["cost"])
    write(repo, {"tests/test_more.py": "import double\n\n\ndef test_more(): ...\n"})
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--no-gpg-sign", "--message", "Another test")
    other = tile_agent(repo, "plan", "--kernel", "double.py", "--json").json
    told = "that run had 1 correctness and 1 perf tests, this one would have 2 and 1"
    assert other["cost"][-1] == told


def test_without_a_gpu_it_says_what_one_would_have_tried(repo: Path) -> None:
    found = tile_agent(repo, "plan", "--kernel", "double.py", "--json").json["entries"]
    here = {each["optimization"] for each in found["tried"]}
    besides = {each["optimization"]: each["variants"] for each in found["on_gpu"]}
    assert "blocks-and-warps" in besides and not here & set(besides)
    told = tile_agent(repo, "plan", "--kernel", "double.py").out
    count = len(besides["blocks-and-warps"])
    (line,) = (line for line in told.splitlines() if line.startswith("on a GPU   besides"))
    assert "(as for sm_90): " in line and f"blocks-and-warps ({count} variants)" in line


def test_helpers_are_no_kernels_of_the_plan(repo: Path) -> None:
    kernel = (repo / "double.py").read_text()
    helpers = (
        "@triton.jit\ndef one(x):\n    return x\n\n\n"
        "@triton.jit\ndef two(x):\n    return one(x)\n\n\n"
    )
    write(repo, {"double.py": kernel.replace("@triton.jit", f"{helpers}@triton.jit", 1)})
    git(repo, "commit", "--quiet", "--no-gpg-sign", "--all", "--message", "Helpers")
    told = tile_agent(repo, "plan", "--kernel", "double.py").out.splitlines()
    assert [line.split()[0] for line in told if ": launched by " in line] == ["double_kernel,"]
    assert "           called by two: one (line 11)" in told
    assert "           neither launched nor called by what is seen: two (line 16)" in told


@pytest.mark.parametrize("parameter", ["**meta", "*rest"])
def test_parameters_that_no_launch_can_give_are_refused(parameter: str, repo: Path) -> None:
    kernel = (repo / "double.py").read_text()
    given = kernel.replace("SIZE: tl.constexpr", f"SIZE: tl.constexpr, {parameter}", 1)
    assert given != kernel
    write(repo, {"double.py": given})
    git(repo, "commit", "--quiet", "--no-gpg-sign", "--all", "--message", "Any")
    planned = tile_agent(repo, "plan", "--kernel", "double.py")
    assert planned.code == 3, planned.err
    why = f"double_kernel takes {parameter}, "
    assert why in planned.out.splitlines()[0]
    ran = tile_agent(repo, "run", "--kernel", "double.py", "--yes")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert why in ran.err


HELPERS = """\
import triton


@triton.jit
def square(x):
    return x * x


@triton.jit
def cube(x):
    return x * square(x)
"""
CALLING = """\
import triton
import triton.language as tl
from helpers import cube


@triton.jit
def cube_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n)
    tl.store(y_ptr + places, cube(x), mask=places < n)
"""
LAUNCHING = """\
import torch
from calling import cube_kernel


def cubed(x):
    y = torch.empty_like(x)
    cube_kernel[(1,)](x, y, x.numel(), BLOCK=1024)
    return y
"""
TESTING = """\
import helpers
import torch
from launching import cubed


def test_cubed():
    x = torch.randn(1000)
    torch.testing.assert_close(cubed(x), x**3)
"""


def test_a_file_of_helpers_is_told_with_who_launches_what_calls_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    files = {"calling.py": CALLING, "launching.py": LAUNCHING, "test_cubed.py": TESTING}
    repo = make_repo(tmp_path, files | {"helpers.py": HELPERS})
    why = (
        "helpers.py holds helpers alone, square, cube, called by cube_kernel of calling.py, "
        "launched by launching.py: name calling.py instead"
    )
    ended = tile_agent(repo, "plan", "--kernel", "helpers.py")
    assert ended.code == 3, ended.err
    refused, _, *kernels = ended.out.splitlines()
    assert refused == f"refused    no run can begin here: {why}"
    assert kernels[:2] == [
        "           called by cube: square (line 5)",
        "           called by cube_kernel of calling.py, launched by launching.py: cube (line 10)",
    ]
    ran = tile_agent(repo, "run", "--kernel", "helpers.py", "--yes")
    assert (ran.code, ran.err) == (2, f"tile-agent: {why}\n")
    told = tile_agent(repo, "plan", "--kernel", "calling.py").out
    assert "           launched by launching.py: cube_kernel (line 7)\n" in told
    other = HELPERS.replace("def square", "def apart").replace("square(x)", "x")
    write(repo, {"helpers.py": other})  # `apart` may be launched where nobody sees it
    git(repo, "commit", "--quiet", "--no-gpg-sign", "--all", "--message", "Apart")
    assert "helpers alone" not in tile_agent(repo, "plan", "--kernel", "helpers.py").out


def test_a_run_that_would_try_nothing_is_no_fault(repo: Path) -> None:
    ended = tile_agent(repo, "plan", "--kernel", "double.py", "--only", "warps-by-row", "--json")
    assert ended.code == 3, ended.err
    entries = ended.json["entries"]
    assert entries["tried"] == []
    (why,) = entries["passed_over"]
    assert why["optimizations"] == ["warps-by-row"]
    assert why["reason"]


def test_what_the_run_refuses_the_plan_refuses(repo: Path) -> None:
    (repo / "double.py").write_text((repo / "double.py").read_text() + "\n# changed\n")
    planned = tile_agent(repo, "plan", "--kernel", "double.py")
    ran = tile_agent(repo, "run", "--kernel", "double.py")
    assert (planned.code, planned.err) == (ran.code, ran.err)
    assert planned.code == 2
    assert "uncommitted changes" in planned.err


@pytest.mark.parametrize(
    ("reason", "near_miss", "foreign"),
    [
        ("BLOCK of k: what the launch at line 27 gives is computed: `f(n)`", True, False),
        ("looks for tl.exp(x * s), and line 15 of k gives `tl.load(p)`", True, False),
        ("no launched kernel divides by tl.sqrt(...)", False, True),
        ("k has no loop", False, True),
        ("k is not autotuned", False, True),
        ("BLOCK_SIZE of k is one number: see warps-and-stages", False, False),
        ("Triton's interpreter has no warps that a short row leaves idle", False, False),
    ],
)
def test_a_reason_that_shows_a_place_is_a_near_miss(
    reason: str, near_miss: bool, foreign: bool
) -> None:
    found = passed_over(reason, ["entry"])
    assert (found.near_miss, found.foreign) == (near_miss, foreign)


def test_a_plan_says_at_once_that_gpu_and_tests_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    repo = make_repo(
        tmp_path, {"softmax.py": (EXAMPLES / "cutile_softmax" / "softmax.py").read_text()}
    )
    told = tile_agent(repo, "run", "--dry-run", "--kernel", "softmax.py")
    assert told.code == 3, told.err
    first, second, *_ = told.out.splitlines()
    assert first.startswith("refused    no run can begin here: cuTile runs on an NVIDIA GPU only")
    assert "`pytest --tile-cpu` work without; and no committed test imports softmax.py" in first
    assert second.startswith("kernel     softmax.py (cutile")
    refused = tile_agent(repo, "run", "--kernel", "softmax.py")
    assert refused.code == 2
    assert "NVIDIA GPU" in refused.err and "no committed test imports softmax.py" in refused.err
    wrong = tile_agent(repo, "plan", "--kernel", "softmax.py", "--tests", "nope.py")
    assert wrong.code == 2
    assert "NVIDIA GPU" in wrong.err and "nope.py is not in the repository" in wrong.err


@pytest.mark.parametrize("with_tests", [False, True])
def test_without_perf_tests_it_says_what_applies_to_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_tests: bool
) -> None:
    isolate(monkeypatch, tmp_path)
    right = TEST.partition("def test_perf")[0]
    files = {"double.py": KERNEL} | ({"test_double.py": right} if with_tests else {})
    repo = make_repo(tmp_path, files)
    before = snapshot(repo)
    told = tile_agent(repo, "plan", "--kernel", "double.py")
    assert told.code == 3, told.err
    lines = told.out.splitlines()
    missing = "no perf tests among" if with_tests else "no committed test imports double.py"
    assert lines[0].startswith(f"refused    no run can begin here: {missing}")
    assert any(line.startswith("[ 1] try    ") for line in lines)
    assert any(line.startswith("on a GPU   besides") for line in lines)
    assert (
        "unknown    without them: what launches give the kernels, which of them takes most time, "
        "what a run costs"
    ) in lines
    assert changed(before, snapshot(repo)) == set()
    refused = tile_agent(repo, "run", "--kernel", "double.py")
    assert (refused.code, missing in refused.err) == (2, True)


def test_where_tests_cannot_be_collected_it_says_what_applies_to_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    lacking = f"import no_such_module\n{TEST}"
    repo = make_repo(tmp_path, {"double.py": KERNEL, "test_double.py": lacking})
    told = tile_agent(repo, "plan", "--kernel", "double.py")
    assert told.code == 3, told.err
    lines = told.out.splitlines()
    assert lines[0].startswith("refused    no run can begin here: ")
    assert "no_such_module" in lines[0]
    assert any(line.startswith("[ 1] try    ") for line in lines)
    chosen = tile_agent(repo, "plan", "--kernel", "double.py", "--tests", "test_double.py")
    assert (chosen.code, "no_such_module" in chosen.err) == (2, True)
