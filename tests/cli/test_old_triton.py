"""Where the tests' interpreter has a Triton that is too old, every command says so in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.errors import ExitCode, UsageError
from agent.harness.processes.interpreter import check_triton, check_triton_of
from tests.support.project import PROJECT, tile_agent
from tests.support.repo import isolate, make_repo, write

REFUSAL = " has triton 3.2.0, and tile-agent needs 3.4 or newer: install torch 2.8 or newer there"
PYTHON = """\
#!/bin/sh
PYTHONPATH="{site}:$PYTHONPATH" exec "{python}" "$@"
"""
"""Our own interpreter, of which the facts tell another version."""
METADATA = "Metadata-Version: 2.1\nName: triton\nVersion: 3.2.0\n"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    site = tmp_path / "old" / "site"
    write(site, {"triton-3.2.0.dist-info/METADATA": METADATA})
    python = tmp_path / "old" / "python"
    python.write_text(PYTHON.format(site=site, python=sys.executable))
    python.chmod(0o755)
    return python


@pytest.mark.parametrize(
    "words",
    [
        "plan --kernel double.py --python {python}",
        "verify --kernel double.py --python {python}",
        "run --kernel double.py --yes --python {python}",
        "explain --kernel double.py --python {python}",
        "diagnose --kernel double.py --python {python}",
        "capture --kernel double.py -- {python} -c print()",
        "profile -- {python} -c print()",
    ],
    ids=lambda words: words.partition(" ")[0],
)
def test_a_command_ends_with_one_line(
    words: str, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    repo = make_repo(tmp_path / "work", PROJECT)
    end = tile_agent(repo, *words.format(python=old).split())
    assert end.code == ExitCode.USAGE, end.err
    assert end.err.rstrip().endswith(REFUSAL), end.err
    assert "Traceback" not in end.err


def test_doctor_does_not_call_it_ready(old: Path, tmp_path: Path) -> None:
    end = tile_agent(tmp_path, "doctor", "--python", str(old))
    assert end.code == 0, end.err
    assert any(line.split()[:3] == ["triton", "not", "usable:"] for line in end.out.splitlines())
    assert REFUSAL in end.out


def test_a_command_is_asked_by_the_python_that_it_runs_in(old: Path, tmp_path: Path) -> None:
    script = tmp_path / "pytest"
    script.write_text(f"#!{old}\n")
    script.chmod(0o755)
    for command in ([str(old)], [str(script), "-q"]):
        with pytest.raises(UsageError, match=REFUSAL.strip()):
            check_triton_of(command)
    shell = tmp_path / "job"
    shell.write_text(f"#!/bin/sh\n{old}\n")
    shell.chmod(0o755)
    for command in ([str(shell)], ["no-such-program"], [], [sys.executable]):
        check_triton_of(command)


def test_a_command_whose_python_tells_nothing_is_started(tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    check_triton_of([str(broken)])
    with pytest.raises(UsageError, match="cannot tell"):
        check_triton(str(broken))
