"""Why a kernel takes the time it takes: facts in, a cause with its evidence out. Pure.

Each rule looks at the facts for one symptom. The first rule that finds its own gives the cause, the
others add to the evidence: near a roof there is little left, whatever else is not perfect; a kernel
without tensor cores or with spills is mended before anything finer; and so on downwards. What was
measured (a timing under the roofs of its GPU, counters) goes before what the compiler's output
suggests. Without a symptom it is the nearer roof, or the kernel's class where nothing was measured;
UNKNOWN is a kernel that is known to be far from both.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.causes import Cause, Diagnosis
from agent.diagnosis.rules import RULES, by_roof, source_line, too_short
from agent.diagnosis.symptoms import CAUSES, FAMILIES
from agent.diagnosis.view import Facts, View, view_of
from agent.evidence.model import TimedWork
from agent.evidence.roofline import Position

__all__ = ["Facts", "diagnose", "is_plain"]

PLAIN_SHARE = 0.7
"""Of the bandwidth of a data sheet, of which an H200 was measured to attain 0.89."""

MOST_COPIES = 4
"""That a line names."""


def diagnose(facts: Facts) -> Diagnosis:
    """The cause, its evidence and what to try first."""
    view = view_of(facts)
    findings = [finding for rule in RULES if (finding := rule(view)) is not None]
    if not findings and not view.waits:
        findings = [by_roof(view)]
    families = dict.fromkeys(name for f in findings for name in FAMILIES[f.symptom])
    lines = [finding.line for finding in findings]
    if not findings:
        lines = ["measured: under half of every roof, and nothing that is known explains it"]
    return Diagnosis(
        cause=CAUSES[findings[0].symptom] if findings else Cause.UNKNOWN,
        evidence=tuple(
            dict.fromkeys(
                [*lines, *_standing(view), source_line(facts), *_around(facts), *_gaps(view)]
            )
        ),
        families=tuple(families),
    )


def is_plain(facts: Facts) -> bool:
    """Whether the time of a launch alone says what bounds it, so that a profile would add nothing:
    it has most of the memory's bandwidth, or takes little more than a launch costs."""
    view = view_of(facts)
    moves_much = view.at is not None and PLAIN_SHARE <= view.at.memory_share <= 1
    return moves_much or too_short(view) is not None


def _standing(view: View) -> Iterator[str]:
    """Where the longest timing stands, and what is assumed for that."""
    at, work, peaks = view.at, view.work, view.facts.peaks
    if at is not None and work is not None and peaks is not None:
        yield (
            f"measured: {work.test}: {view.latency_ms:.6f} ms for {work.tensor_bytes / 1e6:.1f} MB "
            f"of tensors{_twice(at, work)}, {at.gb_s:.0f} GB/s"
        )
        yield (
            f"assumed: {view.facts.gpu} peaks at {peaks.bandwidth_gb_s:.0f} GB/s by its data "
            "sheet; each tensor is read or written once, or both"
        )
        if at.memory_share > 1:
            yield "missing: more than the peak: tensors come from a cache, or are not read whole"
    yield from (f"measured: counters: {counters}" for counters in view.facts.counters)
    for name, artifacts in view.kernels.items():
        if len(artifacts) == 1 and artifacts[0].occupancy is not None:
            yield f"compiled: {name} for {artifacts[0].target}: {artifacts[0].occupancy}"


def _twice(at: Position, work: TimedWork) -> str:
    """How much of its bytes is counted twice, where some is."""
    again = at.tensor_bytes - work.tensor_bytes
    return f", of which {again / 1e6:.1f} MB are read and written" if again else ""


def _around(facts: Facts) -> Iterator[str]:
    """What else is part of the call that is timed, and that no entry of the playbook touches."""
    if facts.copies:
        told = ", ".join(f"{call} (line {line})" for line, call in facts.copies[:MOST_COPIES])
        more = len(facts.copies) - MOST_COPIES
        if more > 0:
            told += f" and {more} more"
        yield (
            "source: the code around the launch may copy tensors, which is timed too where the "
            f"test runs it: {told}"
        )


def _gaps(view: View) -> Iterator[str]:
    if not view.latency_ms:
        yield "missing: no latency of a GPU: this is what source and compiler say alone"
    elif view.facts.peaks is None:
        yield f"missing: the peaks of {view.facts.gpu or 'this GPU'} are not known: no roofline"
    elif view.at is None:
        yield "missing: no launch was seen to take a tensor: no roofline"
    yield from (f"missing: {reason}" for reason in view.facts.missing)
