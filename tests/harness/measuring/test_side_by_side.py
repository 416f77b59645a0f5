"""Correctness tests in several workers at once: which run where, and that nobody gets away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agent.events import Baselined
from agent.frozen_tests import TestPlan
from agent.harness.measuring.judge import is_worth_forerunners
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.side_by_side import OriginsTests, WorkerCount, shares
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.confinement import Confinement
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass, TestResult
from agent.harness.processes.worker_session import (
    Checkout,
    WorkerSession,
    deadline_in,
    tunes_for_other_tests,
)
from agent.measuring.decision import Rules, Status
from agent.measuring.measurement import Failure
from tests.support.repo import write

KERNEL = """
import os
from pathlib import Path

import torch
import triton
import triton.language as tl

HERE = Path(__file__).parent
SEEN = []


@triton.jit
def scale_kernel(x_ptr, y_ptr, columns, factor, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, x * factor, mask=mask)


def scale(x, factor):
    SEEN.append(x.numel())
    with open(HERE.parent / "calls", "a") as calls:
        print(HERE.name, os.getpid(), x.numel(), file=calls)
    y = torch.empty_like(x)
    scale_kernel[(1,)](x, y, x.numel(), factor, BLOCK=triton.next_power_of_2(x.numel()))
    return y
"""
TESTS = """
import kernel
import pytest
import torch


@pytest.mark.parametrize("columns", [8, 16, 24, 32, 40, 48])
def test_right(columns):
    x = torch.randn(columns)
    torch.testing.assert_close(kernel.scale(x, 3.0), x * 3.0)


def test_perf(tile_bench):
    x = torch.randn(128)
    tile_bench(lambda: kernel.scale(x, 3.0))
"""
SIZES = (8, 16, 24, 32, 40, 48)
CORRECTNESS = tuple(f"test_kernel.py::test_right[{columns}]" for columns in SIZES)
PLAN = TestPlan(("test_kernel.py",), CORRECTNESS, ("test_kernel.py::test_perf",))
WORKERS = 3
OF_ANOTHER_WORKER = 16
"""A size whose test the first worker does not run: its own are 8, 32 and the largest."""
BEGIN = "    SEEN.append(x.numel())\n"
WRONG = (BEGIN, f"{BEGIN}    factor += x.numel() == {OF_ANOTHER_WORKER}\n")
BLIND = (
    BEGIN,
    f"{BEGIN}    if x.numel() == {OF_ANOTHER_WORKER}:\n"
    "        torch.testing.assert_close = lambda *given, **named: None\n",
)
RESTS_ON_THE_FIRST = (
    BEGIN,
    f"{BEGIN}    assert x.numel() != 48 or 8 in SEEN, 'too early'\n",
)
WANTS_ALL = (
    BEGIN,
    f"{BEGIN}    if x.numel() == {OF_ANOTHER_WORKER} and 8 not in SEEN:\n        os._exit(1)\n",
)
NEEDS_ALL_MEMORY = (
    BEGIN,
    f"""{BEGIN}    mark = HERE.parent / "waited"
    if x.numel() == {OF_ANOTHER_WORKER} and not mark.exists():
        mark.touch()
        raise torch.OutOfMemoryError("others have it")
