"""Versions of a kernel timed in one process; here PyTorch functions on the CPU."""

from __future__ import annotations

import time
from typing import Any

import pytest

from benchmarks.side_by_side import TooSlow, limited, one_line, time_config
from benchmarks.spec import find
from tests.support.repo import write

REFERENCE = """\
import torch

CONFIGS = [(64, torch.float32)]


def inputs(n, dtype):
    torch.manual_seed(0)
    return (torch.randn(n, n, dtype=dtype),)


def torch_version(x):
    return x + 1


def flop(x):
    return x.numel()


def missing(x):
    import a_package_that_is_not_installed


EXPERTS = {
    "in place": lambda x: lambda: x.add_(1),
    "right": lambda x: lambda: x + 1,
    "wrong": lambda x: lambda: x * 2,
    "of another size": lambda x: lambda: (x + 1)[0],
    "missing": missing,
}
"""
ORIGIN = "def add(x):\n    for _ in range(200):\n        y = x + 1\n    return y\n"
BEST = "def add(x):\n    return x + 1\n"


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All versions of a small function, timed once."""
    folder = tmp_path_factory.mktemp("benchmark")
    write(folder, {"cutile/add/reference.py": REFERENCE, "cutile/add/add.py": ORIGIN})
    write(folder, {"best/add.py": BEST})
    (spec,) = find(["add"], folder)
    reference = spec.reference()
    (config,) = reference.configs
    timing = time_config(spec, reference, folder / "best" / "add.py", config, 300, turns=5)
    assert timing["config"] == "64 float32"
    assert (timing["work"], timing["unit"]) == (4096, "FLOP")
    found: dict[str, dict[str, Any]] = timing["versions"]
    return found


@pytest.mark.full
def test_a_slow_version_takes_longer(versions: dict[str, dict[str, Any]]) -> None:
    assert versions["origin"]["latency_ms"] > 20 * versions["best"]["latency_ms"] > 0
    low, high = versions["best"]["quartiles_ms"]
    assert low <= versions["best"]["latency_ms"] <= high


@pytest.mark.full
def test_a_version_without_a_figure_says_why(versions: dict[str, dict[str, Any]]) -> None:
    without = {label: v["why"] for label, v in versions.items() if v.get("latency_ms") is None}
    assert "off by" in without.pop("wrong")
    assert without.pop("of another size") == "ValueError: 64 elements instead of 4096"
    assert "a_package_that_is_not_installed" in without.pop("missing")
    assert without.keys() <= {"torch.compile"}  # which needs a C++ compiler on the CPU


@pytest.mark.full
def test_a_version_that_works_in_place_does_so_on_its_own_inputs(
    versions: dict[str, dict[str, Any]],
) -> None:
    assert versions["in place"]["latency_ms"] > 0
    assert versions["right"]["error"] < 1e-7  # it came after


def test_a_version_that_does_not_get_ready_is_given_up() -> None:
    begin = time.monotonic()
    with pytest.raises(TooSlow, match="not ready after 0 s"), limited(0.2):
        time.sleep(60)
    assert time.monotonic() - begin < 30
    with limited(60):
        pass
    with pytest.raises(TooSlow, match="no time was left"), limited(-1):
        pass


def test_why_is_one_short_line() -> None:
    assert one_line(ValueError("\n\n  first\nsecond")) == "ValueError: first"
    assert len(one_line(ValueError("x" * 1000))) == 200
