"""Line-ups with real workers: who stays is ranked, who fails leaves the others alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.interleaved_screen import INCUMBENT, InterleavedScreen
from agent.harness.measuring.line_ups import groups
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import deadline_in
from agent.measuring.screening import Look
from tests.support.workers import Project, start_server

PLAN = TestPlan(("test_kernel.py",), (), ("test_kernel.py::test_perf",))
TIMING = BlockTiming(block_ms=10, settle_ms=2, least_samples=2, quads=2)
TEST = """
    from kernel import launch

    def test_perf(tile_bench):
        tile_bench(launch)
"""
TWICE = """
    from kernel import launch, config

    def test_perf(tile_bench):
        tile_bench(launch)
        tile_bench(launch, config=config)
"""


def sleeping(seconds: float, more: str = "") -> str:
    return f"import time\n\nconfig = 'again'\n\ndef launch():\n    time.sleep({seconds})\n{more}"


@pytest.fixture
def look(server: ForkServer, tmp_path: Path):  # type: ignore[no-untyped-def]
    def look(
        incumbent: str, variants: Mapping[str, str], test: str = TEST, timeout_s: float = 60
    ) -> Mapping[str, Look]:
        def checkout(name: str, kernel: str):  # type: ignore[no-untyped-def]
            return Project(tmp_path / name, textwrap.dedent(test), kernel).checkout()

        kernels = {INCUMBENT: incumbent, **variants}
        made = {n: checkout(n or "incumbent", kernel) for n, kernel in kernels.items()}
        with InterleavedScreen(server, PLAN, made, logs_of(made, tmp_path)) as screen:
            return screen.look(list(variants), TIMING, deadline_in(timeout_s))

    return look


def logs_of(names: Iterable[str], folder: Path) -> dict[str, Path]:
    return {name: folder / f"{name or 'incumbent'}.log" for name in names}


def test_variants_are_ranked_against_the_incumbent(look) -> None:  # type: ignore[no-untyped-def]
    seen = look(
        sleeping(0.04), {"slow": sleeping(0.08), "fast": sleeping(0.02), "same": sleeping(0.04)}
    )
    assert set(seen) == {"slow", "fast", "same"}
    assert seen["slow"].log_ratio < -0.4 < seen["same"].log_ratio < 0.4 < seen["fast"].log_ratio
    assert 20 <= seen["fast"].latency_ms < 40


@pytest.mark.parametrize(
    "broken",
    [
        "raise ValueError('no such tile')\n",
        sleeping(0.001, "    raise RuntimeError('out of resources')\n"),
        sleeping(0.001, "    import os; os._exit(9)\n"),
        sleeping(0.001).replace("'again'", "'another'"),
    ],
    ids=["import", "launch", "death", "another config"],
)
def test_who_fails_leaves_and_the_others_stay(look, broken: str) -> None:  # type: ignore[no-untyped-def]
    seen = look(sleeping(0.02), {"a": sleeping(0.04), "b": broken, "c": sleeping(0.01)}, TWICE)
    assert set(seen) == {"a", "c"}
    assert seen["a"].log_ratio < 0 < seen["c"].log_ratio


def test_who_is_far_slower_keeps_nobody_waiting(look) -> None:  # type: ignore[no-untyped-def]
    """Its blocks alone would outlast the look, as those of one warp for a row of 32768."""
    seen = look(sleeping(0.002), {"far": sleeping(0.5), "near": sleeping(0.004)}, TWICE, 15)
    assert set(seen) == {"far", "near"}
    assert seen["far"].log_ratio < -3 < seen["near"].log_ratio < 0
    assert not seen["far"].is_cut
    assert 400 < seen["far"].latency_ms < 2000


@pytest.mark.full
def test_who_hangs_leaves_the_others_half_of_the_time(look) -> None:  # type: ignore[no-untyped-def]
    hanging = sleeping(0.001, "    time.sleep(600)\n")
    seen = look(sleeping(0.002), {"b": hanging, "a": sleeping(0.001)}, timeout_s=12)
    assert set(seen) == {"a"}  # half of the time is for who comes behind it


def test_what_was_seen_before_the_time_was_over_counts(look) -> None:  # type: ignore[no-untyped-def]
    test = TWICE.replace("launch, config=config", "other, config='again'").replace(
        "config\n", "other\n"
    )
    hanging = sleeping(0.001, "\ndef other():\n    time.sleep(600)\n")
    well = sleeping(0.002, "\ndef other():\n    time.sleep(0.002)\n")
    failing = sleeping(0.001, "\ndef other():\n    raise ValueError\n")
    seen = look(well, {"a": well, "fails": failing, "hangs": hanging}, test, timeout_s=12)
    assert {*seen} == {"a", "hangs"}
    assert seen["hangs"].is_cut and not seen["a"].is_cut
    assert seen["a"].log_ratio < seen["hangs"].log_ratio


@pytest.mark.parametrize(
    "incumbent",
    ["raise ValueError('gone')\n", sleeping(0.001, "    raise RuntimeError('sick')\n")],
    ids=["import", "launch"],
)
def test_without_the_incumbent_nobody_is_ranked(look, incumbent: str) -> None:  # type: ignore[no-untyped-def]
    assert look(incumbent, {"a": sleeping(0.001), "b": sleeping(0.002)}) == {}


def test_tests_that_time_themselves_are_for_pairs(look) -> None:  # type: ignore[no-untyped-def]
    test = """
        from kernel import launch

        def test_perf():
            launch()
    """
    assert look(sleeping(0.001), {"a": sleeping(0.001), "b": sleeping(0.002)}, test) == {}


@pytest.mark.parametrize("number", [1, 4, 5, 9])
def test_groups_hold_every_variant_once_and_are_even(number: int) -> None:
    names = [f"v{n}" for n in range(number)]
    found = list(groups(names, 4))
    assert [name for group in found for name in group] == names
    sizes = [len(group) for group in found]
    assert len(sizes) == -(-number // 4)
    assert max(sizes) <= 4
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("number", "gpus", "sizes"),
    [
        (2, 2, [2]),
        (3, 8, [3]),
        (4, 2, [2, 2]),
        (5, 4, [2, 3]),
        (9, 2, [2, 2, 2, 3]),
        (20, 3, [3, 3, 4, 3, 3, 4]),
    ],
)
def test_every_gpu_that_has_groups_has_as_many(number: int, gpus: int, sizes: list[int]) -> None:
    """Of two variants at least, each beside an incumbent of its own."""
    names = [f"v{n}" for n in range(number)]
    found = list(groups(names, 4, gpus))
    assert [name for group in found for name in group] == names
    assert [len(group) for group in found] == sizes


COUNTING = """
    import os, pathlib
    from kernel import launch

    def test_perf(tile_bench):
        pathlib.Path(os.environ["SEEN"]).open("a").write(f"{os.getpid()} ")
        tile_bench(launch)
