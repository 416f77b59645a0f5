"""Variants of a sweep on several GPUs at once. A fork server more on the CPU stands for a GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.collecting import Collecting
from agent.environment import Gpu
from agent.errors import Interrupted, UsageError
from agent.frozen_tests import TestPlan
from agent.harness.discovery import KINDS, imports_file
from agent.harness.measuring import gpu as gpu_module
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.further_gpus import FurtherGpu, FurtherGpus, further_gpus
from agent.harness.measuring.gpu import exclusive
from agent.harness.measuring.interleaved_screen import INCUMBENT
from agent.harness.measuring.line_ups import LineUps
from agent.harness.processes.confinement import Confinement
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.kept_folders import KeptFolders
from agent.harness.processes.worker_session import deadline_in
from agent.measuring.blocks import Telemetry
from agent.options import Request
from agent.preflight import preflight
from agent.target import find_target
from agent.workspace import state_dir
from tests.support import project as double
from tests.support.repo import isolate, make_repo, write
from tests.support.warm_python import warm_interpreter
from tests.support.workers import Project, alive, eventually, start_server

PLAN = TestPlan(("test_kernel.py",), (), ("test_kernel.py::test_perf",))
TEST = """
    from kernel import launch

    def test_perf(tile_bench):
        tile_bench(launch)
"""
VARIANTS_MS = {"a": 80, "b": 10, "c": 40, "d": 20}


NOTED = """\
import os, time
open(os.path.join({folder!r}, f"{{os.getppid()}}-{{os.getpid()}}"), "w").close()
"""
"""Tells which server a worker is of."""


def sleeping(ms: float, at_import: str = "") -> str:
    return f"{at_import}\n\ndef launch():\n    time.sleep({ms / 1e3})\n"


@dataclass
class Two:
    """A run with two GPUs, as far as sweeps know."""

    own: ForkServer
    other: ForkServer
    gpus: FurtherGpus
    said: list[str]
    folder: Path
    workers: Path
    """Where workers note that they have begun."""
    logs: list[Path] = field(default_factory=list)

    def line_ups(self, incumbent: str = sleeping(40), **variants: str) -> LineUps:
        """Of an incumbent and variants, one config each."""
        variants = variants or {name: sleeping(ms) for name, ms in VARIANTS_MS.items()}
        kernels = {INCUMBENT: incumbent, **variants}
        noted = NOTED.format(folder=str(self.workers))
        made = {
            name: Project(self.folder / (name or "incumbent"), TEST, noted + kernel).checkout()
            for name, kernel in kernels.items()
        }
        timing = BlockTiming(block_ms=10, settle_ms=2, least_samples=2)
        return LineUps(
            self.own,
            PLAN,
            made,
            self.new_log,
            lambda quads: BlockTiming(**{**vars(timing), "quads": quads}),
            dict.fromkeys(PLAN.perf, ""),
            configs=1,
            further=self.gpus,
        )

    def new_log(self) -> Path:
        """For a worker; the file need not be there."""
        self.logs.append(self.folder / f"{len(self.logs)}.log")
        return self.logs[-1]

    def alive(self) -> tuple[set[int], set[int]]:
        """The workers on the run's own GPU, and those on the other."""
        pairs = [tuple(map(int, path.name.split("-"))) for path in self.workers.iterdir()]
        there = {server == self.own.pid: set() for server, _ in pairs}
        for server, worker in pairs:
            if alive(worker):
                there[server == self.own.pid].add(worker)
        return there.get(True, set()), there.get(False, set())


