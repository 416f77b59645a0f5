"""`tile-agent autotune`: what it prints, what it changes, and what it refuses."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from agent.environment import probe
from agent.errors import ExitCode
from tests.support.project import tile_agent
from tests.tuning import sources

EXAMPLES = Path(__file__).parents[2] / "examples" / "cutile_autotune_matmul"
needs_tileiras = pytest.mark.skipif(
    probe().tileiras is None or probe().versions["cuda-tile"] is None,
    reason="tileiras is not installed",
)


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """The worked matmul, as it is before."""
    file = tmp_path / "matmul.py"
    shutil.copy(EXAMPLES / "matmul_fixed.py", file)
    return file


def test_the_diff_is_printed_and_nothing_changes(kernel: Path) -> None:
    before = kernel.read_bytes()
    done = tile_agent(kernel.parent, "autotune", "--kernel", "matmul.py")
    assert done.code == 0
    assert kernel.read_bytes() == before
    assert "matmul_kernel: T3, matrix product" in done.err
    assert "searches TILE_M, TILE_N, TILE_K, occupancy, num_ctas" in done.err
    (kernel.parent / "change.diff").write_text(done.out)
    subprocess.run(["git", "apply", "change.diff"], cwd=kernel.parent, check=True)
    assert kernel.read_text() == (EXAMPLES / "matmul_tuned.py").read_text()


def test_write_writes_and_a_second_time_refuses(kernel: Path) -> None:
    done = tile_agent(kernel.parent, "autotune", "--kernel", "matmul.py", "--write")
    assert done.code == 0
    written = kernel.read_bytes()
    assert written == (EXAMPLES / "matmul_tuned.py").read_bytes()
    again = tile_agent(kernel.parent, "autotune", "--kernel", "matmul.py", "--write")
    assert again.code == ExitCode.USAGE
    assert "matmul_kernel is tuned at line" in again.err
    assert kernel.read_bytes() == written


def test_json_says_what_was_chosen(kernel: Path) -> None:
    done = tile_agent(kernel.parent, "autotune", "--kernel", "matmul.py", "--json")
    found = done.json
    assert found["template"] == "T3"
    assert found["dimensions"] == ["TILE_M", "TILE_N", "TILE_K", "occupancy", "num_ctas"]
    assert found["configs"] <= 30
    assert [128, 128, 64, 2, 1] in found["space"]["sm_90"]
    assert found["written"] is False
    assert found["diff"].startswith("--- a/matmul.py\n+++ b/matmul.py\n")


def test_another_template(kernel: Path) -> None:
    done = tile_agent(
        kernel.parent, "autotune", "--kernel", "matmul.py", "--template", "T1", "--json"
    )
    assert done.json["dimensions"] == ["occupancy"]
    assert "T1 was asked for" in done.err


@pytest.mark.full
@needs_tileiras
def test_the_configs_are_compiled(tmp_path: Path) -> None:
    (tmp_path / "scale.py").write_text(sources.IN_PLACE)
    done = tile_agent(tmp_path, "autotune", "--kernel", "scale.py", "--compile", "sm_90", "--json")
    assert done.code == 0
    found = done.json["compiled"]["sm_90"]
    assert [result["config"]["occupancy"] for result in found] == [4, 1, 2, 8]
    assert all(result["ok"] for result in found)


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        (sources.ROWS, ["--template", "T3"], "T3 is for a matrix product"),
        (sources.ROWS, ["--function", "other"], "name one of the kernels that the file launches"),
        ("import triton\n\n@triton.jit\ndef k(x): ...\n", [], "Triton has @triton.autotune"),
        ("x = 1\n", [], "holds no tile kernel"),
    ],
)
def test_refusals_are_one_line(
    tmp_path: Path, text: str, arguments: list[str], reason: str
) -> None:
    (tmp_path / "kernel.py").write_text(text)
    done = tile_agent(tmp_path, "autotune", "--kernel", "kernel.py", *arguments)
    assert done.code == ExitCode.USAGE
    assert reason in done.err
    assert done.err.count("\n") == 1
    assert (tmp_path / "kernel.py").read_text() == text
