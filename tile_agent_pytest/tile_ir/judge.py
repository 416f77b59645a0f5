"""Compares what a kernel's function did with a reference: shapes, dtypes, values, inputs kept.

The kernel's file is not imported here, unless the reference is one of its functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tile_agent_pytest.tile_ir.calls import device, load
from tile_agent_pytest.tile_ir.inputs import flattened, make

Message = dict[str, Any]

EXACT = (0.0, 0.0)
TOLERANCES: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "float32": (1e-3, 1e-3),
    "float16": (1e-2, 1e-2),
    "bfloat16": (2e-2, 2e-2),
}
"""dtype of a result -> its relative and absolute tolerance; all others have to be equal, but for
the 8-bit floating-point types."""
EIGHT_BIT = (0.125, 0.125)


def reference_of(named: Message) -> Callable[[dict[str, Any]], Any]:
    """An expression over the arguments' names and `torch`, or a function of a file."""
    import torch

    if "expression" in named:
        code = compile(named["expression"], "--reference", "eval")
        return lambda made: eval(code, {"torch": torch, **made})
    function = getattr(load(named["file"], named["name"]), named["function"])
    return lambda made: function(*made.values())


def judged(
    job: Message, number: int, reference: Callable[[dict[str, Any]], Any], folder: Path
) -> Iterator[Message]:
    """Compare what each call of a case did with the reference.

    Args:
        job: as `agent.harness.kernel_calls` writes it.
        number: of the case.
        reference: by `reference_of`.
        folder: where `tile_agent_pytest.tile_ir.calls.run` has kept what the calls did.

    Yields:
        The problems of a call, and its largest differences where there is something to compare.
    """
    import torch

    for index in range(len(list(folder.glob(f"{number}-*.pt")))):
        made = make(job["arguments"], job["cases"][number], device())
        with torch.no_grad():
            expected = [e.cpu() for e in flattened(reference(made))]
        after = {k: v.cpu() for k, v in made.items() if isinstance(v, torch.Tensor)}
        given = torch.load(folder / f"{number}-{index}.pt", weights_only=True)
        problems, differences = _compared(given, expected, after, job["rtol"], job["atol"])
        largest = [max(column, default=0.0) for column in zip(*differences, strict=True)]
        absolute, relative = largest or (None, None)
        yield {"problems": problems, "max_abs_diff": absolute, "max_rel_diff": relative}


def _compared(
    given: Message,
    expected: list[Any],
    expected_after: dict[str, Any],
    rtol: float | None,
    atol: float | None,
) -> tuple[list[str], list[tuple[float, float]]]:
    """What is wrong, and the largest differences of each pair that could be compared."""
    problems = [f"writes outside {name}" for name in given["broken"]]
    results: list[Any] = given["results"]
    settled = {name for name in given["aliases"] if name is not None}
    if not results and given["changed"]:  # in place: what it changed are its results
        if expected:
            results = [given["after"][name] for name in given["changed"]]
            settled = set(given["changed"])
    elif not results:
        problems.append("returns nothing and changes none of its arguments")
    if len(results) != len(expected) and (results or expected):
        problems.append(f"gives {_tensors(len(results))}, the reference {len(expected)}")
    pairs = [
        (f"result {n}", one, other)
        for n, (one, other) in enumerate(zip(results, expected, strict=False))
    ]
    for name, after in expected_after.items():
        if name not in settled:
            pairs.append((f"argument {name} after the call", given["after"][name], after))
    differences: list[tuple[float, float]] = []
    for what, one, other in pairs:
        problem, difference = _difference(one, other, rtol, atol)
        if problem is not None:
            problems.append(f"{what}: {problem}")
        if difference is not None:
            differences.append(difference)
    return problems, differences


def _difference(
    one: Any, other: Any, rtol: float | None, atol: float | None
) -> tuple[str | None, tuple[float, float] | None]:
    """What is wrong with a tensor, and its largest absolute and relative difference."""
    import torch

    if one.shape != other.shape:
        return f"has shape {list(one.shape)}, the reference {list(other.shape)}", None
    if one.dtype != other.dtype:
        return f"is {_name(one.dtype)}, the reference {_name(other.dtype)}", None
    if one.numel() == 0:
        return None, (0.0, 0.0)
    allowed = _tolerance(one.dtype)
    relative = allowed[0] if rtol is None else rtol
    absolute = allowed[1] if atol is None else atol
    wide = torch.complex128 if one.is_complex() else torch.float64
    a, b = one.to(wide), other.to(wide)
    same = (a == b) | (a.isnan() & b.isnan())
    gap = torch.where(same, 0.0, (a - b).abs())
    near = same | (gap <= absolute + relative * b.abs())
    finite = gap.isfinite()
    ratio = gap[finite] / b.abs()[finite].clamp_min(1e-12)
    largest = (_most(gap[finite]), _most(ratio))
    wrong = int((~near).sum())
    if not wrong:
        return None, largest
    place = [int(i) for i in (~near).nonzero()[0]]
    return (
        f"{wrong} of {one.numel()} elements differ by more than {absolute:g} + {relative:g} of "
        f"the reference, first at {place}: {one[tuple(place)].item():g}, not "
        f"{other[tuple(place)].item():g}",
        largest,
    )


def _most(values: Any) -> float:
    return float(values.max()) if values.numel() else 0.0


def _tolerance(dtype: Any) -> tuple[float, float]:
    name = _name(dtype)
    return EIGHT_BIT if name.startswith("float8") else TOLERANCES.get(name, EXACT)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _tensors(count: int) -> str:
    return f"{count} tensor" if count == 1 else f"{count} tensors"
