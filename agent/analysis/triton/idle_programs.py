"""How many programs of a Triton kernel have anything to store, by the conditions of its stores.

A store under `row * 64 + tl.arange(0, 64) < n` stores nothing in programs from `cdiv(n, 64)` on.
Where that holds of every store, what those programs load and compute is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from math import prod

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.masks import conditions, ordered
from agent.analysis.common.reaching_definitions import definition, value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.common.sums import Product, Terms, number, plus, times
from agent.analysis.triton.dialect import TL, TRITON
from agent.analysis.triton.program_ids import PROGRAM_ID, program_indices
from agent.analysis.triton.spans import SAME, WHOLE, belongs_to_module
from agent.analysis.triton.waiting import check_never_waits
from agent.syntax import Function, Source, argument, descendants, positional

COMPUTING = frozenset({
    *TRITON.arithmetic, *TRITON.reductions, *TRITON.loads, *TRITON.shapes, *TRITON.iotas,
    *TRITON.cdivs, *TRITON.ranges, *TRITON.random, *TRITON.program_ids, *TRITON.dots,
    *TRITON.permutations, *TRITON.choices, *SAME, TRITON.constant,
    *(f"{TL}{name}" for name in (
        "advance", "assume", "bitcast", "broadcast", "clamp", "debug_barrier", "expand_dims",
        "full_like", "interleave", "join", "max_constancy", "permute", "ravel", "softmax", "split",
        "static_assert", "static_print", "swizzle2d", "trans", "umulhi", "zeros_like")),
    *(f"builtins.{name}" for name in ("abs", "bool", "float", "int", "len", "max", "min")),
})  # fmt: skip
"""Functions that give a value, and do nothing else."""
MATHEMATICS = tuple(f"{TL}{name}." for name in ("math", "extra.libdevice", "extra.cuda.libdevice"))
"""Modules of such functions."""
METHODS = frozenset({
    "abs", "argmax", "argmin", "broadcast_to", "cast", "cdiv", "cumprod", "cumsum", "exp", "exp2",
    "expand_dims", "flip", "log", "log2", "max", "min", "permute", "ravel", "reshape", "rsqrt",
    "sigmoid", "softmax", "split", "sqrt", "sum", "to", "trans", "view", "xor_sum",
})  # fmt: skip
"""Methods of a tile that do."""
_NUMBERS = count()
_PROGRAM, _COUNT = "program ", "count "
"""Begin the names of what is never negative, which no parameter of a kernel begins with."""


@dataclass(frozen=True)
class Need:
    """Programs from `cdiv(length, step)` on store nothing, as long as the signs are as said.

    All are sums of parameters of the kernel.
    """

    length: Terms
    step: Product
    times: int
    """How often the step is taken: `3 * BLOCK`."""
    positive: frozenset[str]
    """What has to be above zero for it; of a tile's extent it is known."""
    not_negative: frozenset[str]
    """What must not be below zero."""

    @property
    def parameters(self) -> frozenset[str]:
        """All that it is computed from."""
        named = (*self.length, self.step)
        return frozenset(n for product in named for n in product) | self.not_negative

    def programs(self, given: Mapping[str, int]) -> int | None:
        """How many programs are needed; None where a sign is not as said.

        Args:
            given: the value of every parameter.
        """
        signs = all(given[n] > 0 for n in self.positive)
        if not signs or any(given[n] < 0 for n in self.not_negative):
            return None
        length = sum(often * prod(given[n] for n in names) for names, often in self.length.items())
        step = self.times * prod(given[n] for n in self.step)
        return -(-length // step) if step > 0 else None


def needs_of(source: Source, kernel: Kernel) -> dict[int, tuple[Need, ...]]:
    """Axis of the grid -> what its stores need along it, the most of which is needed.

    Raises:
        NotApplicable: along no axis it is known of all stores, or programs do more than to store.
    """
    axes = sorted({index.axis for index in program_indices(source, kernel)})
    check_never_waits(source, kernel)
    stores = _stores(source, kernel)
    found: dict[int, tuple[Need, ...]] = {}
    unbounded: list[cst.Call] = []
    for axis in axes:
        needs = {store: _needed(source, kernel, store, axis) for store in stores}
        known = [need for need in needs.values() if need is not None]
        unbounded += [store for store, need in needs.items() if need is None]
        if len(known) == len(stores):
            found[axis] = _largest(known)
    if not found:
        raise NotApplicable(
            f"line {source.line(unbounded[0])} stores under no condition that bounds a program's "
            "number by what the launch gives"
        )
    return found


def _stores(source: Source, kernel: Kernel) -> list[cst.Call]:
    """The stores of a kernel. Raises `NotApplicable` where something else may have an effect."""
    stores = []
    for function in _reached(source, kernel):
        body = function.node.body
        for kind in (cst.Assert, cst.NamedExpr):
            for node in descendants(body, kind):
                raise NotApplicable(f"line {source.line(node)} does more than to compute")
        for call in descendants(body, cst.Call):
            line = source.line(call)
            if TRITON.called(source, call) in TRITON.stores:
                if function is not kernel.function:
                    raise NotApplicable(f"{function.name} stores for {kernel.name}, at line {line}")
                stores.append(call)
            elif not _only_computes(source, call):
                raise NotApplicable(
                    f"line {line} may do more than to compute: `{source.code(call.func)}`"
                )
    if not stores:
        raise NotApplicable(f"{kernel.name} stores nothing by itself")
    return stores


def _reached(source: Source, kernel: Kernel) -> list[Function]:
    """The kernel and the functions of the file that it names, to call or to hand on, however
    deep."""
    found = [kernel.function]
    for function in found:
        for name in descendants(function.node.body, cst.Name):
            named = source.function_of(name)
            found += [named] if named is not None and named not in found else []
    return found


def _only_computes(source: Source, call: cst.Call) -> bool:
    """Whether what is called gives a value and does nothing else."""
    called, name = source.name(call.func) or "", call.func
    if isinstance(name, cst.Name) and source.function_of(name) is not None:
        return len(source.assignments(name)) == 1  # whose body is looked at
    if called.startswith(MATHEMATICS) or called in COMPUTING:
        return True
    if not isinstance(name, cst.Attribute) or TRITON.owns(called):
        return False
    return name.attr.value in METHODS


def _largest(needs: list[Need]) -> tuple[Need, ...]:
    """Those of which none is known to need less than another."""
    left: list[Need] = []
    for need in needs:
        if any(_covers(other, need) for other in left):
            continue
        left = [*(other for other in left if not _covers(need, other)), need]
    return tuple(left)


def _covers(one: Need, other: Need) -> bool:
    """Whether one need is at least another, of the same step, under conditions no stricter."""
    more = plus(one.length, other.length, -1)
    known = (
        one.positive <= other.positive and one.not_negative <= other.positive | other.not_negative
    )
    same = (one.step, one.times) == (other.step, other.times)
    return same and known and set(more) <= {()} and more.get((), 0) >= 0


# --- one store ----------------------------------------------------------------------------------


class _Unread(Exception):
    """A value that is no sum of products of parameters and counts."""


def _needed(source: Source, kernel: Kernel, store: cst.Call, axis: int) -> Need | None:
    """What a store needs along an axis; of several conditions by that with the fewest signs."""
    found = []
    for small, large, is_equal in _bounds(source, kernel, store):
        try:
            room = plus(_terms(source, kernel, large), _terms(source, kernel, small), -1)
        except _Unread:
            continue
        need = _of_room(source, kernel, plus(room, number(int(is_equal))), axis)
        found += [need] if need is not None else []
    return min(found, key=lambda need: len(need.positive | need.not_negative), default=None)


def _bounds(
    source: Source, kernel: Kernel, store: cst.Call
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression, bool]]:
    """Smaller, larger and whether they may be equal, of the conditions that a store is under."""
    for condition in _joined(source, TRITON.mask(source, store)):
        if (sides := ordered(condition)) is not None:
            yield sides
    inner: cst.CSTNode = store
    for around in source.ancestors(store):
        if isinstance(around, cst.If) and inner is around.body:
            for condition in _joined(source, around.test):
                if (sides := ordered(condition)) is not None:
                    yield sides
        inner = around
    body = kernel.function.node.body
    lines = takewhile(lambda line: line not in source.ancestors(store), body.body)
    for line in lines:
        if isinstance(line, cst.If) and line.orelse is None and _leaves(line):
            for condition in _alternatives(line.test):
                if (sides := ordered(condition)) is not None:
                    small, large, is_equal = sides
                    yield large, small, not is_equal


