"""The text of a pull request for what is finalized: the report of the run, as the branch has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.finalizing.replay import KeptSteps
from agent.journal import to_json
from agent.measuring.statistics import Comparison
from agent.report.document import config_gain
from agent.report.page import markdown

DROPPED = "dropped"
"""The status of a kept step that the branch does not have."""


def pull_request(
    report: Mapping[str, Any],
    replay: KeptSteps,
    shas: Mapping[int, str],
    *,
    branch: str,
    base: str,
    notes: Sequence[str],
    comparison: Comparison | None,
) -> str:
    """The text, as Markdown.

    Args:
        report: of the run, as `document` makes it, without secrets.
        replay: the steps.
        shas: iteration -> its commit on the branch.
        branch: its name.
        base: the commit below it.
        notes: what was checked, and what was not.
        comparison: base against the end, where it was measured; else the run's figures stand.
    """
    dropped = {step.iteration: step.dropped for step in replay.steps if step.dropped}
    steps = []
    for step in report["iterations"]:
        number = step["iteration"]
        if number in dropped:
            step = step | {"status": DROPPED, "reason": f"{dropped[number]}; {step['reason']}"}
        steps.append(step | {"sha": shas.get(number, step["sha"])})
    told = dict(report) | {"iterations": steps, "notes": [*notes, *report["notes"]]}
    if comparison is not None:
        told |= {
            "final": to_json(comparison),
            "gains": [config_gain(config) for config in comparison.configs],
            "speedup": comparison.incumbent_ms / comparison.candidate_ms,
            "final_left_out": [],
        }
    count = f"{len(shas)} optimization{'s' if len(shas) != 1 else ''}"
    faster = f"{told['speedup']:.2f}x faster, " if told["speedup"] else ""
    told["headline"] = f"{report['kernel']}: {faster}{count}"
    told["reproduce"] = [
        *report["reproduce"][:2],
        {"what": "what is proposed, a commit a step", "command": f"git log -p {base}..{branch}"},
        {"what": "to take it", "command": f"git merge --ff-only {branch}"},
    ]
    return markdown(told)
