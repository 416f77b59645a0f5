"""What the playbook would try of a kernel, and what it would pass over; why, in few lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from agent.analysis.common.subject import Hardware, Subject
from agent.launched_elsewhere import broken_launches
from agent.playbook.base import Optimization
from agent.proposers.base import Declined
from agent.proposers.playbook import offered

_POINTS = re.compile(r"\bline \d+|`")
"""A reason that shows a place of the file, or code of it."""
_LACKS = re.compile(
    r"^(no|every) |looks for |\b(has|makes|calls|is tuned by) (no|none)\b|calls none"
    r"|is not autotuned|does not multiply"
)
"""A reason that names what the kernel does not have."""
_OF_THE_INTERPRETER = "Triton's interpreter "
"""A reason that is none on a GPU."""


@dataclass(frozen=True)
class Applicable:
    """An entry that applies."""

    optimization: str
    family: str
    hypothesis: str
    variants: tuple[str, ...]
    """What each of them is called."""


@dataclass(frozen=True)
class PassedOver:
    """Entries that do not apply, all for one reason."""

    optimizations: tuple[str, ...]
    reason: str
    near_miss: bool
    """The reason shows what in the file is in the way."""
    foreign: bool
    """The kernel has nothing of what these entries change."""


@dataclass(frozen=True)
class PlannedEntries:
    """The entries of the kernel's language, each in one of the three."""

    tried: tuple[Applicable, ...]
    """In the order of the run."""
    passed_over: tuple[PassedOver, ...]
    """Near misses first, what is foreign to the kernel last."""
    opt_in: tuple[str, ...]
    """What only `--only` has a run try."""
    on_gpu: tuple[Applicable, ...] = ()
    """Where Triton's interpreter stands in for a GPU: what a run on one would try besides."""


GPU = Hardware(sm=90)
"""The one that is spoken of where there is none: Hopper."""


def planned(
    entries: Sequence[Optimization],
    subject: Subject,
    elsewhere: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[Applicable, ...], tuple[PassedOver, ...]]:
    """What is tried of some entries, in their order, and what is passed over.

    Args:
        entries: of the kernel's language.
        subject: the kernel's file.
        elsewhere: kernel -> a file of the project that launches it too.
    """
    subject = replace(subject, elsewhere=frozenset(elsewhere))
    tried: list[Applicable] = []
    names: dict[str, list[str]] = {}
    for entry in entries:
        found = offered(entry, subject)
        if isinstance(found, Declined):
            names.setdefault(found.reason, []).append(entry.name)
            continue
        broken = {
            variant.title: broken_launches(subject.source.text, variant.source, elsewhere)
            for variant in found.variants
        }
        titles = tuple(title for title, why in broken.items() if not why)
        if titles:
            tried.append(Applicable(entry.name, entry.family, entry.hypothesis, titles))
        else:
            names.setdefault(next(iter(broken.values())), []).append(entry.name)
    over = [passed_over(reason, some) for reason, some in names.items()]
    over.sort(key=lambda each: (each.foreign, not each.near_miss))
    return tuple(tried), tuple(over)


def planned_on_gpu(
    entries: Sequence[Optimization],
    subject: Subject,
    tried: Sequence[Applicable],
    elsewhere: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Applicable, ...]:
    """What a GPU would have tried besides; nothing where the kernel is not interpreted."""
    if not subject.hardware.interpreted:
        return ()
    here = {each.optimization for each in tried}
    there, _ = planned(entries, replace(subject, hardware=GPU), elsewhere)
    return tuple(each for each in there if each.optimization not in here)


def passed_over(reason: str, names: Sequence[str]) -> PassedOver:
    """Tell a near miss from an entry that has nothing to do here, by what the reason says."""
    near_miss = _POINTS.search(reason) is not None
    of_here = near_miss or reason.startswith(_OF_THE_INTERPRETER)
    foreign = not of_here and _LACKS.search(reason) is not None
    return PassedOver(tuple(names), reason, near_miss, foreign)
