"""What the judge says of checkouts that are right, wrong, dead, fast, slow and shifty."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agent.events import Baselined
from agent.frozen_tests import TestPlan
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.pairs import WorkerPairs
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.timed_pass import TimedPass
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.kept_folders import KeptFolders
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.decision import Rules, Status, decide
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Calibration, Failure
from agent.measuring.screening import Look
from agent.measuring.statistics import Comparison
from agent.measuring.subset import Subset
from tests.support.tiers import others_full
from tests.support.workers import Project, start_server

STEPPED = """
    import pytest
    from kernel import answer, configs, launch

    def test_answer():
        assert answer() == 42

    @pytest.mark.parametrize("n", [1, 2])
    def test_perf(n, tile_bench):
        for config in configs():
            tile_bench(launch, config=config, warmup_ms=0, rep_ms=10)
"""
SELF_TIMED = """
    import statistics, time
    from kernel import configs, launch

    def test_perf(record_property):
        for config in configs():
            samples = []
            for _ in range(9):
                begin = time.perf_counter()
                launch()
                samples.append((time.perf_counter() - begin) * 1e3)
            median = statistics.median(samples)
            record_property("benchmark", {"triton": {config: {"median": median}}})
"""
PLAN = TestPlan(
    files=("test_kernel.py", "test_self_timed.py"),
    correctness=("test_kernel.py::test_answer",),
    perf=("test_kernel.py::test_perf[1]", "test_kernel.py::test_perf[2]"),
)
SELF_TIMED_PLAN = TestPlan(PLAN.files, PLAN.correctness, ("test_self_timed.py::test_perf",))
NEW_PAIRS = partial(WorkerPairs, timing=BlockTiming(block_ms=20, settle_ms=4, least_samples=3))
Make = Callable[..., Checkout]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pairs of short blocks, and no pause after a bad one."""
    monkeypatch.setattr(
        "agent.harness.measuring.pytest_judge.ComparisonPlan", partial(ComparisonPlan, looks=(4,))
    )
    monkeypatch.setattr("agent.harness.measuring.pytest_judge.WorkerPairs", NEW_PAIRS)
    monkeypatch.setattr(WorkerPairs, "pause", lambda *_: None)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


@pytest.fixture
def judge(server: ForkServer, logs: Path, few: None) -> Iterator[PytestJudge]:
    with closing(PytestJudge(server, PLAN, framework="triton", rules=Rules(), logs=logs)) as judge:
        yield judge