@pytest.fixture
def two(server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    monkeypatch.setattr(server, "confinement", Confinement(write=(tmp_path,)))
    said: list[str] = []
    with start_server(tmp_path / "other.log", write=[tmp_path]) as other:
        gpu = FurtherGpu("second", lambda: other, lambda: True)
        gpus = FurtherGpus([gpu], said.append)
        gpus.start_soon()
        assert eventually(lambda: gpu.server is other)
        (workers := tmp_path / "workers").mkdir()
        yield Two(server, other, gpus, said, tmp_path, workers)


def ranking(seen: Mapping[str, object]) -> list[str]:
    return sorted(seen, key=lambda name: -seen[name].log_ratio)  # type: ignore[attr-defined]


def test_variants_are_spread_and_ranked_as_on_one_gpu(two: Two) -> None:
    with two.line_ups() as line_ups:
        seen = line_ups.look(list(VARIANTS_MS), 2, deadline_in(60))
        assert [len(each) for each in two.alive()] == [3, 3]  # an incumbent beside two each
    assert ranking(seen) == ["b", "d", "c", "a"]
    assert seen["a"].log_ratio < -0.4 < seen["c"].log_ratio < 0.4 < seen["d"].log_ratio
    assert eventually(lambda: two.alive() == (set(), set()))  # nobody waits for their end
    assert not two.said


def test_who_is_looked_at_longer_stays_where_it_is(two: Two) -> None:
    with two.line_ups() as line_ups:
        line_ups.look(list(VARIANTS_MS), 2, deadline_in(60))
        before = two.alive()
        made = len(two.logs)
        assert ranking(line_ups.look(["b", "d"], 3, deadline_in(60))) == ["b", "d"]
        assert len(two.logs) == made
        for now, then in zip(two.alive(), before, strict=True):
            assert len(now) == 2 and now < then
        assert list(line_ups.look(["d"], 3, deadline_in(60))) == ["d"]
        assert len(two.logs) == made


def test_those_that_are_looked_at_afresh_share_an_incumbent(two: Two) -> None:
    """They are near each other: two incumbents would differ by as much."""
    with two.line_ups() as line_ups:
        line_ups.look(list(VARIANTS_MS), 2, deadline_in(60))
        assert ranking(line_ups.look(["b", "d"], 2, deadline_in(60), fresh=True)) == ["b", "d"]
        assert [len(each) for each in two.alive()] == [3, 0]


def test_both_gpus_are_looked_at_at_the_same_time(two: Two) -> None:
    """Each incumbent waits for the other: one after the other, neither would be looked at."""
    (meeting := two.folder / "meeting").mkdir()
    waits = f"""
open(os.path.join({str(meeting)!r}, str(os.getppid())), "w").close()
for _ in range(400):
    if len(os.listdir({str(meeting)!r})) == 2:
        break
    time.sleep(0.05)
else:
    raise RuntimeError("nobody came")
"""
    variants = {name: sleeping(ms) for name, ms in VARIANTS_MS.items()}
    with two.line_ups(sleeping(40, waits), **variants) as line_ups:
        assert set(line_ups.look(list(VARIANTS_MS), 2, deadline_in(120))) == set(VARIANTS_MS)
    assert not two.said  # neither was looked at where the other was


@pytest.mark.parametrize("dies", ["the incumbent's worker", "the server"])
def test_a_gpu_that_fails_is_left_out_and_its_variants_are_not(two: Two, dies: str) -> None:
    if dies == "the server":
        two.other.close()
    dying = f"if os.getppid() != {two.own.pid}:\n    os._exit(3)\n"
    variants = {name: sleeping(ms) for name, ms in VARIANTS_MS.items()}
    with two.line_ups(sleeping(40, dying), **variants) as line_ups:
        seen = line_ups.look(list(VARIANTS_MS), 2, deadline_in(60))
        assert ranking(seen) == ["b", "d", "c", "a"]
        assert two.said == [
            "gpus       second is left out from here on: the incumbent failed on it"
        ]
        assert ranking(line_ups.look(list(VARIANTS_MS), 2, deadline_in(60))) == ranking(seen)
    assert not two.gpus.gpus and len(two.said) == 1


def test_a_deadline_is_no_fault_of_a_gpu(two: Two) -> None:
    hanging = sleeping(1, "time.sleep(600)")
    variants = dict.fromkeys(VARIANTS_MS, hanging)
    with two.line_ups(**variants) as line_ups:
        assert line_ups.look(list(VARIANTS_MS), 2, deadline_in(6)) == {}
    assert len(two.gpus.gpus) == 1 and not two.said


def test_an_interruption_ends_what_other_gpus_are_at(two: Two) -> None:
    hanging = {name: sleeping(1, "time.sleep(600)") for name in VARIANTS_MS}
    line_ups = two.line_ups(**hanging)

    def interrupted() -> Path:
        if threading.current_thread() is threading.main_thread():
            assert eventually(lambda: len(two.alive()[1]) == 3, 30)
            raise Interrupted
        return two.new_log()

    line_ups.new_log = interrupted
    begin = time.monotonic()
    with pytest.raises(Interrupted), line_ups:
        line_ups.look(list(VARIANTS_MS), 2, deadline_in(600))
    assert time.monotonic() - begin < 60
    assert two.other._process.poll() is not None


def test_a_gpu_is_used_once_its_server_is_there_and_nobody_else_is_on_it(two: Two) -> None:
    free, may_start = [False], threading.Event()

    def start() -> ForkServer:
        may_start.wait(60)
        return two.other

    gpu = FurtherGpu("second", start, lambda: free[0])
    gpus = FurtherGpus([gpu], two.said.append)
    gpus.start_soon()
    assert gpus.ready() == []
    may_start.set()
    assert eventually(lambda: gpu.server is not None)
    assert gpus.ready() == []
    free[0] = True
    assert gpus.ready() == [gpu]
    gpus.close()
    assert two.other._process.poll() is not None


def test_a_server_that_comes_up_too_late_ends(two: Two) -> None:
    may_start = threading.Event()

    def start() -> ForkServer:
        may_start.wait(60)
        return two.other

    gpu = FurtherGpu("second", start, lambda: True)
    gpu.start_soon()
    gpu.close()
    may_start.set()
    assert eventually(lambda: two.other._process.poll() is not None)
    assert gpu.server is None


def test_a_server_that_does_not_start_is_told_once() -> None:
    def start() -> ForkServer:
        raise UsageError("no such interpreter")

    said: list[str] = []
    gpus = FurtherGpus([FurtherGpu("second", start, lambda: True)], said.append)
    gpus.start_soon()
    assert eventually(lambda: bool(gpus.gpus[0].problem))
    assert gpus.ready() == gpus.ready() == []
    assert said == ["gpus       second is left out from here on: no such interpreter"]


SEEN = """
    import os
    import kernel

    def test_seen():
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == "GPU-1"
"""


# --- which GPUs ----------------------------------------------------------------------------------


def card(number: int, name: str = "NVIDIA H200") -> Gpu:
    return Gpu(name, f"GPU-{number}", 90, 143771, "580.0")


class Watch:
    """Stands for NVML, which needs a GPU."""

    processes: Mapping[str, tuple[int, ...] | None] = {}

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def look(self) -> Telemetry | None:
        found = self.processes.get(self._gpu.uuid, ())
        return None if found is None else Telemetry(1980, 100.0, 40, 0, found)

    def close(self) -> None:
        """Nothing."""


Find = Callable[..., tuple[list[str], list[str]]]


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    monkeypatch.setenv("TILE_AGENT_STATE_DIR", str(tmp_path / "state"))

    def find(
        visible: list[Gpu], most: int, **processes: tuple[int, ...] | None
    ) -> tuple[list[str], list[str]]:
        on = {uuid.replace("_", "-"): pids for uuid, pids in processes.items()}
        monkeypatch.setattr(Watch, "processes", on)
        monkeypatch.setattr(gpu_module, "GpuWatch", Watch)
        said: list[str] = []
        with ExitStack() as stack:
            found = further_gpus(stack, visible, most, start_no_server, said.append)
        return [gpu.name for gpu in found.gpus], said

    return find


def start_no_server(gpu: Gpu) -> ForkServer:
    raise AssertionError(gpu)


def test_as_many_as_were_asked_for_of_the_same_model(find: Find) -> None:
    visible = [card(0), card(1, "NVIDIA A100"), card(2), card(3), card(4)]
    assert find(visible, 3) == (["NVIDIA H200 (GPU-2)", "NVIDIA H200 (GPU-3)"], [])
    assert find(visible, 1) == ([], [])


@pytest.mark.parametrize(
    ("visible", "there"), [([card(0), card(1, "NVIDIA A100")], "1 NVIDIA H200"), ([], "no GPU")]
)
def test_more_than_there_are_is_a_line(find: Find, visible: list[Gpu], there: str) -> None:
    assert find(visible, 2) == ([], [f"gpus       2 were asked for, and {there} can be seen"])


@pytest.mark.parametrize("processes", [(4711,), None], ids=["a process", "no answer"])
def test_one_that_is_not_free_is_told_and_the_next_taken(
    find: Find, processes: tuple[int, ...] | None
) -> None:
    names, said = find([card(0), card(1), card(2)], 2, GPU_1=processes)
    assert names == ["NVIDIA H200 (GPU-2)"]
    assert len(said) == 1 and "NVIDIA H200 (GPU-1): it is left out" in said[0]


def test_one_that_another_run_holds_is_told_and_not_waited_for(find: Find) -> None:
    with exclusive(card(1), state_dir() / "gpus", print):
        names, said = find([card(0), card(1)], 2)
    assert names == []
    assert said == [
        "gpus       another tile-agent run measures on NVIDIA H200 (GPU-1): it is left out"
    ]


def test_what_is_taken_is_held_and_given_back(find: Find) -> None:
    with ExitStack() as stack:
        find([card(0), card(1)], 2, GPU_1=(4711,))  # not free, and so not held
        stack.enter_context(exclusive(card(1), state_dir() / "gpus", print, 0))
    with ExitStack() as stack:
        assert find([card(0), card(1)], 2)[0]
        further_gpus(stack, [card(0), card(1)], 2, start_no_server, print)
        with pytest.raises(UsageError), exclusive(card(1), state_dir() / "gpus", print, 0):
            pass


def test_caches_are_those_of_the_runs_own_gpu(tmp_path: Path) -> None:
    """What has been compiled for one is not compiled again for another of its model."""
    (kernel := tmp_path / "kernel.py").write_text("")
    alone = KeptFolders.of(tmp_path, kernel, {"ENABLE_TILE": "1"})
    assert (
        KeptFolders.of(tmp_path, kernel, {"ENABLE_TILE": "1", "CUDA_VISIBLE_DEVICES": "GPU-1"})
        == alone
    )
    assert KeptFolders.of(tmp_path, kernel, {"CUDA_VISIBLE_DEVICES": "GPU-1"}) != alone


def test_the_server_of_another_gpu_has_imported_the_same_and_shows_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    repo = make_repo(tmp_path, {"double.py": double.KERNEL, "test_double.py": double.TEST})
    found = preflight(repo / "double.py")
    target = find_target(found.tree, found.kernel)
    request = Request(repo / "double.py", python=warm_interpreter())
    monkeypatch.setattr("agent.harness.discovery.SLOW_COLLECTION_S", 0)
    write(repo, {"test_double.py": "import jinja2\n" + double.TEST})
    logs = tmp_path / "logs"
    with ExitStack() as stack:
        collecting = Collecting(stack, request, target, repo, logs)
        collecting.tests(repo, KINDS)
        other = stack.enter_context(collecting.another_server(card(1)))
        ours, theirs = (imports_file(logs / f"{n}.log") for n in ("collect", "server-GPU-1"))
        assert ours.read_text() == theirs.read_text()
        project = Project(tmp_path / "seen", SEEN)
        assert [t.outcome for t in project.run(other).tests] == ["passed"]
        assert [t.outcome for t in project.run(collecting.server).tests] == ["failed"]
