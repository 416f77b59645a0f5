"""Why a file is not ported: the construct, its line, and what its author can do."""

from __future__ import annotations

import libcst as cst

from agent.errors import UsageError
from agent.syntax import Source


class NotPortable(UsageError):
    """Something of the file has no translation that is known to mean the same.

    Attributes:
        line: of the file, from 1.
        construct: what it is, without the values of this file, so that refusals can be counted.
        advice: what could be done.
    """

    def __init__(self, path: str, line: int, construct: str, detail: str, advice: str) -> None:
        self.line, self.construct, self.advice = line, construct, advice
        what = f"{construct}{f' ({detail})' if detail else ''}"
        super().__init__(f"{path}:{line}: {what} is not ported: {advice}")


def refusal(
    source: Source, node: cst.CSTNode, construct: str, advice: str, *, detail: str = ""
) -> NotPortable:
    """The refusal of one place of a file.

    Args:
        source: the file.
        node: the place.
        construct: a noun phrase: "`tl.sort`".
        advice: what could be done, as an imperative.
        detail: what tells this place from others of its kind.
    """
    return NotPortable(source.path, source.line(node), construct, detail, advice)
