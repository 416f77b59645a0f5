"""Whether a block of a cuTile kernel may wait for another one, so that their order matters."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.dialect import Kernel, callees
from agent.analysis.common.spinning import deciding_calls
from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.dialect import ATOMICS, CT, CUTILE
from agent.syntax import Source, descendants, keyword

WAITS = (f"{CT}atomic_cas", f"{CT}atomic_xchg", f"{CT}grid_dependency_control_wait")
_SHARING = (*ATOMICS, *WAITS)
"""What may give something else each time, whatever the block itself writes."""


def check_never_waits(source: Source, kernel: Kernel) -> None:
    """Raise `NotApplicable` where a block of the kernel may wait for another one.

    A lock is taken by an exchange, and a `while` loop may spin on what others write; a `for` loop
    ends by itself. What has an order and gives no result may be a signal, and waits for none.
    """
    calls = [
        (call, CUTILE.called(source, call) in _SHARING, keyword(call, "memory_order") is not None)
        for function in CUTILE.reached(source, kernel)
        for call in descendants(function.node.body, cst.Call)
    ]
    for call, _, ordered in calls:
        answers = not isinstance(next(source.ancestors(call)), cst.Expr)
        if (source.name(call.func) or "") in WAITS or (ordered and answers):
            raise NotApplicable(f"line {source.line(call)} may wait for another block")
    # Without any of these nothing orders what a block writes and the flag behind it.
    orders = any(shares or ordered for _, shares, ordered in calls)
    for function in CUTILE.reached(source, kernel) if orders else ():
        for loop in descendants(function.node.body, cst.While):
            if any(_reads(source, call) for call in deciding_calls(loop)):
                raise NotApplicable(f"line {source.line(loop)} may wait for another block")


def _reads(source: Source, call: cst.Call) -> bool:
    """Whether a call gives what another block may have written, by itself or by what it calls."""
    if CUTILE.called(source, call) in (*CUTILE.loads, *_SHARING):
        return True
    helper = source.function_of(call.func)
    return helper is not None and any(
        True
        for function in (helper, *callees(source, helper))
        for _ in CUTILE.find(source, function.node.body, (*CUTILE.loads, *_SHARING))
    )
