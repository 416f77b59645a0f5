"""`autotune`: writes a search of the best config into a cuTile kernel's file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import output
from agent.cli.shared_options import Json, Kernel, Python
from agent.report.unified import unified

if TYPE_CHECKING:
    from agent.harness.compiling.configs import CompiledConfig
    from agent.tuning import SearchPlan

Compile = Annotated[
    list[str] | None,
    typer.Option(
        "--compile", help="Compile every config for this GPU, such as sm_90; may be repeated."
    ),
]
FAILED = 3
"""Exit code when a config does not compile: an answer, not a fault."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(autotune)


def autotune(
    kernel: Kernel,
    function: str | None = typer.Option(
        None, help="Which kernel, where the file launches several."
    ),
    template: str | None = typer.Option(None, help="T1 to T9, instead of the one chosen."),
    write: bool = typer.Option(False, "--write", help="Change the file; else print the diff."),
    compile_for: Compile = None,
    timeout_s: float = typer.Option(600.0, min=1, help="Give the compiling so many seconds."),
    python: Python = sys.executable,
    as_json: Json = False,
) -> None:
    """Let a cuTile kernel search its best config on its first call, and remember it.

    The diff goes to stdout, what was chosen and why to stderr. Nothing changes without --write.
    """
    output.use_json(as_json)
    from agent.analysis.common.subject import Hardware, NotApplicable, Subject
    from agent.environment import probe
    from agent.errors import UsageError
    from agent.playbook.cutile.autotune import Autotune, kernel_named, plan_for, written
    from agent.preflight import read_file
    from agent.target import parse

    text = read_file(kernel)
    source, backend = parse(text, str(kernel))
    if backend.name != Autotune.backend:
        raise UsageError(
            f"{kernel} holds {backend.name}'s kernels, and the search is cuTile's; "
            "Triton has @triton.autotune"
        )
    gpu = probe().gpu
    subject = Subject(source, backend.classify(source).kernel_class, Hardware(gpu.sm if gpu else 0))
    try:
        plan = plan_for(subject, kernel_named(source, function), template)
        changed = written(subject, plan)
    except NotApplicable as refusal:
        raise UsageError(f"{kernel}: {refusal}") from None
    parse(changed, str(kernel))
    compiled = {t: _compiled(plan, kernel, t, python, timeout_s) for t in compile_for or ()}
    for line in _lines(plan, compiled):
        output.progress(line)
    if write:
        kernel.write_bytes(changed.encode())
    diff = unified(text, changed, kernel)
    output.result(
        plan.to_json()
        | {
            "file": str(kernel),
            "written": write,
            "diff": diff,
            "compiled": {t: [c.to_json() for c in found] for t, found in compiled.items()},
        },
        f"{kernel} is written" if write else diff,
    )
    if not all(c.ok for found in compiled.values() for c in found):
        raise typer.Exit(FAILED)


def _compiled(
    plan: SearchPlan, file: Path, target: str, python: str, timeout_s: float
) -> tuple[CompiledConfig, ...]:
    """What becomes of each config that the search would try on a GPU."""
    from agent.analysis.cutile.signature import signatures
    from agent.harness.compiling.configs import compile_configs

    (signature,) = (s for s in signatures(plan.form.source) if s.kernel == plan.kernel)
    sm = int(target.removeprefix("sm_")) if target.removeprefix("sm_").isdigit() else 0
    return compile_configs(
        signature, file, plan.configs_for(sm), python=python, target=target, timeout_s=timeout_s
    )


def _lines(plan: SearchPlan, compiled: dict[str, tuple[CompiledConfig, ...]]) -> list[str]:
    """What was chosen and why, for a person."""
    counts = ", ".join(f"{1 + len(rows)} from sm_{sm}" for sm, rows in plan.space.items())
    lines = [
        f"{plan.kernel}: {plan.template.name}, {plan.template.kind}",
        *(f"  {line}" for line in plan.why),
        f"  searches {', '.join(plan.dimensions)}",
        f"  configs, the fixed one included: {counts}",
    ]
    if plan.form.scratch:
        lines.append(f"  trial runs write to other arrays for {', '.join(plan.form.scratch)}")
    for target, found in compiled.items():
        lines.append(f"  compiled for {target}, {sum(c.ok for c in found)} of {len(found)}:")
        lines += [f"    {config}" for config in found]
    return lines
