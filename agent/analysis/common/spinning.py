"""What decides when a `while` loop ends: one that rests on memory may wait for another program."""

from __future__ import annotations

import libcst as cst

from agent.syntax import assigned, descendants, names_in


def deciding_calls(loop: cst.While) -> list[cst.Call]:
    """The calls in all that the end of a loop is computed from, through what its body assigns."""
    behind: list[cst.CSTNode] = [loop.test, *(i.test for i in descendants(loop.body, cst.If))]
    changes = list(assigned(loop.body))
    for node in behind:  # it grows
        names = names_in(node)
        behind += [
            value for target, value in changes if value not in behind and names_in(target) & names
        ]
    return [call for node in behind for call in descendants(node, cst.Call)]
