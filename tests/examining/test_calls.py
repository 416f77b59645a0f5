"""The calls of tests in other layouts: what lies around their arguments."""

from __future__ import annotations

import torch

from tile_agent_pytest.examining.calls import FILLS, GUARD, ArgumentLayout, RecordedCall


def gathered(indices: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Rows of a table, wherever an index points to, as a kernel reads them."""
    rows, columns = int(indices.max()) + 1, table.shape[1]
    everything = table.as_strided((rows, columns), table.stride(), table.storage_offset())
    return everything[indices]


def test_an_index_beyond_a_table_that_was_cut_reads_what_changes() -> None:
    """So that the origin is known not to be able to do it: it read what happened to lie there."""
    table, indices = torch.arange(6000.0).reshape(300, 20), torch.tensor([3, 299, 7])
    call = RecordedCall("test", "gathered", gathered, (indices, table), {})
    kept = call.laid_out(ArgumentLayout(sizes=((300, 172),)))
    first, second = kept(), kept()
    assert torch.equal(first[[0, 2]], table[[3, 7]])
    assert torch.equal(second[[0, 2]], table[[3, 7]])
    assert GUARD < 127 * 20
    octets = [found[1].contiguous().view(torch.uint8) for found in (first, second)]
    assert [set(each.tolist()) for each in octets] == [{FILLS[1]}, {FILLS[0]}]
