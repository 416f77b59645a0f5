"""Which kept steps of a run still show in its end, by their texts alone.

A step contributes nothing any more where a later one replaced all that it wrote. Lines alone cannot
tell: an edit of one line for another reason replaces the line and keeps what was written in it. So
words are followed through the later steps, and a step is replaced where none is left. A later step
of the same optimization writes the same words with another value: there it is enough that all lines
are gone and some word with them. What a step took out is taken for lasting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

Merge = Callable[[str, str, str], str | None]
"""Base, ours and theirs -> the text with both changes; None where they conflict."""

_WORD = re.compile(r"\w+|[^\w\s]")


def replaced(texts: Sequence[str], optimizations: Sequence[str]) -> dict[int, int]:
    """Step -> the later step that replaced the last of what it wrote; both count from 0.

    Args:
        texts: of the kernel at the origin and after each step.
        optimizations: the name of each step's.
    """
    found = {}
    for step, name in enumerate(optimizations):
        by = _replaced_by(texts, step, words=True)
        if by is None:
            line_by = _replaced_by(texts, step, words=False)
            if line_by is not None and optimizations[line_by] == name and _lost(texts, step):
                by = line_by
        if by is not None:
            found[step] = by
    return found


def without(
    texts: Sequence[str], step: int, until: int | None, merge: Merge
) -> tuple[str, ...] | None:
    """The texts when a step is left out; None where a later step builds on it.

    Args:
        texts: of the kernel at the origin and after each step.
        step: it leaves the text as it was.
        until: the step that replaced it, after which nothing changes; None: it is left out of all.
        merge: brings the change of each step in between onto what it meets.
    """
    found = [*texts[: step + 1], texts[step]]
    for later in range(step + 1, len(texts) - 1):
        if later == until:
            return (*found, *texts[later + 1 :])
        merged = merge(texts[later], found[-1], texts[later + 1])
        if merged is None:
            return None
        found.append(merged)
    return tuple(found)


def _replaced_by(texts: Sequence[str], step: int, *, words: bool) -> int | None:
    """The step after which nothing is left of what a step wrote; None where something is."""
    alive, removed_only = _written(texts[step], texts[step + 1], words=words)
    if removed_only or not alive:
        return None
    for later in range(step + 1, len(texts) - 1):
        alive = _carried(alive, texts[later], texts[later + 1], words=words)
        if not alive:
            return later
    return None


def _lost(texts: Sequence[str], step: int) -> bool:
    """Whether any word that a step wrote is gone at the end."""
    alive, _ = _written(texts[step], texts[step + 1], words=True)
    begun = len(alive)
    for later in range(step + 1, len(texts) - 1):
        alive = _carried(alive, texts[later], texts[later + 1], words=True)
    return len(alive) < begun


def _written(before: str, after: str, *, words: bool) -> tuple[set[int], bool]:
    """The parts of `after` that are new, and whether a change takes out something and adds none."""
    blocks = [(0, 0, 0), *_same(before, after, words=words)]
    new: set[int] = set()
    removed_only = False
    for (a, b, size), (next_a, next_b, _) in pairwise(blocks):
        added = range(b + size, next_b)
        new.update(added)
        removed_only |= not added and next_a > a + size
    return new, removed_only


def _carried(alive: set[int], before: str, after: str, *, words: bool) -> set[int]:
    """Where parts of `before` are in `after`, as far as they still are."""
    blocks = _same(before, after, words=words)
    return {b + at - a for a, b, size in blocks for at in range(a, a + size) if at in alive}


def _same(before: str, after: str, *, words: bool) -> list[tuple[int, int, int]]:
    """What two texts share: places in both and how many parts, with an empty block at the end."""
    olds, news = before.splitlines(), after.splitlines()
    blocks = SequenceMatcher(None, olds, news, autojunk=False).get_matching_blocks()
    if not words:
        return [(a, b, size) for a, b, size in blocks]
    return list(_same_words(olds, news, blocks))


def _same_words(
    olds: list[str], news: list[str], blocks: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, int, int]]:
    """Words are compared within lines that differ only: the same `,` is everywhere."""
    a = b = at_a = at_b = 0  # lines, and the words before them
    for next_a, next_b, size in blocks:
        old, new = _words(olds[a:next_a]), _words(news[b:next_b])
        for x, y, length in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            if length:
                yield at_a + x, at_b + y, length
        at_a, at_b = at_a + len(old), at_b + len(new)
        shared = len(_words(olds[next_a : next_a + size]))
        if shared:
            yield at_a, at_b, shared
        at_a, at_b, a, b = at_a + shared, at_b + shared, next_a + size, next_b + size
    yield at_a, at_b, 0


def _words(lines: Sequence[str]) -> list[str]:
    return [word for line in lines for word in _WORD.findall(line)]
