"""Every cuTile entry keeps the numbers of its example, run on the CPU before and after."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.playbook import for_backend
from agent.playbook.base import Optimization
from agent.playbook.trial import TileTrial
from agent.proposers.playbook import edited
from agent.syntax import Source

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from tests.support.tile_cpu import result_of  # noqa: E402

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
TF32 = 2e-3


def trial_of(entry: Optimization) -> TileTrial:
    assert isinstance(entry.trial, TileTrial)
    return entry.trial


FULL = pytest.mark.full
CASES = [
    pytest.param(
        entry, dtype, id=f"{entry.name}-{dtype}", marks=() if dtype == torch.float32 else FULL
    )
    for entry in for_backend("cutile")
    for dtype in TOLERANCE
    if dtype == torch.float32 or not trial_of(entry).fp32_only
]


@pytest.mark.parametrize(("entry", "dtype"), CASES)
def test_numbers_are_kept(entry: Optimization, dtype: Any, tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(sum(entry.name.encode()))
    function, parameters = host_function(entry.before)
    subject = Subject(Source(entry.before), KernelClass.MEMORY, Hardware())
    texts = [entry.after, *(edited(entry, subject, params) for params in entry.variants(subject))]
    for _ in range(2):
        arguments = made(entry, parameters, dtype, random)
        expected = result_of(entry.before, function, arguments, tmp_path)
        assert expected.float().abs().max() > 0
        for text in dict.fromkeys(texts):
            found = result_of(text, function, arguments, tmp_path)
            assert found.shape == expected.shape
            if entry.changes_rounding:
                tolerance = TF32 if entry.name == "tf32-guard" else TOLERANCE[dtype]
                torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
            else:
                assert torch.equal(found, expected)


def host_function(text: str) -> tuple[str, tuple[str, ...]]:
    """The example's function that launches, and its parameters."""
    functions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    last = functions[-1]
    assert not last.decorator_list
    return last.name, tuple(a.arg for a in last.args.args)


def made(
    entry: Optimization, parameters: tuple[str, ...], dtype: Any, random: Any
) -> tuple[Any, ...]:
    """Arguments of random shapes, most of which end within a tile.

    Products are of small integers, so that no order of summation rounds.
    """
    trial = trial_of(entry)
    m = trial.rows_of * int(torch.randint(3, 30, (), generator=random))
    n, k = (int(x) for x in torch.randint(65, 400, (2,), generator=random))
    if parameters == ("a", "b"):
        shapes = ((m * 5, k), (k, n))
        return tuple(torch.randint(-3, 4, shape, generator=random).to(dtype) for shape in shapes)
    values: dict[str, Any] = {
        "x": torch.randn((m, trial.columns or n), generator=random).to(dtype),
        "factor": 1.5,
        "eps": 1e-6,
    }
    return tuple(values[name] for name in parameters)
