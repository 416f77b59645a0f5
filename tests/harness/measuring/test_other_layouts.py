"""Calls of the tests in other layouts: what a candidate loses there, and what no one may ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring import other_layouts
from agent.harness.measuring.gpu import GpuWatch
from agent.harness.measuring.other_layouts import STEP, variations
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import TestedCall
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.decision import Rules, Status
from agent.measuring.measurement import Failure
from tests.support.repo import write
from tests.support.tiers import others_full
from tile_agent_pytest.examining.calls import ArgumentLayout

pytest.importorskip("triton", reason="triton is not installed")

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, y_ptr, x_pitch, x_step, y_pitch, columns, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * x_pitch + offsets * x_step, mask=mask, other=0.0)
    tl.store(y_ptr + row * y_pitch + offsets, x * factor, mask=mask)


def scale(x, factor):
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    y = torch.empty((rows, columns), dtype=x.dtype)
    grid = (rows,)
    scale_kernel[grid](x, y, *x.stride(), y.stride(0), columns, factor, BLOCK=block)
    return y
"""
TESTS = """
import kernel
import torch


def test_right():
    x = torch.randn(6, 64)
    torch.testing.assert_close(kernel.scale(x, 3.0), x * 3.0)


def test_perf(tile_bench):
    x = torch.randn(8, 64)
    tile_bench(lambda: kernel.scale(x, 3.0))
"""
SELF_TIMED = """
import kernel
import torch


def test_right():
    x = torch.randn(6, 64)
    torch.testing.assert_close(kernel.scale(x, 3.0), x * 3.0)


def test_perf(record_property):
    kernel.scale(torch.randn(8, 64), 3.0)
    record_property("benchmark", {"Triton": {"forward": {"median": 1.0}}})
"""
MASKS = (", mask=mask, other=0.0", ""), (", mask=mask)", ")")
LEAVES = "    rows, columns = x.shape"
LOSSES: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "the mask": (MASKS, "64"),
    "some rows": ((("grid = (rows,)", "grid = (rows // 2 * 2,)"),), "6"),
    "the pitch": ((("*x.stride(), y.stride", "columns, x.stride(1), y.stride"),), " apart"),
    "the step": ((("offsets * x_step", "offsets"),), "elements 2 apart"),
    "the alignment": (
        ((LEAVES, f"{LEAVES}\n    assert x.data_ptr() % 16 == 0"),),
        "further on",
    ),
    "small sizes": (
        (("block = triton.next_power_of_2(columns)", "block = {64: 64}[columns]"),), "64"
    ),
}  # fmt: skip
Judge = Callable[..., PytestJudge]


@pytest.fixture
def judge(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PytestJudge]:
    """One that looks at every layout there is."""
    monkeypatch.setattr(other_layouts, "CHEAP_S", 0.0)
    monkeypatch.setattr(other_layouts, "MOST", 100)
    monkeypatch.setattr(other_layouts, "MOST_ASKED", 100)
    plan = TestPlan(
        ("test_kernel.py",), ("test_kernel.py::test_right",), ("test_kernel.py::test_perf",)
    )
    (tmp_path / "logs").mkdir()
    judge = PytestJudge(server, plan, framework="triton", rules=Rules(), logs=tmp_path / "logs")
    with closing(judge):
        yield judge


def checkout(folder: Path, *edits: tuple[str, str], tests: str = TESTS) -> Checkout:
    text = KERNEL
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    write(folder, {"kernel.py": text, "test_kernel.py": tests})
    return Checkout(folder, (folder,), "kernel.py")


def verify(judge: PytestJudge, candidate: Checkout, origin: Checkout) -> Verification | Failure:
    return judge.verify(candidate, deadline_in(60), origin=origin)


def compared(judge: PytestJudge) -> set[str]:
    return {variation.kind for variation in judge._examiner._layouts.compared}


