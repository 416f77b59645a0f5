"""Fleets on Ray's own processes: machines that are lost at every phase, and a lost driver.

The GPUs are logical, and the kernels run in Triton's interpreter with scripted timings.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from agent.errors import ExitCode
from agent.fleet.home import fleets_folder
from agent.journal import read
from agent.repository import Repository
from tests.fleet.held_run import HOLDS
from tests.fleet.project import INTERPRETED, Machines, files_of, scripted_python
from tests.fleet.warm_task import PROGRAM
from tests.support.project import Outcome as CommandEnd
from tests.support.project import tile_agent
from tests.support.repo import changed, git, isolate, make_repo, snapshot
from tests.support.warm_python import warm_interpreter
from tile_agent_pytest.process_tree import die_with_parent

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tile-agent[fleet]'")

pytestmark = pytest.mark.full
DEADLINE_S = 240.0
COMMAND = """\
from functools import partial

from agent.cli import main
from agent.fleet import cluster
from tests.fleet.warm_task import on_node

cluster.Driver = partial(cluster.Driver, task=on_node)
main()
"""
KERNELS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
KINDS = {
    "alpha": ("alpha", "gamma", "epsilon"),  # faster with a larger block
    "beta": ("beta", "delta"),  # as fast with any
    "zeta": ("zeta",),  # wrong with any other
}
"""Kernel -> those that are the same but for their names, and end as it does."""
FIRST = {
    "alpha": "begun",
    "beta": "Started",
    "gamma": "Baselined",
    "delta": "Calibrated",
    "epsilon": "Proposed",
    "zeta": "Screened",
}
SECOND = {
    "alpha": "Verified",
    "beta": "Measured",
    "gamma": "Settled",
    "delta": "Stopped",
    "epsilon": "Finished",
}
"""Kernel -> where its run stands when its machine is lost for the first, and the second time."""
THIRD = {"alpha": "Settled"}
"""The same when the driver is lost; the others have ended."""
OPTIONS = ("--only=block-size", "--max-iterations=1", "--tested-shapes-only", "--yes")


def files() -> dict[str, str]:
    """Six kernels that end in three ways."""
    made = files_of(*KERNELS)
    for name in KINDS["beta"]:
        made[f"ops/{name}.py"] += "\n\nEVEN = True\n"
    for name in KINDS["zeta"]:
        right = f'    assert {name}.__globals__["BLOCK_SIZE"] == 256\n'
        made[f"tests/test_{name}.py"] = made[f"tests/test_{name}.py"].replace(
            f"def test_{name}_triton():\n", f"def test_{name}_triton():\n{right}"
        )
    return made


@dataclass
class Holds:
    """Where runs are to stand still."""

    folder: Path

    def want(self, moments: dict[str, str]) -> None:
        for name, moment in moments.items():
            (self.folder / f"{name}.{moment}").touch()

    def reached(self, moments: dict[str, str]) -> bool:
        return all(
            (self.folder / f"{name}.{moment}.reached").exists() for name, moment in moments.items()
        )


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What Ray's workers start as their own Python."""
    isolate(monkeypatch, tmp_path)
    return scripted_python(tmp_path)


@pytest.fixture
def holds(tmp_path: Path) -> Holds:
    folder = tmp_path / "holds"
    folder.mkdir()
    return Holds(folder)


@dataclass
class Command:
    """`tile-agent fleet` in a process of its own."""

    folder: Path
    words: tuple[str, ...]
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.folder.parent / f"driver-{time.monotonic_ns()}.log"
        with self.log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, "fleet", *self.words],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                preexec_fn=partial(die_with_parent, signal.SIGKILL),  # of tests that are cut short
            )

    def ended(self) -> CommandEnd:
        out, _ = self.process.communicate(timeout=DEADLINE_S)
        return CommandEnd(self.process.returncode, out, self.log.read_text())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def wait_for(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not what():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)


