"""Real pytest in real forked workers, over small projects that misbehave in every way."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from agent.errors import UsageError, WorkerDied, WorkerTimedOut
from agent.harness.processes.confinement import Confinement
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import TestResult
from agent.harness.processes.worker_session import deadline_in
from tests.support.tiers import others_full
from tests.support.workers import (
    Project,
    alive,
    collected,
    descendants,
    eventually,
    nodeids,
    start_server,
)

ROOT = Path(__file__).parents[3]
HARNESS = ROOT / "tile_agent_pytest"
IMPORT = "import kernel\n"


def only(project: Project, server: ForkServer, body: str, timeout_s: float = 60.0) -> TestResult:
    """The one test of a project with this test file."""
    project.write("test_kernel.py", IMPORT + textwrap.dedent(body))
    (test,) = project.run(server, timeout_s=timeout_s).tests
    return test


def died(project: Project, server: ForkServer, body: str) -> str:
    """How the worker of a project with this test file died."""
    project.write("test_kernel.py", IMPORT + textwrap.dedent(body))
    with pytest.raises(WorkerDied) as caught:
        project.run(server)
    return str(caught.value)


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_left(server: ForkServer) -> Iterator[None]:
    """All the tests together leave no process below the server."""
    yield
    assert eventually(lambda: not descendants(server.pid)), descendants(server.pid)


# --- outcomes -----------------------------------------------------------------------------------

OUTCOMES = """
    import pytest
    from kernel import answer

    @pytest.fixture
    def bad_setup():
        raise RuntimeError("no setup")

    @pytest.fixture
    def bad_teardown():
        yield
        raise RuntimeError("no teardown")

    def test_pass(): assert answer() == 42
    def test_wrong(): assert answer() == 43
    def test_raise(): raise ValueError("a bad value")
    def test_skip(): pytest.skip("no GPU")
    @pytest.mark.skipif(True, reason="never")
    def test_skipif(): pass
    def test_setup(bad_setup): pass
    def test_teardown(bad_teardown): pass
    def test_wrong_and_teardown(bad_teardown): assert 0
    def test_fail(): pytest.fail("by hand")
    @pytest.mark.xfail(strict=True)
    def test_xpass(): pass
    def test_system_exit():
        import sys
        sys.exit(0)
