"""The pytest plugin: the `tile_bench` fixture, with or without tile-agent.

Under plain pytest the timings go into the test's user properties (and so into a JUnit report)
and onto one line of the terminal summary. Under tile-agent the worker takes them from there.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator
from typing import Any

import pytest

from tile_agent_pytest import bench_scripts
from tile_agent_pytest.bench import Gate, InTiming, TileBench, Timing
from tile_agent_pytest.bench_command import OPTION
from tile_agent_pytest.guards import Guards

PROPERTY = "tile_bench"
ASIDE = "tile_bench_aside"
"""The property of a test that had something timed which launches no kernel of the file."""
GUARDS = pytest.StashKey[Guards]()
"""What watches Triton's interpreter in this session."""
_ON_THE_CPU = pytest.StashKey[bool]()

gate: Gate | None = None
"""Set by a worker while its parent wants to order the samples block by block."""
in_timing: InTiming = contextlib.nullcontext
"""Set by a worker while it observes which launches are timed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tile-agent")
    group.addoption(
        "--tile-cpu",
        action="store_true",
        help="run cuTile kernels on the CPU, block by block; for correctness only",
    )
    group.addoption(
        "--tile-cpu-seed",
        type=int,
        default=0,
        metavar="N",
        help="with --tile-cpu: the seed of the order in which blocks run (default: 0)",
    )
    group.addoption(
        "--triton-guards",
        action="store_true",
        help="in Triton's interpreter: fail a kernel that loads or stores outside of its tensors",
    )
    group.addoption(
        OPTION,
        action="append",
        default=[],
        metavar="COMMAND",
        help="run 'python FILE [ARGUMENTS]', or the perf_report FILE::REPORT, as one more test",
    )
    group.addoption(
        "--triton-repeat",
        action="store_true",
        help="in Triton's interpreter: run each launch again and tell what differs; with guards",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Benchmark scripts are items beside the tests."""
    bench_scripts.add_items(session, items)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before a conftest is imported: those of some projects ask what GPU there is for an option."""
    options = early_config.known_args_namespace
    if options.tile_cpu:
        with contextlib.suppress(pytest.UsageError):  # said where pytest shows it as one
            _on_the_cpu(early_config, options.tile_cpu_seed)


def pytest_configure(config: pytest.Config) -> None:
    """Before collection: test modules ask for a GPU when they are imported."""
    bench_scripts.collect_no_others(config)
    if config.getoption("--triton-guards") or config.getoption("--triton-repeat"):
        _guard(config)
    if config.getoption("--tile-cpu") and not config.stash.get(_ON_THE_CPU, False):
        _on_the_cpu(config, config.getoption("--tile-cpu-seed"))


def _on_the_cpu(config: pytest.Config, seed: int) -> None:
    from tile_agent_pytest.tile_cpu.errors import UnsupportedVersion

    try:
        from tile_agent_pytest.tile_cpu import TileCpu

        cpu = TileCpu(seed=seed)
    except UnsupportedVersion as problem:
        raise pytest.UsageError(f"--tile-cpu: {problem}") from problem
    cpu.__enter__()
    config.stash[_ON_THE_CPU] = True
    config.add_cleanup(lambda: cpu.__exit__(None, None, None))


def _guard(config: pytest.Config) -> None:
    try:
        guards = Guards(repeat=config.getoption("--triton-repeat"))
        guards.__enter__()
    except ImportError as problem:
        raise pytest.UsageError(f"--triton-guards: {problem}") from problem
    config.stash[GUARDS] = guards
    config.add_cleanup(lambda: guards.__exit__(None, None, None))


@pytest.fixture
def tile_bench(request: pytest.FixtureRequest, record_property: Any) -> Iterator[TileBench]:
    """Time a kernel: `tile_bench(lambda: softmax(x))` returns the median latency in ms."""
    if request.config.getoption("--tile-cpu"):
        pytest.skip("--tile-cpu is for correctness; it has no latencies")

    def emit(timing: Timing) -> None:
        record_property(*as_property(timing))

    guards = request.config.stash.get(GUARDS, None)
    with guards.suspended() if guards else contextlib.nullcontext():
        yield TileBench(emit, gate, in_timing)


def as_property(timing: Timing, through: str = "") -> tuple[str, dict[str, Any]]:
    """A timing as a test's user property.

    Args:
        timing: of one config.
        through: what the test asked for it, where that was no `tile_bench`.
    """
    method = f"{timing.method}; for {through}" if through else timing.method
    value: dict[str, Any] = {
        "config": timing.config,
        "samples_ms": list(timing.samples_ms),
        "method": method,
    }
    if timing.weight != 1.0:
        value["weight"] = timing.weight
    return PROPERTY, value


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line a timing, for people who run their perf tests by hand, and one a note."""
    guards = config.stash.get(GUARDS, None)
    if guards and guards.notes:
        terminalreporter.section("Triton kernels that differ from themselves")
        for note in guards.notes:
            terminalreporter.write_line(note)
    lines = [
        f"{report.nodeid} {value['config']}: "
        f"{statistics.median(value['samples_ms']):.6f} ms "
        f"({len(value['samples_ms'])} samples, {value['method']})"
        for report in terminalreporter.stats.get("passed", [])
        for name, value in getattr(report, "user_properties", [])
        if name == PROPERTY and report.when == "call"
    ]
    if lines:
        terminalreporter.section("tile_bench")
        for line in lines:
            terminalreporter.write_line(line)
