"""What is looked at before a run's proposers are made."""

from __future__ import annotations

import pytest

from agent.errors import UsageError
from agent.proposers.build import check_language


@pytest.mark.parametrize(
    ("only", "backend", "message"),
    [
        (["tile-sizes"], "triton", "tile-sizes is for cuTile; this is a Triton kernel: see"),
        (["split-k", "block-size"], "cutile", "split-k is for Triton; this is a cuTile kernel"),
    ],
)
def test_entries_of_the_other_language(only: list[str], backend: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_language(only, backend)


@pytest.mark.parametrize("only", [[], ["block-size"], ["tile-sizes", "block-size"]])
def test_one_entry_of_the_language_is_enough(only: list[str]) -> None:
    check_language(only, "triton")
