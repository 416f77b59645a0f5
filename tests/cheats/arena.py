"""Has the real judge look at a candidate: real workers, no GPU unless one is asked for."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from unittest import mock

from agent.frozen_tests import TestPlan
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.gpu import GpuWatch
from agent.harness.measuring.pairs import WorkerPairs
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, WorkerSession, deadline_in
from agent.measuring.decision import Rules, Status, decide
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Failure
from agent.proposers.misplaced import misplaced
from agent.syntax import Source
from tests.cheats.edits import HERE
from tests.support.workers import start_server

VERIFY_S = 60.0
COMPARE_S = 120.0
_JUDGE = "agent.harness.measuring.pytest_judge"
_SHORT = BlockTiming(block_ms=1, settle_ms=1, least_samples=1, least_slow_samples=1)


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate."""

    status: Status
    reason: str
    decided: bool
    """It was found right and was compared; what remains is a question of its speed."""
    blamed_other: bool = False
    """The incumbent was found at fault, which ends a run."""
    warnings: tuple[str, ...] = ()
    """What the static scan says."""
    changed: tuple[str, ...] = ()
    """Files that are not as they were: of the candidate's checkout, and of the origin's. A run
    sees that by itself and ends the iteration as tampered."""

    @property
    def refused(self) -> bool:
        """Somebody found out; not that it merely was no faster."""
        if self.blamed_other:
            return False
        return (
            bool(self.changed) or not self.decided or self.status in (Status.HELD, Status.TAMPERED)
        )

    def __str__(self) -> str:
        seen = "refused" if self.refused else "the other arm" if self.blamed_other else "not seen"
        changed = f" (changed: {', '.join(self.changed)})" if self.changed else ""
        return f"{seen}, {self.status.value}: {self.reason}{changed}"


class Arena:
    """Judges candidates for any target, one after the other."""

    def __init__(self, server: ForkServer, folder: Path, watch: GpuWatch | None = None) -> None:
        self._server = server
        self._folder = folder
        self._watch = watch
        self._rings: dict[Path, Ring] = {}

    def judge(self, target: Path, kernel: str, text: str, *, pairs: bool = True) -> Outcome:
        """Look at a candidate.

        Args:
            target: folder with the kernel and its tests.
            kernel: name of the kernel's file in it.
            text: what the candidate has in its place.
            pairs: compare it as a run does; otherwise one pair is taken, which says nothing of its
                speed, but all that is looked at in a pair is looked at.
        """
        if target not in self._rings:
            folder = self._folder / f"{len(self._rings):02d}-{target.name}"
            self._rings[target] = Ring(self._server, folder, target, kernel, self._watch)
        return self._rings[target].judge(text, pairs=pairs)

    def close(self) -> None:
        """End the processes that judges keep."""
        for ring in self._rings.values():
            ring.close()


