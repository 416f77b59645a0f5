"""Kernels that tune themselves: the choice is made once and held for every later worker."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.pairs import WorkerPairs
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import deadline_in
from agent.measuring.measurement import Failure
from tests.support.warm_python import run_python
from tests.support.workers import Project, start_server

pytest.importorskip("cuda.tile")

KERNEL = """
    import time
    import cuda.tile as ct

    CONFIGS = [{"tile": 64}, {"tile": 128}, {"tile": 256}]

    def launch(cache={}):
        if not cache:
            cache["best"] = ct.tune.exhaustive_search(
                iter(CONFIGS), None, lambda c: (1,), None, lambda c: (), quiet=True
            ).best.config
        time.sleep(cache["best"]["tile"] / 1e5)
"""
TEST = """
    from kernel import launch

    def test_perf(tile_bench):
        tile_bench(launch)
"""
# Stands in for the GPU alone: the tuner's own function cannot run without one. It chooses another
# config every time, as noise may.
SITE = """
import pathlib
import cuda.tile.tune as tune

COUNT = pathlib.Path({count!r})


def exhaustive_search(search_space, *args, **kwargs):
    space = list(search_space)
    seen = COUNT.read_text() if COUNT.exists() else ""
    COUNT.write_text(seen + "x")
    config = space[len(seen) % len(space)]
    best = tune.Measurement(config=config, mean_us=1.0, num_samples=5, error_margin_us=0.1)
    return tune.TuningResult(best=best, successes=[best], failures=[])


tune.exhaustive_search = exhaustive_search
"""


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[tuple[ForkServer, Path]]:
    """A fork server whose tuner is counted and needs no GPU."""
    count = tmp_path / "count"
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE.format(count=str(count)))
    with start_server(
        tmp_path / "server.log", python=sys.executable, write=[tmp_path], PYTHONPATH=str(site)
    ) as server:
        yield server, count


@pytest.mark.full
def test_one_worker_tunes_and_the_others_are_handed_its_choice(
    counted: tuple[ForkServer, Path], tmp_path: Path
) -> None:
    server, count = counted
    one = Project(tmp_path / "one", TEST, KERNEL)
    other = Project(tmp_path / "other", TEST, f"# another version\n{textwrap.dedent(KERNEL)}")
    same = Project(tmp_path / "same", TEST, KERNEL)
    logs = tmp_path / "logs"
    logs.mkdir()
    pairs = WorkerPairs(
        server,
        one.checkout(),
        other.checkout(),
        TestPlan(("test_kernel.py",), (), ("test_kernel.py::test_perf",)),
        "cutile",
        logs,
        deadline_in(120),
        timing=BlockTiming(block_ms=4, settle_ms=1, least_samples=2),
    )
    for number in range(3):
        assert not isinstance(outcome := pairs.pair(number), Failure), outcome
    assert count.read_text() == "xx"  # one a version
    assert not isinstance(replace(pairs, candidate=same.checkout()).pair(3), Failure)
    assert count.read_text() == "xx"  # another commit of a version that has tuned
    chosen = [chosen_of(file) for file in sorted(logs.glob("*-pair.json"))]
    assert len(chosen) == 4
    assert chosen[0] == chosen[1] == chosen[2]
    assert chosen[3]["True"] == chosen[3]["False"]
    assert set(chosen[0]) == {"True", "False"}
    assert "tile" in next(iter(chosen[0]["True"].values()))


def chosen_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())["chosen"]
    return {str(whose).capitalize(): configs for whose, configs in found.items()}


LOOKS = """
import sys
from pathlib import Path

import cuda.tile as ct
import cuda.tile.tune as tune
from tile_agent_pytest import tuned
from tile_agent_pytest.tuning_effort import NotNow, TuningEffort

asked = []


def search(search_space, *args, **kwargs):
    space = list(search_space)
    asked.append(space)
    if "first" in args:
        space = space[:1]
    if space == [128] and "broken" in args:
        raise ValueError("no valid config")
    best = tune.Measurement(config=space[-1], mean_us=1.0, num_samples=5, error_margin_us=0.1)
    return tune.TuningResult(best=best, successes=[best], failures=[])


