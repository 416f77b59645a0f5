"""What a run amounts to, as plain values: the source of `--json`, the summary and the exit code."""

from __future__ import annotations

import shlex
from typing import Any

from agent.environment import describe_sandbox
from agent.errors import ExitCode
from agent.events import StopReason
from agent.journal import to_json
from agent.measuring.decision import percent
from agent.measuring.statistics import ConfigComparison
from agent.measuring.subset import in_brief, told_too_large
from agent.options import Sandbox
from agent.report.forecast import forecast
from agent.state import Phase, Run
from agent.workspace import SANDBOX


def exit_code(run: Run) -> ExitCode:
    """The exit code of a run, finished or not."""
    if run.phase is not Phase.DONE or run.stopped is None:
        return ExitCode.STOPPED
    reason = run.stopped.reason
    unconfirmed = run.kept and (run.finished is None or run.finished.comparison is None)
    if reason in (StopReason.ESCALATED, StopReason.UNANSWERED) or unconfirmed:
        return ExitCode.ESCALATED
    if reason is StopReason.UNUSABLE and not run.kept:
        return ExitCode.ESCALATED
    if reason in (StopReason.TIME, StopReason.ITERATIONS, StopReason.ASKING):
        return ExitCode.STOPPED
    return ExitCode.DONE if run.kept else ExitCode.NO_IMPROVEMENT


def notes(run: Run) -> list[str]:
    """What a person should know beside the figures."""
    told = [*(run.started.tests.notes if run.started else ()), *run.notes]
    told += [
        f"iteration {row.iteration} took {row.attempts} attempts: the row is that of the last"
        for row in run.rows
        if row.attempts > 1
    ]
    told += [
        f"iteration {row.iteration} was kept for what else it saves: {row.saves}"
        for row in run.kept
        if row.saves
    ]
    told += [
        f"iteration {row.iteration} was kept with a doubt: {doubt}"
        for row in run.kept
        for doubt in row.doubts
    ]
    if run.subset:
        told.append(
            f"iterations compared {run.subset.coverage}, and their figures speak of those: "
            f"{in_brief(run.subset.configs)}; not of {in_brief(run.subset.left_out)}"
        )
    at_the_end = run.finished.too_large if run.finished else ()
    told += told_too_large(at_the_end or (run.subset.too_large if run.subset else ()))
    never = run.subset.left_out if run.subset else ()
    told += [
        f"{config.config}{', which no iteration compared,' if config.config in never else ''} "
        f"takes {percent(-config.effect.improvement)} more than at the origin: look at it before "
        "you take the branch"
        for config in _slower(run)
    ]
    if run.finished and run.finished.left_out:
        left_out = in_brief(run.finished.left_out)
        told.append(f"the final comparison had no time for {left_out}: nothing is known of those")
    if run.finished:
        told += [run.finished.note] if run.finished.note else []
        told += [
            f"iteration {number} was kept, but its gain did not show when it was measured again"
            for number in run.finished.faded
        ]
    return told


def _slower(run: Run) -> list[ConfigComparison]:
    """Configs that lost beyond doubt, by however little, in the last word."""
    final = run.finished.comparison if run.finished else None
    return [config for config in (final.configs if final else ()) if config.effect.high < 0]


def confined(run: Run) -> str:
    """How the workers were confined, in one line."""
    assert run.started is not None
    off = run.options.sandbox is Sandbox.OFF
    return describe_sandbox(run.started.environment.get("sandbox", {}), off=off)


def iteration_of(run: Run) -> int:
    """The iteration that a run is at; of one that is done the last one that it had.

    The state of such a run stands before an iteration that never came.
    """
    if run.phase is not Phase.DONE:
        return run.iteration
    return run.rows[-1].iteration if run.rows else 0


def kept_at(run: Run) -> str:
    """What names the best commit: the branch, or our own ref where the branch could not move."""
    started = run.started
    assert started is not None
    return f"refs/tile-agent/{started.run_id}/best" if run.branch_behind else started.branch


