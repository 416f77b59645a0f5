"""Whether the rounds of a loop of a Triton kernel may run in any order, with the same results.

A round must hand nothing on to the next, and write elements that no other round reads or writes:
those at `cols = start + tl.arange(0, BLOCK)` where `start` counts by `BLOCK`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel, callees
from agent.analysis.common.reaching_definitions import definition, value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.aliasing import may_share
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.index_ranges import RANGES, is_scalar, span_of
from agent.analysis.triton.pointers import root
from agent.syntax import Source, argument, assigned, children, descendants, positional

LOAD, STORE = "triton.language.load", "triton.language.store"
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
LIBRARIES = ("triton.language.extra.", "triton.language.math.", "triton.language.standard.")


@dataclass(frozen=True)
class Counting:
    """A loop that counts from 0: `range(0, n, STEP)`, or `range(n)`."""

    loop: cst.For
    name: str
    """Its variable."""
    bound: cst.BaseExpression
    step: cst.BaseExpression | None
    """None for one."""


def counting(source: Source, loop: cst.For) -> Counting | None:
    """A loop over blocks, as far as it is one that counts from 0 and goes by no other rule."""
    call = loop.iter
    if not (isinstance(call, cst.Call) and source.name(call.func) in RANGES):
        return None
    given = positional(call)
    if not isinstance(loop.target, cst.Name) or not given or loop.orelse is not None:
        return None
    begin = source.code(value_of(source, given[0])) if len(given) > 1 else "0"
    if begin != "0":
        return None
    bound, step = given[min(len(given), 2) - 1], given[2] if len(given) == 3 else None
    return Counting(loop, loop.target.value, bound, step)


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
    names = _names_bound_in(loop.body)
    if counted.name in names or any(n.value in names for n in descendants(loop.iter, cst.Name)):
        raise NotApplicable(f"the loop at line {line} changes how far it goes")
    _HandedOn(source, loop, names | {counted.name}).check()
    _check_memory(source, kernel, counted)


def _names_bound_in(body: cst.CSTNode) -> set[str]:
    return {n.value for target, _ in assigned(body) for n in descendants(target, cst.Name)} | {
        n.value for walrus in descendants(body, cst.NamedExpr)
        for n in descendants(walrus.target, cst.Name)
    }  # fmt: skip


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
    return called.startswith(LIBRARIES) or (called.startswith("triton.") and bare in PURE)


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
        if not self.names & {n.value for n in descendants(line.test, cst.Name)}:
            under[code] = under.get(code, set()) | first
            under[negated] = under.get(negated, set()) | rest
        return first & rest

    def _conditions(self, test: cst.BaseExpression) -> tuple[str, str]:
        """A condition and its negation, as texts."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self.source.code(test.expression)
            return f"not {inner}", inner
        code = self.source.code(test)
        return code, f"not {code}"

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
        for name in _read(expression):
            if name.value in self.names and name.value not in known:
                raise NotApplicable(
                    f"`{name.value}` at line {self.source.line(name)} goes on from round to round"
                )

    def _check_behind(self) -> None:
        """What the loop's last round leaves may be read by nothing else."""
        within = set(descendants(self.loop, cst.Name))
        function = self.source.enclosing(self.loop)
        assert function is not None
        for name in _read(function.node.body):
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


def _read(node: cst.CSTNode) -> Iterable[cst.Name]:
    """The names below a node whose values it asks for, targets and keywords apart."""
    match node:
        case cst.Name():
            yield node
        case cst.Attribute():
            yield from _read(node.value)
        case cst.Arg():
            yield from _read(node.value)
        case cst.Assign():
            yield from _read(node.value)
        case cst.For():
            for part in (node.iter, node.body):
                yield from _read(part)
        case _:
            for child in children(node):
                yield from _read(child)


# --- what a round writes ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Address:
    base: str
    """The parameter that it begins at."""
    block: str | None
    """The run of elements that only this round has; None where others may have some of them."""
    others: tuple[str, ...]
    """What else is added up, the same in each round."""

    def is_apart(self, other: _Address) -> bool:
        """Whether it is another round's only where the other address is, in the same memory.

        Of two parameters strides may have two names; a shift by a number is seen.
        """
        if self.block is None or self.block != other.block:
            return False
        if self.base == other.base:
            return self.others == other.others
        ours, theirs = ([o for o in a.others if o.isdecimal()] for a in (self, other))
        return ours == theirs


