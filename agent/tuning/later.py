"""Whether a statement of the wrapper may be carried out at the launch, and not where it stands.

What is computed from the config is computed in a function of it: after all that the wrapper does
before the launch, and perhaps several times.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.purity import QUERIES
from agent.analysis.cutile.dialect import CUTILE
from agent.syntax import Source, descendants
from agent.tuning.form import DESCRIBING, FRESH, Form, local_assignments
from agent.tuning.templates import NotTunable

PURE = (
    *CUTILE.cdivs,
    *(
        f"builtins.{name}"
        for name in ("abs", "float", "int", "len", "max", "min", "range", "tuple")
    ),
    *(f"math.{name}" for name in ("ceil", "floor", "log2", "prod", "sqrt")),
    "torch.cuda.current_device",
    "torch.cuda.get_device_properties",
    "triton.cdiv",
    "triton.next_power_of_2",
)
CHANGING = ("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort")
"""Methods of a list after which an element may be another."""
_PARTS = (
    cst.BinaryOperation | cst.BooleanOperation | cst.Comparison | cst.IfExp | cst.List
    | cst.Tuple | cst.UnaryOperation
)  # fmt: skip


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
    if not all(map(_Lasting(form).gives_the_same, _values(statement))) and not _is_undisturbed(
        form, statement
    ):
        raise NotTunable(
            f"line {line} may give something else at the launch: put the launch right behind it"
        )


def _values(statement: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    for assign in descendants(statement, cst.Assign):
        yield assign.value
    for annotated in descendants(statement, cst.AnnAssign):
        if annotated.value is not None:
            yield annotated.value


class _Lasting:
    """Expressions that give the same until a name in them is assigned anew."""

    def __init__(self, form: Form) -> None:
        self._form, self._source = form, form.source

    def gives_the_same(self, node: cst.BaseExpression) -> bool:
        """Names, numbers, shapes, and what is computed from them without a look at contents."""
        match node:
            case cst.Name() | cst.Integer() | cst.Float() | cst.SimpleString():
                return True
            case cst.Attribute(value=owner, attr=cst.Name(value=asked)):
                return self._is_of_module(owner) or (
                    asked in DESCRIBING and self.gives_the_same(owner)
                )
            case cst.Subscript(value=owner, slice=elements):
                places = [e.slice.value for e in elements if isinstance(e.slice, cst.Index)]
                whole = len(places) == len(elements) and all(map(self.gives_the_same, places))
                return whole and self.gives_the_same(owner) and not self._is_changed(owner)
            case cst.Call():
                return is_quiet(self._source, node) and all(
                    self.gives_the_same(each.value) for each in node.args
                )
            case _ if isinstance(node, _PARTS):
                return all(map(self.gives_the_same, _operands(node)))
        return False

    def _is_of_module(self, owner: cst.BaseExpression) -> bool:
        """Whether it is `torch` of `torch.float32`: no local of the wrapper."""
        while isinstance(owner, cst.Attribute):
            owner = owner.value
        return isinstance(owner, cst.Name) and not local_assignments(self._form, owner)

    def _is_changed(self, owner: cst.BaseExpression) -> bool:
        """Whether an element of a list may be another by the time of the launch."""
        if not isinstance(owner, cst.Name):
            return False
        body = self._form.wrapper.node.body
        targets = [t.target for each in descendants(body, cst.Assign) for t in each.targets]
        targets += [each.target for each in descendants(body, cst.AugAssign)]
        calls = [call.func for call in descendants(body, cst.Call)]
        return any(
            isinstance(target, cst.Subscript)
            and isinstance(target.value, cst.Name)
            and target.value.value == owner.value
            for target in targets
        ) or any(
            isinstance(func, cst.Attribute)
            and func.attr.value in CHANGING
            and isinstance(func.value, cst.Name)
            and func.value.value == owner.value
            for func in calls
        )


def is_quiet(source: Source, call: cst.Call) -> bool:
    """Whether a call changes nothing, and gives the same for the same arguments."""
    if (source.name(call.func) or "") in PURE:
        return True
    return isinstance(call.func, cst.Attribute) and call.func.attr.value in QUERIES


def _operands(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The expressions right below one that is made of others."""
    found: list[cst.BaseExpression] = []
    for child in node.children:
        if isinstance(child, cst.BaseExpression):
            found.append(child)
        elif isinstance(child, cst.Element):
            found.append(child.value)
        elif isinstance(child, cst.ComparisonTarget):
            found.append(child.comparator)
        elif isinstance(child, cst.StarredElement):
            found.append(child)  # which nothing here takes
    return found


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
        if not isinstance(small, cst.Assign | cst.AnnAssign):
            return False
        targets = (
            [t.target for t in small.targets] if isinstance(small, cst.Assign) else [small.target]
        )
        if not all(isinstance(target, cst.Name | cst.Tuple) for target in targets):
            return False
        if any(True for target in targets for _ in descendants(target, cst.Subscript)):
            return False
    calls = descendants(statement, cst.Call)
    return all(is_quiet(source, c) or (source.name(c.func) or "") in FRESH for c in calls)
