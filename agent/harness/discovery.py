"""Which tests judge a kernel: collected once, then frozen for the run."""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent.backends import BACKENDS
from agent.errors import NoTests, UsageError, WorkerError
from agent.frozen_tests import TestPlan
from agent.harness import without_fixtures
from agent.harness.most_about import most_about
from agent.harness.processes.collection import Collection, Item
from agent.harness.processes.collection_errors import (
    end_of,
    fault,
    importable,
    read_in_vain,
    with_remedy,
)
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, WorkerSession
from agent.harness.without_uncollected import (
    conftest_of,
    for_captured_too,
    giving_way,
    left_out,
)
from agent.suggesting import or_captured
from tile_agent_pytest.bench_command import BenchCommand

CORRECTNESS, PERF = "correctness", "perf"
KINDS = (CORRECTNESS, PERF)
TIMING_FIXTURES = frozenset({"tile_bench", "benchmark"})
SLOW_COLLECTION_S = 1.5
"""From here on it is a gain to import for all workers what is installed: it takes that twice."""


@dataclass(frozen=True)
class Selection:
    """What the user said about the tests; None leaves the choice to the defaults."""

    files: tuple[str, ...]
    """Files or node ids for pytest, relative to the root of the checkout."""
    correctness_k: str | None = None
    perf_k: str | None = None
    needs: tuple[str, ...] = KINDS
    """The kinds of tests without which nothing can be done."""
    benches: tuple[str, ...] = ()
    """Benchmark scripts: perf tests in place of others, unless `perf_k` names some."""
    scripts: tuple[str, ...] = ()
    """What may be benchmark scripts, to be named where there is no perf test."""
    captured: str = ""
    """A test file whose perf tests are judged by in place of others, unless `perf_k` names some."""

    pass_env: tuple[str, ...] = ()
    """Variables that are handed on: what is suggested says so, too."""
    python: str = ""
    """The interpreter that runs the tests, likewise; empty: that of tile-agent."""

    @property
    def bench_ids(self) -> tuple[str, ...]:
        """The node ids of the scripts."""
        return tuple(BenchCommand.parse(bench).nodeid for bench in self.benches)


def imports_file(log: Path) -> Path:
    """Where it is kept what the fork server imported for tests, beside the log of collecting."""
    return log.with_suffix(".imports.json")


def discover(
    server: ForkServer,
    checkout: Checkout,
    selection: Selection,
    *,
    framework: str,
    log: Path,
    deadline: float,
) -> TestPlan:
    """Collect the tests and tell correctness from perf.

    The defaults are TileGym's expressions (`test_ and cutile and not test_perf`, `test_perf and
    cutile`). Where they select nothing, a perf test is one named `test_perf...` or one that uses a
    timing fixture, or else one in whose code something is named that is known to time, such as
    `triton.testing.do_bench`. The others are correctness tests, and so are those beside them that
    name no framework, unless others of their file name another one.

    Raises:
        UsageError: nothing collected, an import that fails, or no test of a kind that is needed.
    """

    plan = TestPlan(
        selection.files,
        (),
        (),
        benches=selection.benches,
        correctness_k=selection.correctness_k or "",
        perf_k=selection.perf_k or "",
    )

    expressions = _expressions(selection, framework)

    def collect(plan: TestPlan, *arguments: str) -> Collection:
        arm = WorkerSession(
            server,
            checkout,
            log,
            arguments=[*plan.arguments, *arguments],
            tests=None,
            keywords=() if arguments else expressions,
        )
        with arm:
            return arm.collection(deadline)

    try:
        begin = time.monotonic()
        plan, everything, notes = _collected(plan, collect, selection.captured, checkout, log)
        if time.monotonic() - begin > SLOW_COLLECTION_S and everything.installed.get("modules"):
            why = server.preload(everything.installed, imports_file(log))
            with log.open("a", encoding="utf-8") as file:
                said = f"not, for {why}" if why else "so that workers need not"
                file.write(f"imported by the fork server: {said}\n")
        if everything.errors:
            nodeid, text = everything.errors[0]
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")  # the worker may have been ended before it printed it
            said = f"{fault(text, checkout.root, nodeid)} (see {log})"
            held = read_in_vain(text, checkout.root, selection.pass_env)
            captures = bool(selection.captured)
            given = selection.pass_env, selection.python
            told = with_remedy(said, checkout, held, *given, captures=captures)
            raise UsageError(f"the tests cannot be collected: {told}")
        if not everything.items:
            whys = (f"{nodeid}: {why}" for nodeid, why in everything.skipped)
            said = "; ".join([f"pytest finds no tests in {', '.join(selection.files)}", *whys])
            raise UsageError(said)
        items_of = dict(everything.by_keyword)
        others = {k: collect(plan, "-k", k) for k in expressions if k not in items_of}
        if errors := [error for found in others.values() for error in found.errors]:
            said = fault(errors[0][1], checkout.root, errors[0][0])
            raise UsageError(f"the tests cannot be collected again: {said} (see {log})")
        can_call = without_fixtures.callable_ones
        items_of |= {k: found.items for k, found in others.items()}
        items_by_k = {k: can_call(items) for k, items in items_of.items()}
    except WorkerError as problem:
        held = read_in_vain(end_of(log), checkout.root, selection.pass_env)
        told = _uncollected(str(problem), selection, checkout, held, end_of(log))
        raise UsageError(told) from problem
    scripts = selection.bench_ids
    all_tests = [item for item in everything.items if item.nodeid not in scripts]
    tests = without_fixtures.callable_ones(all_tests)
    perf = _perf(tests, selection, framework, items_by_k)
    correctness = _correctness(tests, selection, framework, items_by_k, perf)
    if selection.perf_k is None and (scripts or selection.captured):
        perf = tuple(p for p in perf if p.startswith(f"{selection.captured}::"))
    perf = (*perf, *scripts)
    if selection.correctness_k is None:
        notes += _unnamed(tests, framework, correctness, perf)
        notes += _beside_captured(selection.captured, correctness)
    notes += without_fixtures.left_out(all_tests)
    calls_its_own = without_fixtures.script_of(all_tests)
    script = next(iter(selection.scripts), "SCRIPT")
    for kind, found, option in (
        (CORRECTNESS, correctness, "--correctness-k"),
        (PERF, perf, f"--perf-k, --bench {shlex.quote(f'python {script}')}"),
    ):
        if kind in selection.needs and not found:
            run = (
                most_about(checkout, [_file(item) for item in tests])
                if kind == PERF and tests
                else ""
            )
            raise NoTests(
                f"no {kind} tests among the {len(everything.items)} collected from "
                f"{', '.join(selection.files)}: choose them with {option} or --tests, "
                + or_captured(
                    checkout.kernel, run, calls_its_own, selection.pass_env, selection.python
                )
                + (f" ({notes[-1]})" if notes else "")
            )
    notes += _timed_through(everything.items, perf)
    files = without_fixtures.files_with_tests(plan.files, all_tests)
    return replace(plan, files=files, correctness=correctness, perf=perf, notes=tuple(notes))


