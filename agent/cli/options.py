"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Kernel = Annotated[Path, typer.Option(help="The Python file that holds the kernel.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Python = Annotated[str, typer.Option(help="Interpreter with torch and pytest that runs the tests.")]
Tests = Annotated[
    list[str] | None,
    typer.Option(help="Test file or node id; may be given several times. Found when left out."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="Try only this optimization; may be given several times."),
]
CompareOn = Annotated[
    list[str] | None,
    typer.Option(
        help="Compare on perf tests with this in their id; may be given several times. "
        "All that fit into an iteration when left out."
    ),
]
