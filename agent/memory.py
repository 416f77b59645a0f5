"""What the runs on a kernel tried: nobody tries it again in vain, and who thinks may read it.

What was found holds for the same edit of the same text under the same conditions: tests, machine,
rules. What was measured holds for a day, while the machine is as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from agent.attempts import JudgedEdit, PastAttempt, attempts
from agent.environment import describe
from agent.errors import JournalError, TransitionError
from agent.events import Calibrated, Event, Measured, Started
from agent.journal import read, replay, to_json
from agent.measuring.decision import Status
from agent.measuring.measurement import Calibration
from agent.measuring.screening import ScreenResult
from agent.options import PLAYBOOK
from agent.past_looks import PastLook, past_looks
from agent.report.document import KernelTexts
from agent.report.iterations import iterations
from agent.repository import Repository
from agent.runs import journals, runs_folder
from agent.state import Run, decided, refuted, started

CALIBRATION_HOLDS_S = 24 * 3600.0
"""For so long the noise of a machine is taken for what it was."""
FINER = 0.75
"""A calibration that tells gains apart that are so much smaller has more to say of an edit."""


@dataclass(frozen=True)
class PastRun:
    """What one run tried, and on what."""

    started: Started
    attempts: tuple[PastAttempt, ...]
    incumbents: Mapping[int, str]
    """Iteration -> the commit that it began with; one more for the code that the run left."""
    keeps: tuple[tuple[int, str], ...]
    """Iteration and family of each step that was kept."""
    faded: frozenset[int] = frozenset()
    """The kept steps whose gain its last comparisons did not find."""
    calibrated: Calibrated | None = None
    """What the origin compared with itself gave."""
    stands: bool = False
    """It came to its end, and its best was compared with its origin there."""
    settings: frozenset[str] = frozenset()
    """Drivers and limits that it measured under."""
    looks: tuple[PastLook, ...] = ()
    """What its short looks saw."""

    @classmethod
    def of(cls, events: Sequence[Event]) -> PastRun:
        """What the events of a run tell.

        Raises:
            TransitionError: they make no run, or one that had not begun.
        """
        run = replay(events)
        if run.started is None:
            raise TransitionError("the run had not begun")
        steps = iterations(events)
        return cls(
            run.started,
            tuple(attempts(events)),
            {**{step.number: step.base_sha for step in steps}, run.iteration: run.incumbent_sha},
            tuple(
                (step.number, step.proposal.family)
                for step in steps
                if step.row and step.row.status is Status.KEEP
            ),
            refuted(run),
            next((event for event in events if isinstance(event, Calibrated)), None),
            stands=bool(run.finished and run.finished.comparison),
            settings=frozenset(
                event.calibration.setting for event in events if isinstance(event, Calibrated)
            ),
            looks=past_looks(events),
        )

    @property
    def calibration_from(self) -> str:
        """The run that measured its calibration; empty where there is none."""
        if self.calibrated is None:
            return ""
        return self.calibrated.known_from or self.started.run_id

    def failed_at(self, iteration: int) -> Iterator[PastAttempt]:
        """What had failed when an iteration began, and nothing kept since makes another try of."""
        for attempt in self.attempts:
            number = attempt.iteration.number
            kept = {family for when, family in self.keeps if number <= when < iteration}
            if not attempt.failed or number >= iteration or number in dict(self.keeps):
                continue  # a value that lost to a kept one did so on the code before that
            if not kept & attempt.depends_on:
                yield attempt


@dataclass(frozen=True)
class Failures:
    """What is known not to be worth another try on one text."""

    texts: Mapping[str, str]
    """The text that an edit makes of it -> why."""
    titles: Mapping[tuple[str, str], str]
    """Optimization and title of a variant of the playbook's -> why. What others write may be
    another edit under the same title."""

    def why(self, optimization: str, title: str, text: str) -> str | None:
        """Why a variant is known to have failed; None where it is not."""
        return self.texts.get(text) or self.titles.get((optimization, title))


@dataclass
class PastRuns:
    """What the runs on a kernel tried, for one of them; where nobody asks, nothing is read."""

    repository: Repository
    _seen: dict[tuple[str, str], str | None] = field(init=False, default_factory=dict)
    """(commit, kernel) -> its text there."""
    _others: list[PastRun] | None = field(init=False, default=None)
    _comparable: list[PastRun] | None = field(init=False, default=None)

    def failures_on(self, run: Run, before: str) -> Failures:
        """What is known to have failed on a text of the kernel file.

        Args:
            run: the one that asks.
            before: the text that is to be edited.
        """
        now = started(run)
        texts, titles = dict[str, str](), dict[tuple[str, str], str]()
        for past in (*self._comparable_to(now), *self._past(now.run_id)):
            here = [
                n for n, sha in past.incumbents.items() if self._text(sha, now.kernel) == before
            ]
            if not here:
                continue
            for attempt in past.attempts:
                text = self._text(attempt.after, now.kernel)
                if text is None or attempt.iteration.number > max(here):
                    continue
                texts.pop(text, None)  # the latest word counts
                # against an incumbent that was no faster than this one
                if attempt.failed or (attempt.left_open and _sees_no_more(run, past)):
                    more = "" if attempt.failed else "; one now would tell no more"
                    texts[text] = f"{_reason(attempt, now)}{more}"
            if past.started.run_id != now.run_id and run.proposer == PLAYBOOK:
                for attempt in past.failed_at(max(here)):
                    if attempt.iteration.proposer == PLAYBOOK:
                        titles[attempt.optimization, attempt.title] = _reason(attempt, now)
        return Failures(texts, titles)

    def calibrated(self, run: Run, setting: str, profiles: bool = False) -> Calibrated | None:
        """What an earlier run measured of the same files on this machine, as far as that holds now.

        It holds for a day, under the same driver and limits, while the baseline takes as long.

        Args:
            run: the one that asks, with its baseline.
            setting: driver, clock and power limits now.
            profiles: it would be profiled now; one that was not does not do then.
        """
        now, files = started(run), self.repository.files
        for past in reversed(self._comparable_to(now)):
            found, then = past.calibrated, past.started
            if (
                found is not None
                and not found.known_from
                and (found.profiled or not profiles)
                and found.subset is None  # of a part, the time that it was given chose which
                and not (run.baseline and run.baseline.compared)
                and found.calibration.setting == setting
                and 0 <= now.began_at_s - then.began_at_s < CALIBRATION_HOLDS_S
                and to_json(then.environment) == to_json(now.environment)
                and then.python == now.python
                and _time_for_pairs(then) == _time_for_pairs(now)
                and then.options.counters == now.options.counters
                and files(then.origin_sha) == files(run.incumbent_sha)
                and _takes_as_long(run, found.calibration)
            ):
                return replace(found, known_from=then.run_id, took_s=0.0, touched=())
        return None

    def compared(self, run: Run, setting: str) -> Measured | None:
        """The verdict of an earlier run on the same step, where that kept it.

        It holds where the calibration of this run is one that was taken over, and both come from
        the same one: then machine, driver, limits, files and budgets are known to be the same. It
        does for a day, and while no run that kept the step failed to find its gain at the end. What
        a run kept is measured afresh at its end all the same, against its origin.

        Args:
            run: the one that asks, its candidate verified.
            setting: driver, clock and power limits now.
        """
        now, candidate = started(run), run.candidate
        source = self._calibration_taken_over(now, setting)
        if not source or candidate is None:
            return None
        step = [self._text(sha, now.kernel) for sha in (run.incumbent_sha, candidate.sha)]
        same = [
            (past, attempt)
            for past in self._comparable_to(now)
            if past.calibration_from == source
            for attempt in past.attempts
            if attempt.status is Status.KEEP
            and step == [self._text(s, now.kernel) for s in (attempt.before, attempt.after)]
        ]
        for past, attempt in same:  # each of them has to stand by it
            stands = past.stands and attempt.iteration.number not in past.faded
            if not (stands and _holds(past, setting)):
                return None
        found = same[0][1].iteration.comparison if same else None  # the first measured it
        if found is None:
            return None
        verdict, name = decided(run, found), same[0][0].started.run_id
        if verdict.status is not Status.KEEP:
            return None
        told = replace(verdict, reason=f"{verdict.reason}; as run {name} measured it")
        return Measured(found, told, known_from=name)

    def looked_at(
        self, run: Run, shas: Sequence[str], setting: str, configs: tuple[str, ...]
    ) -> dict[str, ScreenResult]:
        """What an earlier run saw of the same edits, on the conditions of `compared`.

        Args:
            run: the one that asks.
            shas: commits that are to be looked at beside its incumbent.
            setting: driver, clock and power limits now.
            configs: those that would be looked at; empty where all are that are compared.
        """
        now = started(run)
        source = self._calibration_taken_over(now, setting)
        before = self._text(run.incumbent_sha, now.kernel)
        if not source or before is None:
            return {}
        seen = {
            self._text(look.after, now.kernel): look.result
            for past in self._comparable_to(now)
            if past.calibration_from == source and _holds(past, setting)
            for look in past.looks
            if look.configs == configs and self._text(look.before, now.kernel) == before
        }
        texts = {sha: self._text(sha, now.kernel) for sha in shas if seen}
        return {
            sha: replace(seen[text], sha=sha)
            for sha, text in texts.items()
            if text is not None and text in seen
        }

    def _calibration_taken_over(self, now: Started, setting: str) -> str:
        """The run that measured a run's calibration, where another did under these limits."""
        own = next((past.calibrated for past in self._past(now.run_id)), None)
        return own.known_from if own and own.calibration.setting == setting else ""

    def tried(self, run: Run) -> tuple[JudgedEdit, ...]:
        """What was judged on this kernel, the latest first; of the same edit the latest counts."""
        now, told = started(run), dict[str, JudgedEdit]()
        texts = KernelTexts(self.repository, now.kernel)
        for past in reversed((*self._others_than(now), *self._past(now.run_id))):
            for attempt in reversed(past.attempts):
                if attempt.judged:
                    change = texts.diff(attempt.before, attempt.after) or ""
                    told.setdefault(change or attempt.after, attempt.told(change))
        return tuple(told.values())

    def _comparable_to(self, now: Started) -> list[PastRun]:
        """The other runs whose conditions were those of now; none where they are to be retried."""
        if self._comparable is None:
            others = [] if now.options.retry else self._others_than(now)
            here = self._conditions(now)
            self._comparable = [p for p in others if self._conditions(p.started) == here]
        return self._comparable

    def _others_than(self, now: Started) -> list[PastRun]:
        """The other runs on this kernel, oldest first."""
        if self._others is None:
            found = (past for path in journals(self.repository) for past in _past(path))
            self._others = [
                past
                for past in found
                if past.started.kernel == now.kernel and past.started.run_id != now.run_id
            ]
        return self._others

    def _past(self, run_id: str) -> list[PastRun]:
        return _past(runs_folder(self.repository) / run_id / "journal.jsonl")

    def _text(self, sha: str, kernel: str) -> str | None:
        if (sha, kernel) not in self._seen:
            self._seen[sha, kernel] = KernelTexts(self.repository, kernel).text(sha)
        return self._seen[sha, kernel]

    def _conditions(self, began: Started) -> tuple[Any, ...]:
        """What a verdict rests on beside the two texts."""
        files = [self.repository.entry(began.origin_sha, file) for file in began.tests.files]
        options = began.options
        return (
            began.latency_meaning,
            describe(began.environment),
            began.tests.correctness,
            began.tests.perf,
            [file.blob if file else None for file in files],
            options.compare_on,
            options.rules,
            options.iteration_timeout_s,
            options.allow_precision_loss,
            options.tested_shapes_only,
        )