""",
)


@pytest.fixture
def judge(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PytestJudge]:
    monkeypatch.setattr(server, "confinement", Confinement(write=(tmp_path,)))  # what was called
    (tmp_path / "logs").mkdir()
    judge = PytestJudge(
        server,
        PLAN,
        framework="triton",
        rules=Rules(),
        logs=tmp_path / "logs",
        correctness_workers=WORKERS,
    )
    with closing(judge):
        yield judge


@pytest.fixture
def origin(tmp_path: Path) -> Checkout:
    return checkout(tmp_path / "origin")


def checkout(folder: Path, *edits: tuple[str, str]) -> Checkout:
    text = KERNEL
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    write(folder, {"kernel.py": text, "test_kernel.py": TESTS})
    return Checkout(folder, (folder,), "kernel.py")


def judged(judge: PytestJudge, origin: Checkout, *edits: tuple[str, str]) -> Verification | Failure:
    """What the judge says of a candidate whose tests run in several workers."""
    candidate = checkout(origin.root.parent / "candidate", *edits)
    judge.verify_in(WORKERS)
    return judge.verify(candidate, deadline_in(60), origin=origin)


def sizes_by_worker(folder: Path, whose: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for line in (folder / "calls").read_text().splitlines():
        name, worker, columns = line.split()
        if name == whose:
            found.setdefault(int(worker), []).append(int(columns))
    return found


def test_tests_are_dealt_out_in_turn() -> None:
    names = tuple("abcdefg")
    assert shares(names, 3) == [("a", "d", "g"), ("b", "e"), ("c", "f")]
    assert shares(names, 1) == [names]
    assert shares(names, 3, {"c", "e"}) == [("c", "e", "g"), ("a", "d"), ("b", "f")]
    assert shares(names, 3, set(names)) == [names, (), ()]


def test_how_many_workers_are_worth_it() -> None:
    assert WorkerCount(8).fitting(84) == 8
    assert WorkerCount(8).fitting(5) == 2
    assert WorkerCount(8).fitting(1) == 1
    assert WorkerCount(1).fitting(84) == 1
    assert (WorkerCount.of(4).most, WorkerCount.of(4).long_s) == (4, 0.0)
    assert 0 <= WorkerCount.of(None).most <= 8


def test_a_test_that_nobody_asked_for_ends_no_run() -> None:
    """A candidate's process may say what it likes."""
    said = [TestResult(name, "passed", "", "", (), "", ()) for name in ("forged", "b", "a")]
    ordered = Pass(tuple(said), (), 0.0).in_order(("a", "b"))
    assert [test.nodeid for test in ordered.tests] == ["a", "b", "forged"]


def test_short_ones_run_in_one(server: ForkServer, origin: Checkout, tmp_path: Path) -> None:
    logs = tmp_path / "short"
    logs.mkdir()
    most = WorkerCount(WORKERS, long_s=60.0)
    first = OriginsTests(server, origin, PLAN, most, lambda purpose: logs / purpose)
    log = tmp_path / "log"
    tests, arguments = PLAN.correctness, PLAN.arguments
    with WorkerSession(server, origin, log, arguments=arguments, tests=tests) as arm:
        found = first.run(arm, deadline_in(60))
    assert (found.workers, found.tried) == (1, 1)
    assert len(found.done.tests) == len(SIZES)
    assert not list(logs.iterdir())


def test_the_baseline_tries_whether_they_pass_so(judge: PytestJudge, origin: Checkout) -> None:
    """One runs alone before it is known that they take long, which is at once here."""
    told: list[tuple[int, str]] = []
    found = judge.verify(
        origin, deadline_in(60), may_skip=True, tell=lambda *what: told.append(what)
    )
    assert isinstance(found, Verification)
    assert (found.passed, found.workers, len(found.launching)) == (6, WORKERS, 6)
    assert told[-1] == (1, f"all of them again, in {WORKERS} workers at once")
    assert found.took_s > 0
    assert found.notes[-1].startswith("the correctness tests run in 3 workers at once, which takes")
    alone, *together = sizes_by_worker(origin.root.parent, "origin").values()
    assert set(alone) == {8}
    assert sorted(sorted(set(sizes)) for sizes in together) == [[8, 32], [16, 40], [24, 48]]


def test_tests_that_rest_on_each_other_run_in_one(judge: PytestJudge, tmp_path: Path) -> None:
    """The one that came too early passes in the worker that ran the first."""
    resting = checkout(tmp_path / "origin", RESTS_ON_THE_FIRST)
    found = judge.verify(resting, deadline_in(60), may_skip=True)
    assert isinstance(found, Verification), found
    assert (found.passed, found.workers) == (6, 1)
    assert found.notes[-1] == (
        "the correctness tests do not pass in 3 workers at once: they run in one"
    )


