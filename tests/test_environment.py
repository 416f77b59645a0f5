"""What this machine is: the GPUs that CUDA would show, by a stand-in for NVML."""

# ruff: noqa: N802 - the stand-in has the names of the original

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from agent.environment import ITS_TORCH, OLDEST_TRITON, Gpu, assemble, describe, probe, too_old
from agent.harness.compiling.needed import CUTILE
from tile_agent_pytest.facts import PACKAGES

ROOT = Path(__file__).parent.parent
UUIDS = ("GPU-aaaa1111", "GPU-bbbb2222", "GPU-bbbb3333")


class FakeNvml(ModuleType):
    """As much of `pynvml` as is asked; `texts` is how old versions give their strings: bytes."""

    class NVMLError(Exception):
        """Its root error."""

    def __init__(self, *, fails: str = "", as_bytes: bool = False) -> None:
        super().__init__("pynvml")
        self.fails = fails
        self.as_bytes = as_bytes
        self.shut_down = 0

    def _text(self, text: str) -> str | bytes:
        return text.encode() if self.as_bytes else text

    def _check(self, name: str) -> None:
        if name == self.fails:
            raise self.NVMLError(name)

    def nvmlInit(self) -> None:
        self._check("init")

    def nvmlShutdown(self) -> None:
        self.shut_down += 1

    def nvmlSystemGetDriverVersion(self) -> str | bytes:
        return self._text("580.65.06")

    def nvmlDeviceGetCount(self) -> int:
        return len(UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        self._check("capability")
        return (9, 0) if handle == 0 else (10, 3)

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        return self._text(f"NVIDIA H20{handle}")

    def nvmlDeviceGetUUID(self, handle: int) -> str | bytes:
        return self._text(UUIDS[handle])

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=141 * 2**30)


def with_nvml(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml, visible: str | None) -> FakeNvml:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    return nvml


@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_gpu_as_nvml_tells_it(monkeypatch: pytest.MonkeyPatch, as_bytes: bool) -> None:
    nvml = with_nvml(monkeypatch, FakeNvml(as_bytes=as_bytes), None)
    environment = probe()
    assert environment.gpu == Gpu("NVIDIA H200", "GPU-aaaa1111", 90, 141 * 1024, "580.65.06")
    assert [gpu.sm for gpu in environment.gpus] == [90, 103, 103]
    assert nvml.shut_down == 1
    assert describe(environment.to_json()).startswith("NVIDIA H200, driver 580.65.06; torch ")


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [0, 1, 2]),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("", []),
        ("-1", []),
        ("1,-1,2", [1]),
        ("0,7,1", [0]),
        ("NoDevFiles", []),
        ("GPU-aaaa1111", [0]),
        ("GPU-bbbb3", [2]),
        ("GPU-cccc", []),
        ("GPU-bbbb3333,0", [2, 0]),
    ],
)
def test_the_gpus_that_cuda_would_show(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, indices: list[int]
) -> None:
    with_nvml(monkeypatch, FakeNvml(), visible)
    assert [gpu.uuid for gpu in probe().gpus] == [UUIDS[index] for index in indices]


@pytest.mark.parametrize("fails", ["init", "capability"])
def test_a_driver_that_does_not_answer_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    nvml = with_nvml(monkeypatch, FakeNvml(fails=fails), None)
    environment = probe()
    assert (environment.gpus, environment.gpu) == ((), None)
    assert nvml.shut_down == (0 if fails == "init" else 1)
    assert describe(environment.to_json()).startswith("no GPU")


def test_the_versions_of_what_is_installed_and_none_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = probe()
    assert tuple(environment.versions) == PACKAGES
    assert environment.versions["pytest"] == pytest.__version__
    monkeypatch.setattr("tile_agent_pytest.facts.PACKAGES", ("no-such-distribution",))
    assert probe().versions == {"no-such-distribution": None}


def test_the_compiler_is_found_where_cuda_tile_finds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The pip package, then PATH, then CUDA_HOME."""
    packaged = probe().tileiras
    home, path = tmp_path / "home" / "bin" / "tileiras", tmp_path / "path" / "tileiras"
    for program in (home, path):
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(path.parent))
    monkeypatch.setattr("importlib.metadata.files", lambda _: None)
    assert probe().tileiras == str(path)
    path.chmod(0o644)
    assert probe().tileiras == str(home)
    home.chmod(0o644)
    assert probe().tileiras is None
    assert packaged is None or Path(packaged).name == "tileiras"


def test_another_interpreter_tells_its_own_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    with_nvml(monkeypatch, FakeNvml(), "0")
    theirs = {"python": "3.12.1", "versions": {"torch": "2.9.0"}, "tileiras": "/opt/tileiras"}
    environment = assemble(theirs)
    assert (environment.python, environment.tileiras) == ("3.12.1", "/opt/tileiras")
    assert describe(environment.to_json()) == "NVIDIA H200, driver 580.65.06; torch 2.9.0"


def test_a_machine_travels_as_json() -> None:
    value = probe().to_json()
    again = json.loads(json.dumps(value))
    assert again["versions"] == value["versions"]
    assert describe(again) == describe(value)


def test_looking_imports_neither_torch_nor_triton() -> None:
    script = (
        "import sys, agent.environment\n"
        "agent.environment.probe()\n"
        "print([m for m in ('torch', 'triton', 'cuda.tile') if m in sys.modules])\n"
    )
    end = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert end.stdout == "[]\n"


@pytest.mark.parametrize(
    ("version", "old"),
    [
        *((version, True) for version in ("2.1.0", "3.2.0", "3.3.1+cu128")),
        *((version, False) for version in ("3.4.0", "3.10.0", "4.0.0a1", "3.5.0+git1", "main")),
        (None, False),
    ],
)
def test_which_triton_is_too_old(version: str | None, old: bool) -> None:
    assert (too_old(version) is not None) is old


def test_the_package_asks_for_what_hints_ask_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["triton"] == [f"triton>={OLDEST_TRITON}"]
    assert f"torch>={ITS_TORCH}" in project["dependencies"]
    assert project["optional-dependencies"]["cutile"] == shlex.split(CUTILE)
    told = (ROOT / "docs" / "getting_started.md").read_text().replace("\\\n", " ").split()
    assert " ".join(["install", *CUTILE.split()]) in " ".join(told)