def _joined(source: Source, mask: cst.BaseExpression | None) -> Iterator[cst.BaseExpression]:
    """The conditions that all have to hold."""
    for condition in conditions(source, mask):
        match condition:
            case cst.BooleanOperation(left=left, operator=cst.And(), right=right):
                yield from _joined(source, left)
                yield from _joined(source, right)
            case cst.Subscript(value=inner) if _only_expands(source, condition):
                yield from _joined(source, inner)
            case _:
                yield condition


def _alternatives(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The conditions of which one has to hold."""
    match test:
        case cst.BooleanOperation(left=left, operator=cst.Or(), right=right):
            yield from _alternatives(left)
            yield from _alternatives(right)
        case _:
            yield test


def _only_expands(source: Source, subscript: cst.Subscript) -> bool:
    """`[:, None]` and the like."""
    return all(
        isinstance(part.slice, cst.Slice) or source.code(part.slice).strip() == "None"
        for part in subscript.slice
    )


def _leaves(line: cst.If) -> bool:
    """Whether a branch ends the program."""
    last = line.body.body[-1] if line.body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, cst.Return)


def _of_room(source: Source, kernel: Kernel, room: Terms, axis: int) -> Need | None:
    """The need of a store that happens where `room` is above zero."""
    own = f"{_PROGRAM}{axis}"
    steps, length, signs = [], {}, set[str]()
    for product, often in room.items():
        counts = [name for name in product if name.startswith((_PROGRAM, _COUNT))]
        others = [name for name in product if name not in counts]
        if not counts:
            length[product] = often
        elif often > 0:
            return None
        elif counts == [own]:
            steps.append((tuple(others), -often))
        elif own in counts:
            return None
        else:
            signs |= set(others)
    if len(steps) != 1:
        return None
    (step, often), extents = steps[0], _extents(source, kernel)
    positive = frozenset(step) - extents
    return Need(length, step, often, positive, frozenset(signs) - extents - positive)


def _extents(source: Source, kernel: Kernel) -> frozenset[str]:
    """Parameters that say how long a run of numbers is: powers of two, which are above zero."""
    return frozenset(
        end.value
        for call in TRITON.find(source, kernel.function.node.body, TRITON.iotas)
        if isinstance(end := argument(call, 1, "end"), cst.Name)
        and not any(isinstance(a, cst.If | cst.IfExp) for a in source.ancestors(call))
        and _is_parameter(source, kernel, end)
        and source.code(argument(call, 0, "start") or end) == "0"
    )


def _is_parameter(source: Source, kernel: Kernel, name: cst.Name) -> bool:
    found = definition(source, name.value, name)
    return found is not None and found.node in kernel.function.parameters


def _terms(source: Source, kernel: Kernel, node: cst.BaseExpression) -> Terms:
    """A value as a sum. Raises `_Unread`."""

    def read(part: cst.BaseExpression) -> Terms:
        return _terms(source, kernel, part)

    behind = value_of(source, node)
    if isinstance(behind, cst.Name) and belongs_to_module(source, behind):
        behind = source.resolve(behind)
    match behind:
        case cst.Integer():
            return number(behind.evaluated_value)
        case cst.Name() if _is_parameter(source, kernel, behind):
            return {(behind.value,): 1}
        case cst.Name():
            return _counter(source, kernel, behind)
        case cst.Subscript(value=inner) if _only_expands(source, behind):
            return read(inner)
        case cst.BinaryOperation(left=left, operator=cst.Add(), right=right):
            return plus(read(left), read(right))
        case cst.BinaryOperation(left=left, operator=cst.Subtract(), right=right):
            return plus(read(left), read(right), -1)
        case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
            return times(read(left), read(right))
        case cst.Call():
            return _of_call(source, kernel, behind)
    raise _Unread


def _of_call(source: Source, kernel: Kernel, call: cst.Call) -> Terms:
    called = source.name(call.func)
    if called == PROGRAM_ID:
        axis = argument(call, 0, "axis")
        if isinstance(axis, cst.Integer):
            return {(f"{_PROGRAM}{axis.evaluated_value}",): 1}
    if called in TRITON.iotas:
        start = argument(call, 0, "start")
        if isinstance(start, cst.Integer):  # a literal, which has no sign
            return _count()
    kept, to = None, None
    if called in SAME and call.args:
        kept = call.args[0].value
        to = argument(call, 1, "dtype") if called == f"{TL}cast" else None
    elif isinstance(call.func, cst.Attribute) and call.func.attr.value == "to":
        kept, to = call.func.value, argument(call, 0, "dtype")
    elif called == TRITON.constant and len(call.args) == 1:
        kept = call.args[0].value
    if kept is None or (to is not None and source.name(to) not in WHOLE):
        raise _Unread
    terms = _terms(source, kernel, kept)
    narrow = to is not None and source.name(to) == f"{TL}int32"
    if narrow and any(not n.startswith((_PROGRAM, _COUNT)) for product in terms for n in product):
        raise _Unread  # a length may have had more bits
    return terms


def _count() -> Terms:
    """A number that is never negative. Two of them never cancel: `offsets[:, None]` and
    `offsets[None, :]` count along two dimensions, and a variable is of one round or of another."""
    return {(f"{_COUNT}{next(_NUMBERS)}",): 1}


def _counter(source: Source, kernel: Kernel, name: cst.Name) -> Terms:
    """The variable of a loop that counts upwards from zero."""
    found = definition(source, name.value, name)
    loop = found.value if found is not None and isinstance(found.node, cst.For) else None
    if isinstance(loop, cst.Call) and source.name(loop.func) in TRITON.ranges:
        given = positional(loop)
        step = _terms(source, kernel, given[2]) if len(given) == 3 else number(1)
        extents = _extents(source, kernel)
        upwards = all(often > 0 and extents.issuperset(names) for names, often in step.items())
        if given and upwards and (len(given) == 1 or source.code(given[0]) == "0"):
            return _count()
    raise _Unread