def test_a_test_that_fails_fails(judge: PytestJudge, tmp_path: Path) -> None:
    found = judge.verify(checkout(tmp_path / "origin", WRONG), deadline_in(60), may_skip=True)
    assert isinstance(found, Failure)
    assert f"test_right[{OF_ANOTHER_WORKER}]: AssertionError" in found.reason


def test_where_a_worker_dies_beside_others_the_tests_run_in_one(
    judge: PytestJudge, tmp_path: Path
) -> None:
    found = judge.verify(checkout(tmp_path / "origin", WANTS_ALL), deadline_in(60), may_skip=True)
    assert isinstance(found, Verification), found
    assert (found.passed, found.workers) == (6, 1)


def test_a_candidate_is_right_in_all_of_them(judge: PytestJudge, origin: Checkout) -> None:
    found = judged(judge, origin)
    assert isinstance(found, Verification), found
    assert found.passed == 6
    by_worker = sizes_by_worker(origin.root.parent, "candidate")
    assert len(by_worker) == WORKERS
    tested = Counter(size for sizes in by_worker.values() for size in sizes if size in SIZES)
    assert set(tested) == set(SIZES)
    (first,) = (sizes for sizes in by_worker.values() if 128 in sizes)
    before_timed = first[: first.index(128)]
    assert 48 in before_timed, "the call that is compared in other layouts is not its own"
    assert OF_ANOTHER_WORKER not in before_timed


@pytest.mark.parametrize(
    ("edit", "status", "reason"),
    [
        (WRONG, Status.REVERT, f"test_kernel.py::test_right[{OF_ANOTHER_WORKER}]: AssertionError"),
        (BLIND, Status.TAMPERED, "puts something of its own in place of torch.testing"),
    ],
    ids=["wrong", "blinds its judge"],
)
def test_what_goes_wrong_in_another_worker_counts(
    judge: PytestJudge, origin: Checkout, edit: tuple[str, str], status: Status, reason: str
) -> None:
    found = judged(judge, origin, edit)
    assert isinstance(found, Failure)
    assert (found.status, found.reason[: len(reason)]) == (status, reason)


def test_what_found_no_memory_beside_others_runs_again_alone(
    judge: PytestJudge, origin: Checkout
) -> None:
    found = judged(judge, origin, NEEDS_ALL_MEMORY)
    assert isinstance(found, Verification), found
    assert found.passed == 6
    assert (origin.root.parent / "waited").exists()


def test_what_tunes_for_what_is_timed_has_the_machine_for_itself(
    judge: PytestJudge, origin: Checkout
) -> None:
    """FlagGems' choice in a correctness test is what a perf test is timed with."""
    found = judged(judge, origin, ("HERE = ", "# as triton with a libtuner\nHERE = "))
    assert isinstance(found, Verification), found
    assert len(sizes_by_worker(origin.root.parent, "candidate")) == 1


@pytest.mark.parametrize(
    ("text", "for_others"),
    [
        ("import triton\n@triton.autotune(configs, key=[])", False),
        ("from own import autotune", True),
        ("import triton\nfrom quack.autotuner import autotune\n@autotune(configs)", True),
        ("import triton\n@torch.compile(mode='max-autotune')", True),
        ("import triton\n@libentry()\n@libtuner(configs=[], key=[])", True),
        ("import cuda.tile as ct\nfrom cuda.tile.tune import exhaustive_search", False),
        ("from tilegym.autotune import off\nfrom cuda.tile.tune import exhaustive_search", False),
        ("import triton\nfrom cuda.tile.tune import exhaustive_search", True),
        ("import triton", False),
    ],
)
def test_whose_choices_are_those_of_one_test(tmp_path: Path, text: str, for_others: bool) -> None:
    write(tmp_path, {"kernel.py": text})
    assert tunes_for_other_tests(Checkout(tmp_path, (), "kernel.py")) is for_others


