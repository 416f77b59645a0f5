"""What an optimization of the playbook is.

One file holds one entry, readable by a stranger, and is used in four ways: by the program
(`variants` and `apply`), by a model (the docstring goes into its prompt), by an assistant (the
docstring goes into the skill's reference), by a person (`tile-agent playbook show`).

The module's docstring has four headings: `When:`, `Do:`, `Risk:`, `Source:`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Params, Subject


class Entry(ABC):
    """What every entry of the playbook says of itself."""

    name: ClassVar[str]
    """Hyphenated; the file has the same name with underscores."""
    title: ClassVar[str]
    """What the table calls it: 'occupancy hint'."""
    backend: ClassVar[str]
    family: ClassVar[str]
    """The knob it turns: 'occupancy', 'tiles', 'pipelining', 'cache'. A small gain puts the whole
    family last."""
    priority: ClassVar[Mapping[KernelClass, int]]
    """Smaller is earlier; a class that is missing comes after those that are not."""
    expected: ClassVar[str]
    """The expected effect with its source, or what it was measured to be."""
    measured: ClassVar[str] = ""
    """Where a run compared it: GPU, version, and the share of the latency that it saved in each
    kernel. Minus is slower; (noise): not told from zero. Empty where no run did."""
    hypothesis: ClassVar[str]
    """Why it should help, in one sentence."""
    revisit_after: ClassVar[frozenset[str]] = frozenset()
    """Families on which its best value depends: it is tried again after a keep of one of them."""
    climbs: ClassVar[bool] = False
    """Its variants lie around the present value: it is tried again after a keep of its own."""
    changes_rounding: ClassVar[bool] = False
    """Results may differ in their last digits; the frozen tests decide whether that is right."""
    opt_in: ClassVar[bool] = False
    """It undoes what the author asked for, so that a run tries it only where `--only` names it."""

    @property
    def prose(self) -> str:
        """The docstring of the entry's file: a title and four headings."""
        return inspect.getdoc(inspect.getmodule(type(self))) or ""


class Advice(Entry):
    """An entry whose rewrite needs judgement: the prose and when it fits, no transform.

    The deterministic proposer passes it by; a model or an assistant is given the prose.
    """

    @abstractmethod
    def fits(self, subject: Subject) -> str:
        """What in the source speaks for it, in one line. Raises `NotApplicable` otherwise."""


class Optimization(Entry):
    """An entry that a program can carry out."""

    before: ClassVar[str]
    after: ClassVar[str]
    """`apply(before, example)` gives `after`, byte for byte, and does not apply to it again."""
    example: ClassVar[Params]
    """The parameters of the before/after pair."""

    @abstractmethod
    def variants(self, subject: Subject) -> Sequence[Params]:
        """The parameters worth trying here; more than one is a sweep, still ONE iteration.

        Never holds what the source already says. Raises `NotApplicable` when there is none.
        """

    @abstractmethod
    def apply(self, subject: Subject, params: Params) -> str:
        """The new source text. Raises `NotApplicable` when nothing would change."""

    def describe(self, params: Params) -> str:
        """The text of the table: the title with the parameters."""
        if not params:
            return self.title
        return f"{self.title} ({', '.join(f'{k}={v}' for k, v in params.items())})"
