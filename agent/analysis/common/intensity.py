"""Estimate a kernel's arithmetic intensity from its source alone.

The estimate only orders the playbook, so it is coarse on purpose, and every assumption is one of
its evidence lines. It counts, for one element of a tile, the operations on loaded values and the
loads and stores, textually: a loop that streams memory repeats both alike. A dot is another
matter. What it reuses depends on the tile: an M x N tile does 2*M*N*K operations on (M + N)*K
elements.

The thresholds are those of TileGym's cuTile performance skill; see `class_of`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Dialect, Kernel, given_to
from agent.analysis.common.kernels import Classification, KernelClass, class_of
from agent.analysis.common.unseen import unseen_calls
from agent.errors import UsageError
from agent.syntax import (
    Function,
    Literal,
    Source,
    Untraceable,
    assigned,
    children,
    descendants,
)

BYTES = 2
"""Bytes an element: kernels worth tuning mostly move 16-bit types."""
TILE = 64
"""An edge of a dot's tile that the source does not tell."""
L2_SHARING = 4
"""How often a tile fetched for a looped dot is found in L2 by a neighbouring block."""
TRIPS = 16
"""Iterations of a loop that touches no memory and whose count the source does not tell."""


@dataclass(frozen=True)
class KernelWork:
    """What one kernel does."""

    kernel: Kernel
    flop_per_byte: float
    rank: tuple[bool, bool, int]
    """Orders kernels by their work: a looped dot, any dot, operations and accesses."""
    evidence: tuple[str, ...]
    at_least: bool = False
    """Whether it calls functions that the file does not show, which may do any work."""


def classify(dialect: Dialect, source: Source) -> Classification:
    """Classify the kernel with the most work, with the helpers that it calls.

    Of those that perf tests were seen to launch; where that is not known, of all that are launched.
    One whose work the file does not show in full is balanced at least: nothing says it is bound by
    memory.

    Raises:
        UsageError: the file holds no kernel.
    """
    most, *less = _most_work(dialect, source)
    others = [work.kernel.name for work in less]
    evidence = most.evidence
    if others:
        shown = (
            "the most work that the file shows"
            if most.at_least or any(work.at_least for work in less)
            else "the most work"
        )
        evidence = (*evidence, f"{most.kernel.name} does {shown}; also: {', '.join(others)}")
    found = class_of(most.flop_per_byte)
    if most.at_least and found is KernelClass.MEMORY:
        found = KernelClass.BALANCED
    return Classification(found, most.flop_per_byte, evidence)


def busiest(dialect: Dialect, source: Source) -> Kernel:
    """The kernel that perf tests were seen to spend the most time in, else that with the most work.

    Raises:
        UsageError: the file holds no kernel.
    """
    chosen = dialect.chosen(source)
    if chosen and chosen[0].name in source.timed:
        return chosen[0]
    return _most_work(dialect, source)[0].kernel


def _most_work(dialect: Dialect, source: Source) -> list[KernelWork]:
    """The kernels that an optimization is to change, that with the most work first."""
    chosen = dialect.chosen(source)
    helpers = {f for k in chosen for f in dialect.reached(source, k) if f is not k.function}
    kernels = [k for k in chosen if k.launches or k.function not in helpers] or chosen
    works = [_work(dialect, source, kernel) for kernel in kernels]
    if not works:
        raise UsageError(f"{source.path} holds no {dialect.decorator} kernel")
    return sorted(works, key=lambda work: work.rank, reverse=True)


def _work(dialect: Dialect, source: Source, kernel: Kernel) -> KernelWork:
    functions = dialect.reached(source, kernel)
    dots = [product for f in functions for product in dialect.products(source, f)]
    operations, accesses = _count(dialect, source, functions)
    if dots:
        return _dot_work(dialect, source, kernel, functions, dots)
    per_byte = operations / max(accesses * BYTES, 1)
    line = source.line(kernel.function.node)
    unseen = unseen_calls(dialect, source, kernel)
    counted = (
        f"{kernel.name}, line {line}: {operations} operations on each element "
        f"against {accesses} loads and stores"
    )
    evidence = (
        f"{counted}, as far as this file shows" if unseen else f"{counted}, no dot",
        *dict.fromkeys(
            f"line {source.line(call)}: `{source.code(call.func)}` is not of this file: what it "
            "computes is not known, and may be a dot"
            for call in unseen
        ),
        f"assumed: {BYTES} bytes an element",
    )
    rank = (False, False, operations + accesses)
    return KernelWork(kernel, per_byte, rank, evidence, at_least=bool(unseen))


def _dot_work(
    dialect: Dialect,
    source: Source,
    kernel: Kernel,
    functions: tuple[Function, ...],
    dots: list[cst.Call | cst.BinaryOperation],
) -> KernelWork:
    looped = next((d for d in dots if in_loop(source, d)), None)
    shown = looped if looped is not None else dots[0]
    known = _accumulator_edges(dialect, source, kernel, functions)
    m, n = (edge or TILE for edge in known)
    reuse = 2 * m * n / ((m + n) * BYTES)
    assumed = [f"{BYTES} bytes an element"]
    if None in known:
        assumed.append(f"{TILE} for the edge of a tile that the source does not tell")
    if looped is not None:
        assumed.append(f"neighbouring blocks find a tile in L2 {L2_SHARING} times")
    evidence = (
        f"{kernel.name}, line {source.line(shown)}: a dot "
        + ("inside a loop" if looped is not None else "outside any loop"),
        f"a {m} x {n} tile does {reuse:.0f} operations for each byte its block loads",
        f"assumed: {'; '.join(assumed)}",
    )
    per_byte = reuse * (L2_SHARING if looped is not None else 1)
    return KernelWork(kernel, per_byte, (looped is not None, True, len(dots)), evidence)


