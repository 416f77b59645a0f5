"""What the README and the guides show is run: every command, in order, in a repository.

The repository holds kernels of `examples/` with tests that take no time, and its pyproject.toml
limits a run. A command that needs what a test machine lacks stands in `LACKING`, with the reason:
`test_commands.py` has the program read it, and where it needs a GPU, a machine with one runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.environment import probe
from agent.errors import ExitCode
from tests.support.pages import DOCS, GUIDES, ROOT, is_call, name, shown, words
from tests.support.processes import alive, mark
from tests.support.project import tile_agent
from tests.support.repo import git, isolate, make_repo
from tests.support.warm_python import warm_interpreter

GPU = "an NVIDIA GPU that runs cuTile"
INDEX = "a package index, and an environment that it may change"
KEY = "the key of a model's provider"
GPUS = "GPUs; tests/fleet has Ray run such fleets on ones that it is only told of"
TIME = "minutes of all processors; tests/fleet simulates a fleet of four kernels"
LACKING = {
    "make demo": f"{INDEX}; .ci/run makes it",
    "make test": "the time of the tests, of which this is one; .ci/run makes it",
    "uv tool install '.[triton]'": INDEX,
    "pipx install '.[triton]'": INDEX,
    "python -m pip install torch": INDEX,
    "python -m pip install '.[triton]'": INDEX,
    "pip install 'tile-agent[mcp]'": INDEX,
    "pip install 'tile-agent[model]'": INDEX,
    "pip install 'tile-agent[fleet]'": INDEX,
    "tile-agent fleet run --kernels 'src/**/ops/*.py'": GPUS,
    "tile-agent fleet run --targets targets.toml --max-iterations 10 --yes": GPUS,
    "tile-agent fleet status": GPUS,
    "tile-agent fleet stop": GPUS,
    "tile-agent fleet resume": GPUS,
    "python -m benchmarks.fleet_simulation --kernels 16 --gpus 8 --scale 15 --longest-first": TIME,
    "python -m benchmarks.fleet_simulation --kernels 200 --gpus 64 --scale 8 --longest-first": TIME,
    "claude mcp add --scope project tile-agent -- tile-agent mcp": "the program claude",
    "tile-agent run --kernel softmax.py --proposer playbook,command "
    "--command 'claude -p --permission-mode acceptEdits'": "the program claude",
    "tile-agent run --kernel softmax.py --proposer playbook,command --pass-env OPENAI_API_KEY "
    "--command 'codex exec --sandbox workspace-write -'": "the program codex",
    "tile-agent run --kernel softmax.py --proposer command --pass-env OPENAI_API_KEY "
    "--command 'aider --yes-always --no-auto-commits --message-file {prompt} {kernel}'": "aider",
    "tile-agent run --kernel softmax.py --proposer playbook,model "
    "--model anthropic:claude-sonnet-5-5": KEY,
    "tile-agent run --kernel softmax.py --proposer model --model openai:qwen3-coder "
    "--base-url http://localhost:8000/v1": "a server of a model on this machine",
    "tile-agent run --kernel softmax.py --proposer model --model openai:gpt-5 "
    "--model-replay sandbox/runs/RUN/model": "a run's recordings of a model",
    "tile-agent run --kernel rms_norm.py --yes": GPU,
}
"""Command -> what it needs that a test machine has not."""

RUN_OUTCOMES = (ExitCode.DONE, ExitCode.NO_IMPROVEMENT, ExitCode.STOPPED)
"""A run of one iteration may end in any of these; what it gains is no matter here."""
ENDS = dict.fromkeys(("run", "resume", "try", "finish"), RUN_OUTCOMES) | {
    "finalize": (ExitCode.DONE, ExitCode.USAGE)  # of runs that end early, and keep nothing
}

KERNELS = {
    "triton_softmax": "softmax.py",
    "triton_layer_norm": "layer_norm.py",
    "cutile_rms_norm": "rms_norm.py",
}
"""Example -> the kernel that the pages call by this name."""
ONE_ITERATION = "\n[tool.tile-agent]\nmax-iterations = 1\n"
CALIBRATION = "\n[tool.tile-agent]\ntime-budget-s = 1\n"
TRIES = DOCS / "assistants.md"
"""The page whose run tries something; those of the others end after their calibration."""
CALLS = {"softmax": "softmax(x)", "layer_norm": "layer_norm(x, x[0], x[1])"}
RIGHT = {
    "softmax": "torch.softmax(x, -1)",
    "layer_norm": "torch.nn.functional.layer_norm(x, x.shape[-1:], x[0], x[1])",
}
TEST = """\
import time

import torch
from {kernel} import {kernel}

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_{kernel}_triton():
    x = torch.randn(3, 70, device=DEVICE)
    torch.testing.assert_close({call}, {right}, rtol=1e-4, atol=1e-4)


def test_perf_{kernel}_triton(record_property):
    x = torch.randn(2, 16, device=DEVICE)
    {call}
    ms = 1 + time.perf_counter_ns() % 1000 / 1e6
    record_property("benchmark", {{"Triton": {{"forward": {{"median": ms}}}}}})
