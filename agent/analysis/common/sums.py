"""Integers of a kernel as sums of products of names: `n - 3 * row * stride`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Product: TypeAlias = tuple[str, ...]
"""Names, in their order; empty for 1."""
Terms: TypeAlias = Mapping[Product, int]
"""Products of names -> how often each is in a sum."""


def plus(one: Terms, other: Terms, times: int = 1) -> Terms:
    """A sum, and so many times another one."""
    found = dict(one)
    for product, count in other.items():
        found[product] = found.get(product, 0) + times * count
    return {product: count for product, count in found.items() if count}


def times(one: Terms, other: Terms) -> Terms:
    """The product of two sums."""
    found: Terms = {}
    for product, count in one.items():
        for factor, often in other.items():
            found = plus(found, {tuple(sorted((*product, *factor))): count * often})
    return found


def number(value: int) -> Terms:
    """A sum that is a number."""
    return {(): value} if value else {}
