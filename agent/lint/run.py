"""Applying the checks to a file, and what the file itself asks to leave out."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass

import libcst as cst

from agent.analysis.cutile.kernel_file import KernelFile
from agent.lint.base import Check, Finding, Severity
from agent.lint.checks import (
    caching,
    imports,
    indices,
    launches,
    names,
    padding,
    results,
    searching,
    spaces,
    speed,
    tiles,
)
from agent.syntax import Source

FAMILIES = (
    imports,
    names,
    tiles,
    indices,
    launches,
    results,
    padding,
    speed,
    searching,
    spaces,
    caching,
)
CHECKS: tuple[Check, ...] = tuple(
    sorted(
        (
            value
            for family in FAMILIES
            for value in vars(family).values()
            if isinstance(value, Check)
        ),
        key=lambda check: check.code,
    )
)
"""All of them, by code."""


@dataclass(frozen=True)
class Report:
    """What the checks found in one file."""

    findings: tuple[Finding, ...]
    """By line."""
    suppressed: int
    """How many more a `# noqa` has silenced."""

    def count(self, severity: Severity) -> int:
        """How many findings are of one severity."""
        return sum(finding.severity is severity for finding in self.findings)


def lint(source: Source) -> Report:
    """Apply every check to a file.

    A finding is silenced by a comment `# noqa: CT201`, with one or more codes, on the line where
    it begins or ends.
    """
    file = KernelFile(source)
    silenced = _silenced(source.text)
    found: dict[tuple[str, int, str], Finding] = {}
    suppressed = 0
    for check in CHECKS:
        for node, message in check.find(file):
            line, last = _lines(source, node)
            finding = Finding(check.code, check.name, check.severity, line, message, check.mend)
            if check.code in silenced.get(line, ()) or check.code in silenced.get(last, ()):
                suppressed += 1
            else:
                found[check.code, line, message] = finding
    ordered = sorted(found.values(), key=lambda finding: (finding.line, finding.code))
    return Report(tuple(ordered), suppressed)


def _lines(source: Source, node: cst.CSTNode) -> tuple[int, int]:
    """The first and the last line of a node."""
    return source.line(node), source.place(node).end.line


def _silenced(text: str) -> dict[int, frozenset[str]]:
    """Line -> the codes that its comment names after `noqa:`."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            _, _, codes = token.string.partition("noqa:")
            found[token.start[0]] = frozenset(codes.replace(",", " ").split())
    return found
