"""Judges mutants as the loop judges candidates, and finds out whether they change a result.

One fork server serves all mutants of a kernel. Each mutant stands in a copy of the kernel's folder,
beside the origin and the probe.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.environment import probe
from agent.errors import UsageError, WorkerError
from agent.frozen_tests import TestPlan
from agent.harness.discovery import CORRECTNESS, KINDS
from agent.harness.processes.worker_session import Checkout, WorkerSession, deadline_in
from agent.measuring.decision import Status
from agent.measuring.measurement import Failure
from agent.options import Request
from agent.session import Session, opened
from benchmarks import mutation_probe
from benchmarks.loop_run import make_repository
from benchmarks.mutants import Mutant, Origin
from benchmarks.spec import HERE

ORIGIN_S = 600.0
MUTANT_S = 120.0
"""For the tests of one mutant, and for its probe; it may never end."""
PROBE = "test_mutation_probe.py"
TESTS, GUARDS, CHECKS = "tests", "guards", "checks"
"""Who refuses a mutant: the user's tests, the bounds that the judge watches while they run in
Triton's interpreter, or what else the judge looks at."""
ERROR = "error"
"""An effect beside those of the probe: the mutant raises, or its process ends."""
CHANGING = ("result", ERROR)


@dataclass(frozen=True)
class Row:
    """What became of one mutant."""

    mutant: str
    kernel: str
    mutator: str
    line: int
    effect: str
    """One of `mutation_probe.EFFECTS`, or 'error'."""
    where: str
    """The shape that shows it, where the probe was asked."""
    caught_by: str
    """'tests', 'guards', 'checks', or nothing: it survives."""
    reason: str
    seconds: float
    diff: str

    def to_dict(self) -> dict[str, object]:
        """For a table."""
        return asdict(self)


def refused_by(failure: Failure, plan: TestPlan) -> str:
    """Whether the user's tests alone would have refused a candidate.

    A failure of theirs names one of the frozen correctness tests, or the file that cannot be
    imported, or says how their process ended; what the judge adds says something else.
    """
    if "OutOfBounds" in failure.reason:
        return GUARDS
    theirs = (*plan.correctness, *(file.partition("::")[0] for file in plan.files))
    if failure.reason.startswith(tuple(f"{n}{end}" for n in theirs for end in (": ", " (and "))):
        return TESTS
    ended = failure.status is Status.CRASH and not failure.reason.startswith(plan.perf or ("\0",))
    return TESTS if ended else CHECKS


@dataclass(frozen=True)
class Bench:
    """A kernel whose mutants can be judged."""

    origin: Origin
    session: Session
    checkout: Checkout
    """Where the mutant stands; its kernel's file is written anew for each."""
    reference: Checkout | None
    """The origin, for results at the timed shapes; none where those take Triton's interpreter too
    long."""

    def judge(self, mutant: Mutant) -> Row:
        """Run the tests, and the probe where they do not tell."""
        begin = time.monotonic()
        (self.checkout.root / self.checkout.kernel).write_text(mutant.text, encoding="utf-8")
        verified = self.session.judge.verify(
            self.checkout, deadline_in(MUTANT_S), origin=self.reference
        )
        caught_by = reason = where = ""
        if isinstance(verified, Failure):
            caught_by, reason = refused_by(verified, self.session.plan), verified.reason
        if isinstance(verified, Failure) and caught_by in (TESTS, GUARDS):
            effect = ERROR if verified.status is Status.CRASH else "result"
        else:
            effect, where = self.probe(mutant.key)
        return Row(
            mutant=mutant.key,
            kernel=mutant.origin.key,
            mutator=mutant.mutator,
            line=mutant.line,
            effect=effect,
            where=where,
            caught_by=caught_by,
            reason=" ".join(reason.split())[:300],
            seconds=round(time.monotonic() - begin, 2),
            diff=mutant.diff,
        )

    def probe(self, name: str) -> tuple[str, str]:
        """How the kernel that stands there differs from the origin, and where."""
        arm = WorkerSession(
            self.session.server,
            self.checkout,
            self.session.logs / f"probe-{name}.log",
            arguments=[PROBE],
            tests=None,
        )
        deadline = deadline_in(MUTANT_S)
        try:
            with arm:
                if errors := arm.collection(deadline).errors:
                    return ERROR, errors[0][1].strip().splitlines()[-1]
                (test,) = arm.run([f"{PROBE}::test_probe"], deadline).tests
        except WorkerError as problem:
            return ERROR, str(problem)
        if test.outcome != "passed":
            return ERROR, test.headline
        told = dict(test.properties)
        return str(told["effect"]), str(told["where"])


@contextmanager
def bench(origin: Origin, work: Path, python: str = sys.executable) -> Iterator[Bench]:
    """Hold a kernel ready while the block lasts, as the loop does after its baseline.

    Raises:
        UsageError: its tests cannot be run, or fail without any mutation.
    """
    repository = make_repository(origin.spec, work)
    request = Request(kernel=repository / origin.kernel, python=python)
    interpreted = probe().gpu is None
    with opened(request, print, needs=(CORRECTNESS,) if interpreted else KINDS) as session:
        checkout = session.checkout(session.origin_sha)
        verified = session.judge.verify(checkout, deadline_in(ORIGIN_S), may_skip=True)
        if isinstance(verified, Failure):
            raise UsageError(f"the tests of {origin.key} fail as they are: {verified.reason}")
        session.judge.leave_out(verified.skipped)
        session.judge.expect_launches(verified.launching)
        root = _copy(origin, repository, interpreted=session.hardware.interpreted)
        mutant = Checkout(root, session.target.sys_path(root), origin.kernel)
        yield Bench(origin, session, mutant, None if interpreted else checkout)


def _copy(origin: Origin, repository: Path, *, interpreted: bool) -> Path:
    """The kernel's folder once more, with the origin and the probe."""
    root = repository.parent / f"{repository.name}-mutant"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(repository, root, ignore=shutil.ignore_patterns(".git", "sandbox"))
    (root / mutation_probe.ORIGIN).write_text(origin.text, encoding="utf-8")
    shutil.copyfile(mutation_probe.__file__, root / PROBE)
    reference = HERE / origin.framework / origin.wrapper / "reference.py"
    if reference.is_file():
        shutil.copyfile(reference, root / mutation_probe.REFERENCE)
    settings = {
        "wrapper": origin.wrapper,
        "tests": origin.test,
        "inputs": origin.inputs,
        "small": origin.small if interpreted else None,
    }
    (root / mutation_probe.SETTINGS).write_text(json.dumps(settings))
    return root
