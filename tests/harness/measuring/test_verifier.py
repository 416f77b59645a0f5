"""The candidate's tests and the origin in other layouts, beside each other; who is to blame."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring import other_layouts
from agent.harness.measuring.other_layouts import MOST
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.confinement import Confinement
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.decision import Rules, Status
from agent.measuring.measurement import Failure
from tests.support.repo import write
from tests.support.tiers import others_full
from tests.support.workers import descendants

pytest.importorskip("triton", reason="triton is not installed")

KERNEL = """
import time
from pathlib import Path

import torch
import triton
import triton.language as tl

HERE = Path(__file__).parent


@triton.jit
def scale_kernel(x_ptr, y_ptr, x_pitch, columns, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * x_pitch + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + offsets, x * factor, mask=mask)


def scale(x, factor):
    rows, columns = x.shape
    with open(HERE.parent / "calls", "a") as calls:
        print(HERE.name, rows, columns, time.monotonic(), file=calls)
    y = torch.empty((rows, columns), dtype=x.dtype)
    block = triton.next_power_of_2(columns)
    scale_kernel[(rows,)](x, y, x.stride(0), columns, factor, BLOCK=block)
    return y


def double(x):
    return scale(x, 2.0)
"""
TESTS = """
import kernel
import torch


def test_right():
    x = torch.randn(6, 64)
    torch.testing.assert_close(kernel.scale(x, 3.0), x * 3.0)
    torch.testing.assert_close(kernel.double(x), x * 2.0)


def test_perf(tile_bench):
    x = torch.randn(8, 128)
    tile_bench(lambda: kernel.scale(x, 3.0))
"""
PLAN = TestPlan(
    ("test_kernel.py",), ("test_kernel.py::test_right",), ("test_kernel.py::test_perf",)
)
BEGIN = "    rows, columns = x.shape\n"
SLOW_S = 3.0
SLOW = (
    BEGIN,
    f"""{BEGIN}    if not ONCE:
        ONCE.append(1)
        time.sleep({SLOW_S})
""",
)
ONCE = ("HERE =", "ONCE = []\nHERE =")
BESIDE = "origin's layouts beside tests"
WRONG = ("x * factor", "x + factor")


HELD = (
    "HERE =",
    """import os

HELD = Path(__file__).parents[1] / "held"
(HELD / str(os.getpid())).touch()


def check_memory():
    for file in HELD.iterdir():
        if file.name != str(os.getpid()) and Path("/proc", file.name).exists():
            raise torch.OutOfMemoryError("CUDA out of memory.")


HERE =""",
)
"""Who has imported the kernel holds the memory of the only GPU."""
TAKES_ALL = (
    BEGIN,
    f"{BEGIN}    if not ONCE:\n        check_memory()\n        ONCE.append(1)\n",
)


@pytest.fixture
def judge(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PytestJudge]:
    monkeypatch.setattr(server, "confinement", Confinement(write=(tmp_path,)))  # what was called
    monkeypatch.setattr(other_layouts, "CHEAP_S", 0.0)  # the clock decides nothing here
    (tmp_path / "logs").mkdir()
    judge = PytestJudge(server, PLAN, framework="triton", rules=Rules(), logs=tmp_path / "logs")
    with closing(judge):
        yield judge


def checkout(folder: Path, *edits: tuple[str, str]) -> Checkout:
    text = KERNEL
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    write(folder, {"kernel.py": text, "test_kernel.py": TESTS})
    return Checkout(folder, (folder,), "kernel.py")


def verify(
    judge: PytestJudge, candidate: Checkout, origin: Checkout, timeout_s: float = 60.0
) -> Verification | Failure:
    return judge.verify(candidate, deadline_in(timeout_s), origin=origin)


def calls(tmp_path: Path, whose: str) -> list[tuple[tuple[int, int], float]]:
    """(rows and columns, when) of every call that an arm has made, in their order."""
    found = []
    for line in (tmp_path / "calls").read_text().splitlines():
        name, rows, columns, at = line.split()
        if name == whose:
            found.append(((int(rows), int(columns)), float(at)))
    return found


def spent_s(tmp_path: Path) -> list[dict[str, float]]:
    """What each verification told of its time."""
    files = sorted((tmp_path / "logs").glob("*-verify.json"))
    assert [file.with_suffix(".log").exists() for file in files] == [True] * len(files)
    return [json.loads(file.read_text())["spent_s"] for file in files]


def origins(tmp_path: Path) -> int:
    """How many workers the origin has had."""
    return len(list((tmp_path / "logs").glob("*-origin.log")))


def compared(judge: PytestJudge) -> list[str]:
    return [variation.kind for variation in judge._examiner._layouts.compared]


def test_the_origin_is_asked_while_the_candidate_runs_its_tests(
    judge: PytestJudge, tmp_path: Path
) -> None:
    origin = checkout(tmp_path / "origin")
    begin = time.monotonic()
    outcome = verify(judge, checkout(tmp_path / "candidate", ONCE, SLOW), origin)
    wall_s = time.monotonic() - begin
    assert isinstance(outcome, Verification), outcome
    assert len(compared(judge)) == MOST
    own_tests = [at for shape, at in calls(tmp_path, "candidate") if shape == (6, 64)]
    begun, ended = own_tests[0] - SLOW_S, own_tests[0]
    beside = [at for _, at in calls(tmp_path, "origin") if begun < at < ended]
    assert len(beside) >= MOST
    shapes = [shape for shape, _ in calls(tmp_path, "candidate")]
    assert set(shapes[: shapes.index((8, 128))]) == {(6, 64)}, "it meets no other layout before"
    (spent,) = spent_s(tmp_path)
    assert spent["tests"] >= SLOW_S
    assert 0 < spent[BESIDE] < spent["tests"]
    assert spent["candidate's layouts"] > 0
    assert spent["timed shapes"] > 0
    assert sum(spent.values()) - spent[BESIDE] <= wall_s


@pytest.mark.full
def test_a_candidate_that_fails_its_tests_is_not_kept_waiting(
    judge: PytestJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much there is left to ask of the origin."""
    monkeypatch.setattr(other_layouts, "MOST", 100)
    monkeypatch.setattr(other_layouts, "MOST_ASKED", 100)
    origin = checkout(tmp_path / "origin", (BEGIN, f"{BEGIN}    time.sleep(0.1)\n"))
    outcome = verify(judge, checkout(tmp_path / "wrong", WRONG), origin)
    assert isinstance(outcome, Failure)
    assert outcome.status is Status.REVERT
    assert outcome.reason.startswith("test_kernel.py::test_right: "), outcome.reason
    after = verify(judge, checkout(tmp_path / "right"), origin)
    assert isinstance(after, Verification)
    failed, passed = spent_s(tmp_path)
    assert failed.keys() == {"origin", "collect", "tests", BESIDE}
    assert failed[BESIDE] < (passed[BESIDE] + passed["origin's layouts"]) / 2
    assert {"6 odd", "64 odd", "64 even", "pitch", "offset"} == set(compared(judge))
    assert origins(tmp_path) == 1


