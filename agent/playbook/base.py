"""What an optimization of the playbook is.

One file holds one entry, readable by a stranger, and is used in four ways: by the program
(`variants` and `apply`), by a model (the docstring goes into its prompt), by an assistant (the
docstring goes into the skill's reference), by a person (`tile-agent playbook show`).

The module's docstring has four headings: `When:`, `Do:`, `Risk:`, `Source:`.
"""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import edits_of_each
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.triton.dialect import TRITON
from agent.launches import ObservedLaunch
from agent.playbook.trial import TileTrial, TritonTrial
from agent.syntax import Edits

_MEASURED = Path(__file__).with_name("measured.json")
REORDERED = 2.0**-17
"""The relative error of float32 sums that are taken in another order, and of other exponentials."""
TF32_ROUNDING = 2.0**-10
"""That of products whose factors are rounded to ten bits."""


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
    hypothesis: ClassVar[str]
    """Why it should help, in one sentence."""
    revisit_after: ClassVar[frozenset[str]] = frozenset()
    """Families on which its best value depends: it is tried again after a keep of one of them."""
    climbs: ClassVar[bool] = False
    """Its variants lie around the present value: it is tried again after a keep of its own."""
    changes_rounding: ClassVar[float] = 0.0
    """Results may differ in their last digits: by this relative error, root mean square, at most,
    and as far as the frozen tests let that pass."""
    saves: ClassVar[str] = ""
    """What it saves that is no latency, in words: it is kept where it is as fast to within 2 %."""
    opt_in: ClassVar[str] = ""
    """Why a run tries it only where `--only` names it; empty where it tries it by itself."""

    @property
    def depends_on(self) -> frozenset[str]:
        """Families of which a keep makes it worth another try."""
        return self.revisit_after | ({self.family} if self.climbs else set())

    @property
    def measured(self) -> str:
        """GPU, version, and the share of the latency that it saved in each kernel.

        Minus is slower; (noise): not told from zero; in a search: one short timing. Empty where
        nobody measured it. `make generate` takes it from the pages of results.
        """
        return str(json.loads(_MEASURED.read_text(encoding="utf-8")).get(self.name, ""))

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
    trial: ClassVar[TritonTrial | TileTrial]
    """What both are compiled with, and what their numbers are compared on."""
    observed: ClassVar[tuple[ObservedLaunch, ...]] = ()
    """What is taken for seen of `before`, where the variants rest on what was launched."""
    sweep: ClassVar[Sequence[Params]] = ({},)
    """What is worth trying wherever it applies."""

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The parameters worth trying here; more than one is a sweep, still ONE iteration.

        Never holds what the source already says. Raises `NotApplicable` when there is none. Where
        an entry says nothing else, it is the `sweep`.
        """
        self.apply(subject, self.sweep[0])
        return list(self.sweep)

    @abstractmethod
    def apply(self, subject: Subject, params: Params) -> str:
        """The new source text. Raises `NotApplicable` when nothing would change."""

    def describe(self, params: Params) -> str:
        """The text of the table: the title with the parameters."""
        if not params:
            return self.title
        return f"{self.title} ({', '.join(f'{k}={v}' for k, v in params.items())})"


class OfEachKernel(Optimization):
    """An optimization that rewrites every launched kernel that can be, each by itself."""

    otherwise: ClassVar[str] = "no kernel is launched here"
    """Why it does not apply where no kernel has anything to rewrite, nor a reason of its own."""
    idle_in_interpreter: ClassVar[str] = ""
    """Why it gains nothing in Triton's interpreter, and is not tried there."""

    def apply(self, subject: Subject, params: Params) -> str:
        """Rewrite the kernels that do not refuse."""
        if subject.hardware.interpreted and self.idle_in_interpreter:
            raise NotApplicable(self.idle_in_interpreter)
        dialect = {"cutile": CUTILE, "triton": TRITON}[self.backend]
        chosen = dialect.chosen(subject.source)
        edits = edits_of_each(
            chosen, lambda kernel: self.edits(subject, kernel, params), self.otherwise
        )
        return subject.source.rewrite(edits)

    @abstractmethod
    def edits(self, subject: Subject, kernel: Kernel, params: Params, /) -> Edits:
        """What changes for one kernel, its launches among it. Raises `NotApplicable` otherwise."""