def _accumulator_edges(
    dialect: Dialect, source: Source, kernel: Kernel, functions: tuple[Function, ...]
) -> tuple[int | None, int | None]:
    """M and N of the largest two-dimensional tile the kernel makes: the accumulator of its dot."""
    found: list[tuple[int | None, int | None]] = []
    for function in functions:
        for call in dialect.find(source, function.node.body, dialect.accumulators):
            shape = dialect.shapes[dialect.called(source, call) or ""].of(call)
            if isinstance(shape, cst.Tuple | cst.List) and len(shape.elements) >= 2:
                *_, m, n = (tile_extent(source, kernel, e.value) for e in shape.elements)
                found.append((m, n))
    largest = max(found, key=lambda edges: (edges[0] or TILE) * (edges[1] or TILE), default=None)
    return largest or (None, None)


def tile_extent(source: Source, kernel: Kernel, expression: cst.BaseExpression) -> int | None:
    """The extent an expression of a tile shape has at the kernel's first launch, where told."""
    try:
        return source.trace(expression).value
    except Untraceable:
        found = constant_at_launch(source, kernel, source.code(expression))
        return found.value if found else None


def constant_at_launch(source: Source, kernel: Kernel, name: str) -> Literal | None:
    """What a compile-time constant is bound to at the first launch that tells."""
    for launch in kernel.launches:
        if name in launch.arguments:
            try:
                return source.trace(launch.arguments[name])
            except Untraceable:
                continue
    return None


def _count(dialect: Dialect, source: Source, functions: tuple[Function, ...]) -> tuple[int, int]:
    """Operations on loaded values, and loads and stores, of one element."""
    values = _Values(dialect, source, functions)
    memory = {*dialect.loads, *dialect.stores}
    counted = {*dialect.arithmetic, *dialect.reductions}
    operations = accesses = 0
    for function in functions:
        accesses += sum(1 for _ in dialect.find(source, function.node.body, memory))
        for node in _expressions(function):
            if isinstance(node, cst.Call) and dialect.called(source, node) not in counted:
                continue
            if values.held_by(function, node):
                operations += _trips(dialect, source, node, memory)
    return operations, accesses


def _expressions(function: Function) -> Iterator[cst.CSTNode]:
    """What may be arithmetic."""
    body = function.node.body
    yield from descendants(body, cst.BinaryOperation)
    yield from descendants(body, cst.AugAssign)
    yield from descendants(body, cst.Call)
    for node in descendants(body, cst.UnaryOperation):
        if isinstance(node.operator, cst.Minus):
            yield node


class _Values:
    """Which names hold values: what was loaded, and what came of it. Addresses are not values."""

    def __init__(self, dialect: Dialect, source: Source, functions: tuple[Function, ...]) -> None:
        self.dialect = dialect
        self.source = source
        self.loading = {*dialect.loads} | {
            f.name
            for f in functions[1:]
            if any(True for _ in dialect.find(source, f.node.body, dialect.loads))
        }
        self.names: dict[str, set[str]] = {f.name: set() for f in functions}
        for function in functions:
            self._follow(function)
            for call in descendants(function.node.body, cst.Call):
                helper = source.function_of(call.func)
                if helper is not None and helper is not function:
                    self._hand_over(function, call, helper)

    def held_by(self, function: Function, node: cst.CSTNode) -> bool:
        """Whether a node computes with a value; the address of a load is not looked at."""
        if isinstance(node, cst.Call):
            called = self.dialect.called(self.source, node)
            if called in self.loading:
                return True
            if called in self.dialect.stores:
                return False
        if isinstance(node, cst.Name):
            return node.value in self.names[function.name]
        return any(self.held_by(function, child) for child in children(node))

    def _follow(self, function: Function) -> None:
        """Mark what is assigned from values, until nothing more is."""
        names = self.names[function.name]
        before = -1
        while before != len(names):
            before = len(names)
            for target, value in assigned(function.node.body):
                if self.held_by(function, value):
                    names.update(n.value for n in descendants(target, cst.Name))

    def _hand_over(self, caller: Function, call: cst.Call, helper: Function) -> None:
        """Mark the parameters of a helper that are given values."""
        for name, value in given_to(helper, call).items():
            if self.held_by(caller, value):
                self.names[helper.name].add(name)


def _trips(dialect: Dialect, source: Source, node: cst.CSTNode, memory: set[str]) -> int:
    """How often an operation runs for one access: the loops around it that touch no memory."""
    trips = 1
    for loop in source.ancestors(node):
        if isinstance(loop, cst.FunctionDef):
            break
        if isinstance(loop, cst.For) and not any(True for _ in dialect.find(source, loop, memory)):
            trips *= _trip_count(source, loop)
    return trips


def _trip_count(source: Source, loop: cst.For) -> int:
    if isinstance(loop.iter, cst.Call) and len(loop.iter.args) == 1:
        try:
            return source.trace(loop.iter.args[0].value).value
        except Untraceable:
            pass
    return TRIPS


def in_loop(source: Source, node: cst.CSTNode) -> bool:
    """Whether a node stands in a loop of its function."""
    for around in source.ancestors(node):
        if isinstance(around, cst.For | cst.While):
            return True
        if isinstance(around, cst.FunctionDef):
            return False
    return False