"""


@pytest.mark.parametrize(("configs", "passes"), [(1, 1), (None, 2)])
def test_a_longer_look_is_taken_in_the_same_processes(
    tmp_path: Path, configs: int | None, passes: int
) -> None:
    """Where one config is measured they have stayed at it; else the test is run once more."""
    seen = tmp_path / "seen"
    seen.touch()
    kernels = {INCUMBENT: 0.02, "a": 0.01, "b": 0.04, "c": 0.01}
    with start_server(tmp_path / "log", write=[seen], SEEN=str(seen)) as server:
        made = {
            n: Project(tmp_path / (n or "i"), textwrap.dedent(COUNTING), sleeping(s)).checkout()
            for n, s in kernels.items()
        }
        logs = logs_of(made, tmp_path)
        with InterleavedScreen(server, PLAN, made, logs, configs=configs, roomy=True) as screen:
            first = screen.look(["a", "b", "c"], TIMING, deadline_in(60))
            assert set(first) == {"a", "b", "c"}
            assert screen.holds(["a", "c"])
            again = screen.look(["a", "c"], TIMING, deadline_in(60))
            assert not screen.holds(["b"])
    assert set(again) == {"a", "c"}
    assert all(look.log_ratio > 0.3 for look in again.values())
    workers = seen.read_text().split()
    assert len(set(workers)) == 4
    assert len(workers) == 4 + 3 * (passes - 1)


MEETING = """
    import os, pathlib, time

    folder, called = pathlib.Path(os.environ["SEEN"]), []

    def launch():
        if not called:
            called.append(True)
            (folder / str(os.getpid())).touch()
            ends = time.monotonic() + 20
            while len(list(folder.iterdir())) < 3 and time.monotonic() < ends:
                time.sleep(0.01)
            if time.monotonic() >= ends:
                raise SystemExit("they are not called at once")
        time.sleep(0.01)
