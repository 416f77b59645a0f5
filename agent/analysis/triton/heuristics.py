"""Whether a kernel may become what `@triton.heuristics` makes of it, for all who use it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON, WRAPPERS
from agent.syntax import Source

LAUNCHED_BY = ("run", "warmup")
"""Attributes that a kernel has behind a heuristic, too."""


def why_no_heuristics(source: Source, kernel: Kernel) -> str:
    """What uses a kernel as nothing with heuristics can be used, in words; empty for nothing."""
    return next(_obstacles(source, kernel), "")


def check_heuristics(source: Source, kernel: Kernel) -> None:
    """Raise `NotApplicable` where a kernel is used as nothing with heuristics can be."""
    if cannot := why_no_heuristics(source, kernel):
        raise NotApplicable(cannot)


def _obstacles(source: Source, kernel: Kernel) -> Iterator[str]:
    device = {k.function.node for k in TRITON.kernels(source)}
    for mention in source.mentions(kernel.function):
        around = source.enclosing(mention)
        parent, around_it, *_ = source.ancestors(mention)
        called = isinstance(parent, cst.Call) and parent.func is mention  # host code launches it
        if around is not None and (called or around.node in device):
            yield f"{around.name} calls {kernel.name}"
        if isinstance(around_it, cst.Call) and source.name(around_it.func) in WRAPPERS:
            yield f"line {source.line(mention)} wraps {kernel.name}, which takes no heuristics then"
        if not isinstance(parent, cst.Attribute) or parent.value is not mention:
            continue
        if parent.attr.value not in LAUNCHED_BY:
            yield f"line {source.line(mention)} takes {source.code(parent)}"