def _sees_no_more(run: Run, past: PastRun) -> bool:
    """Whether a comparison now would leave as much open as one of an earlier run."""
    if run.calibration is None or past.calibrated is None or past.started == run.started:
        return False
    now, then = (
        list(each.resolvable.values()) for each in (run.calibration, past.calibrated.calibration)
    )
    return bool(now and then) and median(now) > FINER * median(then)


def _holds(past: PastRun, setting: str) -> bool:
    """Whether what a run measured is that of the machine as it is."""
    fresh = 0 <= time.time() - past.started.began_at_s < CALIBRATION_HOLDS_S
    return fresh and past.settings == {setting}


def _time_for_pairs(of: Started) -> tuple[float | None, ...]:
    """What decides how many configs and pairs a calibration has time for."""
    given = of.options
    return given.calibration_budget_s, given.comparison_budget_s, given.time_budget_s


def _takes_as_long(run: Run, then: Calibration) -> bool:
    """Whether the baseline is as fast as the origin was when it was calibrated."""
    records = run.baseline.records if run.baseline else ()
    now = {record.config: record.latency_ms for record in records}
    return all(
        config in now and abs(now[config] / level_ms - 1) <= then.band
        for config, level_ms in then.levels_ms.items()
    )


def _past(journal: Path) -> list[PastRun]:
    """A run; none where its journal cannot be read."""
    try:
        return [PastRun.of([line.event for line in read(journal)])]
    except (JournalError, TransitionError):
        return []


def _reason(attempt: PastAttempt, now: Started) -> str:
    where = f"iteration {attempt.iteration.number}"
    if attempt.run_id != now.run_id:
        where = f"run {attempt.run_id}, {where}"
    return f"tried before ({where}): {attempt.reason}"
