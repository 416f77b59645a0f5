"""Reads and sets compiler hints in `@ct.kernel(...)`, for all kernels of a file alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.dialect import CUTILE
from agent.syntax import Source, Untraceable, keyword, with_keyword


def hintable(source: Source, hint: str, kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """The kernels whose decorator decides the hint.

    Raises:
        NotApplicable: there is none; the message says what else decides it.
    """
    found: list[Kernel] = []
    reasons: list[str] = []
    for kernel in kernels:
        overriding = [x for x in kernel.launches if hint in x.hints]
        if (tuning := CUTILE.tuned(source, kernel)) is not None:
            reasons.append(f"{kernel.name} is tuned at line {source.line(tuning)}")
        elif overriding:
            line = source.line(overriding[0].node)
            reasons.append(f"the launch at line {line} sets {hint} itself")
        else:
            hint_of(source, kernel, hint)
            found.append(kernel)
    if not found:
        raise NotApplicable("; ".join(reasons) or "the file holds no cuTile kernel to set it for")
    return tuple(found)


def hint_of(source: Source, kernel: Kernel, hint: str) -> int | None:
    """The integer a decorator gives a hint; None when it gives none."""
    decorator = kernel.decorator.decorator
    given = keyword(decorator, hint) if isinstance(decorator, cst.Call) else None
    if given is None or source.code(given) == "None":
        return None
    try:
        return source.trace(given).value
    except Untraceable as reason:
        raise NotApplicable(f"{hint} of {kernel.name} {reason}") from None


def with_hint(source: Source, kernels: Iterable[Kernel], hint: str, value: int) -> str:
    """The source with a hint set in the kernels' decorators."""
    edits = {
        k.decorator: _setting(hint, value) for k in kernels if hint_of(source, k, hint) != value
    }
    if not edits:
        raise NotApplicable(f"{hint} is {value} already")
    return source.rewrite(edits)


def _setting(hint: str, value: int) -> Callable[[cst.Decorator], cst.Decorator]:
    def edit(decorator: cst.Decorator) -> cst.Decorator:
        expression = decorator.decorator
        call = expression if isinstance(expression, cst.Call) else cst.Call(expression)
        return decorator.with_changes(decorator=with_keyword(call, hint, str(value)))

    return edit
