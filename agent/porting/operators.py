"""Operators that a file registers with PyTorch, which a port registers as others.

Under the origin's names they would take the place of the origin's, in silence: whoever imports both
would call the port twice.
"""

from __future__ import annotations

from agent.porting.context import Context
from agent.rewriting.common.own_operators import (
    operators_of,
    registered_otherwise,
    with_own_operators,
)

OWN = "_cutile"
"""Behind the namespace."""


def with_names_of_its_own(context: Context, text: str) -> str:
    """A port with operators of a namespace of its own, and notes of them and of those that stay.

    Args:
        context: of the origin.
        text: the port.
    """
    for (namespace, name), call in operators_of(context.source).items():
        context.note(
            call,
            f"the operator {namespace}::{name} is {namespace}{OWN}::{name} here: under one name, "
            "the port would take the place of its origin",
        )
    for call in registered_otherwise(context.source):
        context.note(
            call,
            f"`{context.source.code(call.func)}` registers under a name that stays: where both are "
            "imported, the port may take the place of its origin",
        )
    return with_own_operators(text, OWN)
