"""What became of the tests whose launches were recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.errors import UsageError
from agent.harness.processes.collection_errors import fault_of_log, with_remedy
from agent.harness.processes.script import ScriptEnd
from agent.harness.processes.worker_session import Checkout


class NothingLaunched(UsageError):
    """The tests launch no kernel of the file; the message says why."""


def collection_errors(ended: ScriptEnd) -> list[tuple[str, str]]:
    """What pytest could not collect, each with its account, where it ran no test for that."""
    tested = next((a for a in ended.answers if a["event"] == "tested"), None)
    if tested is None or not tested["uncollected"]:
        return []
    return [(str(nodeid), str(text)) for nodeid, text in tested["errors"]]


def failures_of(checkout: Checkout, tested: Mapping[str, Any], ended: ScriptEnd) -> tuple[str, ...]:
    """What the tests failed for; pytest names the fault of a session that ran none in its log."""
    said = fault_of_log(ended.log, checkout.root) if tested["uncollected"] and ended.log else ""
    if not said:
        why = "; launches are collected with tensors that hold no values, and it asks for one"
        return tuple(f"{f}{why if 'meta tensors' in f else ''}" for f in tested["failures"])
    told = f"the tests cannot be collected: {with_remedy(said, checkout)}"
    return (told,)


def why_nothing(
    checkout: Checkout, tested: Mapping[str, Any], failures: Sequence[str], ended: ScriptEnd
) -> str:
    """In a line, with what to do."""
    said = f"no test launches a kernel of {checkout.kernel}"
    if failures:
        return f"{said}{':' if tested['uncollected'] else '; the first that fails:'} {failures[0]}"
    if ended.code != 0:
        return f"{said}: {ended.fate}"
    return f"{said}: name others with --tests FILE[::TEST]"
