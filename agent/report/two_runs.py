"""Two runs on a kernel side by side, as plain JSON values, as Markdown and as a page.

Their figures were not measured beside each other: gains can be compared, times only roughly.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.prompting import render
from agent.report.document import KernelTexts, shortened
from agent.report.highlighting import Highlighter
from agent.report.page import printable
from agent.repository import Repository

KEEP = "keep"
BOTH, VALUES, FIRST, SECOND, NEITHER = (
    "kept by both",
    "kept by both, with other values",
    "kept by the first only",
    "kept by the second only",
    "kept by neither",
)
RELATIONS = (BOTH, VALUES, FIRST, SECOND, NEITHER)


def side_by_side(
    first: Mapping[str, Any], second: Mapping[str, Any], repository: Repository
) -> dict[str, Any]:
    """Two runs, compared.

    Args:
        first: as `document` makes it.
        second: another, of the same kernel.
        repository: where their commits are.
    """
    texts = KernelTexts(repository, first["kernel"])
    return {
        "kernel": first["kernel"],
        "runs": [_run(each) for each in (first, second)],
        "same_origin": texts.diff(first["origin_sha"], second["origin_sha"]) == "",
        "same_machine": first["machine"] == second["machine"],
        "configs": list(_configs(first, second)),
        "steps": list(_steps(first, second)),
        "best_diff": shortened(texts.diff(first["best_sha"], second["best_sha"])),
    }


def _run(report: Mapping[str, Any]) -> dict[str, Any]:
    names = (
        "run", "headline", "branch", "began_at_s", "machine", "origin_sha", "best_sha", "best_ref",
        "speedup", "done", "stop", "noise_floor", "spent_s", "interpreted",
    )  # fmt: skip
    return {name: report[name] for name in names}


def _configs(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every config of either, with what each run made of it."""
    found = [_by_config(each) for each in (first, second)]
    for config in dict.fromkeys([*found[0], *found[1]]):
        yield {"config": config, "first": found[0].get(config), "second": found[1].get(config)}


def _by_config(report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Config -> origin and best; the best is None where nothing was kept or compared on it."""
    nothing = dict.fromkeys(("after_ms", "improvement", "low", "high"))
    found = {
        one["config"]: {"config": one["config"], "before_ms": one["latency_ms"], **nothing}
        for one in report["latencies"]
    }
    return found | {gain["config"]: dict(gain) for gain in report["gains"]}


def _steps(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What either tried, by how it stands between the two."""
    left = list(second["iterations"])
    pairs: list[tuple[Any, Any]] = []
    for step in first["iterations"]:
        twin = _twin(step, left)
        if twin is not None:
            left.remove(twin)
        pairs.append((step, twin))
    pairs += [(None, step) for step in left]
    rows = []
    for one, other in pairs:
        shown = one or other
        rows.append(
            {
                "title": shown["title"],
                "optimization": shown["optimization"],
                "relation": _relation(one, other),
                "first": _fate(one, first, shown["optimization"]),
                "second": _fate(other, second, shown["optimization"]),
            }
        )
    yield from sorted(rows, key=lambda row: RELATIONS.index(row["relation"]))


def _twin(step: Mapping[str, Any], others: Sequence[Any]) -> Any:
    """The step of another run that is the same, or else of the same optimization."""
    for name in ("title", "optimization"):
        for other in others:
            if other[name] == step[name]:
                return other
    return None


def _relation(first: Any, second: Any) -> str:
    kept = [step is not None and step["status"] == KEEP for step in (first, second)]
    if all(kept):
        return BOTH if first["title"] == second["title"] else VALUES
    return FIRST if kept[0] else SECOND if kept[1] else NEITHER


def _fate(step: Any, report: Mapping[str, Any], optimization: str) -> dict[str, Any]:
    """What became of an optimization in a run."""
    if step is not None:
        names = ("iteration", "title", "status", "reason", "overall", "sha")
        return {name: step[name] for name in names}
    nothing = dict.fromkeys(("iteration", "title", "overall", "sha"))
    for one in report["skipped"]:
        if one["optimization"] == optimization:
            return nothing | {"status": "did not apply", "reason": one["reason"]}
    return nothing | {"status": "not tried", "reason": ""}


def markdown(report: dict[str, Any]) -> str:
    """The comparison as Markdown, of plain values without secrets."""
    return render("report_two.md.j2", found=printable(report), relations=RELATIONS)


def html(report: dict[str, Any]) -> str:
    """The same as one file for a browser, which loads nothing."""
    found = printable(report)
    diff = found["best_diff"]
    return render(
        "report_two.html.j2",
        found=found,
        relations=RELATIONS,
        began=[_date(run["began_at_s"]) for run in found["runs"]],
        lines=None if diff is None else Highlighter().lines(diff),
    )


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
