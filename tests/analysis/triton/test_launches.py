"""What a launch gives each parameter of its kernel."""

from __future__ import annotations

import pytest

from agent.analysis.common.dialect import Launch
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

TEXT = """
import triton
import triton.language as tl

{decorators}@triton.jit
def k(x_ptr, y_ptr, stride_m, stride_n, n, BLOCK: tl.constexpr{more}):
    pass

def run(x, y, n, options):
    k[(1,)]({given})
"""


def launch_of(given: str, decorators: str = "", more: str = "") -> tuple[Source, Launch]:
    source = Source(TEXT.format(given=given, decorators=decorators, more=more))
    ((launch,),) = (kernel.launches for kernel in TRITON.kernels(source))
    return source, launch


@pytest.mark.parametrize("sizes", ["x.stride()", "x.shape", "x.size()"])
def test_a_star_of_sizes_stands_for_what_nothing_else_gives(sizes: str) -> None:
    source, launch = launch_of(f"x, y, *{sizes}, n, BLOCK=64, num_warps=4")
    assert launch.complete
    assert launch.hidden == {"stride_m", "stride_n"}
    given = {name: source.code(value) for name, value in launch.arguments.items()}
    assert given == {"x_ptr": "x", "y_ptr": "y", "n": "n", "BLOCK": "64"}


def test_stars_side_by_side_stand_together_for_what_nothing_else_gives() -> None:
    source, launch = launch_of("x, y, *x.stride(), *y.stride(), n, 64")
    assert launch.complete
    assert launch.hidden == {"stride_m", "stride_n"}
    given = {name: source.code(value) for name, value in launch.arguments.items()}
    assert given == {"x_ptr": "x", "y_ptr": "y", "n": "n", "BLOCK": "64"}


@pytest.mark.parametrize("table", ['{"BLOCK": lambda args: 64}', "dict(BLOCK=lambda args: 64)"])
def test_what_a_heuristic_computes_is_not_behind_a_star(table: str) -> None:
    heuristic = f"@triton.heuristics({table})\n"
    _, launch = launch_of("x, y, *x.stride(), n", heuristic)
    assert launch.complete
    assert launch.hidden == {"stride_m", "stride_n"}
    assert launch.arguments.keys() == {"x_ptr", "y_ptr", "n"}


@pytest.mark.parametrize(
    ("given", "decorators", "more"),
    [
        ("*tensors, n, BLOCK=64", "", ""),  # two of them may be the same
        ("x, y, *x.stride(), n, **options", "", ""),
        ("x, *x.stride(), y, *y.stride(), n, BLOCK=64", "", ""),
        ("x, y, *x.stride(), n, BLOCK=64", "", ", FLAG: tl.constexpr = 0"),
        ("x, y, *x.stride(), n, BLOCK=64", "@triton.autotune(configs=CONFIGS, key=[])\n", ""),
        ("x, y, *x.stride(), n, BLOCK=64", "@triton.heuristics(HEURISTICS)\n", ""),
        ("x, y, *x.stride(), n, BLOCK=64", "@triton.heuristics(dict(**HEURISTICS))\n", ""),
        ("x, y, 1, 1, *x.shape, n, 64, 1, 1", "", ""),
    ],
)
def test_a_star_of_unknown_length_hides_what_follows(
    given: str, decorators: str, more: str
) -> None:
    _, launch = launch_of(given, decorators, more)
    assert not launch.complete
    assert launch.arguments.keys() <= {"x_ptr", "y_ptr", "stride_m", "stride_n", "BLOCK"}
