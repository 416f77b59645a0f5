"""Hints in decorators, where a tuner of the project's own is handed the kernel."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.subject import NotApplicable
from tests.support.rewriting import refusal, subject

KERNEL = """\
import functools

import cuda.tile as ct
import torch
from tuner import autotuner


@ct.kernel()
def add_kernel(A, B, C, T: ct.Constant[int]):
    i = ct.bid(0)
    a = ct.load(A, index=(i,), shape=(T,))
    b = ct.load(B, index=(i,), shape=(T,))
    ct.store(C, index=(i,), tile=a + b)


def tuned(kernel, stream, grid, args, configs):
    for ctas, occupancy in configs:
        TUNED


def add(a, b):
    c = torch.empty_like(a)
    stream, grid = torch.cuda.current_stream(), (ct.cdiv(a.shape[0], 1024),)
    HANDED
    return c
"""
HANDED = "tuned(add_kernel, stream, grid, (a, b, c, 1024), [(1, 1), (1, 2)])"
MADE = "ct.kernel(kernel._pyfunc, num_ctas=ctas, occupancy=occupancy)"
REMADE = f"ct.launch(stream, grid, {MADE}, args)"
LOST = (
    "line 24 hands add_kernel to `tuned`, which makes kernels of its own of it (line 18): "
    "what its decorator says is not used"
)
UNFOLLOWED = (
    "line 24 hands add_kernel to `autotuner`, which is not followed: what its decorator says may "
    "not be used"
)
HINTS = ("occupancy-hint", "worker-warps", "two-blocks-a-row", "opt-level", "row-hints")


def text(tuned: str = REMADE, handed: str = HANDED) -> str:
    return KERNEL.replace("TUNED", tuned).replace("HANDED", handed)


@pytest.mark.parametrize("name", HINTS)
def test_no_hint_is_set_where_kernels_are_made_of_it(name: str) -> None:
    assert refusal(name, text()) == LOST


@pytest.mark.parametrize(
    ("tuned", "handed", "reason"),
    [
        (f"ct.launch(stream, grid, (made := {MADE}), args)", HANDED, LOST),
        (REMADE, f"k = add_kernel; {HANDED.replace('add_kernel', 'k')}", LOST),
        (REMADE, "tuned(kernel=add_kernel, stream=stream, grid=grid)", LOST),
        (REMADE, HANDED.replace("tuned(", "autotuner("), UNFOLLOWED),
        (
            "autotuner(kernel, stream)",
            HANDED,
            "line 18 hands add_kernel to `autotuner`, which is not followed: what its decorator "
            "says may not be used",
        ),
        (
            REMADE,
            "tuned([add_kernel], stream)",
            UNFOLLOWED.replace("autotuner", "tuned"),
        ),
        (
            "ct.launch(stream, grid, kernel.replace_hints(occupancy=occupancy), args)",
            HANDED,
            "line 18 gives add_kernel other hints",
        ),
        (
            REMADE,
            "ct.kernel(add_kernel._pyfunc, occupancy=2)",
            "line 24 takes the function of add_kernel and makes kernels of its own of it "
            "(line 24): what its decorator says is not used",
        ),
    ],
)  # fmt: skip
def test_the_reason_says_who_has_the_kernel(tuned: str, handed: str, reason: str) -> None:
    assert refusal("occupancy-hint", text(tuned, handed)) == reason


PLAIN = "ct.launch(stream, grid, add_kernel, (a, b, c, 1024))"


@pytest.mark.parametrize(
    ("name", "tuned", "handed"),
    [
        ("occupancy-hint", "ct.launch(stream, grid, kernel, args)", HANDED),
        ("occupancy-hint", REMADE, f"{HANDED}\n    {PLAIN}"),
        ("occupancy-hint", REMADE, "print(add_kernel)"),
        ("occupancy-hint", REMADE, "functools.partial(ct.launch, stream, grid, add_kernel)"),
        ("occupancy-hint", REMADE, "return [add_kernel]"),
        (
            "worker-warps",
            "ct.launch(stream, grid, kernel.replace_hints(occupancy=occupancy), args)",
            HANDED,
        ),
    ],
)  # fmt: skip
def test_a_decorator_that_a_launch_sees_is_changed(name: str, tuned: str, handed: str) -> None:
    assert playbook.get(name).variants(subject(text(tuned, handed)))


@pytest.mark.parametrize(
    "name", ["tile-sizes", "autotune", "check-bounds", "batched-launches"]
)  # fmt: skip
def test_what_needs_a_launch_says_who_has_the_kernel(name: str) -> None:
    why = "line 24 hands add_kernel to `tuned`, whose launches are not followed"
    assert refusal(name, text()).endswith(why)


def test_one_of_several_kernels_that_a_launch_takes() -> None:
    both = text(handed="ct.launch(stream, grid, add_kernel if a else other, (a, b, c, 1024))")
    with pytest.raises(NotApplicable, match="line 24 launches add_kernel among others"):
        playbook.get("autotune").variants(subject(both))


@pytest.mark.parametrize(
    ("given", "keeps"),
    [
        ("occupancy=2", True),
        ("**hints", True),
        ("**{'num_worker_warps': 4}", False),  # not looked into
        ("**(hints or {})", False),
    ],
)
def test_what_gives_other_hints_keeps_the_rest(given: str, keeps: bool) -> None:
    """As TileGym's `cached_replace_hints`, which is in another file."""
    launch = f"ct.launch(stream, grid, cached_replace_hints(add_kernel, {given}), (a, b, c, 1024))"
    lines = ('hints = {"num_ctas": 1}', 'hints["occupancy"] = 2', launch)
    source = text(handed="\n    ".join(lines))
    lost = "line 26 gives add_kernel other hints"
    assert refusal("occupancy-hint", source) == lost
    if keeps:
        assert playbook.get("worker-warps").variants(subject(source))
    else:
        assert refusal("worker-warps", source) == lost
