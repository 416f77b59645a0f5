"""Which captured indices are places that programs write to, and are drawn without repetition."""

from __future__ import annotations

import pytest

from agent.capture.refused import _below


@pytest.mark.parametrize(
    ("count", "high", "extents", "below"),
    [
        (40, 38, (40, 8, 64), 40),  # a place for each of 40 tokens, drawn with repetition
        (1000, 4090, (1000, 4096), 4096),  # slots of a cache
        (100_000, 128, (100_000, 8, 64), None),  # lengths of sequences, fewer than there are
        (100_000, 128, (100_000, 160_000), None),
        (3, 5, (3, 64), 64),  # of three draws the largest may be small
        (40, 38, (8, 64), 64),
        (40, 20, (8, 64), None),
    ],
)
def test_places_are_drawn_from_what_they_may_be_in(
    count: int, high: int, extents: tuple[int, ...], below: int | None
) -> None:
    contents = {"kind": "integers", "low": 0, "high": high}
    fact = {"kind": "tensor", "dtype": "int32", "shape": [count], "contents": contents}
    assert _below(fact, extents) == below
    assert _below({**fact, "dtype": "float32"}, extents) is None
