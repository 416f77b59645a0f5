"""`tile-agent profile`: a command is run as it is, and the kernels that it launches are ranked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.environment import probe
from agent.errors import ExitCode
from tests.support.project import Outcome, tile_agent
from tests.support.repo import isolate, make_repo, snapshot
from tests.support.warm_python import warm_interpreter

COMMAND_FAILED, NO_LAUNCH = 3, 4
KERNELS = """\
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1, mask=mask)


def add(x):
    y = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""
SCRIPT = """\
import multiprocessing
import torch
from kernels.many import add
from kernels.one import add as add_once


def work():
    add_once(torch.ones(64))


if __name__ == "__main__":
    add(torch.randn(64 * 1000))  # programs: the first launch of a process takes as long as many
    add(torch.randn(64 * 1000))
    work()
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
"""
FILES = {
    "kernels/__init__.py": "",
    "kernels/many.py": KERNELS,
    "kernels/one.py": KERNELS.replace("add_kernel", "add_once_kernel"),
    "train.py": SCRIPT,
}


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return make_repo(tmp_path, FILES)


def profile(repo: Path, *command: str, options: tuple[str, ...] = ("--json",)) -> Outcome:
    return tile_agent(repo, "profile", *options, "--", *command, env=dict(os.environ))


def test_kernels_are_ranked_over_all_processes_and_each_file_gets_its_run(repo: Path) -> None:
    before = snapshot(repo)
    done = profile(repo, sys.executable, "train.py")
    assert done.code == 0, done.err
    found = {kernel["kernel"]: kernel for kernel in done.json["kernels"]}
    assert [*found] == ["add_kernel", "add_once_kernel"]
    assert {name: kernel["launches"] for name, kernel in found.items()} == {
        "add_kernel": 2,
        "add_once_kernel": 2,
    }
    assert found["add_kernel"]["file"] == "kernels/many.py"
    assert sum(kernel["share"] for kernel in found.values()) == pytest.approx(1)
    assert done.json["processes"] == 2
    assert "interpreter" in done.json["clock"]
    assert done.json["run"] == [
        f"tile-agent run --kernel kernels/{name}.py --capture '{sys.executable} train.py'"
        for name in ("many", "one")
    ]
    assert snapshot(repo) == before


def test_a_run_is_named_as_it_is_to_be_typed_in_a_folder_below(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = repo / "scripts"
    below.mkdir()
    script = f"import sys; sys.path.insert(0, {str(repo)!r})\n"
    script += "import torch\nfrom kernels.one import add\nadd(torch.ones(9))"
    monkeypatch.setenv("PROJECT_FLAVOUR", "sweet")
    options = ("--json", "--pass-env", "PROJECT_FLAVOUR")
    done = profile(below, warm_interpreter(), "-c", script, options=options)
    assert done.code == 0, done.err
    assert done.json["kernels"][0]["file"] == "kernels/one.py"
    (run,) = done.json["run"]
    passing = "--pass-env PROJECT_FLAVOUR --capture"
    assert run.startswith(f"tile-agent run --kernel ../kernels/one.py {passing}")


@pytest.mark.full
def test_a_person_reads_a_table(repo: Path) -> None:
    done = profile(repo, warm_interpreter(), "train.py", options=())
    assert done.code == 0, done.err
    rows = [line for line in done.out.splitlines() if line.startswith("|")]
    assert "add_kernel, kernels/many.py" in rows[2]
    assert "tile-agent run --kernel kernels/many.py" in done.out


def test_files_of_others_are_told_and_get_no_run(repo: Path) -> None:
    elsewhere = repo.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "theirs.py").write_text(KERNELS)
    script = f"import sys; sys.path.insert(0, {str(elsewhere)!r})\nimport theirs, torch\n"
    done = profile(repo, warm_interpreter(), "-c", f"{script}theirs.add(torch.ones(9))")
    (kernel,) = done.json["kernels"]
    assert (kernel["own"], kernel["file"]) == (False, str(elsewhere / "theirs.py"))
    assert done.json["run"] == []


def test_a_command_that_fails_or_launches_nothing_is_told_so(repo: Path) -> None:
    failed = profile(repo, "sh", "-c", "exit 7")
    assert (failed.code, "exit code 7" in failed.json["error"]) == (COMMAND_FAILED, True)
    assert "where no GPU is visible" in failed.json["error"]
    code = "import torch; from kernels.one import add; add(torch.ones(64)); raise SystemExit(1)"
    half = profile(repo, warm_interpreter(), "-c", code)
    assert (half.code, [kernel["launches"] for kernel in half.json["kernels"]]) == (0, [1])
    assert half.json["notes"] == [
        "the command failed (exit code 1): what it launched until then is ranked"
    ]
    nothing = profile(repo, "true")
    assert (nothing.code, "launched no kernel" in nothing.json["error"]) == (NO_LAUNCH, True)
    absent = profile(repo, "no-such-program")
    assert absent.code == ExitCode.USAGE


def test_the_traceback_of_a_command_is_all_that_is_shown_of_it(repo: Path) -> None:
    (repo / "wants.py").write_text("import torch\n")
    (repo / "wanting.py").write_text("import wants\n")
    bare = getattr(sys, "_base_executable", sys.executable)  # has no torch
    script = "import sys; sys.modules['torch'] = None; import wanting"
    done = profile(repo, bare, "-c", script, options=())
    assert done.code == COMMAND_FAILED
    shown = [line for line in done.err.splitlines() if not line.startswith("tile-agent: ")]
    assert shown[0] == "Traceback (most recent call last):"
    files = [line.split('"')[1] for line in shown if line.startswith("  File ")]
    assert files == ["<string>", str(repo / "wanting.py"), str(repo / "wants.py")]
    assert shown[-1].startswith("ModuleNotFoundError: import of torch halted")


