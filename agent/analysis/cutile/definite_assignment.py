"""Definite assignment: which uses of a variable cuTile refuses as potentially undefined.

Python asks at run time whether a name is bound; cuTile has to know before. A branch that the
compiler may decide, on constants, is taken to define what either side defines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst

from agent.analysis.cutile.kernel_file import STATIC, KernelFile
from agent.analysis.cutile.values import is_runtime
from agent.syntax import Function, assigned, children, descendants

Names = frozenset[str]
_SCOPES = (cst.FunctionDef, cst.Lambda, cst.GeneratorExp, cst.ListComp, cst.ClassDef)


@dataclass
class Definite:
    """Walks one function in the order in which it runs."""

    file: KernelFile
    function: Function
    undefined: dict[str, cst.Name] = field(default_factory=dict)
    """Variable -> its first use that may come before any assignment."""

    def run(self) -> dict[str, cst.Name]:
        """The variables that may be read undefined."""
        parameters = frozenset(p.name.value for p in self.function.parameters)
        listed = self.function.node.params
        stars = [listed.star_arg, listed.star_kwarg]
        more = frozenset(p.name.value for p in stars if isinstance(p, cst.Param))
        self._suite(self.function.node.body, parameters | more)
        return self.undefined

    @cached_property
    def locals(self) -> Names:
        """Every name that the function assigns, outside functions in it."""
        return _targets_in(self.function.node.body)

    def _suite(self, suite: cst.BaseSuite, known: Names) -> Names | None:
        """What is defined after a suite; None when control never reaches its end."""
        statements: Sequence[cst.BaseStatement | cst.BaseSmallStatement] = suite.body
        for statement in statements:
            after = self._statement(statement, known)
            if after is None:
                return None
            known = after
        return known

    def _statement(
        self, statement: cst.BaseStatement | cst.BaseSmallStatement, known: Names
    ) -> Names | None:
        match statement:
            case cst.SimpleStatementLine():
                for part in statement.body:
                    after = self._statement(part, known)
                    if after is None:
                        return None
                    known = after
                return known
            case cst.Return() | cst.Raise() | cst.Break() | cst.Continue():
                self._read(statement, known)
                return None
            case cst.If():
                return self._if(statement, known)
            case cst.For():
                self._read(statement.iter, known)
                inside = known | _targets(statement.target)
                after = self._suite(statement.body, inside)
                if self._unrolled(statement):
                    return after if after is not None else inside
                return known
            case cst.While():
                self._read(statement.test, known)
                after = self._suite(statement.body, known)
                endless = isinstance(statement.test, cst.Name) and statement.test.value == "True"
                return known | _targets_in(statement.body) if endless else known
            case cst.FunctionDef() | cst.ClassDef():
                return known | {statement.name.value}
            case cst.AugAssign():
                self._read(statement, known)
                return known | _targets(statement.target)
            case cst.Assign():
                self._read(statement.value, known)
                return known.union(*(_targets(t.target) for t in statement.targets))
            case cst.AnnAssign():
                if statement.value is None:
                    return known
                self._read(statement.value, known)
                return known | _targets(statement.target)
            case cst.With() | cst.Try():
                return known | _targets_in(statement)
        self._read(statement, known)
        return known

    def _if(self, statement: cst.If, known: Names) -> Names | None:
        self._read(statement.test, known)
        then = self._suite(statement.body, known)
        otherwise: Names | None = known
        if isinstance(statement.orelse, cst.If):
            otherwise = self._if(statement.orelse, known)
        elif statement.orelse is not None:
            otherwise = self._suite(statement.orelse.body, known)
        if then is None or otherwise is None:
            if then is None and otherwise is None and not self._decided_late(statement):
                return known | _targets_in(statement)
            return then if otherwise is None else otherwise
        return then & otherwise if self._decided_late(statement) else then | otherwise

    def _decided_late(self, statement: cst.If) -> bool:
        return is_runtime(self.file, self.function, statement.test)

    def _unrolled(self, loop: cst.For) -> bool:
        """Whether the compiler may run the loop: anything but a plain range."""
        call = loop.iter
        return not isinstance(call, cst.Call) or self.file.called(call) in STATIC

    def _read(self, node: cst.CSTNode, known: Names) -> None:
        for name in _reads(node):
            if name.value in self.locals and name.value not in known:
                self.undefined.setdefault(name.value, name)


def _reads(node: cst.CSTNode) -> Iterator[cst.Name]:
    """The names that an expression or statement reads now, in its own scope."""
    if isinstance(node, cst.Name):
        yield node
    elif isinstance(node, cst.Attribute | cst.Arg | cst.NamedExpr):
        yield from _reads(node.value)
    elif not isinstance(node, _SCOPES):
        for child in children(node):
            yield from _reads(child)


def _targets(target: cst.CSTNode) -> Names:
    """The names that an assignment to a target binds."""
    if isinstance(target, cst.Name):
        return frozenset({target.value})
    if isinstance(target, cst.Tuple | cst.List):
        return frozenset().union(*(_targets(e.value) for e in target.elements))
    return frozenset()


def _targets_in(node: cst.CSTNode) -> Names:
    """The names that are bound anywhere below a node."""
    bound = (_targets(target) for target, _ in assigned(node))
    defined = frozenset(f.name.value for f in descendants(node, cst.FunctionDef))
    return frozenset().union(defined, *bound)
