"""`tileir check` and `doctor` on the machines there can be: never a crash, always a way on."""

from __future__ import annotations

import venv
from pathlib import Path
from typing import Any

import pytest

from agent.environment import generation
from agent.errors import ExitCode
from tests.support.project import tile_agent
from tests.support.tiers import others_full
from tests.tileir import machines
from tests.tileir.machines import B200, H200, NO_GPU, PLACEHOLDER, RTX, TRITON

WHEELS = "the release wheels of github.com/triton-lang/Triton-to-tile-IR"


def check(tmp_path: Path, *packages: dict[str, str], **more: str) -> dict[str, Any]:
    env = machines.variables(tmp_path / "machine", *packages, **more)
    done = tile_agent(tmp_path, "tileir", "check", "--json", env=env)
    assert done.code == ExitCode.DONE, done.err
    assert not done.err
    return done.json


def statuses(found: dict[str, Any]) -> str:
    """'ready', or else '-', of the five steps."""
    return " ".join("ready" if s["status"] == "ready" else "-" for s in found["steps"])


def test_stock_triton_without_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    found = check(tmp_path, NO_GPU)
    assert found["triton_installed"]
    assert not found["nvtriton_installed"]
    assert not found["tileir_active"]
    assert not found["blackwell_gpu"]
    assert found["gpu_capability"] is None
    assert found["nvtriton"] == "absent"
    assert statuses(found) == "ready ready ready - -"
    assert "prepare configs, which wait behind their gate: stock Triton" in found["recommendation"]
    assert "active drivers" in found["error"]
    assert found["abort"] is None


def test_the_placeholder_is_no_backend(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    found = check(tmp_path, PLACEHOLDER, B200)
    assert found["nvtriton"] == "placeholder"
    assert not found["nvtriton_installed"]
    assert found["blackwell_gpu"]
    assert found["recommendation"].endswith(
        f"nvtriton 0.0.0a0 is PyPI's empty placeholder: pip uninstall nvtriton, and install one "
        f"of {WHEELS}"
    )
    assert statuses(found) == "ready ready ready - -"


def test_the_backend_without_a_gpu(tmp_path: Path) -> None:
    found = check(tmp_path, TRITON, NO_GPU)
    assert found["nvtriton_installed"]
    assert found["triton_version"] == "3.6.0"
    assert "no GPU that NVML can see" in found["recommendation"]
    assert statuses(found) == "ready ready ready - -"


def test_the_backend_on_hopper(tmp_path: Path) -> None:
    found = check(tmp_path, TRITON, H200)
    assert found["gpu_capability"] == [9, 0]
    assert found["gpu_generation"] == "Hopper"
    assert "NVIDIA H200 is a Hopper (sm_90)" in found["recommendation"]
    assert statuses(found) == "ready ready ready - -"


@pytest.mark.parametrize("enabled", others_full(["0", "1"]))
def test_the_backend_on_blackwell(tmp_path: Path, enabled: str) -> None:
    found = check(tmp_path, TRITON, B200, ENABLE_TILE=enabled)
    assert found["tileir_active"] is (enabled == "1")
    assert found["blackwell_gpu"]
    assert found["gpu_capability"] == [10, 0]
    assert found["compiler"].endswith("tileir/bin/tileiras")
    assert found["recommendation"] == "take every step"
    assert statuses(found) == "ready ready ready ready ready"
    assert not found["problems"]


def without(*paths: str) -> dict[str, str]:
    return {path: text for path, text in TRITON.items() if not path.endswith(paths)}


def test_what_tileiras_needs_beside_itself(tmp_path: Path) -> None:
    found = check(tmp_path, TRITON, B200)
    assert found["ptxas"].endswith("tileir/bin/ptxas")
    assert found["libnvvm"].endswith("nvvm/lib64/libnvvm.so.4")
    bare = check(tmp_path / "bare", without("ptxas", "libnvvm.so.4"), B200, PATH="/none")
    assert bare["ptxas"] is None
    assert bare["libnvvm"] is None
    first, second = bare["problems"]
    assert "no ptxas is seen beside tileiras" in first
    assert "no libnvvm" in second


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("pytorch-triton",), None),
        (("triton", "pytorch-triton"), "triton 3.5.0, pytorch-triton 3.5.0 write into one folder"),
    ],
)
def test_the_distributions_that_bring_triton(
    tmp_path: Path, names: tuple[str, ...], problem: str | None
) -> None:
    files = without("nvtriton-3.6.0.dist-info/METADATA") | {
        f"{name.replace('-', '_')}-3.5.0.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 3.5.0\n"
        )
        for name in names
    }
    found = check(tmp_path, files, B200)
    assert found["distributions"] == ", ".join(f"{name} 3.5.0" for name in names)
    assert [problem in text for text in found["problems"]] == [True] * (problem is not None)


