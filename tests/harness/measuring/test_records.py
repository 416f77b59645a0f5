"""From what a perf test leaves behind to records: four sources, and what is wrong with each."""

from __future__ import annotations

from typing import Any

import pytest

from agent.events import Record
from agent.harness.measuring.records import RecordError, read_records
from agent.harness.processes.results import TestResult

PRINTED = (
    "Running softmax\n"
    "Cutile: {'forward': {'mean': 3.7903138461538455, 'std': 0.0123, 'nrep': 13, "
    "'peak_mem_mb': 913}} ms\n"
    "Triton: {'forward': {'mean': 4.5, 'std': 0.01, 'nrep': 11, 'peak_mem_mb': 913}} ms\n"
)


def result(
    nodeid: str = "tests/test_k.py::test_perf[cutile-4096]",
    *,
    properties: tuple[tuple[str, Any], ...] = (),
    stdout: str = "",
    benchmark_s: tuple[float, ...] = (),
) -> TestResult:
    return TestResult(
        nodeid=nodeid,
        outcome="passed",
        text="",
        exception="",
        properties=properties,
        stdout=stdout,
        benchmark_s=benchmark_s,
    )


def tile_bench(*samples_ms: float, config: str = "forward") -> tuple[str, Any]:
    value = {"config": config, "samples_ms": list(samples_ms), "method": "CUDA events, cold L2"}
    return "tile_bench", value


def tilegym(**frameworks: Any) -> tuple[str, Any]:
    return "benchmark", frameworks


# --- the sources --------------------------------------------------------------------------------


def test_tile_bench_gives_its_median_and_its_samples() -> None:
    records = read_records([result(properties=(tile_bench(3.0, 1.0, 2.0),))], "cutile")
    samples = (3.0, 1.0, 2.0)
    assert records == (Record("test_perf[cutile-4096]", 2.0, "CUDA events, cold L2", samples),)


def test_tile_bench_may_time_several_configs_in_one_test() -> None:
    properties = (tile_bench(1.0, config="small"), tile_bench(2.0, config="large"))
    names = [record.config for record in read_records([result(properties=properties)], "cutile")]
    assert names == ["test_perf[cutile-4096] small", "test_perf[cutile-4096] large"]


def test_a_tile_bench_says_how_much_it_counts() -> None:
    name, value = tile_bench(1.0, config="small")
    properties = ((name, value | {"weight": 0.25}), tile_bench(2.0, config="large"))
    records = read_records([result(properties=properties)], "cutile")
    assert [record.weight for record in records] == [0.25, 1.0]


def test_tilegyms_property_gives_the_row_of_the_framework() -> None:
    figures = {"median": 0.39, "mean": 0.5, "kernel_times": [0.38, 0.39, 0.4]}
    rows = tilegym(
        CuTile={"forward": figures},
        PyTorch={"forward": {"median": 0.8}},
        triton={"forward": {"median": 0.7}},
    )
    assert read_records([result(properties=(rows,))], "cutile") == (
        Record("test_perf[cutile-4096]", 0.39, "TileGym, median", (0.38, 0.39, 0.4)),
    )
    (record,) = read_records([result(properties=(rows,))], "triton")
    assert (record.latency_ms, record.samples_ms) == (0.7, ())


@pytest.mark.parametrize("name", ["cutile", "CuTile", "Cutile", "CUTILE"])
def test_the_frameworks_name_is_written_in_many_ways(name: str) -> None:
    rows = ("benchmark", {name: {"forward": {"mean": 1.5}}})
    (record,) = read_records([result(properties=(rows,))], "cutile")
    assert (record.latency_ms, record.method) == (1.5, "TileGym, mean")


def test_the_backward_pass_is_a_config_of_its_own() -> None:
    directions = {"forward": {"median": 1.0}, "backward": {"median": 2.0}, "full": {"mean": 3.0}}
    records = read_records([result(properties=(tilegym(cutile=directions),))], "cutile")
    assert [(record.config, record.latency_ms) for record in records] == [
        ("test_perf[cutile-4096]", 1.0),
        ("test_perf[cutile-4096] backward", 2.0),
        ("test_perf[cutile-4096] full", 3.0),
    ]


def test_a_test_of_the_backward_pass_only() -> None:
    rows = tilegym(cutile={"backward": {"median": 2.0}})
    (record,) = read_records([result(properties=(rows,))], "cutile")
    assert record.config == "test_perf[cutile-4096] backward"


