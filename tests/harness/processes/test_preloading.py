"""What tests import of what is installed, the fork server imports for all workers that follow."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import deadline_in
from tests.support.repo import write
from tests.support.workers import Project, start_server

TEST = """
import os
import heavy
from kernel import answer

def test_answer():
    assert answer() == 42

def test_was_imported_before():
    assert heavy.PID != os.getpid()

def test_is_this_projects():
    import own
    assert own.PID == os.getpid()
"""
DAEMON = """
import subprocess
subprocess.Popen(["sleep", "100"])
"""
FORKED = """
import os, time
if os.fork() == 0:
    time.sleep(100)
    os._exit(0)
"""
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=[9]).start()\n"
HEAVY = "import os\nPID = os.getpid()\n"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder as `pip install --target` makes it."""
    write(tmp_path / "site", {"heavy.py": HEAVY, "heavy-1.dist-info/METADATA": "Name: heavy\n"})
    return tmp_path / "site"


@pytest.fixture
def server(installed: Path, tmp_path: Path) -> Iterator[ForkServer]:
    log, path = tmp_path / "server.log", str(installed)
    with start_server(log, PYTHONPATH=path, HEAVY_MODE="1") as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "project", TEST)
    project.write("own.py", HEAVY)
    project.write("own-1.dist-info/METADATA", "Name: own\n")  # it makes nothing an installed one
    return project


def preloaded(project: Project, server: ForkServer, file: Path | None = None) -> str:
    with project.arm(server) as arm:
        seen = arm.collection(deadline_in(60)).installed
    return server.preload(seen, file or project.log())


def passed(project: Project, server: ForkServer) -> dict[str, bool]:
    names = [f"test_kernel.py::{n}" for n in ("test_was_imported_before", "test_is_this_projects")]
    with project.arm(server) as arm:
        done = arm.run(names, deadline_in(60))
    return {t.nodeid.rpartition("_")[2]: t.outcome == "passed" for t in done.tests}


def test_a_worker_finds_it_imported(project: Project, server: ForkServer) -> None:
    assert passed(project, server) == {"before": False, "projects": True}
    assert preloaded(project, server) == ""
    assert passed(project, server) == {"before": True, "projects": True}


def test_a_run_that_is_gone_on_with_has_a_server_that_imports_the_same(
    project: Project, server: ForkServer, installed: Path, tmp_path: Path
) -> None:
    file = tmp_path / "collect.imports.json"
    assert preloaded(project, server, file) == ""
    path = str(installed)
    with start_server(
        tmp_path / "later.log", python=sys.executable, PYTHONPATH=path, HEAVY_MODE="1"
    ) as later:
        later.preload_again(tmp_path / "none.imports.json")
        file.with_name("broken.imports.json").write_text("[")
        later.preload_again(file.with_name("broken.imports.json"))
        assert passed(project, later) == {"before": False, "projects": True}
        later.preload_again(file)
        assert passed(project, later) == {"before": True, "projects": True}


def test_another_server_of_the_run_imports_it_once(
    project: Project, server: ForkServer, installed: Path, tmp_path: Path
) -> None:
    counted = tmp_path / "imported"
    count = f"open({str(counted)!r}, 'a').write('.')\n"
    write(installed, {"heavy.py": f"{HEAVY}if os.environ.get('COUNTS'):\n    {count}"})
    write(installed, {"failing.py": "raise RuntimeError('only without a worker')\n"})
    file = tmp_path / "collect.imports.json"
    with project.arm(server) as arm:
        seen = dict(arm.collection(deadline_in(60)).installed)
    seen["modules"] = [*seen["modules"], "failing"]
    assert server.preload(seen, file) == ""
    assert json.loads(file.read_text())["left"] == ["failing"]
    for tried, times in ((True, 1), (False, 2)):
        counted.unlink(missing_ok=True)
        log, path = tmp_path / f"{tried}.log", str(installed)
        own = tmp_path / f"{tried}.imports.json"
        shutil.copyfile(file, own)
        with start_server(log, PYTHONPATH=path, HEAVY_MODE="1", COUNTS="1") as other:
            other.preload_again(own, tried=tried)
            assert counted.read_text() == "." * times
            assert passed(project, other) == {"before": True, "projects": True}


def test_what_was_left_is_not_tried_again(
    project: Project, server: ForkServer, installed: Path, tmp_path: Path
) -> None:
    write(installed, {"heavy.py": HEAVY + THREAD})
    file = tmp_path / "collect.imports.json"
    assert preloaded(project, server, file)
    assert not file.exists()


def test_what_wakes_the_gpu_is_left_with_what_imports_it(
    project: Project, server: ForkServer, installed: Path
) -> None:
    waking = "import torch\ntry:\n    torch.cuda.current_device()\nexcept Exception:\n    pass\n"
    write(installed, {"waking.py": waking, "heavy.py": HEAVY, "light.py": HEAVY})
    write(installed, {"heavy.py": f"{HEAVY}import waking\n"})
    project.write("conftest.py", "import light, heavy")
    assert preloaded(project, server) == ""
    assert passed(project, server) == {"before": False, "projects": True}
    project.write("test_kernel.py", TEST.replace("import heavy", "import light as heavy"))
    assert passed(project, server) == {"before": True, "projects": True}


def test_no_part_of_a_package_that_wakes_the_gpu_is_imported(
    project: Project, server: ForkServer, installed: Path
) -> None:
    """Else a worker, which imports the rest, has a package of two halves."""
    waking = "import torch\ntry:\n    torch.cuda.current_device()\nexcept Exception:\n    pass\n"
    write(
        installed,
        {
            "heavy/__init__.py": f"{HEAVY}PARTS = []\nfrom heavy import a, b\n",
            "heavy/a.py": "from heavy import PARTS\nPARTS.append('a')\n",
            "heavy/b.py": waking,
        },
    )
    (installed / "heavy.py").unlink()
    project.write("conftest.py", "import heavy\nassert heavy.PARTS == ['a']\n")
    assert preloaded(project, server) == ""
    assert passed(project, server) == {"before": False, "projects": True}


@pytest.mark.parametrize("first", ["variable", "import"])
def test_what_may_read_a_variable_that_the_user_sets_is_left(
    project: Project, server: ForkServer, first: str
) -> None:
    setting = "import os\nos.environ.pop('HEAVY_MODE')\n"
    lines = (setting, "import heavy\n")
    project.write("conftest.py", "".join(lines if first == "variable" else reversed(lines)))
    assert preloaded(project, server) == ""
    assert passed(project, server) == {"before": first == "import", "projects": True}


@pytest.mark.parametrize(
    ("heavy", "why"),
    [
        (DAEMON, "an import starts threads or processes"),
        (FORKED, "an import starts threads or processes"),
        (THREAD, "an import starts threads or processes"),
        ("import own\n", "by themselves the modules import others"),
    ],
)
def test_what_a_fork_or_the_users_code_would_not_survive_is_left(
    project: Project, server: ForkServer, installed: Path, heavy: str, why: str
) -> None:
    write(installed, {"heavy.py": HEAVY + heavy})
    if "own" in heavy:
        write(installed, {"own.py": HEAVY})
    begin = time.monotonic()
    assert preloaded(project, server).startswith(why)
    assert time.monotonic() - begin < 60
    assert passed(project, server) == {"before": False, "projects": True}
