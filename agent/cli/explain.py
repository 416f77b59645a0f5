"""`explain`: what the compiler makes of a kernel, for any GPU, and what that suggests."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import output
from agent.cli.observed import by_newest_run
from agent.cli.shared_options import Json, Kernel, PassEnv, Python, Tests, handed_on
from agent.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.evidence.model import CompiledLaunch
    from agent.harness.compiling.artifacts import Evidence, Wanted
    from agent.harness.processes.worker_session import Checkout
    from agent.syntax import Source

DEFAULT_SM = (80, 90, 100)
"""Without a GPU: Ampere, Hopper, Blackwell."""
FAILED = 3
"""Exit code when nothing compiles: an answer, not a fault."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(explain)


def explain(
    kernel: Kernel,
    against: str | None = typer.Option(
        None, help="Say what changed since this commit; one of a run's refs will do."
    ),
    sm: Annotated[
        list[int] | None,
        typer.Option(min=80, help="Compute capability, as 90; may be given several times."),
    ] = None,
    tests: Tests = None,
    everything: bool = typer.Option(
        False, "--all", help="Also what only correctness tests launch."
    ),
    listing: bool = typer.Option(False, help="Print the Tile IR or PTX as well."),
    timeout_s: float = typer.Option(300.0, min=1, help="Give it so many seconds."),
    python: Python = sys.executable,
    pass_env: PassEnv = None,
    as_json: Json = False,
) -> None:
    """Compile what the tests launch and say what came out: no GPU is needed.

    Registers, spills, shared memory, occupancy, instructions, the compiler's remarks. The kernel is
    read from disk, its tests from the last commit; they run in a worktree.
    """
    output.use_json(as_json)
    from agent.analysis.triton.tuners import left_to_tuners, shown_of_tuned
    from agent.analysis.triton.wrapped import decorated
    from agent.evidence import text
    from agent.harness.compiling.assumed import reasons, unjudged_results
    from agent.harness.diagnostician import multiplying
    from agent.launches import configs_shown

    found = look_at(kernel, python, sm or [], timed_only=not everything, pass_env=pass_env)
    with ExitStack() as stack:
        _, evidence = compiled(stack, found, tests or [], timeout_s)
        base = None
        if against is not None:
            _, base = compiled(stack, found, tests or [], timeout_s, against)
    seen = by_newest_run(kernel)
    source = decorated(found.source)
    shown = configs_shown(evidence.observed, left_to_tuners(source))
    assumed = unjudged_results(evidence.results)
    unjudged = reasons(assumed, kernel.name)
    lines = [
        *_notes(evidence),
        *shown_of_tuned(source, shown),
        *text.lines(evidence.results, multiplying(found.source)),
        *unjudged,
        *seen.tuning(),
    ]
    changed = list(text.difference(base.results, evidence.results)) if base else []
    if base is not None:
        lines += [f"against {against}:", *(f"  {line}" for line in changed or ["no such launch"])]
    if listing:
        lines += [artifact.listing for artifact in evidence.artifacts]
    output.result(
        {
            "kernel": str(kernel),
            "launches": evidence.launches,
            "left_out": evidence.left_out,
            "kernels_left_out": evidence.kernels_left_out,
            "observed": [asdict(launch) for launch in evidence.observed],
            "tuning": list(seen.tuning()),
            "test_failures": list(evidence.failures),
            "notes": list(evidence.notes),
            "results": _results(evidence, listing=listing),
            "problems": list(evidence.problems),
            "unjudged": list(unjudged),
            "changes": changed if base else None,
        },
        "\n".join(lines),
    )
    if not evidence.artifacts:
        # of assumed values that do not fit: the user can give others
        raise typer.Exit(ExitCode.USAGE if len(assumed) == len(evidence.results) else FAILED)


@dataclass(frozen=True)
class Found:
    """What is to be explained."""

    path: Path
    """Absolute."""
    text: str
    source: Source
    wanted: Wanted


def look_at(
    kernel: Path, python: str, sm: list[int], *, timed_only: bool, pass_env: Sequence[str] | None
) -> Found:
    """Read a kernel, and settle what to compile it for."""
    from agent.environment import probe
    from agent.harness.compiling.artifacts import Wanted
    from agent.harness.processes.interpreter import check_triton
    from agent.preflight import read_file
    from agent.target import parse

    text = read_file(kernel)
    source, backend = parse(text, str(kernel))
    if backend.name == "triton":
        check_triton(python)
    environment = probe()
    gpu = environment.gpu if backend.refusal(environment) is None else None
    targets = tuple(dict.fromkeys(sm)) or ((gpu.sm,) if gpu else DEFAULT_SM)
    wanted = Wanted(
        backend.name,
        targets,
        python=python,
        has_gpu=gpu is not None,
        timed_only=timed_only,
        pass_env=handed_on(pass_env),
    )
    return Found(kernel.resolve(), text, source, wanted)


