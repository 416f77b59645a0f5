"""What is read of the words that torch and numpy fail with, as they are installed here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from agent.report.mismatch import in_words, mismatch

WHERE = "tests/test_k.py::test_k[float16-(128, 64)] (and 2 more): AssertionError: not close"


def said(check: Callable[[], None]) -> str:
    """What an assertion says, as pytest shows it."""
    with pytest.raises(AssertionError) as failed:
        check()
    return "\n".join(f"E       {line}" for line in str(failed.value).splitlines())


def test_the_largest_error_of_tensors_is_told_with_its_place() -> None:
    expected = torch.zeros(4, 8)
    actual = expected.clone()
    actual[2, 5] = 0.5
    account = said(lambda: torch.testing.assert_close(actual, expected))
    found = mismatch(WHERE, account)
    assert found == {
        "test": "tests/test_k.py::test_k[float16-(128, 64)]",
        "mismatched": 1,
        "elements": 32,
        "largest_error": {"value": "0.5", "at": "(2, 5)", "allowed": "1e-05"},
        "largest_relative_error": {"value": "inf", "at": "(2, 5)", "allowed": "1.3e-06"},
    }
    assert in_words(found).startswith(
        "1 of 32 elements differ; largest error 0.5 at (2, 5), 1e-05 allowed"
    )


def test_shapes_and_types_that_do_not_match_are_told() -> None:
    one, other = torch.zeros(4, 8), torch.zeros(4, 8, dtype=torch.float16)
    shapes = mismatch(WHERE, said(lambda: torch.testing.assert_close(one, one[:2])))
    assert shapes is not None and shapes["shapes"] == ["[4, 8]", "[2, 8]"]
    types = mismatch(WHERE, said(lambda: torch.testing.assert_close(one, other)))
    assert types is not None and types["dtypes"] == ["torch.float32", "torch.float16"]
    assert in_words(types) == "dtypes torch.float32 and torch.float16 do not match"


def test_the_words_of_numpy_are_read_too() -> None:
    found = mismatch("", said(lambda: np.testing.assert_allclose(np.ones(3), np.array([1, 1, 2]))))
    assert found is not None
    assert (found["test"], found["mismatched"], found["elements"]) == ("", 1, 3)
    assert found["largest_error"]["value"] == "1"
    assert found["largest_relative_error"]["value"] == "0.5"


def test_where_nothing_is_told_nothing_is_made_up() -> None:
    assert mismatch("tests/test_k.py::test_k: assert False", "E       assert False") is None
