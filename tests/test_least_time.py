"""The least time of each config: what it is made of, and when nothing is left to gain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.evidence.model import TensorArgument, TimedWork
from agent.evidence.peaks import peaks_of
from agent.evidence.roof import NotMeasured
from agent.evidence.roofline import least_times_of
from agent.least_time import LeastTime, LeastTimes
from tests.evidence.test_roof import ROOF

GB = 10**9
COPY = LeastTime("copy", memory_ms=0.5, compute_ms=0.0, tensor_bytes=2 * GB)
TIMES = LeastTimes((COPY,), 4200.0, measured=True, l2_bytes=50 * 2**20)


def work(*tensors: tuple[str, tuple[int, ...]], kernel: str = "k") -> TimedWork:
    width = {"float32": 4, "bfloat16": 2, "int64": 8}
    arguments = []
    for n, (dtype, shape) in enumerate(tensors):
        size = width[dtype]
        for extent in shape:
            size *= extent
        arguments.append(TensorArgument(f"t{n}", dtype, shape, size))
    return TimedWork("test", "forward", ((kernel, (1,)),), tuple(arguments))


def test_bytes_are_moved_at_the_best_rate_that_was_measured() -> None:
    rows = work(("float32", (1024, 4096)), ("float32", (1024, 4096)))
    found = least_times_of([("rows", rows)], peaks_of("NVIDIA H200"), ROOF, (), {})
    assert found is not None
    (least,) = found.configs
    assert (found.bandwidth_gb_s, found.measured) == (ROOF.read_gb_s, True)
    assert least.memory_ms == pytest.approx(2 * 1024 * 4096 * 4 / (ROOF.read_gb_s * 1e9) * 1e3)
    assert (least.compute_ms, least.certain, least.by_memory) == (0.0, True, True)


@pytest.mark.parametrize(
    ("written", "gb_s"),
    [
        ({}, ROOF.read_gb_s),  # nobody knows: the best of all, which nothing beats
        ({"k": {"t1"}}, ROOF.copy_gb_s),
        ({"k": {"t0", "t1"}}, ROOF.write_gb_s),
        ({"other": {"t1"}}, ROOF.read_gb_s),
    ],
)
def test_what_is_written_has_the_rate_of_writes(written: dict[str, set[str]], gb_s: float) -> None:
    rows = work(("float32", (1024, 4096)), ("float32", (1024, 4096)))
    found = least_times_of([("rows", rows)], None, ROOF, (), written)
    assert found is not None
    assert found.bandwidth_gb_s == pytest.approx(gb_s)
    assert found.configs[0].memory_ms == pytest.approx(2 * 1024 * 4096 * 4 / (gb_s * 1e6))


def test_what_is_read_and_written_counts_twice_and_may_not_be_whole() -> None:
    rows = work(("float32", (1024, 4096)), ("float32", (1024, 4096)))
    found = least_times_of([("rows", rows)], None, ROOF, (), {"k": {"t1"}}, {"k": {"t1"}})
    assert found is not None
    (least,) = found.configs
    assert (least.tensor_bytes, least.certain) == (3 * 1024 * 4096 * 4, False)
    assert found.bandwidth_gb_s == pytest.approx(ROOF.mixed_gb_s(1 / 3))
    other = least_times_of([("rows", rows)], None, ROOF, (), {"k": {"t1"}}, {"other": {"t1"}})
    assert other is not None and other.configs[0].certain


def test_a_reduction_that_writes_little_has_nearly_the_rate_of_reads() -> None:
    rows = work(("float32", (1024, 4096)), ("float32", (1024,)))
    found = least_times_of([("rows", rows)], None, ROOF, (), {"k": {"t1"}})
    assert found is not None
    assert found.bandwidth_gb_s == pytest.approx(ROOF.read_gb_s, rel=1e-3)


def test_without_a_measured_roof_the_data_sheet_stands_and_says_so() -> None:
    sheet = peaks_of("NVIDIA H200")
    found = least_times_of(
        [("rows", work(("float32", (8, 8))))], sheet, NotMeasured("busy"), (), {}
    )
    assert found is not None
    assert (found.bandwidth_gb_s, found.measured, found.note) == (4800, False, "busy")
    assert least_times_of([], None, NotMeasured("busy"), (), {}) is None


def test_a_product_has_the_higher_of_its_two_roofs() -> None:
    square = ("bfloat16", (4096, 4096))
    found = least_times_of([("mm", work(square, square, square))], None, ROOF, {"k"}, {})
    assert found is not None
    (least,) = found.configs
    assert least.compute_ms == pytest.approx(2 * 4096**3 / (ROOF.tflops["bfloat16"] * 1e12) * 1e3)
    assert least.least_ms == least.compute_ms
    assert not least.by_memory


def test_products_that_are_not_counted_leave_the_roof_unknown() -> None:
    attention = work(*[("bfloat16", (4, 8, 512, 64))] * 4)
    found = least_times_of([("attention", attention)], None, ROOF, {"k"}, {})
    assert found is not None
    assert found.configs[0].compute_ms is None
    assert found.shares({"attention": 1.0}) == {}


def test_a_tensor_of_integers_may_say_which_bytes_are_moved() -> None:
    gather = work(("float32", (10**6, 64)), ("int64", (32,)), ("float32", (32, 64)))
    found = least_times_of([("gather", gather)], None, ROOF, (), {})
    assert found is not None
    assert not found.configs[0].certain


@pytest.mark.parametrize(
    ("latency_ms", "reached"),
    [(0.5, True), (0.509, True), (0.511, False), (0.491, True), (0.489, False), (0.25, False)],
)
def test_the_roof_is_reached_within_the_margin_and_never_beaten(
    latency_ms: float, reached: bool
) -> None:
    assert TIMES.reached({"copy": latency_ms}, 0.02) is reached


def test_what_is_faster_than_its_bytes_allow_reads_a_part_of_them_and_has_no_share() -> None:
    """Seen on an H200: a copy of some columns was at 175 % of what the card moves."""
    assert TIMES.shares({"copy": 0.5}) == {"copy": 1.0}
    assert TIMES.shares({"copy": 0.489}) == {}


@pytest.mark.parametrize(
    "times",
    [
        replace(TIMES, measured=False),
        replace(TIMES, l2_bytes=0),
        replace(TIMES, l2_bytes=GB),
        *(
            replace(TIMES, configs=(replace(COPY, **change),))  # type: ignore[arg-type]
            for change in (
                {"certain": False},
                {"compute_ms": None},
                {"compute_ms": 0.51},
                {"config": "another"},
            )
        ),
    ],
)
def test_what_is_not_certain_is_not_reached(times: LeastTimes) -> None:
    assert not times.reached({"copy": 0.5}, 0.02)


def test_every_config_has_to_be_there() -> None:
    assert not TIMES.reached({}, 0.02)
    assert not TIMES.reached({"copy": 0.5, "other": 0.5}, 0.02)
    both = replace(TIMES, configs=(COPY, replace(COPY, config="other")))
    assert not both.reached({"copy": 0.5, "other": 0.6}, 0.02)
    assert both.reached({"copy": 0.5, "other": 0.505}, 0.02)
