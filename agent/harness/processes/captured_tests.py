"""Runs captured tests on the code that they were captured of."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Collection, Sequence
from pathlib import Path

from agent import environment as machine
from agent.backends import BACKENDS
from agent.harness.processes.collection_errors import (
    end_of,
    fault,
    not_handed_on,
    read_in_vain,
)
from agent.harness.processes.script import plugin_folder, run_script

TIMEOUT_S = 180.0
MOST_SHOWN = 240
"""Characters of a reason."""
_OURS = "tile_agent_pytest.guards."
"""Before the name of an exception that a kernel's address raises."""


def failing_cases(
    test: Path,
    cwd: Path,
    backend: str,
    sys_path: Sequence[Path] = (),
    suffix: str = "",
    passed: Collection[str] = (),
    python: str = sys.executable,
) -> dict[tuple[str, str], str] | str:
    """The correctness tests of a captured file that fail.

    Args:
        test: the file, which is in place.
        cwd: where pytest runs.
        backend: of its kernel.
        sys_path: what comes first there.
        suffix: behind the names of its tests, which is left out of what is returned.
        passed: names of variables that the user hands on, as a run's workers get them.
        python: the interpreter.

    Returns:
        (test, case) -> why, in a line; or why pytest did not come to its end.
    """
    environment = machine.probe()
    variables = BACKENDS[backend].worker_environment(environment)
    variables = {**variables, "PYTHONDONTWRITEBYTECODE": "1"}  # nothing of ours is left there
    # as in a run
    ours = ["tuning_plugin"] if environment.gpu else ["mending_plugin"]
    if variables.get("TRITON_INTERPRET") == "1":
        ours.append("guarding_plugin")
    with tempfile.TemporaryDirectory(prefix="tile-agent-captured-") as folder:
        theirs = filter(None, [os.environ.get("PYTHONPATH")])
        path = [*map(str, [*sys_path, plugin_folder(Path(folder))]), *theirs]
        report = Path(folder) / "report.xml"
        command = [python, "-m", "pytest", str(test), "-q", "-k", "not test_perf"]
        if environment.gpu is None:
            command += BACKENDS[backend].without_gpu
        bare = ["-p", "no:cacheprovider", "-p", "no:benchmark", "-o", "addopts=", "-o", "log_file="]
        plugins = [part for name in ours for part in ("-p", f"tile_agent_pytest.{name}")]
        ended = run_script(
            [*command, *plugins, *bare, f"--junitxml={report}"],
            {},
            cwd=cwd,
            variables={**variables, "PYTHONPATH": os.pathsep.join(path)},
            scratch=Path(folder),
            timeout_s=TIMEOUT_S,
            passed=passed,
        )
        found = None
        with contextlib.suppress(OSError, ET.ParseError):
            found = _failing(report.read_text(encoding="utf-8"), suffix)
        if found is not None:
            return found
        told = end_of(ended.log) if ended.log else ""
        if not (said := fault(told, cwd)):
            return ended.fate
        held = read_in_vain(told, cwd, passed)
        return f"{said}; {not_handed_on(held)}" if held else said


def _failing(report: str, suffix: str) -> dict[tuple[str, str], str] | None:
    cases = [*ET.fromstring(report).iter("testcase")]
    if not any(case.get("name", "").endswith("]") for case in cases):
        return None  # it was not collected
    found = {}
    for case in cases:
        if (problem := _problem(case)) is not None:
            function, _, name = case.get("name", "").partition("[")
            found[function.removesuffix(suffix), name.removesuffix("]")] = problem
    return found


def _problem(case: ET.Element) -> str | None:
    for kind in ("failure", "error"):
        if (node := case.find(kind)) is not None:
            line = " ".join(node.get("message", "").removeprefix(_OURS).split())
            return line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]} ..."
    return None
