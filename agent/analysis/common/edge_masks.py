"""Masks in the loops of a kernel that remove something of a few tiles only, in either language."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.edge_tests import EdgeTest, loop_of
from agent.analysis.common.seen_types import narrow_array
from agent.analysis.common.subject import NotApplicable, Subject
from agent.syntax import Source, descendants


@dataclass(frozen=True)
class MaskForm:
    """What a statement makes of a tile that it masks."""

    target: str
    """The name that it gives."""
    kept: cst.BaseExpression
    """What it is where nothing is masked."""
    again: cst.BaseExpression
    """The statement's value, of a tile that has the name already."""

    def is_itself(self, source: Source) -> bool:
        """Whether the tile has the name already."""
        return source.code(self.kept) == self.target


@dataclass(frozen=True)
class EdgeMask:
    """A statement in a loop that masks a tile, and does nothing to it in some of the steps."""

    line: cst.SimpleStatementLine
    mask: cst.BaseExpression
    """The condition that it masks by."""
    form: MaskForm
    tests: tuple[str, ...]
    """Code of conditions of which one holds where the mask removes something."""


def masks_in_loops(
    source: Source,
    kernel: Kernel,
    chooses: str,
    look: Callable[[cst.For, cst.Call], EdgeMask],
    looked_for: str,
) -> list[EdgeMask]:
    """Those of a kernel's own loops that do nothing in some of the steps.

    Args:
        source: the file.
        kernel: one of its kernels.
        chooses: the function that masks.
        look: reads a call of it, in a loop. Raises `NotApplicable` where it is none of these.
        looked_for: what a refusal begins with.

    Raises:
        NotApplicable: there are none, with the reason of each.
    """
    masks = [
        (loop, call)
        for call in descendants(kernel.function.node.body, cst.Call)
        if source.name(call.func) == chooses and (loop := loop_of(source, call))
    ]
    return of_each(masks, lambda mask: look(*mask), f"{looked_for}, and {kernel.name} has none")


def edge_mask(
    subject: Subject,
    kernel: Kernel,
    line: cst.SimpleStatementLine,
    form: MaskForm,
    parts: Sequence[cst.BaseExpression],
    tests: Sequence[EdgeTest],
) -> EdgeMask:
    """The mask of a statement.

    Args:
        subject: what is known.
        kernel: whose mask it is.
        line: the statement.
        form: what it makes of the tile.
        parts: the condition that it masks by, and what else it reads besides the tile.
        tests: of which one is true where the mask removes something.

    Raises:
        NotApplicable: the tests count in numbers of other types than the mask, or the statement's
            name cannot be given a value before them.
    """
    at = f"line {subject.source.line(line)}"
    starts = [start for test in tests for run in test.runs for start in run.starts]
    if narrow := narrow_array(subject.source, subject.launches, kernel.name, starts):
        raise NotApplicable(f"the mask of {at} counts in numbers of {narrow}")
    texts = tuple(test.text for test in tests)
    read = [*parts, *map(cst.parse_expression, texts)]
    if not form.is_itself(subject.source) and reads(read, form.target):
        raise NotApplicable(f"{at} gives the name of what it masks by")
    return EdgeMask(line, parts[0], form, texts)


def reads(parts: Iterable[cst.CSTNode], name: str) -> bool:
    """Whether one of some parts reads a name."""
    return any(n.value == name for part in parts for n in descendants(part, cst.Name))
