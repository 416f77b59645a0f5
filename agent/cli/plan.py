"""`plan`, and `run --dry-run`: what a run would do, without a second on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from agent.cli import output
from agent.cli.run_parameters import asking

if TYPE_CHECKING:
    from agent.options import Request

NOTHING_TO_TRY = 3
"""Exit code where a run could not begin here, or would try nothing: an answer, not a fault."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(asking(plan, begins=False))


def plan(request: Request, yes: bool = True) -> None:  # noqa: ARG001 - it begins nothing
    """Say what a run would do: what applies, in which order, and its cost; nothing is run.

    Kernels, launches and tests that are found; which optimizations apply, and why others do not;
    what baseline, calibration and an iteration will take; what a run would change. The tests are
    collected, not run.
    """
    from agent.planning import make_plan, text

    found = make_plan(request)
    output.result(found.to_json(), text(found))
    if not found.is_of_use:
        raise typer.Exit(NOTHING_TO_TRY)
