"""Which tests judge a kernel: collected once, then frozen for the run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.errors import UsageError, WorkerError
from agent.events import TestPlan
from agent.harness.processes.collection_errors import fault
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Collection, Item
from agent.harness.processes.worker_session import Checkout, WorkerSession

CORRECTNESS, PERF = "correctness", "perf"
KINDS = (CORRECTNESS, PERF)
TIMING_FIXTURES = frozenset({"tile_bench", "benchmark"})
_BF16 = re.compile(r"bfloat16|bf16", re.IGNORECASE)


@dataclass(frozen=True)
class Selection:
    """What the user said about the tests; None leaves the choice to the defaults."""

    files: tuple[str, ...]
    """Files or node ids for pytest, relative to the root of the checkout."""
    correctness_k: str | None = None
    perf_k: str | None = None
    needs: tuple[str, ...] = KINDS
    """The kinds of tests without which nothing can be done."""


def discover(
    server: ForkServer,
    checkout: Checkout,
    selection: Selection,
    *,
    framework: str,
    interpreted: bool,
    log: Path,
    deadline: float,
) -> TestPlan:
    """Collect the tests and tell correctness from perf.

    The defaults are TileGym's expressions (`test_ and cutile and not test_perf`, `test_perf and
    cutile`). Where they select nothing, a perf test is one named `test_perf...` or one that uses a
    timing fixture, and the others are correctness tests.

    Raises:
        UsageError: nothing collected, an import that fails, or no test of a kind that is needed.
    """

    def collect(*arguments: str) -> Collection:
        arm = WorkerSession(
            server,
            checkout,
            log,
            arguments=[*selection.files, *arguments],
            tests=None,
        )
        with arm:
            return arm.collection(deadline)

    try:
        everything = collect()
        if everything.errors:
            nodeid, text = everything.errors[0]
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")  # the worker may have been ended before it printed it
            said = fault(text, checkout.root, nodeid)
            raise UsageError(f"the tests cannot be collected: {said} (see {log})")
        if not everything.items:
            raise UsageError(f"pytest finds no tests in {', '.join(selection.files)}")
        by_k = {k: collect("-k", k).items for k in _expressions(selection, framework)}
    except WorkerError as problem:
        raise UsageError(f"the tests cannot be collected: {problem}") from problem
    perf = _perf(everything.items, selection, framework, by_k)
    correctness = _correctness(everything.items, selection, framework, by_k, perf)
    notes = []
    if interpreted:
        correctness, left = _without_bf16(correctness)
        perf, left_perf = _without_bf16(perf)
        if left + left_perf:
            notes.append(
                f"{left + left_perf} bfloat16 tests are left out: Triton's interpreter computes "
                "bfloat16 wrongly and says nothing"
            )
    for kind, found, option in (
        (CORRECTNESS, correctness, "--correctness-k"),
        (PERF, perf, "--perf-k"),
    ):
        if kind in selection.needs and not found:
            raise UsageError(
                f"no {kind} tests among the {len(everything.items)} collected from "
                f"{', '.join(selection.files)}: choose them with {option} or --tests"
                + (f" ({notes[0]})" if notes else "")
            )
    return TestPlan(selection.files, correctness, perf, tuple(notes))


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
        )
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
        chosen = tuple(item for item in chosen or items if item.nodeid not in set(perf))
    return tuple(item.nodeid for item in chosen)


def _without_bf16(nodeids: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    kept = tuple(nodeid for nodeid in nodeids if not _BF16.search(nodeid))
    return kept, len(nodeids) - len(kept)
