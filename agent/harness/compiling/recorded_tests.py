"""What became of the tests whose launches were recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.errors import UsageError
from agent.harness.processes.collection_errors import end_of, fault, read_in_vain, with_remedy
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


def failures_of(
    checkout: Checkout, tested: Mapping[str, Any], ended: ScriptEnd, passed: Sequence[str]
) -> tuple[str, ...]:
    """What the tests failed for; pytest names the fault of a session that ran none in its log."""
    log = end_of(ended.log) if tested["uncollected"] and ended.log else ""
    said = fault(log, checkout.root)
    if not said:
        why = "; launches are collected with tensors that hold no values, and it asks for one"
        return tuple(f"{f}{why if 'meta tensors' in f else ''}" for f in tested["failures"])
    told = with_remedy(said, checkout, read_in_vain(log, checkout.root, passed), passed)
    return (f"the tests cannot be collected: {told}",)


def why_not_imported(checkout: Checkout, said: str, passed: Sequence[str]) -> str:
    """In a line, with what to do: that tests launch nothing would be said of what is no fault."""
    held = read_in_vain(said, checkout.root, passed)
    told = with_remedy(said, checkout, held, passed, captures=True)  # no other tests do without it
    return f"{checkout.kernel} cannot be imported here: {told}"


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
