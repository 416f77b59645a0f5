"""How the grid of a launch follows the config: the statements that become a function of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from agent.syntax import Source, argument, descendants
from agent.tuning.form import Form, local_assignments
from agent.tuning.later import check_order
from agent.tuning.templates import NotTunable


@dataclass(frozen=True)
class GridFunction:
    """The grid as a function of the config."""

    expression: cst.BaseExpression
    moved: tuple[cst.SimpleStatementLine, ...]
    """Statements of the wrapper that it takes along, in their order."""
    names: Mapping[cst.Name, str]
    """A use of a tuned size in them -> the config's field."""
    suffixes: Mapping[cst.CSTNode, str] = field(default_factory=dict)
    """An expression in them -> what is written behind it."""

    @property
    def varies(self) -> bool:
        """Whether it depends on the config at all."""
        return bool(self.names or self.suffixes)


def grid_of(form: Form, sizes: Mapping[Any, str]) -> GridFunction:
    """What of the wrapper the grid needs, when these integers, or other expressions, change.

    Raises:
        NotTunable: what is computed from them serves another purpose, or is not a plain statement
            beside the launch.
    """
    source = form.source
    statements: list[cst.SimpleStatementLine] = []
    fields: dict[cst.Name, str] = {}
    pending: list[cst.CSTNode] = [form.launch.grid]
    for node in pending:
        for name in descendants(node, cst.Name):
            found = sizes.get(source.resolve(name))
            if found is not None:
                fields[name] = found
                continue
            for assignment in local_assignments(form, name):
                if _depends(source, form, assignment.node, sizes):
                    statement = _statement(form, assignment.node)
                    if statement not in statements:
                        statements.append(statement)
                        pending.append(_value(statement))
    expression = form.launch.grid
    if statements and isinstance(expression, cst.Name):
        value = source.resolve(expression)
        if value is not expression and any(value is _value(s) for s in statements):
            statements = [s for s in statements if _value(s) is not value]
            expression = value
    order = {id(s): n for n, s in enumerate(form.wrapper.node.body.body)}
    statements.sort(key=lambda s: order[id(s)])
    if statements or fields:
        _check_names(form, (expression, *statements))
    return GridFunction(expression, tuple(statements), fields)


def _check_names(form: Form, nodes: Sequence[cst.CSTNode]) -> None:
    """Raise `NotTunable` where an expression has names of its own, which no function is handed."""
    for node in nodes:
        bind = (
            *descendants(node, cst.NamedExpr),
            *descendants(node, cst.CompFor),
            *(each for each in descendants(node, cst.Lambda) if each.params.params),
        )
        for each in bind:
            raise NotTunable(
                f"line {form.source.line(each)} computes the grid with names of its own: write it "
                "as a tuple"
            )


def removed(form: Form, grid: GridFunction, literals: Collection[cst.Integer]) -> set[cst.CSTNode]:
    """The wrapper's statements that nothing needs any more: moved ones, and the sizes' own.

    Raises:
        NotTunable: something else needs one of them.
    """
    source = form.source
    gone: set[cst.CSTNode] = set(grid.moved)
    body = form.wrapper.node.body.body
    candidates = [s for s in body if isinstance(s, cst.SimpleStatementLine) and s not in gone]
    if grid.varies:
        gone |= {s for s in candidates if _value_or_none(s) is grid.expression}
    gone |= {s for s in candidates if _is_arguments(form, s)}
    for statement in gone:
        check_order(form, statement)
    gone |= {s for s in candidates if _sets_only(s, literals)}
    for statement in gone:
        for target in _targets(statement):
            for assignment in source.assignments(target):
                for use in source.uses(assignment):
                    around = (use, *source.ancestors(use))
                    if not any(a in gone or a is form.launch.node for a in around):
                        raise NotTunable(
                            f"line {source.line(use)} uses `{use.value}`, which the search sets, "
                            "for more than the launch"
                        )
    return gone


def narrowed(form: Form, literals: Collection[cst.Integer]) -> dict[cst.CSTNode, cst.CSTNode]:
    """Lines as `tile_m, group = 64, 8`, of which the search sets a part: what is left of them."""
    found: dict[cst.CSTNode, cst.CSTNode] = {}
    for assign in descendants(form.wrapper.node.body, cst.Assign):
        target, value = assign.targets[0].target, assign.value
        if not isinstance(target, cst.Tuple) or not isinstance(value, cst.Tuple):
            continue
        both = list(zip(target.elements, value.elements, strict=False))
        kept = [(t, v) for t, v in both if v.value not in literals]
        if len(kept) in (0, len(both)):
            continue
        names, values = (
            [_last(e, e is pair[-1]) for e in pair] for pair in zip(*kept, strict=True)
        )
        left: cst.BaseExpression = target.with_changes(elements=names)
        right: cst.BaseExpression = value.with_changes(elements=values)
        if len(kept) == 1:
            left, right = names[0].value, values[0].value
        found[assign] = assign.with_changes(
            targets=[assign.targets[0].with_changes(target=left)], value=right
        )
    return found


def _last(element: cst.BaseElement, is_last: bool) -> cst.BaseElement:
    return element.with_changes(comma=cst.MaybeSentinel.DEFAULT) if is_last else element


def _depends(source: Source, form: Form, target: cst.CSTNode, sizes: Mapping[Any, str]) -> bool:
    """Whether what a name is assigned is computed from one of the integers."""
    pending, seen = [target], set()
    for node in pending:
        statement = next(
            (a for a in source.ancestors(node) if isinstance(a, cst.SimpleStatementLine)), None
        )
        if statement is None or id(statement) in seen:
            continue
        seen.add(id(statement))
        value = _value_or_none(statement)
        for name in descendants(value, cst.Name) if value is not None else ():
            if source.resolve(name) in sizes:
                return True
            pending += [a.node for a in local_assignments(form, name)]
    return False


def _statement(form: Form, target: cst.CSTNode) -> cst.SimpleStatementLine:
    source = form.source
    for around in source.ancestors(target):
        if isinstance(around, cst.SimpleStatementLine):
            if around in form.wrapper.node.body.body and _value_or_none(around) is not None:
                return around
            break
    raise NotTunable(
        f"line {source.line(target)} computes the grid in a way that cannot be moved: assign it "
        "once, beside the launch"
    )


def _value(statement: cst.CSTNode) -> cst.BaseExpression:
    value = _value_or_none(statement)
    assert value is not None  # `_statement` let no other pass
    return value


def _value_or_none(statement: cst.CSTNode) -> cst.BaseExpression | None:
    """What the only assignment of a line assigns."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        (small,) = statement.body
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            return small.value
        if isinstance(small, cst.AnnAssign):
            return small.value
    return None


def _targets(statement: cst.CSTNode) -> list[cst.Name]:
    found = [t.target for each in descendants(statement, cst.Assign) for t in each.targets]
    found += [each.target for each in descendants(statement, cst.AnnAssign)]
    return [name for target in found for name in descendants(target, cst.Name)]


def _sets_only(statement: cst.SimpleStatementLine, literals: Collection[cst.Integer]) -> bool:
    """Whether a line assigns tuned sizes and nothing else."""
    value = _value_or_none(statement)
    if isinstance(value, cst.Tuple):
        return all(e.value in literals for e in value.elements)
    return value in literals


def _is_arguments(form: Form, statement: cst.SimpleStatementLine) -> bool:
    """Whether a line makes the tuple of arguments that the launch is given."""
    given = argument(form.launch.node, 3, "kernel_args")
    value = _value_or_none(statement)
    named = isinstance(given, cst.Name) and value is not None
    return named and given is not None and form.source.resolve(given) is value