@pytest.fixture
def self_timed(server: ForkServer, logs: Path, few: None) -> Iterator[PytestJudge]:
    """A judge whose perf tests time themselves, so that a block is a pass."""
    with closing(
        PytestJudge(server, SELF_TIMED_PLAN, framework="triton", rules=Rules(), logs=logs)
    ) as judge:
        yield judge


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes checkouts, each with a kernel of its own."""

    def make_checkout(name: str, sleep_ms: float = 1.0, extra: str = "") -> Checkout:
        kernel = f"""
            import os, time

            def answer():
                return 42

            def configs():
                return ["forward"]

            def launch():
                time.sleep({sleep_ms} / 1e3)
        """
        text = textwrap.dedent(kernel) + textwrap.dedent(extra)
        project = Project(tmp_path / name, STEPPED, text)
        project.write("test_self_timed.py", SELF_TIMED)
        return project.checkout()

    return make_checkout


# --- verify -------------------------------------------------------------------------------------


def test_a_right_kernel(judge: PytestJudge, make: Make) -> None:
    assert judge.verify(make("right"), deadline_in(60)) == Verification(1)


def test_a_wrong_result_is_reverted(judge: PytestJudge, make: Make) -> None:
    wrong = make("wrong", extra="def answer(): return 43")
    found = judge.verify(wrong, deadline_in(60))
    assert isinstance(found, Failure) and ">       assert answer() == 42\n" in found.detail
    assert replace(found, detail="") == Failure(
        Status.REVERT, correct=False, reason="test_kernel.py::test_answer: assert 43 == 42"
    )


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ("def answer(): raise RuntimeError('no such tile')", "RuntimeError: no such tile"),
        ("def answer(): os._exit(1)", "the worker ended by itself with exit code 1"),
        ("def answer(): os.abort()", "the worker was killed by SIGABRT"),
        ("import nothing_there", "No module named 'nothing_there'"),
        ("os._exit(0)", "the worker ended by itself with exit code 0"),
        ("del answer", "cannot import name 'answer' from 'kernel'"),
    ],
    ids=["raises", "exits", "aborts", "import", "exits at import", "lacks a name"],
)
def test_what_dies_is_a_crash(judge: PytestJudge, make: Make, extra: str, reason: str) -> None:
    failure = judge.verify(make("dead", extra=extra), deadline_in(60))
    assert isinstance(failure, Failure)
    assert (failure.status, failure.correct, failure.incumbent) == (Status.CRASH, False, False)
    assert reason in failure.reason


def test_a_hang_is_a_crash_that_says_so(judge: PytestJudge, make: Make) -> None:
    hung = make("hung", extra="def answer(): time.sleep(600)")
    failure = judge.verify(hung, deadline_in(1.5))
    assert isinstance(failure, Failure)
    assert failure.status is Status.CRASH
    assert failure.reason.startswith("timed out: no answer after")


def test_a_kernel_that_skips_its_tests_is_not_right(judge: PytestJudge, make: Make) -> None:
    """Otherwise a candidate could pass by skipping."""
    shirker = make("shirker", extra="import pytest\ndef answer(): pytest.skip('not today')")
    failure = judge.verify(shirker, deadline_in(60))
    assert isinstance(failure, Failure)
    assert not failure.correct
    assert "not today" in failure.reason


def test_a_test_that_is_gone_is_a_failure(judge: PytestJudge, make: Make) -> None:
    checkout = make("gone")
    (checkout.root / "test_kernel.py").write_text("import kernel\ndef test_other(): pass\n")
    failure = judge.verify(checkout, deadline_in(60))
    assert isinstance(failure, Failure)
    assert "test_kernel.py::test_answer can no longer be collected" in failure.reason


# --- time ---------------------------------------------------------------------------------------


def test_timing_gives_a_record_a_config(judge: PytestJudge, make: Make) -> None:
    timing = judge.time(make("timed", sleep_ms=2.0), deadline_in(60))
    assert isinstance(timing, TimedPass)
    assert [record.config for record in timing.records] == ["test_perf[1]", "test_perf[2]"]
    assert all(2.0 <= record.latency_ms < 20 for record in timing.records)
    assert 0.02 < timing.pass_s < 10


def test_timing_takes_the_second_pass_of_tests_that_time_themselves(
    self_timed: PytestJudge, make: Make
) -> None:
    """The first one compiles and warms up."""
    cold = """
        passes = []
        def configs():
            passes.append(1)
            return ["forward" if len(passes) == 1 else "backward"]
    """
    timing = self_timed.time(make("cold", extra=cold), deadline_in(60))
    assert isinstance(timing, TimedPass)
    assert [record.config for record in timing.records] == ["test_perf backward"]


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ("def configs(): return []", "the 2 perf tests recorded no timing"),
        ("def launch(): raise MemoryError('out of it')", "MemoryError: out of it"),
        ("def launch(): os._exit(9)", "exit code 9"),
        ("raise ImportError('sick')", "test_kernel.py: ImportError: sick"),
    ],
    ids=["records nothing", "raises", "exits", "cannot be imported"],
)
def test_what_cannot_be_timed_is_a_crash(
    judge: PytestJudge, make: Make, extra: str, reason: str
) -> None:
    failure = judge.time(make("untimed", extra=extra), deadline_in(60))
    assert isinstance(failure, Failure)
    assert failure.status is Status.CRASH
    assert reason in failure.reason


# --- compare ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", others_full(["judge", "self_timed"]))
def test_a_fast_candidate_against_a_slow_incumbent_and_the_other_way_round(
    request: pytest.FixtureRequest, make: Make, kind: str
) -> None:
    judge: PytestJudge = request.getfixturevalue(kind)
    slow, fast = make("slow", sleep_ms=20.0), make("fast", sleep_ms=10.0)
    faster = judge.compare(slow, fast, None, deadline_in(60))
    assert isinstance(faster, Comparison)
    assert 0.3 < faster.overall.improvement < 0.7
    assert faster.overall.low > 0
    assert faster.incumbent_ms > faster.candidate_ms >= 10.0
    names = {"judge": {"test_perf[1]", "test_perf[2]"}, "self_timed": {"test_perf"}}
    assert {config.config for config in faster.configs} == names[kind]
    assert decide(faster, Rules()).status is Status.KEEP

    slower = judge.compare(fast, slow, None, deadline_in(60))
    assert isinstance(slower, Comparison)
    assert slower.overall.improvement < -0.3
    assert min(config.effect.high for config in slower.configs) < 0  # one is enough to end it
    assert decide(slower, Rules()).status is Status.REVERT


def test_the_same_code_against_itself(judge: PytestJudge, make: Make) -> None:
    calibration = judge.calibrate(make("same", sleep_ms=10.0), deadline_in(60))
    assert isinstance(calibration, Calibration)
    assert calibration.noise_floor < 0.2
    assert set(calibration.levels_ms) == {"test_perf[1]", "test_perf[2]"}
    assert all(10.0 <= level < 20 for level in calibration.levels_ms.values())


@pytest.mark.full
@pytest.mark.parametrize("kind", ["judge", "self_timed"])
def test_the_first_work_of_a_worker_does_not_count(
    request: pytest.FixtureRequest, make: Make, kind: str
) -> None:
    """It compiles and warms up, and only one of the two may have that to do."""
    cold = """
        launches = []
        def launch():
            launches.append(1)
            time.sleep(0.2 if len(launches) <= 4 else 0.01)
    """
    judge: PytestJudge = request.getfixturevalue(kind)
    arms = make("cold", extra=cold), make("warm", sleep_ms=10.0)
    comparison = judge.compare(*arms, None, deadline_in(60))
    assert isinstance(comparison, Comparison)
    assert abs(comparison.overall.improvement) < 0.2


def test_one_config_that_regresses_reverts_the_rest(judge: PytestJudge, make: Make) -> None:
    fixed = "def configs(): return ['small', 'large']\n"
    uneven = """
        turn = []
        def configs():
            for name in ("small", "large"):
                turn.append(name)
                yield name
        def launch():
            time.sleep({"small": 0.01, "large": 0.02}[turn[-1]])
    """
    incumbent = make("even", sleep_ms=15.0, extra=fixed)
    comparison = judge.compare(incumbent, make("uneven", extra=uneven), None, deadline_in(60))
    assert isinstance(comparison, Comparison)
    verdict = decide(comparison, Rules())
    assert verdict.status is Status.REVERT
    assert "large is" in verdict.reason


def test_tests_say_how_much_their_timings_count(judge: PytestJudge, make: Make) -> None:
    """Those of the baseline do; a candidate cannot change it."""
    both = "def configs(): return ['small', 'large']\n"
    turn = """
        turn = []
        def configs():
            for name in ("small", "large"):
                turn.append(name)
                yield name
        def launch():
            time.sleep({"small": 0.005, "large": 0.02}[turn[-1]])
    """
    weighed = STEPPED.replace("rep_ms=10", "rep_ms=10, weight=9 if config == 'large' else 1")
    incumbent, candidate = make("even", sleep_ms=20.0, extra=both), make("uneven", extra=turn)
    for checkout in (incumbent, candidate):
        (checkout.root / "test_kernel.py").write_text(textwrap.dedent(weighed))
    timing = judge.time(incumbent, deadline_in(60))
    assert isinstance(timing, TimedPass)
    weights = Baselined(timing.records, 1, 1.0).weights
    assert weights == {"test_perf[1] large": 9.0, "test_perf[2] large": 9.0}
    judge.weigh(weights)
    look = judge.quick_compare(incumbent, candidate, 1, deadline_in(60))
    assert isinstance(look, Look)
    log_ratios = [look.log_ratio]
    with judge.line_ups(incumbent, {"it": candidate}) as line_ups:
        seen = line_ups.look(["it"], 1, deadline_in(60))
    log_ratios.append(seen["it"].log_ratio)
    # 0.1 log(4) = 0.14; weighed alike they would say 0.69. A loaded machine moves them, too.
    assert max(log_ratios) < 0.4, log_ratios


def test_configs_that_are_left_out_are_not_timed(judge: PytestJudge, make: Make) -> None:
    """One of two in one of two tests: the tests go on with all of them."""
    both = make("both", extra="def configs(): return ['small', 'large']\n")
    judge.compare_on(Subset(PLAN.perf[:1], ("test_perf[1] large",), ()))
    comparison = judge.compare(both, both, None, deadline_in(60))
    assert isinstance(comparison, Comparison)
    assert [config.config for config in comparison.configs] == ["test_perf[1] large"]


@pytest.mark.full
def test_fewer_pairs_are_taken_where_the_deadline_is_near(
    server: ForkServer, make: Make, logs: Path, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "agent.harness.measuring.pytest_judge.ComparisonPlan", partial(ComparisonPlan, looks=(200,))
    )
    with closing(PytestJudge(server, PLAN, framework="triton", rules=Rules(), logs=logs)) as judge:
        incumbent, candidate = make("a"), make("b")
        for _ in range(3):  # a busy machine may keep one of so many pairs from being measured
            comparison = judge.compare(incumbent, candidate, None, deadline_in(20))
            if not (isinstance(comparison, Failure) and comparison.unmeasured):
                break
    assert isinstance(comparison, Comparison), comparison
    assert 3 <= comparison.pairs < 200


# --- shifty candidates --------------------------------------------------------------------------

CHANGING = """
    calls = []
    def configs():
        calls.append(1)
        return ["forward"] if len(calls) % 2 else ["forward", "backward"]
