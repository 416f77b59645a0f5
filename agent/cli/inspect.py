"""`doctor`, `classify`, `verify`, `bench`: steps of the loop on their own. They change nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import output
from agent.cli.reference import (
    REFERENCE,
    SHAPES,
    Asked,
    Atol,
    Dtypes,
    Function,
    ProcessLimits,
    Rtol,
    Sizes,
)
from agent.cli.shared_options import (
    Benches,
    Json,
    Kernel,
    PassEnv,
    Python,
    Sandboxed,
    Tests,
    confined,
    handed_on,
)
from agent.errors import ExitCode
from agent.options import Options, Request, Sandbox

if TYPE_CHECKING:
    from agent.measuring.measurement import Failure
    from agent.session import Session
    from agent.syntax import Source

Targets = Annotated[
    list[str] | None,
    typer.Option(help="Only compile, for this GPU such as sm_90; may be given several times."),
]
RightResult = Annotated[str | None, REFERENCE]
Shapes = Annotated[str | None, SHAPES]
MOST_SKIPPED = 10
"""Tests that skipped themselves and are named to a person."""
FAILED = 3
"""Exit code of `verify` and `bench` when the tests fail: an answer, not a fault."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(doctor)
    app.command()(classify)
    app.command()(verify)
    app.command()(bench)
    app.command()(calibrate)


def doctor(python: Python = sys.executable, as_json: Json = False) -> None:
    """Say what this machine can do: GPU, driver, toolchains, backends.

    What its GPU moves and multiplies is timed once for each driver and limit of its clock.
    """
    output.use_json(as_json)
    from agent.backends import BACKENDS
    from agent.environment import describe_sandbox
    from agent.evidence.roof import MeasuredRoof, described
    from agent.harness.processes.interpreter import environment_of
    from agent.harness.roof import roof_when_free
    from agent.tileir.machine import of_environment

    environment = environment_of(python)
    tile_ir = of_environment(environment)
    backends = {
        name: {
            "usable": (refusal := backend.refusal(environment)) is None,
            "detail": refusal or backend.latency_meaning(environment),
        }
        for name, backend in BACKENDS.items()
    }
    roof = roof_when_free(environment.gpu, python) if environment.gpu else None
    gpus = [
        f"{gpu.name}, sm_{gpu.sm}, {gpu.memory_mib} MiB, driver {gpu.driver}"
        for gpu in environment.gpus
    ]
    rows = [
        ("python", f"{environment.python} on {environment.system}"),
        *(("gpu", gpu) for gpu in gpus or ["none that NVML can see"]),
        *(("roof", line) for line in (described(roof) if roof else ())),
        *((name, version or "-") for name, version in environment.versions.items()),
        ("tileiras", environment.tileiras or "not found"),
        ("sandbox", describe_sandbox(environment.sandbox)),
        ("tile ir", f"{tile_ir.nvtriton}: {tile_ir.no_tile_ir or 'ready'}"),
        *(
            (name, f"{'ready' if backend['usable'] else 'not usable'}: {backend['detail']}")
            for name, backend in backends.items()
        ),
    ]
    width = max(len(name) for name, _ in rows)
    told = roof.to_json() if isinstance(roof, MeasuredRoof) else None
    value = environment.to_json() | {"roof": told, "backends": backends}
    output.result(value, "\n".join(f"{name:<{width}} {told}" for name, told in rows))


def classify(kernel: Kernel, as_json: Json = False) -> None:
    """Estimate what bounds a kernel, and list the optimizations in the order that follows.

    Of a Triton kernel also say what kind it is, such as norm-like or attention, and by which lines.
    """
    output.use_json(as_json)
    from dataclasses import asdict

    from agent.analysis.triton.kinds import classify as classify_kinds
    from agent.playbook import ordered
    from agent.preflight import read_file
    from agent.target import parse

    source, backend = parse(read_file(kernel), str(kernel))
    found = backend.classify(source)
    order = [entry.name for entry in ordered(backend.name, found.kernel_class)]
    kinds = classify_kinds(source) if backend.name == "triton" else ()
    kernels = [kernel.name for kernel in backend.kernels(source)]
    if kinds:  # of the others, helpers that kernels call, there is nothing to say
        kernels = [name for name in kernels if name in {each.kernel for each in kinds}]
    output.result(
        {
            "kernel": str(kernel),
            "backend": backend.name,
            "kernels": kernels,
            "kernel_class": found.kernel_class.value,
            "flop_per_byte": found.flop_per_byte,
            "evidence": list(found.evidence),
            "kinds": [asdict(each) for each in kinds],
            "order": order,
        },
        "\n".join(
            [
                f"{kernel} ({backend.name}: {', '.join(kernels)})",
                f"{found.kernel_class.value}, about {found.flop_per_byte:.3g} FLOP/B",
                *(f"  {line}" for line in found.evidence),
                *(
                    line
                    for each in kinds
                    for line in (
                        f"{each.kernel}: {each.kind}",
                        *(f"  {indicator}" for indicator in each.indicators),
                    )
                ),
                f"order: {', '.join(order)}",
            ]
        ),
    )


