"""Tasks in forks: what they leave on disk, which were done, and what becomes of those that hang."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.warm_python import run_python

PROGRAM = """
import json
import os
import sys
import time
import warnings
from pathlib import Path

PROCESSORS = int(sys.argv[2])
os.sched_getaffinity = lambda _: set(range(PROCESSORS))
os.sched_setaffinity = lambda _, some: Path(sys.argv[1], f"on-{os.getpid()}").write_text(str(some))
from tile_agent_pytest import forked_work

forked_work.MOST_S = 2.0
forked_work.children = lambda _: []  # whatever else runs beside this
forked_work._PROCESSORS = os.sched_getaffinity(0)
warnings.simplefilter("error")
folder, pid = Path(sys.argv[1]), os.getpid()


def task(n):
    assert os.getpid() != pid and (folder / f"begun-{os.getpid()}").exists()
    if n == 2:
        raise ValueError("no")
    if n == 5:
        time.sleep(60)
    time.sleep(0.6)  # each that is done gives the others their time anew
    (folder / f"task-{n}").touch()
    return n == 3


os.sched_getaffinity = lambda _: {0}  # a thread that is timed
tasks = [lambda n=n: task(n) for n in range(6)]
begin = time.monotonic()
done = forked_work.done_in_forks(tasks, lambda: (folder / f"begun-{os.getpid()}").touch())
try:
    os.waitpid(-1, os.WNOHANG)
    left = True
except ChildProcessError:
    left = False
took_s = time.monotonic() - begin
open_files = len(os.listdir("/proc/self/fd"))
told = {"done": sorted(done.items()), "left": left, "took_s": took_s, "open": open_files}
print(json.dumps(told))
"""


def run_with(folder: Path, processors: int) -> dict[str, object]:
    ended = run_python(PROGRAM, str(folder), str(processors))
    assert ended.returncode == 0, ended.stderr
    found: dict[str, object] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_what_fails_or_hangs_is_told_and_holds_up_nothing_for_long(tmp_path: Path) -> None:
    seen = run_with(tmp_path, 3)  # 0 and 3, 1 and 4, 2 and 5
    assert seen["done"] == [[0, False], [1, False], [3, True], [4, False]]
    assert seen["left"] is False
    assert isinstance(seen["took_s"], float) and 3.0 <= seen["took_s"] < 20.0
    assert {path.name for path in tmp_path.glob("task-*")} == {f"task-{n}" for n in (0, 1, 3, 4)}
    assert [path.read_text() for path in tmp_path.glob("on-*")] == ["{0, 1, 2}"] * 3


def test_where_there_is_no_room_nothing_is_done(tmp_path: Path) -> None:
    before = run_with(tmp_path, 1)
    assert before["done"] == [] and not list(tmp_path.iterdir())
    assert run_with(tmp_path, 2)["open"] == before["open"]


ORPHANS = """
import os
import subprocess

os.sched_getaffinity = lambda _: {0, 1}
os.sched_setaffinity = lambda *_: None
from tile_agent_pytest import forked_work
from tile_agent_pytest.process_tree import become_subreaper, children, running_children

forked_work._PROCESSORS = {0, 1}
forked_work.children = lambda _: []  # whatever else runs beside this
become_subreaper()  # as a worker is


def leave_behind():
    subprocess.run(["sh", "-c", "sleep 300 > /dev/null 2>&1 &"], check=True)


done = forked_work.done_in_forks([leave_behind] * 2)
print(sorted(done), children(os.getpid()))
leave_behind()
(orphan,) = running_children(os.getpid())
os.kill(orphan, 9)
while running_children(os.getpid()):
    pass
print(children(os.getpid()) == [orphan])
"""


def test_what_a_task_leaves_behind_ends_with_its_fork() -> None:
    """And a child that has ended runs no more, though nobody has waited for it."""
    ended = run_python(ORPHANS)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["[0, 1] []", "True"]
