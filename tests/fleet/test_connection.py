"""Addresses of clusters that are none: told in one line, before Ray is asked."""

from __future__ import annotations

import pytest

from agent.errors import UsageError
from agent.fleet.cluster import connected


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:1", "nobody answers there"),
        ("127.0.0.1:99999", "nobody answers there"),
        ("ray://head:10001", "on a machine of the cluster"),
    ],
)
def test_an_address_where_no_cluster_is(address: str, why: str) -> None:
    with pytest.raises(UsageError, match=why), connected(address, 1):
        pass
