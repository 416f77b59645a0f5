"""The cuTile kernels of the benchmark are complete, and compile without a GPU."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest

from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.backends import detect
from agent.environment import probe
from agent.errors import ExitCode
from agent.playbook import for_backend
from agent.syntax import Source
from benchmarks.spec import Spec, find
from tests.support.project import tile_agent
from tests.support.repo import isolate
from tests.support.warm_python import warm_interpreter

WANTED = {
    "softmax",
    "rms_norm",
    "layer_norm",
    "matmul",
    "bmm",
    "attention",
    "silu_and_mul",
    "rope",
    "cross_entropy",
    "copy_columns",
}
SPECS = find(["cutile"])
ENVIRONMENT = probe()

every_kernel = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
needs_compiler = pytest.mark.skipif(
    ENVIRONMENT.versions["cuda-tile"] is None or ENVIRONMENT.tileiras is None,
    reason="tileiras is not installed",
)


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def defined(file: Path) -> set[str]:
    """The functions and names that a file defines at its top."""
    names = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_there_are_ten() -> None:
    assert {spec.name for spec in SPECS} == WANTED


@every_kernel
def test_a_folder_is_complete(spec: Spec) -> None:
    assert {spec.name, f"{spec.name}_kernel"} <= defined(spec.kernel)
    reference = defined(spec.folder / "reference.py")
    assert {"CONFIGS", "inputs", "torch_version"} <= reference
    assert len({"bytes_moved", "flop"} & reference) == 1
    assert ("EXPERTS" in reference) is (spec.name != "copy_columns")


@every_kernel
def test_the_usual_expressions_select_its_tests(spec: Spec) -> None:
    """Correctness by `test_ and cutile and not test_perf`, timing by `test_perf and cutile`."""
    names = defined(spec.folder / f"test_{spec.name}.py")
    tests = {name for name in names if name.startswith("test_")}
    assert {f"test_{spec.name}_cutile", f"test_perf_{spec.name}_cutile"} <= tests
    assert all(name.startswith(("test_perf_", f"test_{spec.name}_cutile")) for name in tests)


@every_kernel
def test_an_origin_has_no_hint_yet(spec: Spec) -> None:
    """It is as first written: what the playbook is to find is not there."""
    text = spec.kernel.read_text()
    hints = ("occupancy", "num_ctas", "num_worker_warps", "latency", "allow_tma", "flush_to_zero")
    assert not [hint for hint in hints if hint in text]


@every_kernel
def test_the_playbook_has_something_to_try(spec: Spec) -> None:
    source = Source(spec.kernel.read_text(), spec.kernel.name)
    backend = detect(source)
    assert backend is not None
    subject = Subject(source, backend.classify(source).kernel_class, Hardware(sm=90))
    applying = set()
    for entry in for_backend(backend.name):
        try:
            changed = [entry.apply(subject, params) for params in entry.variants(subject)]
        except NotApplicable:
            continue
        assert source.text not in changed
        applying.add(entry.name)
    assert {"occupancy-hint", "load-latency"} <= applying


@pytest.mark.full
@needs_compiler
@every_kernel
def test_it_compiles(spec: Spec) -> None:
    arguments = ["--target", "sm_90", "--target", "sm_100", "--json"]
    end = tile_agent(spec.folder, "verify", "--kernel", spec.kernel.name, *arguments)
    assert end.code == ExitCode.DONE, end.out + end.err
    assert [kernel["target"] for kernel in end.json["kernels"]] == ["sm_90", "sm_100"]


@needs_compiler
@pytest.mark.full
@every_kernel
def test_its_correctness_tests_pass_on_the_cpu(spec: Spec) -> None:
    command = [warm_interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tile-cpu"]
    done = subprocess.run(
        [*command, "-k", "test_ and cutile and not test_perf"],
        cwd=spec.folder,
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
