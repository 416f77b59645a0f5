"""Whether the rounds of a loop of a Triton kernel may run in any order, with the same results.

A round must hand nothing on to the next, and write elements that no other round reads or writes:
those at `cols = start + tl.arange(0, BLOCK)` where `start` counts by `BLOCK`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel, callees
from agent.analysis.common.reaching_definitions import definition
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.counting_loops import Counting, names_bound_in, read
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.round_memory import LOAD, STORE, check_memory
from agent.syntax import Source, descendants, names_in

MEMORY = frozenset({LOAD, STORE})
PURE = frozenset(
    {
        *("abs", "cdiv", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "sigmoid"),
        *("arange", "broadcast", "broadcast_to", "cast", "clamp", "cumsum", "cumprod", "div_rn"),
        *("erf", "expand_dims", "fdiv", "flip", "floor", "ceil", "fma", "full", "join", "max"),
        *("max_contiguous", "max_constancy", "maximum", "min", "minimum", "multiple_of", "permute"),
        *("program_id", "num_programs", "ravel", "reshape", "softmax", "sort", "split", "sqrt_rn"),
        *("static_assert", "sum", "trans", "umulhi", "view", "where", "xor_sum", "zeros"),
        *("zeros_like", "argmax", "argmin", "rand", "randn", "randint", "philox", "assume"),
    }
)
"""Functions of triton.language that neither read nor write memory; and methods of tiles, with `to`
and `item`."""
METHODS = PURE | {"to", "item", "logical_or", "logical_and"}
MATH = frozenset(
    ("abs", "cos", "erf", "exp", "exp2", "log", "log2", "rsqrt", "sigmoid", "sin", "sqrt", "tanh")
)
"""Functions that projects give these names of their own, as `exp` of what the device has."""
LIBRARIES = ("triton.language.extra.", "triton.language.math.", "triton.language.standard.")


def check_free(source: Source, kernel: Kernel, counted: Counting) -> None:
    """Raise `NotApplicable` where the rounds of a loop may not run in another order."""
    loop = counted.loop
    line = source.line(loop)
    for kind in (cst.Break, cst.Continue, cst.Return, cst.While, cst.For):
        if any(node is not loop for node in descendants(loop.body, kind)):
            raise NotApplicable(f"the loop at line {line} is left early, or holds another")
    for call in descendants(loop.body, cst.Call):
        if not _is_known(source, call):
            raise NotApplicable(
                f"`{source.code(call.func)}` at line {source.line(call)} may do more"
            )
    names = names_bound_in(loop.body)
    bounds = names_in(loop.iter)
    if counted.name in names or bounds & (names | {counted.name}):
        raise NotApplicable(f"the loop at line {line} changes how far it goes")
    _HandedOn(source, loop, names | {counted.name}).check()
    check_memory(source, kernel, counted)


def _is_known(source: Source, call: cst.Call) -> bool:
    """Whether a call computes from what it is given, or loads or stores plainly."""
    helper = source.function_of(call.func)
    if helper is not None:
        reached = (helper, *callees(source, helper))
        inner = (c for f in reached for c in descendants(f.node.body, cst.Call))
        return all(TRITON.called(source, c) not in MEMORY and _is_known_itself(source, c)
                   for c in inner)  # fmt: skip
    return _is_known_itself(source, call)


def _is_known_itself(source: Source, call: cst.Call) -> bool:
    called = TRITON.called(source, call)
    if source.function_of(call.func) is not None or called in MEMORY:
        return True
    if isinstance(call.func, cst.Attribute) and not TRITON.owns(called):
        return call.func.attr.value in METHODS
    if called is None:
        return False
    if called.startswith("builtins."):
        return called.removeprefix("builtins.") in {"abs", "max", "min", "float", "int"}
    *_, bare = called.rpartition(".")
    if called.startswith(LIBRARIES) or bare in MATH:
        return True
    return called.startswith("triton.") and bare in PURE


# --- what a round hands on ----------------------------------------------------------------------


@dataclass
class _HandedOn:
    """Follows the names that a loop's body gives values, statement by statement.

    What a branch gives a value is known where the same condition holds again, which no round
    changes: `if HAS_WEIGHT: w = ...`, and later `if HAS_WEIGHT: x *= w`.
    """

    source: Source
    loop: cst.For
    names: set[str]
    """Those that it assigns, and its variable."""

    def check(self) -> None:
        """Raise `NotApplicable` where a round goes on with what one before it left."""
        target = self.loop.target
        assert isinstance(target, cst.Name)
        self._block(self.loop.body.body, {target.value}, {})
        self._check_behind()

    def _block(
        self, lines: Sequence[cst.CSTNode], known: set[str], under: dict[str, set[str]]
    ) -> set[str]:
        for line in lines:
            if isinstance(line, cst.If):
                known = self._branches(line, known, under)
            elif isinstance(line, cst.SimpleStatementLine):
                for small in line.body:
                    known = self._small(small, known)
            else:
                raise self._refusal(line)
        return known

    def _branches(self, line: cst.If, known: set[str], under: dict[str, set[str]]) -> set[str]:
        self._reads(line.test, known)
        code, negated = self._conditions(line.test)
        first = self._block(line.body.body, known | under.get(code, set()), dict(under))
        rest = known | under.get(negated, set())
        if isinstance(line.orelse, cst.If):
            rest = self._branches(line.orelse, rest, dict(under))
        elif line.orelse is not None:
            rest = self._block(line.orelse.body.body, rest, dict(under))
        if not self.names & names_in(line.test):
            under[code] = under.get(code, set()) | first
            under[negated] = under.get(negated, set()) | rest
        return first & rest

    def _conditions(self, test: cst.BaseExpression) -> tuple[str, str]:
        """A condition and its negation, as texts."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self.source.code(test.expression)
            return f"not ({inner})", inner
        code = self.source.code(test)
        return code, f"not ({code})"

    def _small(self, small: cst.CSTNode, known: set[str]) -> set[str]:
        match small:
            case cst.Assign(targets=targets, value=value):
                self._reads(value, known)
                return known | {n for t in targets for n in self._bound(t.target)}
            case cst.AnnAssign(target=target, value=value) if value is not None:
                self._reads(value, known)
                return known | self._bound(target)
            case cst.AugAssign(target=target, value=value):
                self._reads(target, known)
                self._reads(value, known)
                return known
            case cst.Expr(value=value):
                self._reads(value, known)
                return known
            case cst.Pass():
                return known
        raise self._refusal(small)

    def _bound(self, target: cst.BaseExpression) -> set[str]:
        names = [target] if isinstance(target, cst.Name) else [
            element.value for element in getattr(target, "elements", ())
        ]  # fmt: skip
        if not names or not all(isinstance(name, cst.Name) for name in names):
            raise self._refusal(target)
        return {name.value for name in names if isinstance(name, cst.Name)}

    def _reads(self, expression: cst.CSTNode, known: set[str]) -> None:
        if any(True for _ in descendants(expression, cst.NamedExpr)):
            raise self._refusal(expression)
        for name in read(expression):
            if name.value in self.names and name.value not in known:
                raise NotApplicable(
                    f"`{name.value}` at line {self.source.line(name)} goes on from round to round"
                )

    def _check_behind(self) -> None:
        """What the loop's last round leaves may be read by nothing else."""
        within = set(descendants(self.loop, cst.Name))
        function = self.source.enclosing(self.loop)
        assert function is not None
        for name in read(function.node.body):
            if name.value not in self.names or name in within or self._is_before(name):
                continue
            found = definition(self.source, name.value, name)
            if found is None or found.node is self.loop or self._is_within(found.node):
                raise NotApplicable(
                    f"`{name.value}` at line {self.source.line(name)} may be what the last round "
                    "leaves"
                )

    def _is_before(self, name: cst.Name) -> bool:
        """Whether a name is read before the loop, and never again."""
        if any(isinstance(a, cst.For | cst.While) for a in self.source.ancestors(self.loop)):
            return False
        start = self.source.place(self.loop).start
        read = self.source.place(name).start
        return (read.line, read.column) < (start.line, start.column)

    def _is_within(self, node: cst.CSTNode) -> bool:
        return self.loop in self.source.ancestors(node)

    def _refusal(self, node: cst.CSTNode) -> NotApplicable:
        return NotApplicable(f"line {self.source.line(node)} is no plain assignment")
