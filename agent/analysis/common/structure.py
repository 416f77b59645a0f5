"""What a kernel does, whatever its text calls it: loops, products, reductions, accesses.

Kernels that another person wrote, with other names and sizes, have the same fingerprint where they
do the same in the same loops. It can be kept where no source may be: it is made of words of the
kernel language alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from hashlib import sha256

import libcst as cst

from agent.analysis.common.dialect import Dialect
from agent.analysis.common.intensity import busiest
from agent.syntax import Function, Source, descendants

_PRODUCT, _REDUCTION, _LOAD, _STORE, _ATOMIC, _ARITHMETIC, _LOOP = (
    "product", "reduction", "load", "store", "atomic", "arithmetic", "loop",
)  # fmt: skip


@dataclass(frozen=True)
class Structure:
    """Of the kernel that a file is tuned for."""

    kind: str
    """What it does, coarsely, in words: kernels of one kind are near to each other."""
    fingerprint: str
    """The same for kernels with the same operations in the same loops."""


@dataclass(frozen=True)
class _Operation:
    role: str
    name: str
    """As the language calls it; of a product nothing, because it can be written in two ways."""
    depth: int
    """Loops around it."""


def structure_of(dialect: Dialect, source: Source) -> Structure:
    """Of the kernel that perf tests spend the most time in, else of that with the most work.

    Raises:
        UsageError: the file holds no kernel.
    """
    kernel = busiest(dialect, source)
    found = Counter(_operations(dialect, source, kernel.function))
    features = sorted(f"{n} {o.role} {o.name} {o.depth}" for o, n in found.items())
    told = "\n".join((dialect.decorator, *features))
    return Structure(_kind(found), sha256(told.encode()).hexdigest()[:16])


def _operations(
    dialect: Dialect,
    source: Source,
    function: Function,
    depth: int = 0,
    above: tuple[Function, ...] = (),
) -> Iterator[_Operation]:
    """What a function does, and the helpers of the file that it calls, where it calls them."""
    body = function.node.body
    for node in (*descendants(body, cst.For), *descendants(body, cst.While)):
        yield _Operation(_LOOP, "", depth + _loops_around(source, node))
    for product in dialect.products(source, function):
        yield _Operation(_PRODUCT, "", depth + _loops_around(source, product))
    roles = _roles(dialect)
    for call in descendants(body, cst.Call):
        helper = source.function_of(call.func)
        here = depth + _loops_around(source, call)
        if helper is not None and helper not in (*above, function):
            yield from _operations(dialect, source, helper, here, (*above, function))
            continue
        called = dialect.called(source, call) or ""
        role = next((role for role, names in roles if called in names), None)
        if role is not None:
            yield _Operation(role, called.rpartition(".")[2], here)


def _roles(dialect: Dialect) -> tuple[tuple[str, Collection[str]], ...]:
    atomics = [name for name in dialect.stores if "atomic" in name]
    return (
        (_REDUCTION, dialect.reductions),
        (_LOAD, dialect.loads),
        (_ATOMIC, atomics),
        (_STORE, dialect.stores),
        (_ARITHMETIC, dialect.arithmetic),
    )


def _loops_around(source: Source, node: cst.CSTNode) -> int:
    """The loops of its function that a node stands in."""
    count = 0
    for around in source.ancestors(node):
        if isinstance(around, cst.FunctionDef):
            break
        count += isinstance(around, cst.For | cst.While)
    return count


def _kind(found: Counter[_Operation]) -> str:
    """The classes of operations that decide what pays, and whether they stand in a loop."""
    count: Counter[tuple[str, bool]] = Counter()
    for operation, times in found.items():
        count[operation.role, operation.depth > 0] += times
    products = count[_PRODUCT, True] + count[_PRODUCT, False]
    told = []
    if products:
        many = "several products" if products > 1 else "a product"
        told.append(f"{many} in a loop" if count[_PRODUCT, True] else many)
    for role, name in ((_REDUCTION, "reductions"), (_ATOMIC, "atomics")):
        if count[role, True] or count[role, False]:
            told.append(f"{name} in a loop" if count[role, True] else name)
    if not told:
        told.append("element by element")
    if count[_LOAD, True] and not count[_PRODUCT, True] and not count[_REDUCTION, True]:
        told.append("loads in a loop")
    return ", ".join(told)