"""


def test_every_outcome_travels_with_its_reason(project: Project, server: ForkServer) -> None:
    project.write("test_kernel.py", OUTCOMES)
    done = project.run(server)
    assert [(t.nodeid.partition("::")[2], t.outcome, t.exception) for t in done.tests] == [
        ("test_pass", "passed", ""),
        ("test_wrong", "failed", "AssertionError"),
        ("test_raise", "failed", "ValueError"),
        ("test_skip", "skipped", "Skipped"),
        ("test_skipif", "skipped", "Skipped"),
        ("test_setup", "failed", "RuntimeError"),
        ("test_teardown", "failed", ""),
        ("test_wrong_and_teardown", "failed", "AssertionError"),
        ("test_fail", "failed", "Failed"),
        ("test_xpass", "failed", ""),
        ("test_system_exit", "failed", "SystemExit"),
    ]
    headline = {t.nodeid.partition("::")[2]: t.headline for t in done.tests}
    assert headline["test_wrong"] == "assert 42 == 43"
    assert headline["test_raise"] == "ValueError: a bad value"
    assert "no GPU" in headline["test_skip"]
    assert headline["test_setup"] == "RuntimeError: no setup"
    assert headline["test_teardown"] == "RuntimeError: no teardown"
    assert headline["test_wrong_and_teardown"] == "assert 0"
    assert headline["test_fail"] == "Failed: by hand"
    assert {t.nodeid for t in done.not_passed()} == {t.nodeid for t in done.tests[1:]}
    assert done.seconds > 0


def test_the_kernels_file_is_reported(project: Project, server: ForkServer) -> None:
    assert project.run(server).modules == (str((project.root / "kernel.py").resolve()),)


def test_it_is_told_when_each_test_begins(project: Project, server: ForkServer) -> None:
    body = "import kernel, pytest\n@pytest.mark.parametrize('n', range(3))\ndef test(n): pass\n"
    project.write("test_kernel.py", body)
    told: list[tuple[int, str]] = []
    with project.arm(server) as arm:
        done = arm.run(nodeids(arm)[1:], deadline_in(30), lambda *begun: told.append(begun))
        assert told == [(0, "test_kernel.py::test[1]"), (1, "test_kernel.py::test[2]")]
        assert [test.nodeid for test in done.tests] == [nodeid for _, nodeid in told]
        assert len(arm.run(nodeids(arm), deadline_in(30)).tests) == 3


def test_more_beginnings_than_tests_are_no_answer(project: Project, server: ForkServer) -> None:
    body = """
        import gc
        import kernel
        from tile_agent_pytest.wire import Channel

        def test():
            channel = next(found for found in gc.get_objects() if isinstance(found, Channel))
            while True:
                channel.send({"event": "begins"})
    """
    project.write("test_kernel.py", body)
    told: list[int] = []
    with project.arm(server) as arm, pytest.raises(WorkerDied, match="makes no sense"):
        arm.run(nodeids(arm), deadline_in(30), lambda done, _: told.append(done))
    assert told == [0]


def test_only_the_frozen_tests_run_in_the_frozen_order(
    project: Project, server: ForkServer
) -> None:
    body = "import kernel, pytest\n@pytest.mark.parametrize('n', range(5))\ndef test(n): pass\n"
    project.write("test_kernel.py", body)
    wanted = [f"test_kernel.py::test[{n}]" for n in (3, 0, 4)]
    with project.arm(server, tests=wanted) as arm:
        assert nodeids(arm) == wanted
        done = arm.run(wanted[::-1], deadline_in(30))
        assert [test.nodeid for test in done.tests] == wanted[::-1]
    with project.arm(server, tests=wanted) as arm:
        with pytest.raises(WorkerDied, match=r"test\[1\] can no longer be collected"):
            arm.run(["test_kernel.py::test[1]"], deadline_in(30))


@pytest.mark.parametrize(
    "identifier",
    [
        "a b",
        "a::b",
        "a/b",
        "[x]",
        "ä-中",
        "'quoted\"",
        "a\\nb",
        "-k",
        "a,b;c|d",
        "%s{}",
        "x" * 500,
    ],
)
def test_parameters_with_odd_ids(project: Project, server: ForkServer, identifier: str) -> None:
    body = "import pytest\n@pytest.mark.parametrize('n', [1], ids=[{!r}])\ndef test(n): pass\n"
    project.write("test_kernel.py", IMPORT + body.format(identifier))
    with project.arm(server) as arm:
        (item,) = collected(arm).items
    with project.arm(server, tests=[item.nodeid]) as arm:
        (test,) = arm.run([item.nodeid], deadline_in(30)).tests
    assert (test.nodeid, test.outcome) == (item.nodeid, "passed")


# --- repeated passes ----------------------------------------------------------------------------


def test_a_repeated_pass_sets_everything_up_afresh(project: Project, server: ForkServer) -> None:
    body = """
        import pytest

        made = []

        @pytest.fixture(scope="session")
        def session_fixture():
            made.append("session")
            yield len(made)
            made.append("torn down")

        @pytest.fixture
        def function_fixture():
            made.append("function")
            return object()

        @pytest.mark.parametrize("n", [1, 2])
        def test(n, session_fixture, function_fixture, record_property, capsys):
            print("printed", n)
            record_property("made", list(made))
            made.clear()
    """
    project.write("test_kernel.py", IMPORT + textwrap.dedent(body))
    with project.arm(server) as arm:
        tests = nodeids(arm)
        passes = [arm.run(tests, deadline_in(30)) for _ in range(3)]
    properties = [[test.properties for test in done.tests] for done in passes]
    assert properties == [
        [(("made", ["session", "function"]),), (("made", ["function"]),)],
        [(("made", ["torn down", "session", "function"]),), (("made", ["function"]),)],
        [(("made", ["torn down", "session", "function"]),), (("made", ["function"]),)],
    ]
    assert {test.outcome for done in passes for test in done.tests} == {"passed"}


def test_the_output_of_one_pass_does_not_reach_the_next(
    project: Project, server: ForkServer
) -> None:
    body = "import itertools\nn = itertools.count()\ndef test():\n    print('pass', next(n))\n"
    project.write("test_kernel.py", IMPORT + body)
    with project.arm(server) as arm:
        tests = nodeids(arm)
        outputs = [arm.run(tests, deadline_in(30)).tests[0].stdout for _ in range(3)]
    assert outputs == ["pass 0\n", "pass 1\n", "pass 2\n"]


def test_a_failure_of_one_pass_does_not_reach_the_next(
    project: Project, server: ForkServer
) -> None:
    body = "import itertools\nn = itertools.count()\ndef test():\n    assert next(n) == 1\n"
    project.write("test_kernel.py", IMPORT + body)
    with project.arm(server) as arm:
        tests = nodeids(arm)
        results = [arm.run(tests, deadline_in(30)).tests[0] for _ in range(3)]
    assert [(t.outcome, t.exception) for t in results] == [
        ("failed", "AssertionError"),
        ("passed", ""),
        ("failed", "AssertionError"),
    ]


# --- timings ------------------------------------------------------------------------------------


def test_the_samples_of_pytest_benchmark_arrive(project: Project, server: ForkServer) -> None:
    pytest.importorskip("pytest_benchmark")
    body = """
        import time
        def test(benchmark):
            benchmark.pedantic(time.sleep, args=(0.002,), rounds=7)
    """
    project.write("test_kernel.py", IMPORT + textwrap.dedent(body))
    with project.arm(server) as arm:
        tests = nodeids(arm)
        passes = [arm.run(tests, deadline_in(30)) for _ in range(2)]
    for done in passes:
        (test,) = done.tests
        assert test.outcome == "passed", test.text
        assert len(test.benchmark_s) == 7
        assert all(0.002 <= sample < 0.1 for sample in test.benchmark_s)


def test_a_worker_starts_no_program_by_itself(project: Project, tmp_path: Path) -> None:
    """As pytest-benchmark does, which asks git and hg what a saved run is called, and file what
    this machine is."""
    pytest.importorskip("pytest_benchmark")
    tools, started = tmp_path / "tools", tmp_path / "started"
    tools.mkdir()
    for name in ("git", "hg", "file"):
        (tools / name).write_text(f"#!/bin/sh\necho {name} >> {started}\n")
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    only_this = "import os, subprocess\n\ndef test(benchmark):\n"
    with start_server(tmp_path / "server.log", write=[tmp_path], PATH=path) as server:
        test = only(project, server, f"{only_this}    benchmark.pedantic(int, rounds=2)\n")
        assert (test.outcome, started.exists()) == ("passed", False)
        only(project, server, f"{only_this}    subprocess.run(['git'], check=True)\n")
    assert started.read_text() == "git\n"


def test_a_hundred_thousand_samples_are_thinned(project: Project, server: ForkServer) -> None:
    pytest.importorskip("pytest_benchmark")
    body = "def test(benchmark):\n    benchmark.pedantic(lambda: None, rounds=100_000)\n"
    test = only(project, server, body)
    assert 500 < len(test.benchmark_s) <= 1000


def test_tile_bench_is_there_and_times(project: Project, server: ForkServer) -> None:
    body = """
        import time
        def test(tile_bench):
            assert 1 < tile_bench(lambda: time.sleep(0.002), warmup_ms=0, rep_ms=10) < 100
            tile_bench(lambda: None, config="nothing", rep_ms=0.001, warmup_ms=0)
    """
    test = only(project, server, body)
    assert test.outcome == "passed", test.text
    (_, first), (_, second) = test.properties
    assert (first["config"], second["config"]) == ("forward", "nothing")
    assert len(first["samples_ms"]) >= 5
    assert all(sample >= 2 for sample in first["samples_ms"])


def test_properties_of_any_kind_travel(project: Project, server: ForkServer) -> None:
    body = """
        import numpy, torch
        def test(record_property):
            record_property("numpy", numpy.float32(1.5))
            record_property("torch", torch.tensor(2.5))
            record_property("array", numpy.zeros(3))
            record_property("object", object)
            record_property("keys", {(1, 2): 3, 4: 5})
            record_property("nan", float("nan"))
    """
    test = only(project, server, body)
    assert test.outcome == "passed"
    found = dict(test.properties)
    assert (found["numpy"], found["torch"]) == (1.5, 2.5)
    assert "object" in found["object"]
    assert found["keys"] == {"4": 5}
    assert found["nan"] != found["nan"]


def test_a_property_after_a_subtest_is_the_tests_own(project: Project, server: ForkServer) -> None:
    body = """
        def test(subtests, record_property):
            with subtests.test("first"):
                pass
            record_property("after", 1)
    """
    if not hasattr(pytest, "Subtests"):
        pytest.skip("this pytest has no subtests")
    assert only(project, server, body).properties == (("after", 1),)


# --- tests that misbehave -----------------------------------------------------------------------


def test_a_test_that_ends_the_process(project: Project, server: ForkServer) -> None:
    how = died(project, server, "import os\ndef test(): os._exit(0)\n")
    assert how == "the worker ended by itself with exit code 0"


def test_a_worker_that_cannot_begin_says_why(
    project: Project, server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a-file").touch()
    monkeypatch.setattr(server, "confinement", Confinement(write=(tmp_path / "a-file/below",)))
    how = died(project, server, "def test(): pass\n")
    assert "exit code 1: " in how
    assert "NotADirectoryError" in how


def test_a_segmentation_fault(project: Project, server: ForkServer) -> None:
    how = died(project, server, "import ctypes\ndef test(): ctypes.string_at(0)\n")
    assert how == "the worker was killed by SIGSEGV"


def test_a_signal_to_itself(project: Project, server: ForkServer) -> None:
    how = died(project, server, "import os\ndef test(): os.kill(os.getpid(), 9)\n")
    assert how == "the worker was killed by SIGKILL"


def test_a_keyboard_interrupt(project: Project, server: ForkServer) -> None:
    how = died(project, server, "def test(): raise KeyboardInterrupt\n")
    assert how == "the worker ended by itself with exit code 2"


def test_pytest_exit(project: Project, server: ForkServer) -> None:
    how = died(project, server, "import pytest\ndef test(): pytest.exit('enough')\n")
    assert "ended by itself" in how


def test_a_death_while_a_child_holds_the_socket(project: Project, server: ForkServer) -> None:
    """The child keeps the worker's end of the conversation open; that must not hang anything."""
    body = """
        import os, time
        def test():
            if os.fork() == 0:
                time.sleep(600)
            os._exit(3)
    """
    begin = time.monotonic()
    assert died(project, server, body) == "the worker ended by itself with exit code 3"
    assert time.monotonic() - begin < 30