MANY = 40
"""Tests of a project that may take minutes where there is no GPU."""
_TOO_LONG = re.compile(r"a message of \d+ bytes")
"""How a worker's channel refuses a list of some hundred thousand tests."""


def _collected(
    plan: TestPlan,
    collect: Callable[[TestPlan], Collection],
    captured: str,
    checkout: Checkout,
    log: Path,
) -> tuple[TestPlan, Collection, list[str]]:
    """The collection without files that other tests do not need, and what to say of these.

    Such a file needs what is not installed, or cannot be collected where captured tests can.

    Raises:
        WorkerError: the worker ended, and nobody knows for what file.
    """
    notes: list[str] = []
    while True:
        try:
            everything = collect(plan)
        except WorkerError as problem:
            faults = [("", str(problem), end_of(log))] if captured else []
            kept, told = _giving_way(plan.files, faults, captured, checkout)
            if not told:
                raise
        else:
            kept, told = importable(plan.files, everything.errors, checkout)
            if captured and everything.errors and not told:
                faults = [(n, fault(text, checkout.root, n), text) for n, text in everything.errors]
                kept, told = _giving_way(plan.files, faults, captured, checkout)
            if not told:
                return plan, everything, notes
        notes += told
        plan = replace(plan, files=kept)


def _giving_way(
    files: tuple[str, ...],
    faults: Sequence[tuple[str, str, str]],
    captured: str,
    checkout: Checkout,
) -> tuple[tuple[str, ...], list[str]]:
    """The files that captured tests are collected with, and what to say of the others.

    All of them, and nothing to say, where none can be blamed for a fault: its node id, which is
    empty where it ended the worker, the reason in a line, and the account.
    """
    blamed = (conftest_of(account, checkout.root) for _, _, account in faults)
    conftest = next(filter(None, blamed), "")
    kept = giving_way(files, [nodeid for nodeid, _, _ in faults], captured, conftest)
    gone = [file for file in files if file not in kept]
    return (kept, [left_out(gone, faults[0][1])]) if gone and kept else (files, [])


def _uncollected(
    problem: str, selection: Selection, checkout: Checkout, held: Sequence[str], account: str
) -> str:
    """Why the tests cannot be collected, and what to do."""
    files = selection.files
    if selection.captured and (conftest := conftest_of(account, checkout.root)):
        mend = for_captured_too(checkout.kernel, selection.captured, conftest)
        return f"the tests cannot be collected: {problem}: {mend}"
    if _TOO_LONG.search(problem):
        they_hold = f"{', '.join(files)} {'hold' if len(files) > 1 else 'holds'}"
        return f"{they_hold} more tests than can be listed: choose some with --tests FILE::TEST"
    given = selection.pass_env, selection.python
    told = with_remedy(problem, checkout, held, *given, captures=bool(selection.captured))
    return f"the tests cannot be collected: {told}"


