"""What somebody with judgement is told before carrying out an optimization."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.analysis.common.subject import Subject
from agent.attempts import JudgedEdit
from agent.backends import BACKENDS
from agent.environment import describe
from agent.launches import tuning_costs
from agent.measuring.decision import Status
from agent.prompting import capped, render
from agent.proposers.agenda import Task
from agent.state import Run
from agent.store.experience import NOTHING, Experience
from agent.syntax import Source

LONGEST_CHANGE = 1500
"""Characters of a change that was tried before; what mattered is told beside it."""
EARLIER = 12
"""Attempts of other runs that are told, the latest."""


@dataclass(frozen=True)
class Brief:
    """ONE task over one text, and all that is known of it, as Markdown."""

    task: Task
    kernel: str
    """Path of the kernel file in its repository."""
    base_sha: str
    """The commit that the task builds on."""
    source: Source
    text: str
    """Facts that tools and the user's files gave stand in it between fences, as data."""


def brief_for(
    run: Run,
    subject: Subject,
    task: Task,
    tried: Sequence[JudgedEdit] = (),
    experience: Experience = NOTHING,
) -> Brief:
    """Put together what the run knows.

    Args:
        run: as it is now.
        subject: the incumbent.
        task: what is asked for.
        tried: what was judged on this kernel, by this run and by others, the latest first.
        experience: what the user's store knows of kernels like this one.
    """
    started = run.started
    assert started is not None  # there is no proposing before it
    rules, diagnosis = run.options.rules, run.diagnosis
    text = render(
        "brief.md.j2",
        title=task.title,
        prose=task.prose,
        expected=task.expected.rstrip("."),
        why=task.why.rstrip("."),
        kernel=started.kernel,
        backend=started.backend,
        kernel_class=subject.kernel_class.value,
        flop_per_byte=BACKENDS[started.backend].classify(subject.source).flop_per_byte,
        machine=describe(started.environment),
        latency_meaning=started.latency_meaning,
        has_gpu=bool(subject.hardware.sm),
        entry_points=_entry_points(subject.source),
        source=subject.source.text,
        levels=_levels(run),
        launches=tuple(map(str, subject.launches)),
        tuning=tuning_costs(subject.launches),
        cause=diagnosis.cause.value if diagnosis else "",
        evidence=diagnosis.evidence if diagnosis else (),
        tried=tuple(_tried(run, tried)),
        earlier=tuple(_earlier(run, tried)),
        like_this=experience.about,
        known=tuple(_known(experience)),
        worst=rules.regression,
        major=rules.major,
    )
    return Brief(task, started.kernel, run.incumbent_sha, subject.source, text)


def _entry_points(source: Source) -> list[str]:
    """What others may import: the functions at the top of the file."""
    names = [function.name for function in source.functions if "." not in function.name]
    return [f"`{name}`" for name in names if not name.startswith("_")]


def _levels(run: Run) -> list[tuple[str, float]]:
    """Config -> latency of the incumbent, in ms."""
    if run.calibration and run.calibration.levels_ms:
        return sorted(run.calibration.levels_ms.items())
    records = run.baseline.records if run.baseline else ()
    return [(record.config, record.latency_ms) for record in records]


def _tried(run: Run, known: Sequence[JudgedEdit]) -> Iterator[str]:
    """The rows of this run; those of what was set aside with their change."""
    own = [each for each in reversed(known) if each.run_id == _run_id(run)]
    for row in run.rows[1:]:
        yield f"{row.iteration}. {row.optimization}: {row.status.value}; {row.reason}"
        for each in own:  # several where a candidate was mended
            if each.iteration == row.iteration:
                yield from _in_detail(each)
    for skipped in run.skipped:
        yield f"-  {skipped.optimization}: no candidate; {skipped.reason}"


def _earlier(run: Run, known: Sequence[JudgedEdit]) -> Iterator[str]:
    """What other runs on this kernel judged, on code that need not be that of now."""
    for each in [each for each in known if each.run_id != _run_id(run)][:EARLIER]:
        yield f"{each.run_id}, {each.iteration}. {each.title}: {each.status.value}; {each.reason}"
        yield from _in_detail(each)


def _known(experience: Experience) -> Iterator[str]:
    """What became of optimizations on kernels like this one, and of changes, where those are kept.

    The kernels need not be of this repository.
    """
    yield from experience.lines
    for each in experience.changes:
        yield f"{each.entry} on a kernel of the same structure: {each.status}"
        if each.hypothesis:
            yield f"   hypothesis: {each.hypothesis}"
        yield capped(each.change, LONGEST_CHANGE)


def _in_detail(each: JudgedEdit) -> Iterator[str]:
    if each.hypothesis:
        yield f"   hypothesis: {each.hypothesis}"
    if each.change and each.status is not Status.KEEP:
        yield capped(each.change, LONGEST_CHANGE)


def _run_id(run: Run) -> str:
    return run.started.run_id if run.started else ""