class Ring:
    """A target's origin, its judge, and room for candidates."""

    def __init__(
        self, server: ForkServer, folder: Path, target: Path, kernel: str, watch: GpuWatch | None
    ) -> None:
        self._server = server
        self._folder = folder
        self._target = target
        self._kernel = kernel
        self._watch = watch
        self._numbers = itertools.count(1)
        self._origin = self._checkout("origin")

    def close(self) -> None:
        """End the processes that its judge keeps; without candidates there is none."""
        if "_judge" in vars(self):
            self._judge.close()

    @cached_property
    def _before(self) -> Source:
        return Source((self._target / self._kernel).read_text(encoding="utf-8"))

    @cached_property
    def _judge(self) -> PytestJudge:
        """One that knows which tests launch a kernel, as the baseline of a run tells it."""
        logs = self._folder / "logs"
        logs.mkdir()
        files = tuple(
            str(path.relative_to(self._origin.root))
            for path in sorted(self._origin.root.rglob("test_*.py"))
        )
        with WorkerSession(
            self._server, self._origin, logs / "collection.log", arguments=files, tests=None
        ) as arm:
            found = arm.collection(deadline_in(VERIFY_S)).items
        perf = tuple(item.nodeid for item in found if "tile_bench" in item.fixtures)
        correctness = tuple(item.nodeid for item in found if item.nodeid not in perf)
        plan = TestPlan(files, correctness, perf)
        judge = PytestJudge(
            self._server, plan, framework="triton", rules=Rules(), logs=logs, watch=self._watch
        )
        verified = judge.verify(self._origin, deadline_in(VERIFY_S), may_skip=True)
        assert isinstance(verified, Verification), verified.reason
        verified.check(self._kernel)
        judge.expect_launches(verified.launching)
        return judge

    def judge(self, text: str, *, pairs: bool) -> Outcome:
        """Verify a candidate, and compare it with the origin where it is right."""
        judge, number = self._judge, next(self._numbers)
        checkout = self._checkout(f"candidate-{number:03d}", text)
        try:
            outcome = self._judged(judge, checkout, None if pairs else number)
            changed = (*_changed(self._target, checkout, text), *self._mended())
        finally:
            shutil.rmtree(checkout.root)
        warnings = misplaced(self._before, Source(text))
        return Outcome(
            outcome.status, outcome.reason, outcome.decided, outcome.blamed_other, warnings, changed
        )

    def _judged(self, judge: PytestJudge, checkout: Checkout, pair: int | None) -> Outcome:
        verified = judge.verify(checkout, deadline_in(VERIFY_S), origin=self._origin)
        if isinstance(verified, Failure):
            return _failed(verified)
        if pair is not None:
            source = judge._pairs(self._origin, checkout, deadline_in(COMPARE_S), examines=True)
            if isinstance(raw := source.pair(pair), Failure):
                return _failed(raw)
            return Outcome(Status.REVERT, "one pair decides nothing", decided=True)
        compared = judge.compare(self._origin, checkout, None, deadline_in(COMPARE_S))
        if isinstance(compared, Failure):
            return _failed(compared)
        verdict = decide(compared, Rules())
        return Outcome(verdict.status, verdict.reason, decided=True)

    def _checkout(self, name: str, text: str | None = None) -> Checkout:
        root = self._folder / name
        shutil.copytree(self._target, root, ignore=shutil.ignore_patterns("__pycache__"))
        if text is not None:
            (root / self._kernel).write_text(text, encoding="utf-8")
        return Checkout(root, (root,), self._kernel)

    def _mended(self) -> tuple[str, ...]:
        """What a candidate did to the origin; the next one finds it as it was."""
        changed = _changed(self._target, self._origin)
        if changed:
            shutil.rmtree(self._origin.root)
            self._checkout("origin")
        return tuple(f"origin/{name}" for name in changed)


def _failed(failure: Failure) -> Outcome:
    return Outcome(failure.status, failure.reason, decided=False, blamed_other=failure.incumbent)


def _changed(target: Path, checkout: Checkout, text: str | None = None) -> tuple[str, ...]:
    """The files of a checkout that are not those it was made of."""
    expected = _content(target)
    if text is not None:
        expected[checkout.kernel] = text.encode()
    found = _content(checkout.root)
    return tuple(
        sorted(n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n))
    )


def _content(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): os.fsencode(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in root.rglob("*")
        if (path.is_symlink() or path.is_file()) and path.parent.name != "__pycache__"
    }


@contextmanager
def arena(folder: Path, *, pairs: int, watch: GpuWatch | None = None) -> Iterator[Arena]:
    """An arena whose comparisons take so many short pairs.

    Two are the fewest that can be compared, and enough to find out a cheat; how much faster it is,
    they hardly say.
    """
    interpreted = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    ours = {name for name in os.environ if name.startswith("PYTEST_")}
    outside = {name: value for name, value in os.environ.items() if name not in ours}
    with (
        mock.patch.dict(os.environ, outside, clear=True),
        mock.patch(f"{_JUDGE}.ComparisonPlan", partial(ComparisonPlan, looks=(pairs,))),
        mock.patch(f"{_JUDGE}.WorkerPairs", partial(WorkerPairs, timing=_SHORT)),
        mock.patch.object(WorkerPairs, "pause", lambda *_: None),
        start_server(
            folder / "server.log",
            python=sys.executable if watch else "",
            **({} if watch else interpreted),
        ) as server,
    ):
        with closing(Arena(server, folder, watch)) as ours:
            yield ours


def target_of(name: str) -> Path:
    """The folder of a target."""
    return HERE / "targets" / name
