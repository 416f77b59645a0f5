"""A row or a column that `tl.store` broadcasts to a tile, where nothing else would."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.syntax import Source

NARROW = (
    "tl.sum(acc, axis=1)[:, None]",
    "tl.sum(acc, axis=0, keep_dims=True).to(tl.float32)",
    "tl.max(acc, 0)",
    "-tl.arange(0, BLOCK_N)[None, :] * 2.0",
    "tl.load(c_ptr + tl.arange(0, BLOCK_N))[None, :] + 1.0",
    "tl.load(a_ptr + tl.arange(0, BLOCK_M)[:, None])",
    "tl.full((1, BLOCK_N), 1.0, tl.float32)",
)
WHOLE = (
    "acc * tl.sum(acc, axis=1)[:, None]",
    "tl.where(acc > 0, acc, tl.arange(0, BLOCK_N)[None, :])",
    "tl.arange(0, BLOCK_M)[:, None] + tl.arange(0, BLOCK_N)[None, :]",
    "acc.to(tl.float16)",
    "helped(acc)",
)


def stored(entry: str, value: str) -> Subject:
    before = playbook.get(entry).before
    head, found, tail = before.rpartition(", acc, mask=")
    assert found
    return Subject(Source(f"{head}, {value}, mask={tail}"), KernelClass.COMPUTE, Hardware(sm=90))


@pytest.mark.parametrize("value", NARROW)
def test_what_is_broadcast_is_neither_halved_nor_stored_by_a_descriptor(value: str) -> None:
    with pytest.raises(NotApplicable, match="stores no whole tile, but broadcasts one"):
        playbook.get("epilogue-halves").apply(stored("epilogue-halves", value), {})
    for entry in ("tile-descriptors", "host-descriptors"):
        subject = stored(entry, value)
        text = playbook.get(entry).apply(subject, {"tiles": "loads and stores"})
        assert ".load(" in text
        assert "c_desc.store(" not in text


@pytest.mark.parametrize("value", WHOLE)
def test_what_fills_its_tile_is(value: str) -> None:
    subject = stored("epilogue-halves", value)
    assert "tl.split(" in playbook.get("epilogue-halves").apply(subject, {})
    for entry in ("tile-descriptors", "host-descriptors"):
        subject = stored(entry, value)
        assert "c_desc.store(" in playbook.get(entry).apply(subject, {"tiles": "loads and stores"})
