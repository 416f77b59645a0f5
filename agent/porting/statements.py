"""The body of a kernel or of a helper: what each statement becomes, and what it does to variables.

A body is read once from the top to the bottom; a loop's is read again until nothing new is learned
of its variables, and the last reading counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import libcst as cst

from agent.porting import dtypes, terms
from agent.porting.arithmetic import OPERATORS
from agent.porting.context import TL, Context
from agent.porting.expressions import Expressions
from agent.porting.operations.reductions import dot
from agent.porting.terms import Term, atom
from agent.porting.values import (
    Number,
    Other,
    Pointer,
    Several,
    Value,
    assigned_value,
    joined,
    number,
    possible,
    weak,
)
from agent.syntax import assigned, descendants

READINGS = 8
"""A loop in which a variable has as many types has no type for it."""
AUGMENTED: dict[type[cst.CSTNode], type[cst.CSTNode]] = {
    getattr(cst, f"{operator.__name__}Assign"): operator for operator in OPERATORS
}
Edit = Callable[[Any], Any]


class Body:
    """One function's body, as it is read.

    Attributes:
        to: translates its expressions.
        edits: node -> what becomes of it.
        returned: what its `return` statements give, of a helper.
    """

    def __init__(self, context: Context, node: cst.FunctionDef, to: Expressions) -> None:
        self.context, self.node, self.to = context, node, to
        self.edits: dict[cst.CSTNode, Edit] = {}
        self.returned: list[Value] = []
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

    def read(self) -> None:
        """Read all of it.

        Raises:
            NotPortable: something has no equivalent.
        """
        self._begin_moved_pointers()
        self._block(self.node.body)

    # --- blocks ----------------------------------------------------------------------------------

    def _block(self, block: cst.BaseSuite) -> None:
        for statement in block.body:
            if isinstance(statement, cst.SimpleStatementLine):
                self._line(statement)
            elif isinstance(statement, cst.If):
                self._if(statement)
            elif isinstance(statement, cst.For):
                self._for(statement)
            elif isinstance(statement, cst.While):
                self._while(statement)
            elif isinstance(statement, cst.BaseCompoundStatement):
                kind = type(statement).__name__.lower()
                raise self._refuse(statement, f"`{kind}` in a kernel", "write it without")
            else:
                raise self._refuse(statement, "several statements on one line", "split the line")

    def _line(self, line: cst.SimpleStatementLine) -> None:
        for small in line.body:
            self._small(small, line)

    def _small(self, node: cst.BaseSmallStatement, line: cst.SimpleStatementLine) -> None:
        match node:
            case cst.Expr():
                self._expression(node, line)
            case cst.Assign():
                self._assign(node, line)
            case cst.AugAssign():
                self._augmented(node)
            case cst.AnnAssign():
                self._annotated(node)
            case cst.Return():
                self._return(node)
            case cst.Pass() | cst.Break() | cst.Continue():
                pass
            case cst.Assert():
                self.context.note(node, "`assert` is dropped: Triton leaves it out as well")
                self._drop(node, line)
            case _:
                kind = type(node).__name__.lower()
                raise self._refuse(node, f"`{kind}` in a kernel", "write it without")

    def _expression(self, node: cst.Expr, line: cst.SimpleStatementLine) -> None:
        if isinstance(node.value, cst.SimpleString | cst.ConcatenatedString):
            return
        term = self.to.read(node.value)
        if term.text:
            self._write(node.value, term.text)
        else:
            self._drop(node, line)

    def _drop(self, node: cst.BaseSmallStatement, line: cst.SimpleStatementLine) -> None:
        """Leave a statement out."""
        if len(line.body) > 1:
            raise self._refuse(node, "several statements on one line", "split the line")
        self._dropped.add(line)

    def finish(self) -> None:
        """Take out what is left out; a block of which nothing is left keeps a `pass`."""
        for block in descendants(self.node.body, cst.IndentedBlock):
            left_out = [line for line in block.body if line in self._dropped]
            empty = len(left_out) == len(block.body)
            for line in left_out[1:] if empty else left_out:
                self.edits[line] = lambda _: cst.RemoveFromParent()
            if empty and left_out:
                self.edits[left_out[0]] = lambda _: cst.parse_statement("pass")

    # --- assignments -----------------------------------------------------------------------------

    def _assign(self, node: cst.Assign, line: cst.SimpleStatementLine) -> None:
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
        if isinstance(target, cst.Name) and target.value in self._branched:
            term = self._typed(term)
        self._bind(target, assigned_value(term.value))
        self._write(node.value, term.text)

    def _typed(self, term: Term) -> Term:
        """A constant as the tensor that Triton makes of it: another branch leaves a tile."""
        value = term.value
        if not isinstance(value, Number) or not value.constant or len(value.types) != 1:
            return term
        (kind,) = value.types
        ct = self.context.tile
        text = f"{ct}.astile({term.text}, dtype={ct}.{kind})"
        return atom(text, number(kind, natural=value.natural))

    def _assign_pointer(
        self,
        node: cst.Assign,
        line: cst.SimpleStatementLine,
        target: cst.Name,
        term: Term,
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
            wide = self.to.arithmetic.in_64_bits(Term(text, term.binding, offset))
            text = wide.text
            offset = number("int64", natural=offset.natural)
        self.to.variables[target.value] = Pointer(value.base, offset)
        self._write(node.value, text)
        if name != target.value:
            self.edits[target] = lambda _: cst.Name(name)

    def _annotated(self, node: cst.AnnAssign) -> None:
        named = self.context.source.name(node.annotation.annotation)
        if node.value is None or named != f"{TL}constexpr" or not isinstance(node.target, cst.Name):
            raise self._refuse(node, "an annotated variable", "leave the annotation out")
        term = self.to.read(node.value)
        if isinstance(term.value, Pointer):
            raise self._refuse(node, "an address as a constant", "leave the annotation out")
        self._bind(node.target, term.value)
        name, text = node.target.value, term.text
        self.edits[node] = lambda _: _statement(f"{name} = {text}")

    def _augmented(self, node: cst.AugAssign) -> None:
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

    def _replace(self, node: cst.AugAssign, name: str, term: Term) -> None:
        assert isinstance(node.target, cst.Name)
        self._bind(node.target, term.value)
        text = term.text
        self.edits[node] = lambda _: _statement(f"{name} = {text}")

    def _move(self, node: cst.AugAssign, symbol: str, before: Term) -> None:
        """`x_ptr += offset`."""
        assert isinstance(node.target, cst.Name) and isinstance(before.value, Pointer)
        name = self.to.offsets.get(node.target.value, node.target.value)
        term = self.to.arithmetic.binary(node, symbol, before, self.to.read(node.value))
        assert isinstance(term.value, Pointer) and term.value.offset is not None
        offset = self.to.arithmetic.in_64_bits(Term(term.text, term.binding, term.value.offset))
        known = number("int64", natural=term.value.offset.natural)
        self.to.variables[node.target.value] = Pointer(term.value.base, known)
        text, plain = offset.text, f"{name} {symbol} "
        if text.startswith(plain):
            text = f"{name} {symbol}= {_without_parentheses(text.removeprefix(plain))}"
        else:
            text = f"{name} = {text}"
        self.edits[node] = lambda _: _statement(text)

    def _begin_moved_pointers(self) -> None:
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
                self.begun.append(f"{offset} = {ct}.astile(0, dtype={ct}.int64)")
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

    # --- control flow ----------------------------------------------------------------------------

    def _if(self, node: cst.If) -> None:
        test = self.to.number(node.test)
        self._write(node.test, _as_test(test))
        before = dict(self.to.variables)
        self._block(node.body)
        after = self.to.variables
        self.to.variables = dict(before)
        if isinstance(node.orelse, cst.If):
            self._if(node.orelse)
        elif node.orelse is not None:
            self._block(node.orelse.body)
        ends = [_ends(node.body), node.orelse is not None and _ends(node.orelse)]
        if ends == [True, False]:
            return
        self.to.variables = after if ends[1] else _merged(after, self.to.variables)

    def _for(self, node: cst.For) -> None:
        if node.orelse is not None or not isinstance(node.target, cst.Name):
            raise self._refuse(node, "this loop", "loop over one variable, without `else`")
        called = self.context.called(node.iter.func) if isinstance(node.iter, cst.Call) else None
        if called not in ("range", f"{TL}range", f"{TL}static_range"):
            raise self._refuse(node, "a loop over anything but a range", "loop over `range`")
        assert isinstance(node.iter, cst.Call)
        bounds = [a.value for a in node.iter.args if a.keyword is None and not a.star]
        self._loop_options(node.iter, static=called.endswith("static_range"))
        ends = [self.to.number(each) for each in bounds]
        variable = self._loop_variable(node, ends, static=called.endswith("static_range"))
        text = f"range({', '.join(each.text for each in ends)})"
        if called.endswith("static_range"):
            text = f"{self.context.tile}.static_iter({text})"
        self._write(node.iter, text)
        self.to.variables[node.target.value] = variable
        self._repeat(node.body, node.target.value, variable)

    def _loop_options(self, call: cst.Call, *, static: bool) -> None:
        for each in call.args:
            if each.star:
                raise self._refuse(call, "a range with `*`", "write its ends out")
            if each.keyword is not None and each.keyword.value in ("arg1", "arg2", "step", "end"):
                raise self._refuse(call, "a range with keywords", "give its ends by position")
            if each.keyword is not None and not static:
                self.context.note(call, "options of `tl.range` are dropped: they are Triton's")

    def _loop_variable(self, node: cst.For, ends: Sequence[Term], *, static: bool) -> Number:
        kinds = [each.value for each in ends if isinstance(each.value, Number)]
        if len(ends) == 3 and ends[2].text.startswith("-"):
            raise self._refuse(node, "a loop that counts down", "count up and subtract")
        start_natural = len(ends) < 2 or kinds[0].natural
        natural = start_natural and (len(ends) < 3 or kinds[2].natural)
        if static:
            if not all(kind.weak for kind in kinds):
                raise self._refuse(node, "`tl.static_range` of a variable", "use `range`")
            return weak("int32", natural=natural)
        wide = any(k in dtypes.ALL and "64" in k for kind in kinds for t in kind.types
                   for k in possible(t))  # fmt: skip
        return number(*(("int32", "int64") if wide else ("int32",)), natural=natural)

    def _while(self, node: cst.While) -> None:
        if node.orelse is not None:
            raise self._refuse(node, "a loop with `else`", "write it without")
        if any(
            "atomic" in (self.context.called(c.func) or "")
            for c in descendants(node.test, cst.Call)
        ):
            raise self._refuse(
                node, "a loop that waits for another program", "port this kernel by hand"
            )
        self._write(node.test, _as_test(self.to.number(node.test)))
        self._repeat(node.body, "", None, node.test)

    def _repeat(
        self,
        body: cst.BaseSuite,
        counter: str,
        counts: Value | None,
        test: cst.BaseExpression | None = None,
    ) -> None:
        """Read a loop's body until its variables are known for every round."""
        for _ in range(READINGS):
            before = dict(self.to.variables)
            self._block(body)
            merged = _merged(before, self.to.variables)
            if counts is not None:
                merged[counter] = counts
            settled = all(merged[name] == value for name, value in before.items())
            self.to.variables = merged
            if test is not None:
                self._write(test, _as_test(self.to.number(test)))
            if settled:
                return
            grown = {name: merged[name] for name in before if merged[name] != before[name]}
            self.to.variables = before | {n: _in_loop(v) for n, v in grown.items()}
        raise self._refuse(body, "a loop whose variables change their types", "cast before it")

    def _return(self, node: cst.Return) -> None:
        if node.value is None:
            self.returned.append(Other("nothing"))
            return
        term = self.to.read(node.value)
        if isinstance(term.value, Pointer):
            raise self._refuse(node, "a helper that returns an address", "return the offset")
        self.returned.append(term.value)
        self._write(node.value, term.text)

    # --- writing ---------------------------------------------------------------------------------

    def _write(self, node: cst.BaseExpression, text: str) -> None:
        """Note what an expression becomes, unless that is what it is."""
        if text == self.context.source.code(node):
            self.edits.pop(node, None)
            return
        self.edits[node] = lambda _: cst.parse_expression(text)

    def _refuse(self, node: cst.CSTNode, construct: str, advice: str) -> Exception:
        return self.context.refuse(node, construct, advice)


