"""What was compiled is kept for later runs, and taken for the same only where it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent.compiling import compiler_for
from agent.compiling import kept_compiles as kept_compiles_of
from agent.environment import Environment, Gpu, assemble
from agent.events import Candidate
from agent.evidence.duplicates import CompiledCommit
from agent.evidence.model import Artifact
from agent.harness.compiling import kept_compiles
from agent.harness.compiling.artifacts import Wanted
from agent.harness.compiling.candidate_filter import CandidateFilter
from agent.harness.compiling.kept_compiles import HOLDS_S, KeptCompiles
from agent.harness.processes.fork_server import ForkServer
from agent.options import Options
from agent.target import Target
from tests.harness.compiling.test_candidate_compiler import checkout, compiled, compiling_server
from tests.harness.compiling.test_candidate_filter import CUT_OFF, Commits, Counting
from tests.support.scripted import kernel

__all__ = ["compiling_server"]
WANTED = Wanted("triton", (90,), python="python", has_gpu=False)
MACHINE = Environment((), {"torch": "2.11", "triton": "3.6"}, None, "3.12", "Linux")
TESTS = ("tests/test_perf.py",)


def kept_in(
    folder: Path, kernel: tuple[str, ...] = ("kernel.py", "."), **variables: str
) -> KeptCompiles:
    return KeptCompiles.of(folder, WANTED, MACHINE, variables, kernel)


def trees(shas: Sequence[str]) -> Mapping[str, str]:
    return {sha: f"tree-of-{sha}" for sha in shas}


@pytest.mark.parametrize(
    ("backend", "example"), [("triton", "triton_softmax"), ("cutile", "cutile_softmax")]
)
def test_what_a_compiler_made_of_it_is_read_again(
    compiling_server: ForkServer, tmp_path: Path, backend: str, example: str
) -> None:
    (found,) = compiled(compiling_server, tmp_path, backend, checkout(tmp_path, example, "origin"))
    kept = kept_in(tmp_path / "kept")
    kept.keep({"tree": found}, TESTS)
    again = kept_in(tmp_path / "kept").find(["tree", "another"], TESTS)["tree"]
    short = replace(found, results=tuple(replace(r, listing="") for r in artifacts(found)))
    assert again == short and again.work
    seen = [result.launch.observed for result in again.results]
    assert seen == [result.launch.observed for result in found.results] and any(seen)


def artifacts(commit: CompiledCommit) -> list[Artifact]:
    found = [result for result in commit.results if isinstance(result, Artifact)]
    assert found and len(found) == len(commit.results)
    return found


def compiles_of(tmp_path: Path, folder: Path, **variables: str) -> list[list[str]]:
    """What a run compiles of an incumbent, the same with a comment, and a better one."""
    commits = Commits(tmp_path, old=kernel(2.0), same=f"# better\n{kernel(2.0)}", new=kernel(1.0))
    compiler = Counting()
    candidates = CandidateFilter(compiler, kept_in(folder, **variables), trees)
    out = candidates.filter_out(
        "old", [Candidate("same", {}, "a"), Candidate("new", {}, "b")], commits.several, TESTS
    )
    assert set(out) == {"same"}
    return compiler.asked


def test_a_second_run_compiles_nothing_again_and_comes_to_the_same(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir(), (tmp_path / "2").mkdir()
    assert compiles_of(tmp_path / "1", tmp_path / "kept") == [["old", "same", "new"]]
    assert compiles_of(tmp_path / "2", tmp_path / "kept") == []


def test_under_other_variables_all_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir(), (tmp_path / "2").mkdir()
    compiles_of(tmp_path / "1", tmp_path / "kept")
    assert compiles_of(tmp_path / "2", tmp_path / "kept", ENABLE_TILE="1")
    assert kept_in(tmp_path, PWD="/a", CUDA_VISIBLE_DEVICES="1") == kept_in(tmp_path, PWD="/b")
    assert kept_in(tmp_path) != kept_in(tmp_path, ("other.py", ".")), "of the same commit and tests"


def test_where_a_run_is_at_its_time_limit_nothing_is_kept_as_known(tmp_path: Path) -> None:
    commits = Commits(tmp_path, old=kernel(2.0), new=kernel(1.0))
    kept = kept_in(tmp_path / "kept")
    candidates = CandidateFilter(Counting(), kept, trees)
    candidates.filter_out("old", [Candidate("new", {}, "b")], commits.several, TESTS, until=5.0)
    assert not kept.find(["tree-of-old", "tree-of-new"], TESTS)


@pytest.mark.parametrize(
    "damaged",
    [
        lambda _: b"",
        lambda _: b"no archive",
        lambda b: b[:-9],
        lambda b: b[:20] + b"\xff" * 20,
        None,
    ],
)
def test_what_cannot_be_read_is_not_known(
    tmp_path: Path, damaged: Callable[[bytes], bytes] | None
) -> None:
    kept = kept_in(tmp_path)
    kept.keep({"tree": CUT_OFF}, TESTS)
    assert kept.find(["tree"], TESTS) == {"tree": CUT_OFF}
    assert not kept.find(["tree"], ("tests/test_other.py",))
    (file,) = tmp_path.iterdir()
    if damaged is None:
        os.utime(file, (time.time() - HOLDS_S - 1,) * 2)
    else:
        file.write_bytes(damaged(file.read_bytes()))
    assert not kept.find(["tree"], TESTS)


def test_the_folder_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_compiles, "MOST_FILES", 3)
    kept = kept_in(tmp_path)
    for number in range(5):
        kept.keep({f"tree-{number}": CUT_OFF}, TESTS)
        for file in tmp_path.iterdir():
            os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 1))
    assert set(kept.find([f"tree-{n}" for n in range(5)], TESTS)) == {"tree-2", "tree-3", "tree-4"}


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = kept_in(tmp_path / "file" / "below")
    kept.keep({"tree": CUT_OFF}, TESTS)
    assert kept.find(["tree"], TESTS) == {}


def test_a_run_on_a_gpu_keeps_what_is_its_kernels(
    compiling_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILE_AGENT_STATE_DIR", str(tmp_path))
    machine = assemble(compiling_server.facts)
    gpu = Gpu("NVIDIA H100", "GPU-1", sm=90, memory_mib=81559, driver="580")
    compiler = compiler_for(
        compiling_server, "triton", "python", replace(machine, gpus=(gpu,)), tmp_path
    )
    assert (
        compiler is not None
        and compiler_for(compiling_server, "triton", "python", replace(machine, gpus=()), tmp_path)
        is None
    )
    target = Target("kernel.py", "triton", (), (), (), (".",))
    kept = kept_compiles_of(compiler, machine, Options(), target)
    assert kept is not None and kept.folder == tmp_path / "compiled"
    assert kept == kept_compiles_of(compiler, machine, Options(), target)
    assert kept != kept_compiles_of(compiler, machine, Options(), replace(target, kernel="b.py"))
    assert kept_compiles_of(compiler, machine, Options(retry=True), target) is None
