"""A measured roof: what it takes at least, how it is kept, told, and beside which data sheet."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agent.evidence.roof import MeasuredRoof, NotMeasured, described, key_of

ROOF = MeasuredRoof(
    gpu="NVIDIA H200",
    setting="driver 580.159.04, mW at most 700000",
    copy_gb_s=4000.0,
    read_gb_s=4400.0,
    write_gb_s=4200.0,
    tflops={"float32": 50.0, "tf32": 400.0, "bfloat16": 760.0, "float16": 740.0},
    multiprocessors=132,
    l2_bytes=50 * 2**20,
    torch="2.11.0",
)


def test_it_is_kept_as_it_is() -> None:
    kept = json.loads(json.dumps(ROOF.to_json()))
    assert MeasuredRoof.from_json(kept) == ROOF


@pytest.mark.parametrize(
    "value",
    [
        [],
        None,
        {},
        {"layout": 1},
        ROOF.to_json() | {"layout": 0},
        ROOF.to_json() | {"copy_gb_s": 0.0},
        ROOF.to_json() | {"copy_gb_s": "fast"},
        ROOF.to_json() | {"more": 1},
        ROOF.to_json() | {"tflops": None},
    ],
)
def test_what_is_damaged_or_of_another_layout_is_measured_again(value: object) -> None:
    assert MeasuredRoof.from_json(value) is None


def test_another_card_driver_or_limit_is_another_roof() -> None:
    keys = {
        key_of(uuid, setting)
        for uuid in ("GPU-a", "GPU-b")
        for setting in (
            "driver 580.1, MHz at most 1980, mW at most 700000",
            "driver 580.2, MHz at most 1980, mW at most 700000",
            "driver 580.1, MHz at most 1500, mW at most 700000",
            "driver 580.1, MHz at most 1980, mW at most 400000",
        )
    }
    assert len(keys) == 8
    assert key_of("GPU-a", "x") == key_of("GPU-a", "x")


def test_it_is_told_beside_its_data_sheet() -> None:
    assert described(ROOF) == [
        "copies 4000 GB/s (83% of its data sheet), reads 4400, writes 4200",
        "multiplies, in TFLOP/s: float32 50, tf32 400 (81%), bfloat16 760 (77%), float16 740 (75%)",
    ]
    assert described(replace(ROOF, gpu="NVIDIA X1"))[0] == (
        "copies 4000 GB/s, reads 4400, writes 4200"
    )
    assert described(NotMeasured("torch is not installed")) == [
        "not measured, its data sheet stands for it: torch is not installed"
    ]
