"""Compares what a kernel's function did with a reference: shapes, dtypes, values, inputs kept.

The kernel's file is not imported here, unless the reference is one of its functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from tile_agent_pytest.tile_ir.calls import device, load
from tile_agent_pytest.tile_ir.closeness import Tolerance
from tile_agent_pytest.tile_ir.inputs import flattened, make

Message = dict[str, Any]
NAMED = 8
"""Results that are named where there are more or fewer than the reference gives."""


def reference_of(named: Message) -> Callable[[dict[str, Any]], Any]:
    """An expression over the arguments' names and `torch`, or a function of a file: by their names
    where it has them all, else by their places in the function that is judged."""
    import torch

    if "expression" in named:
        code = compile(named["expression"], "--reference", "eval")
        return lambda made: eval(code, {"torch": torch, **made})
    function = getattr(load(named["file"], named["name"]), named["function"])
    return lambda made: _called(function, made)


def _called(function: Callable[..., Any], made: dict[str, Any]) -> Any:
    try:
        inspect.signature(function).bind(**made)
    except (TypeError, ValueError):  # other names, or those of a function that is not Python's
        return function(*made.values())
    return function(**made)


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
        in_double = {k: _doubled(v) for k, v in made.items()}
        before = {k: v.cpu().clone() for k, v in made.items() if isinstance(v, torch.Tensor)}
        with torch.no_grad():
            expected = _on_cpu(flattened(reference(made)))
        after = {k: v.cpu() for k, v in made.items() if isinstance(v, torch.Tensor)}
        exact = _exact(reference, in_double, expected)
        given = torch.load(folder / f"{number}-{index}.pt", weights_only=True)
        tolerance = Tolerance(job["rtol"], job["atol"])
        kept = {name for name, value in after.items() if _same_bytes(value, before[name])}
        problems, differences = _compared(given, expected, exact, after, kept, tolerance)
        largest = [max(column, default=0.0) for column in zip(*differences, strict=True)]
        absolute, relative = largest or (None, None)
        yield {"problems": problems, "max_abs_diff": absolute, "max_rel_diff": relative}


def _doubled(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(torch.float64, copy=True)  # the reference may change it in place
    return value.clone() if isinstance(value, torch.Tensor) else value


def _exact(
    reference: Callable[[dict[str, Any]], Any], in_double: dict[str, Any], expected: list[Any]
) -> list[Any]:
    """What the reference gives in float64, where it can do that; else what it gives anyway."""
    import torch

    try:
        with torch.no_grad():
            exact = _on_cpu(flattened(reference(in_double)))
    except Exception:  # it is somebody's own: it may want the dtypes of the case
        return expected
    return exact if [*map(_kind, exact)] == [*map(_kind, expected)] else expected


def _on_cpu(tensors: list[Any]) -> list[Any]:
    return [None if tensor is None else tensor.cpu() for tensor in tensors]


def _kind(tensor: Any) -> Any:
    return None if tensor is None else (tensor.shape, tensor.is_complex())


def _compared(
    given: Message,
    expected: list[Any],
    exact: list[Any],
    expected_after: dict[str, Any],
    kept: Collection[str],
    tolerance: Tolerance,
) -> tuple[list[str], list[tuple[float, float]]]:
    """What is wrong, and the largest differences of each pair that could be compared.

    What the reference leaves as it was, in `kept`, has to be as it was to the last bit. Where it
    gives None in the place of a result, that is not compared.
    """
    problems = [f"writes outside {name}" for name in given["broken"]]
    places = [*zip(given["results"], given["aliases"], strict=True)]
    count, wanted = len(expected), [*zip(expected, exact, strict=True)]
    if len(places) != count:  # it speaks of the tensors alone
        places = [(result, alias) for result, alias in places if result is not None]
    if len(places) != count:
        wanted = [(one, truth) for one, truth in wanted if one is not None]
    results = [result for result, _ in places]
    settled = {
        name
        for (result, name), (one, _) in zip(places, wanted, strict=False)
        if name is not None and one is not None and result.numel() == given["after"][name].numel()
    }
    if not results and given["changed"]:  # in place: what it changed are its results
        if expected:
            results = [given["after"][name] for name in given["changed"]]
            settled = set(given["changed"])
    elif not results:
        problems.append("returns nothing and changes none of its arguments")
    if len(results) != len(wanted):
        problems.append(
            f"gives {_described(results)}, the reference {count}: let it give as many in a "
            "tuple, None for what is not to be compared"
        )
    pairs = [
        (f"result {n}", result, one, truth)
        for n, (result, (one, truth)) in enumerate(zip(results, wanted, strict=False))
        if one is not None
    ]
    if expected and all(one is None for one in expected):
        problems.append("the reference gives None for each result: let it say what one has to be")
    for name, after in expected_after.items():
        if name in settled:
            continue
        here = given["after"][name]
        if name in kept and not _same_bytes(here, after):
            problems.append(f"argument {name} after the call: {_changed(here, after)}")
        elif name not in kept:
            pairs.append((f"argument {name} after the call", here, after, after))
    differences: list[tuple[float, float]] = []
    for what, one, other, truth in pairs:
        if one is None:
            problems.append(f"{what}: is no tensor, and the reference is")
            continue
        problem, difference = tolerance.difference(one, other, truth)
        if problem is not None:
            problems.append(f"{what}: {problem}")
        if difference is not None:
            differences.append(difference)
    return problems, differences


def _same_bytes(one: Any, other: Any) -> bool:
    import torch

    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = (tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other))
    return bool(torch.equal(one, other))


def _changed(here: Any, after: Any) -> str:
    """How much of an argument is not as it was, which the reference leaves alone."""
    import torch

    size = after.element_size()
    bytes_ = (tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (here, after))
    one, other = (tensor.view(-1, size) for tensor in bytes_)
    changed = int((one != other).any(dim=1).sum())
    return f"{changed} of {after.numel()} elements are changed, which the reference leaves alone"


def _described(results: list[Any]) -> str:
    """How many there are, and the first few: a tensor's dtype and shape, or a number."""
    if not results:
        return "no result"
    named = [_short(result) for result in results[:NAMED]]
    more = [f"{len(results) - NAMED} more"] if len(results) > NAMED else []
    count = f"{len(results)} result{'s' if len(results) > 1 else ''}"
    return f"{count} ({', '.join([*named, *more])})"


def _short(result: Any) -> str:
    if result is None or not result.dim():
        return "no tensor" if result is None else f"{result.item():g}"
    return f"{str(result.dtype).removeprefix('torch.')}{[*result.shape]}"
