"""Compile evidence for a person."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from agent.evidence.advice import suggestions
from agent.evidence.compare import changes, ignored_options, pairs
from agent.evidence.model import Artifact, CompiledLaunch, NotCompiled, Result
from agent.launches import ObservedTensor

INDENT = "  "
TRITON_TYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "bool": "i1",
}
"""PyTorch's name -> Triton's."""


def lines(results: Sequence[Result], multiplying: Collection[str]) -> Iterator[str]:
    """Every result, by launch; what several launches in a row have in common is told once.

    Args:
        results: in the order of the launches.
        multiplying: names of the kernels whose source asks for matrix products.
    """
    above: CompiledLaunch | None = None
    told: dict[str, list[str]] = {}
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
                continue
            code = list(_artifact(result, multiplies=launch.kernel in multiplying))
            if told.get(result.target) == code:
                yield f"{INDENT}{result.target}: as above"
            else:
                yield from code
            told[result.target] = code


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
    tensors = launch.observed.tensors if launch.observed else {}
    in_head = {name for name, _ in launch.options}
    groups: dict[str, list[str]] = {}
    for name, told in launch.arguments:
        if told.startswith("= "):
            in_head.add(name)
        elif name not in tensors or told not in _as_given(tensors[name]):
            groups.setdefault(told, []).append(name)
    yield from (f"{INDENT}{', '.join(names)}: {told}" for told, names in groups.items())
    if launch.observed is not None:
        yield from (f"{INDENT}given {line}" for line in launch.observed.given(in_head))


def _as_given(tensor: ObservedTensor) -> tuple[str, str]:
    """What cuTile and Triton tell their compilers of a tensor that shows itself."""
    divisible = ", divisible by 16" if tensor.aligned else ""
    triton = TRITON_TYPES.get(tensor.dtype, "?")
    return f"{len(tensor.shape)}-dimensional {tensor.dtype}", f"*{triton}{divisible}"


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
