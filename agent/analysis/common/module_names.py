"""By which names a file's code can reach a module when it runs, and from where on.

A name that an import gives is not there above the import, outside of the function that imports, or
at all where the import is for type checkers alone.
"""

from __future__ import annotations

import libcst as cst
from libcst.metadata import Assignment
from libcst.metadata.scope_provider import ImportAssignment

from agent.syntax import Source, descendants

TYPE_CHECKING = "TYPE_CHECKING"


def reached_as(source: Source, module: str, place: cst.CSTNode) -> str | None:
    """The name of a module at a place: 'torch'; None where no import that runs gives it one.

    Args:
        source: the file.
        module: of one name, as `torch`.
        place: where the name is to be written; of a function, its body.
    """
    scope = source.scope(place)
    used = (n.value for n in descendants(source.module, cst.Name) if source.name(n) == module)
    # An import that nothing uses has no name that means the module, other than its own.
    for name in dict.fromkeys([*used, module]) if scope is not None else ():
        found = [a for a in scope[name] if isinstance(a, ImportAssignment)] if scope else []
        for assignment in found:
            gives = {each.name for each in assignment.get_qualified_names_for(name)}
            if module in gives and _runs_before(source, assignment, place):
                return name
    return None


def is_imported(source: Source, name: cst.Name) -> bool:
    """Whether imports alone give a name its value, as they do `math` of `math.ceil(a / b)`."""
    assignments = source.assignments(name)
    return bool(assignments) and all(isinstance(a, ImportAssignment) for a in assignments)


def bound_at(source: Source, name: str, last: int | None = None) -> int | None:
    """The statement of the module that gives a name its value when it runs, by its number.

    Args:
        source: the file.
        name: of the module's level.
        last: no statement from this one on counts.

    Returns:
        The last such statement, or None: nothing at that level gives the name a value.
    """
    scope = source.scope(source.module)
    found = [
        number
        for assignment in (scope[name] if scope is not None else ())
        if isinstance(assignment, Assignment) and not only_for_checkers(source, assignment.node)
        if (number := _statement(source, assignment.node)) is not None
        and (last is None or number < last)
    ]
    return max(found, default=None)


def _runs_before(source: Source, assignment: Assignment, place: cst.CSTNode) -> bool:
    """Whether an import has run when the code at a place does, as far as its place tells."""
    if only_for_checkers(source, assignment.node):
        return False
    function = source.enclosing(assignment.node)
    own = function is not None and source.enclosing(place) is function
    return not own or source.line(assignment.node) < source.line(place)


def only_for_checkers(source: Source, node: cst.CSTNode) -> bool:
    """Whether a node stands below `if TYPE_CHECKING:`."""
    child = node
    for parent in source.ancestors(node):
        match parent:
            case cst.If(test=test, body=body) if child is body:
                if source.code(test).rpartition(".")[2] == TYPE_CHECKING:
                    return True
        child = parent
    return False


def _statement(source: Source, node: cst.CSTNode) -> int | None:
    around = {id(node), *map(id, source.ancestors(node))}
    return next((n for n, s in enumerate(source.module.body) if id(s) in around), None)
