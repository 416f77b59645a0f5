"""What decides when a `while` loop ends: one that rests on memory may wait for another program."""

from __future__ import annotations

import libcst as cst

from agent.syntax import assigned, descendants


def deciding_calls(loop: cst.While) -> list[cst.Call]:
    """The calls in all that the end of a loop is computed from, through what its body assigns."""
    behind: list[cst.CSTNode] = [loop.test, *(i.test for i in descendants(loop.body, cst.If))]
    changes = list(assigned(loop.body))
    for node in behind:  # it grows
        names = {n.value for n in descendants(node, cst.Name)}
        behind += [
            value
            for target, value in changes
            if value not in behind and {n.value for n in descendants(target, cst.Name)} & names
        ]
    return [call for node in behind for call in descendants(node, cst.Call)]