def test_pytest_benchmark_gives_seconds() -> None:
    (record,) = read_records([result(benchmark_s=(0.004, 0.002, 0.003))], "cutile")
    assert record.method == "pytest-benchmark"
    assert record.latency_ms == pytest.approx(3.0)
    assert record.samples_ms == pytest.approx((4.0, 2.0, 3.0))


def test_tilegyms_printed_line() -> None:
    assert read_records([result(stdout=PRINTED)], "cutile") == (
        Record("test_perf[cutile-4096]", 3.7903138461538455, "TileGym, mean"),
    )
    (record,) = read_records([result(stdout=PRINTED)], "triton")
    assert record.latency_ms == 4.5


def test_the_first_source_that_was_used_is_taken() -> None:
    everything = {
        "properties": (tilegym(cutile={"forward": {"median": 2.0}}), tile_bench(1.0)),
        "benchmark_s": (0.003,),
        "stdout": PRINTED,
    }
    latencies = []
    for missing in ("", "properties", "benchmark_s"):
        everything.pop(missing, None)
        (record,) = read_records([result(**everything)], "cutile")  # type: ignore[arg-type]
        latencies.append(record.latency_ms)
    assert latencies == [1.0, 3.0, 3.7903138461538455]
    both = result(properties=(tilegym(cutile={"forward": {"median": 2.0}}),), benchmark_s=(0.003,))
    assert read_records([both], "cutile")[0].latency_ms == 2.0


def test_a_property_for_another_framework_does_not_hide_the_next_source() -> None:
    rows = tilegym(torch={"forward": {"median": 2.0}})
    (record,) = read_records([result(properties=(rows,), benchmark_s=(0.003,))], "cutile")
    assert record.method == "pytest-benchmark"


# --- names --------------------------------------------------------------------------------------


def test_a_config_is_named_without_its_file_where_that_is_unique() -> None:
    tests = [
        result("a.py::test_perf[1]", properties=(tile_bench(1.0),)),
        result("b.py::test_perf[1]", properties=(tile_bench(2.0),)),
        result("b.py::test_perf[2]", properties=(tile_bench(3.0),)),
    ]
    names = [record.config for record in read_records(tests, "cutile")]
    assert names == ["a.py::test_perf[1]", "b.py::test_perf[1]", "test_perf[2]"]


def test_a_name_that_comes_twice_is_numbered() -> None:
    """A loop over shapes inside one test: none may hide another."""
    properties = tuple(tile_bench(float(n)) for n in (1, 2, 3))
    records = read_records([result("a.py::test_perf", properties=properties)], "cutile")
    assert [(record.config, record.latency_ms) for record in records] == [
        ("test_perf", 1.0),
        ("test_perf #2", 2.0),
        ("test_perf #3", 3.0),
    ]


# --- what cannot be used ------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    "record",
    [
        lambda v: {"properties": (tile_bench(v),)},
        lambda v: {"properties": (tile_bench(1.0, 1.0, v),)},
        lambda v: {"properties": (tilegym(cutile={"forward": {"median": v}}),)},
        lambda v: {"properties": (tilegym(cutile={"forward": {"mean": v}}),)},
        lambda v: {"benchmark_s": (v,)},
    ],
    ids=["tile_bench", "a sample", "median", "mean", "pytest-benchmark"],
)
def test_a_latency_must_be_a_number_above_zero(record: Any, value: float) -> None:
    with pytest.raises(RecordError) as refused:
        read_records([result(**record(value))], "cutile")
    said = str(refused.value)
    assert said.startswith("tests/test_k.py::test_perf[cutile-4096] recorded ")
    ms = 1e3 * value if "pytest-benchmark" in said else value
    assert said.endswith(f" = {ms}, which is not a number of ms above zero")


@pytest.mark.parametrize("figure", ["0.0", "-2", "nan", "inf", "1e999"])
def test_a_printed_latency_must_be_a_number_above_zero(figure: str) -> None:
    with pytest.raises(RecordError):
        read_records([result(stdout=f"Cutile: {{'forward': {{'mean': {figure}}}}} ms\n")], "cutile")


def test_a_tile_bench_without_samples() -> None:
    with pytest.raises(RecordError, match="recorded no sample"):
        read_records([result(properties=(tile_bench(),))], "cutile")


