"""Exponentials as powers of two: which, how they are written, and what is left alone."""

from __future__ import annotations

import ast

import pytest

from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source
from agent.tileir.exponentials import LOG2_E, in_base_two
from tests.tileir.kernels import HEAD, rows
from tests.tileir.movable import PROJECTION

STORE = "tl.store(y_ptr + row * n + cols, y, mask=mask)"


def written(line: str, **head: str) -> str:
    """What becomes of a line of a kernel."""
    source = Source(rows(f"{line}\n{STORE}", **head))
    text, _ = in_base_two(source, TRITON.launched(source))
    ast.parse(text)
    (changed,) = set(text.splitlines()) - set(source.text.splitlines()) or {f"    {line}"}
    return changed.strip()


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("y = tl.exp(x)", f"y = tl.exp2(x * {LOG2_E})"),
        ("y = tl.exp(-x)", f"y = tl.exp2(-x * {LOG2_E})"),
        ("y = tl.exp(x - 1.0)", f"y = tl.exp2((x - 1.0) * {LOG2_E})"),
        ("y = tl.exp((x - 1.0))", f"y = tl.exp2((x - 1.0) * {LOG2_E})"),
        ("y = tl.math.exp(x=x[:, None])", f"y = tl.math.exp2(x=x[:, None] * {LOG2_E})"),
        ("y = x.exp() + 1.0", f"y = (x * {LOG2_E}).exp2() + 1.0"),
        ("y = tl.exp(tl.exp(x))", f"y = tl.exp2(tl.exp2(x * {LOG2_E}) * {LOG2_E})"),
        ("y = x * tl.sigmoid(x)", f"y = x * (1.0 / (1.0 + tl.exp2(x * -{LOG2_E})))"),
        ("y = tl.sigmoid(x + 1)", f"y = (1.0 / (1.0 + tl.exp2((x + 1) * -{LOG2_E})))"),
        ("y = (x + 1).sigmoid()", f"y = (1.0 / (1.0 + ((x + 1) * -{LOG2_E}).exp2()))"),
        ("y = tl.exp2(x) + tl.log(x)", "y = tl.exp2(x) + tl.log(x)"),
        ("y = tl.extra.libdevice.exp(x)", "y = tl.extra.libdevice.exp(x)"),
    ],
)
def test_how_they_are_written(line: str, after: str) -> None:
    assert written(line) == after


def test_a_name_that_was_imported_by_itself_is_left() -> None:
    head = HEAD.replace("as tl\n", "as tl\nfrom triton.language import exp\n")
    assert written("y = exp(x)", head=head) == "y = exp(x)"


def test_helpers_are_changed_too_and_told_of_by_the_kernel() -> None:
    source = Source(PROJECTION)
    text, changes = in_base_two(source, TRITON.launched(source))
    assert f"return x * (1.0 / (1.0 + tl.exp2(x * -{LOG2_E})))" in text
    assert set(changes) == {
        "projection_kernel: line 8: tl.sigmoid is 1 / (1 + tl.exp2) of a multiple by log2(e)"
    }
