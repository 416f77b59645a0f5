"""Tests that judge nothing: they skip themselves, or never launch a kernel of the file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.errors import ExitCode
from tests.support.project import KERNEL, PROJECT, TEST, tile_agent
from tests.support.repo import git, isolate, make_repo, write

CORRECTNESS, PERF = TEST.split("\n\n\ndef test_perf")
HEAD = TEST.split("\n\n\n")[0]
PERF = f"{HEAD}\n\n\ndef test_perf{PERF}"


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def repo(tmp_path: Path, tests: str) -> Path:
    return make_repo(tmp_path, {**PROJECT, "tests/test_double.py": tests})


@pytest.mark.full
def test_verify_needs_no_perf_test_and_bench_no_other(tmp_path: Path) -> None:
    checked = tile_agent(repo(tmp_path / "a", CORRECTNESS), "verify", "--kernel", "double.py")
    assert (checked.code, checked.out) == (0, "right: 1 correctness test passes\n")
    timed = tile_agent(repo(tmp_path / "b", PERF), "bench", "--kernel", "double.py")
    assert timed.code == 0
    assert "test_perf_double_triton" in timed.out


def test_correctness_tests_without_a_launch(tmp_path: Path) -> None:
    idle = TEST.replace("torch.testing.assert_close(double(x), 2 * x)", "assert callable(double)")
    root = repo(tmp_path, idle)
    says = (
        "no correctness test launches a kernel of double.py: name those that do with --tests, or "
        "go by the calls of a script: tile-agent run --kernel double.py --capture 'python SCRIPT'"
    )
    for end in (
        tile_agent(root, "verify", "--kernel", "double.py"),
        tile_agent(root, "run", "--yes", "--kernel", "double.py"),
    ):
        assert end.code == ExitCode.USAGE
        assert end.err.splitlines()[-1] == f"tile-agent: {says}"


@pytest.mark.full
def test_a_perf_test_without_a_launch(tmp_path: Path) -> None:
    idle = TEST.replace("tile_bench(lambda: double(x),", "tile_bench(lambda: 2 * x,")
    end = tile_agent(repo(tmp_path, idle), "run", "--yes", "--kernel", "double.py")
    assert end.code == ExitCode.USAGE
    says = "no perf test launches a kernel of double.py: name one with --tests"
    assert end.err.splitlines()[-1] == f"tile-agent: {says}"


@pytest.mark.full
def test_tests_that_skip_themselves(tmp_path: Path) -> None:
    skipping = TEST.replace(
        "\n\n\n", '\n\n\nimport pytest\n\npytestmark = pytest.mark.skip("needs a GPU")\n\n\n', 1
    )
    root = repo(tmp_path, skipping)
    for verb, kind in (("verify", "correctness"), ("bench", "perf")):
        end = tile_agent(root, verb, "--kernel", "double.py")
        assert end.code == 3
        assert f"all 1 {kind} tests skip themselves here: needs a GPU" in end.err + end.out


def test_verify_names_the_tests_that_skip_themselves(tmp_path: Path) -> None:
    skipping = TEST + (
        "\n\nimport pytest\n\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_large_triton(n):\n"
        "    pytest.skip('small GPU')\n\n\ndef test_reference_triton():\n"
        "    import no_such_reference\n"
    )
    root = repo(tmp_path, skipping)
    end = tile_agent(root, "verify", "--kernel", "double.py")
    assert (end.code, end.out.splitlines()) == (
        ExitCode.DONE,
        [
            "right: 1 correctness test passes",
            "skipped on this machine: tests/test_double.py::test_large_triton (2 cases)",
            "skipped on this machine: tests/test_double.py::test_reference_triton",
            "note: not installed, but needed by tests: no_such_reference",
        ],
    ), end.err
    assert "running 4 tests" in end.err.splitlines()
    assert tile_agent(root, "verify", "--kernel", "double.py", "--json").json["skipped"] == [
        "tests/test_double.py::test_large_triton[1]",
        "tests/test_double.py::test_large_triton[2]",
        "tests/test_double.py::test_reference_triton",
    ]


@pytest.mark.full
def test_tests_that_need_what_is_not_installed(tmp_path: Path) -> None:
    needing = "\n\ndef test_against_another_triton():\n    import no_such_reference\n"
    end = tile_agent(
        repo(tmp_path / "some", TEST + needing),
        *("run", "--yes", "--kernel", "double.py", "--max-iterations", "1"),
    )
    assert end.code in (ExitCode.STOPPED, ExitCode.NO_IMPROVEMENT), end.err
    assert "1 test left out, skipped on this machine: tests/test_double.py::test_against" in end.err
    assert "not installed, but needed by tests: no_such_reference" in end.err
    own = needing.replace("no_such_reference", "kernels_of_mine.none")
    root = repo(tmp_path / "own", TEST + own)
    write(root, {"kernels_of_mine/__init__.py": ""})
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "mine")
    end = tile_agent(root, "run", "--yes", "--kernel", "double.py")
    assert (end.code, "kernels_of_mine.none" in end.err) == (ExitCode.USAGE, True)
    only = re.sub(r"(def test_double.*\n)", r"\1    import no_such_reference\n", TEST)
    end = tile_agent(repo(tmp_path / "all", only), "run", "--yes", "--kernel", "double.py")
    assert end.code == ExitCode.USAGE
    assert "ModuleNotFoundError: No module named 'no_such_reference'" in end.err


def test_a_kernel_that_another_file_launches_is_named(tmp_path: Path) -> None:
    kernel, host = KERNEL.split("\n\n\ndef double")
    importing = "import torch\nimport triton\n\nfrom double import BLOCK_SIZE, double_kernel\n"
    idle = TEST.replace("torch.testing.assert_close(double(x), 2 * x)", "assert callable(double)")
    root = repo(tmp_path, idle.replace("from double", "import double as _\nfrom host"))
    write(root, {"double.py": f"{kernel}\n", "host.py": f"{importing}\n\ndef double{host}"})
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "A file for the host")
    end = tile_agent(root, "run", "--yes", "--kernel", "double.py")
    assert "kernel     double.py (triton: double_kernel; memory-bound" in end.err, end.err


def test_verify_without_tests_names_what_needs_none(tmp_path: Path) -> None:
    done = tile_agent(make_repo(tmp_path, {"double.py": KERNEL}), "verify", "--kernel", "double.py")
    assert done.code == ExitCode.USAGE
    assert "no committed test imports double.py" in done.err
    assert "--reference and --shapes have a kernel of Triton compared" in done.err
