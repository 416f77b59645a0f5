"""Which variables reach a worker, and which an agent program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent.harness.processes.confinement import remedy
from agent.harness.processes.program import run_program
from agent.harness.processes.variables import (
    held_back,
    program_environment,
    withheld,
    worker_environment,
)
from agent.options import CommandOptions, Options, Sandbox

NEEDED = (
    "PATH", "HOME", "LANG", "LC_ALL", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES",
    "TRITON_INTERPRET", "TORCH_HOME", "TORCHINDUCTOR_MAX_AUTOTUNE", "PYTORCH_ALLOC_CONF",
    "CUDA_TILE_LOGS", "TILEGYM_DISABLE_AUTOTUNE", "TILE_AGENT_STATE_DIR", "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "VIRTUAL_ENV", "CONDA_PREFIX",
    "PYTHONPATH", "PYTHONHASHSEED", "XDG_CACHE_HOME", "HF_HOME", "CC",
)  # fmt: skip
SECRET = {
    "OPENAI_API_KEY": "x",
    "HF_TOKEN": "x",
    "TORCH_HUB_PASSWORD": "x",
    "CUDA_DSN": "x",
    "XDG_SESSION_COOKIE": "x",
    "PYTHON_INDEX": "https://me:a-long-password@index.example.com/simple",
    "TRITON_NOTES": "sk-0123456789abcdef0123456789",
}
UNKNOWN = {"MY_DATA": "/data", "EDITOR": "vi"}
DATABASE = {"DATABASE_URL": "postgres://me:a-long-password@db/x"}


def test_a_worker_gets_what_is_known_to_be_needed() -> None:
    base = dict.fromkeys(NEEDED, "x") | SECRET | UNKNOWN | DATABASE
    kept = worker_environment(base, {"TRITON_INTERPRET": "1"})
    assert set(kept) == {*NEEDED, "PYTHONDONTWRITEBYTECODE"}
    assert kept["TRITON_INTERPRET"] == "1"


def test_what_the_user_hands_on_reaches_a_worker_unless_it_is_secret() -> None:
    base = SECRET | UNKNOWN | DATABASE
    kept = worker_environment(base, {}, ("MY_DATA", "NOT_SET", "OPENAI_API_KEY", "DATABASE_URL"))
    assert set(kept) == {"MY_DATA", "PYTHONDONTWRITEBYTECODE"}


def test_an_agent_program_gets_its_settings_too() -> None:
    settings = (
        "HTTPS_PROXY",
        "no_proxy",
        "ANTHROPIC_BASE_URL",
        "CLAUDE_X",
        "NODE_OPTIONS",
    )
    base = dict.fromkeys((*NEEDED, *settings), "x") | SECRET | DATABASE | {"MY_DATA": "/data"}
    kept = program_environment(base, {"OPENAI_API_KEY": "named"})
    assert set(kept) == {*NEEDED, *settings, "OPENAI_API_KEY", "PYTHONDONTWRITEBYTECODE"}
    assert kept["OPENAI_API_KEY"] == "named"


def test_a_secret_that_was_kept_back_is_named() -> None:
    base = {"A": "1", "PATH": "/bin", "Z_KEY": "1", "Y_KEY": "1", **DATABASE}
    assert withheld(base, {"PATH": "/bin", "Y_KEY": "1"}) == ("DATABASE_URL", "Z_KEY")


def test_a_program_is_run_without_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (DATABASE | {"MY_DATA": "/data", "AGENT_KEY": "for the agent"}).items():
        monkeypatch.setenv(name, value)
    told = "import os; print(dict(os.environ)); raise SystemExit(1)"
    log = tmp_path / "log"
    ended = run_program(
        [sys.executable, "-c", told],
        tmp_path,
        log=log,
        timeout_s=60,
        pass_env=("AGENT_KEY", "MY_DATA"),
    )
    assert "a-long-password" not in log.read_text()
    assert "'AGENT_KEY': 'for the agent'" in log.read_text()
    assert "'MY_DATA': '/data'" in log.read_text()
    assert "DATABASE_URL" in ended.withheld
    assert "were not handed on: " in ended.fate


def test_a_failing_baseline_names_the_variable_and_the_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_DATA", "/data")
    assert remedy(Options(), "KeyError: 'MY_DATA'").endswith("--pass-env MY_DATA)")
    handed_on = Options(command=CommandOptions(pass_env=("MY_DATA",)))
    assert remedy(handed_on, "KeyError: 'MY_DATA'") == ""
    assert "NO_SUCH" not in os.environ
    assert remedy(Options(), "KeyError: 'NO_SUCH'") == ""
    refused = "PermissionError: [Errno 13] Permission denied: '/x/out.txt'"
    assert "--sandbox off" in remedy(Options(), refused)
    assert remedy(Options(sandbox=Sandbox.OFF), refused) == ""
    assert remedy(Options(), "assert 1 == 2") == ""


def test_what_a_shell_sets_for_itself_is_not_told_to_be_held_back() -> None:
    base = {"_": "/usr/bin/python", "SHLVL": "2", "OLDPWD": "/"} | UNKNOWN | SECRET
    assert held_back(base) == tuple(UNKNOWN)
