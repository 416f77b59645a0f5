"""A plan for a person to read."""

from __future__ import annotations

from agent.planning.entries import GPU, Applicable
from agent.planning.plan import Plan
from agent.report.passed_over import in_brief


def text(plan: Plan) -> str:
    """The plan in lines."""
    return "\n".join(
        [
            *([f"refused    no run can begin here: {plan.refusal}"] if plan.refusal else []),
            f"kernel     {plan.kernel} ({plan.backend}: {plan.kernel_class}, about "
            f"{plan.flop_per_byte:.3g} FLOP/B)",
            *_kernels(plan),
            *_tests(plan),
            f"machine    {plan.machine}",
            f"latency    {plan.latency_meaning}",
            *_entries(plan),
            *(f"cost       {line}" for line in plan.cost),
            f"limits     {plan.limits}",
            *(f"changes    {line}" for line in plan.changes),
            *(f"note       {note}" for note in plan.notes),
            "Nothing was run or changed.",
        ]
    )


def _kernels(plan: Plan) -> list[str]:
    lines = [
        f"           {k.name}, line {k.line}: {'launched' if k.in_sight else 'named'} by "
        f"{', '.join(k.launched_from)}"
        for k in plan.kernels
        if k.launched_from
    ]
    lines += [f"           {line}" for line in plan.apart]
    lines += [f"launches   {launch}" for launch in plan.launches[:3]]
    if len(plan.launches) > 3:
        lines.append(f"           and {len(plan.launches) - 3} more")
    return [*lines, f"           {plan.launches_from}"]


def _tests(plan: Plan) -> list[str]:
    tests = plan.tests
    if tests is None:
        lacks = "what launches give the kernels, which of them takes most time, what a run costs"
        return ["tests      none that can judge", f"unknown    without them: {lacks}"]
    files = ", ".join((*tests.files, *tests.benches))
    return [f"tests      {len(tests.correctness)} correctness, {len(tests.perf)} perf from {files}"]


def _entries(plan: Plan) -> list[str]:
    entries = plan.entries
    lines = [f"order      {plan.order}", *(f"known      {line}" for line in plan.remembered)]
    for number, each in enumerate(entries.tried, 1):
        count = len(each.variants)
        what = each.variants[0] if count == 1 else f"{count} variants"
        lines.append(f"[{number:2d}] try    {each.optimization}: {what}")
    if not entries.tried:
        lines.append("           nothing of the playbook applies: a run would end without a try")
    shown: dict[str, list[str]] = {}
    for over in entries.passed_over:
        if not over.foreign:
            shown.setdefault(in_brief(over.reason), []).extend(over.optimizations)
    lines += [f"skip       {', '.join(names)}: {reason}" for reason, names in shown.items()]
    foreign = [n for each in entries.passed_over if each.foreign for n in each.optimizations]
    if foreign:
        lines.append(
            f"           and {len(foreign)} that look for what is not here (--json says for what): "
            f"{', '.join(foreign)}"
        )
    if entries.on_gpu:
        besides = ", ".join(map(_with_count, entries.on_gpu))
        lines.append(f"on a GPU   besides (as for sm_{GPU.sm}): {besides}")
    if entries.opt_in:
        lines.append(f"           only with --only: {', '.join(entries.opt_in)}")
    return lines


def _with_count(entry: Applicable) -> str:
    count = len(entry.variants)
    return entry.optimization if count == 1 else f"{entry.optimization} ({count} variants)"
