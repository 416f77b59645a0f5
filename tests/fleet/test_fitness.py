"""Which machines a job of a fleet is refused by, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.environment import Environment, Gpu
from agent.fleet.fitness import INTERPRETED, unfit
from agent.fleet.jobs import KernelJob, ResumePoint

H200 = Gpu("NVIDIA H200", "GPU-1", 90, 141_000, "580.65")
B200 = Gpu("NVIDIA B200", "GPU-2", 100, 180_000, "580.65")
VERSIONS = {"torch": "2.13.0+cu130", "triton": "3.9.0", "cuda-tile": None}
MACHINE = Environment((H200,), VERSIONS, None, "3.11.9", "Linux")
JOB = KernelJob("softmax", "softmax.py", "triton", "b", (), ".", "", gpus=1)
POINT = ResumePoint("softmax-1", "the kernel's time on NVIDIA H200", b"", b"")


@pytest.fixture(autouse=True)
def nothing_says_to_interpret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INTERPRETED, raising=False)


def test_a_machine_like_the_first_fits() -> None:
    assert unfit(JOB, None, MACHINE, replace(MACHINE, python="3.11.2")) is None
    assert unfit(JOB, POINT, MACHINE, MACHINE) is None


def test_the_build_of_a_package_is_no_version() -> None:
    here = replace(MACHINE, versions={**VERSIONS, "torch": "2.13.0+cpu"})
    assert unfit(JOB, None, MACHINE, here) is None


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (replace(MACHINE, versions={**VERSIONS, "torch": "2.9.0"}), "torch 2.9.0, not 2.13.0"),
        (replace(MACHINE, versions={**VERSIONS, "triton": None}), "triton missing, not 3.9.0"),
        (replace(MACHINE, versions={**VERSIONS, "cuda-tile": "1.7"}), "cuda-tile 1.7, not missing"),
        (replace(MACHINE, python="3.12.1"), "Python 3.12.1, not 3.11.9"),
        (replace(MACHINE, gpus=(replace(H200, driver="570.1"),)), "driver 570.1, not 580.65"),
        (replace(MACHINE, gpus=()), "the NVIDIA driver shows none"),
    ],
)
def test_a_machine_that_differs_is_told(here: Environment, why: str) -> None:
    reason = unfit(JOB, None, MACHINE, here)
    assert reason is not None and why in reason and "\n" not in reason


def test_a_compiler_of_tile_ir_that_is_missing_is_told() -> None:
    begun_on = replace(MACHINE, tileiras="/usr/local/cuda/bin/tileiras")
    assert "tileiras missing" in (unfit(JOB, None, begun_on, MACHINE) or "")


def test_a_head_without_a_gpu_asks_for_no_driver() -> None:
    assert unfit(JOB, None, replace(MACHINE, gpus=()), MACHINE) is None


def test_the_interpreter_is_for_those_who_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without = replace(MACHINE, gpus=())
    assert unfit(replace(JOB, gpus=0), None, without, without) is None
    monkeypatch.setenv(INTERPRETED, "1")
    assert unfit(JOB, None, without, without) is None


def test_a_run_goes_on_on_its_own_kind_of_card_alone() -> None:
    reason = unfit(JOB, POINT, MACHINE, replace(MACHINE, gpus=(B200,)))
    assert (
        reason is not None and "H200; here it would be the kernel's time on NVIDIA B200" in reason
    )


def test_a_backend_may_refuse_a_machine() -> None:
    bare = replace(MACHINE, versions={**VERSIONS, "triton": None})
    assert "triton is not installed" in (unfit(JOB, None, bare, bare) or "")
