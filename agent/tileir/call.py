"""What `verify` and `bench` call: a function of the kernel's file, with which arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.operations import entry_kernels
from agent.errors import UsageError
from agent.syntax import Function, Source

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64",
    "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
DEFAULT_DTYPE = "float32"
DEFAULT_SIZES = (128, 1024, 8192)
"""Small, medium and large, as the skill has them."""
APPLY, FORWARD = "apply", "forward"
"""Of an autograd function: what is called, and what that runs, after a context."""
RAGGED = 1
"""`verify` also tries each size less this, so that masks are tested."""


@dataclass(frozen=True)
class Case:
    """One call."""

    label: str
    shapes: Mapping[str, tuple[int, ...]]
    size: int | None = None
    """What the letters of its shapes stand for; None where they have none."""


@dataclass(frozen=True)
class KernelCall:
    """A function of the file and the arguments it is called with."""

    function: str
    kernels: tuple[str, ...]
    """Those of the file, of which at least one has to be launched."""
    arguments: tuple[Mapping[str, Any], ...]
    """In order: a `name` with its `value`, or with its `dtype` where it is a tensor."""
    cases: tuple[Case, ...]

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of its tensors, each once."""
        return tuple(dict.fromkeys(a["dtype"] for a in self.arguments if "dtype" in a))


def read_call(
    source: Source,
    *,
    function: str | None,
    shapes: str,
    dtypes: str | None,
    sizes: Sequence[int] = (),
    ragged: bool = False,
) -> KernelCall:
    """Read the command line's arguments.

    Args:
        source: the kernel's file.
        function: what is called; the one that launches when not given.
        shapes: JSON, argument -> its shape, several shapes of it, or a plain value. A name in a
            shape, as in `["N", 4096]`, stands for each of the sizes.
        dtypes: JSON, argument -> dtype; float32 where it names none.
        sizes: what names in shapes stand for.
        ragged: try each size less one as well.

    Raises:
        UsageError: what is wrong and how to mend it.
    """
    name, wrapper, parameters = _function(source, function)
    given = _object(shapes, "--shapes", '{"x": [4096, 1024]}')
    types = _object(dtypes or "{}", "--dtypes", '{"x": "bfloat16"}')
    _check_names(name, wrapper, parameters, given)
    given = _in_order(parameters, given)
    if name != wrapper.name:
        given = _in_places(name, parameters, given)
    tensors = {n: v for n, v in given.items() if isinstance(v, list)}
    if wrong := next((n for n in types if n not in tensors), None):
        raise UsageError(f"--dtypes names {wrong}, to which --shapes gives no shape")
    if wrong := next((t for t in types.values() if t not in DTYPES), None):
        raise UsageError(f"--dtypes: {wrong} is none of {', '.join(DTYPES)}")
    arguments = tuple(
        {"name": n, "dtype": types.get(n, DEFAULT_DTYPE)} if n in tensors else
        {"name": n, "value": v}
        for n, v in given.items()
    )  # fmt: skip
    if not tensors:
        raise UsageError("--shapes gives no tensor: name one, such as '{\"x\": [4096, 1024]}'")
    kernels = tuple(k.name for k in entry_kernels(source))
    return KernelCall(name, kernels, arguments, _cases(tensors, sizes, ragged=ragged))


def _function(source: Source, name: str | None) -> tuple[str, Function, tuple[cst.Param, ...]]:
    """What is called, the function of the file that this runs, and the parameters to be given."""
    by_name = {f.name: f for f in source.functions}
    owner, _, method = (name or "").rpartition(".")
    forward = by_name.get(f"{owner}.{FORWARD}") if method in (APPLY, FORWARD) else None
    if forward is not None and f"{owner}.{APPLY}" not in by_name and _is_static(forward):
        return f"{owner}.{APPLY}", forward, forward.parameters[1:]
    if name is not None and name not in by_name:
        raise UsageError(f"--function {name}: {source.path} has no such function")
    found = by_name[name] if name is not None else _launching(source, by_name)
    return found.name, found, found.parameters


def _is_static(function: Function) -> bool:
    """Whether it is a static method, as `forward` of an autograd function is, and of no module."""
    decorators = (each.decorator for each in function.node.decorators)
    return any(isinstance(d, cst.Name) and d.value == "staticmethod" for d in decorators)


