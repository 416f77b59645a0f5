"""No more processes at work at once than there are slots."""

from __future__ import annotations

from pathlib import Path

from tests.support.warm_python import run_python

PROGRAM = """
import os
import sys
import time
from pathlib import Path

from tile_agent_pytest.processor_slots import ProcessorSlots

folder, slots = Path(sys.argv[1]), ProcessorSlots(2)


def work(n):
    with slots.one():
        begin = time.monotonic()
        time.sleep(0.1)
        (folder / f"{n}").write_text(f"{begin} {time.monotonic()}")


def killed():
    with slots.one():
        os.kill(os.getpid(), 9)


def forked(task, *args):
    if pid := os.fork():
        return pid
    task(*args)
    os._exit(0)


for pid in [forked(killed), forked(killed), *(forked(work, n) for n in range(6))]:
    os.waitpid(pid, 0)
"""


def test_two_slots_are_held_by_two_at_once_and_not_by_those_who_died(tmp_path: Path) -> None:
    ended = run_python(PROGRAM, str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    spans = [tuple(map(float, file.read_text().split())) for file in tmp_path.iterdir()]
    assert len(spans) == 6
    for begin, _ in spans:
        assert sum(one <= begin < end for one, end in spans) <= 2
