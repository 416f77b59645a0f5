"""What is kept of a judged optimization: facts of kernel, GPU and gain.

No source, path, name or text of the user's is among them, unless the user asks for the change: a
word is kept only where tile-agent, the kernel language or the machine's vendor made it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any

from agent import __version__
from agent.analysis.common.structure import Structure
from agent.attempts import PastAttempt, attempts
from agent.backends import BACKENDS
from agent.events import Event, Started
from agent.journal import replay
from agent.launches import ObservedLaunch, by_cost, power_of_two
from agent.measuring.decision import Status
from agent.measuring.statistics import Effect
from agent.playbook import ADVICE, PLAYBOOK
from agent.redaction import redact
from agent.report.document import KernelTexts
from agent.repository import Repository
from agent.state import Run, refuted, started
from agent.syntax import Source

OWN_IDEA = "own-idea"
"""What is no entry of the playbook."""
TOOLCHAIN = ("torch", "triton", "cuda-tile")
_VERSION = re.compile(r"[0-9][0-9a-z.]*(\+(cpu|cu\d+))?")
"""The beginning of one that its maker gave: what a house adds to it stays away."""
_DTYPE = re.compile(r"bool|[a-z]+\d+[a-z0-9_]*")


@dataclass(frozen=True)
class Judgement:
    """One judged optimization."""

    key: str
    """A digest that names it, so that it is kept once."""
    began_at_s: int
    """When its run began, in seconds since 1970."""
    version: str
    """Of tile-agent."""
    backend: str
    kind: str
    fingerprint: str
    """Both of the kernel as its author gave it: `agent.analysis.common.structure`."""
    dtypes: str
    shapes: str
    """Of the tensors that the slowest perf test was seen to hand over: a dimension as the power of
    two that it is not above."""
    gpu: str
    """Its model; empty for an interpreter on the CPU, whose times rank nothing for a GPU."""
    sm: int
    toolchain: str
    """Driver and versions, as JSON."""
    proposer: str
    entry: str
    params: str
    """Its values, as JSON."""
    status: str
    outcome: str
    """One of `OUTCOMES`."""
    gain: float | None
    """Share of the latency that it saved over the best before it, with its interval."""
    low: float | None
    high: float | None
    hypothesis: str = ""
    change: str = ""
    """A unified diff. Both only where the user asked for it."""


FASTER, NOT_FASTER, OPEN, WRONG, UNMEASURED = OUTCOMES = (
    "faster", "not faster", "left open by the noise", "wrong, or it did not run", "not measured",
)  # fmt: skip


def judgements(
    events: Sequence[Event], repository: Repository, *, with_source: bool
) -> tuple[Judgement, ...]:
    """What a run has judged so far, oldest first.

    Args:
        events: of its journal.
        repository: that it ran in.
        with_source: whether the changes are kept, and what was said of them.

    Raises:
        TransitionError: the events make no run.
        UsageError: its kernel cannot be read any more.
    """
    # what an earlier run measured is that run's
    own = (each for each in attempts(events) if not each.iteration.known_from)
    judged = [attempt for attempt in own if attempt.judged]
    if not judged:
        return ()
    run = replay(events)
    gone = refuted(run)
    began, texts = started(run), KernelTexts(repository, started(run).kernel)
    seen = Seen.of(run)
    structure, (dtypes, shapes) = structure_for(run, repository, seen), seen.given
    gpu, sm, toolchain = machine(began)
    return tuple(
        Judgement(
            key=_key(began, attempt),
            began_at_s=began.began_at_s,
            version=__version__,
            backend=began.backend,
            kind=structure.kind,
            fingerprint=structure.fingerprint,
            dtypes=dtypes,
            shapes=shapes,
            gpu=gpu,
            sm=sm,
            toolchain=toolchain,
            proposer=attempt.iteration.proposer,
            entry=attempt.optimization if attempt.optimization in known_entries() else OWN_IDEA,
            params=json.dumps(public(_params(attempt)), sort_keys=True),
            status=attempt.status.value,
            outcome=NOT_FASTER if attempt.iteration.number in gone else _outcome(attempt),
            gain=overall.improvement if overall else None,
            low=overall.low if overall else None,
            high=overall.high if overall else None,
            hypothesis=_said(attempt) if with_source else "",
            change=_change(attempt, texts) if with_source else "",
        )
        for attempt in judged
        for overall in (_overall(attempt),)
    )


@dataclass(frozen=True)
class Seen:
    """What perf tests were seen to launch of a kernel; empty where nobody looked."""

    launches: tuple[ObservedLaunch, ...] = ()
    longest_ms: Mapping[str, float] = field(default_factory=dict)
    """Node id of a test -> its longest timing."""

    @classmethod
    def of(cls, run: Run) -> Seen:
        """By the baseline of a run: of the kernel as its author gave it."""
        return cls(run.baseline.launches, run.baseline.longest_ms) if run.baseline else cls()

    @property
    def timed(self) -> tuple[str, ...]:
        """The kernels, that of the longest test first."""
        return by_cost(self.launches, self.longest_ms)

    @property
    def given(self) -> tuple[str, str]:
        """dtypes and shapes of what the longest test hands over."""
        if not self.launches:
            return "", ""
        slowest = max(self.launches, key=lambda launch: self.longest_ms.get(launch.test, 0.0))
        tensors = slowest.tensors.values()
        dtypes = sorted({tensor.dtype for tensor in tensors if _DTYPE.fullmatch(tensor.dtype)})
        shapes = dict.fromkeys(_shape(tensor.shape) for tensor in tensors)
        return ", ".join(dtypes), ", ".join(shapes)


def structure_for(run: Run, repository: Repository, seen: Seen) -> Structure:
    """What the kernel of a run does, as its author gave it.

    Raises:
        UsageError: its text is gone, or holds no kernel.
    """
    began = started(run)
    text = repository.read(began.origin_sha, began.kernel).decode()
    return BACKENDS[began.backend].structure(Source(text, began.kernel, seen.timed))


def machine(began: Started) -> tuple[str, int, str]:
    """The model of the GPU, empty without one, its compute capability times ten, and versions."""
    gpus, versions = began.environment["gpus"], began.environment["versions"]
    found = {
        name: match[0]
        for name in TOOLCHAIN
        if (match := _VERSION.match(versions.get(name) or "")) is not None
    }
    if not gpus:
        return "", 0, json.dumps(found)
    gpu = gpus[0]
    return gpu["name"], gpu["sm"], json.dumps({"driver": gpu["driver"]} | found)


@cache
def known_entries() -> frozenset[str]:
    """The names of the playbook: what else is tried has a name of somebody else's."""
    return frozenset(entry.name for entry in (*PLAYBOOK, *ADVICE))


