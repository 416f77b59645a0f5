"""A fleet on Ray's own raylets: a machine that does not fit, one that is lost, a lost driver.

The GPUs are logical, and the kernels run in Triton's interpreter.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ExitCode
from agent.fleet.home import Home, fleets_folder
from agent.journal import read
from agent.repository import Repository
from agent.workspace import state_dir
from tests.fleet.project import files_of
from tests.support.project import Outcome as CommandEnd
from tests.support.repo import changed, git, isolate, make_repo, snapshot

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tile-agent[fleet]'")

pytestmark = pytest.mark.full
DEADLINE_S = 240.0
FITS = {"TRITON_INTERPRET": "1"}
DOES_NOT_FIT = {"TRITON_INTERPRET": "0"}
"""Ray believes that it has a GPU, and nothing says that this is meant so."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head that runs nothing, and a node that does not fit."""
    from ray.cluster_utils import Cluster

    patch = pytest.MonkeyPatch()
    isolate(patch, tmp_path_factory.mktemp("machine"))
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("RAY_AUTH_MODE", "disabled")
    made = Cluster()
    try:
        made.add_node(num_cpus=0, num_gpus=0, include_dashboard=False)
        made.add_node(num_cpus=1, num_gpus=1, env_vars=DOES_NOT_FIT)
        yield made
    finally:
        made.shutdown()
        patch.undo()


class Driver:
    """A fleet's command in a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder.parent / f"driver-{time.monotonic_ns()}.log"
        command = [sys.executable, "-P", "-m", "agent", "fleet", *arguments]
        with self.log.open("w") as file:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=file, text=True
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
            time.sleep(0.2)


def events(home: Home, name: str) -> list[str]:
    journal = home.folder / name / "journal.jsonl"
    return [type(line.event).__name__ for line in read(journal)] if journal.exists() else []


def test_what_is_lost_goes_on_elsewhere_and_counts_once(cluster: Any, tmp_path: Path) -> None:
    """Two kernels, so that both nodes are asked; the tests of one refuse it."""
    files = files_of("alpha", "beta")
    files["tests/test_beta.py"] = files["tests/test_beta.py"].replace("2 * x)", "3 * x)")
    repo = make_repo(tmp_path, files)
    before = snapshot(repo)
    doomed = cluster.add_node(num_cpus=1, num_gpus=1, env_vars=FITS)
    options = ("--gpus-per-run", "1", "--only", "block-size", "--max-iterations", "1")
    where = ("--address", cluster.address, "--yes", "--json")
    driver = Driver(repo, "run", "--kernels", "ops/*.py", *options, *where)

    driver.wait_for(lambda: bool([*fleets_folder(Repository.open(repo)).glob("*/fleet.json")]))
    (folder,) = fleets_folder(Repository.open(repo)).iterdir()
    home = Home(Repository.open(repo), folder.name)
    driver.wait_for(lambda: "Calibrated" in events(home, "alpha"))
    cluster.remove_node(doomed, allow_graceful=False)
    driver.wait_for(lambda: "it goes on elsewhere" in driver.log.read_text())
    cluster.add_node(num_cpus=1, num_gpus=1, env_vars=FITS)
    driver.wait_for(lambda: "alpha: goes on" in driver.log.read_text())
    driver.wait_for(lambda: "Proposed" in events(home, "alpha"))
    driver.kill()
    resumed = Driver(repo, "resume", "--address", cluster.address, "--json").ended()

    assert resumed.code == ExitCode.DONE, resumed.err
    alpha, beta = resumed.json["kernels"]
    assert (alpha["standing"], alpha["kept"], alpha["attempts"]) == ("ended", 1, 3)
    told = Counter(events(home, "alpha"))
    assert {told[each] for each in ("Started", "Baselined", "Settled", "Finished")} == {1}
    assert alpha["gain_low"] > 0.5
    assert git(repo, "log", "--format=%s", f"main..{alpha['branch']}").count("\n") == 0
    assert home.standing("alpha").held_before_s > 0
    assert (beta["standing"], beta["exit_code"], beta["branch"]) == ("refused", 2, None)
    assert "test_beta" in beta["reason"]
    refused = {*home.standing("alpha").refused_by, *home.standing("beta").refused_by}
    assert len(refused) == 1, "the node that does not fit was not asked"
    mine = {k for k in changed(before, snapshot(repo)) if not k.startswith(("refs/", "sandbox"))}
    assert mine <= {"git info/exclude"}


def test_a_fleet_that_is_stopped_leaves_nothing_behind(cluster: Any, tmp_path: Path) -> None:
    repo = make_repo(tmp_path, files_of("gamma"))
    cluster.add_node(num_cpus=1, num_gpus=1, env_vars=FITS)
    options = ("--kernels", "ops/gamma.py", "--address", cluster.address, "--yes")
    driver = Driver(repo, "run", *options)
    driver.wait_for(lambda: "gamma: begins on" in driver.log.read_text())
    stopped = Driver(repo, "stop").ended()
    end = driver.ended()

    assert stopped.code == 0, stopped.err
    assert end.code == ExitCode.STOPPED and "Traceback" not in end.err
    assert end.err.splitlines()[-1] == "tile-agent: stopped; what came home of the runs is kept"
    assert [*(state_dir() / "fleet").glob("gamma-*")] == []
    status = Driver(repo, "status", "--json").ended().json
    assert [row["standing"] for row in status["kernels"]] == ["waiting"]
    assert status["next"].startswith("tile-agent fleet resume fleet-")
