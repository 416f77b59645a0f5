"""What somebody with judgement is told before carrying out an optimization."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agent.analysis.common.subject import Subject
from agent.attempts import JudgedEdit
from agent.backends import BACKENDS
from agent.environment import describe
from agent.launches import tuning_costs
from agent.measuring.decision import Status
from agent.prompting import capped, render
from agent.proposers.agenda import Task
from agent.state import Row, Run
from agent.store.experience import NOTHING, Experience
from agent.syntax import Source

LONGEST_CHANGE = 1500
"""Characters of a change that was tried before; what mattered is told beside it."""
EARLIER = 12
"""Attempts of other runs that are told, the latest."""
NOBODY: Mapping[str, str] = MappingProxyType({})
"""What somebody was told who knows nothing yet."""


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
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of its sections, by name, those that it leaves out among them."""


def brief_for(
    run: Run,
    subject: Subject,
    task: Task,
    tried: Sequence[JudgedEdit] = (),
    experience: Experience = NOTHING,
    told: Mapping[str, str] = NOBODY,
    change: str = "",
) -> Brief:
    """Put together what the run knows.

    Args:
        run: as it is now.
        subject: the incumbent.
        task: what is asked for.
        tried: what was judged on this kernel, by this run and by others, the latest first.
        experience: what the user's store knows of kernels like this one.
        told: digests of what the reader knows already: a section that is as it was is left out.
        change: what the code became since it was told, as a diff; empty: it is told whole.
    """
    started = run.started
    assert started is not None  # there is no proposing before it
    rules, diagnosis = run.options.rules, run.diagnosis
    known = tuple(_known(experience))
    sections: dict[str, dict[str, Any]] = {
        "kernel": {
            "backend": started.backend,
            "kernel_class": subject.kernel_class.value,
            "flop_per_byte": BACKENDS[started.backend].classify(subject.source).flop_per_byte,
            "machine": describe(started.environment),
            "latency_meaning": started.latency_meaning,
            "has_gpu": bool(subject.hardware.sm),
            "entry_points": _entry_points(subject.source),
        },
        "code": {"source": subject.source.text},
        "latencies": {"levels": _levels(run)},
        "launches": {"launches": tuple(map(str, subject.launches))},
        "costs of tuning": {"tuning": tuning_costs(subject.launches)},
        "evidence": {
            "cause": diagnosis.cause.value if diagnosis else "",
            "evidence": diagnosis.evidence if diagnosis else (),
        },
        "earlier runs": {"earlier": tuple(_earlier(run, tried))},
        "kernels like this one": {
            "like_this": experience.about if known else "",
            "known": known,
        },
        "rules": {"worst": rules.regression, "major": rules.major},
    }
    digests = {name: digest(values) for name, values in sections.items()}
    as_before = tuple(name for name in sections if told.get(name) == digests[name])
    digests |= {name: digest(line) for name, line in outcomes(run)}
    text = render(
        "brief.md.j2",
        title=task.title,
        prose=task.prose,
        expected=task.expected.rstrip("."),
        why=task.why.rstrip("."),
        kernel=started.kernel,
        run=started.run_id,
        as_before=as_before,
        not_again=[name for name in as_before if any(sections[name].values())],
        change=change if len(change) < len(subject.source.text) else "",
        tried=tuple(_since(run, told) if as_before else _tried(run, tried)),
        **{name: value for values in sections.values() for name, value in values.items()},
    )
    return Brief(task, started.kernel, run.incumbent_sha, subject.source, text, digests)


def digest(value: Any) -> str:
    """What tells a value that was told from another, in few letters."""
    return hashlib.sha256(repr(value).encode(errors="backslashreplace")).hexdigest()[:16]


def outcomes(run: Run) -> Iterator[tuple[str, str]]:
    """What became of each optimization of this run, a name and a line each."""
    for row in run.rows[1:]:
        yield f"iteration {row.iteration}", outcome(row)
    for skipped in run.skipped:
        yield (
            f"skipped {skipped.optimization}",
            f"-  {skipped.optimization}: no candidate; {skipped.reason}",
        )


def outcome(row: Row) -> str:
    """What became of an iteration, in a line."""
    return f"{row.iteration}. {row.optimization}: {row.status.value}; {row.reason}"


def _since(run: Run, told: Mapping[str, str]) -> Iterator[str]:
    """What became of what was tried since; the reader wrote it, and knows the change."""
    return (line for name, line in outcomes(run) if told.get(name) != digest(line))


def _entry_points(source: Source) -> list[str]:
    """What others may import: the functions at the top of the file."""
    names = [function.name for function in source.functions if "." not in function.name]
    return [f"`{name}`" for name in names if not name.startswith("_")]


def _levels(run: Run) -> list[tuple[str, float]]:
    """Config -> latency of the incumbent, in ms."""
    return sorted(run.levels_ms.items())


def _tried(run: Run, known: Sequence[JudgedEdit]) -> Iterator[str]:
    """The rows of this run; those of what was set aside with their change."""
    own = [each for each in reversed(known) if each.run_id == _run_id(run)]
    for row in run.rows[1:]:
        yield outcome(row)
        for each in own:  # several where a candidate was mended
            if each.iteration == row.iteration:
                yield from _in_detail(each)
    yield from (line for name, line in outcomes(run) if name.startswith("skipped"))


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