def public(value: Any) -> Any:
    """Values of an optimization without the user's names: of a kernel, of a constant.

    Numbers stay, and words that the playbook itself has.
    """
    match value:
        case str():
            return value if value in _words() else "(a name)"
        case Mapping():
            return {
                key if key in _words() else f"(name {place})": public(inner)
                for place, (key, inner) in enumerate(value.items(), 1)
            }
        case list() | tuple():
            return [public(inner) for inner in value]
        case bool() | int() | float() | None:
            return value
    return "(a value)"


@cache
def _words() -> frozenset[str]:
    """What the playbook calls its parameters, and the values that are words."""
    of_playbook: list[Any] = [entry.example for entry in PLAYBOOK]
    of_playbook += [entry.sweep for entry in PLAYBOOK]
    return frozenset(_texts(of_playbook))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value.keys(), *value.values()])
    elif isinstance(value, Iterable):
        for inner in value:
            yield from _texts(inner)


def _key(began: Started, attempt: PastAttempt) -> str:
    """The commits of a run have no other name here: nobody can tell what was hashed."""
    words = (began.origin_sha, attempt.after, str(began.began_at_s), str(attempt.iteration.number))
    return sha256(" ".join(words).encode()).hexdigest()[:32]


def _params(attempt: PastAttempt) -> Mapping[str, Any]:
    shas = {candidate.sha: candidate for candidate in attempt.iteration.proposal.candidates}
    return shas[attempt.after].params


def _outcome(attempt: PastAttempt) -> str:
    failure = attempt.iteration.failure
    if attempt.status is Status.KEEP:
        return FASTER
    if attempt.left_open:
        return OPEN
    if attempt.failed:
        return WRONG if failure is not None else NOT_FASTER
    return UNMEASURED


def _overall(attempt: PastAttempt) -> Effect | None:
    comparison = attempt.iteration.comparison
    return comparison.overall if comparison else None


def _said(attempt: PastAttempt) -> str:
    return redact(attempt.iteration.proposal.hypothesis, os.environ)


def _change(attempt: PastAttempt, texts: KernelTexts) -> str:
    return redact(texts.diff(attempt.before, attempt.after) or "", os.environ)


def _shape(of: Sequence[int]) -> str:
    return "x".join(str(power_of_two(size)) for size in of) or "scalar"
