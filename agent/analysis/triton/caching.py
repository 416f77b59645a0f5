"""Reuse of a Triton kernel's loads: read once, or again by this program or by others."""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from agent.analysis.common.alternatives import are_alternatives
from agent.analysis.common.by_program import by_program, names_by_program
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.pointers import root
from agent.syntax import Source, argument, keyword

DECIDED = ("eviction_policy", "cache_modifier", "volatile")
"""Keywords with which the author has decided about a load."""


def kernels_that_stream(subject: Subject) -> list[Kernel]:
    """The launched kernels without a dot. Raises `NotApplicable` when there is none."""
    if subject.hardware.interpreted:
        raise NotApplicable("Triton's interpreter has no cache")
    launched = TRITON.chosen(subject.source)
    kernels = [k for k in launched if not TRITON.has_dot(subject.source, k)]
    if launched and not kernels:
        raise NotApplicable("blocks that multiply tiles share what they load")
    return kernels


def loads_by_use(subject: Subject, decided: Collection[str]) -> list[tuple[str, cst.Call]]:
    """The loads without any of some keywords: 'streamed', or 'reread'.

    Raises:
        NotApplicable: there is none.
    """
    found = [
        (kind, call)
        for kernel in kernels_that_stream(subject)
        for kind, call in _loads_of(subject.source, kernel)
        if all(keyword(call, name) is None for name in decided)
    ]
    if not found:
        raise NotApplicable("every tl.load has a policy already, or there is none")
    return found


def _loads_of(source: Source, kernel: Kernel) -> list[tuple[str, cst.Call]]:
    by_address: dict[tuple[str, str], list[cst.Call]] = {}
    for call in TRITON.find(source, kernel.function.node.body, ("triton.language.load",)):
        address = argument(call, 0, "pointer")
        if address is not None and (parameter := root(source, kernel, address)) is not None:
            by_address.setdefault((parameter, source.code(address)), []).append(call)
    names = names_by_program(TRITON, source, kernel.function)
    found: list[tuple[str, cst.Call]] = []
    for calls in by_address.values():
        for number, call in enumerate(calls):
            address = argument(call, 0, "pointer")
            own = address is not None and by_program(TRITON, source, address, names)
            again = any(not are_alternatives(source, call, later) for later in calls[number + 1 :])
            found.append(("streamed" if own and not again else "reread", call))
    return found
