"""`tile-agent port`: what it writes, what it says of the check, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agent.errors import ExitCode
from tests.support.project import tile_agent

SOFTMAX = Path(__file__).parents[2] / "benchmarks" / "triton" / "softmax"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A kernel with the tests that call it."""
    for file in SOFTMAX.glob("*.py"):
        shutil.copy(file, tmp_path)
    return tmp_path


def test_it_writes_a_file_and_says_how_it_was_checked(folder: Path) -> None:
    done = tile_agent(folder, "port", "--kernel", "softmax.py", "--json")
    assert done.code == 0
    told = json.loads(done.out)
    assert told["kernels"] == ["softmax_kernel"]
    assert told["check"]["calls"] == 8
    assert told["check"]["problems"] == []
    assert "ct.launch(" in (folder / "softmax_cutile.py").read_text()
    again = tile_agent(folder, "port", "--kernel", "softmax.py")
    assert again.code == ExitCode.USAGE
    assert "softmax_cutile.py exists" in again.err


def test_tests_are_found_through_the_package_and_import_it_from_src(tmp_path: Path) -> None:
    package = tmp_path / "src" / "pkg"
    (package / "ops").mkdir(parents=True)
    shutil.copy(SOFTMAX / "softmax.py", package / "ops")
    (package / "ops" / "__init__.py").touch()
    (package / "__init__.py").write_text("from pkg.ops.softmax import softmax\n")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_all.py").write_text(
        "import pkg\nimport torch\n\n\ndef test_rows():\n"
        "    assert pkg.softmax(torch.ones(2, 8)).sum() == 2\n"
    )
    done = tile_agent(tmp_path, "port", "--kernel", "src/pkg/ops/softmax.py")
    assert done.code == 0
    assert "calls of tests/test_all.py" in done.err
    assert "checked: 1 call of 1 test agrees with" in done.out


def test_an_operator_of_the_origin_is_judged_under_its_name(folder: Path) -> None:
    text = (folder / "softmax.py").read_text()
    decorator = '@torch.library.custom_op("mine::softmax", mutates_args=())\n'
    (folder / "softmax.py").write_text(text.replace("def softmax(", f"{decorator}def softmax("))
    (folder / "test_softmax.py").write_text(
        "import torch\n\nimport softmax\n\n\ndef test_rows():\n"
        "    assert torch.ops.mine.softmax(torch.ones(2, 8)).sum() == 2\n"
    )
    done = tile_agent(folder, "port", "--kernel", "softmax.py")
    assert done.code == 0
    assert "checked: 1 test of the origin passes on the port" in done.out
    assert "the operator mine::softmax is mine_cutile::softmax here" in done.out


def test_what_pytest_benchmark_times_is_called_once(folder: Path) -> None:
    """A project's own grouping would end the session, where a test lacks what it groups by."""
    pytest.importorskip("pytest_benchmark")
    (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = "--benchmark-only --benchmark-group-by=param:rows"\n'
    )
    (folder / "test_softmax.py").write_text(
        "import pytest\nimport torch\n\nimport softmax\n\n\n"
        "@pytest.mark.parametrize('rows', [2, 4])\n"
        "def test_perf_rows(benchmark, rows):\n"
        "    benchmark(softmax.softmax, torch.ones(rows, 8))\n\n\n"
        "def test_perf_one(benchmark):\n"
        "    benchmark(softmax.softmax, torch.ones(1, 8))\n"
    )
    done = tile_agent(folder, "port", "--kernel", "softmax.py")
    assert done.code == 0
    assert "checked: 3 calls of 3 tests agree with the origin" in done.out


def test_without_tests_it_says_that_it_is_unchecked(folder: Path) -> None:
    (folder / "test_softmax.py").unlink()
    done = tile_agent(folder, "port", "--kernel", "softmax.py", "--output", "new.py")
    assert done.code == 0
    assert "unchecked: no test of it was found" in done.out
    assert "next: put it into a git repository with tests, and commit both" in done.out
    assert (folder / "new.py").exists()


def test_within_a_repository_a_run_is_next(folder: Path) -> None:
    (folder / ".git").mkdir()
    done = tile_agent(folder, "port", "--kernel", "softmax.py", "--no-check")
    assert "next: commit it with tests, and `tile-agent run --kernel softmax_cutile.py`" in done.out


def test_tests_that_cannot_be_imported_are_said_to_be_so(folder: Path) -> None:
    tests = folder / "test_softmax.py"
    tests.write_text(f"import no_such_module\n{tests.read_text()}")
    done = tile_agent(folder, "port", "--kernel", "softmax.py")
    assert done.code == 0
    why = "test_softmax.py:1: ModuleNotFoundError: No module named 'no_such_module'"
    assert f"unchecked: the tests cannot be imported: {why}\n" in done.out
    assert "  to check it: install what provides no_such_module for " in done.out
    assert "then tile-agent port --kernel softmax.py --output OTHER\n" in done.out


def test_a_refusal_is_one_line_and_writes_nothing(folder: Path) -> None:
    text = (folder / "softmax.py").read_text()
    (folder / "softmax.py").write_text(text.replace("tl.exp(", "tl.erf("))
    done = tile_agent(folder, "port", "--kernel", "softmax.py")
    assert done.code == ExitCode.USAGE
    assert done.out == ""
    assert done.err == (
        "tile-agent: softmax.py:15: `tl.erf` is not ported: cuTile has no equivalent that is known "
        "here: write it out\n"
    )
    assert not (folder / "softmax_cutile.py").exists()


def test_it_takes_triton_kernels_only(folder: Path) -> None:
    (folder / "tile.py").write_text("import cuda.tile as ct\n\n\n@ct.kernel\ndef k(x):\n    pass\n")
    done = tile_agent(folder, "port", "--kernel", "tile.py")
    assert done.code == ExitCode.USAGE
    assert "port writes cuTile's version of Triton's" in done.err
