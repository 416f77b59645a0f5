"""What a comparison keeps beside its verdict, and perf tests that cannot be trusted."""

from __future__ import annotations

import json
import os
import statistics
import textwrap
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.pairs import WorkerPairs
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.confinement import Confinement
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import deadline_in
from agent.measuring.blocks import Block, ConfigBlocks, RawPair, Telemetry, equal_clock
from agent.measuring.decision import Rules, Status, decide
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Failure, calibrate, measure
from agent.measuring.screening import Look
from agent.measuring.statistics import Comparison
from tests.support.simulated import HOSTILE, QUIET, TYPICAL, SimulatedPairs, Surroundings
from tests.support.workers import Project, descendants, eventually

PLAN = TestPlan(("test_kernel.py",), (), ("test_kernel.py::test_perf",))
KERNEL = """
    import time

    def answer():
        return 42

    def launch():
        time.sleep(0.01)
"""
CHECKED = """
    from kernel import answer, launch

    def test_right():
        assert answer() == 42

    def test_perf(tile_bench):
        tile_bench(launch)
"""
STEPPED = """
    from kernel import launch

    def test_perf(tile_bench):
        tile_bench(launch)
"""


@pytest.fixture
def judge(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PytestJudge]:
    monkeypatch.setattr(
        "agent.harness.measuring.pytest_judge.ComparisonPlan", partial(ComparisonPlan, looks=(3,))
    )
    timing = BlockTiming(block_ms=10, settle_ms=2, least_samples=2)
    monkeypatch.setattr(
        "agent.harness.measuring.pytest_judge.WorkerPairs", partial(WorkerPairs, timing=timing)
    )
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(server, "confinement", Confinement(write=(tmp_path,)))  # what they count
    with closing(
        PytestJudge(server, PLAN, framework="triton", rules=Rules(), logs=tmp_path / "logs")
    ) as judge:
        yield judge


@pytest.fixture
def checking(judge: PytestJudge, server: ForkServer, tmp_path: Path) -> Iterator[PytestJudge]:
    """The same, of a plan with a correctness test."""
    plan = replace(PLAN, correctness=("test_kernel.py::test_right",))
    logs = tmp_path / "logs"
    with closing(PytestJudge(server, plan, framework="triton", rules=Rules(), logs=logs)) as judge:
        yield judge


def project(tmp_path: Path, name: str, test: str = STEPPED, kernel: str = KERNEL) -> Project:
    return Project(tmp_path / name, textwrap.dedent(test), textwrap.dedent(kernel))


def compare(judge: PytestJudge, one: Project, other: Project) -> Comparison | Failure:
    return judge.compare(one.checkout(), other.checkout(), None, deadline_in(60))


def test_every_block_is_kept_as_it_was_measured(judge: PytestJudge, tmp_path: Path) -> None:
    outcome = compare(judge, project(tmp_path, "one"), project(tmp_path, "other"))
    assert isinstance(outcome, Comparison)
    files = sorted((tmp_path / "logs").glob("*-pair.json"))
    assert len(files) >= outcome.pairs  # a disturbed one is kept as well
    (config,) = json.loads(files[0].read_text())["configs"]
    assert [block["incumbent"] for block in config["blocks"]] == [True, False, False, True]
    assert all(block["latency_ms"] >= 10.0 for block in config["blocks"])
    spent_s = json.loads(files[0].read_text())["spent_s"]
    assert {"collect", "inputs", "prepare", "blocks"} <= set(spent_s)
    assert spent_s["blocks"] >= sum(block["wall_ms"] for block in config["blocks"]) / 1e3