HANG = """
    import subprocess, sys, os, time
    CHILD = "import time; time.sleep(600)"
    def test():
        plain = subprocess.Popen([sys.executable, "-c", CHILD])
        daemon = subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True)
        blank = subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True, env={})
        orphan = os.fork()
        if orphan == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        os.waitpid(orphan, 0)
        open("pids", "w").write(f"{os.getpid()} {plain.pid} {daemon.pid} {blank.pid}")
        while True:
            time.sleep(1)
"""


def test_a_hang_ends_at_the_deadline_with_its_whole_process_tree(
    project: Project, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "confinement", Confinement(write=(project.root,)))
    project.write("test_kernel.py", IMPORT + textwrap.dedent(HANG))
    with project.arm(server) as arm:
        tests = nodeids(arm)
        begin = time.monotonic()
        with pytest.raises(WorkerTimedOut, match=r"no answer after \d+ s; killed"):
            arm.run(tests, deadline_in(5.0))
        assert time.monotonic() - begin < 60
    pids = [int(pid) for pid in (project.root / "pids").read_text().split()]
    assert len(pids) == 4
    assert eventually(lambda: not any(alive(pid) for pid in pids))

    assert eventually(lambda: not descendants(server.pid)), "the orphan was only forked"


@pytest.mark.full
@pytest.mark.parametrize("ends", ["pass", "os._exit(3)"])
def test_an_ordered_pass_is_fetched_when_it_is_over(
    project: Project, server: ForkServer, ends: str
) -> None:
    project.write("test_kernel.py", IMPORT + f"import os, time\ndef test():\n    {ends}\n")
    project.write("test_slow.py", IMPORT + "import time\ndef test():\n    time.sleep(3.0)\n")
    with project.arm(server, "test_slow.py", "test_kernel.py") as arm:
        begin = time.monotonic()
        arm.order(nodeids(arm), deadline_in(30))
        assert not arm.has_answer()
        assert time.monotonic() - begin < 3.0
        assert eventually(arm.has_answer)
        if ends == "pass":
            done = arm.fetch(deadline_in(0))
            assert [test.outcome for test in done.tests] == ["passed", "passed"]
            assert not arm.has_answer()
        else:
            with pytest.raises(WorkerDied, match="exit code 3"):
                arm.fetch(deadline_in(0))


