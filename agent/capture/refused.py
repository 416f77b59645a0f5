"""What becomes of captured calls whose tests fail on the very code that they were captured of.

Two calls with the same arguments differ where programs write the same places, or read what nothing
has written. Benchmarks draw indices at random, so that some occur twice; who uses such a kernel
gives it places that are distinct. So those are drawn, and what fails all the same is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.capture.calls import CapturedCall, Fact, walk
from agent.capture.case_ids import ids
from agent.capture.cases import CapturedEntry, timed_of
from agent.capture.test_file import test_names

Case = tuple[str, str]
"""Name of the test, id of the case."""
_PLACES = ("int32", "int64")
MANY = 8
"""Draws of which the largest lies in the lower half once in 256 times."""


def with_distinct(
    entries: Sequence[CapturedEntry], failing: Collection[Case]
) -> tuple[CapturedEntry, ...]:
    """The entries, with distinct values in what may say where the failing ones write."""
    return tuple(
        replace(
            entry,
            calls=tuple(
                _with_distinct(call) if (test, case) in failing else call
                for call, case in zip(entry.calls, ids(entry.calls), strict=True)
            ),
        )
        for entry, test in zip(entries, test_names(entries), strict=True)
    )


def without(
    entries: Sequence[CapturedEntry], failing: Collection[Case]
) -> tuple[CapturedEntry, ...]:
    """What is left of the entries."""
    left = []
    for entry, test in zip(entries, test_names(entries), strict=True):
        cases = zip(entry.calls, ids(entry.calls), strict=True)
        calls = tuple(call for call, case in cases if (test, case) not in failing)
        if calls:
            gone = len(entry.calls) - len(calls)
            left_out = entry.left_out + gone
            timed = timed_of(calls) if gone else entry.timed
            left.append(replace(entry, calls=calls, timed=timed, left_out=left_out))
    return tuple(left)


def why_perhaps(entries: Sequence[CapturedEntry], failing: Case) -> str:
    """What a test lacks that fails, to be told behind the reason; empty where nothing is known."""
    for entry, test in zip(entries, test_names(entries), strict=True):
        for call, case in zip(entry.calls, ids(entry.calls), strict=True):
            parameter, attribute = call.not_made()
            if (test, case) == failing and attribute:
                return (
                    f"; {parameter} carries the attribute {attribute}, which a captured test does "
                    "not make"
                )
    return ""


def _with_distinct(call: CapturedCall) -> CapturedCall:
    facts = [fact for fact in walk(call.facts) if fact["kind"] == "tensor"]
    memories = [fact["memory"] for fact in facts]
    extents = {extent for fact in facts for extent in fact["shape"]}

    def changed(fact: Fact) -> Fact:
        if memories.count(fact["memory"]) > 1 or (below := _below(fact, extents)) is None:
            return fact
        return {**fact, "contents": {"kind": "distinct", "below": below}}

    return replace(
        call,
        arguments=tuple(_mapped(fact, changed) for fact in call.arguments),
        keywords={name: _mapped(fact, changed) for name, fact in call.keywords.items()},
    )


def _below(fact: Fact, extents: Iterable[int]) -> int | None:
    """How many values there are to draw from: the least extent of a tensor that has room for those
    that were seen. None where a tensor is none of distinct places, or holds them already.

    Of many that are drawn from all of an extent the largest is near its end: lengths of up to 128
    for each of 100,000 sequences are no places among the sequences.
    """
    contents: Mapping[str, Any] = fact["contents"]
    if fact["dtype"] not in _PLACES or contents["kind"] != "integers" or "monotone" in contents:
        return None
    count, values = math.prod(fact["shape"]), contents.get("values")
    if contents["low"] < 0 or (values is not None and len(set(values)) == count):
        return None
    above = contents["high"] + 1
    most = 2 * above if count >= MANY else math.inf
    return min((e for e in extents if above <= e < most and e >= count), default=None)


def _mapped(fact: Fact, changed: Callable[[Fact], Fact]) -> Fact:
    """The fact, with the tensors in it changed."""
    match fact["kind"]:
        case "tensor":
            return changed(fact)
        case "tuple" | "list":
            return {**fact, "items": [_mapped(part, changed) for part in fact["items"]]}
        case "dict":
            return {**fact, "items": [(k, _mapped(part, changed)) for k, part in fact["items"]]}
    return fact
