"""The sandbox as a user meets it: what is refused, what the way out is, what is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ExitCode
from tests.support.project import PROJECT, tile_agent
from tests.support.repo import changed, isolate, make_repo, snapshot
from tile_agent_pytest.sandbox import probe

BESIDE = """

def test_writes_beside_itself_triton():
    with open(__file__ + ".out", "w") as file:
        file.write("x")
"""
SIZED = """
import torch
from double import double


def test_double_triton():
    x = torch.ones(SIZE)
    assert torch.equal(double(x), 2 * x)
"""
pytestmark = pytest.mark.skipif(probe()["tier"] < 2, reason=f"no sandbox here: {probe()['why']}")


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    test = PROJECT["tests/test_double.py"] + BESIDE
    return make_repo(tmp_path, {**PROJECT, "tests/test_double.py": test})


@pytest.mark.full
def test_a_baseline_that_writes_beside_itself_names_the_way_out(repo: Path) -> None:
    before = snapshot(repo)
    end = tile_agent(repo, "run", "--yes", "--kernel", "double.py")
    assert end.code == ExitCode.USAGE
    assert "confined   tier 2, files and system calls" in end.err
    assert "the correctness tests fail before any change: " in end.err
    assert "Permission denied" in end.err
    assert "or give --sandbox off" in end.err
    assert not changed(before, snapshot(repo))


def test_tests_that_need_more_pass_without_it(repo: Path) -> None:
    end = tile_agent(repo, "verify", "--kernel", "double.py", "--sandbox", "off")
    assert (end.code, end.out) == (0, "right: 2 correctness tests pass\n"), end.err


def test_a_variable_that_tests_need_is_handed_on(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = "import os\n\nSIZE = int(os.environ['MY_SIZE'])\n"
    other = make_repo(
        repo.parent, {**PROJECT, "tests/test_size.py": f"{needs}{SIZED}"}, name="other"
    )
    verify = ("verify", "--kernel", "double.py", "--tests", "tests/test_size.py")
    end = tile_agent(other, *verify, "--pass-env", "MY_SIZE")
    assert end.code == ExitCode.USAGE
    assert "--pass-env MY_SIZE: no such variable is set" in end.err
    monkeypatch.setenv("MY_SIZE", "4")
    end = tile_agent(other, *verify)
    assert end.code == ExitCode.USAGE
    assert end.err.endswith("not handed on without --pass-env MY_SIZE\n")
    end = tile_agent(other, *verify, "--pass-env", "MY_SIZE")
    assert (end.code, end.out) == (0, "right: 1 correctness test passes\n"), end.err


def test_to_insist_on_it_and_to_switch_it_off_contradict_each_other(repo: Path) -> None:
    before = snapshot(repo)
    run = ("run", "--kernel", "double.py", "--require-sandbox")
    end = tile_agent(repo, *run, "--sandbox", "off")
    assert end.code == ExitCode.USAGE
    assert "--require-sandbox and --sandbox off contradict each other" in end.err
    assert not changed(before, snapshot(repo))


def test_doctor_says_how_far_it_goes(repo: Path) -> None:
    end = tile_agent(repo, "doctor")
    (line,) = (line for line in end.out.splitlines() if line.startswith("sandbox "))
    assert line.split(maxsplit=1)[1] == f"tier 2, files and system calls ({probe()['why']})"
    assert tile_agent(repo, "doctor", "--json").json["sandbox"] == probe()