"""
"""With figures of no meaning, but steady ones: a comparison is over after fewer pairs."""
TIMEOUT_S = 600.0

SHOWN = {page: shown(page) for page in GUIDES}
RUNNABLE = [page for page, commands in SHOWN.items() if set(commands) - LACKING.keys()]


def files() -> dict[str, str | bytes]:
    """The repository of somebody who has these kernels."""
    found: dict[str, str | bytes] = {}
    for example, kernel in KERNELS.items():
        folder = ROOT / "examples" / example
        for path in (folder / kernel, *folder.glob("*.*"), *folder.glob("tests/*.py")):
            if path.suffix in (".py", ".toml"):
                found[path.relative_to(folder).as_posix()] = path.read_bytes()
    for kernel, call in CALLS.items():
        test = TEST.format(kernel=kernel, call=call, right=RIGHT[kernel])
        found[f"tests/test_{kernel}.py"] = test
    return found | {".gitignore": ".venv\n__pycache__/\n"}


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With the commands of this environment, and its interpreter where the pages have one."""
    isolate(monkeypatch, tmp_path)
    mark(monkeypatch, tmp_path)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    scripts = warm_scripts(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")
    made = make_repo(tmp_path, files())
    (made / ".venv").mkdir()
    (made / ".venv" / "bin").symlink_to(scripts)
    yield made
    for process in alive(tmp_path, "tile-agent"):
        process.kill()


def warm_scripts(folder: Path) -> Path:
    """The commands of this environment; its interpreter and tile-agent need not import anew."""
    folder.mkdir()
    for path in Path(sys.executable).parent.iterdir():
        (folder / path.name).symlink_to(path)
    for script_name, first in (("python", ""), ("python3", ""), ("tile-agent", "-m agent")):
        script = folder / script_name
        script.unlink(missing_ok=True)
        script.write_text(f'#!/bin/sh\nexec {warm_interpreter()} {first} "$@"\n')
        script.chmod(0o755)
    return folder


def limit(repo: Path, limits: str, *, lift: bool = False) -> None:
    """Have every run of the repository end early from now on, or no longer."""
    settings = repo / "pyproject.toml"
    text = settings.read_text()
    settings.write_text(text.replace(limits, "") if lift else text + limits)
    git(repo, "commit", "--quiet", "--all", "--message", "Limit runs")


def carry_out(command: str, repo: Path) -> None:
    """Run a command as a shell would, and see that it ends as it should."""
    if is_call(command) and words(command)[0] == "try":
        edit_the_draft(repo)
    line = filled_in(command, repo)
    log, begun = repo.parent / "output", journals(repo)
    if command.endswith("&") and CALIBRATION in (repo / "pyproject.toml").read_text():
        limit(repo, CALIBRATION, lift=True)  # it is to be alive when the page stops it
    with log.open("w") as output:  # no pipe: a process in the background would hold it open
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"],
            cwd=repo,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    expected = ENDS.get(words(command)[0], (0,)) if is_call(command) else (0,)
    assert done.returncode in expected, f"{line}\n{log.read_text()}"
    deadline = time.monotonic() + TIMEOUT_S
    while command.endswith("&") and journals(repo) == begun:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def filled_in(command: str, repo: Path) -> str:
    """With the last run and its branch, where a page lets the reader fill them in."""
    if "RUN" not in command and "BRANCH" not in command:
        return command
    last = tile_agent(repo, "status", "--json").json["runs"][-1]
    return command.replace("RUN", last["run"]).replace("BRANCH", last["branch"])


def edit_the_draft(repo: Path) -> None:
    """What the assistant does between `next` and `try`."""
    (draft,) = (repo / "sandbox" / "runs").glob("*/draft/softmax.py")
    text = draft.read_text()
    assert "tl.sum(numerator, axis=0)" in text
    draft.write_text(text.replace("tl.sum(numerator, axis=0)", "tl.sum(numerator, 0)"))


def journals(repo: Path) -> set[Path]:
    """Of the runs that have begun."""
    found = (repo / "sandbox" / "runs").glob("*/journal.jsonl")
    return {path for path in found if path.stat().st_size}  # none has begun with an empty one


# --- the tests ----------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_the_commands_of_a_page_do_what_it_says(page: Path, repo: Path) -> None:
    limit(repo, ONE_ITERATION if page == TRIES else CALIBRATION)
    if any("examples/" in command for command in SHOWN[page]):  # it works in this repository
        shutil.copytree(ROOT / "examples" / "cutile_softmax", repo / "examples" / "cutile_softmax")
    for command in SHOWN[page]:
        if command not in LACKING:
            carry_out(command, repo)
    assert git(repo, "status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.gpu
@pytest.mark.gpu_run
@pytest.mark.skipif(probe().gpu is None, reason="needs an NVIDIA GPU, and NVML sees none")
@pytest.mark.parametrize("command", [each for each, need in LACKING.items() if need == GPU])
def test_a_command_for_a_gpu_does_what_its_page_says(command: str, repo: Path) -> None:
    limit(repo, ONE_ITERATION)
    carry_out(command, repo)


def test_what_is_not_run_is_shown_somewhere() -> None:
    shown_anywhere = {command for commands in SHOWN.values() for command in commands}
    assert LACKING.keys() - shown_anywhere == set()


def test_the_guides_show_commands_that_are_run() -> None:
    """One whose commands are all in the table would be tested by nobody."""
    run = [command for page in RUNNABLE for command in SHOWN[page] if command not in LACKING]
    assert {words(command)[0] for command in run if is_call(command)} >= {
        *("run", "resume", "status", "stop", "begin", "next", "try", "finish", "verify", "bench"),
        *("doctor", "classify", "calibrate", "lint", "explain", "diagnose", "autotune", "tileir"),
        *("playbook", "skill"),
    }
