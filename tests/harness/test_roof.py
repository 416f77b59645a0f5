"""Measuring what a GPU attains: in a process that fails, and on a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import tile_agent_pytest
from agent.environment import Gpu, probe
from agent.evidence.peaks import peaks_of
from agent.evidence.roof import MeasuredRoof, NotMeasured
from agent.harness.measuring.gpu import exclusive
from agent.harness.processes.script import run_script
from agent.harness.roof import FOLDER, known_roof, of_answer, roof_of, roof_when_free
from tests.evidence.test_roof import ROOF
from tests.support.warm_python import warm_interpreter

ABSENT = Gpu("NVIDIA H200", "GPU-0", 90, 143771, "580.159.04")
GPU = probe().gpu
ANSWER: dict[str, object] = {
    "name": ROOF.gpu,
    "multiprocessors": ROOF.multiprocessors,
    "l2_bytes": ROOF.l2_bytes,
    "gb_s": {"copy": 4000.0, "read": 4400.0, "write": 4200.0},
    "tflops": dict(ROOF.tflops),
    "torch": ROOF.torch,
    "took_s": 2.0,
}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILE_AGENT_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_what_the_process_told_becomes_a_roof() -> None:
    assert of_answer(ANSWER, ROOF.gpu, ROOF.setting) == ROOF
    assert of_answer({"error": "out of memory"}, ROOF.gpu, "") == NotMeasured("out of memory")
    other = of_answer(ANSWER, "NVIDIA L4", "")
    assert other == NotMeasured("CUDA's first device is NVIDIA H200, NVML's NVIDIA L4")
    nothing = of_answer(ANSWER | {"tflops": {"tf32": 0.0}}, ROOF.gpu, "")
    assert nothing == NotMeasured("what was measured is no figure")


def test_a_gpu_that_is_not_there_is_a_reason_and_leaves_nothing(state: Path) -> None:
    for found in (roof_of(ABSENT, sys.executable), roof_when_free(ABSENT, sys.executable)):
        assert isinstance(found, NotMeasured)
        assert found.reason.startswith("NVML does not know the GPU")
    assert known_roof(ABSENT) is None
    assert not (state / FOLDER).exists()


def test_without_a_device_the_process_says_why(tmp_path: Path) -> None:
    ended = run_script(
        [warm_interpreter(), str(Path(tile_agent_pytest.__file__).parent), "roof"],
        {},
        cwd=tmp_path,
        variables={"CUDA_VISIBLE_DEVICES": ""},
        scratch=tmp_path,
        timeout_s=60.0,
    )
    assert ended.answers == ({"error": "torch sees no CUDA device"},), ended.fate


@pytest.mark.gpu
@pytest.mark.skipif(GPU is None, reason="needs an NVIDIA GPU, and NVML sees none")
def test_it_is_measured_once_and_no_more_than_the_data_sheet_says(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert GPU is not None
    with exclusive(GPU, state / "gpus", print):
        busy = roof_when_free(GPU, sys.executable)
    assert busy == NotMeasured("another tile-agent run measures on it")
    found = roof_when_free(GPU, sys.executable)
    assert isinstance(found, MeasuredRoof), found
    (file,) = (state / FOLDER).iterdir()
    assert MeasuredRoof.from_json(json.loads(file.read_text())) == found
    monkeypatch.setattr("agent.harness.roof._measure", None)  # it is not called again
    assert roof_of(GPU, sys.executable) == known_roof(GPU) == found
    sheet = peaks_of(GPU.name)
    if sheet is not None:
        assert 0.6 < found.copy_gb_s / sheet.bandwidth_gb_s <= 1
        assert 0.6 < found.read_gb_s / sheet.bandwidth_gb_s <= 1
        assert 0.4 < found.tflops["bfloat16"] / sheet.half_tflops <= 1.05
        assert found.multiprocessors == sheet.multiprocessors
    assert found.tflops["float32"] < found.tflops["tf32"] < found.tflops["bfloat16"]


@pytest.mark.gpu
@pytest.mark.skipif(GPU is None, reason="needs an NVIDIA GPU, and NVML sees none")
def test_measured_twice_it_is_the_same(state: Path) -> None:
    assert GPU is not None
    first = roof_of(GPU, sys.executable)
    for file in (state / FOLDER).iterdir():
        file.unlink()
    second = roof_of(GPU, sys.executable)
    assert isinstance(first, MeasuredRoof)
    assert isinstance(second, MeasuredRoof)
    assert second.copy_gb_s == pytest.approx(first.copy_gb_s, rel=0.03)
    assert second.read_gb_s == pytest.approx(first.read_gb_s, rel=0.03)
    assert second.tflops["bfloat16"] == pytest.approx(first.tflops["bfloat16"], rel=0.1)
