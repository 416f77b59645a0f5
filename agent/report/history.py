"""What the runs on a kernel tried: a line an iteration, from their journals."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.environment import describe
from agent.journal import JournalLine
from agent.measuring.decision import signed
from agent.report.iterations import Iteration, iterations
from agent.report.result import speedup
from agent.state import Run
from agent.transitions import advance

HEAD = ("when", "run", "iteration", "what was tried", "verdict", "less time", "interval", "where")


def history_of(lines: Sequence[JournalLine]) -> dict[str, Any]:
    """A run with what it tried, as plain JSON values.

    Args:
        lines: of its journal; it has at least started.

    Raises:
        TransitionError: they make no run.
    """
    run, settled_s = Run(), []
    for line in lines:
        rows = len(run.rows)
        run = advance(run, line.event)
        settled_s += [line.time_s] * (len(run.rows) - rows)
    started = run.started
    assert started is not None
    when = dict(zip((row.iteration for row in run.rows), settled_s, strict=True))
    gpus = started.environment["gpus"]
    return {
        "run": started.run_id,
        "kernel": started.kernel,
        "branch": started.branch,
        "began_at_s": started.began_at_s,
        "gpu": gpus[0]["name"] if gpus else None,
        "machine": describe(started.environment),
        "origin_sha": started.origin_sha,
        "speedup": speedup(run),
        "stop": run.stopped.reason.value if run.stopped else None,
        "tried": [
            _tried(each, when.get(each.number, lines[-1].time_s))
            for each in iterations([line.event for line in lines])
        ],
        "did_not_apply": [
            {"optimization": each.optimization, "reason": each.reason} for each in run.skipped
        ],
    }


def _tried(each: Iteration, at_s: float) -> dict[str, Any]:
    row, found = each.row, each.comparison
    shown = next((c for c in each.proposal.candidates if c.title == _title(each)), None)
    return {
        "iteration": each.number,
        "optimization": each.proposal.optimization,
        "title": _title(each),
        "params": dict(shown.params) if shown else {},
        "proposer": each.proposer,
        "status": row.status.value if row else None,
        "reason": row.reason if row else "",
        "latency_ms": found.candidate_ms if found else None,
        "improvement": found.overall.improvement if found else None,
        "low": found.overall.low if found else None,
        "high": found.overall.high if found else None,
        "at_s": at_s,
        "sha": each.shown_sha,
    }


def _title(each: Iteration) -> str:
    """Of what was judged; of all variants of a sweep, while none of them is."""
    if each.row:
        return each.row.optimization
    variants = each.proposal.candidates
    judged = [c for c in variants if c.sha == each.judged_sha] or variants
    many = f"{each.proposal.optimization}, {len(judged)} variants"
    return judged[0].title if len(judged) == 1 else many


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """A row for each iteration of runs that `history_of` tells of, as Markdown."""
    rule = [":---", ":---", "---:", ":---", ":---", "---:", ":---", ":---"]
    rows = [_cells(run, step) for run in runs for step in run["tried"] or [None]]
    return "\n".join(f"| {' | '.join(row)} |" for row in (HEAD, rule, *rows))


def _cells(run: Mapping[str, Any], step: Mapping[str, Any] | None) -> Iterator[str]:
    at_s = step["at_s"] if step else run["began_at_s"]
    yield time.strftime("%Y-%m-%d %H:%M", time.gmtime(at_s))
    yield run["run"]
    if step is None:
        yield from ("", f"nothing ({run['stop'] or 'not done'})", "", "", "")
    else:
        timed = step["improvement"] is not None
        yield str(step["iteration"])
        yield " ".join(step["title"].split()).replace("|", "\\|")
        yield step["status"] or "under way"
        yield signed(step["improvement"]) if timed else ""
        yield f"[{signed(step['low'])}, {signed(step['high'])}]" if timed else ""
    yield run["gpu"] or "no GPU"
