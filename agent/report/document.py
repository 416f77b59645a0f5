"""What a report says, as plain JSON values: `report --json`, and the source of both pages.

The figures come from the journal, the changes of the kernel from git. Whoever prints it takes the
secrets out first: everything here is still text, and nothing is marked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.environment import describe
from agent.events import Event
from agent.journal import replay, to_json
from agent.measuring.statistics import ConfigComparison, Effect
from agent.report.iterations import Iteration, deciding_rule, iterations
from agent.report.reproduce import reproduce
from agent.report.result import to_result
from agent.report.roofline import roof_line, roofline
from agent.report.table import render as render_table
from agent.report.unified import unified
from agent.repository import Repository
from agent.state import Phase, Run

LONGEST_DIFF = 60_000
"""Characters of a change that a report shows; git has the rest."""


@dataclass(frozen=True)
class KernelTexts:
    """The kernel's text at the commits of a run."""

    repository: Repository
    kernel: str

    def diff(self, before: str, after: str) -> str | None:
        """The change between two commits; None where git no longer has one of them."""
        texts = [self.text(sha) for sha in (before, after)]
        if None in texts:
            return None
        old, new = (text or "" for text in texts)
        return unified(old, new, Path(self.kernel))

    def text(self, sha: str) -> str | None:
        """The whole of it at a commit; None where git no longer has that."""
        if not sha:
            return None
        answer = self.repository.ask("cat-file", "blob", f"{sha}:{self.kernel}")
        return answer.out.decode(errors="replace") if answer.status == 0 else None


def document(events: Sequence[Event], repository: Repository) -> dict[str, Any]:
    """A run in full.

    Args:
        events: of its journal; it has at least started.
        repository: where its commits are.

    Raises:
        TransitionError: the events make no run.
    """
    run = replay(events)
    started = run.started
    assert started is not None
    texts = KernelTexts(repository, started.kernel)
    passed = list(iterations(events))
    steps = [_iteration(run, each, texts) for each in passed]
    result = to_result(run)
    del result["exit_code"]  # of the command that ran it
    return result | {
        "began_at_s": started.began_at_s,
        "done": run.phase is Phase.DONE,
        "headline": headline(run),
        "latencies": _latencies(run),
        "gains": _gains(run),
        "gains_from": "final" if run.finished and run.finished.comparison else "steps",
        "iterations": steps,
        "promised": _promised(run),
        "roofline": roofline(run, passed),
        "of_its_roof": roof_line(run),
        "whole_diff": shortened(texts.diff(started.origin_sha, run.incumbent_sha)),
        "table": render_table(run.rows),
        "machine": describe(started.environment),
        "environment": to_json(started.environment),
        "python": started.python,
        "tests": to_json(started.tests),
        "interpreted": not started.environment["gpus"],
        "reproduce": reproduce(run),
    }


def _promised(run: Run) -> list[dict[str, Any]]:
    """What the last look at each optimization promised, the most first; what was seen of none."""
    seen = [
        {"optimization": name, **to_json(estimate)}
        for name, estimate in run.estimates.items()
        if estimate.gain is not None
    ]
    return sorted(seen, key=lambda look: -look["gain"])


def headline(run: Run) -> str:
    """What came of a run, in one line."""
    assert run.started is not None
    name = run.started.kernel
    final = run.finished.comparison if run.finished else None
    kept = len(run.kept)
    steps = f"{kept} optimization{'s' if kept != 1 else ''} kept"
    if final:
        ratio = final.incumbent_ms / final.candidate_ms
        return f"{name}: {ratio:.2f}x {'faster' if ratio >= 1 else 'as fast'}, {steps}"
    if run.phase is not Phase.DONE:
        return f"{name}: under way, {steps} so far"
    return f"{name}: {steps}, not measured against the origin" if kept else f"{name}: no gain found"


def _effect(effect: Effect) -> dict[str, float]:
    return {"improvement": effect.improvement, "low": effect.low, "high": effect.high}


def config_gain(config: ConfigComparison) -> dict[str, Any]:
    """A config of a comparison: before and after in ms, the part of the time saved, an interval."""
    return {
        "config": config.config,
        "before_ms": config.incumbent_ms,
        "after_ms": config.candidate_ms,
        **_effect(config.effect),
    }


