"""The document that the benchmark writes."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.tables import by_kernel, gained_by, geometric_mean, latencies, most_gained_s, report

ENVIRONMENT = {
    "gpus": [{"name": "NVIDIA H200", "uuid": "GPU-0", "sm": 90, "driver": "580.1"}],
    "versions": {"torch": "2.11.0", "triton": None, "cuda-tile": "1.7.0", "numpy": "2.4"},
}


def timing(config: str = "16 x 32 bfloat16", **latencies_ms: float | str) -> dict[str, Any]:
    """A config with these latencies; a text instead of one is why there is none."""
    versions: dict[str, Any] = {}
    for name, found in latencies_ms.items():
        label = {"compiled": "torch.compile"}.get(name, name)
        if isinstance(found, str):
            versions[label] = {"latency_ms": None, "why": found}
        else:
            quartiles = [0.99 * found, 1.01 * found]
            versions[label] = {"latency_ms": found, "quartiles_ms": quartiles, "error": 0.00171}
    return {
        "config": config,
        "work": 2e9,
        "unit": "B",
        "method": "CUDA events, cold L2",
        "rounds": 30,
        "experts": {"tilegym": "1.5.1"},
        "versions": versions,
    }


def record(*timings: dict[str, Any], **others: Any) -> dict[str, Any]:
    """A run of three iterations, one of which is kept."""
    effect = {"improvement": 0.738, "low": 0.737, "high": 0.739}
    lost = {"improvement": -0.021, "low": -0.024, "high": -0.018}
    rows = [
        (0, "baseline", 0.5, "keep", "", None),
        (1, "occupancy hint (occupancy=4)", 0.125, "keep", "faster by +73.8 %", effect),
        (2, "load latency hint", 0.126, "revert", "slower", lost),
        (3, "tile sizes", None, "crash", "TILE_N | 512: does not compile", None),
    ]
    keys = ("iteration", "optimization", "latency_ms", "status", "reason", "effect")
    return {
        "rows": [dict(zip(keys, values, strict=True)) | {"correct": True} for values in rows],
        "skipped": [{"optimization": "num-ctas", "reason": "no launched kernel multiplies tiles"}],
        "notes": [],
        "stopped": "the playbook is exhausted",
        "kernel_class": "memory",
        "best_sha": "0" * 40,
        "faded": [],
        "final": effect,
        "spent_s": 99.5,
        "environment": ENVIRONMENT,
        "cut": False,
        "timings": list(timings),
        **others,
    }


def results(**kernels: dict[str, Any]) -> dict[str, Any]:
    """As `OUT/results.json` holds them."""
    keyed = {f"cutile/{name}": value for name, value in kernels.items()}
    return {"commands": ["python -m benchmarks.playbook OUT"] * 2, "kernels": keyed}


def table_rows(text: str) -> dict[str, list[str]]:
    """The rows of the first table, by their first cell."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("| kernel"))
    rows = {}
    for line in lines[begin:]:
        if not line.startswith("|"):
            break
        first, *rest = (cell.strip() for cell in line.strip("|").split("|"))
        rows[first] = rest
    return rows


def test_a_row_and_its_ratios() -> None:
    one = timing(origin=0.4, best=0.1, torch=0.2, compiled=0.11, TileGym=0.12, other=0.3)
    rows = table_rows(report(results(softmax=record(one))))
    assert rows["cutile/softmax"] == [
        *("16 x 32 bfloat16", "0.4000", "0.1000", "0.2000", "0.1100", "0.1200"),
        *("4.00x", "0.50x", "2.00x", "1.10x", "1.20x", "20 TB/s"),
    ]


def test_the_expert_is_the_fastest_of_the_experts_versions() -> None:
    found = timing(origin=0.01, TileGym=0.12, tma=0.08, persistent="ImportError: no tilegym")
    without = timing(origin=0.01, TileGym="ImportError")
    experts = latencies({"a": record(found), "b": record(without)})["expert"]
    assert experts.fillna(0).tolist() == [0.08, 0]


def test_the_geometric_means_count_a_kernel_once() -> None:
    twice = record(timing(origin=0.4, best=0.1), timing(origin=0.9, best=0.1))  # 6x
    once = record(timing(origin=0.6, best=0.4))  # 1.5x
    kernels = {"a": twice, "b": once}
    ratios = by_kernel(latencies(kernels))
    assert geometric_mean(ratios)["origin / best"] == pytest.approx(3)
    rows = table_rows(report(results(**kernels)))
    assert rows["**geometric mean**"][6] == "3.00x"
    assert ratios["origin / best"].tolist() == pytest.approx([6, 1.5])