def _launching(source: Source, by_name: Mapping[str, Function]) -> Function:
    """The one that launches."""
    launching = dict.fromkeys(
        where for k in TRITON.functions(source) for where in k.launched_from if where in by_name
    )
    launching = {f: None for f in launching if "." not in f}
    if "kernel_fn" in by_name:
        return by_name["kernel_fn"]
    if len(launching) != 1:
        raise UsageError(
            f"--function: name the one to call of {', '.join(launching)}, which launch kernels of "
            f"{source.path}"
            if launching
            else f"--function: name the one to call; none of {source.path} launches its kernels by "
            "name"
        )
    return by_name[next(iter(launching))]


def _in_order(parameters: Sequence[cst.Param], given: Mapping[str, Any]) -> dict[str, Any]:
    """As the function has them: a reference may take them by their places."""
    names = (p.name.value for p in parameters if p.name.value in given)
    return {**{name: given[name] for name in names}, **given}


def _in_places(
    name: str, parameters: Sequence[cst.Param], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments in the order of the parameters: torch takes them by their places alone."""
    names = [p.name.value for p in parameters]
    last = max((names.index(n) for n in given if n in names), default=-1)
    if lacking := next((n for n in names[: last + 1] if n not in given), None):
        raise UsageError(f"--shapes lacks {lacking}: {name} takes its arguments by their places, "
                         "so give all before the last")  # fmt: skip
    return {n: given[n] for n in names[: last + 1]}


def _check_names(
    name: str, wrapper: Function, parameters: Sequence[cst.Param], given: Mapping[str, Any]
) -> None:
    names = [p.name.value for p in parameters]
    takes_more = wrapper.node.params.star_kwarg is not None
    if wrong := next((n for n in given if n not in names and not takes_more), None):
        raise UsageError(f"--shapes names {wrong}; {name} takes {', '.join(names)}")
    missing = [p.name.value for p in parameters if p.default is None]
    if lacking := next((n for n in missing if n not in given), None):
        raise UsageError(f"--shapes lacks {lacking}, which {name} needs: give it a shape, "
                         "or a value")  # fmt: skip


def _object(text: str, option: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as problem:
        raise UsageError(f"{option} is no JSON ({problem}): write it as {example}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{option} has to be a JSON object: write it as {example}")
    return value


def _cases(
    tensors: Mapping[str, list[Any]], sizes: Sequence[int], *, ragged: bool
) -> tuple[Case, ...]:
    several = {n: v for n, v in tensors.items() if v and all(isinstance(e, list) for e in v)}
    counts = {len(v) for v in several.values()}
    if len(counts) > 1:
        raise UsageError(f"--shapes gives {sorted(counts)} shapes: give every tensor as many")
    cases: list[Case] = []
    for number in range(counts.pop() if counts else 1):
        shapes = {n: several[n][number] if n in several else v for n, v in tensors.items()}
        letters = {e for shape in shapes.values() for e in shape if isinstance(e, str)}
        tried = list(sizes) or [*DEFAULT_SIZES]
        if ragged:
            tried = [n for size in tried for n in (size, size - RAGGED) if n > 0]
        cases += [_case(shapes, size) for size in (tried if letters else [None])]
    return tuple(cases)


def _case(shapes: Mapping[str, list[Any]], size: int | None) -> Case:
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        edges = [size if isinstance(edge, str) else edge for edge in shape]
        if wrong := next((e for e in edges if isinstance(e, bool) or not isinstance(e, int)
                          or e < 0), None):  # fmt: skip
            raise UsageError(f"--shapes: {wrong!r} in the shape of {name} is no extent")
        found[name] = tuple(int(edge) for edge in edges if edge is not None)
    label = ", ".join(f"{n} {'x'.join(map(str, shape)) or '()'}" for n, shape in found.items())
    return Case(label, found, size)


def read_sizes(text: str | None) -> tuple[int, ...]:
    """The sizes of `--sizes 128,1024`; none where it was not given.

    Raises:
        UsageError: one of them is no size.
    """
    parts = [part.strip() for part in text.split(",")] if text else []
    if wrong := next((p for p in parts if not p.isdigit() or int(p) < 1), None):
        raise UsageError(f"--sizes: {wrong!r} is no size: write them as 128,1024,8192")
    return tuple(int(part) for part in parts)