LATE = """\
import json, os, pathlib, time, torch
from kernels.one import add

add(torch.ones(64))
while os.path.exists(json.loads(os.environ["TILE_AGENT_RECORDER"])["folder"]):
    time.sleep(0.05)
"""
STARTER = """\
import subprocess, sys
with open("said.txt", "w") as said:
    late = f"{sys.executable} late.py; echo ended"
    subprocess.Popen(["sh", "-c", late], stdout=said, stderr=said, start_new_session=True)
"""


@pytest.mark.full
def test_a_process_that_outlives_the_command_ends_in_silence(repo: Path) -> None:
    (repo / "late.py").write_text(LATE)
    (repo / "starter.py").write_text(STARTER)
    profile(repo, sys.executable, "starter.py")
    said = repo / "said.txt"
    deadline = time.monotonic() + 120
    while "ended" not in said.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert said.read_text() == "ended\n"


ON_GPU = """\
import json
import sys
import torch
from kernels.many import add
from kernels.one import add as add_once


def work():
    x = torch.randn(2**24, device="cuda")
    square = torch.randn(2048, 2048, device="cuda")
    for _ in range(20):
        x = add(x)
        square @ square
    add_once(x)
    torch.cuda.synchronize()


if sys.argv[1:]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        work()
    on_gpu = torch.autograd.DeviceType.CUDA
    found = [event for event in profiler.key_averages() if event.device_type == on_gpu]
    print(json.dumps({event.key: event.self_device_time_total for event in found}))
else:
    work()
"""


@pytest.mark.gpu
@pytest.mark.skipif(probe().gpu is None, reason="needs an NVIDIA GPU, and NVML sees none")
def test_shares_are_those_of_torchs_profiler(repo: Path) -> None:
    (repo / "train.py").write_text(ON_GPU)
    theirs = subprocess.run(
        [sys.executable, "train.py", "profiled"], cwd=repo, capture_output=True, check=True
    )
    times = json.loads(theirs.stdout.splitlines()[-1])
    done = profile(repo, sys.executable, "train.py")
    assert done.code == 0, done.err
    total = sum(times.values())
    shares = {kernel["kernel"]: kernel["share"] for kernel in done.json["kernels"]}
    assert [*shares] == ["add_kernel", "add_once_kernel"]
    for name, share in shares.items():
        assert share == pytest.approx(times[name] / total, rel=0.1)
    assert 0 < done.json["kernels"][0]["of_the_roof"] < 1
    itself = profile(repo, sys.executable, "train.py", "profiled")
    assert itself.code == 0, itself.err
    assert any("profiles itself" in note for note in itself.json["notes"])


def test_what_cannot_be_captured_is_said_in_place_of_its_run(repo: Path) -> None:
    (repo / "elsewhere.py").write_text(
        "import torch\n"
        "from kernels.many import add_kernel\n"
        "add_kernel[(1,)](torch.ones(64), torch.ones(64), 64, BLOCK=64)\n"
    )
    done = profile(repo, warm_interpreter(), "elsewhere.py")
    assert done.json["run"] == []
    assert done.json["notes"] == [
        "kernels/many.py is launched by no function of its project that can be called: name a test "
        "that times it, with --tests"
    ]
    (repo / "kernels" / "launchers.py").write_text(
        "import torch\n"
        "from kernels.many import add_kernel\n\n\n"
        "def added(x):\n"
        "    add_kernel[(1,)](x, torch.ones(64), 64, BLOCK=64)\n"
    )
    (repo / "elsewhere.py").write_text(
        "import torch\nfrom kernels.launchers import added\n\nadded(torch.ones(64))\n"
    )
    done = profile(repo, warm_interpreter(), "elsewhere.py")
    assert done.json["notes"] == []
    (line,) = done.json["run"]
    assert "--kernel kernels/many.py --capture" in line
    (repo / "itself.py").write_text(f"{KERNELS}\nadd(torch.ones(64))\n")
    for command in (["itself.py"], ["-m", "itself"]):  # `capture` sees calls of what it defines
        done = profile(repo, warm_interpreter(), *command)
        assert done.json["notes"] == []
        (line,) = done.json["run"]
        assert "--kernel itself.py --capture" in line
    launch = "add_kernel[(1,)](torch.ones(64), torch.ones(64), 64, BLOCK=64)"
    (repo / "itself.py").write_text(f"{KERNELS}\n{launch}\n")
    done = profile(repo, warm_interpreter(), "itself.py", options=())
    assert "tile-agent run" not in done.out
    assert "note: itself.py is itself what Python runs, and launches in no function" in done.out


def test_a_command_that_goes_on_for_long_is_ended_and_what_it_launched_is_ranked(
    repo: Path,
) -> None:
    endless = "import time\nimport torch\nfrom kernels.many import add\n\nadd(torch.ones(64))\n"
    (repo / "endless.py").write_text(f"{endless}time.sleep(600)\n")
    done = profile(repo, sys.executable, "endless.py", options=("--json", "--stop-after-s", "12"))
    assert [kernel["launches"] for kernel in done.json["kernels"]] == [1]
    assert "the command was ended after 12 s" in done.json["notes"][0]
    (line,) = done.json["run"]
    assert " --capture-stop-after-s 12 --capture " in line