def test_there_are_more_layouts_on_a_gpu_and_as_long_as_they_take_no_time(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = TestPlan(("t.py",), ("t.py::test",), ("t.py::test_perf",))
    few = (other_layouts.MOST, other_layouts.MOST_ASKED)
    many = (other_layouts.MOST_CHEAP, other_layouts.MOST_ASKED_CHEAP)
    for watch, cheap_s, expected in (
        (None, other_layouts.CHEAP_S, many),
        (None, 0.0, few),
        (GpuWatch.__new__(GpuWatch), 0.0, many),
    ):
        monkeypatch.setattr(other_layouts, "CHEAP_S", cheap_s)
        judge = PytestJudge(
            server, plan, framework="triton", rules=Rules(), logs=tmp_path, watch=watch
        )
        assert judge._examiner._layouts.limits == expected
    assert all(more > less for more, less in zip(many, few, strict=True))


@pytest.mark.parametrize(("cheap_s", "most"), [(60.0, 6), (0.0, 3)])
def test_an_edit_is_compared_in_all_layouts_there_are_where_they_take_no_time(
    judge: PytestJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cheap_s: float, most: int
) -> None:
    monkeypatch.setattr(other_layouts, "MOST", 3)
    monkeypatch.setattr(other_layouts, "CHEAP_S", cheap_s)
    outcome = verify(judge, checkout(tmp_path / "candidate"), checkout(tmp_path / "origin"))
    assert isinstance(outcome, Verification), outcome
    assert len(judge._examiner._layouts.compared) == most


def test_one_of_each_kind_goes_before_another_of_any() -> None:
    calls = [TestedCall(n, "t", "scale", {"x": (6, 64)}) for n in range(3)]
    drawn = list(variations(calls))
    found = other_layouts.each_kind_first(drawn)
    kinds = [variation.kind for variation in found]
    assert sorted(map(str, found)) == sorted(map(str, drawn))
    assert set(kinds) == {"6 odd", "64 odd", "64 even", "pitch", "spread", "offset"}
    assert [set(kinds[n : n + 6]) for n in (0, 6, 12)] == 3 * [set(kinds)]


@pytest.mark.parametrize("tests", [TESTS, SELF_TIMED], ids=["tile_bench", "self-timed"])
def test_an_honest_edit_is_compared_in_every_layout(
    judge: PytestJudge, tmp_path: Path, tests: str
) -> None:
    origin = checkout(tmp_path / "origin", tests=tests)
    candidate = checkout(tmp_path / "candidate", ("x * factor", "factor * x"), tests=tests)
    assert isinstance(verify(judge, candidate, origin), Verification)
    assert compared(judge) == {"6 odd", "64 odd", "64 even", "pitch", "spread", "offset"}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_found(judge: PytestJudge, tmp_path: Path, name: str) -> None:
    edits, told = LOSSES[name]
    outcome = verify(judge, checkout(tmp_path / "candidate", *edits), checkout(tmp_path / "origin"))
    assert isinstance(outcome, Failure), compared(judge)
    assert outcome.status is Status.REVERT
    assert not outcome.correct
    assert outcome.reason.startswith("scale with "), outcome.reason
    assert told in outcome.reason


@pytest.mark.parametrize("name", others_full(LOSSES))
def test_nobody_has_to_do_more_than_the_origin(
    judge: PytestJudge, tmp_path: Path, name: str
) -> None:
    """What the origin cannot do is not asked for, whether a candidate can or fails otherwise."""
    edits, _ = LOSSES[name]
    origin = checkout(tmp_path / "origin", *edits)
    for candidate in (checkout(tmp_path / "whole"), checkout(tmp_path / "same", *edits)):
        outcome = verify(judge, candidate, origin)
        assert isinstance(outcome, Verification), outcome
        assert compared(judge)
        assert len(compared(judge)) < 6


OUTPUTS = """
import kernel
import torch


def test_right():
    for _ in range(3):
        x = torch.randn(6, 64)
        out = torch.empty_like(x)  # holds an earlier result, or anything
        kernel.scale_into(x, 3.0, out)
        torch.testing.assert_close(out, x * 3.0)


def test_perf(tile_bench):
    x, out = torch.randn(8, 64), torch.empty(8, 64)
    tile_bench(lambda: kernel.scale_into(x, 3.0, out))
"""
INTO = (
    ("def scale(x, factor):", "def scale_into(x, factor, y):"),
    ("    y = torch.empty((rows, columns), dtype=x.dtype)\n", ""),
)


@pytest.mark.parametrize("run", others_full(range(3)))
def test_what_an_output_held_before_does_not_matter(
    judge: PytestJudge, tmp_path: Path, run: int
) -> None:
    origin = checkout(tmp_path / "origin", *INTO, tests=OUTPUTS)
    right = checkout(tmp_path / "right", *INTO, ("x * factor", "factor * x"), tests=OUTPUTS)
    assert isinstance(verify(judge, right, origin), Verification)
    assert {"6 odd", "64 odd", "64 even"} <= compared(judge)
    wrong = checkout(tmp_path / "wrong", *INTO, *LOSSES["some rows"][0], tests=OUTPUTS)
    assert isinstance(verify(judge, wrong, origin), Failure)


def test_what_only_the_tests_shapes_ask_can_be_had(
    server: ForkServer, tmp_path: Path, judge: PytestJudge
) -> None:
    judge._examiner.other_layouts = False
    edits, _ = LOSSES["the mask"]
    outcome = verify(judge, checkout(tmp_path / "candidate", *edits), checkout(tmp_path / "origin"))
    assert isinstance(outcome, Verification)


@pytest.mark.full
def test_the_next_candidate_meets_the_same_origin(judge: PytestJudge, tmp_path: Path) -> None:
    origin = checkout(tmp_path / "origin")
    wrong = checkout(tmp_path / "wrong", *LOSSES["the pitch"][0])
    for _ in range(2):
        assert isinstance(verify(judge, wrong, origin), Failure)
        assert isinstance(verify(judge, checkout(tmp_path / "right"), origin), Verification)
    logs = tmp_path / "logs"
    assert len(list(logs.glob("*-origin.log"))) <= 3


TWO_TYPES = """
import kernel
import torch


def test_right():
    for dtype in (torch.float32, torch.float16):
        x = torch.randn(6, 64).to(dtype)
        torch.testing.assert_close(kernel.scale(x, 3.0), x * 3.0)


def test_perf(tile_bench):
    x = torch.randn(8, 64)
    tile_bench(lambda: kernel.scale(x, 3.0))
"""


def test_calls_of_one_shape_and_two_types_are_not_taken_for_one_another(
    judge: PytestJudge, tmp_path: Path
) -> None:
    origin = checkout(tmp_path / "origin", tests=TWO_TYPES)
    candidate = checkout(tmp_path / "candidate", ("x * factor", "factor * x"), tests=TWO_TYPES)
    outcome = verify(judge, candidate, origin)
    assert isinstance(outcome, Verification), outcome
    assert len({v.call.index for v in judge._examiner._layouts.compared}) == 2


def test_sizes_are_drawn_below_those_of_the_call() -> None:
    call = TestedCall(3, "test.py::test", "f", {"[0]": (100, 7), "[1]": (7,), "[2]": ()})
    for draw in (lambda _: 0, lambda below: below - 1):
        drawn = list(variations([call], draw))
        assert [v.kind for v in drawn] == [
            "7 odd",
            "100 odd",
            "100 even",
            "pitch",
            "spread",
            "offset",
        ]
        assert {v.call.index for v in drawn} == {3}
        for variation in drawn[:3]:
            ((old, new),) = variation.layout.sizes
            assert 1 <= new < old
            assert ((old - new) % STEP == 0) is variation.kind.endswith("even")
    (only,) = variations([TestedCall(0, "", "f", {"[0]": ()})], lambda _: 0)
    assert only.layout == ArgumentLayout(offset=1)


def test_a_tensor_of_another_class_is_no_trouble(judge: PytestJudge, tmp_path: Path) -> None:
    """Whatever is asked of it calls a function of the file."""
    edits = (
        ("import triton.language as tl\n", f"import triton.language as tl\n{CLASS}"),
        ("    return y\n", "    return y.as_subclass(Known)\n"),
    )
    tests = TESTS.replace(
        "x = torch.randn(6, 64)\n", "x = torch.randn(6, 64).as_subclass(kernel.Known)\n"
    )
    origin = checkout(tmp_path / "origin", *edits, tests=tests)
    outcome = verify(judge, checkout(tmp_path / "candidate", *edits, tests=tests), origin)
    assert isinstance(outcome, Verification), outcome


CLASS = """

class Known(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return seen(args[0], super().__torch_function__(function, types, args, kwargs))


def seen(tensor, result):
    return result

"""


def test_tests_that_do_not_bear_to_be_recorded_are_left_alone(
    judge: PytestJudge, tmp_path: Path
) -> None:
    tests = TESTS.replace(
        "    x = torch.randn(6, 64)\n",
        "    assert kernel.scale.__code__.co_name == 'scale'\n    x = torch.randn(6, 64)\n",
    )
    origin = checkout(tmp_path / "origin", tests=tests)
    candidate = checkout(tmp_path / "candidate", ("x * factor", "factor * x"), tests=tests)
    assert isinstance(verify(judge, candidate, origin), Verification)
    assert compared(judge) == set()


OPERATOR = """

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        return scale(x, factor)
"""


@pytest.mark.parametrize("name", others_full(["the mask", "the pitch"]))
def test_an_operator_with_a_gradient_is_called_in_other_layouts(
    judge: PytestJudge, tmp_path: Path, name: str
) -> None:
    added = ("    return y\n", f"    return y\n{OPERATOR}")
    tests = TESTS.replace("kernel.scale(", "kernel.Scale.apply(")
    origin = checkout(tmp_path / "origin", added, tests=tests)
    right = checkout(tmp_path / "right", added, ("x * factor", "factor * x"), tests=tests)
    assert isinstance(verify(judge, right, origin), Verification)
    assert compared(judge) == {"6 odd", "64 odd", "64 even", "pitch", "spread", "offset"}
    wrong = checkout(tmp_path / "wrong", added, *LOSSES[name][0], tests=tests)
    outcome = verify(judge, wrong, origin)
    assert isinstance(outcome, Failure)
    assert outcome.reason.startswith("Scale.apply with "), outcome.reason


FOLLOWING = KERNEL.index("\n\ndef scale(")
LAUNCHER = f"""
import torch
import triton

from kernel import scale_kernel
{KERNEL[FOLLOWING:]}"""
TUNED = """
@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=n) for n in (1, 2)], key=["columns"])
@triton.jit
def"""


def kernel_alone(folder: Path, *edits: tuple[str, str]) -> Checkout:
    """One whose kernel tunes itself and is launched by another file."""
    text = KERNEL[:FOLLOWING].replace("\n@triton.jit\ndef", TUNED)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    write(
        folder,
        {
            "kernel.py": f"{text}\n",
            "launcher.py": LAUNCHER.replace(", BLOCK=block", ""),
            "test_kernel.py": TESTS.replace("import kernel", "import launcher as kernel"),
        },
    )
    return Checkout(folder, (folder,), "kernel.py")


def test_what_another_file_launches_and_what_tunes_itself_is_compared_too(
    judge: PytestJudge, tmp_path: Path
) -> None:
    origin = kernel_alone(tmp_path / "origin")
    right = kernel_alone(tmp_path / "right", ("x * factor", "factor * x"))
    outcome = verify(judge, right, origin)
    assert isinstance(outcome, Verification), outcome
    assert compared(judge) == {"6 odd", "64 odd", "64 even", "pitch", "spread", "offset"}
    outcome = verify(judge, kernel_alone(tmp_path / "wrong", *MASKS), origin)
    assert isinstance(outcome, Failure), compared(judge)
    assert outcome.reason.startswith("scale with ") and "64" in outcome.reason, outcome.reason


def test_what_each_process_makes_otherwise_is_handed_over(
    judge: PytestJudge, tmp_path: Path
) -> None:
    """As what a test quantizes in torch, which rounds by where it lies in memory."""
    tests = TESTS.replace("import kernel\n", "import os\n\nimport kernel\n").replace(
        "torch.randn(6, 64)", "torch.randn(6, 64) + os.getpid()"
    )
    origin = checkout(tmp_path / "origin", tests=tests)
    right = checkout(tmp_path / "right", ("x * factor", "factor * x"), tests=tests)
    outcome = verify(judge, right, origin)
    assert isinstance(outcome, Verification), outcome
    assert compared(judge) == {"6 odd", "64 odd", "64 even", "pitch", "spread", "offset"}
    wrong = checkout(tmp_path / "wrong", *LOSSES["the step"][0], tests=tests)
    outcome = verify(judge, wrong, origin)
    assert isinstance(outcome, Failure)
    assert "elements 2 apart" in outcome.reason
