"""The Triton kernels of the benchmark are complete, run in the interpreter, and compile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.backends import detect
from agent.errors import ExitCode
from agent.playbook import for_backend
from agent.syntax import Source
from benchmarks.loop_run import make_repository
from benchmarks.spec import Spec, find
from tests.benchmarks.test_cutile_kernels import defined
from tests.support.project import tile_agent
from tests.support.repo import isolate
from tests.support.warm_python import warm_interpreter

pytest.importorskip("triton", reason="triton is not installed")

WANTED = {
    "softmax",
    "layer_norm",
    "rms_norm",
    "matmul",
    "bmm",
    "attention",
    "gelu_and_mul",
    "embedding",
    "transpose",
    "cross_entropy",
    "qk_norm",
    "group_quant",
}
SPECS = find(["triton"])
TARGETS = (90, 100)
"""In turn: what explain does for one generation it does for the other."""

every_kernel = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_there_are_twelve() -> None:
    assert {spec.name for spec in SPECS} == WANTED


@every_kernel
def test_a_folder_is_complete(spec: Spec) -> None:
    assert {spec.name, f"{spec.name}_kernel"} <= defined(spec.kernel)
    reference = defined(spec.folder / "reference.py")
    assert {"CONFIGS", "inputs", "torch_version", "EXPERTS"} <= reference
    assert len({"bytes_moved", "flop"} & reference) == 1


@every_kernel
def test_the_usual_expressions_select_its_tests(spec: Spec) -> None:
    """Correctness by `test_ and triton and not test_perf`, timing by `test_perf and triton`."""
    names = defined(spec.folder / f"test_{spec.name}.py")
    tests = {name for name in names if name.startswith("test_")}
    assert {f"test_{spec.name}_triton", f"test_perf_{spec.name}_triton"} <= tests
    assert all(name.startswith(("test_perf_", f"test_{spec.name}_triton")) for name in tests)


@every_kernel
def test_an_origin_has_no_hint_yet(spec: Spec) -> None:
    """It is as first written: what the playbook is to find is not there."""
    text = spec.kernel.read_text()
    hints = ("autotune", "num_warps", "num_stages", "eviction", "cache_modifier", "multiple_of")
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
    block_holds_a_row = "next_power_of_2" in source.text
    assert "warps-and-stages" in applying
    assert block_holds_a_row or {"block-size", "blocks-and-warps"} & applying


@pytest.mark.full
@every_kernel
def test_it_compiles_as_its_perf_test_launches_it(spec: Spec, tmp_path: Path) -> None:
    repository = make_repository(spec, tmp_path)
    sm = TARGETS[SPECS.index(spec) % len(TARGETS)]
    end = tile_agent(repository, "explain", "--kernel", spec.kernel.name, "--sm", str(sm), "--json")
    assert end.code == ExitCode.DONE, end.out + end.err
    assert end.json["test_failures"] == []
    results = end.json["results"]
    assert [result["sm"] for result in results] == [sm]
    assert all(result["launch"]["timed"] and result["registers"] for result in results)


@pytest.mark.full
@every_kernel
def test_its_correctness_tests_pass_in_the_interpreter(spec: Spec) -> None:
    command = [warm_interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-k", "test_ and triton and not test_perf"],
        cwd=spec.folder,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
