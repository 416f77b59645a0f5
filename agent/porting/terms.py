"""Expressions of the port: their text, how tightly it binds, and what is known of the value."""

from __future__ import annotations

from typing import NamedTuple

from agent.porting.values import Value

CONDITIONAL, OR, AND, NOT, COMPARISON = 1, 2, 3, 4, 5
BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, SIGN, POWER, ATOM = 6, 7, 8, 9, 10, 11, 12, 13, 14


class Phrase(NamedTuple):
    """One expression of the port."""

    text: str
    binding: int
    """One of the ranks above; the larger, the tighter."""
    value: Value

    def within(self, binding: int) -> str:
        """The text as an operand of an operator of that rank, with the parentheses it needs."""
        return self.text if self.binding >= binding else f"({self.text})"


def atom(text: str, value: Value) -> Phrase:
    """A name, a literal, a call or a subscript."""
    return Phrase(text, ATOM, value)