def test_no_records_say_how_to_time() -> None:
    with pytest.raises(RecordError, match="the 2 perf tests recorded no timing; time the launch"):
        read_records([result("a"), result("b", stdout="hello ms\n")], "cutile")
    with pytest.raises(RecordError, match=r"pairs of CUDA events, .* by --capture 'COMMAND'$"):
        read_records([result("a")], "triton")


@pytest.mark.parametrize(
    "other",
    [
        result(properties=(tilegym(PyTorch={"forward": {"median": 1.0}}),)),
        result(stdout="PyTorch: {'forward': {'mean': 1.0}} ms\n"),
    ],
    ids=["property", "printed"],
)
def test_a_record_for_another_framework_only_is_said(other: TestResult) -> None:
    with pytest.raises(RecordError, match="recorded PyTorch but nothing for cutile"):
        read_records([other], "cutile")


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"cutile": None},
        {"cutile": 3.0},
        {"cutile": {}},
        {"cutile": {"forward": None}},
        {"cutile": {"sideways": {"median": 1.0}}},
        "fast",
        3.0,
    ],
)
def test_a_property_of_another_shape_is_no_record(value: Any) -> None:
    with pytest.raises(RecordError):
        read_records([result(properties=(("benchmark", value),))], "cutile")


MALFORMED = [
    ("tile_bench", 3.0, "tile_bench = 3.0, which is not a mapping"),
    ("tile_bench", {}, "tile_bench['samples_ms'] = None, which is not a list of times in ms"),
    (
        "tile_bench",
        {"samples_ms": [1.0, {"ms": 2}]},
        "tile_bench['samples_ms'][1] = {'ms': 2}, which is not a number of ms above zero",
    ),
    *(
        (
            "tile_bench",
            {"samples_ms": [1.0], "config": "", "method": "", "weight": weight},
            f"tile_bench['weight'] = {weight!r}, which is not a number above zero",
        )
        for weight in (0, -1.0, "much", float("nan"))
    ),
    (
        "benchmark",
        {"cutile": {"forward": {"median": None, "mean": "fast\nand more"}}},
        "benchmark['cutile']['forward']['mean'] = 'fast\\nand more', "
        "which is not a number of ms above zero",
    ),
    (
        "benchmark",
        {"CuTile": {"backward": {"median": True}}},
        "benchmark['CuTile']['backward']['median'] = True, which is not a number of ms above zero",
    ),
    (
        "benchmark",
        {"cutile": {"forward": {"median": 10**400}}},
        f"benchmark['cutile']['forward']['median'] = 1{17 * '0'}...{19 * '0'}, "
        "which is not a number of ms above zero",
    ),
]


@pytest.mark.parametrize(("name", "value", "said"), MALFORMED)
def test_a_malformed_record_is_told_with_field_and_value(name: str, value: Any, said: str) -> None:
    with pytest.raises(RecordError) as refused:
        read_records([result("a.py::test_perf", properties=((name, value),))], "cutile")
    assert str(refused.value) == f"a.py::test_perf recorded {said}"


def test_tilegyms_rows_of_single_kernels_are_no_samples() -> None:
    times = [{"name": "rms_norm", "self_time_us": 3.0, "total_time_us": 3.0, "count": 1}]
    rows = tilegym(cutile={"forward": {"median": 0.4, "kernel_times": times}})
    (record,) = read_records([result(properties=(rows,))], "cutile")
    assert (record.latency_ms, record.samples_ms) == (0.4, ())


def test_a_median_of_none_gives_way_to_the_mean() -> None:
    rows = tilegym(cutile={"forward": {"median": None, "mean": 2.0, "kernel_times": None}})
    assert read_records([result(properties=(rows,))], "cutile")[0].method == "TileGym, mean"


@pytest.mark.parametrize(
    "line",
    [
        "Cutile: {'forward': __import__('os')} ms",
        "Cutile: {'forward': {'mean': 1.0} ms",
        "Cutile: {'forward': {'mean': 1.0}}",
        "Cutile {'forward': {'mean': 1.0}} ms",
        "Cutile: {[]: 1} ms",
        f"Cutile: {{{'(' * 5000}}} ms",
    ],
)
def test_a_line_that_only_looks_like_a_record_is_none(line: str) -> None:
    with pytest.raises(RecordError):
        read_records([result(stdout=line)], "cutile")
