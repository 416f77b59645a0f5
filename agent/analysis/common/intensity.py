"""Estimate a kernel's arithmetic intensity from its source alone.

The estimate only orders the playbook, so it is coarse on purpose, and every assumption is one of
its evidence lines. It counts, for one element of a tile, the operations on loaded values and the
loads and stores, textually: a loop that streams memory repeats both alike (`counts`). A dot is
another matter. What it reuses depends on the tile: an M x N tile does 2*M*N*K operations on
(M + N)*K elements.

The thresholds are those of TileGym's cuTile performance skill; see `class_of`.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.counts import count
from agent.analysis.common.dialect import Dialect, Kernel
from agent.analysis.common.kernels import Classification, KernelClass, class_of
from agent.analysis.common.unseen import may_multiply, unseen_calls
from agent.errors import UsageError
from agent.syntax import (
    Function,
    Literal,
    Source,
    Untraceable,
)

BYTES = 2
"""Bytes an element: kernels worth tuning mostly move 16-bit types."""
TILE = 64
"""An edge of a dot's tile that the source does not tell."""
L2_SHARING = 4
"""How often a tile fetched for a looped dot is found in L2 by a neighbouring block."""


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
    if dots:
        return _dot_work(dialect, source, kernel, functions, dots)
    counted = count(dialect, source, kernel)
    operations, accesses = counted.operations, counted.accesses
    per_byte = operations / max(accesses * BYTES, 1)
    line = source.line(kernel.function.node)
    unseen = unseen_calls(dialect, source, kernel)
    products = [call for call in unseen if may_multiply(source, call)]
    told = (
        f"{kernel.name}, line {line}: {operations} operations on each element "
        f"against {accesses} loads and stores"
    )
    evidence = (
        f"{told}, as far as this file shows" if unseen else f"{told}, no dot",
        *(
            ["of branches of which one is run, that with the most is counted"]
            if counted.chose
            else []
        ),
        *dict.fromkeys(
            f"line {source.line(call)}: `{source.code(call.func)}` is not of this file: what it "
            + (
                "computes is not known, and may be a dot"
                if call in products
                else "does to tiles is not counted"
            )
            for call in unseen
        ),
        f"assumed: {BYTES} bytes an element",
    )
    rank = (False, False, operations + accesses)
    return KernelWork(kernel, per_byte, rank, evidence, at_least=bool(products))


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


def in_loop(source: Source, node: cst.CSTNode) -> bool:
    """Whether a node stands in a loop of its function."""
    for around in source.ancestors(node):
        if isinstance(around, cst.For | cst.While):
            return True
        if isinstance(around, cst.FunctionDef):
            return False
    return False
