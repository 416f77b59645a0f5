"""Compile evidence for a person."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from agent.evidence.advice import suggestions
from agent.evidence.compare import changes, ignored_options, pairs
from agent.evidence.model import Artifact, CompiledLaunch, NotCompiled, Result

INDENT = "  "


def lines(results: Sequence[Result], multiplying: Collection[str]) -> Iterator[str]:
    """Every result, by launch; arguments that several configs in a row are given are told once.

    Args:
        results: in the order of the launches.
        multiplying: names of the kernels whose source asks for matrix products.
    """
    above: CompiledLaunch | None = None
    for launch, group in groupby(results, key=lambda result: result.launch):
        yield _head(launch)
        if above is not None and _given(launch) == _given(above):
            yield f"{INDENT}arguments as above"
        else:
            yield from _arguments(launch)
        above = launch
        for result in group:
            if isinstance(result, NotCompiled):
                yield f"{INDENT}{result.target}: {result.reason}"
            else:
                yield from _artifact(result, multiplies=launch.kernel in multiplying)


def difference(before: Sequence[Result], after: Sequence[Result]) -> Iterator[str]:
    """What changed, launch by launch."""
    for old, new in pairs(before, after):
        head = f"{new.launch} for {new.target}"
        if isinstance(new, NotCompiled) or isinstance(old, NotCompiled):
            was, now = (
                "compiles" if isinstance(result, Artifact) else "does not compile"
                for result in (old, new)
            )
            yield f"{head}: {now}" if was == now else f"{head}: {was} -> {now}"
        elif options := ignored_options(old, new):
            yield f"{head}: the same code; no effect: {', '.join(options)}"
        else:
            yield f"{head}: {'; '.join(changes(old, new)) or _same(old, new)}"


def _same(before: Artifact, after: Artifact) -> str:
    return "the same code" if before.digest == after.digest else "other code of the same kind"


def _head(launch: CompiledLaunch) -> str:
    grid = " x ".join(map(str, launch.grid))
    return str(launch) + (f", grid {grid}" if grid else "")


def _given(launch: CompiledLaunch) -> tuple[object, ...]:
    """What `_arguments` tells and the head does not: all but constants and the compiler's options.

    The head leaves out an option that has its default.
    """
    typed = [(name, told) for name, told in launch.arguments if not told.startswith("= ")]
    constants = {name for name, told in launch.arguments if told.startswith("= ")}
    seen = launch.observed
    given = {n: v for n, v in seen.integers.items() if n not in constants} if seen else {}
    return launch.kernel, launch.test, typed, seen and seen.tensors, given


def _arguments(launch: CompiledLaunch) -> Iterator[str]:
    if launch.captured:
        yield f"{INDENT}as {launch.test} launches it"
    elif launch.observed is not None:
        yield f"{INDENT}as it is launched while the tests are imported"
    else:
        yield f"{INDENT}as its source suggests; no test was seen to launch it"
    groups: dict[str, list[str]] = {}
    for name, told in launch.arguments:
        if not told.startswith("= "):
            groups.setdefault(told, []).append(name)
    yield from (f"{INDENT}{', '.join(names)}: {told}" for told, names in groups.items())
    if launch.observed is not None:
        yield from (f"{INDENT}given {line}" for line in launch.observed.arguments)


def _artifact(artifact: Artifact, *, multiplies: bool) -> Iterator[str]:
    spills = f"{artifact.stack_bytes} bytes spilled" if artifact.stack_bytes else "no spills"
    yield (
        f"{INDENT}{artifact.target}: {artifact.registers} registers, {spills}, "
        f"{artifact.shared_bytes} bytes of shared memory, {artifact.threads or '?'} threads"
    )
    deep = INDENT * 2
    if (found := artifact.occupancy) is not None:
        yield f"{deep}{found}"
    yield f"{deep}{artifact.instructions}"
    yield from (f"{deep}{remark}" for remark in artifact.remarks)
    yield from (f"{deep}{wait}" for wait in artifact.waits)
    yield from (f"{deep}-> {line}" for line in suggestions(artifact, multiplies=multiplies))
