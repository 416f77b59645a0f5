"""The table, byte for byte, and how it gets onto the disk."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest

from agent.measuring.decision import Status
from agent.report.table import render, write
from agent.state import Row

BASELINE = Row(0, "baseline", 0.82, True, Status.KEEP)
GATHER = Row(1, "TMA replace gather", 0.39, True, Status.KEEP)
ROWS = (BASELINE, GATHER)
GOLDEN = """\
| iteration | optimization       | latency_ms | correctness | status |
|----------:|:-------------------|-----------:|:------------|-------:|
|         0 | baseline           |   0.820000 | PASS        |   keep |
|         1 | TMA replace gather |   0.390000 | PASS        |   keep |
"""
EVERY = (
    *ROWS,
    Row(2, "occupancy hint (occupancy=4)", 1234.5678901, True, Status.REVERT),
    Row(3, "a | b", None, False, Status.CRASH),
    Row(10, "two\nlines", None, False, Status.REVERT),
)
EVERY_GOLDEN = """\
| iteration | optimization                 | latency_ms  | correctness | status |
|----------:|:-----------------------------|------------:|:------------|-------:|
|         0 | baseline                     |    0.820000 | PASS        |   keep |
|         1 | TMA replace gather           |    0.390000 | PASS        |   keep |
|         2 | occupancy hint (occupancy=4) | 1234.567890 | PASS        | revert |
|         3 | a \\| b                       |         nan | FAIL        |  crash |
|        10 | two lines                    |         nan | FAIL        | revert |
"""


def read_back(text: str) -> pd.DataFrame:
    """As a person would: split at the pipes, drop the rule."""
    frame = pd.read_csv(
        io.StringIO(text), sep=r"\s*(?<!\\)\|\s*", engine="python", skiprows=[1]
    ).iloc[:, 1:-1]
    frame.columns = frame.columns.str.strip()
    return frame


def test_the_layout_is_tilegyms() -> None:
    assert render(ROWS) == GOLDEN


def test_every_kind_of_row() -> None:
    assert render(EVERY) == EVERY_GOLDEN


def test_a_table_without_rows_is_its_head() -> None:
    assert render(()) == (
        "| iteration | optimization | latency_ms | correctness | status |\n"
        "|----------:|:-------------|-----------:|:------------|-------:|\n"
    )


@pytest.mark.parametrize("title", ["a\nb", "a\r\nb", "a\rb", "a\n\n|b", "a\u2028b"])
def test_a_title_stays_on_one_line(title: str) -> None:
    text = render([Row(1, title, None, False, Status.CRASH)])
    assert len(text.splitlines()) == 3


def test_pandas_reads_it_back() -> None:
    frame = read_back(render(EVERY))
    assert list(frame.columns) == [
        "iteration",
        "optimization",
        "latency_ms",
        "correctness",
        "status",
    ]
    assert frame["iteration"].tolist() == [0, 1, 2, 3, 10]
    assert frame["optimization"].tolist() == [
        "baseline",
        "TMA replace gather",
        "occupancy hint (occupancy=4)",
        "a \\| b",
        "two lines",
    ]
    assert frame["latency_ms"].isna().tolist() == [False, False, False, True, True]
    assert frame["latency_ms"][:3].tolist() == [0.82, 0.39, 1234.56789]
    assert frame["status"].tolist() == ["keep", "keep", "revert", "crash", "revert"]


def test_writing_replaces_the_table(tmp_path: Path) -> None:
    path = tmp_path / "perf_results.md"
    path.write_text("old and much longer\n" * 100)
    write(path, ROWS)
    assert path.read_text() == GOLDEN
    assert os.listdir(tmp_path) == ["perf_results.md"]  # noqa: PTH208


def test_a_table_that_is_in_place_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "perf_results.md"
    write(path, ROWS)
    before = path.stat()
    write(path, ROWS)
    assert path.stat() == before
    path.write_text("| by hand |\n")
    write(path, ROWS)
    assert path.read_text() == GOLDEN


def test_a_new_table_can_be_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "perf_results.md"
    write(path, ROWS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o640])
def test_the_permission_of_an_existing_table_stays(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "perf_results.md"
    write(path, ROWS)
    path.chmod(mode)
    write(path, EVERY)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_reader_never_sees_half_a_table(tmp_path: Path) -> None:
    path = tmp_path / "perf_results.md"
    short, long = ROWS, tuple(Row(n, "x" * 200, 1.0, True, Status.KEEP) for n in range(500))
    whole = {render(short), render(long)}
    write(path, short)
    done = threading.Event()
    seen: set[str] = set()

    def look() -> None:
        while not done.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(40):
        write(path, long)
        write(path, short)
    done.set()
    reader.join()
    assert seen <= whole


def test_a_full_disk_leaves_the_old_table_and_no_litter(tmp_path: Path) -> None:
    """A limit on the file size stands in for a full disk."""
    path = tmp_path / "perf_results.md"
    write(path, ROWS)
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from agent.measuring.decision import Status\n"
        "from agent.report.table import write\n"
        "from agent.state import Row\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try:\n"
        "    write(Path(sys.argv[1]), [Row(0, 'x' * 500, 1.0, True, Status.KEEP)])\n"
        "except OSError as problem:\n"
        "    print('refused')\n"
    )
    root = Path(__file__).parent.parent
    command = [sys.executable, "-c", script, str(path)]
    end = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert end.stdout == "refused\n"
    assert path.read_text() == GOLDEN
    assert [p.name for p in tmp_path.iterdir()] == ["perf_results.md"]


def test_a_folder_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        write(tmp_path / "missing" / "perf_results.md", ROWS)