def _merged(one: dict[str, Value], other: dict[str, Value]) -> dict[str, Value]:
    """What is known after either of two paths; a name of one of them only is as it left it."""
    found = {**other, **one}
    for name in one.keys() & other.keys():
        found[name] = joined(one[name], other[name])
    return found


def _in_loop(value: Value) -> Value:
    """What a loop carries: cuTile gives it a type where it begins as a constant."""
    if isinstance(value, Number) and value.constant:
        return replace(value, weak=False, loose=True)
    return value


def _is_accumulator(value: Value) -> bool:
    return isinstance(value, Number) and not value.constant and value.known(("float32", "int32"))


def _ends(block: cst.CSTNode) -> bool:
    """Whether a branch always leaves the function or the round of the loop."""
    if isinstance(block, cst.Else):
        block = block.body
    if not isinstance(block, cst.IndentedBlock) or not block.body:
        return False
    last = block.body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        return isinstance(last.body[-1], cst.Return | cst.Continue | cst.Break)
    return False


def _as_test(term: Term) -> str:
    """A condition: Triton takes integers that are not zero, cuTile booleans."""
    value = term.value
    if isinstance(value, Number) and not value.weak and value.types != {dtypes.BOOL}:
        return f"{term.within(terms.COMPARISON + 1)} != 0"
    return term.text


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