def test_tests_that_need_the_memory_which_the_origin_holds_are_run_alone(
    judge: PytestJudge, tmp_path: Path
) -> None:
    (tmp_path / "held").mkdir()
    origin = checkout(tmp_path / "origin", ONCE, HELD)
    candidate = checkout(tmp_path / "candidate", ONCE, HELD, TAKES_ALL)
    outcome = verify(judge, candidate, origin)
    assert isinstance(outcome, Verification), outcome
    assert [BESIDE in spent for spent in spent_s(tmp_path)] == [True, False]
    assert len(compared(judge)) == MOST


@pytest.mark.full
def test_a_want_of_memory_in_a_perf_test_gives_no_second_try(
    judge: PytestJudge, tmp_path: Path
) -> None:
    """Nor do other candidates get by without the layouts for it."""
    origin = checkout(tmp_path / "origin")
    wants = "    if x.shape[0] == 8:\n        raise torch.OutOfMemoryError('CUDA out of memory.')\n"
    outcome = verify(judge, checkout(tmp_path / "wants", (BEGIN, f"{BEGIN}{wants}")), origin)
    assert isinstance(outcome, Failure)
    assert len(spent_s(tmp_path)) == 1
    assert isinstance(verify(judge, checkout(tmp_path / "right"), origin), Verification)
    assert len(compared(judge)) == MOST


IN_PASSING = """
    import fcntl, time
    with open(kernel.HERE.parent / "calls") as memory:
        try:
            fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise torch.OutOfMemoryError("CUDA out of memory.") from None
        time.sleep(0.3)
"""
"""What the perf test takes for a moment is there once."""


def test_perf_tests_that_want_the_memory_for_a_moment_take_turns(
    judge: PytestJudge, tmp_path: Path
) -> None:
    perf = "def test_perf(tile_bench):\n"
    assert perf in TESTS
    tests = TESTS.replace(perf, perf + IN_PASSING.lstrip("\n"))
    origin = checkout(tmp_path / "origin")
    candidate = checkout(tmp_path / "candidate")
    for made in (origin, candidate):
        write(made.root, {"test_kernel.py": tests})
    outcome = verify(judge, candidate, origin)
    assert isinstance(outcome, Verification), outcome
    assert len(spent_s(tmp_path)) == 2
    assert isinstance(verify(judge, candidate, origin), Verification)
    assert len(spent_s(tmp_path)) == 3
    assert len(compared(judge)) == MOST


@pytest.mark.full
def test_tests_that_hang_end_at_the_deadline(judge: PytestJudge, tmp_path: Path) -> None:
    origin = checkout(tmp_path / "origin")
    assert isinstance(verify(judge, checkout(tmp_path / "first"), origin), Verification)
    begin = time.monotonic()
    hung = checkout(tmp_path / "hung", (BEGIN, f"{BEGIN}    time.sleep(600)\n"))
    outcome = verify(judge, hung, origin, timeout_s=6.0)
    assert 6.0 <= time.monotonic() - begin < 60.0
    assert isinstance(outcome, Failure)
    assert outcome.status is Status.CRASH
    assert outcome.reason.startswith("timed out: no answer after "), outcome.reason
    assert isinstance(verify(judge, checkout(tmp_path / "next"), origin), Verification)
    assert origins(tmp_path) == 1


