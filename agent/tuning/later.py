"""Whether a statement of the wrapper may be carried out at the launch, and not where it stands.

What is computed from the config is computed in a function of it: after all that the wrapper does
before the launch, and perhaps several times.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst.metadata import ImportAssignment

from agent.analysis.common.purity import QUERIES, is_pure
from agent.analysis.cutile.dialect import CUTILE
from agent.syntax import Source, descendants
from agent.tuning.form import DESCRIBING, FRESH, Form, local_assignments
from agent.tuning.templates import NotTunable

QUIET = (
    *CUTILE.cdivs,
    *(f"builtins.{name}" for name in ("abs", "float", "int", "len", "list", "max", "min", "tuple")),
    *(f"math.{name}" for name in ("ceil", "floor", "log2", "prod", "sqrt")),
    "torch.cuda.current_device",
    "torch.cuda.current_stream",
    "torch.cuda.get_device_properties",
    "triton.cdiv",
    "triton.next_power_of_2",
)
"""What changes nothing when it is called."""
CHANGING = ("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort")
"""Methods of a list after which an element may be another."""


def check_order(form: Form, statement: cst.CSTNode) -> None:
    """Hold a statement to give at the launch what it gives where it stands.

    Raises:
        NotTunable: something that it reads may have changed by then.
    """
    source, line = form.source, form.source.line(statement)
    for name in descendants(statement, cst.Name):
        later = [source.line(a.node) for a in local_assignments(form, name)]
        if max(later, default=0) > line:
            raise NotTunable(
                f"line {max(later)} assigns `{name.value}`, which line {line} has read for the "
                "launch: move the two next to it"
            )
    lasts = all(_lasts(form, value) for value in _values(statement))
    if not lasts and not _is_undisturbed(form, statement):
        raise NotTunable(
            f"line {line} may give something else at the launch: put the launch right behind it"
        )


def _values(statement: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    for assign in descendants(statement, cst.Assign):
        yield assign.value
    for annotated in descendants(statement, cst.AnnAssign):
        if annotated.value is not None:
            yield annotated.value


def _lasts(form: Form, value: cst.BaseExpression) -> bool:
    """Whether it gives the same until a name in it is assigned anew.

    Names, numbers, shapes, and what is computed from them without a look at contents.
    """
    source = form.source
    parts = (
        [e.value for e in value.elements] if isinstance(value, cst.Tuple | cst.List) else [value]
    )
    starred = isinstance(value, cst.Tuple | cst.List) and any(
        isinstance(element, cst.StarredElement) for element in value.elements
    )
    return (
        not starred
        and all(is_pure(source, part, QUIET) for part in parts)
        and all(
            each.attr.value in DESCRIBING
            or each.attr.value in QUERIES
            or _is_imported(source, each)
            for each in descendants(value, cst.Attribute)
        )
        and not any(_is_changed(form, each.value) for each in descendants(value, cst.Subscript))
    )


def _is_imported(source: Source, attribute: cst.Attribute) -> bool:
    """Whether it is something of a module, as `torch.float32`: no object's state."""
    owner: cst.BaseExpression = attribute
    while isinstance(owner, cst.Attribute):
        owner = owner.value
    found = source.assignments(owner) if isinstance(owner, cst.Name) else ()
    return bool(found) and all(isinstance(each, ImportAssignment) for each in found)


def _is_changed(form: Form, owner: cst.BaseExpression) -> bool:
    """Whether an element of a list may be another by the time of the launch."""
    body = form.wrapper.node.body
    targets = [t.target for each in descendants(body, cst.Assign) for t in each.targets]
    targets += [each.target for each in descendants(body, cst.AugAssign)]
    changed = [each.value for target in targets for each in descendants(target, cst.Subscript)]
    methods = [call.func for call in descendants(body, cst.Call)]
    changed += [
        func.value
        for func in methods
        if isinstance(func, cst.Attribute) and func.attr.value in CHANGING
    ]
    return any(owner.deep_equals(each) for each in changed)


def _is_undisturbed(form: Form, statement: cst.CSTNode) -> bool:
    """Whether what is done between a statement and the launch can change nothing for it."""
    body = form.wrapper.node.body.body
    around = {form.launch.node, *form.source.ancestors(form.launch.node)}
    places = [n for n, each in enumerate(body) if each is statement]
    ends = [n for n, each in enumerate(body) if each in around]
    if not places or not ends or not isinstance(body[ends[0]], cst.SimpleStatementLine):
        return False
    return all(_is_plain(form.source, each) for each in body[places[0] + 1 : ends[0]])


def _is_plain(source: Source, statement: cst.CSTNode) -> bool:
    """Whether a statement gives names values, and changes nothing that had one."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    for small in statement.body:
        match small:
            case cst.Assign():
                targets = [target.target for target in small.targets]
            case cst.AnnAssign():
                targets = [small.target]
            case _:
                return False
        if any(
            True
            for target in targets
            for kind in (cst.Attribute, cst.Subscript)
            for _ in descendants(target, kind)
        ):
            return False
    return all(_is_quiet(source, call) for call in descendants(statement, cst.Call))


def _is_quiet(source: Source, call: cst.Call) -> bool:
    if (source.name(call.func) or "") in (*QUIET, *FRESH):
        return True
    return isinstance(call.func, cst.Attribute) and call.func.attr.value in QUERIES
