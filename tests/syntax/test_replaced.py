"""Functions of a module that later ones of their name take the place of."""

from __future__ import annotations

import libcst as cst
import pytest

from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

KERNEL = """\
@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""
CALLER = """\
def doubled(x):
    double[(triton.cdiv(x.numel(), 64),)](x, x.numel(), BLOCK=64)
    return x
"""
IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"


def file_of(*parts: str) -> Source:
    return Source("\n\n".join((IMPORTS, *parts)))


def test_a_file_may_hold_the_same_twice() -> None:
    source = file_of(KERNEL, CALLER, IMPORTS, KERNEL, CALLER, "print(doubled(torch.ones(9)))\n")
    (kernel,) = TRITON.kernels(source)
    first, second = (f for f in source.functions if f.name == "double")
    assert kernel.function is second and first.node in source.replaced
    assert len(kernel.launches) == 2  # the upper caller is replaced, too; both change alike
    mentions = source.mentions(kernel.function)
    assert [source.line(name) for name in mentions] == [
        source.line(launch.node) for launch in kernel.launches
    ]


@pytest.mark.parametrize(
    "between",
    [
        "doubled(torch.ones(9))\n",
        "KEPT = double\n",
        "if torch.cuda.is_available():\n    doubled(torch.ones(9))\n",
        "def other(kernel=double):\n    kernel[(1,)](torch.ones(9), 9, BLOCK=16)\n",
        "class Doubling:\n    of = doubled\n",
        "for _ in range(3):\n    doubled(torch.ones(9))\n",
    ],
)
def test_not_where_something_runs_or_keeps_the_first(between: str) -> None:
    source = file_of(KERNEL, CALLER, between, KERNEL, CALLER)
    assert not source.replaced
    assert len(TRITON.kernels(source)) == 2


def test_nor_where_a_condition_chooses_one() -> None:
    source = Source("if torch:\n    def f(): return 1\nelse:\n    def f(): return 2\n")
    assert not source.replaced


def test_a_name_is_the_last_function_of_it() -> None:
    source = Source("def f(): return 1\n\n\ndef f(): return 2\n\n\nx = f()\n")
    (call,) = source.calls
    function = source.function_of(call.func)
    assert function is not None and isinstance(function.node.body, cst.SimpleStatementSuite)
    assert "2" in source.code(function.node.body)
