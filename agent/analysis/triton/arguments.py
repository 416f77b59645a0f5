"""Run-time parameters of a Triton kernel: sizes, and pointers to memory it reads and writes."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.derived_names import derived_names
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.aliasing import alike, may_share
from agent.analysis.triton.dialect import ATOMICS, TRITON
from agent.analysis.triton.heuristics import described_arrays
from agent.analysis.triton.pointers import root
from agent.analysis.triton.waiting import check_never_waits
from agent.syntax import Source, argument, descendants, names_in

TL = "triton.language."
POINTERS = (f"{TL}load", f"{TL}store", *ATOMICS)
RANDOM = tuple(f"{TL}{name}" for name in ("rand", "rand4x", "randint", "randn", "randn4x"))
"""What an index is only the seed of: a number that is compared with it is no size."""
DESCRIBED = (f"{TL}make_tensor_descriptor", f"{TL}make_block_ptr")


def run_time(kernel: Kernel) -> tuple[str, ...]:
    """The parameters that are no compile-time constants."""
    names = (p.name.value for p in kernel.function.parameters)
    return tuple(name for name in names if name not in kernel.constants)


def size_parameters(source: Source, kernel: Kernel) -> tuple[str, ...]:
    """The parameters that say how much there is to do, on which the best config depends.

    Those that a loop runs to, and those that an index is compared with. A pointer is none, though
    its name may be: `n = tl.load(n)`.
    """
    body = kernel.function.node.body
    indices = index_names(source, kernel)
    found: set[str] = set()
    for loop in descendants(body, cst.For):
        found |= names_in(loop.iter)
    for comparison in descendants(body, cst.Comparison):
        sides = [comparison.left, *(c.comparator for c in comparison.comparisons)]
        if any(_is_index(source, side, indices) for side in sides):
            found |= names_in(comparison)
    accesses = (*TRITON.loads, *POINTERS)
    found -= {_root(source, kernel, call) for call in TRITON.find(source, body, accesses)}
    return tuple(name for name in run_time(kernel) if name in found)


def index_names(source: Source, kernel: Kernel) -> set[str]:
    """The names that count elements: computed from `tl.arange` or `tl.program_id`, not loaded."""
    body = kernel.function.node.body
    return derived_names(body, lambda value, names: _is_index(source, value, names))


def rewritten(source: Source, kernel: Kernel, *, possibly: bool = False) -> tuple[str, ...]:
    """The pointers whose memory a second run would find changed: read or added to, and written.

    Two parameters that a launch gives the same tensor count as one.

    Args:
        source: the file.
        kernel: one of its kernels.
        possibly: so do two that are not certainly apart, as an `out` that a caller hands in.

    Raises:
        NotApplicable: where a load or store goes is not to be seen, or programs wait for another.
    """
    check_never_waits(source, kernel)
    loaded, stored, added = set[str](), set[str](), set[str]()
    arrays = described_arrays(source, kernel)
    for function in TRITON.reached(source, kernel):
        for call in descendants(function.node.body, cst.Call):
            called = TRITON.called(source, call)
            writes = TRITON.stored(source, call) is not None
            reads = called in TRITON.loads
            if not writes and not reads:
                continue
            where = _root(source, kernel, call) if function is kernel.function else None
            if where is None:
                line = source.line(call)
                raise NotApplicable(f"line {line} does not show which tensor it touches")
            kind = added if called in ATOMICS else stored if writes else loaded
            kind.add(arrays.get(where, where))
    if possibly:
        seen = loaded | added
        again = {n for n in stored if any(may_share(source, kernel, n, r) for r in seen)} | added
    else:
        same = alike(source, kernel)
        seen = {same.get(name, name) for name in loaded | added}
        again = {name for name in stored if same.get(name, name) in seen} | added
    return tuple(name for name in run_time(kernel) if name in again)


def updated(source: Source, kernel: Kernel) -> frozenset[str]:
    """The pointers that a kernel surely reads and writes in place, each by the first of its names.

    What stands under a condition may never run.

    Raises:
        NotApplicable: see `rewritten`.
    """
    always: dict[bool, set[str]] = {True: set(), False: set()}
    same = alike(source, kernel)
    for call in descendants(kernel.function.node.body, cst.Call):
        writes = TRITON.stored(source, call) is not None
        if not writes and TRITON.called(source, call) not in TRITON.loads:
            continue
        conditional = any(isinstance(a, cst.If | cst.IfExp) for a in source.ancestors(call))
        if not conditional and (where := _root(source, kernel, call)):
            always[writes].add(same.get(where, where))
    names = {same.get(name, name) for name in rewritten(source, kernel)}
    return frozenset(names & always[True] & always[False])


def does_without(source: Source, kernel: Kernel, pointer: str) -> bool:
    """Whether a kernel may be given `None` for a pointer: it touches it on conditions only."""
    for call in descendants(kernel.function.node.body, cst.Call):
        writes = TRITON.stored(source, call) is not None
        if not writes and TRITON.called(source, call) not in TRITON.loads:
            continue
        conditional = any(isinstance(a, cst.If | cst.IfExp) for a in source.ancestors(call))
        if not conditional and _root(source, kernel, call) == pointer:
            return False
    return True


def written(source: Source, kernel: Kernel) -> frozenset[str] | None:
    """The pointers that a kernel stores through; None where a store does not show which."""
    found = set()
    for function in TRITON.reached(source, kernel):
        for call in descendants(function.node.body, cst.Call):
            if TRITON.stored(source, call) is None:
                continue
            where = _root(source, kernel, call) if function is kernel.function else None
            if where is None:
                return None
            found.add(where)
    return frozenset(found)


def _root(source: Source, kernel: Kernel, access: cst.Call) -> str | None:
    if source.name(access.func) in POINTERS:
        address = argument(access, 0, "pointer")
    else:
        assert isinstance(access.func, cst.Attribute)
        address = access.func.value
    behind = value_of(source, address) if address is not None else None
    if isinstance(behind, cst.Call) and source.name(behind.func) in DESCRIBED:
        address = argument(behind, 0, "base")
    found = root(source, kernel, address) if address is not None else None
    return found if found not in {*kernel.constants, *_multiplied(kernel)} else None


def _multiplied(kernel: Kernel) -> set[str]:
    """The names that are multiplied or divided somewhere, which no pointer is."""
    return {
        side.value
        for operation in descendants(kernel.function.node.body, cst.BinaryOperation)
        if isinstance(operation.operator, cst.Multiply | cst.FloorDivide | cst.Modulo)
        for side in (operation.left, operation.right)
        if isinstance(side, cst.Name)
    }


def _is_index(source: Source, node: cst.CSTNode, names: set[str]) -> bool:
    if TRITON.has(source, node, (*TRITON.loads, *RANDOM)):
        return False
    counting = {*TRITON.iotas, *TRITON.program_ids}
    return bool(names_in(node) & names) or TRITON.has(source, node, counting)