"""


@pytest.mark.parametrize("candidate", [True, False], ids=["the candidate", "the incumbent"])
def test_a_set_of_configs_that_changes_from_pass_to_pass_is_not_measurable(
    self_timed: PytestJudge, make: Make, candidate: bool
) -> None:
    steady, changing = make("steady"), make("changing", extra=CHANGING)
    arms = (steady, changing) if candidate else (changing, steady)
    failure = self_timed.compare(*arms, None, deadline_in(60))
    assert isinstance(failure, Failure)
    assert failure.status is Status.CRASH
    assert failure.incumbent is not candidate
    assert "recorded a changing set of configs" in failure.reason


@pytest.mark.parametrize("number", [0, 1], ids=["ABBA", "BAAB"])
def test_whoever_goes_first_the_candidate_is_the_one_with_other_configs(
    server: ForkServer, make: Make, logs: Path, number: int
) -> None:
    both = make("both", extra="def configs(): return ['forward', 'backward']")
    one = make("one", extra="def configs(): return ['forward']")
    pairs = NEW_PAIRS(server, both, one, SELF_TIMED_PLAN, "triton", logs, deadline_in(60))
    failure = pairs.pair(number)
    assert isinstance(failure, Failure)
    assert not failure.incumbent
    assert failure.reason == "the two arms recorded different sets of configs"


@pytest.mark.parametrize(
    "configs", ["['fast']", "['fast', 'slow', 'more']", "['slow', 'fast']", "[]"]
)
def test_a_candidate_with_other_configs_than_the_incumbent(
    judge: PytestJudge, make: Make, configs: str
) -> None:
    """A candidate that leaves out the slow shape is no faster."""
    incumbent = make("incumbent", extra="def configs(): return ['fast', 'slow']")
    candidate = make("candidate", extra=f"def configs(): return {configs}")
    failure = judge.compare(incumbent, candidate, None, deadline_in(60))
    assert isinstance(failure, Failure)
    assert failure.status is Status.CRASH
    assert not failure.incumbent
    assert failure.reason == "the two arms recorded different sets of configs"


# --- whose fault it is --------------------------------------------------------------------------

SICK = [
    pytest.param("def launch(): raise RuntimeError('sick')", "sick", id="raises"),
    pytest.param("def launch(): raise OSError('no tile')", "OSError: no tile", id="raises else"),
    pytest.param("def launch(): os._exit(5)", "exit code 5", id="exits"),
    pytest.param("os._exit(6)", "exit code 6", id="exits at import"),
    pytest.param("raise ImportError('x')", ".py: ImportError: x", id="no import"),
    pytest.param("def configs(): raise MemoryError('x')", "MemoryError: x", id="in the test"),
]


@pytest.mark.parametrize("kind", others_full(["judge", "self_timed"]))
@pytest.mark.parametrize(("extra", "reason"), SICK)
def test_an_incumbent_that_fails_is_blamed(
    request: pytest.FixtureRequest, make: Make, extra: str, reason: str, kind: str
) -> None:
    judge: PytestJudge = request.getfixturevalue(kind)
    failure = judge.compare(make("sick", extra=extra), make("well"), None, deadline_in(60))
    assert isinstance(failure, Failure)
    assert failure.incumbent
    assert failure.status is Status.CRASH
    assert failure.reason.startswith("the incumbent failed its own perf test: ")
    assert reason in failure.reason


@pytest.mark.parametrize("kind", others_full(["judge", "self_timed"]))
@pytest.mark.parametrize(("extra", "reason"), SICK)
def test_a_candidate_that_fails_is_not_blamed_on_the_incumbent(
    request: pytest.FixtureRequest, make: Make, extra: str, reason: str, kind: str
) -> None:
    judge: PytestJudge = request.getfixturevalue(kind)
    failure = judge.compare(make("well"), make("sick", extra=extra), None, deadline_in(60))
    assert isinstance(failure, Failure)
    assert not failure.incumbent
    assert failure.status is Status.CRASH
    assert reason in failure.reason


@pytest.mark.parametrize("kind", others_full(["judge", "self_timed"]))
def test_a_candidate_that_is_wrong_when_timed_is_reverted(
    request: pytest.FixtureRequest, make: Make, kind: str
) -> None:
    judge: PytestJudge = request.getfixturevalue(kind)
    wrong = make("wrong", extra="def configs(): assert 0, 'off by one'")
    failure = judge.compare(make("well"), wrong, None, deadline_in(60))
    assert isinstance(failure, Failure)
    assert (failure.status, failure.correct, failure.incumbent) == (Status.REVERT, False, False)


def test_a_candidate_that_hangs_is_a_crash(judge: PytestJudge, make: Make) -> None:
    hung = make("hung", extra="def launch(): time.sleep(600)")
    failure = judge.compare(make("well"), hung, None, deadline_in(6))
    assert isinstance(failure, Failure)
    assert not failure.incumbent
    assert failure.reason.startswith("timed out: ")


@pytest.mark.full
def test_a_candidate_that_hangs_at_its_import_is_not_blamed_on_the_incumbent(
    judge: PytestJudge, make: Make
) -> None:
    hung = make("hung", extra="time.sleep(600)")
    failure = judge.compare(make("well"), hung, None, deadline_in(6))
    assert isinstance(failure, Failure)
    assert not failure.incumbent
    assert failure.reason.startswith("timed out: ")


def test_each_worker_has_a_log_of_its_own(judge: PytestJudge, make: Make, logs: Path) -> None:
    judge.verify(make("a"), deadline_in(60))
    judge.time(make("b"), deadline_in(60))
    names = sorted(path.name for path in logs.glob("*.log"))
    assert names == ["0001-verify.log", "0002-time.log"]


SAMPLES = "import tile_agent_pytest.bench as bench; bench.OnCpu.sample = lambda self, count: {}"
NONSENSE = {
    "[0.0] * count": "0.0",
    "[-1.0] * count": "-1.0",
    "[float('nan')] * count": "nan",
    "['soon'] * count": "'str'",
    "[]": "",
    "None": "",
}
"""What a candidate may report -> what the reason names of it."""


@pytest.mark.parametrize("samples", NONSENSE)
def test_whatever_a_candidate_reports_is_a_crash_of_its_own(
    judge: PytestJudge, make: Make, samples: str
) -> None:
    """Nothing it says may end the run: the run would meet it again after every resume."""
    failure = judge.compare(
        make("honest"), make("liar", extra=SAMPLES.format(samples)), None, deadline_in(60)
    )
    assert isinstance(failure, Failure)
    assert (failure.status, failure.incumbent) == (Status.CRASH, False)
    assert NONSENSE[samples] in failure.reason


def test_a_worker_that_reports_too_many_is_a_crash(judge: PytestJudge, make: Make) -> None:
    more = SAMPLES.format("[1.0] * (2 * count)")
    failure = judge.compare(make("honest"), make("liar", extra=more), None, deadline_in(60))
    assert isinstance(failure, Failure)
    assert "latencies where" in failure.reason and failure.status is Status.CRASH


def test_a_clock_that_stands_still_is_not_read_and_is_named(judge: PytestJudge, make: Make) -> None:
    still = "time.perf_counter = lambda: 0.0"
    failure = judge.compare(make("honest"), make("liar", extra=still), None, deadline_in(60))
    assert isinstance(failure, Failure)
    assert (failure.status, failure.incumbent) == (Status.TAMPERED, False)
    assert "in place of time.perf_counter" in failure.reason


@pytest.mark.parametrize("value", ["{'config': 'c'}", "7", "{'samples_ms': ['x'], 'config': 1}"])
def test_a_record_that_cannot_be_read_is_a_crash(
    judge: PytestJudge, make: Make, value: str
) -> None:
    patch = f"""
        import tile_agent_pytest.plugin as plugin
        import _pytest.reports as reports
        made = reports.TestReport.from_item_and_call.__func__
        def lying(cls, item, call):
            item.user_properties[:] = [("tile_bench", {value})]
            return made(cls, item, call)
        reports.TestReport.from_item_and_call = classmethod(lying)
    """
    failure = judge.time(make("liar", extra=patch), deadline_in(60))
    assert isinstance(failure, Failure)
    assert failure.status is Status.CRASH
    assert "recorded" in failure.reason


# --- arms that differ by their variables ---------------------------------------------------------


def test_one_text_under_two_sets_of_variables(
    tmp_path: Path, logs: Path, few: None, make: Make
) -> None:
    """PTX and Tile IR are compared so: the text, and the tests, are the same."""
    checkout = make("both", 4.0, 'def launch(): time.sleep(float(os.environ["SLEEP_MS"]) / 1e3)')
    with (
        start_server(tmp_path / "slow.log", SLEEP_MS="4") as slow,
        start_server(tmp_path / "fast.log", SLEEP_MS="2") as fast,
    ):
        new = partial(PytestJudge, framework="triton", rules=Rules(), logs=logs)
        with closing(new(slow, PLAN, candidate_server=fast)) as judge:
            found = judge.compare(checkout, checkout, None, deadline_in(120))
        slows, fasts = (
            KeptFolders.of(logs, checkout.root / checkout.kernel, server.environment)
            for server in (slow, fast)
        )
    assert isinstance(found, Comparison), found
    assert 0.3 < found.overall.improvement < 0.6
    assert slows.tuned != fasts.tuned  # what one has tuned is not the other's choice
    assert slows.caches != fasts.caches