def default_perf_k(framework: str) -> str:
    """TileGym's expression for perf tests."""
    return f"test_perf and {framework}"


def default_correctness_k(framework: str) -> str:
    """TileGym's expression for correctness tests."""
    return f"test_ and {framework} and not test_perf"


def _expressions(selection: Selection, framework: str) -> tuple[str, str]:
    return (
        selection.perf_k or default_perf_k(framework),
        selection.correctness_k or default_correctness_k(framework),
    )


def _perf(
    items: Sequence[Item],
    selection: Selection,
    framework: str,
    by_k: dict[str, tuple[Item, ...]],
) -> tuple[str, ...]:
    chosen = by_k[selection.perf_k or default_perf_k(framework)]
    if not chosen and selection.perf_k is None:
        chosen = tuple(
            item
            for item in items
            if item.name.startswith("test_perf") or TIMING_FIXTURES & set(item.fixtures)
        ) or tuple(item for item in items if item.through)
    return tuple(item.nodeid for item in chosen)


def _correctness(
    items: Sequence[Item],
    selection: Selection,
    framework: str,
    by_k: dict[str, tuple[Item, ...]],
    perf: tuple[str, ...],
) -> tuple[str, ...]:
    chosen = by_k[selection.correctness_k or default_correctness_k(framework)]
    if selection.correctness_k is None:
        if chosen:
            chosen = (*chosen, *_beside(items, chosen, framework))
        chosen = chosen or tuple(items)
    found = tuple(item.nodeid for item in chosen if item.nodeid not in set(perf))
    if selection.correctness_k is not None:  # a perf test may be asked for that checks results
        return found or tuple(item.nodeid for item in chosen)
    return found


def _beside_captured(captured: str, correctness: Sequence[str]) -> list[str]:
    """That many tests of the project have to pass for each candidate beside the captured ones."""
    own = [nodeid for nodeid in correctness if not nodeid.startswith(f"{captured}::")]
    if not captured or len(own) < MANY:
        return []
    return [
        f"{len(own)} tests of the project judge each candidate beside the captured ones, which "
        "--correctness-k captured takes alone"
    ]


def _unnamed(
    tests: Sequence[Item], framework: str, correctness: Sequence[str], perf: Sequence[str]
) -> list[str]:
    """What to say of tests beside chosen ones that name the framework, where they name none."""
    files = {nodeid.partition("::")[0] for nodeid in correctness}
    chosen = {*correctness, *perf}
    left = [
        item.nodeid
        for item in tests
        if item.nodeid not in chosen
        and _file(item) in files
        and not item.name.startswith("test_perf")
        and not TIMING_FIXTURES & set(item.fixtures)
        and not any(name in item.nodeid.lower() for name in BACKENDS)
    ]
    if not left:
        return []
    tests_are = "1 test is" if len(left) == 1 else f"{len(left)} tests are"
    return [
        f"{tests_are} left out beside others that name {framework}, as {left[0]}: where they test "
        "the kernel, --correctness-k takes them"
    ]


def _beside(items: Sequence[Item], chosen: Sequence[Item], framework: str) -> Iterator[Item]:
    """Tests that do not name the framework, nor another one, beside those that do.

    One class of a file may test a module and say Triton in its name, or one file of a project
    compare with Triton's, while the tests of the kernel itself name nothing. A file that names
    other frameworks, too, means by its names what tests what; and where the parameters of a test
    name the framework, the same test with others is of another one.
    """
    others = BACKENDS.keys() - {framework}

    def names_another(item: Item) -> bool:
        return any(name in item.nodeid.lower() for name in others)

    taken, functions = set(chosen), {_function(item) for item in chosen}
    files = {_file(item) for item in chosen}
    mixed = {_file(item) for item in items if names_another(item)} & files
    for item in items:
        is_timed = item.name.startswith("test_perf") or (
            _file(item) in files and TIMING_FIXTURES & set(item.fixtures)
        )
        if not (
            item in taken
            or is_timed
            or names_another(item)
            or _file(item) in mixed
            or _function(item) in functions
        ):
            yield item


def _function(item: Item) -> str:
    return item.nodeid.partition("[")[0]


def _file(item: Item) -> str:
    return item.nodeid.partition("::")[0]


def _timed_through(items: Sequence[Item], perf: Sequence[str]) -> list[str]:
    """What the perf tests time with, apart from `tile_bench`, with the number of tests."""
    chosen = set(perf)
    counts = Counter(way for item in items if item.nodeid in chosen for way in item.through)
    if not counts:
        return []
    ways = ", ".join(f"{way} ({n} test{'s' if n > 1 else ''})" for way, n in counts.items())
    return [f"timed through {ways}: block by block, as with tile_bench"]
