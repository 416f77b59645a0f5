"""Whether Python's builtins go by their names where code is to be written.

`def clamp(x, min, max)` has other ones, and what calls `min` there raises.
"""

from __future__ import annotations

import libcst as cst
from libcst.metadata import BuiltinAssignment

from agent.analysis.common.subject import NotApplicable
from agent.syntax import Source


def hidden(source: Source, place: cst.CSTNode, *names: str) -> str:
    """The first of these builtins that is something of the file's at a place; or none.

    Args:
        source: the file.
        place: a statement or expression beside which they would be written; of what is written
            inside a function, its body.
        names: of builtins.
    """
    scope = source.scope(place)
    assert scope is not None  # only names in an unfinished scope have none
    for name in names:
        if not all(isinstance(found, BuiltinAssignment) for found in scope[name]):
            return name
    return ""


def check_builtins(source: Source, place: cst.CSTNode, *names: str) -> None:
    """Raise `NotApplicable` where one of these builtins is something of the file's at a place."""
    if name := hidden(source, place, *names):
        line = source.line(place)
        raise NotApplicable(f"`{name}` is a name of the file's own at line {line}")
