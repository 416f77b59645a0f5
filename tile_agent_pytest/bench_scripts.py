"""Benchmark scripts as pytest items: run as `python FILE ARGUMENTS` would, in this process.

A script's timings are taken over as those of a test are (`timing_takeover`), so that it is one item
with a config for each of them. The item is added to what pytest collects and not collected from the
file: pytest would import it, which runs a script that has no guard around its work.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tile_agent_pytest.bench_command import OPTION, BenchCommand
from tile_agent_pytest.written_aside import written_aside


class BenchScript(pytest.Item):
    """A script, or one report of it, as a perf test."""

    def __init__(self, *, command: BenchCommand, **given: Any) -> None:
        super().__init__(**given)
        self.command = command

    def runtest(self) -> None:
        """Run it; whatever it prints is captured as a test's output is."""
        command, file = self.command, self.config.rootpath / self.command.path
        with _as_python_would(file, command.arguments), written_aside(self.config.rootpath):
            if not command.report:
                _run_main(file)
                return
            names = runpy.run_path(str(file), run_name=file.stem)
            run = getattr(names.get(command.report), "run", None)
            if not callable(run):
                raise LookupError(f"{command.path} has no {command.report} under perf_report")
            run()

    def reportinfo(self) -> tuple[str, int, str]:
        """Where it is, for pytest's own lines."""
        return self.command.path, 0, self.name


def collect_no_others(config: pytest.Config) -> None:
    """Where scripts are all that the command line names, nothing is collected beside them: all
    tests of a project would be imported otherwise, and one of them may lack what it imports."""
    if config.getoption(OPTION) and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = []


def add_items(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Put the scripts that the command line names behind the tests that were collected."""
    for text in session.config.getoption(OPTION):
        try:
            command = BenchCommand.parse(text)
        except ValueError as problem:
            raise pytest.UsageError(f"{OPTION} {text!r} {problem}") from problem
        items.append(
            BenchScript.from_parent(
                session, name=command.name, nodeid=command.nodeid, command=command
            )
        )


def _run_main(file: Path) -> None:
    try:
        runpy.run_path(str(file), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise RuntimeError(f"{file.name} ended with exit code {end.code}") from None


@contextlib.contextmanager
def _as_python_would(file: Path, arguments: Sequence[str]) -> Iterator[None]:
    """With its arguments, and its folder where Python looks first; nothing is shown."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(file), *arguments]
    sys.path.insert(0, str(file.parent))
    os.environ.setdefault("MPLBACKEND", "Agg")
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