def next_command(run: Run, do: str, *, whole: bool = False) -> str:
    """The command line that goes on with a run, or shows what came of it.

    Args:
        run: which one.
        do: what comes next in it: `begin`, `next`, `edit`, `try`, `finish` or `done`.
        whole: for somebody who may know nothing of what was said before.
    """
    started = run.started
    assert started is not None
    if do == "done" and not run.kept:
        return f"cat {SANDBOX}/runs/{started.run_id}/perf_results.md"
    if do == "done":
        return f"git log -p {started.origin_sha[:12]}..{kept_at(run)}"
    if do == "begin":
        return f"tile-agent begin --kernel {shlex.quote(started.kernel)} --json"
    if do == "try":  # what is handed in already: a message would be that of something else
        return f"tile-agent try --run {started.run_id} --json"
    if do == "edit":
        return f"tile-agent try --run {started.run_id} -m 'WHAT, AND WHY' --json"
    full = "--full " if whole and do == "next" else ""
    return f"tile-agent {do} --run {started.run_id} {full}--json"


def left(run: Run) -> dict[str, float | None]:
    """What a run may still do before a limit ends it; None where there is no limit."""
    options, budget_s = run.options, run.options.time_budget_s
    return {
        "iterations": max(options.max_iterations - max(run.iteration, 1) + 1, 0),
        "without_improvement": max(options.patience - run.misses, 0),
        "time_s": None if budget_s is None else round(max(budget_s - run.spent_s, 0.0), 1),
        "attempts": run.possible_attempts - (run.attempt if run.phase is Phase.REPAIR else 0),
    }


def left_in_words(run: Run) -> str:
    """The same in one line."""
    rest = left(run)
    time_s = f", {rest['time_s']:.0f} s" if rest["time_s"] is not None else ""
    mending = f", {rest['attempts']} attempts at this one" if run.phase is Phase.REPAIR else ""
    return (
        f"left: {rest['iterations']} iterations{mending}{time_s}; the run ends after "
        f"{rest['without_improvement']} in a row of which a comparison finds no improvement"
    )


def speedup(run: Run) -> float | None:
    """Origin over best, from the final comparison; None where there is none."""
    comparison = run.finished.comparison if run.finished else None
    return comparison.incumbent_ms / comparison.candidate_ms if comparison else None


def to_result(run: Run) -> dict[str, Any]:
    """The run as plain JSON values."""
    started = run.started
    final = run.finished.comparison if run.finished else None
    expected = forecast(run)
    return {
        "run": started.run_id if started else None,
        "kernel": started.kernel if started else None,
        "backend": started.backend if started else None,
        "kernel_class": run.kernel_class if started else None,
        "branch": started.branch if started else None,
        "latency_meaning": started.latency_meaning if started else None,
        "confined": confined(run) if started else None,
        "phase": run.phase.value,
        "iteration": iteration_of(run),
        "origin_sha": started.origin_sha if started else None,
        "best_sha": run.incumbent_sha,
        "best_ref": kept_at(run) if started else None,
        "baseline_ms": run.rows[0].latency_ms if run.rows else None,
        "noise_floor": run.calibration.noise_floor if run.calibration else None,
        "origin_ms": final.incumbent_ms if final else None,
        "best_ms": final.candidate_ms if final else None,
        "speedup": speedup(run),
        "final": to_json(final) if final else None,
        "final_left_out": list(run.finished.left_out) if run.finished else [],
        "subset": to_json(run.subset) if run.subset else None,
        "forecast": expected.to_json() if expected else None,
        "faded": list(run.finished.faded) if run.finished else [],
        "stop": to_json(run.stopped) if run.stopped else None,
        "rows": to_json(run.rows),
        "skipped": [{"optimization": s.optimization, "reason": s.reason} for s in run.skipped],
        "estimates": to_json(run.estimates),
        "diagnosis": to_json(run.diagnosis) if run.diagnosis else None,
        "least_times": to_json(run.least_times) if run.least_times else None,
        "proposers": list(run.options.proposers),
        "usage": to_json(run.usage) if run.usage.requests else None,
        "notes": notes(run),
        "spent_s": round(run.spent_s, 1),
        "spent_by_phase_s": {k: round(v, 1) for k, v in run.spent_by_phase_s.items()},
        "exit_code": int(exit_code(run)),
    }