def test_how_long_a_pass_was_waited_for_counts_from_its_order(
    project: Project, server: ForkServer
) -> None:
    project.write("test_kernel.py", IMPORT + "import time\ndef test():\n    time.sleep(600)\n")
    with project.arm(server) as arm:
        arm.order(nodeids(arm), deadline_in(30))
        time.sleep(1.5)
        with pytest.raises(WorkerTimedOut, match=r"no answer after ([2-9]|\d\d) s"):
            arm.fetch(deadline_in(0.1))


def test_a_hang_in_a_module_ends_at_the_deadline(project: Project, server: ForkServer) -> None:
    project.write("kernel.py", "import time\ntime.sleep(600)\n")
    with pytest.raises(WorkerTimedOut):
        project.arm(server, timeout_s=1.5)


@pytest.mark.full
def test_a_hang_that_ignores_signals(project: Project, server: ForkServer) -> None:
    body = """
        import signal, time
        def test():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            while True:
                try:
                    time.sleep(600)
                except BaseException:
                    pass
    """
    with pytest.raises(WorkerTimedOut):
        only(project, server, body, timeout_s=2.0)


def test_binary_output(project: Project, server: ForkServer) -> None:
    body = """
        import os, sys
        def test():
            os.write(1, bytes(range(256)))
            sys.stdout.buffer.write(b"\\xff\\xfe\\x00")
            sys.stderr.buffer.write(b"\\xff\\xfe\\x00")
            print("\\udc80".encode("utf-8", "surrogateescape"))
    """
    test = only(project, server, body)
    assert test.outcome == "passed", test.text
    assert "ABC" in test.stdout