def _gains(run: Run) -> list[dict[str, Any]]:
    """Origin against best, config by config; empty where nothing was kept.

    While a run is under way they are the product of the comparisons that kept something.
    """
    if run.finished and run.finished.comparison:
        return [config_gain(config) for config in run.finished.comparison.configs]
    baseline = {record["config"]: record["latency_ms"] for record in _latencies(run)}
    return [
        {
            "config": config,
            "before_ms": baseline[config],
            "after_ms": baseline[config] * (1 - effect.improvement),
            **_effect(effect),
        }
        for config, effect in run.since_origin.items()
        if config in baseline
    ]


def _latencies(run: Run) -> list[dict[str, Any]]:
    """Of the origin, in its one pass of the perf tests."""
    records = run.baseline.records if run.baseline else ()
    return [
        {"config": record.config, "latency_ms": record.latency_ms, "method": record.method}
        for record in records
    ]


def _iteration(run: Run, each: Iteration, texts: KernelTexts) -> dict[str, Any]:
    row, found, proposal = each.row, each.comparison, each.proposal
    diff = texts.diff(each.base_sha, each.shown_sha)
    return {
        "iteration": each.number,
        "title": row.optimization if row else proposal.optimization,
        "optimization": proposal.optimization,
        "family": proposal.family,
        "proposer": each.proposer,
        "hypothesis": proposal.hypothesis,
        "expected_gain": proposal.expected_gain,
        "risk": proposal.risk,
        "saves": proposal.saves,
        "doubts": list(proposal.doubts),
        "status": row.status.value if row else None,
        "correct": row.correct if row else None,
        "reason": row.reason if row else "",
        "rule": deciding_rule(each, run.options.rules),
        "base_sha": each.base_sha,
        "sha": each.shown_sha,
        "tests_passed": each.tests_passed,
        "latency_ms": found.candidate_ms if found else None,
        "latency_low_ms": found.incumbent_ms * (1 - found.overall.high) if found else None,
        "latency_high_ms": found.incumbent_ms * (1 - found.overall.low) if found else None,
        "incumbent_ms": found.incumbent_ms if found else None,
        "overall": _effect(found.overall) if found else None,
        "resolvable": found.resolvable if found else None,
        "pairs": found.pairs if found else None,
        "configs": [config_gain(config) for config in found.configs] if found else [],
        "variants": _variants(each),
        "attempts": len(each.earlier) + 1,
        "earlier_attempts": [_attempt(number, a) for number, a in enumerate(each.earlier, 1)],
        "filtered_out": [{"title": f.title, "reason": f.reason} for f in proposal.filtered_out],
        "diff": shortened(diff),
        "evidence": {
            "diagnosis_before": to_json(each.diagnosis_before) if each.diagnosis_before else None,
            "diagnosis_after": to_json(each.diagnosis_after) if each.diagnosis_after else None,
            "launches_before": [str(launch) for launch in each.launches_before],
            "launches_after": [str(launch) for launch in each.launches_after],
        },
        "took_s": {phase: round(seconds, 1) for phase, seconds in each.took_s.items()},
    }


def _attempt(number: int, each: Iteration) -> dict[str, Any]:
    """What was mended then."""
    verdict, found = each.verdict, each.comparison
    return {
        "number": number,
        "hypothesis": each.proposal.hypothesis,
        "sha": each.shown_sha,
        "status": verdict.status.value if verdict else None,
        "reason": verdict.reason if verdict else "",
        "overall": _effect(found.overall) if found else None,
    }


def _variants(each: Iteration) -> list[dict[str, Any]]:
    """What became of each variant of a sweep before the comparison."""
    looked_at = {result.sha: result for result in each.screened}
    wrong = {result.sha: result.reason for result in each.rejected}
    found = []
    for candidate in each.proposal.candidates:
        seen = looked_at.get(candidate.sha)
        found.append(
            {
                "title": candidate.title,
                "sha": candidate.sha,
                "latency_ms": seen.latency_ms if seen else None,
                "improvement": seen.improvement if seen else None,
                "wrong": candidate.sha in wrong,
                "reason": wrong.get(candidate.sha, seen.reason if seen else ""),
                "slowed": seen.slowed if seen else "",
            }
        )
    return found


def shortened(diff: str | None) -> str | None:
    """As much of a change as a report shows."""
    if diff is None or len(diff) <= LONGEST_DIFF:
        return diff
    end = diff.rfind("\n", 0, LONGEST_DIFF) + 1
    return f"{diff[:end]}[{len(diff) - end} characters more: git has them]\n"
