"""The file that an assistant edits, and what becomes of it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.analysis.common.subject import Subject
from agent.errors import UsageError
from agent.events import Offered, Proposed
from agent.proposers.agenda import OWN_IDEA
from agent.proposers.answer import doubts, problems
from agent.proposers.base import Proposal, ProposedVariant, title_of
from agent.proposers.values import in_words, values_of
from agent.state import Run
from agent.syntax import Source

BY_ASSISTANT = " (assistant)"
"""What a title ends with."""
LARGEST_BYTES = 1_000_000
"""No kernel file is larger; a mistake may be."""


@dataclass(frozen=True)
class Draft:
    """A copy of the kernel file, below the run's folder: the user's own file is never touched."""

    path: Path

    def text(self) -> str:
        """What stands in it.

        Raises:
            UsageError: it is gone, or no text.
        """
        mend = "`tile-agent next` makes it again"
        if self.path.is_symlink() or not self.path.is_file():
            raise UsageError(f"the draft {self.path} is missing or no plain file: {mend}")
        if self.path.stat().st_size > LARGEST_BYTES:
            raise UsageError(f"the draft {self.path} is larger than {LARGEST_BYTES} bytes")
        try:
            return self.path.read_bytes().decode()
        except UnicodeDecodeError as problem:
            raise UsageError(f"the draft {self.path} is not UTF-8: {problem}") from None

    def prepare(self, text: str) -> bool:
        """Make it where it is missing; an edited one stays. Returns whether it is edited."""
        if self.path.is_file() and not self.path.is_symlink():
            return self.path.read_bytes() != text.encode()
        self.reset(text)
        return False

    def set_aside(self, text: str, name: str) -> None:
        """Put the text into it, and what stood there beside it, where it is another."""
        if self.prepare(text):
            self._rename(name)
            self.reset(text)

    def _rename(self, name: str) -> None:
        """Give what stands there a name that is free: the same task may be set aside twice."""
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        paths = (self.path.with_name(f"{self.path.stem}.{each}.py") for each in names)
        self.path.rename(next(path for path in paths if not os.path.lexists(path)))

    def reset(self, text: str) -> None:
        """Put the text into it. What stood there is a commit of the run, or no text."""
        if self.path.is_dir() and not self.path.is_symlink():
            self._rename("folder")
        self.path.unlink(missing_ok=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(text.encode())


@dataclass(frozen=True)
class DraftProposer:
    """Proposes what an assistant has written: one text, or several with other values as a sweep."""

    offer: Offered
    texts: tuple[str, ...]
    message: str
    """The hypothesis, in the assistant's words; its first line names an idea of its own."""
    called: tuple[str, ...] = ()
    """What the texts are called, where they differ in more than values."""

    @classmethod
    def mending(
        cls, before: Proposed, texts: tuple[str, ...], message: str, called: tuple[str, ...] = ()
    ) -> DraftProposer:
        """The same optimization once more, by other texts; the hypothesis stays if it holds."""
        first = before.candidates[0]
        title = first.title.removesuffix(BY_ASSISTANT).removesuffix(_told(first.params))
        offer = Offered(before.optimization, before.family, title)
        return cls(offer, texts, message if message.strip() else before.hypothesis, called)

    def propose(self, _run: Run, subject: Subject) -> Proposal:
        """The draft, or the variants, as candidates for what was offered."""
        title = self.offer.title
        if self.offer.optimization == OWN_IDEA and self.message.strip():
            title = title_of(_title(self.message.strip().splitlines()[0]))
        found = (doubt for text in self.texts for doubt in doubts(subject.source, text))
        return Proposal(
            optimization=self.offer.optimization,
            family=self.offer.family,
            hypothesis=_line(self.message) or f"{self.offer.title}, by an assistant",
            variants=tuple(
                ProposedVariant(values, f"{title}{_told(values)}{BY_ASSISTANT}", text)
                for values, text in zip(values_of(self.texts, self.called), self.texts, strict=True)
            ),
            doubts=tuple(dict.fromkeys(found)),
        )


def check_text(before: Source, text: str, name: str) -> None:
    """Check that a text may be a candidate.

    Args:
        before: the incumbent.
        text: what is to be judged.
        name: what the text is called where it may not.

    Raises:
        UsageError: it is not fit to be one, and what is to be mended.
    """
    if wrong := problems(before, text):
        raise UsageError(f"{name} cannot be a candidate: {'; '.join(wrong)}")


def _told(values: Mapping[str, Any]) -> str:
    return f" {_title(in_words(values))}" if values else ""


def _title(text: str) -> str:
    """As it may stand in a table."""
    return _line(text.replace("|", " "))


def _line(text: str) -> str:
    """As one line that shows what it holds: an argument of a command may be no text."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