def test_ten_megabytes_of_output_are_clipped_in_the_middle(
    project: Project, server: ForkServer
) -> None:
    test = only(project, server, "def test(): print('a' + 'x' * 10_000_000 + 'z')\n")
    assert test.outcome == "passed"
    assert len(test.stdout) < 25_000
    assert "9980003 characters left out" in test.stdout
    assert (test.stdout[0], test.stdout[-2:]) == ("a", "z\n")


def test_ten_megabytes_of_an_error_are_clipped(project: Project, server: ForkServer) -> None:
    test = only(project, server, "def test(): raise ValueError('x' * 10_000_000)\n")
    assert test.outcome == "failed"
    assert len(test.text) < 25_000


@pytest.mark.parametrize("stop", others_full(["", "pytest.skip('x')", "assert 0"]))
def test_standard_streams_closed_by_a_test(project: Project, server: ForkServer, stop: str) -> None:
    body = f"""
        import os, pytest
        def test():
            for fd in (0, 1, 2):
                os.close(fd)
            {stop}
        def test_next():
            print("still here")
    """
    project.write("test_kernel.py", IMPORT + textwrap.dedent(body))
    tests = project.run(server).tests
    expected = {"": "passed", "assert 0": "failed"}.get(stop, "skipped")
    assert [test.outcome for test in tests] == [expected, "passed"]
    assert tests[1].stdout == "still here\n"


def test_every_descriptor_closed_by_a_test(project: Project, server: ForkServer) -> None:
    begin = time.monotonic()
    died(project, server, "import os\ndef test(): os.closerange(0, 4096)\n")
    assert time.monotonic() - begin < 30


