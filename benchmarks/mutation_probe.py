"""Whether a mutant computes what its origin does: copied beside both, and run as a test of theirs.

It calls both wrappers with the same arguments, of every shape that the kernel's tests name and, in
the interpreter, of a small one in place of those that are timed. What an allocation holds before
it is written is not a number, so that a result that was never written shows. The test passes
whatever it finds, and tells it as the property `effect`: the worst of `EFFECTS`.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

EFFECTS = ("none", "rounding", "result")
"""The same bits; as close as another order of the same operations may be; another result.

Close is what lies within rounding of the origin's, and what is at most twice as far from the result
in fp64 as the origin's.
"""
HERE = Path(__file__).resolve().parent
SETTINGS = "mutation_probe.json"
ORIGIN = "mutation_origin.py"
REFERENCE = "mutation_reference.py"
"""The benchmark's reference of the kernel, where it has one."""
RTOL = {
    torch.float32: 2**-16,
    torch.float16: 2**-9,
    torch.bfloat16: 2**-6,
    torch.float8_e4m3fn: 2**-2,
}
"""Two units in the last place; in fp32, where sums differ by their order, some hundred."""
ATOL = 2**-18
"""Of the largest value of a tensor: what a cancellation leaves of it in fp32."""


def test_probe(record_property: Callable[[str, object], None]) -> None:
    """Compare at every shape until a result differs."""
    settings = json.loads((HERE / SETTINGS).read_text())
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills what `torch.empty` gives
    tests = _load(HERE / settings["tests"])
    maker = getattr(_load(HERE / settings["inputs"][0]), settings["inputs"][1])
    mutant = getattr(importlib.import_module(settings["wrapper"]), settings["wrapper"])
    origin = getattr(_load(HERE / ORIGIN), settings["wrapper"])
    worst, where = 0, ""
    for given in _shapes(tests, maker, settings["small"]):
        known = inspect.signature(maker).parameters
        made = maker(**{name: value for name, value in given.items() if name in known})
        arguments = made if isinstance(made, tuple) else (made,)
        extra = {
            name: value
            for name, value in given.items()
            if name not in known and name in inspect.signature(origin).parameters
        }
        effect = _effect(origin, mutant, arguments, extra)
        if effect > worst:
            worst, where = effect, ", ".join(f"{name}={value}" for name, value in given.items())
        if worst == len(EFFECTS) - 1:
            break
    record_property("effect", EFFECTS[worst])
    record_property("where", where)


def _shapes(
    tests: ModuleType, maker: Callable[..., Any], small: list[int] | None
) -> Iterator[dict[str, Any]]:
    """What the tests are called with, where that makes arguments; the timed shapes first."""
    needed = [
        name
        for name, parameter in inspect.signature(maker).parameters.items()
        if parameter.default is inspect.Parameter.empty
    ]
    found: list[dict[str, Any]] = []
    if small:
        found.append(dict(zip(needed, [*small, torch.float16], strict=True)))
    names = [name for name in vars(tests) if name.startswith("test_")]
    for name in sorted(names, key=lambda name: not name.startswith("test_perf")):
        if not (small and name.startswith("test_perf")):
            found += [given for given in _parametrized(vars(tests)[name]) if {*needed} <= {*given}]
    seen = set()
    for given in found:
        if (key := repr(sorted(given.items(), key=str))) not in seen:
            seen.add(key)
            yield given


def _parametrized(test: object) -> Iterator[dict[str, Any]]:
    """The parameters of each call of a test."""
    axes = []
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names, values = mark.args
            names = [n.strip() for n in names.split(",")] if isinstance(names, str) else names
            rows = [getattr(value, "values", value) for value in values]
            axes.append([dict(zip(names, _row(row, len(names)), strict=True)) for row in rows])
    for parts in itertools.product(*axes):
        yield {name: value for part in parts for name, value in part.items()}


def _row(value: Any, count: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) and count > 1 else (value,)


def _effect(
    origin: Callable[..., Any],
    mutant: Callable[..., Any],
    arguments: tuple[Any, ...],
    extra: dict[str, Any],
) -> int:
    """Index into `EFFECTS`; a race may need a second call to show."""
    expected = _tensors(origin(*map(_copy, arguments), **extra))
    worst = 0
    for _ in range(2 if torch.cuda.is_available() else 1):
        given = tuple(map(_copy, arguments))
        actual = _tensors(mutant(*given, **extra))
        if len(actual) != len(expected):
            return 2
        pairs = zip(expected, actual, strict=True)
        kept = zip(_tensors(arguments), _tensors(given), strict=True)
        distance = max(_distance(*pair) for pair in pairs)
        if distance == 2 and _is_as_good(arguments, extra, expected, actual):
            distance = 1
        worst = max(worst, distance)
        if any(_distance(*pair) for pair in kept):  # an argument that is written over
            return 2
    return worst


def _distance(expected: torch.Tensor, actual: torch.Tensor) -> int:
    """Index into `EFFECTS`."""
    if (expected.shape, expected.dtype) != (actual.shape, actual.dtype):
        return 2
    if torch.equal(_bits(expected), _bits(actual)):
        return 0
    if not expected.is_floating_point():
        return 2
    one, other = expected.float(), actual.float()
    if bool(((one == other) | (one.isnan() & other.isnan())).all()):
        return 0
    if not torch.equal(one.isfinite(), other.isfinite()):
        return 2
    finite = one.isfinite()
    if not torch.equal(one[~finite].nan_to_num(0.0), other[~finite].nan_to_num(0.0)):
        return 2
    one, other = one[finite], other[finite]
    allowed = RTOL[expected.dtype] * one.abs() + ATOL * one.abs().max()
    return 1 if bool(((one - other).abs() <= allowed).all()) else 2


def _is_as_good(
    arguments: tuple[Any, ...],
    extra: dict[str, Any],
    expected: tuple[torch.Tensor, ...],
    actual: tuple[torch.Tensor, ...],
) -> bool:
    """Whether a result is about as far from the one in fp64 as the origin's."""
    if not (HERE / REFERENCE).is_file():
        return False
    wide = (a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a
            for a in arguments)  # fmt: skip
    right = _tensors(_load(HERE / REFERENCE).torch_version(*wide, **extra))
    for exact, one, other in zip(right, expected, actual, strict=True):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return False
        off, other_off = ((each.double() - exact.double()).abs() for each in (one, other))
        good = (other_off.max() <= 2 * off.max()) & (other_off.norm() <= 2 * off.norm())
        if not bool(good):  # nor where one of them is not a number
            return False
    return True


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _tensors(result: Any) -> tuple[torch.Tensor, ...]:
    values = result if isinstance(result, tuple | list) else (result,)
    return tuple(value for value in values if isinstance(value, torch.Tensor))


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _load(path: Path) -> ModuleType:
    """A file as a module of a name of its own; Triton reads the source of a kernel again."""
    name = f"_probed_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
