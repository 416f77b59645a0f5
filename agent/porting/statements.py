"""The body of a kernel or of a helper: what each statement becomes, and what it does to variables.

A body is read once from the top to the bottom; a loop's is read again until nothing new is learned
of its variables, and the last reading counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from agent.porting import dtypes, terms
from agent.porting.assignments import Assignments
from agent.porting.context import TL, Context
from agent.porting.expressions import Expressions
from agent.porting.terms import Phrase
from agent.porting.values import (
    Number,
    Other,
    Pointer,
    Value,
    joined,
    number,
    possible,
    weak,
)
from agent.syntax import descendants

READINGS = 8
"""A loop in which a variable has as many types has no type for it."""


class Body(Assignments):
    """One function's body, as it is read.

    Attributes:
        returned: what its `return` statements give, of a helper.
    """

    def __init__(self, context: Context, node: cst.FunctionDef, to: Expressions) -> None:
        super().__init__(context, node, to)
        self.returned: list[Value] = []

    def read(self) -> None:
        """Read all of it.

        Raises:
            NotPortable: something has no equivalent.
        """
        self.begin_moved_pointers()
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
                self.assign(node, line)
            case cst.AugAssign():
                self.augmented(node)
            case cst.AnnAssign():
                self.annotated(node)
            case cst.Return():
                self._return(node, line)
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

    def finish(self) -> None:
        """Take out what is left out; a block of which nothing is left keeps a `pass`."""
        for block in descendants(self.node.body, cst.IndentedBlock):
            left_out = [line for line in block.body if line in self._dropped]
            empty = len(left_out) == len(block.body)
            for line in left_out[1:] if empty else left_out:
                self.edits[line] = lambda _: cst.RemoveFromParent()
            if empty and left_out:
                self.edits[left_out[0]] = lambda _: cst.parse_statement("pass")

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
        self._repeat(node.body, node.target.value, variable, unrolled="static_iter" in text)

    def _loop_options(self, call: cst.Call, *, static: bool) -> None:
        for each in call.args:
            if each.star:
                raise self._refuse(call, "a range with `*`", "write its ends out")
            if each.keyword is not None and each.keyword.value in ("arg1", "arg2", "step", "end"):
                raise self._refuse(call, "a range with keywords", "give its ends by position")
            if each.keyword is not None and not static:
                self.context.note(call, "options of `tl.range` are dropped: they are Triton's")

    def _loop_variable(self, node: cst.For, ends: Sequence[Phrase], *, static: bool) -> Number:
        kinds = [each.value for each in ends if isinstance(each.value, Number)]
        step = kinds[2] if len(ends) == 3 else None
        downward = step is not None and step.weak and step.bits and not step.natural
        if downward or (step is not None and ends[2].text.startswith("-")):
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
        *,
        unrolled: bool = False,
    ) -> None:
        """Read a loop's body until its variables are known for every round."""
        begun = dict(self.to.variables)
        for _ in range(READINGS):
            before = dict(self.to.variables)
            self._block(body)
            merged = _merged(before, self.to.variables)
            merged |= {n: _carried(v, merged[n]) for n, v in begun.items() if not unrolled}
            if counts is not None:
                merged[counter] = counts
            settled = all(merged[name] == value for name, value in before.items())
            self.to.variables = merged
            if test is not None:
                self._write(test, _as_test(self.to.number(test)))
            if settled:
                return
            grown = {name: merged[name] for name in before if merged[name] != before[name]}
            self.to.variables = before | {n: _in_loop(before[n], v) for n, v in grown.items()}
        raise self._refuse(body, "a loop whose variables change their types", "cast before it")

    def _return(self, node: cst.Return, line: cst.SimpleStatementLine) -> None:
        if node.value is None:
            self.returned.append(Other("nothing"))
            if line is self.node.body.body[-1] and len(line.body) == 1:  # it ends there anyway
                self._drop(node, line)
            return
        term = self.to.read(node.value)
        if isinstance(term.value, Pointer):
            raise self._refuse(node, "a helper that returns an address", "return the offset")
        self.returned.append(term.value)
        self._write(node.value, term.text)


def _merged(one: dict[str, Value], other: dict[str, Value]) -> dict[str, Value]:
    """What is known after either of two paths; a name of one of them only is as it left it."""
    found = {**other, **one}
    for name in one.keys() & other.keys():
        found[name] = joined(one[name], other[name])
    return found


def _in_loop(before: Value, value: Value) -> Value:
    """What a loop carries: cuTile gives it a type where it begins as a constant."""
    if isinstance(value, Number) and isinstance(before, Number) and value.bits > before.bits:
        value = replace(value, natural=False, bits=0)  # it is multiplied in every round
    if isinstance(value, Number) and value.constant:
        return replace(value, weak=False, loose=True)
    return value


def _carried(begun: Value, value: Value) -> Value:
    """A variable of a constant keeps its type in a loop: Triton compiles no other one."""
    if not isinstance(begun, Number) or not isinstance(value, Number) or begun == value:
        return value
    if begun.loose and len(begun.types) == 1:
        return replace(value, types=begun.types, weak=False, loose=True)
    return value


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


def _as_test(term: Phrase) -> str:
    """A condition: Triton takes integers that are not zero, cuTile booleans."""
    value = term.value
    if isinstance(value, Number) and not value.weak and value.types != {dtypes.BOOL}:
        return f"{term.within(terms.COMPARISON + 1)} != 0"
    return term.text