def test_every_descriptor_closed_and_then_a_hang(
    project: Project, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conversation is over although the worker lives: it is killed after a grace time."""
    monkeypatch.setattr("agent.harness.processes.fork_server.EXIT_TIMEOUT_S", 1.0)
    body = "import os, time\ndef test():\n    os.closerange(0, 4096)\n    time.sleep(600)\n"
    begin = time.monotonic()
    assert "closed its connection without an answer" in died(project, server, body)
    assert time.monotonic() - begin < 30


def test_a_test_that_forks_and_waits(project: Project, server: ForkServer) -> None:
    body = """
        import os
        def test():
            pid = os.fork()
            if pid == 0:
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    """
    assert only(project, server, body).outcome == "passed"


@pytest.mark.parametrize(
    "leave", others_full(["return", "raise ValueError", "sys.exit(1)", "assert 0"])
)
def test_a_forked_child_never_answers_for_the_worker(
    project: Project, server: ForkServer, leave: str
) -> None:
    """A child that escapes from the test holds the same socket: one request, one answer."""
    body = f"""
        import os, sys, time
        def test(record_property):
            record_property("parent", os.getpid())
            if os.fork() == 0:
                {leave}
            time.sleep(0.5)
        def test_other():
            pass
    """
    project.write("test_kernel.py", IMPORT + textwrap.dedent(body))
    with project.arm(server) as arm:
        first, other = nodeids(arm)
        assert [t.outcome for t in arm.run([first], deadline_in(30)).tests] == ["passed"]
        for _ in range(3):
            (test,) = arm.run([other], deadline_in(30)).tests
            assert (test.nodeid, test.outcome) == (other, "passed")


def test_a_test_that_leaves_the_folder(project: Project, server: ForkServer) -> None:
    body = "import os\ndef test(): os.chdir('/')\ndef test_next(): pass\n"
    project.write("test_kernel.py", IMPORT + body)
    with project.arm(server) as arm:
        tests = nodeids(arm)
        for _ in range(2):
            done = arm.run(tests, deadline_in(30))
            assert [test.outcome for test in done.tests] == ["passed", "passed"]


def test_one_workers_end_leaves_the_others_alone(project: Project, server: ForkServer) -> None:
    body = """
        import os, subprocess, time
        helper = subprocess.Popen(["sleep", "600"])
        command = "sleep 600 > /dev/null & echo $!"
        daemon = int(subprocess.check_output(["sh", "-c", command]))
        def test():
            time.sleep(0.2)
            assert helper.poll() is None
            os.kill(daemon, 0)
        def test_die(): os._exit(1)
    """
    project.write("test_kernel.py", IMPORT + textwrap.dedent(body))
    with project.arm(server) as first:
        alive_id, die_id = nodeids(first)
        with project.arm(server) as second:
            with pytest.raises(WorkerDied):
                second.run([die_id], deadline_in(30))
        assert first.run([alive_id], deadline_in(30)).tests[0].outcome == "passed"


def test_those_that_are_to_end_by_themselves_can_be_waited_for(
    project: Project, server: ForkServer
) -> None:
    project.write("conftest.py", "import time\ndef pytest_sessionfinish(): time.sleep(0.5)\n")
    with project.arm(server):
        pass
    assert descendants(server.pid)
    server.await_retired(10)
    assert not descendants(server.pid)


def test_an_end_is_not_waited_for_unless_somebody_asks(
    project: Project, server: ForkServer
) -> None:
    """The server sleeps meanwhile: whoever waited for a worker's end would wait for it."""
    project.write("test_kernel.py", IMPORT + "def test(): pass\n")
    arms = [project.arm(server) for _ in range(3)]
    for arm in arms:
        nodeids(arm)
    assert len(descendants(server.pid)) >= 3
    asleep = psutil.Process(server.pid)
    asleep.suspend()
    try:
        begin = time.monotonic()
        for arm in arms:
            arm.abandon()
        assert time.monotonic() - begin < 2
    finally:
        asleep.resume()
    server.await_retired(20)
    assert not descendants(server.pid)


def test_threads_share_a_server(project: Project, server: ForkServer) -> None:
    """Each hears of its own workers, whoever was told of them."""
    project.write("test_kernel.py", IMPORT + "def test_die(): os._exit(7)\nimport os\n")

    def die(_: int) -> str:
        with project.arm(server) as arm:
            with pytest.raises(WorkerDied) as ended:
                arm.run(nodeids(arm), deadline_in(60))
        return str(ended.value)

    with ThreadPoolExecutor(4) as threads:
        told = list(threads.map(die, range(8)))
    assert ["code 7" in each for each in told] == [True] * 8
    server.await_retired(10)
    assert not descendants(server.pid)


def test_a_thread_that_waits_for_long_holds_up_no_other(
    project: Project, server: ForkServer
) -> None:
    project.write("test_kernel.py", IMPORT + "def test_die(): os._exit(7)\nimport os\n")
    with project.arm(server) as alive_arm, project.arm(server) as arm, ThreadPoolExecutor(1) as one:
        nodeids(alive_arm)
        waiting = one.submit(server.exit_code, alive_arm._worker._mark, 8.0)
        die_id = nodeids(arm)
        begin = time.monotonic()
        with pytest.raises(WorkerDied, match="code 7"):
            arm.run(die_id, deadline_in(60))
        assert time.monotonic() - begin < 4 and not waiting.done()
        assert waiting.result() is None


def test_one_that_does_not_end_is_waited_for_once(project: Project, server: ForkServer) -> None:
    project.write("conftest.py", "import time\ndef pytest_sessionfinish(): time.sleep(600)\n")
    project.write("test_kernel.py", IMPORT + "def test(): pass\n")
    with project.arm(server) as arm:
        nodeids(arm)
    server.await_retired(1)
    begin = time.monotonic()
    server.await_retired(60)
    assert time.monotonic() - begin < 30
    assert eventually(lambda: not descendants(server.pid))


# --- the project's own configuration ------------------------------------------------------------


@pytest.mark.parametrize(
    "addopts",
    [
        "-n 2 --strict-markers",
        "-n auto --dist loadfile",
        "-p no:xdist",
        "-x",
        "--maxfail=1 -v",
        "--lf",
        "--ff --nf",
        "--stepwise",
        "--cache-clear",
        "-p no:cacheprovider",
        "-q -s",
        "--color=yes -vv --durations=3",
        "--import-mode=importlib",
        "-W error",
        "--benchmark-autosave",
    ],
)
def test_the_projects_own_options(project: Project, server: ForkServer, addopts: str) -> None:
    if importlib.util.find_spec("xdist") is None and "-n" in addopts:
        pytest.skip("pytest-xdist is not installed")
    project.write("pytest.ini", f"[pytest]\naddopts = {addopts}\n")
    project.write("test_kernel.py", "import kernel\ndef test_a(): assert 0\ndef test_b(): pass\n")
    with project.arm(server) as arm:
        tests = nodeids(arm)
        for _ in range(2):
            done = arm.run(tests, deadline_in(60))
            assert [test.outcome for test in done.tests] == ["failed", "passed"]
    assert {path.name for path in project.root.iterdir()} == {
        "kernel.py",
        "pytest.ini",
        "test_kernel.py",
    }


def test_a_project_that_turns_warnings_into_errors(project: Project, server: ForkServer) -> None:
    project.write("pytest.ini", "[pytest]\nfilterwarnings = error\n")
    assert only(project, server, "def test(tile_bench): pass\n").outcome == "passed"


@pytest.mark.parametrize("addopts", others_full(["", "-x"]))
def test_a_kernel_that_cannot_be_imported(
    project: Project, server: ForkServer, addopts: str
) -> None:
    project.write("pytest.ini", f"[pytest]\naddopts = {addopts}\n")
    project.write("kernel.py", "import no_such_module\n")
    with project.arm(server) as arm:
        assert collected(arm).items == ()
        ((nodeid, text),) = collected(arm).errors
    assert nodeid == "test_kernel.py"
    assert "No module named 'no_such_module'" in text


@pytest.mark.parametrize("addopts", others_full(["", "-x"]))
def test_one_file_that_cannot_be_imported_does_not_hide_the_next(
    project: Project, server: ForkServer, addopts: str
) -> None:
    project.write("pytest.ini", f"[pytest]\naddopts = {addopts}\n")
    project.write("test_a.py", "import no_such_module\n")
    with project.arm(server, "test_a.py", "test_kernel.py") as arm:
        assert nodeids(arm) == ["test_kernel.py::test_answer"]
        assert [nodeid for nodeid, _ in collected(arm).errors] == ["test_a.py"]


def test_a_conftest_that_fails(project: Project, server: ForkServer) -> None:
    project.write("conftest.py", "raise RuntimeError('broken conftest')\n")
    said = r"^conftest\.py:1: RuntimeError: broken conftest \(see (\S+\.log)\)$"
    with pytest.raises(WorkerDied, match=said) as caught:
        project.arm(server)
    log = Path(str(caught.value).rpartition(" ")[2].removesuffix(")"))
    assert "broken conftest" in log.read_text()


def test_a_kernel_that_can_no_longer_be_imported(project: Project, server: ForkServer) -> None:
    with project.arm(server) as arm:
        frozen = nodeids(arm)
    project.write("kernel.py", "\nimport no_such_module\n")
    said = r"::test_answer can no longer be collected: kernel\.py:2: ModuleNotFoundError: No module"
    with project.arm(server, tests=frozen) as arm, pytest.raises(WorkerDied, match=said):
        arm.run(frozen, deadline_in(60))


def test_a_plugin_that_ends_the_session(project: Project, server: ForkServer) -> None:
    ending = "import pytest\ndef pytest_collection():\n    pytest.exit('', returncode=7)\n"
    project.write("conftest.py", ending)
    with pytest.raises(WorkerDied, match=r"^pytest ended with exit code 7 \(see \S+\.log\)$"):
        project.arm(server)


def test_a_file_that_is_not_there(project: Project, server: ForkServer) -> None:
    with pytest.raises(WorkerDied, match=r"^file or directory not found: missing\.py \(see "):
        project.arm(server, "missing.py")


def test_an_option_that_pytest_does_not_know(project: Project, server: ForkServer) -> None:
    project.write("pytest.ini", "[pytest]\naddopts = --no-such-option\n")
    with pytest.raises(WorkerDied, match=r"^unrecognized arguments: --no-such-option \(see "):
        project.arm(server)


# --- what a worker sees and leaves --------------------------------------------------------------


def test_secrets_stay_out_of_the_worker(project: Project, server: ForkServer) -> None:
    body = """
        import os, subprocess, sys
        def test(record_property):
            record_property("own", dict(os.environ))
            dump = "import os; print(dict(os.environ))"
            record_property("child", subprocess.check_output([sys.executable, "-c", dump]).decode())
    """
    found = dict(only(project, server, body).properties)
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "MY_PASSWORD"):
        assert name not in found["own"]
    assert "hush" not in str(found)
    assert found["own"]["TRITON_INTERPRET"] == "1"