def test_a_workstation_blackwell_pairs_no_sms(tmp_path: Path) -> None:
    found = check(tmp_path, TRITON, RTX)
    assert "without num_ctas=2" in found["recommendation"]
    assert statuses(found) == "ready ready ready ready ready"


@pytest.mark.parametrize(
    ("runtime", "said"),
    [
        (machines.IGNORES_ENABLE_TILE, "does not activate it: its target is cuda"),
        (machines.NO_DRIVER, "does not activate it: RuntimeError: 0 active drivers"),
    ],
)
def test_a_backend_that_does_not_become_active(tmp_path: Path, runtime: str, said: str) -> None:
    found = check(tmp_path, TRITON | {"triton/runtime/__init__.py": runtime}, B200)
    assert said in found["recommendation"]
    assert statuses(found) == "ready ready ready - -"


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise OSError('libtriton.so: cannot open')", "OSError: libtriton.so: cannot open"),
        ("import os\nos.abort()", "killed by SIGABRT"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_triton_that_cannot_be_imported(tmp_path: Path, text: str, said: str) -> None:
    env = machines.variables(tmp_path / "machine", {"triton/__init__.py": text}, B200)
    done = tile_agent(tmp_path, "tileir", "check", "--json", env=env)
    assert done.code == ExitCode.NO_IMPROVEMENT
    assert said in done.json["error"]
    assert done.json["triton_installed"]
    assert done.json["abort"]["detail"].startswith("triton cannot be imported, reinstall it: ")
    assert statuses(done.json) == "- ready ready - -"


def test_an_interpreter_without_triton(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    env = machines.variables(tmp_path / "machine", B200)
    python = str(tmp_path / "bare" / "bin" / "python")
    done = tile_agent(tmp_path, "tileir", "check", "--json", "--python", python, env=env)
    assert done.code == ExitCode.NO_IMPROVEMENT
    assert done.json["abort"]["reason"] == "no triton"
    assert statuses(done.json) == "- ready ready - -"


def test_no_such_interpreter(tmp_path: Path) -> None:
    done = tile_agent(tmp_path, "tileir", "check", "--python", "/no/python")
    assert done.code == ExitCode.USAGE
    assert "/no/python cannot be run" in done.err


def test_variables_that_do_nothing_are_named(tmp_path: Path) -> None:
    found = check(
        tmp_path, PLACEHOLDER, NO_GPU, ENABLE_TILE="1", CUTILE_ENABLE_FTZ="1", TILEIR_OPT_LEVEL="3"
    )
    assert found["variables"]["CUTILE_ENABLE_FTZ"] == "1"
    assert len(found["problems"]) == 3
    text = " ".join(found["problems"])
    assert "set TILEIR_ENABLE_FTZ" in text
    assert "ENABLE_TILE=1 is set, and no Triton here reads it" in text


@pytest.mark.full
@pytest.mark.parametrize(
    ("packages", "line"),
    [
        ((PLACEHOLDER, B200), "placeholder: nvtriton 0.0.0a0 is PyPI's empty placeholder"),
        ((TRITON, H200), "backend: NVIDIA H200 is a Hopper (sm_90)"),
        ((TRITON, B200), "backend: ready"),
    ],
)
def test_doctor_says_it_too(
    tmp_path: Path, packages: tuple[dict[str, str], ...], line: str
) -> None:
    env = machines.variables(tmp_path / "machine", *packages)
    done = tile_agent(tmp_path, "doctor", env=env)
    assert done.code == ExitCode.DONE, done.err
    (found,) = (text for text in done.out.splitlines() if text.startswith("tile ir "))
    assert found.removeprefix("tile ir").strip().startswith(line)


def test_the_generations() -> None:
    assert [generation(sm) for sm in (75, 80, 86, 89, 90, 100, 103, 110, 120, 140)] == [
        "Turing", "Ampere", "Ampere", "Ada", "Hopper", "Blackwell", "Blackwell", "Blackwell",
        "Blackwell", "sm_140",
    ]  # fmt: skip
