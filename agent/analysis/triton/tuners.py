"""How a kernel's `@triton.autotune` reads: what stands in it, and its key."""

from __future__ import annotations

import ast

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable
from agent.syntax import Source, argument, keyword


def tuner_of(source: Source, kernel: Kernel) -> cst.Call:
    """The call of `triton.autotune` above a kernel. Raises `NotApplicable` where there is none."""
    decorator = source.decorator(kernel.function, "triton.autotune")
    if decorator is None or not isinstance(decorator.decorator, cst.Call):
        raise NotApplicable(f"{kernel.name} is not autotuned")
    return decorator.decorator


def check_any_will_do(source: Source, tuner: cst.Call) -> None:
    """Raise `NotApplicable` unless a tuner may choose any of its configs for any launch.

    Where `prune_configs_by` leaves some out by the sizes of a launch, which of them may run is more
    than a matter of speed.
    """
    line = source.line(tuner)
    if any(arg.star for arg in tuner.args):
        raise NotApplicable(f"the tuner at line {line} hides arguments behind a `*`")
    if keyword(tuner, "prune_configs_by") is not None:
        raise NotApplicable(f"the tuner at line {line} leaves out configs by the sizes of a launch")


def key_of(source: Source, tuner: cst.Call) -> tuple[cst.List, tuple[str, ...]]:
    """The list that a tuner's key is, and the parameters that it names.

    Raises:
        NotApplicable: it is no list of names that stands there.
    """
    listed = argument(tuner, 1, "key")
    if isinstance(listed, cst.List):
        elements = [element.value for element in listed.elements]
        if all(isinstance(element, cst.SimpleString) for element in elements):
            return listed, tuple(str(ast.literal_eval(source.code(e))) for e in elements)
    raise NotApplicable(f"the key of the tuner at line {source.line(tuner)} is no list of names")