def test_a_run_writes_nothing_into_the_checkout(project: Project, server: ForkServer) -> None:
    """No bytecode, no cache: two candidates of one second and one size would share a .pyc."""
    project.write("pkg/__init__.py", "")
    project.write("pkg/helper.py", "x = 1\n")
    project.write("conftest.py", "import pkg.helper\n")
    project.write("test_kernel.py", "import kernel, pkg.helper\ndef test(): assert 1\n")
    before = sorted(project.root.rglob("*"))
    project.run(server)
    assert sorted(project.root.rglob("*")) == before


def test_two_checkouts_of_one_second_and_one_size(tmp_path: Path, server: ForkServer) -> None:
    body = "from kernel import answer\ndef test(record_property): record_property('a', answer())\n"
    found = []
    project = Project(tmp_path / "project", test=body)
    for number in (1, 2):
        project.write("kernel.py", f"def answer():\n    return {number}\n")
        os.utime(project.root / "kernel.py", (1e9, 1e9))
        found.append(project.run(server).tests[0].properties)
    assert found == [(("a", 1),), (("a", 2),)]


# --- the server ---------------------------------------------------------------------------------


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name an interpreter that has torch and pytest"):
        ForkServer(str(tmp_path / "python"), {}, tmp_path / "server.log")


def test_an_interpreter_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot start a worker"):
        ForkServer("/bin/false", {}, tmp_path / "server.log")


