"""Whether a program of a Triton kernel may wait for another one, so that their order matters.

A lock is taken by `tl.atomic_cas` or `tl.atomic_xchg`, and a `while` loop may spin on memory. A
`for` loop ends by itself, and `tl.debug_barrier` waits for the threads of its own program only.
"""

from __future__ import annotations

from itertools import chain

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.spinning import deciding_calls
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import ATOMICS, TL, TRITON
from agent.syntax import Function, Source, descendants, keyword

LOCKS = (f"{TL}atomic_cas", f"{TL}atomic_xchg")
BARRIER = f"{TL}debug_barrier"
_SHARING = (*ATOMICS, f"{TL}inline_asm_elementwise")
"""What may give something else each time, whatever the program itself writes."""


def check_never_waits(source: Source, kernel: Kernel) -> None:
    """Raise `NotApplicable` where a program of the kernel may wait for another one."""
    reached = TRITON.reached(source, kernel)
    # Without any of these nothing orders what a program writes and the flag behind it, so that a
    # plain load in a loop is a search, and no signal.
    signals = {*_SHARING, BARRIER}
    ordered = any(True for f in reached for _ in TRITON.find(source, f.node.body, signals))
    for function in reached:
        body = function.node.body
        locks = TRITON.find(source, body, LOCKS)
        spins = (x for x in descendants(body, cst.While) if _may_spin(source, x, ordered=ordered))
        for node in chain(locks, spins):
            raise NotApplicable(f"line {source.line(node)} may wait for another program")


def has_barrier(source: Source, kernel: Kernel) -> bool:
    """Whether the threads of a program wait for each other, in the kernel or in a helper."""
    reached = TRITON.reached(source, kernel)
    return any(True for f in reached for _ in TRITON.find(source, f.node.body, (BARRIER,)))


def _may_spin(source: Source, loop: cst.While, *, ordered: bool) -> bool:
    """Whether what ends a loop is computed from memory that each round reads anew."""
    calls = deciding_calls(loop)
    return any(_is_shared(source, call, set(), ordered=ordered) for call in calls)


def _is_shared(source: Source, call: cst.Call, seen: set[Function], *, ordered: bool) -> bool:
    """Whether another program may change what a call gives; so may that of one from elsewhere."""
    helper = source.function_of(call.func)
    if helper is not None:
        inner = descendants(helper.node.body, cst.Call) if helper not in seen else ()
        seen.add(helper)
        return any(_is_shared(source, c, seen, ordered=ordered) for c in inner)
    called = TRITON.called(source, call)
    if called in TRITON.loads:
        return ordered or keyword(call, "volatile") is not None
    if called is None or TRITON.owns(called) or called.startswith("builtins."):
        return called in _SHARING
    within = source.enclosing(call)
    return within is None or not called.startswith(f"{within.name}.")
