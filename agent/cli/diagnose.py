"""`diagnose`: what holds a kernel back, with the evidence, and what to try first."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agent.cli import observed, output
from agent.cli.explain import Found, compiled, look_at
from agent.cli.shared_options import Json, Kernel, PassEnv, Python, Tests, handed_on

if TYPE_CHECKING:
    from agent.backends.base import Backend
    from agent.causes import Diagnosis
    from agent.launches import ObservedLaunch
    from agent.options import Request
    from agent.session import Session
    from agent.syntax import Source

DEFAULT_SM = 90
"""Without a GPU."""
FAILED = 3
"""Exit code when the perf tests fail: an answer, not a fault."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(diagnose)


def diagnose(
    kernel: Kernel,
    tests: Tests = None,
    sm: int = typer.Option(
        0, help="Only compile, for this compute capability such as 90; do not time."
    ),
    timeout_s: float = typer.Option(300.0, min=1, help="Give it so many seconds."),
    python: Python = sys.executable,
    pass_env: PassEnv = None,
    as_json: Json = False,
) -> None:
    """Say what holds a kernel back: memory, compute, latency, occupancy, locality, scheduling.

    With a GPU its perf tests are timed once; without one the source and the compiler speak alone.
    """
    output.use_json(as_json)
    from agent.environment import probe
    from agent.launches import tuning_costs
    from agent.preflight import read_file
    from agent.target import parse

    source, backend = parse(read_file(kernel), str(kernel))
    environment = probe()
    here = environment.gpu is not None and backend.refusal(environment) is None
    passed = handed_on(pass_env)
    if here and not sm:
        found, launches, notes = _timed(kernel, tests or [], timeout_s, python, passed)
    else:
        asked = look_at(kernel, python, [sm or DEFAULT_SM], timed_only=True, pass_env=passed)
        found, launches, notes = _compiled(asked, tests or [], timeout_s)
    lines = [f"{kernel}: {found.cause.value}", *(f"  {line}" for line in found.evidence)]
    gpu = environment.gpu if here else None
    entries = _to_try(found, backend, source, sm or (gpu.sm if gpu else DEFAULT_SM), launches)
    if entries:
        lines.append(f"try first: {', '.join(entries)}")
    elif found.families:
        lines.append("try first: nothing of the playbook that is made for this fits the kernel")
    lines += [*observed.lines(launches), *tuning_costs(launches)]
    lines += [f"note: {note}" for note in notes]
    output.result(
        {
            "kernel": str(kernel),
            "cause": found.cause.value,
            "evidence": list(found.evidence),
            "families": list(found.families),
            "entries": entries,
            "observed": [asdict(launch) for launch in launches],
            "tuning": list(tuning_costs(launches)),
            "notes": list(notes),
        },
        "\n".join(lines),
    )


def _to_try(
    found: Diagnosis,
    backend: Backend,
    source: Source,
    sm: int,
    launches: tuple[ObservedLaunch, ...],
) -> list[str]:
    """The optimizations for a cause that apply to the kernel, the best first."""
    from agent.analysis.common.subject import Hardware, Subject
    from agent.analysis.triton.wrapped import decorated
    from agent.launches import by_cost
    from agent.playbook import PLAYBOOK
    from agent.proposers.base import Proposal
    from agent.proposers.playbook import offered
    from agent.syntax import Source

    seen = decorated(Source(source.text, source.path, by_cost(launches, {})))
    subject = Subject(seen, backend.classify(seen).kernel_class, Hardware(sm=sm), launches)
    fitting = [
        entry
        for entry in PLAYBOOK
        if entry.backend == backend.name
        and entry.family in found.families
        and isinstance(offered(entry, subject), Proposal)
    ]
    fitting.sort(key=lambda entry: found.families.index(entry.family))
    return [entry.name for entry in fitting]


def _compiled(
    subject: Found, tests: list[str], timeout_s: float
) -> tuple[Diagnosis, tuple[ObservedLaunch, ...], tuple[str, ...]]:
    """From the source and the compiler, with what is to be noted."""
    from dataclasses import replace

    from agent.evidence.duplicates import CompiledCommit
    from agent.harness.diagnostician import Diagnostician

    subject = replace(subject, wanted=replace(subject.wanted, has_gpu=False))
    with ExitStack() as stack:
        checkout, evidence = compiled(stack, subject, tests, timeout_s)
        complete = not (evidence.left_out or evidence.failures)
        commit = CompiledCommit(evidence.results, evidence.sequence, complete, evidence.work)
        found = Diagnostician(subject.wanted, None).diagnose(
            checkout, {}, commit, evidence.observed
        )
        return found, evidence.observed, evidence.notes


def _timed(
    kernel: Path, tests: list[str], timeout_s: float, python: str, pass_env: tuple[str, ...]
) -> tuple[Diagnosis, tuple[ObservedLaunch, ...], tuple[str, ...]]:
    """From all of it: one pass of the perf tests, what they compile to, counters; with notes."""
    from agent.harness.compiling.artifacts import Wanted
    from agent.harness.diagnostician import Diagnostician
    from agent.harness.measuring.timed_pass import PassLimit
    from agent.harness.processes.worker_session import deadline_in
    from agent.measuring.measurement import Failure
    from agent.options import CommandOptions, Options, Request

    options = Options(command=CommandOptions(pass_env=pass_env))
    request = Request(kernel, tuple(tests), options=options, python=python)
    with ExitStack() as stack:
        session, lent = _opened(stack, request)
        checkout = session.checkout(session.origin_sha)
        limit = PassLimit(min(Options().calibration_budget_s, timeout_s / 2))
        outcome = session.judge.time(checkout, deadline_in(timeout_s), may_skip=True, limit=limit)
        if isinstance(outcome, Failure):
            reason = session.with_log(outcome.reason)
            output.result({"correct": outcome.correct, "reason": reason}, reason)
            raise typer.Exit(FAILED)
        gpu = session.environment.gpu
        sms = (gpu.sm,) if gpu else ()
        wanted = Wanted(session.target.backend, sms, python, has_gpu=False, pass_env=pass_env)
        tests = [n for n in session.plan.perf if n not in outcome.left_out]
        commit = None
        if session.compiler is not None:
            (commit,) = session.compiler.compile([checkout], tests)
        found = Diagnostician(wanted, gpu).diagnose(
            checkout,
            {r.config: r.latency_ms for r in outcome.records},
            commit,
            launches=outcome.launches,
        )
        return found, outcome.launches, (*lent, *session.notes)


def _opened(stack: ExitStack, request: Request) -> tuple[Session, tuple[str, ...]]:
    """The committed kernel with its tests, or with those that a run on it captured; with a note."""
    from agent.cli.lent_tests import lent_by_run
    from agent.cli.still import opened_aloud
    from agent.errors import NoTests
    from agent.session import opened_at

    try:
        return stack.enter_context(opened_aloud(request, ("perf",))), ()
    except NoTests:
        lent = lent_by_run(request.kernel) if not request.tests else None
        if lent is None or (sha := lent.commit_of_kernel()) is None:
            raise
    opening = opened_at(lent.repository, lent.run, sha, output.progress)
    return stack.enter_context(opening), (lent.note,)