@pytest.mark.parametrize("most_ahead", [1, 4])
def test_the_next_workers_collect_ahead_and_none_is_left(
    judge: PytestJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_ahead: int
) -> None:
    """As many as are to be expected, so that none is begun for nothing."""
    monkeypatch.setattr("agent.harness.measuring.pytest_judge.most_ahead", lambda: most_ahead)
    before = descendants(os.getpid())
    outcome = compare(judge, project(tmp_path, "one"), project(tmp_path, "other"))
    assert isinstance(outcome, Comparison)
    forked = sorted((tmp_path / "logs").glob("*-incumbent.log"))
    taken = sorted((tmp_path / "logs").glob("*-pair.json"))  # disturbed ones, too
    assert len(forked) == len(taken) >= outcome.pairs
    ahead = [log for log in forked if log.name < taken[0].name]
    assert len(ahead) == 1 + min(most_ahead, outcome.pairs - 1)
    judge.close()
    assert eventually(lambda: descendants(os.getpid()) <= before)


def test_a_comparison_is_prepared_while_its_candidate_is_verified(
    checking: PytestJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first pairs are forked before the tests, taken by it, and by no other comparison."""
    monkeypatch.setattr("agent.harness.measuring.pytest_judge.most_ahead", lambda: 4)
    before = descendants(os.getpid())
    one, other = (project(tmp_path, name, CHECKED).checkout() for name in ("one", "other"))

    early = ComparisonPlan().sure_after

    def seen(what: str) -> int:
        return len(list((tmp_path / "logs").glob(f"*-{what}")))

    right = checking.verify(other, deadline_in(60), incumbent=one)
    assert isinstance(right, Verification)
    assert seen("incumbent.log") == early
    outcome = checking.compare(one, other, None, deadline_in(60))
    assert isinstance(outcome, Comparison)
    taken = seen("pair.json")
    forked = max(early, taken)  # it may end before the third of them
    assert seen("incumbent.log") == forked

    checking.verify(other, deadline_in(60), incumbent=one)
    assert seen("incumbent.log") == forked + early
    again = checking.compare(other, one, None, deadline_in(60))
    assert isinstance(again, Comparison)
    assert seen("incumbent.log") >= forked + early + seen("pair.json") - taken

    checking.verify(other, deadline_in(60), incumbent=one)
    checking.close()
    assert eventually(lambda: descendants(os.getpid()) <= before)


def test_of_a_candidate_that_is_wrong_no_comparison_is_prepared_any_longer(
    checking: PytestJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.harness.measuring.pytest_judge.most_ahead", lambda: 4)
    one = project(tmp_path, "one", CHECKED).checkout()
    before = descendants(os.getpid())
    wrong = project(tmp_path, "other", CHECKED, KERNEL.replace("42", "41")).checkout()
    assert isinstance(checking.verify(wrong, deadline_in(60), incumbent=one), Failure)
    assert list((tmp_path / "logs").glob("*-incumbent.log"))
    assert eventually(lambda: descendants(os.getpid()) <= before)


def test_workers_ahead_that_nobody_needs_end(
    judge: PytestJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate that is slower beyond doubt ends a comparison before those that follow."""
    monkeypatch.setattr("agent.harness.measuring.pytest_judge.most_ahead", lambda: 4)
    before = descendants(os.getpid())
    slow = KERNEL.replace("0.01", "0.2")
    outcome = compare(judge, project(tmp_path, "one"), project(tmp_path, "other", kernel=slow))
    assert isinstance(outcome, Comparison)
    assert outcome.pairs == 2
    judge.close()
    assert eventually(lambda: descendants(os.getpid()) <= before)


def test_a_next_worker_that_fails_to_collect_is_named_by_its_pair(
    judge: PytestJudge, tmp_path: Path
) -> None:
    """Its module is gone by the time that the second pair is forked."""
    other = project(tmp_path, "other")
    test = (
        STEPPED
        + """
    from pathlib import Path
    counter = Path(__file__).with_name("count")
    counter.write_text(counter.read_text() + "." if counter.exists() else ".")
    if len(counter.read_text()) > 1:
        raise ImportError("gone")
    """
    )
    failing = project(tmp_path, "failing", test=test)
    outcome = compare(judge, other, failing)
    assert isinstance(outcome, Failure)
    assert not outcome.incumbent
    assert "gone" in outcome.reason


def test_a_glance_ranks_two_variants(judge: PytestJudge, tmp_path: Path) -> None:
    incumbent = project(tmp_path, "incumbent").checkout()
    for name, sleep_s, sign in (("slow", 0.02, -1), ("fast", 0.005, 1)):
        variant = project(tmp_path, name, kernel=KERNEL.replace("0.01", str(sleep_s)))
        look = judge.quick_compare(incumbent, variant.checkout(), 2, deadline_in(60))
        assert isinstance(look, Look)
        assert sign * look.log_ratio > 0.2


def test_a_glance_at_what_fails_is_a_failure(judge: PytestJudge, tmp_path: Path) -> None:
    incumbent = project(tmp_path, "incumbent").checkout()
    broken = project(tmp_path, "broken", kernel="def launch(): raise MemoryError('no room')\n")
    look = judge.quick_compare(incumbent, broken.checkout(), 2, deadline_in(60))
    assert isinstance(look, Failure)
    assert "no room" in look.reason


def test_both_arms_get_the_same_random_bytes(judge: PytestJudge, tmp_path: Path) -> None:
    test = """
        import random
        from pathlib import Path
        import numpy, torch
        from kernel import launch

        def test_perf(tile_bench):
            drawn = [random.random(), numpy.random.rand(), torch.rand(()).item()]
            with open(Path(__file__).parent.parent / "drawn", "a") as file:
                print(drawn, file=file)
            tile_bench(launch)
    """
    outcome = compare(judge, project(tmp_path, "one", test), project(tmp_path, "other", test))
    assert isinstance(outcome, Comparison), outcome
    drawn = (tmp_path / "drawn").read_text().splitlines()
    taken = list((tmp_path / "logs").glob("*-pair.json"))  # disturbed ones, too
    assert len(drawn) == 2 * len(taken) >= 6
    assert len(set(drawn)) == 1


@pytest.mark.parametrize("whose", ["incumbent", "candidate"])
def test_a_perf_test_that_passes_once_and_fails_once(
    judge: PytestJudge, tmp_path: Path, whose: str
) -> None:
    flaky = """
        import pathlib, time

        MARK = pathlib.Path(__file__).parent.parent / "ran"

        def launch():
            time.sleep(0.002)
            if MARK.exists():
                raise RuntimeError("flaky")

        def pytest_end(): MARK.touch()
    """
    test = """
        import kernel

        def test_perf(tile_bench):
            tile_bench(kernel.launch)
            getattr(kernel, "pytest_end", int)()
    """
    arms = [project(tmp_path, "steady", test), project(tmp_path, "flaky", test, flaky)]
    outcome = compare(judge, *(arms if whose == "candidate" else arms[::-1]))
    assert isinstance(outcome, Failure)
    assert outcome.status is Status.CRASH
    assert outcome.incumbent is (whose == "incumbent")
    assert "flaky" in outcome.reason


def test_a_record_for_another_kernel_is_no_timing(judge: PytestJudge, tmp_path: Path) -> None:
    test = """
        from kernel import launch

        def test_perf(record_property):
            launch()
            record_property("benchmark", {"cutile": {"forward": {"median": 0.5}}})
    """
    outcome = judge.time(project(tmp_path, "other", test).checkout(), deadline_in(60))
    assert isinstance(outcome, Failure)
    assert "recorded cutile but nothing for triton" in outcome.reason


@pytest.mark.parametrize("median", [0.0, -1.0, float("nan"), float("inf"), "fast", None])
def test_a_timing_that_is_no_time_is_refused(
    judge: PytestJudge, tmp_path: Path, median: object
) -> None:
    test = f"""
        from kernel import launch
        nan, inf = float("nan"), float("inf")

        def test_perf(record_property):
            launch()
            record_property("benchmark", {{"triton": {{"forward": {{"median": {median!r}}}}}}})
    """
    outcome = judge.time(project(tmp_path, "odd", test).checkout(), deadline_in(60))
    assert isinstance(outcome, Failure)
    assert outcome.status is Status.CRASH
    assert "\n" not in outcome.reason


# --- clocks -------------------------------------------------------------------------------------


def pair(clocks_mhz: dict[bool, int], reasons: int, wobble: float) -> RawPair:
    blocks = tuple(
        Block(
            whose,
            1e3 / clocks_mhz[whose] * (1.0 if whose else wobble),
            10.0,
            40.0,
            Telemetry(clocks_mhz[whose], 700.0, 60, reasons),
        )
        for whose in (True, False, False, True)
    )
    return RawPair((ConfigBlocks("c", blocks),))


def test_where_the_power_cap_slows_one_arm_the_cycles_say_so() -> None:
    pairs = [pair({True: 1980, False: 1782}, 0x4, wobble) for wobble in (0.999, 1.0, 1.001)]
    effect = equal_clock(pairs, 0.0125, {})
    assert effect is not None
    assert abs(effect.improvement) < 1e-3
    assert equal_clock([pair({True: 1980, False: 1782}, 0, 1.0)] * 3, 0.0125, {}) is None


def test_the_verdict_is_on_time_and_names_the_cycles() -> None:
    capped = Telemetry(1500, 700.0, 60, 0x4)
    source = SimulatedPairs(TYPICAL, {"c": 0.9}, seed=1, telemetry=capped)
    comparison = measure(source, Rules(), ComparisonPlan())
    assert isinstance(comparison, Comparison)
    assert comparison.equal_clock is not None
    assert abs(comparison.equal_clock.improvement - comparison.overall.improvement) < 1e-9
    assert "equal clocks" not in decide(comparison, Rules()).reason


@pytest.mark.parametrize(("surroundings", "pairs"), [(QUIET, 5), (TYPICAL, 8), (HOSTILE, 8)])
def test_a_calibration_takes_the_pairs_that_the_noise_asks_for(
    surroundings: Surroundings, pairs: int
) -> None:
    taken = []
    for seed in range(20):
        source = SimulatedPairs(surroundings, {"a": 1.0}, seed)
        calibration = calibrate(source, ComparisonPlan())
        assert not isinstance(calibration, Failure)
        taken.append(calibration.pairs)
    assert statistics.median(taken) == pairs


def test_what_is_said_of_all_configs_is_weighted() -> None:
    weights = {"rare": 0.1, "frequent": 0.9}
    source = SimulatedPairs(QUIET, {"rare": 0.5, "frequent": 1.0}, seed=5)
    seen = measure(source, Rules(), ComparisonPlan(weights=weights))
    assert isinstance(seen, Comparison)
    assert seen.overall.improvement == pytest.approx(1 - 0.5**0.1, abs=0.02)
    equal = measure(source, Rules(), ComparisonPlan())
    assert isinstance(equal, Comparison)
    assert equal.overall.improvement == pytest.approx(1 - 0.5**0.5, abs=0.02)


def test_a_calibration_says_what_each_config_can_resolve() -> None:
    calibration = calibrate(SimulatedPairs(TYPICAL, {"a": 1.0, "b": 1.0}, seed=3), ComparisonPlan())
    assert not isinstance(calibration, Failure)
    assert set(calibration.resolvable) == {"a", "b"}
    assert all(0.002 < value < 0.05 for value in calibration.resolvable.values())


@pytest.mark.full
def test_a_line_up_is_a_glance_at_several(judge: PytestJudge, tmp_path: Path) -> None:
    """More than one group of them; who fails is missing, and the time is shared."""
    incumbent = project(tmp_path, "incumbent").checkout()
    kernels = {f"v{n}": KERNEL.replace("0.01", f"0.0{n}") for n in (1, 2, 3, 4, 8)}
    kernels["v3"] = "raise ValueError('no such tile')"
    variants = {
        name: project(tmp_path, name, kernel=kernel).checkout() for name, kernel in kernels.items()
    }
    with judge.line_ups(incumbent, variants) as line_ups:
        seen = line_ups.look(list(variants), 2, deadline_in(60))
        assert sorted(seen, key=lambda name: -seen[name].log_ratio) == ["v1", "v2", "v4", "v8"]
        again = line_ups.look(["v1", "v8"], 2, deadline_in(60), fresh=True)
        assert again["v1"].log_ratio > again["v8"].log_ratio
        assert line_ups.look(list(variants), 2, deadline_in(-1)) == {}
