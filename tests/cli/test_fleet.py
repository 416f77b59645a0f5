"""`fleet` on the command line: what it refuses, and what it says of a fleet, without Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.environment import Environment
from agent.errors import ExitCode
from agent.fleet.home import Fleet, FleetOutcome, Home, KernelStanding
from agent.fleet.jobs import KernelJob
from agent.repository import Repository
from agent.workspace import Workspace
from tests.fleet.project import files_of
from tests.support.project import MAIN, tile_agent
from tests.support.project import Outcome as CommandEnd
from tests.support.repo import changed, git, isolate, make_repo, snapshot, write
from tests.support.warm_python import run_python

FLEET = "fleet-20260102-030405"


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    return make_repo(tmp_path, files_of("alpha", "beta"))


def without_ray(folder: Path, *arguments: str) -> CommandEnd:
    program = f"import sys; sys.modules['ray'] = None; {MAIN}"
    done = run_python(program, "fleet", *arguments, cwd=folder, kind="command-line")
    return CommandEnd(done.returncode, done.stdout, done.stderr)


def begun(repo: Path, *outcomes: FleetOutcome) -> Home:
    """A fleet whose kernels stand so."""
    home = Home(Repository.open(repo), FLEET)
    jobs = tuple(
        KernelJob(name, f"ops/{name}.py", "triton", f"b/{name}", (), ".", "", 0)
        for name, _ in zip(("alpha", "beta"), outcomes, strict=True)
    )
    here = Environment((), {}, None, "3.11.9", "Linux")
    standings = [KernelStanding(j.name, j.kernel, o) for j, o in zip(jobs, outcomes, strict=True)]
    home.begin(Fleet(FLEET, git(repo, "rev-parse", "HEAD"), here, jobs, 0), standings)
    return home


@pytest.mark.parametrize("arguments", [("run", "--kernels", "ops/*.py", "--yes"), ("resume",)])
def test_without_ray_one_line_says_how_to_install_it(repo: Path, arguments: tuple[str]) -> None:
    before = snapshot(repo)
    end = without_ray(repo, *arguments)
    assert end.code == ExitCode.USAGE
    assert end.err.splitlines() == [
        "tile-agent: a fleet runs on Ray, which is not installed: pip install 'tile-agent[fleet]'"
    ]
    assert changed(before, snapshot(repo)) == set()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "which kernels?"),
        (("--kernels", "nowhere/*.py"), "names no Python file"),
        (("--targets", "bad.txt"), "No such option"),
        (("--kernels", "ops/*.py", "--only", "magic"), "magic"),
        (("--kernels", "ops/*.py", "--base-url", "https://u:pw123456@host/v1"), "holds a secret"),
        (("--kernels", "ops/*.py", "--branch", "mine"), "No such option"),
    ],
)
def test_what_no_run_would_take_is_refused_before_anything(
    repo: Path, arguments: tuple[str, ...], why: str
) -> None:
    write(repo, {"bad.txt": "ops/alpha.py --maximum 3\n"})
    before = snapshot(repo)
    end = tile_agent(repo, "fleet", "run", *arguments, "--yes")
    assert end.code == ExitCode.USAGE and why in end.err, end.err
    assert len(end.err.splitlines()) == 1
    assert changed(before, snapshot(repo)) == set()


def test_status_of_a_fleet_that_was_lost_says_how_to_go_on(repo: Path) -> None:
    begun(repo, FleetOutcome.RUNNING, FleetOutcome.WAITING)
    end = tile_agent(repo, "fleet", "status")
    assert end.code == 0
    assert "1 interrupted, 1 waiting" in end.out
    assert end.out.splitlines()[-1] == f"next: tile-agent fleet resume {FLEET}"
    told = tile_agent(repo, "fleet", "status", FLEET, "--json").json
    assert (told["alive"], [row["name"] for row in told["kernels"]]) == (False, ["alpha", "beta"])


def test_status_of_a_fleet_under_way_says_how_to_stop_it(repo: Path) -> None:
    home = begun(repo, FleetOutcome.RUNNING, FleetOutcome.WAITING)
    with Workspace(home.repository, FLEET).lock(f"fleet {FLEET}"):
        told = tile_agent(repo, "fleet", "status", "--json").json
    assert (told["alive"], told["next"]) == (True, f"tile-agent fleet stop {FLEET}")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("stop",), "is not under way"),
        (("status", "fleet-1"), f"there are: {FLEET}"),
    ],
)
def test_what_cannot_be_done_with_a_fleet_is_told(
    repo: Path, arguments: tuple[str, ...], why: str
) -> None:
    begun(repo, FleetOutcome.ENDED, FleetOutcome.REFUSED)
    end = tile_agent(repo, "fleet", *arguments)
    assert end.code == ExitCode.USAGE and why in end.err


def test_without_a_fleet_one_is_suggested(repo: Path) -> None:
    end = tile_agent(repo, "fleet", "status")
    assert end.code == ExitCode.USAGE and "no fleets here yet: tile-agent fleet run" in end.err