def log_of(pid: int) -> Path:
    """Where a process writes to; of one that has ended, nowhere."""
    try:
        return Path(f"/proc/{pid}/fd/1").readlink()
    except OSError:
        return Path()


@pytest.mark.full
def test_a_comparing_process_that_has_ended_is_replaced(
    judge: PytestJudge, server: ForkServer, tmp_path: Path
) -> None:
    origin = checkout(tmp_path / "origin")
    assert isinstance(verify(judge, checkout(tmp_path / "first"), origin), Verification)
    (comparing,) = [
        pid
        for pid in descendants(server.pid)
        if (log := log_of(pid)).name.endswith("-compare.log") and log.is_relative_to(tmp_path)
    ]
    os.kill(comparing, signal.SIGKILL)
    outcome = verify(judge, checkout(tmp_path / "next"), origin)
    assert isinstance(outcome, Verification), outcome
    assert len(compared(judge)) == MOST


ENDS = (BEGIN, f"{BEGIN}    if columns % 2:\n        import os\n        os._exit(3)\n")
HANGS = (BEGIN, f"{BEGIN}    if columns % 2:\n        time.sleep(600)\n")


@pytest.mark.full
@pytest.mark.parametrize("slow", [True, False], ids=["beside tests", "after tests"])
def test_an_origin_that_dies_in_a_layout_speaks_against_no_candidate(
    judge: PytestJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    monkeypatch.setattr(other_layouts, "MOST", 100)
    monkeypatch.setattr(other_layouts, "MOST_ASKED", 100)
    origin = checkout(tmp_path / "origin", ENDS)
    for name in ("one", "two", "three"):
        candidate = checkout(tmp_path / name, *((ONCE, SLOW) if slow else ()))
        outcome = verify(judge, candidate, origin)
        assert isinstance(outcome, Verification), outcome
    assert set(compared(judge)) == {"6 odd", "64 even", "pitch", "offset"}
    assert origins(tmp_path) <= 3, "one, and another for each call that ends it"


@pytest.mark.full
def test_an_origin_that_hangs_in_a_layout_leaves_the_candidate_half_of_the_time(
    judge: PytestJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_layouts, "MOST", 100)
    monkeypatch.setattr(other_layouts, "MOST_ASKED", 100)
    monkeypatch.setattr(other_layouts, "MOST_S", 1.0)
    origin = checkout(tmp_path / "origin", HANGS)
    for turn in range(6):  # where the machine is busy, the first may not come to that layout
        outcome = verify(judge, checkout(tmp_path / f"one{turn}"), origin, timeout_s=20.0)
        assert isinstance(outcome, Verification), outcome
        if origins(tmp_path) > 1:
            break
    lost = []
    for name in ("two", "three"):
        outcome = verify(judge, checkout(tmp_path / name), origin)
        assert isinstance(outcome, Verification), outcome
        lost.append(origins(tmp_path))
    assert lost[0] > 1
    assert lost[0] == lost[1], "by then it is known"
    assert set(compared(judge)) == {"6 odd", "64 even", "pitch", "offset"}


@pytest.mark.parametrize("text", others_full(["autotune", "exhaustive_search"]))
def test_nothing_runs_beside_a_kernel_that_may_tune_itself(
    judge: PytestJudge, tmp_path: Path, text: str
) -> None:
    origin = checkout(tmp_path / "origin")
    outcome = verify(
        judge, checkout(tmp_path / "candidate", ("HERE =", f"# {text}\nHERE =")), origin
    )
    assert isinstance(outcome, Verification), outcome
    assert len(compared(judge)) == MOST
    (spent,) = spent_s(tmp_path)
    assert BESIDE not in spent
    assert spent["origin's layouts"] > 0


@pytest.mark.full
def test_as_many_layouts_are_looked_at_where_the_candidate_makes_fewer_calls(
    judge: PytestJudge, tmp_path: Path
) -> None:
    """What the origin was asked of beside the tests may be none of the candidate's calls."""
    origin = checkout(tmp_path / "origin")
    uncounted = ("def double(x):\n    return scale(x, 2.0)", "double = lambda x: (2.0 * x)")
    candidate = checkout(tmp_path / "candidate", ONCE, SLOW, uncounted)
    for _ in range(3):
        outcome = verify(judge, candidate, origin)
        assert isinstance(outcome, Verification), outcome
        assert len(compared(judge)) == MOST
        assert {v.call.name for v in judge._examiner._layouts.compared} == {"scale"}


def test_the_time_of_what_cannot_be_imported_is_told_too(
    judge: PytestJudge, tmp_path: Path
) -> None:
    broken = checkout(tmp_path / "broken", ("import torch\n", "import no_such_module\n"))
    outcome = verify(judge, broken, checkout(tmp_path / "origin"))
    assert isinstance(outcome, Failure)
    assert "no_such_module" in outcome.reason
    (spent,) = spent_s(tmp_path)
    assert spent.keys() == {"origin", "collect"}
