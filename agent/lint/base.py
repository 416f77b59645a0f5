"""What a check is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

import libcst as cst

from agent.analysis.cutile.kernel_file import KernelFile

ARROW = "  # <-"
"""Ends the lines of a bad example that are found."""


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """It does not compile or launch, or it gives wrong results."""
    WARNING = "warning"
    """It works, and costs far more than it has to."""
    NOTE = "note"
    """Worth a look; there are good reasons to leave it so."""


@dataclass(frozen=True)
class Finding:
    """One thing that a check has found in a file."""

    code: str
    name: str
    severity: Severity
    line: int
    message: str
    mend: str


Found: TypeAlias = tuple[cst.CSTNode, str]
"""Where, and what is wrong there."""


@dataclass(frozen=True)
class Check:
    """A rule that a program can decide from the source."""

    code: str
    name: str
    severity: Severity
    mend: str
    source: str
    """Who states the rule, and how it was confirmed."""
    bad: str
    """An example; `ARROW` ends the lines that are found."""
    good: str
    """The same, mended."""
    find: Callable[[KernelFile], Iterator[Found]] = field(repr=False)

    @property
    def why(self) -> str:
        """The rule and its reason."""
        return " ".join((self.find.__doc__ or "").split())


def check(
    code: str, name: str, severity: Severity, *, mend: str, source: str, bad: str, good: str
) -> Callable[[Callable[[KernelFile], Iterator[Found]]], Check]:
    """Make a check of a function; its docstring is the rule."""
    return lambda find: Check(code, name, severity, mend, source, bad.strip("\n") + "\n",
                              good.strip("\n") + "\n", find)  # fmt: skip
