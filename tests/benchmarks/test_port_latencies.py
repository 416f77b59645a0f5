"""What `benchmarks.port_latencies` tells of a kernel."""

from __future__ import annotations

from benchmarks.port_latencies import rows


def test_a_row_a_config_with_the_ratio_where_both_were_timed() -> None:
    timings = [
        {"config": "8 float32", "triton": 0.5, "cutile": 1.0},
        {"config": "9 float32", "triton": 0.5, "cutile": "ValueError: a | b"},
    ]
    told = rows({"kernel": "k", "tests": "3 passed", "timings": timings})
    assert told == [
        "| k | 8 float32 | 3 passed | 0.5000 | 1.0000 | 2.00 |",
        "| k | 9 float32 | 3 passed | 0.5000 | ValueError: a / b | - |",
    ]
    assert rows({"kernel": "k", "tests": "not ported: x", "timings": []}) == [
        "| k | - | not ported: x | - | - | - |"
    ]
