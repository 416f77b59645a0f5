"""The end of a run, for a person to act on."""

from __future__ import annotations

from agent.events import ENDED_EARLY
from agent.prompting import render
from agent.report.mismatch import in_brief as brief
from agent.report.passed_over import in_brief
from agent.report.result import confined, kept_at, notes, speedup
from agent.report.roofline import roof_line
from agent.report.table import render as render_table
from agent.state import Run


def _by_reason(run: Run) -> list[tuple[str, str]]:
    """What was not tried, and why: many entries lack the same, and without a GPU most do."""
    names: dict[str, list[str]] = {}
    for skipped in run.skipped:
        names.setdefault(in_brief(skipped.reason), []).append(skipped.optimization)
    return [(f"{', '.join(some)} passed over", reason) for reason, some in names.items()]


def summarize(run: Run, machine: str) -> str:
    """The summary as text.

    Args:
        run: a run that has at least started.
        machine: what it was measured on, in one line.
    """
    started = run.started
    assert started is not None
    final = run.finished.comparison if run.finished else None
    stopped = "not yet; it can be resumed"
    if run.stopped:
        detail = f" ({run.stopped.detail})" if run.stopped.detail else ""
        stopped = f"{run.stopped.reason.value}{detail}"
    return render(
        "summary.md.j2",
        kernel=started.kernel,
        run_id=started.run_id,
        branch=started.branch,
        branch_behind=run.branch_behind,
        kept_at=kept_at(run),
        origin_sha=started.origin_sha,
        best=final is not None,
        final=final,
        final_left_out=run.finished.left_out if run.finished else (),
        subset=run.subset,
        speedup=speedup(run),
        origin_ms=final.incumbent_ms if final else None,
        best_ms=final.candidate_ms if final else None,
        interpreted=not started.environment["gpus"],
        kept=len(run.kept),
        ended_early=bool(run.stopped and run.stopped.reason in ENDED_EARLY),
        tried=any(row.iteration > 0 for row in run.rows),
        table=render_table(run.rows),
        reasons=[row for row in run.rows if row.reason],
        brief=brief,
        passed_over=_by_reason(run),
        stopped=stopped,
        diagnosis=run.diagnosis,
        roof=roof_line(run),
        usage=run.usage if run.usage.requests else None,
        latency_meaning=started.latency_meaning,
        machine=machine,
        confined=confined(run),
        notes=notes(run),
        spent_s=run.spent_s,
        spent_by_phase_s=run.spent_by_phase_s,
    )