FORERUN = (
    BEGIN,
    f"""{BEGIN}    import time
    seen = HERE.parent / "calls"
    end = time.monotonic() + 30
    while x.numel() == 8 and HERE.name == "candidate" and not (HERE.parent / "alone").exists():
        others = [line.split() for line in seen.read_text().splitlines() if "candidate" in line]
        if len({{pid for _, pid, size in others if size != "8"}}) > 1:
            break
        assert time.monotonic() < end, "nobody ran ahead"
        time.sleep(0.02)
""",
)
"""The first test of a candidate waits until two others have begun with tests of their own."""
DIES_AHEAD = (
    BEGIN,
    f"""{FORERUN[1]}    if 8 not in SEEN:
        with open(HERE.parent / "calls", "a") as calls:
            print(HERE.name, os.getpid(), x.numel(), file=calls)
        os._exit(1)
""",
)
FAILS_BESIDE = (
    BEGIN,
    f"""{FORERUN[1]}    if x.numel() == 48 and 8 in SEEN and not (HERE.parent / "alone").exists():
        (HERE.parent / "alone").touch()
        raise RuntimeError("others are in the way")
""",
)
WRONG_BESIDE = (BEGIN, f"{FORERUN[1]}    (HERE.parent / 'alone').touch()\n    factor += 1\n")


def forerun(judge: PytestJudge, origin: Checkout, edit: tuple[str, str]) -> Verification | Failure:
    """What the judge says of a candidate whose tests others run, too."""
    candidate = checkout(origin.root.parent / "candidate", edit)
    judge._verifier.forerunners = 2
    return judge.verify(candidate, deadline_in(90), origin=origin)


@pytest.mark.parametrize("edit", [FORERUN, DIES_AHEAD], ids=["alive", "dead"])
def test_a_candidate_runs_all_tests_itself_whatever_forerunners_do(
    judge: PytestJudge, origin: Checkout, edit: tuple[str, str]
) -> None:
    found = forerun(judge, origin, edit)
    assert isinstance(found, Verification), found
    assert found.passed == 6
    by_worker = sizes_by_worker(origin.root.parent, "candidate")
    (own,) = (sizes for sizes in by_worker.values() if 8 in sizes)
    assert set(SIZES) <= set(own) and len(by_worker) == 3


def test_what_fails_beside_forerunners_has_to_fail_alone(
    judge: PytestJudge, origin: Checkout
) -> None:
    found = forerun(judge, origin, FAILS_BESIDE)
    assert isinstance(found, Verification), found
    assert (origin.root.parent / "alone").exists()
    by_worker = sizes_by_worker(origin.root.parent, "candidate")
    assert sum(8 in sizes for sizes in by_worker.values()) == 2


def test_what_is_wrong_is_wrong_beside_forerunners(judge: PytestJudge, origin: Checkout) -> None:
    found = forerun(judge, origin, WRONG_BESIDE)
    assert isinstance(found, Failure)
    assert (found.status, found.correct) == (Status.REVERT, False)


def test_what_tunes_itself_has_no_forerunners(judge: PytestJudge, origin: Checkout) -> None:
    """It would choose by a clock that others hold up, and what it chose is kept."""
    found = forerun(judge, origin, ("HERE = ", "# with triton.autotune\nHERE = "))
    assert isinstance(found, Verification), found
    assert len(sizes_by_worker(origin.root.parent, "candidate")) == 1


def test_what_is_tested_as_timed_is_tested_in_all_of_them(
    judge: PytestJudge, origin: Checkout
) -> None:
    candidate = checkout(origin.root.parent / "candidate")
    judge.verify_in(WORKERS)
    assert isinstance(judge.verify(candidate, deadline_in(60), as_timed=True), Verification)
    assert len(sizes_by_worker(origin.root.parent, "candidate")) == WORKERS


def test_forerunners_are_worth_it_where_the_tests_take_long_and_write_nothing() -> None:
    long = Baselined((), 6, 1.0, correctness_s=8.0)
    assert is_worth_forerunners(long)
    assert not is_worth_forerunners(replace(long, correctness_s=2.0))
    assert not is_worth_forerunners(replace(long, written=("golden.pt",)))
