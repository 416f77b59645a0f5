"""What is printed: drawn on a terminal, plain everywhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent.cli.drawing import labelled, parts
from agent.measuring.decision import Status
from agent.report.table import render
from agent.state import Row

TEXT = f"""\
3 iterations [bold] :smile:
{render([Row(0, "baseline", 0.82, True, Status.KEEP), Row(1, "a | b", None, False, Status.CRASH)])}
| no table
done"""
SCRIPT = f"from agent.cli import output; output.result({{}}, {TEXT!r}); output.progress('stop  x')"


def on_a_terminal(script: str) -> str:
    """What a program writes when a terminal is its stdout and stderr."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    command = [sys.executable, "-c", script]
    root = Path(__file__).parents[2]
    program = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment, cwd=root)
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert program.wait() == 0
    return seen.decode()


def test_a_pipe_gets_the_text_as_it_is() -> None:
    command = [sys.executable, "-c", SCRIPT]
    end = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (end.stdout, end.stderr) == (f"{TEXT}\n", "stop  x\n")


def test_a_terminal_gets_tables_with_lines() -> None:
    seen = on_a_terminal(SCRIPT)
    assert "3 iterations [bold] :smile:" in seen
    assert "━" in seen and "|---" not in seen
    assert "a | b" in seen and "\x1b[" in seen
    assert "| no table" in seen


def test_the_parts_of_a_text() -> None:
    before, table, after = parts(TEXT)
    assert isinstance(before, Text) and isinstance(table, Table) and isinstance(after, Text)
    assert [column.justify for column in table.columns] == [
        *("right", "left", "right", "left", "right")
    ]
    assert table.row_count == 2
    console = Console(width=200)
    with console.capture() as seen:
        console.print(table)
    assert "0.820000" in seen.get()


@pytest.mark.parametrize(
    ("line", "word", "style"),
    [
        ("baseline   0.1 ms", "baseline", "dim"),
        ("     keep   faster", "keep", "bold green"),
        ("[ 1] try    a: b", "try", "dim"),
    ],
)
def test_a_line_of_progress_has_its_word_in_color(line: str, word: str, style: str) -> None:
    found = labelled(line)
    assert found.plain == line
    ((begin, end, given),) = found.spans
    assert (line[begin:end], given) == (word, style)


def test_a_traceback_shows_no_secret() -> None:
    program = (
        "import sys\n"
        "from agent.cli import output\n"
        "sys.excepthook = output.print_traceback\n"
        "raise RuntimeError('postgres://me:a-long-password@db refuses correct-horse-battery')\n"
    )
    environment = {"MY_API_KEY": "correct-horse-battery"}
    end = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert end.returncode == 1
    assert "Traceback (most recent call last)" in end.stderr
    assert "a-long-password" not in end.stderr
    assert "correct-horse" not in end.stderr.splitlines()[-1]