"""
TUNED = """
    import os, pathlib, time

    # autotune
    folder, called = pathlib.Path(os.environ["SEEN"]), []

    def launch():
        if not called:
            called.append(True)
            assert len(list(folder.iterdir())) == 3, "something runs beside it"
        time.sleep(0.005)
"""


def test_who_tunes_itself_does_not_keep_the_others_from_being_called_at_once(
    tmp_path: Path,
) -> None:
    (seen := tmp_path / "seen").mkdir()
    kernels = {INCUMBENT: MEETING, "a": MEETING, "tunes": TUNED, "b": MEETING}
    with start_server(tmp_path / "log", write=[seen], SEEN=str(seen)) as server:
        made = {
            n: Project(
                tmp_path / (n or "i"), textwrap.dedent(TEST), textwrap.dedent(kernel)
            ).checkout()
            for n, kernel in kernels.items()
        }
        logs = logs_of(made, tmp_path)
        with InterleavedScreen(server, PLAN, made, logs, roomy=True) as screen:
            found = screen.look(["a", "tunes", "b"], TIMING, deadline_in(60))
    assert set(found) == {"a", "tunes", "b"}
    assert found["tunes"].log_ratio > 0.3


TUNED_BY_TRITON = """
    # triton.autotune
    import os, pathlib, time

    folder, calls = pathlib.Path(os.environ["SEEN"]), []

    def launch():
        calls.append(1)
        if len(calls) == 1:
            (folder / str(os.getpid())).touch()
            ends = time.monotonic() + 20
            while len(list(folder.glob("[0-9]*"))) < 3:
                assert time.monotonic() < ends, "they do not compile at once"
                time.sleep(0.01)
        if len(calls) == 2:
            mine = folder / f"choosing-{os.getpid()}"
            mine.touch()
            time.sleep(0.3)
            assert len(list(folder.glob("choosing-*"))) == 1, "another one chooses beside it"
            mine.unlink()
        time.sleep(0.005)
"""


def test_what_triton_tunes_compiles_beside_others_and_chooses_alone(tmp_path: Path) -> None:
    """Its first call compiles, the second one chooses."""
    (seen := tmp_path / "seen").mkdir()
    kernel = textwrap.dedent(TUNED_BY_TRITON)
    with start_server(tmp_path / "log", write=[seen], SEEN=str(seen)) as server:
        made = {
            name: Project(tmp_path / (name or "i"), textwrap.dedent(TEST), kernel).checkout()
            for name in (INCUMBENT, "a", "b")
        }
        logs = logs_of(made, tmp_path)
        with InterleavedScreen(server, PLAN, made, logs, roomy=True) as screen:
            found = screen.look(["a", "b"], TIMING, deadline_in(60))
    assert {*found} == {"a", "b"}


def test_without_a_fork_server_nobody_is_ranked(tmp_path: Path) -> None:
    with start_server(tmp_path / "server.log") as server:
        pass
    project = Project(tmp_path / "project", textwrap.dedent(TEST), sleeping(0.001)).checkout()
    made = {INCUMBENT: project, "a": project}
    with InterleavedScreen(server, PLAN, made, logs_of(made, tmp_path)) as screen:
        assert screen.look(["a"], TIMING, deadline_in(20)) == {}
