"""Views on a run that no command prints: its table as Markdown, and what it changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from agent.errors import TileAgentError
from agent.measuring.decision import Status
from agent.report import table
from agent.repository import Repository
from agent.state import Row, WrongVariant

View = Callable[[Mapping[str, Any], Path], Awaitable[dict[str, Any]]]
"""Makes an answer of what `tile-agent status --json` printed in a folder. Failures have `error`."""


async def results_of(known: Mapping[str, Any], _folder: Path) -> dict[str, Any]:
    """The table of the latest run of `known`."""
    run = _latest(known)
    if "error" in run:
        return run
    rows = [_row(each) for each in run["rows"]]
    return {"run": run["run"], "table": table.render(rows), "rows": run["rows"]}


def _row(known: Mapping[str, Any]) -> Row:
    """A row of the table, from its JSON."""
    wrong = tuple(WrongVariant(**each) for each in known.get("wrong", ()))
    plain = {"status": Status(known["status"]), "doubts": tuple(known.get("doubts", ()))}
    return Row(**{**known, **plain, "wrong": wrong})


async def diff_of(
    known: Mapping[str, Any], folder: Path, iteration: int | None = None
) -> dict[str, Any]:
    """Origin against best of the latest run of `known`, or the change of one iteration."""
    run = _latest(known)
    if "error" in run:
        return run
    before, after = run["origin_sha"], run["best_sha"]
    if iteration is not None:
        commits = {row["iteration"]: row["sha"] for row in run["rows"] if row["sha"]}
        if iteration not in commits:
            having = ", ".join(str(number) for number in commits if number) or "none"
            return _failed(f"iteration {iteration} has no commit; there are: {having}")
        before, after = f"{commits[iteration]}^", commits[iteration]
    compare = partial(_compare, folder, before, after, run["kernel"])
    try:
        text = await anyio.to_thread.run_sync(compare)
    except TileAgentError as problem:
        return _failed(str(problem))
    return {"run": run["run"], "before": before, "after": after, "diff": text}


def _latest(known: Mapping[str, Any]) -> dict[str, Any]:
    """The latest run, if it has begun; else an answer that says why there is none."""
    runs = known["runs"]
    if not runs:
        return _failed("there is no run here yet: begin one on a kernel")
    latest: dict[str, Any] = runs[-1]
    if "rows" not in latest:
        return _failed(f"run {latest['run']}: {latest['summary']}; next: {latest['next']}")
    return latest


def _compare(folder: Path, before: str, after: str, path: str) -> str:
    return Repository.open(folder).diff(before, after, path)


def _failed(error: str) -> dict[str, Any]:
    return {"error": error, "exit_code": 2}