def verify(
    kernel: Kernel,
    tests: Tests = None,
    correctness_k: str | None = typer.Option(None, help="pytest -k expression."),
    target: Targets = None,
    reference: RightResult = None,
    shapes: Shapes = None,
    dtypes: Dtypes = None,
    function: Function = None,
    sizes: Sizes = None,
    rtol: Rtol = None,
    atol: Atol = None,
    timeout_s: float = typer.Option(600.0, min=1, help="Give it so many seconds."),
    python: Python = sys.executable,
    sandbox: Sandboxed = Sandbox.STRICT,
    pass_env: PassEnv = None,
    as_json: Json = False,
) -> None:
    """Run the correctness tests on the committed kernel, as the loop does.

    A cuTile kernel that no GPU here can run, or any with --target, is compiled instead, from disk.

    With --reference and --shapes no tests are needed: a Triton kernel, as it is on disk, is called
    and compared; without a GPU in Triton's interpreter. A letter in a shape takes each size and
    each size less one.
    """
    output.use_json(as_json)
    call = {"reference": reference, "shapes": shapes, "dtypes": dtypes, "function": function,
            "sizes": sizes, "rtol": rtol, "atol": atol}  # fmt: skip
    if given := [f"--{name}" for name, value in call.items() if value is not None]:
        instead = {"--tests": tests, "--correctness-k": correctness_k, "--target": target}
        _only_compared(given, instead)
        asked = Asked(reference or "", shapes or "", dtypes, function, sizes, rtol, atol)
        _compare(kernel, asked, ProcessLimits(python, timeout_s, confined(sandbox, pass_env)))
        return
    if (source := _to_compile(kernel, target)) is not None:
        from agent.harness.compiling.cutile import compile_file

        found = compile_file(
            source,
            kernel,
            python=python,
            targets=target or (),
            timeout_s=timeout_s,
            pass_env=handed_on(pass_env),
        )
        output.result(found.to_json(), "\n".join(found.lines()))
        raise typer.Exit(0 if found.ok else FAILED if found.failed else ExitCode.USAGE)
    from agent.cli.done_tests import DoneTests
    from agent.cli.still import opened_aloud
    from agent.errors import NoTests, UsageError
    from agent.harness.processes.worker_session import deadline_in
    from agent.measuring.measurement import Failure
    from agent.report.progress import passing

    # It tries nothing else.
    options = replace(confined(sandbox, pass_env), correctness_workers=1)
    request = Request(kernel, tuple(tests or ()), correctness_k, python=python, options=options)
    with ExitStack() as stack:
        try:
            session = stack.enter_context(opened_aloud(request, ("correctness",)))
        except NoTests as problem:
            without = "--reference and --shapes have a kernel of Triton compared without tests"
            raise UsageError(f"{problem}; {without}") from None
        checkout = session.checkout(session.origin_sha)
        with DoneTests(len(session.plan.correctness)) as done:
            outcome = session.judge.verify(
                checkout, deadline_in(timeout_s), may_skip=True, tell=done.begins
            )
    if isinstance(outcome, Failure):
        _fail(outcome, session)
    else:
        outcome.check(session.target.kernel)
        notes = (*session.notes, *outcome.notes)
        right = f"right: {passing(outcome.passed)}"
        value = {"correct": True, "passed": outcome.passed, "skipped": list(outcome.skipped)}
        told = [right, *_skipped(outcome.skipped), *(f"note: {note}" for note in notes)]
        output.result(value | {"notes": list(notes)}, "\n".join(told))


def bench(
    kernel: Kernel,
    tests: Tests = None,
    perf_k: str | None = typer.Option(None, help="pytest -k expression."),
    benches: Benches = None,
    timeout_s: float = typer.Option(600.0, min=1, help="Give the tests so many seconds."),
    python: Python = sys.executable,
    sandbox: Sandboxed = Sandbox.STRICT,
    pass_env: PassEnv = None,
    as_json: Json = False,
) -> None:
    """Run the perf tests on the committed kernel once, as the loop does."""
    output.use_json(as_json)
    from agent.cli.still import opened_aloud
    from agent.harness.processes.worker_session import deadline_in
    from agent.journal import to_json
    from agent.measuring.measurement import Failure

    options = confined(sandbox, pass_env)
    given, named = tuple(tests or ()), tuple(benches or ())
    request = Request(kernel, given, None, perf_k, named, options=options, python=python)
    with opened_aloud(request, ("perf",)) as session:
        checkout = session.checkout(session.origin_sha)
        outcome = session.judge.time(checkout, deadline_in(timeout_s), may_skip=True)
        meaning = session.latency_meaning
    if isinstance(outcome, Failure):
        _fail(outcome, session)
    else:
        lines = [f"{r.latency_ms:.6f} ms  {r.config}  ({r.method})" for r in outcome.records]
        output.result(
            {
                "latency_meaning": meaning,
                "pass_s": outcome.pass_s,
                "records": to_json(outcome.records),
            },
            "\n".join([*lines, meaning]),
        )