@pytest.mark.full
def test_the_servers_death_ends_its_workers(tmp_path: Path) -> None:
    project = Project(
        tmp_path / "project", test="import kernel, time\ndef test(): time.sleep(600)\n"
    )
    known = set(psutil.Process().children())
    with (
        start_server(tmp_path / "server.log", python=sys.executable) as server,
        project.arm(server) as arm,
    ):
        tests = nodeids(arm)
        (process,) = set(psutil.Process().children()) - known
        workers = descendants(process.pid)
        assert workers
        killer = threading.Timer(0.3, process.kill)
        killer.start()
        with pytest.raises(WorkerDied, match="closed its connection without an answer"):
            arm.run(tests, deadline_in(30))
        killer.join()
        assert eventually(lambda: not any(alive(pid) for pid in workers))
        with pytest.raises(WorkerDied, match="the fork server is gone"):
            project.arm(server)


HOLDER = """
import sys
from pathlib import Path
from agent.harness.processes.confinement import Confinement
from agent.harness.processes.worker_session import deadline_in
from tests.support.workers import Project, nodeids, start_server

folder = Path(sys.argv[1])
project = Project(folder / "project")
server = start_server(folder / "server.log", python=sys.executable)
server.confinement = Confinement(write=(project.root,))
arms = [project.arm(server) for _ in range(2)]
print("ready", flush=True)
arms[0].run(nodeids(arms[0]), deadline_in(600))
"""


@pytest.mark.parametrize("number", others_full([signal.SIGKILL, signal.SIGTERM]))
def test_the_parents_death_takes_everything_along(tmp_path: Path, number: signal.Signals) -> None:
    project = Project(tmp_path / "project", test=IMPORT + textwrap.dedent(HANG))
    script = HOLDER.replace('Project(folder / "project")', 'Project(folder / "project", TEST)')
    script = f"TEST = {(project.root / 'test_kernel.py').read_text()!r}\n{script}"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
        assert eventually((project.root / "pids").exists)
        assert eventually(lambda: len((project.root / "pids").read_text().split()) == 4)
        below = descendants(holder.pid)
        assert len(below) == 7, "the server, two workers, four that a test started"
        holder.send_signal(number)
    assert eventually(lambda: not any(alive(pid) for pid in below)), below


STARTER = """
import signal, sys
from pathlib import Path
from agent.harness.processes.fork_server import ForkServer
from agent.interruption import interrupt

signal.signal(signal.SIGINT, interrupt)
ForkServer(sys.executable, {"TMPDIR": sys.argv[1]}, Path(sys.argv[1], "server.log"))
"""


def test_an_interrupt_while_a_server_imports_leaves_none(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    starter = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)

    def below() -> list[int]:
        """The server's process, once it is one: it says hello after all of torch."""
        with contextlib.suppress(psutil.Error):
            processes = psutil.Process(starter.pid).children()
            return [p.pid for p in processes if str(HARNESS) in p.cmdline()]
        return []

    assert eventually(below)
    server = below()
    starter.send_signal(signal.SIGINT)
    starter.wait(30)
    assert not any(alive(pid) for pid in server)
    assert not list(tmp_path.glob("tile-agent-*"))


@pytest.mark.parametrize(
    ("body", "works"), [("while perf_counter() < end:\n    pass", True), ("sleep(0.4)", False)]
)
def test_how_long_a_worker_was_on_a_processor_is_known_without_asking_it(
    project: Project, server: ForkServer, body: str, works: bool
) -> None:
    lines = ["end = perf_counter() + 0.4", *body.splitlines()]
    project.write(
        "test_kernel.py",
        "from time import perf_counter, sleep\n\nimport kernel\n\n\ndef test_it():\n"
        + textwrap.indent("\n".join(lines), "    ")
        + "\n",
    )
    with project.arm(server) as arm:
        before = arm.processor_times()
        arm.run(nodeids(arm), deadline_in(60))
        used = arm.processor_times().since(before)
    assert before.on_ms > 0
    assert (used.on_ms > 100) is works


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel does not count who waits"
)
def test_how_long_a_worker_waited_for_a_processor_is_known(
    project: Project, server: ForkServer
) -> None:
    """Beside two others on its processor, it waits for a good part of the time."""
    processor = min(os.sched_getaffinity(0))
    project.write(
        "test_kernel.py",
        f"""
        import os
        from time import perf_counter

        import kernel


        def test_it():
            os.sched_setaffinity(0, {{{processor}}})
            end = perf_counter() + 0.6
            while perf_counter() < end:
                pass
        """,
    )
    with project.arm(server) as arm:
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
        try:
            for process in busy:
                os.sched_setaffinity(process.pid, {processor})
            before = arm.processor_times()
            arm.run(nodeids(arm), deadline_in(60))
            used = arm.processor_times().since(before)
        finally:
            for process in busy:
                process.kill()
                process.wait()
    assert used.waited_ms > 100
