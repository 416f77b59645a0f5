"""Whether Python's builtins go by their names where code is to be written.

`def clamp(x, min, max)` has other ones, and what calls `min` there raises.
"""

from __future__ import annotations

import libcst as cst
from libcst.metadata import Assignment, BuiltinAssignment

from agent.analysis.common.subject import NotApplicable
from agent.syntax import Source, descendants


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
    if _all_names_of(source) is not None:
        return names[0]
    for name in names:
        if not all(isinstance(found, BuiltinAssignment) for found in scope[name]):
            return name
    return ""


def check_builtins(source: Source, place: cst.CSTNode, *names: str) -> None:
    """Raise `NotApplicable` where one of these builtins is something of the file's at a place."""
    if name := hidden(source, place, *names):
        line, made = source.line(place), _made_at(source, place, name)
        if not made and (imported := _all_names_of(source)) is not None:
            code = source.code(imported)
            raise NotApplicable(
                f"`{code}` may hide Python's `{name}`, which line {line} would need"
            )
        raise NotApplicable(
            f"`{name}` is a name of the file's own{made}, and line {line} would need Python's"
        )


def _all_names_of(source: Source) -> cst.ImportFrom | None:
    """`from torch import *`, which has a `min` of its own, among others."""
    imports = descendants(source.module, cst.ImportFrom)
    return next((each for each in imports if isinstance(each.names, cst.ImportStar)), None)


def _made_at(source: Source, place: cst.CSTNode, name: str) -> str:
    """`, that of line 7`; nothing where no statement of the file makes it."""
    scope = source.scope(place)
    assert scope is not None
    own = (found for found in scope[name] if isinstance(found, Assignment))
    first = next(own, None)
    return f", that of line {source.line(first.node)}" if first is not None else ""
