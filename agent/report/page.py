"""A report as a page of the web and as Markdown, of the plain values of `document`."""

from __future__ import annotations

import time
from typing import Any

from agent.prompting import render
from agent.report.charts import gain_bars, latency_chart, roof_marks, time_bars
from agent.report.highlighting import Highlighter

_CONTROLS = dict.fromkeys(
    {*range(32), *range(127, 160), *range(0xD800, 0xE000)} - {ord("\t"), ord("\n")},
    "\N{REPLACEMENT CHARACTER}",
)
"""Control characters and halves of surrogate pairs."""


def html(report: dict[str, Any]) -> str:
    """One file that loads nothing: its charts are SVG, its folds are elements of HTML.

    Args:
        report: as `document` makes it, without secrets.
    """
    report = printable(report)
    highlighter = Highlighter()

    def lines(diff: str | None) -> Any:
        return None if diff is None else highlighter.lines(diff)

    kept_first = sorted(report["iterations"], key=lambda step: step["status"] != "keep")
    changes = {step["iteration"]: lines(step["diff"]) for step in kept_first}
    steps = [step | {"lines": changes[step["iteration"]]} for step in report["iterations"]]
    return render(
        "report.html.j2",
        report=report | {"iterations": steps},
        began=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(report["began_at_s"])),
        chart=latency_chart(report),
        gain_bars=gain_bars(report),
        time_bars=time_bars(report),
        roof_marks=roof_marks(report),
        whole_diff=lines(report["whole_diff"]),
        reproduced=_commands(report),
    )


def markdown(report: dict[str, Any]) -> str:
    """The text of a pull request.

    Args:
        report: as `document` makes it, without secrets.
    """
    report = printable(report)
    return render("report.md.j2", report=report, reproduced=_commands(report))


def _commands(report: dict[str, Any]) -> str:
    return "\n".join(f"# {each['what']}\n{each['command']}" for each in report["reproduce"])


def printable(value: Any) -> Any:
    """Plain JSON values without the characters that a page cannot hold; compilers write some."""
    match value:
        case str():
            return value.translate(_CONTROLS)
        case dict():
            return {name: printable(inner) for name, inner in value.items()}
        case list() | tuple():
            return [printable(inner) for inner in value]
    return value
