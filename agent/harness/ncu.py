"""Nsight Compute on one perf test: hardware counters, where it is installed and permitted.

Reading counters needs a permission that most containers lack; that is an answer, not a fault. The
test runs as for compile evidence, each timed callable once, since a counter is no timing.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tile_agent_pytest
from agent.errors import UsageError
from agent.evidence.counters import METRICS, Counters, read
from agent.harness.compiling.artifacts import Wanted, prepare
from agent.harness.processes.script import run_script
from agent.harness.processes.worker_session import Checkout

TIMEOUT_S = 120.0
LAUNCHES = 8
"""Launches that are profiled, each replayed for some ten passes: the first of the test."""
PREFIX = "tile-agent-ncu-"
NOT_INSTALLED = "Nsight Compute is not installed: put ncu into PATH for hardware counters"
NOT_PERMITTED = (
    "Nsight Compute may not read the counters (ERR_NVGPUCTRPERM): an administrator can load the "
    "driver with NVreg_RestrictProfilingToAdminUsers=0"
)
_ERROR = re.compile(r"^==ERROR== (?P<text>.*)$", re.MULTILINE)


@dataclass(frozen=True)
class NoCounters:
    """Why there are none."""

    reason: str
    """One line."""


def find_ncu() -> str | None:
    """Path of Nsight Compute; None where there is none."""
    return shutil.which("ncu") or shutil.which("/usr/local/cuda/bin/ncu")


def counters_of(
    checkout: Checkout,
    test: str,
    kernels: Sequence[str],
    wanted: Wanted,
    timeout_s: float = TIMEOUT_S,
) -> tuple[Counters, ...] | NoCounters:
    """Profile the first launches of some kernels in one perf test.

    Args:
        checkout: where the kernel and its tests lie.
        test: a node id.
        kernels: names of the functions to profile.
        wanted: the backend and the interpreter; it is run on this machine's GPU.
        timeout_s: then ncu and the test are killed.
    """
    if (ncu := find_ncu()) is None:
        return NoCounters(NOT_INSTALLED)
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        page = scratch / "page.csv"
        here = replace(wanted, targets=(), has_gpu=True, most=0)
        try:
            job, variables = prepare(checkout, [test], here, timeout_s, scratch)
            # The first launches of a kernel that tunes itself are those of its search.
            variables |= {"DISABLE_AUTOTUNE": "1"}
            ended = run_script(
                [*_command(ncu, page, kernels), *_test(wanted.python)],
                job,
                cwd=checkout.root,
                variables=variables,
                scratch=scratch,
                timeout_s=timeout_s,
                passed=wanted.pass_env,
            )
        except (UsageError, OSError) as problem:
            return NoCounters(f"Nsight Compute cannot be run: {problem}")
        said = "".join(_text(place) for place in (page, scratch / "log"))
        return _result(_text(page), said, ended.fate)


def _command(ncu: str, page: Path, kernels: Sequence[str]) -> list[str]:
    names = "|".join(map(re.escape, kernels))
    return [
        ncu,
        "--csv",
        "--page=raw",
        "--print-units=base",
        f"--log-file={page}",
        f"--metrics={','.join(METRICS)}",
        "--target-processes=all",
        "--clock-control=none",  # the clocks of the timings, and locking them needs permission
        "--kernel-name-base=function",
        f"--kernel-name=regex:({names})",
        f"--launch-count={LAUNCHES}",
        "--kill=yes",
    ]


def _test(python: str) -> list[str]:
    return [python, str(Path(tile_agent_pytest.__file__).parent), "artifacts"]


def _result(page: str, said: str, fate: str) -> tuple[Counters, ...] | NoCounters:
    if "ERR_NVGPUCTRPERM" in said:
        return NoCounters(NOT_PERMITTED)
    try:
        found = read(page)
    except ValueError as problem:
        errors = _ERROR.findall(said) or [str(problem)]
        return NoCounters(f"Nsight Compute told nothing: {errors[0]}; {fate}")
    return found or NoCounters("Nsight Compute saw no launch of the kernel")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
