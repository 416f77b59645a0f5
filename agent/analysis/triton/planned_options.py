"""Options of a Triton kernel that its host plans by, so that no other value may stand for them.

A host that compiles the kernel beforehand asks how many registers a program takes, and launches as
many programs as fit: `regs // (kernel.n_regs * 32 * num_warps)`. With other warps the kernel would
run, but on a grid for those that it no longer has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.syntax import Source, descendants

WARMUP = "warmup"
"""The method that compiles a kernel and launches nothing."""


def why_planned(source: Source, kernel: Kernel, names: Collection[str]) -> str:
    """That the host plans by one of some options, in words; empty where it does not."""
    return next(_planned(source, kernel, names), "")


def _planned(source: Source, kernel: Kernel, names: Collection[str]) -> Iterator[str]:
    for mention in (*source.mentions(kernel.function), *_other_names(source, kernel)):
        taken, around, *_ = source.ancestors(mention)
        if not (isinstance(taken, cst.Attribute) and taken.attr.value == WARMUP):
            continue
        if not isinstance(around, cst.Call) or around.func is not taken:
            continue
        given = [a.keyword.value for a in around.args if a.keyword and a.keyword.value in names]
        if given:
            line = source.line(around)
            yield (
                f"line {line} compiles {kernel.name} with {' and '.join(given)} of its own, and "
                "what the host computes of that may be for no other"
            )
    for launch in kernel.launches:
        for name in names:
            yield from _computed_with(source, launch, name)


def _other_names(source: Source, kernel: Kernel) -> Iterator[cst.Name]:
    """Where names are read by which launches have the kernel, as the parameter of a helper."""
    names = {name.value for name in source.mentions(kernel.function)}
    for launch in kernel.launches:
        for name in descendants(launch.node.func, cst.Name):
            for assignment in source.assignments(name) if name.value not in names else ():
                yield from source.uses(assignment)


def _computed_with(source: Source, launch: Launch, name: str) -> Iterator[str]:
    """Where the host computes something else with the name that a launch gives for an option."""
    given = launch.hints.get(name)
    if not isinstance(given, cst.Name):
        return
    for assignment in source.assignments(given):
        for use in source.uses(assignment):
            if use is not given and _is_computed_with(source, use):
                yield (
                    f"line {source.line(use)} computes with `{use.value}`, which the launch at "
                    f"line {source.line(launch.node)} gives for {name}"
                )


def _is_computed_with(source: Source, use: cst.Name) -> bool:
    """Whether a name is part of a sum or a product that is no new value of its own."""
    in_operation = False
    for around in source.ancestors(use):
        match around:
            case cst.BinaryOperation():
                in_operation = True
            case cst.Arg(keyword=cst.Name()):
                return False
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
                return in_operation and name != use.value
            case cst.BaseSmallStatement() | cst.BaseStatement():
                return in_operation
    return in_operation