Start: TypeAlias = Callable[..., Command]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a `Command`; one that has not ended with its test is killed."""
    begun: list[Command] = []

    def started(folder: Path, *words: str) -> Command:
        begun.append(Command(folder, words))
        return begun[-1]

    yield started
    for command in begun:
        if command.process.poll() is None:
            command.kill()


def events(journal: Path) -> list[str]:
    return [type(line.event).__name__ for line in read(journal)]


def ends_alone(program: Path, repo: Path) -> dict[str, tuple[list[str], str]]:
    """Kernel -> the events of its run by itself, and its text at the best commit."""
    found = {}
    for first, names in KINDS.items():
        words = ("run", f"--kernel=ops/{first}.py", f"--branch=alone/{first}", *OPTIONS)
        python = f"--python={warm_interpreter()}"
        done = subprocess.run(
            [program, "-P", "-m", "agent", *words, python],
            cwd=repo,
            env=os.environ | INTERPRETED,
            capture_output=True,
            text=True,
        )
        assert done.returncode == ExitCode.STOPPED, done.stderr
        (journal,) = (repo / "sandbox" / "runs").glob(f"{first}-*/journal.jsonl")
        text = git(repo, "show", f"alone/{first}:ops/{first}.py")
        found |= {name: (events(journal), text.replace(first, name)) for name in names}
    return found


def test_machines_lost_at_every_phase_and_a_lost_driver_change_no_end(
    cluster: Machines,
    program: Path,
    holds: Holds,
    start: Start,
    tmp_path: Path,
) -> None:
    repo = make_repo(tmp_path, files())
    before = snapshot(repo)
    expected = ends_alone(program, make_repo(tmp_path, files(), name="alone"))
    own = INTERPRETED | {PROGRAM: str(program), HOLDS: str(holds.folder)}
    where = ("--address", cluster.address, "--json")
    python = ("--python", warm_interpreter())

    def at_home(name: str) -> list[str]:
        (journal,) = fleets_folder(Repository.open(repo)).glob(f"*/{name}/journal.jsonl")
        return events(journal)

    node = cluster.add(6, own)
    holds.want(FIRST)
    driver = start(repo, "run", "--kernels", "ops/*.py", *OPTIONS, *where, *python)
    for moments in (FIRST, SECOND):
        driver.wait_for(lambda wanted=moments: holds.reached(wanted))
        if moments is SECOND:
            driver.wait_for(
                lambda: "Finished" in at_home("epsilon") and "Finished" in at_home("zeta")
            )
        holds.want(SECOND if moments is FIRST else THIRD)
        following = cluster.add(6, own)
        cluster.lose(node)
        node = following
    driver.wait_for(lambda: holds.reached(THIRD))
    driver.wait_for(lambda: driver.log.read_text().count(": ended") == len(KERNELS) - 1)
    driver.kill()
    end = start(repo, "resume", *where).ended()

    assert end.code == ExitCode.DONE, end.err
    rows = {row["name"]: row for row in end.json["kernels"]}
    assert {row["standing"] for row in rows.values()} == {"ended"}
    for name, (happened, text) in expected.items():
        row = rows[name]
        assert Counter(at_home(name)) == Counter(happened), name
        assert row["exit_code"] == ExitCode.STOPPED, name
        assert git(repo, "show", f"{row['branch'] or 'main'}:ops/{name}.py") == text, name
        assert row["kept"] == (name in KINDS["alpha"]), name
    assert [rows[name]["attempts"] for name in KERNELS] == [4, 3, 3, 3, 2, 2]
    mine = {k for k in changed(before, snapshot(repo)) if not k.startswith(("refs/", "sandbox"))}
    assert mine <= {"git info/exclude"}


def test_a_fleet_that_is_stopped_leaves_nothing_behind(
    cluster: Machines, program: Path, holds: Holds, start: Start, tmp_path: Path
) -> None:
    repo = make_repo(tmp_path, files_of("theta"))
    cluster.add(1, INTERPRETED | {PROGRAM: str(program), HOLDS: str(holds.folder)})
    holds.want({"theta": "begun"})
    where = ("--address", cluster.address, "--yes", "--python", warm_interpreter())
    driver = start(repo, "run", "--kernels", "ops/theta.py", *where)
    driver.wait_for(lambda: holds.reached({"theta": "begun"}))
    clones = Path(cluster.environment["TILE_AGENT_STATE_DIR"]) / "fleet"
    assert [*clones.glob("theta-*")], "it works in a clone"
    stopped = tile_agent(repo, "fleet", "stop")
    end = driver.ended()

    assert stopped.code == 0, stopped.err
    assert end.code == ExitCode.STOPPED and "Traceback" not in end.err
    assert end.err.splitlines()[-1] == "tile-agent: stopped; what came home of the runs is kept"
    assert [*clones.glob("theta-*")] == []
    status = tile_agent(repo, "fleet", "status", "--json").json
    assert [row["standing"] for row in status["kernels"]] == ["waiting"]
    assert status["next"].startswith("tile-agent fleet resume fleet-")
