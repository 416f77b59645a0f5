"""Reads and sets compiler hints in `@ct.kernel(...)`, for all kernels of a file alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.following import following
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.cutile.decorators import not_decided
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.syntax import Untraceable, keyword, with_keyword

BY_TARGET = f"{CT}ByTarget"


def hintable(subject: Subject, hint: str, kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """The kernels whose decorator decides the hint.

    Raises:
        NotApplicable: there is none; the message says what else decides it.
    """
    source = subject.source
    found: list[Kernel] = []
    reasons: list[str] = []
    followed = {k.name: k.launches for k in CUTILE.kernels(following(CUTILE, subject).source)}
    for kernel in kernels:
        overriding = [x for x in followed[kernel.name] if hint in x.hints]
        if (tuning := CUTILE.tuned(source, kernel)) is not None:
            reasons.append(f"{kernel.name} is tuned at line {source.line(tuning)}")
        elif overriding:
            line = source.line(overriding[0].node)
            reasons.append(f"the launch at line {line} sets {hint} itself")
        elif (reason := not_decided(source, kernel, hint)) is not None:
            reasons.append(reason)
        else:
            hint_of(subject, kernel, hint)
            found.append(kernel)
    if not found:
        raise NotApplicable("; ".join(reasons) or "the file holds no cuTile kernel to set it for")
    return tuple(found)


def hint_of(subject: Subject, kernel: Kernel, hint: str) -> int | None:
    """The integer a decorator gives a hint on the GPU of the run; None when it gives none."""
    source, given = subject.source, _given(kernel, hint)
    if (by_target := _by_target(subject, given)) is not None:
        given = keyword(by_target, _target(subject)) or keyword(by_target, "default")
    if given is None or source.code(given) == "None":
        return None
    try:
        return source.trace(given).value
    except Untraceable as reason:
        raise NotApplicable(f"{hint} of {kernel.name} {reason}") from None


def with_hint(subject: Subject, kernels: Iterable[Kernel], hint: str, value: int) -> str:
    """The source with a hint set in the kernels' decorators, for the GPU of the run at least."""
    edits = {
        k.decorator: hint_setting(subject, k, hint, value)
        for k in kernels
        if hint_of(subject, k, hint) != value
    }
    if not edits:
        raise NotApplicable(f"{hint} is {value} already")
    return subject.source.rewrite(edits)


def _given(kernel: Kernel, hint: str) -> cst.BaseExpression | None:
    decorator = kernel.decorator.decorator
    return keyword(decorator, hint) if isinstance(decorator, cst.Call) else None


def _by_target(subject: Subject, given: cst.BaseExpression | None) -> cst.Call | None:
    """`ct.ByTarget(sm_100=..., default=...)`, where it is known which target counts."""
    if isinstance(given, cst.Call) and subject.hardware.sm:
        return given if subject.source.name(given.func) == BY_TARGET else None
    return None


def _target(subject: Subject) -> str:
    return f"sm_{subject.hardware.sm}"


def hint_setting(
    subject: Subject, kernel: Kernel, hint: str, value: int
) -> Callable[[cst.Decorator], cst.Decorator]:
    """The edit of a kernel's decorator that gives it a hint; what other GPUs are given stays."""
    by_target = _by_target(subject, _given(kernel, hint))
    text = str(value)
    if by_target is not None:
        text = cst.Module([]).code_for_node(with_keyword(by_target, _target(subject), text))

    def edit(decorator: cst.Decorator) -> cst.Decorator:
        expression = decorator.decorator
        call = expression if isinstance(expression, cst.Call) else cst.Call(expression)
        return decorator.with_changes(decorator=with_keyword(call, hint, text))

    return edit
