"""What a person needs who takes over from a run that was escalated."""

from __future__ import annotations

from collections.abc import Mapping

from agent.causes import Cause
from agent.prompting import render
from agent.report.mismatch import in_brief
from agent.report.result import kept_at
from agent.report.table import render as render_table
from agent.state import Run
from agent.suggesting import looking

MEANINGS: Mapping[Cause, str] = {
    Cause.MEMORY: "Device memory is the bound: fewer bytes, or the same bytes faster.",
    Cause.COMPUTE: "Arithmetic is the bound: cheaper operations, or better use of the units.",
    Cause.LATENCY: "It waits, for its launch or for loads that nothing hides.",
    Cause.OCCUPANCY: "Too few warps are there to hide the waiting, or registers are spilled.",
    Cause.LOCALITY: "Bytes are moved more than once, or in small pieces.",
    Cause.SCHEDULING: "The blocks do not fill the GPU: the work has to be divided otherwise.",
    Cause.UNKNOWN: "It is far from what the GPU can do, and nothing that was looked at says why.",
}
_STEPS: Mapping[Cause, tuple[str, ...]] = {
    Cause.MEMORY: (
        "Whether a tensor is read twice that could stay on chip, or written only to be read by "
        "the next kernel.",
        "Whether a narrower type would do for what is stored.",
    ),
    Cause.COMPUTE: (
        "Whether fewer or cheaper operations give the same result.",
        "Which pipe is busiest: `ncu --section ComputeWorkloadAnalysis`.",
    ),
    Cause.LATENCY: (
        "Whether several launches can be one, or a CUDA graph.",
        "Which instruction waits: `ncu --section WarpStateStats --section SourceCounters`.",
    ),
    Cause.OCCUPANCY: (
        "What keeps registers alive across the loop: {explain} names spilling lines.",
    ),
    Cause.LOCALITY: (
        "Which access moves more than it needs: `ncu --section MemoryWorkloadAnalysis_Tables`.",
        "Whether the layout of the inputs can change.",
    ),
    Cause.SCHEDULING: (
        "The grid against the multiprocessors: another axis to divide (split the sum, several "
        "problems in one launch), or a persistent grid with balanced shares.",
        "Whether blocks differ in work, as with a causal mask or ragged rows: the grid and its "
        "rounds stand in `ncu --section LaunchStats --section Occupancy`.",
        "Whether the shapes that the perf tests use are those that matter.",
    ),
    Cause.UNKNOWN: (
        "A full profile: `ncu --set full`, and the reasons to wait beside the source lines.",
        "Whether the timing covers more than the kernel: copies, allocations, other launches "
        "(`nsys profile`).",
    ),
}


def escalation(run: Run) -> str:
    """The report as Markdown, for a run that has at least started."""
    started = run.started
    assert started is not None
    diagnosis = run.diagnosis
    why = run.stopped.detail if run.stopped and run.stopped.detail else run.escalation
    if not why:
        why = "The rules ask for a person where scheduling is the cause, or none is found."
    seen = f"`git log -p {started.origin_sha[:12]}..{kept_at(run)}` shows what was kept."
    missing = [
        line.removeprefix("missing: ")
        for line in (diagnosis.evidence if diagnosis else ())
        if line.startswith("missing: ")
    ]
    for_cause = _STEPS[diagnosis.cause] if diagnosis else ()
    passed = started.options.command.pass_env
    explain = looking("explain", started.kernel, passed, started.python)
    return render(
        "escalation.md.j2",
        kernel=started.kernel,
        why=why,
        diagnosis=diagnosis,
        meaning=MEANINGS[diagnosis.cause] if diagnosis else "",
        table=render_table(run.rows),
        reasons=[row for row in run.rows if row.reason],
        brief=in_brief,
        skipped=run.skipped,
        latency_meaning=started.latency_meaning,
        origin_ms=run.rows[0].latency_ms if run.rows else None,
        best_ms=run.incumbent_ms,
        noise_floor=run.calibration.noise_floor if run.calibration else None,
        steps=[
            *(step.replace("{explain}", explain) for step in for_cause),
            *(f"What the diagnosis lacked: {line}" for line in missing),
            *([seen] if run.kept else []),
            f"What was set aside is under refs/tile-agent/{started.run_id}/, each with its source.",
        ],
    )