def _check_memory(source: Source, kernel: Kernel, counted: Counting) -> None:
    """No round writes what another one reads or writes."""
    body = counted.loop.body
    written: list[_Address] = []
    for store in TRITON.find(source, body, (STORE,)):
        address = _address(source, kernel, counted, store)
        if address.block is None:
            line = source.line(store)
            raise NotApplicable(
                f"that each round writes other elements at line {line} is not shown"
            )
        for other in written:
            if not address.is_apart(other) and may_share(source, kernel, address.base, other.base):
                line = source.line(store)
                raise NotApplicable(f"a round may write at line {line} what another one writes")
        written.append(address)
    for load in TRITON.find(source, body, (LOAD,)):
        address = _address(source, kernel, counted, load)
        for other in written:
            if not address.is_apart(other) and may_share(source, kernel, address.base, other.base):
                line = source.line(load)
                raise NotApplicable(f"a round may read at line {line} what another one writes")


def _address(source: Source, kernel: Kernel, counted: Counting, access: cst.Call) -> _Address:
    pointer = argument(access, 0, "pointer")
    base = root(source, kernel, pointer) if pointer is not None else None
    if pointer is None or base is None:
        raise NotApplicable(f"the base of line {source.line(access)} is not known")
    blocks: list[str | None] = []
    others: list[str] = []
    for term in _terms(source, base, pointer):
        if (block := _block_of(source, counted, term)) is not None:
            blocks.append(block)
        elif _depends(counted, term):
            blocks += [None, None]
        else:
            others.append(source.code(term))
    return _Address(base, blocks[0] if len(blocks) == 1 else None, tuple(sorted(others)))


def _terms(
    source: Source, base: str, expression: cst.BaseExpression
) -> Iterable[cst.BaseExpression]:
    """What an address adds up; a run of elements stays whole, without the base."""
    span = span_of(source, expression)
    if span is None or any(_mentions(value_of(source, start), base) for start in span.starts):
        behind = value_of(source, expression)
        if isinstance(behind, cst.BinaryOperation) and isinstance(behind.operator, cst.Add):
            yield from _terms(source, base, behind.left)
            yield from _terms(source, base, behind.right)
            return
    yield expression


def _mentions(expression: cst.CSTNode, name: str) -> bool:
    return any(each.value == name for each in descendants(expression, cst.Name))


def _block_of(source: Source, counted: Counting, term: cst.BaseExpression) -> str | None:
    """The run of elements of a round, as a text that is the same for the same run.

    It begins at the loop's variable, which counts by the run's length, or at that many times it.
    """
    behind = value_of(source, term)
    stride = ""
    if isinstance(behind, cst.BinaryOperation) and isinstance(behind.operator, cst.Multiply):
        sides = ((behind.left, behind.right), (behind.right, behind.left))
        for run, factor in sides:
            if span_of(source, run) is not None and is_scalar(source, factor):
                if _depends(counted, factor):
                    return None
                term, stride = run, f" * {source.code(factor)}"
                break
    span = span_of(source, term)
    if span is None:
        return None
    own = [start for start in span.starts if _depends(counted, start)]
    if len(own) != 1 or not _is_start(source, counted, own[0], span.extent):
        return None
    others = sorted(source.code(start) for start in span.starts if start is not own[0])
    return f"{' + '.join([*others, span.extent])} along {span.axis}{stride}"


def _is_start(source: Source, counted: Counting, start: cst.BaseExpression, extent: str) -> bool:
    behind = value_of(source, start)
    if counted.step is not None:
        return _is_variable(source, counted, behind) and source.code(counted.step) == extent
    if isinstance(behind, cst.BinaryOperation) and isinstance(behind.operator, cst.Multiply):
        sides = ((behind.left, behind.right), (behind.right, behind.left))
        return any(
            _is_variable(source, counted, value_of(source, one)) and source.code(other) == extent
            for one, other in sides
        )
    return False


def _is_variable(source: Source, counted: Counting, expression: cst.BaseExpression) -> bool:
    if not isinstance(expression, cst.Name) or expression.value != counted.name:
        return False
    found = definition(source, expression.value, expression)
    return found is not None and found.node is counted.loop


def _depends(counted: Counting, expression: cst.CSTNode) -> bool:
    """Whether an expression may be another one in each round."""
    names = _names_bound_in(counted.loop.body) | {counted.name}
    return any(name.value in names for name in _read(expression))
