"""What came of the last attempt of an iteration, in figures: all that helps to mend it."""

from __future__ import annotations

from typing import Any

from agent.events import CodeChange
from agent.journal import to_json
from agent.measuring.decision import signed
from agent.measuring.screening import ScreenResult
from agent.report.mismatch import in_brief, in_words, mismatch
from agent.state import Phase, Run


def last_attempt(run: Run) -> dict[str, Any] | None:
    """As plain JSON values; None before the first candidate.

    Args:
        run: one that waits for its next step; the iteration may have been settled.
    """
    proposal, verdict = run.proposal, run.verdict
    if proposal is None or verdict is None:
        return None
    failed, found = run.failed, run.comparison
    return {
        "number": run.attempt if run.phase is Phase.REPAIR else run.rows[-1].attempts,
        "of": run.possible_attempts,
        "optimization": proposal.optimization,
        "status": verdict.status.value,
        "reason": verdict.reason,
        "correct": run.candidate_correct,
        "doubts": list(proposal.doubts),
        "sha": run.shown.sha,
        "mismatch": mismatch(failed.reason, failed.detail) if failed else None,
        "account": failed.detail if failed else "",
        "overall": to_json(found.overall) if found else None,
        "configs": to_json(found.configs) if found else [],
        "elsewhere": to_json(run.elsewhere.configs) if run.elsewhere else [],
        "code": to_json(_code(run)),
        "variants": [
            {"title": each.title, "sha": each.sha, **_look(run.looked_at.get(each.sha))}
            for each in (run.candidates if len(run.candidates) > 1 else ())
        ],
        "earlier": [
            {
                "number": number,
                "sha": attempt.candidate.sha,
                "status": attempt.verdict.status.value,
                "reason": attempt.verdict.reason,
            }
            for number, attempt in enumerate(run.earlier, start=1)
        ],
    }


def last_attempt_in_words(run: Run) -> list[str]:
    """The same for a person, a line each; all that a failed test said comes last."""
    found = last_attempt(run)
    if found is None:
        return []
    lines = [f"attempt {found['number']} of {found['of']}: {found['status']}: {found['reason']}"]
    if found["mismatch"]:
        lines.append(f"  {in_words(found['mismatch'])}")
    for config in run.comparison.configs if run.comparison else ():
        effect = config.effect
        lines.append(
            f"  {config.config}: {config.incumbent_ms:.6f} -> {config.candidate_ms:.6f} ms, "
            f"{signed(effect.improvement)} [{signed(effect.low)}, {signed(effect.high)}]"
        )
    lines += [f"  doubt: {doubt}" for doubt in found["doubts"]]
    lines += [f"  {_in_words(change)}" for change in _code(run)]
    lines += [f"  wrong: {each.title}: {in_brief(each.reason)}" for each in run.wrong]
    return [*lines, *([found["account"]] if found["account"] else [])]


def _code(run: Run) -> tuple[CodeChange, ...]:
    """What the compiler made of the candidate that the verdict is on."""
    changes = run.proposal.code if run.proposal else ()
    return tuple(change for change in changes if change.sha in ("", run.shown.sha))


def _look(seen: ScreenResult | None) -> dict[str, Any]:
    """What a short look at a variant gave; it ranks them and decides nothing."""
    return {
        "latency_ms": seen.latency_ms if seen else None,
        "improvement": seen.improvement if seen else None,
        "reason": seen.reason if seen else "",
        "slowed": seen.slowed if seen else "",
    }


def _in_words(change: CodeChange) -> str:
    told = [
        f"{what} {before} -> {after}"
        for what, (before, after) in (
            ("registers", change.registers),
            ("spilled bytes", change.spilled_bytes),
            ("shared bytes", change.shared_bytes),
        )
    ]
    return f"{change.kernel}: {', '.join(told)}"
