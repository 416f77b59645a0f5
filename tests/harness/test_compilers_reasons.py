"""What is kept of a compiler's message is its reason, wherever that stands in it."""

from __future__ import annotations

import ast
from collections.abc import Callable

import numpy as np
import pytest
import torch

from agent.harness.processes.collection_errors import headline
from tile_agent_pytest.compile_cutile import with_place

SOURCE = "def k(x):\n    y = tl.foo(x)\n"
REASON = "CompilationError: no such function foo, at `y = tl.foo(x)`"


def test_of_triton_the_reason_and_the_innermost_line_are_told() -> None:
    errors = pytest.importorskip("triton.compiler.errors", reason="triton is not installed")
    (function,) = ast.parse(SOURCE).body
    assert isinstance(function, ast.FunctionDef)
    inner = errors.CompilationError(SOURCE, function.body[0], "no such\n  function foo")
    outer = errors.CompilationError("def o():\n    k(1)\n", ast.parse("k(1)").body[0], None)
    outer.__cause__ = inner
    assert str(inner).splitlines()[0] == "at 2:4:"
    assert with_place(inner) == REASON
    assert with_place(outer) == REASON


def test_the_row_of_a_test_has_the_reason_behind_the_place() -> None:
    text = (
        "E   triton.compiler.errors.CompilationError: at 2:4:\n"
        "E   def k(x):\n"
        "E       y = tl.foo(x)\n"
        "E       ^\n"
        "E   no such function foo\n"
        "\n"
        "kernel.py:9: CompilationError\n"
        "E   a later one\n"
    )
    assert headline(text) == (
        "triton.compiler.errors.CompilationError: at 2:4: no such function foo"
    )
    assert headline("E   ValueError: a bad value\nE   more of it\n") == "ValueError: a bad value"
    assert headline("a line\nthe last line\n") == "the last line"
    assert headline("E   \x1b[31mValueError: a\x1b[0m\n") == "ValueError: a"


def test_what_is_not_close_is_told_with_how_far_it_is() -> None:
    x, y = torch.ones(4), torch.tensor([1.0, 1.0, 1.0, 2.0])
    assert headline(_account(torch.testing.assert_close, x, y)) == (
        "AssertionError: Tensor-likes are not close! Mismatched elements: 1 / 4 (25.0%); "
        "Greatest absolute difference: 1.0 at index (3,) (up to 1e-05 allowed)"
    )
    told = headline(_account(np.testing.assert_allclose, x.numpy(), y.numpy()))
    assert told.startswith("AssertionError: Mismatched elements: 1 / 4 (25%); Max absolute diff")


def _account(check: Callable[..., None], *results: object) -> str:
    """What pytest shows of a check that fails."""
    with pytest.raises(AssertionError) as raised:
        check(*results)
    return "\n".join(f"E   {line}" for line in raised.exconly().splitlines())
