"""Assignments of a kernel: what its variables hold, and pointers that are moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import libcst as cst

from agent.porting.arithmetic import OPERATORS
from agent.porting.context import TL, Context
from agent.porting.expressions import Expressions
from agent.porting.folding import as_tensor, typed
from agent.porting.operations.reductions import dot
from agent.porting.terms import Phrase
from agent.porting.values import (
    Number,
    Pointer,
    Several,
    Value,
    assigned_value,
    number,
    weak,
)
from agent.syntax import assigned, descendants

AUGMENTED: dict[type[cst.CSTNode], type[cst.CSTNode]] = {
    getattr(cst, f"{operator.__name__}Assign"): operator for operator in OPERATORS
}
Edit = Callable[[Any], Any]


class Assignments:
    """One function's variables, as its body is read.

    Attributes:
        to: translates its expressions.
        edits: node -> what becomes of it.
    """

    def __init__(self, context: Context, node: cst.FunctionDef, to: Expressions) -> None:
        self.context, self.node, self.to = context, node, to
        self.edits: dict[cst.CSTNode, Edit] = {}
        names = [t for t, _ in assigned(node.body) if isinstance(t, cst.Name)]
        self._often = {t.value for t in names if sum(u.value == t.value for u in names) > 1}
        branches = {t for b in descendants(node.body, cst.If) for t, _ in assigned(b)}
        self._branched = {t.value for t in names if t in branches} & self._often
        loops = (*descendants(node.body, cst.For), *descendants(node.body, cst.While))
        inside = {t for loop in loops for t, _ in assigned(loop.body)}
        self._often |= {t.value for t in names if t in inside}
        self._dropped: set[cst.CSTNode] = set()
        self.begun: list[str] = []
        """Statements to begin the body with."""

    def assign(self, node: cst.Assign, line: cst.SimpleStatementLine) -> None:
        if len(node.targets) != 1:
            raise self._refuse(node, "an assignment to several names", "write one for each")
        target = node.targets[0].target
        constant = isinstance(node.value, cst.Call) and (
            self.context.source.name(node.value.func) == f"{TL}constexpr"
        )
        if constant:
            assert isinstance(node.value, cst.Call)
            term = self.to.read(node.value.args[0].value)
            self._bind(target, term.value)
            self._write(node.value, term.text)
            return
        term = self.to.read(node.value)
        if isinstance(target, cst.Name) and isinstance(term.value, Pointer):
            self._assign_pointer(node, line, target, term, term.value)
            return
        known = term.value
        if isinstance(target, cst.Name) and isinstance(known, Number) and known.constant:
            hardens = target.value in self._branched or len(known.types) > 1
            term = as_tensor(self.context, node, term) if hardens else term
        self._bind(target, assigned_value(term.value))
        self._write(node.value, term.text)

    def _assign_pointer(
        self,
        node: cst.Assign,
        line: cst.SimpleStatementLine,
        target: cst.Name,
        term: Phrase,
        value: Pointer,
    ) -> None:
        name = self.to.offsets.get(target.value, target.value)
        if value.offset is None and target.value not in self._often:
            self.to.variables[target.value] = value
            self._drop(node, line)
            return
        offset = value.offset or weak("int32", natural=True)
        text = term.text or "0"
        if target.value in self._often:
            wide = self.to.arithmetic.in_64_bits(Phrase(text, term.binding, offset))
            text = wide.text
            offset = number("int64", natural=offset.natural)
        self.to.variables[target.value] = Pointer(value.base, offset)
        self._write(node.value, text)
        if name != target.value:
            self.edits[target] = lambda _: cst.Name(name)

    def annotated(self, node: cst.AnnAssign) -> None:
        named = self.context.source.name(node.annotation.annotation)
        if node.value is None or named != f"{TL}constexpr" or not isinstance(node.target, cst.Name):
            raise self._refuse(node, "an annotated variable", "leave the annotation out")
        term = self.to.read(node.value)
        if isinstance(term.value, Pointer):
            raise self._refuse(node, "an address as a constant", "leave the annotation out")
        self._bind(node.target, term.value)
        name, text = node.target.value, term.text
        self.edits[node] = lambda _: _statement(f"{name} = {text}")

    def augmented(self, node: cst.AugAssign) -> None:
        operator = AUGMENTED.get(type(node.operator))
        if operator is None or not isinstance(node.target, cst.Name):
            raise self._refuse(node, "this assignment with an operator", "write it out")
        symbol, _ = OPERATORS[operator]
        before = self.to.read(node.target)
        if isinstance(before.value, Pointer):
            self._move(node, symbol, before)
            return
        is_dot = isinstance(node.value, cst.Call) and (
            self.context.called(node.value.func) == f"{TL}dot"
        )
        if is_dot and symbol == "+" and _is_accumulator(before.value):
            assert isinstance(node.value, cst.Call)
            if not any(a.keyword and a.keyword.value == "acc" for a in node.value.args):
                term = dot(self.to, node.value, None, before)
                self._replace(node, before.text, term)
                return
        operand = self.to.read(node.value)
        term = self.to.arithmetic.binary(node, symbol, before, operand)
        bound = assigned_value(term.value)
        if isinstance(bound, Number) and bound.loose and isinstance(before.value, Number):
            bound = replace(bound, weak=False)
        self._bind(node.target, bound)
        binding = OPERATORS[operator][1]
        plain = f"{before.within(binding)} {symbol} "
        if term.binding == binding and term.text.startswith(plain):
            self._write(node.value, _without_parentheses(term.text.removeprefix(plain)))
            return
        name, text = node.target.value, term.text
        self.edits[node] = lambda _: _statement(f"{name} = {text}")

    def _replace(self, node: cst.AugAssign, name: str, term: Phrase) -> None:
        assert isinstance(node.target, cst.Name)
        self._bind(node.target, term.value)
        text = term.text
        self.edits[node] = lambda _: _statement(f"{name} = {text}")

    def _move(self, node: cst.AugAssign, symbol: str, before: Phrase) -> None:
        """`x_ptr += offset`."""
        assert isinstance(node.target, cst.Name) and isinstance(before.value, Pointer)
        name = self.to.offsets.get(node.target.value, node.target.value)
        term = self.to.arithmetic.binary(node, symbol, before, self.to.read(node.value))
        assert isinstance(term.value, Pointer) and term.value.offset is not None
        offset = self.to.arithmetic.in_64_bits(Phrase(term.text, term.binding, term.value.offset))
        known = number("int64", natural=term.value.offset.natural)
        self.to.variables[node.target.value] = Pointer(term.value.base, known)
        text, plain = offset.text, f"{name} {symbol} "
        if text.startswith(plain):
            text = f"{name} {symbol}= {_without_parentheses(text.removeprefix(plain))}"
        else:
            text = f"{name} = {text}"
        self.edits[node] = lambda _: _statement(text)

    def begin_moved_pointers(self) -> None:
        """Give a variable to the offset of each parameter that the body assigns to.

        Where it is first assigned in a loop or a branch, the variable begins at zero.
        """
        taken = {n.value for n in descendants(self.node, cst.Name)}
        moved = {t.value for t, _ in assigned(self.node.body) if isinstance(t, cst.Name)}
        for name, value in list(self.to.variables.items()):
            if name not in moved or not isinstance(value, Pointer):
                continue
            offset = self.to.offsets.setdefault(name, _free(f"{name}_offset", taken))
            self._often.add(name)
            if value.offset is None and not self._first_at_the_top(name):
                ct = self.context.tile
                self.begun.append(f"{offset} = {typed(ct, '0', 'int64')}")
                self.to.variables[name] = Pointer(value.base, number("int64", natural=True))

    def _first_at_the_top(self, name: str) -> bool:
        """Whether a name is first assigned by a statement of the body itself."""
        for statement in self.node.body.body:
            names = (t for t, _ in assigned(statement) if isinstance(t, cst.Name))
            if any(each.value == name for each in names):
                return isinstance(statement, cst.SimpleStatementLine)
        return False

    def _bind(self, target: cst.BaseExpression, value: Value) -> None:
        if isinstance(target, cst.Name):
            before = self.to.variables.get(target.value)
            if isinstance(before, Pointer) and target.value in self.to.offsets:
                raise self._refuse(
                    target, "a pointer parameter that becomes a number", "use another name"
                )
            self.to.variables[target.value] = value
            return
        if isinstance(target, cst.Tuple | cst.List):
            if not isinstance(value, Several) or len(value.items) != len(target.elements):
                raise self._refuse(target, "this unpacking", "assign the names one by one")
            for element, item in zip(target.elements, value.items, strict=True):
                self._bind(element.value, item)
            return
        raise self._refuse(target, "an assignment to no name", "cuTile's tiles cannot be changed")

    # --- writing ---------------------------------------------------------------------------------

    def _drop(self, node: cst.BaseSmallStatement, line: cst.SimpleStatementLine) -> None:
        """Leave a statement out."""
        if len(line.body) > 1:
            raise self._refuse(node, "several statements on one line", "split the line")
        self._dropped.add(line)

    def _write(self, node: cst.BaseExpression, text: str) -> None:
        """Note what an expression becomes, unless that is what it is."""
        if text == self.context.source.code(node):
            self.edits.pop(node, None)
            return
        self.edits[node] = lambda _: cst.parse_expression(text)

    def _refuse(self, node: cst.CSTNode, construct: str, advice: str) -> Exception:
        return self.context.refuse(node, construct, advice)


def _is_accumulator(value: Value) -> bool:
    return isinstance(value, Number) and not value.constant and value.known(("float32", "int32"))


def _statement(text: str) -> Any:
    """A statement of a line."""
    line = cst.parse_statement(text)
    assert isinstance(line, cst.SimpleStatementLine)
    return line.body[0]


def _without_parentheses(text: str) -> str:
    """`a + b` of `(a + b)`."""
    if not text.startswith("("):
        return text
    node = cst.parse_expression(text)
    if isinstance(node, cst.Tuple) or not node.lpar:
        return text
    return cst.Module([]).code_for_node(node.with_changes(lpar=node.lpar[1:], rpar=node.rpar[1:]))


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