def test_what_was_not_timed_is_a_dash_and_no_part_of_a_mean() -> None:
    broken = timing(origin=0.4, best=0.1, torch=0.2, compiled="RuntimeError: no C++ compiler")
    text = report(results(softmax=record(broken), rope=record(timing(origin=0.2, best=0.1))))
    rows = table_rows(text)
    assert rows["cutile/softmax"][4:6] == ["-", "-"]
    assert rows["**geometric mean**"][6:11] == ["2.83x", "0.50x", "2.00x", "-", "-"]
    assert "| torch.compile | - | RuntimeError: no C++ compiler | - |" in text


def test_how_many_are_no_slower_than_the_expert() -> None:
    text = report(
        results(
            level=record(timing(origin=0.4, best=0.102, TileGym=0.1)),
            slower=record(timing(origin=0.4, best=0.103, TileGym=0.1)),
            faster=record(timing(origin=0.4, best=0.05, TileGym=0.1)),
            without=record(timing(origin=0.4, best=0.05)),
        )
    )
    assert "within 2%: **2 of 3**" in text


def test_what_each_optimization_gained_or_lost() -> None:
    text = report(results(softmax=record(timing(origin=0.4, best=0.1))))
    assert "Kept: occupancy hint (occupancy=4)." in text
    assert (
        "| 1 | occupancy hint (occupancy=4) | 0.125000 | keep | +73.8 % [+73.7, +73.9] |  |" in text
    )
    assert "| 2 | load latency hint | 0.126000 | revert | -2.1 % [-2.4, -1.8] |  |" in text
    assert r"| 3 | tile sizes | - | crash | - | TILE_N \| 512: does not compile |" in text
    assert "- num-ctas: no launched kernel multiplies tiles" in text


def test_it_says_what_was_measured_and_how() -> None:
    text = report(results(softmax=record(timing(origin=0.4, best=0.1))))
    assert "NVIDIA H200, driver 580.1; torch 2.11.0; cuda-tile 1.7.0; tilegym 1.5.1" in text
    assert text.count("python -m benchmarks.playbook OUT") == 1
    assert "CUDA events, cold L2" in text


def test_a_kernel_that_did_not_run_or_was_not_timed() -> None:
    untimed = record(untimed="not done after 60 s") | {"cut": True}
    del untimed["timings"]
    text = report(results(rope={"problem": "no GPU is visible", "log": []}, bmm=untimed))
    assert "Not run: no GPU is visible" in text
    assert "cut off at its deadline" in text
    assert "Not timed side by side: not done after 60 s" in text
    assert "| kernel |" not in text


@pytest.mark.parametrize(
    ("work", "unit", "expected"), [(3.86e8, "B", "3.86 TB/s"), (6.5e10, "FLOP", "650 TFLOP/s")]
)
def test_what_the_best_reaches(work: float, unit: str, expected: str) -> None:
    found = timing(origin=0.2, best=0.1) | {"work": work, "unit": unit}
    assert table_rows(report(results(softmax=record(found))))["cutile/softmax"][-1] == expected


def test_how_soon_most_was_gained() -> None:
    run = record(timing(origin=0.4, best=0.1), best_source="")
    assert most_gained_s(run) is None  # of an older benchmark
    for row, ended_s in zip(run["rows"], (10.0, 40.0, 70.0, 99.0), strict=True):
        row["ended_s"] = ended_s
    assert most_gained_s(run) == 40.0
    run["rows"][2] |= {"status": "keep", "latency_ms": 0.05}
    assert most_gained_s(run) == 70.0
    text = report(results(one=run, cut=run | {"cut": True}))
    assert "Median time of the 1 runs that ended by themselves: **100 s**" in text
    assert "90% of the final gain after **70 s**" in text
    assert gained_by(run, 9.0) == gained_by(run, 10.0) == 0.0
    assert "| of the final gain, median | 0% | 83% | 100% | 100% | 100% | 100% | 100% |" in text
    assert most_gained_s(run | {"rows": run["rows"][:1]}) is None