def calibrate(
    kernel: Kernel,
    tests: Tests = None,
    perf_k: str | None = typer.Option(None, help="pytest -k expression."),
    benches: Benches = None,
    timeout_s: float = typer.Option(600.0, min=1, help="Give it so many seconds."),
    python: Python = sys.executable,
    sandbox: Sandboxed = Sandbox.STRICT,
    pass_env: PassEnv = None,
    as_json: Json = False,
) -> None:
    """Compare the committed kernel with itself: which effects can be told from noise here."""
    output.use_json(as_json)
    from agent.cli.still import comparing_with_itself, opened_aloud
    from agent.harness.processes.worker_session import deadline_in
    from agent.journal import to_json
    from agent.measuring.measurement import Failure
    from agent.measuring.resolution import describe_resolution

    options = confined(sandbox, pass_env)
    given, named = tuple(tests or ()), tuple(benches or ())
    request = Request(kernel, given, None, perf_k, named, options=options, python=python)
    with opened_aloud(request, ("perf",)) as session:
        checkout = session.checkout(session.origin_sha)
        with comparing_with_itself() as after_first:
            outcome = session.judge.calibrate(checkout, deadline_in(timeout_s), after_first)
    if isinstance(outcome, Failure):
        _fail(outcome, session)
    else:
        output.result(to_json(outcome), describe_resolution(outcome, Options().rules))


def _only_compared(given: list[str], instead: Mapping[str, object]) -> None:
    """Raise `UsageError` unless the options go together."""
    from agent.errors import UsageError

    if lacking := [name for name in ("--reference", "--shapes") if name not in given]:
        raise UsageError(f"{given[0]} needs {' and '.join(lacking)}: what is right, for which call")
    if other := next((name for name, value in instead.items() if value), None):
        raise UsageError(f"{other} and --reference are two ways to verify: leave one out")


def _compare(kernel: Path, asked: Asked, limits: ProcessLimits) -> None:
    """Call the kernel on made inputs, and compare what it does with the reference."""
    from agent.cli.reference import read
    from agent.errors import UsageError
    from agent.preflight import read_file
    from agent.target import parse
    from agent.tileir.steps import StepStatus

    source, backend = parse(read_file(kernel), str(kernel))
    if backend.name != "triton":
        raise UsageError(
            f"--reference compares Triton kernels, and {kernel} holds {backend.name}'s: "
            "write it a test, which `pytest --tile-cpu` runs without a GPU too"
        )
    with closing(read(source, kernel, asked, limits, ragged=True)) as calls:
        step = calls.verify(tile=False)
    if step.status is StepStatus.NOT_RUN:
        raise UsageError(step.reason)
    right = step.status is StepStatus.PASSED
    gap = "" if step.max_abs_diff is None else f", max difference {step.max_abs_diff:.1e}"
    told = [f"{'right' if right else 'wrong'}: {step.reason}{gap}", *step.details]
    value = {
        "correct": right,
        "reason": step.reason,
        "max_abs_diff": step.max_abs_diff,
        "max_rel_diff": step.max_rel_diff,
        "details": list(step.details),
    }
    output.result(value, "\n".join(told))
    if not right:
        raise typer.Exit(FAILED)


def _to_compile(kernel: Path, targets: list[str] | None) -> Source | None:
    """The kernel's file, when it is to be compiled and not run."""
    from agent.environment import probe
    from agent.errors import UsageError
    from agent.harness.compiling.cutile import only_compiles
    from agent.preflight import read_file
    from agent.target import parse

    source, backend = parse(read_file(kernel), str(kernel))
    if targets and backend.name != "cutile":
        raise UsageError(f"--target compiles cuTile kernels, and {kernel} holds {backend.name}'s")
    return source if targets or only_compiles(backend.name, probe()) else None


def _skipped(nodeids: Sequence[str]) -> Iterator[str]:
    """The tests that skipped themselves, each of its cases' in one line."""
    from collections import Counter

    counts = Counter(nodeid.partition("[")[0] for nodeid in nodeids)
    for name, count in list(counts.items())[:MOST_SKIPPED]:
        yield f"skipped on this machine: {name}{f' ({count} cases)' if count > 1 else ''}"
    if len(counts) > MOST_SKIPPED:
        yield f"and {len(counts) - MOST_SKIPPED} more tests, which --json names"


def _fail(failure: Failure, session: Session) -> None:
    from agent.harness.processes.confinement import remedy
    from agent.harness.processes.wanted_gpu import remedy as of_no_gpu

    mend = remedy(session.options, failure.reason) or of_no_gpu(failure.reason)
    reason = session.with_log(f"{failure.reason}{mend}")
    output.result({"correct": failure.correct, "reason": reason}, reason)
    raise typer.Exit(FAILED)
