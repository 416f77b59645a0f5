"""What is said where the tests fail on the user's own code, before any change."""

from __future__ import annotations

import re
import shlex

from agent.errors import BaselineFailed
from agent.frozen_tests import TestPlan
from agent.harness.processes.confinement import remedy
from agent.harness.processes.wanted_gpu import remedy as of_no_gpu
from agent.measuring.measurement import Failure
from agent.options import Options
from agent.target import CAPTURED

MOST_NAMED = 8
"""Of the functions that fail; of more it is quicker to name the others."""
_TEST = re.compile(r"\S+\.py::(?:\w+::)*(\w+)")


def failed_baseline(
    kind: str, options: Options, failure: Failure, tests: TestPlan
) -> BaselineFailed:
    """The error of a run whose tests, of this kind, fail on the user's own code."""
    reason = failure.reason
    way_out = remedy(options, reason) or of_no_gpu(reason) or _others(kind, failure, tests)
    return BaselineFailed(f"the {kind} tests fail before any change: {reason}{way_out}")


def _others(kind: str, failure: Failure, tests: TestPlan) -> str:
    """How to do without the tests that fail; empty where the reason names none."""
    first = _TEST.match(failure.reason)
    if first is None:
        return ""
    lines = [first, *map(_TEST.match, failure.detail.splitlines())]
    names = list(dict.fromkeys(found[1] for found in lines if found))
    if kind == "perf":
        return f": mend it, or leave {names[0]} out with --perf-k"
    them = " or ".join(names)
    without = f"not {them}" if len(names) == 1 else f"not ({them})"
    asked = tests.correctness_k
    if failure.reason.partition("::")[0].endswith(CAPTURED) and "not close" in failure.reason:
        return (
            ": it compares the file with itself, so two calls with the same arguments differ, "
            "because programs write the same places or read what nothing has written: capture "
            f"a command that makes no such call, or leave it out by --correctness-k '{without}'"
        )
    whole_files = any(name in file for name in names for file in tests.files)  # -k looks there, too
    if whole_files or len(names) > MOST_NAMED:
        return ": mend it, or name the others with --tests FILE::TEST"
    chosen = f"({asked}) and {without}" if asked else f"{without} and not perf"
    return f": mend it, or leave it out, such as with --correctness-k {shlex.quote(chosen)}"
