"""The document that the search writes."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.search_report import best, expert, first_pass, origin, path, percent, report
from tests.benchmarks.test_tables import ENVIRONMENT


def record(
    evals: dict[tuple[str, ...], float | None], second: int = 100, **latencies_ms: float | None
) -> dict[str, Any]:
    """A search that measured these steps in this order, from `second` on in the second pass."""
    references = {"compiled": "torch.compile"}
    return {
        "config": "16 x 32 bfloat16",
        "environment": ENVIRONMENT,
        "experts": {"tilegym": "1.5.1"},
        "command": "python -m benchmarks.search OUT cutile",
        "method": "CUDA events, cold L2",
        "problem": None,
        "faults": {},
        "spent_s": 250.0,
        "references": {
            references.get(name, name): {"latency_ms": ms, "error": 0.0}
            if ms
            else {"latency_ms": None, "why": "ImportError: no module | tilegym"}
            for name, ms in latencies_ms.items()
        },
        "evals": {
            str(i): {"latency_ms": ms, "steps": list(steps), "pass": (i > 0) + (i >= second)}
            | ({} if ms else {"why": "OutOfResources: shared memory"})
            for i, (steps, ms) in enumerate(evals.items())
        },
    }


WAY: dict[tuple[str, ...], float | None] = {
    (): 1.0,
    ("occupancy hint (occupancy=2)",): 0.6,
    ("occupancy hint (occupancy=4)",): 0.5,
    ("occupancy hint (occupancy=4)", "tile sizes (N=8)"): None,
    ("occupancy hint (occupancy=4)", "store without TMA"): 0.6,
    ("occupancy hint (occupancy=4)", "static row length"): 0.4,
    ("occupancy hint (occupancy=4)", "static row length", "worker warps (n=8)"): 0.399,
    ("occupancy hint (occupancy=4)", "static row length", "rows a block (rows=8)"): 4.0,
    ("occupancy hint (occupancy=4)", "static row length", "tile sizes (N=4)"): 0.3,
}
SOFTMAX = record(WAY, 8, origin=1.01, torch=0.5, compiled=0.303, TileGym=0.33, fast=0.2, other=None)


def test_a_path_tells_what_each_step_gained() -> None:
    steps = [(step.name, round(step.gain, 3), step.latency_ms) for step in path(SOFTMAX)]
    assert steps == [
        ("occupancy hint (occupancy=4)", 0.5, 0.5),
        ("static row length", 0.2, 0.4),
        ("tile sizes (N=4)", 0.25, 0.3),
    ]


def test_a_path_takes_two_steps_at_once_where_one_was_not_timed() -> None:
    found = path(record({(): 1.0, ("a",): None, ("a", "b"): 0.5}))
    assert [(step.name, step.gain) for step in found] == [("a, b", 0.5)]


def test_of_two_ways_that_are_as_fast_the_shorter_is_told() -> None:
    found = path(record({(): 1.0, ("a",): 0.6, ("a", "b"): 0.5, ("c",): 0.5}))
    assert [step.name for step in found] == ["c"]


def test_an_origin_that_nothing_was_faster_than_has_no_path() -> None:
    slower = record({(): 1.0, ("a",): 1.2})
    assert (path(slower), origin(slower), best(slower)) == ([], 1.0, 1.0)
    assert "- softmax: nothing was faster." in report({"cutile/softmax": slower})


def test_the_first_pass_has_the_best_variant_of_each_entry() -> None:
    assert first_pass(SOFTMAX) == {
        "occupancy hint": pytest.approx(0.5),
        "store without TMA": pytest.approx(-0.2),
        "static row length": pytest.approx(0.2),
        "worker warps": pytest.approx(0.0025),
        "rows a block": pytest.approx(-9.0),
    }


def test_the_fastest_expert_is_the_one_compared_with() -> None:
    assert expert(SOFTMAX) == ("fast", 0.2)
    assert expert(record(WAY, torch=0.5)) == ("", None)


def test_shares_are_told_to_a_tenth_of_a_percent() -> None:
    assert [percent(share) for share in (0.7391, -0.0001, 0.0, -0.5, -9.0)] == [
        *("+73.9 %", "+0.0 %", "+0.0 %", "-50.0 %", "10.0x as long"),
    ]


def test_the_document() -> None:
    even = record({(): 0.5, ("a",): 0.25}, torch=0.5, compiled=0.2, origin=0.5)
    even["faults"] = {"b (n=1)": "KeyError: 'n'"}
    text = report({"cutile/softmax": SOFTMAX, "cutile/rope": even, "triton/softmax": even})
    lines = text.splitlines()
    assert lines[0].startswith("# ")
    assert text.count("python -m benchmarks.search OUT cutile") == 1
    assert "Measured on: NVIDIA H200, driver 580.1; torch 2.11.0; cuda-tile 1.7.0; tilegym" in text
    cutile = lines[lines.index("## cuTile") : lines.index("## Triton")]
    row = "| softmax | 16 x 32 bfloat16 | 1.0000 | 0.3000 | 0.5000 | 0.3030 | 0.2000 | fast "
    assert f"{row}| 3.33x | 1.01x | 0.67x | 7 |" in cutile
    row = "| rope | 16 x 32 bfloat16 | 0.5000 | 0.2500 | 0.5000 | 0.2000 | - | - "
    assert f"{row}| 2.00x | 0.80x | - | 1 |" in cutile
    assert "- Geometric mean over the origin: **2.58x** (2 kernels)." in cutile
    assert "- No slower than the fastest expert, within 2%: **0 of 1**; faster by" in text
    assert "- No slower than torch.compile, within 2%: **1 of 2**; faster by" in text
    assert "0.5% in the median kernel and by 1.0% in softmax, the most." in text
    path_line = next(line for line in cutile if line.startswith("- softmax: occupancy"))
    assert path_line.endswith("static row length +20.0 %; **tile sizes (N=4) +25.0 %**.")
    assert "| rows a block | 1 | softmax 10.0x as long |" in cutile
    assert "- softmax, other: ImportError: no module | tilegym" in cutile
    assert "- softmax, 1 of 9 versions: OutOfResources." in cutile
    assert "- rope, b (n=1) is at fault: KeyError: 'n'" in cutile


def test_a_kernel_that_could_not_be_timed_says_why() -> None:
    problem = record({}) | {"problem": "the process that times ended with 1"}
    text = report({"triton/softmax": problem})
    assert "- softmax: the process that times ended with 1" in text
    assert "| kernel |" not in text
