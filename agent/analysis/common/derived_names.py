"""Names by what their values are computed from, through any number of assignments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import libcst as cst

from agent.syntax import Source, assigned, descendants, names_in


def derived_names(
    body: cst.CSTNode,
    derives: Callable[[cst.BaseExpression, set[str]], bool],
    begin: Iterable[str] = (),
) -> set[str]:
    """The names whose values derive from something, whatever the order of the lines.

    Args:
        body: whose assignments count.
        derives: whether a value does, by itself or by one of the names that are known to.
        begin: names that do in any case.
    """
    names = set(begin)
    written = [*assigned(body)]
    while True:
        found = {
            name.value
            for target, value in written
            if derives(value, names)
            for name in descendants(target, cst.Name)
        }
        if found <= names:
            return names
        names |= found


def reaches(
    name: str,
    values: Iterable[cst.BaseExpression],
    written: Sequence[tuple[str, cst.BaseExpression]],
) -> bool:
    """Whether values are computed from a name.

    Args:
        name: the name.
        values: the values.
        written: names and what they are assigned, which are looked through.
    """
    todo, seen = [*values], set[str]()
    for value in todo:
        for each in descendants(value, cst.Name):
            if each.value == name:
                return True
            if each.value not in seen:
                seen.add(each.value)
                todo += [other for n, other in written if n == each.value]
    return False


def all_values(source: Source, name: cst.Name) -> Iterator[cst.BaseExpression]:
    """Every value that the function around gives a name; of a loop's counter, what it runs over."""
    function = source.enclosing(name)
    for target, value in assigned(function.node.body) if function is not None else ():
        yield from _own_parts(target, value, name.value)


def _own_parts(
    target: cst.BaseExpression, value: cst.BaseExpression, name: str
) -> Iterator[cst.BaseExpression]:
    """What of an assigned value goes to a name."""
    match target, value:
        case cst.Name(value=assigned_to), _ if assigned_to == name:
            yield value
        case ((cst.Tuple() | cst.List()), (cst.Tuple() | cst.List())):
            for one, part in zip(target.elements, value.elements, strict=False):
                yield from _own_parts(one.value, part.value, name)
        case ((cst.Tuple() | cst.List()), _):
            if name in names_in(target):
                yield value


def is_no_variable(source: Source, name: cst.Name) -> bool:
    """Whether a name is that of an attribute or of a keyword."""
    around = next(iter(source.ancestors(name)), None)
    return (isinstance(around, cst.Attribute) and around.attr is name) or (
        isinstance(around, cst.Arg) and around.keyword is name
    )