def tuning(folder, effort):
    tune.exhaustive_search = search
    held = tuned.hold(Path(sys.argv[1], folder), lambda: "test_perf", Path(sys.argv[1], "origin"))
    held.in_less.begin(effort)
    return held


tuning("origin", TuningEffort.WHOLE)
assert ct.tune.exhaustive_search([64, 128]).best.config == 128
for effort in (TuningEffort.SHORT, TuningEffort.NONE, TuningEffort.ROUGH, TuningEffort.WHOLE):
    held = tuning(f"candidate {effort.value}", effort)
    assert ct.tune.exhaustive_search([64, 128]).best.config == 128
    assert list(held.chosen.values()) == ["128"]
whole = [64, 128]
assert asked == [whole, [128], [128], whole], asked  # where nothing can be timed it is taken
tuning("candidate short", TuningEffort.WHOLE)  # what a look was content with is no choice
ct.tune.exhaustive_search([64, 128])
tuning("other space", TuningEffort.SHORT)
ct.tune.exhaustive_search([64, 128, 256])
tuning("broken", TuningEffort.SHORT)
ct.tune.exhaustive_search([64, 128], "broken")
assert asked[4:] == [whole, [64, 128, 256], [128], whole], asked
tuning("kept", TuningEffort.WHOLE)
assert ct.tune.exhaustive_search([64, 128], "first").best.config == 64
tuning("after it", TuningEffort.SHORT)
ct.tune.exhaustive_search([64, 128])
assert asked[-1] == [64, 128], asked  # the incumbent's, and the origin's
tuning("after it", TuningEffort.SHORT)
ct.tune.exhaustive_search([32, 64, 128])
assert asked[-1] == [32, 64, 128], asked  # another search
held = tuning("later", TuningEffort.NONE)
count = len(asked)
for space in ([64, 128], [16, 64, 128]):  # two are known, or none
    try:
        ct.tune.exhaustive_search(space)
    except NotNow:
        continue
    raise AssertionError("it chose beside others")
assert len(asked) == count
held.in_less.begin(TuningEffort.SHORT)
ct.tune.exhaustive_search([64, 128])
assert list(held.chosen) == ["test_perf #1"], held.chosen
count = len(asked)
with held.in_less.settled():  # in another layout of a call
    assert ct.tune.exhaustive_search([64, 128]).best.config == 128
    assert ct.tune.exhaustive_search([8, 16]).best.config == 8
assert len(asked) == count and list(held.chosen) == ["test_perf #1"]
"""


def test_a_short_look_takes_what_the_search_chose_for_texts_of_the_run(tmp_path: Path) -> None:
    ended = run_python(LOOKS, str(tmp_path), kind="compiler")
    assert ended.returncode == 0, ended.stderr


def test_a_choice_is_known_for_kernels_that_take_the_same() -> None:
    """With blocks that stay a kernel takes more, and what was best for it without them spills."""
    import cuda.tile as ct

    from tile_agent_pytest.tuned import taken

    @ct.kernel
    def flat(x, y):  # type: ignore[no-untyped-def]
        ct.store(y, (ct.bid(0),), ct.load(x, (ct.bid(0),), (16,)))

    @ct.kernel
    def staying(x, y, n_blocks):  # type: ignore[no-untyped-def]
        for block in range(ct.bid(0), n_blocks, ct.num_blocks(0)):
            ct.store(y, (block,), ct.load(x, (block,), (16,)))

    search, rest = ct.tune.exhaustive_search, (None, lambda _: (1,))
    ours, theirs = (taken(search, [1], (*rest, each, list), {}) for each in (flat, staying))
    assert ours == ["x", "y"]
    assert theirs == [*ours, "n_blocks"]
    given = {"stream": None, "grid_fn": list, "kernel": flat, "args_fn": list, "quiet": True}
    assert taken(search, [1], (), given) == ours
    assert taken(search, [1], (*rest, lambda _: flat, list), {}) == []
    assert taken(search, [1], (), {"kernel": flat}) == []