def compiled(
    stack: ExitStack, found: Found, tests: list[str], timeout_s: float, ref: str | None = None
) -> tuple[Checkout, Evidence]:
    """What the tests launch, compiled, and in which checkout: see `_checkout_of`.

    Where the commit has none that launch a kernel, those of a run on it will do.
    """
    from agent.cli.lent_tests import lent_by_run
    from agent.cli.still import recording_launches
    from agent.errors import NoTests
    from agent.harness.compiling.artifacts import collect
    from agent.harness.compiling.recorded_tests import NothingLaunched

    def collected(checkout: Checkout, nodeids: tuple[str, ...]) -> tuple[Checkout, Evidence]:
        with recording_launches(nodeids, timeout_s):
            return checkout, collect(checkout, nodeids, found.wanted, timeout_s)

    try:
        return collected(*_checkout_of(stack, found, tests, ref))
    except (NoTests, NothingLaunched):
        if tests:
            raise
        if ref is None:
            _check_committed(found)
        lent = lent_by_run(found.path, ref or "HEAD")
        if lent is None:
            raise
        root = lent.laid_out(stack, "" if ref else found.text)
        checkout, evidence = collected(lent.checkout(root), lent.tests)
        return checkout, replace(evidence, notes=(lent.note, *evidence.notes))


def _check_committed(found: Found) -> None:
    """Raise `UsageError` where tests lie there that are only not committed.

    Nobody is to be sent to make others, which `capture` would refuse.
    """
    from agent.errors import NoTests, UsageError
    from agent.preflight import tree_of
    from agent.repository import Repository
    from agent.target import find_target

    try:
        repository = Repository.open(found.path.parent)
    except UsageError:  # it lies in none: its tests need not be committed
        return
    name, head = found.path.relative_to(repository.root).as_posix(), repository.head()
    if head is not None and repository.entry(head, name) is not None:
        with suppress(NoTests):  # that there are none at all is told by who asked
            find_target(tree_of(repository, head, repository.changes()), name)


def _checkout_of(
    stack: ExitStack, found: Found, tests: list[str], ref: str | None
) -> tuple[Checkout, tuple[str, ...]]:
    """The kernel and its tests: of a commit, or of the last one with the kernel as on disk."""
    from agent.cli.lent_tests import lent_by_run
    from agent.errors import UsageError
    from agent.harness.compiling.cutile import import_roots
    from agent.harness.processes.worker_session import Checkout
    from agent.preflight import tree_of
    from agent.repository import Repository
    from agent.target import find_target
    from agent.throwaway import throwaway

    try:
        repository = Repository.open(found.path.parent)
    except UsageError:
        if ref is not None:
            raise
        return _in_place(found, tests)
    name = found.path.relative_to(repository.root).as_posix()
    commit = repository.ask("rev-parse", "--verify", "--quiet", f"{ref or 'HEAD'}^{{commit}}")
    committed = commit.status == 0 and repository.entry(commit.text, name) is not None
    if not committed:
        if ref is not None:
            raise UsageError(f"--against {ref}: no commit here that holds {name}")
        return _in_place(found, tests)
    root = stack.enter_context(throwaway(repository)).checkout(commit.text)
    if ref is None:
        (root / name).write_text(found.text, encoding="utf-8")
    try:
        target = find_target(tree_of(repository, commit.text), name, tests)
    except UsageError:
        if not tests and found.wanted.backend == "cutile" and lent_by_run(found.path) is None:
            return Checkout(root, import_roots(root / name), name), ()  # its source will have to do
        raise
    return Checkout(root, target.sys_path(root), name), target.tests


def _in_place(found: Found, tests: list[str]) -> tuple[Checkout, tuple[str, ...]]:
    """A kernel that no commit holds: where it lies, with the tests beside it."""
    from agent.harness.compiling.cutile import import_roots
    from agent.harness.processes.worker_session import Checkout

    roots = import_roots(found.path)
    kernel = found.path.relative_to(roots[-1]).as_posix()
    folders = dict.fromkeys((found.path.parent, *roots))
    places = [place for folder in folders for place in (folder, folder / "tests")]
    names = (f"test_{found.path.stem}.py", f"{found.path.stem}_test.py")
    beside = [place / name for place in places for name in names if (place / name).is_file()]
    chosen = [Path(test).absolute() for test in tests] or beside[:1]
    return Checkout(roots[-1], roots, kernel), tuple(map(str, chosen))


def _results(evidence: Evidence, *, listing: bool) -> list[dict[str, Any]]:
    """As plain JSON values; what a launch is stands in its first result, and in `observed`."""
    found: list[dict[str, Any]] = []
    first: dict[CompiledLaunch, int] = {}
    for index, result in enumerate(evidence.results):
        value = result.to_json()
        if "launch" in value:
            launch, before = value["launch"], first.setdefault(result.launch, index)
            if result.launch.observed is not None:
                del launch["tensors"]
            if before != index:
                kept = ("kernel", "test", "timed", "captured")
                value["launch"] = {name: launch[name] for name in kept} | {"as_in_result": before}
        found.append(value | ({"listing": getattr(result, "listing", "")} if listing else {}))
    return found


def _others(count: int) -> str:
    return f"{count} other launches are" if count > 1 else "1 other launch is"


def _notes(evidence: Evidence) -> list[str]:
    from agent.harness.compiling.artifacts import MOST_LAUNCHES

    notes = [f"note: {note}" for note in evidence.notes]
    untimed = min(evidence.untimed, evidence.left_out)
    if beyond := evidence.left_out - untimed:
        why = f"{MOST_LAUNCHES} are compiled at most, choose with --tests"
        notes.append(f"{_others(beyond)} left out: {why}")
    if untimed:
        notes.append(f"{_others(untimed)} left out, which no perf test makes: see --all")
    if unseen := evidence.kernels_left_out:
        notes.append(f"no launch is shown of {', '.join(unseen)}")
    if evidence.failures:
        rest = len(evidence.failures) - 1
        more = f" (and so did {rest} more)" if rest else ""
        notes.append(f"a test ended early, launches may be missing: {evidence.failures[0]}{more}")
    return notes
