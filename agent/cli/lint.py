"""`lint`: what is wrong with a kernel, by its source alone."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agent.cli import completion, output
from agent.cli.shared_options import Json

FOUND = 3
"""Exit code when an error was found: an answer, not a fault."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(lint)


def lint(
    kernel: Annotated[
        Path | None,
        typer.Option(
            help="The Python file that holds the kernel.", autocompletion=completion.kernels
        ),
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="Print the rules, as Markdown, and exit.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a cuTile kernel by its source: what will not compile or launch, and what is slow.

    Exit code 3: an error was found.
    """
    output.use_json(as_json)
    from agent.errors import UsageError
    from agent.lint import CHECKS, Severity, lint
    from agent.lint.checks.imports import MISNAMED
    from agent.lint.reference import rules_as_markdown
    from agent.preflight import read_file
    from agent.syntax import Source
    from agent.target import NoKernelError, parse

    if rules:
        codes = [{"code": check.code, "name": check.name, "severity": check.severity.value,
                  "rule": check.why, "mend": check.mend} for check in CHECKS]  # fmt: skip
        output.result({"rules": codes}, rules_as_markdown())
        return
    if kernel is None:
        raise UsageError("lint needs a file: give --kernel, or --rules for the rules themselves")
    text = read_file(kernel)
    try:
        source, backend = parse(text, str(kernel))
    except NoKernelError:
        report = lint(Source(text, str(kernel)))
        if not any(finding.code == MISNAMED for finding in report.findings):
            raise
        kernels = []  # there would be some, were they imported by the right name
    else:
        if backend.name != "cutile":
            raise UsageError(
                f"lint checks cuTile kernels, and {kernel} holds {backend.name}'s: "
                "name a file with @ct.kernel"
            )
        kernels = [found.name for found in backend.kernels(source)]
        report = lint(source)
    counts = {severity.value: report.count(severity) for severity in Severity}
    summary = ", ".join(f"{n} {name}{'s' if n != 1 else ''}" for name, n in counts.items())
    output.result(
        {
            "kernel": str(kernel),
            "backend": "cutile",
            "kernels": kernels,
            "findings": [asdict(finding) for finding in report.findings],
            "counts": counts,
            "suppressed": report.suppressed,
        },
        "\n".join(
            [
                *(
                    f"{kernel}:{f.line}: {f.severity} {f.code} {f.name}: {f.message}\n    {f.mend}"
                    for f in report.findings
                ),
                f"{kernel}: {summary}"
                + (f", {report.suppressed} silenced" if report.suppressed else ""),
            ]
        ),
    )
    raise typer.Exit(FOUND if report.count(Severity.ERROR) else 0)
