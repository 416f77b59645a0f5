"""Launches that name none of the kernels that they may launch, for entries that may change them.

Such a launch counts where `agent.analysis.common.possible_functions` finds all the kernels that it
may be the launch of. What an entry changes there it changes for each of these, so that an entry has
to ask for such launches: for all others they are none, as a kernel that is handed on has none.
"""

from __future__ import annotations

from dataclasses import replace

from agent.analysis.common.dialect import Dialect
from agent.analysis.common.subject import Subject
from agent.syntax import Source


def following(dialect: Dialect, subject: Subject) -> Subject:
    """The same file where such launches count, unless other files have to do with them.

    Those hand kernels of their own to its functions, or change its tables of kernels.
    """
    source = subject.source
    names = {kernel.name for kernel in dialect.kernels(source)}
    if source.follows or not subject.elsewhere <= names or not _launches_others(dialect, source):
        return subject
    return replace(subject, source=source.following())


def _launches_others(dialect: Dialect, source: Source) -> bool:
    """Whether a launch names no function of the file; to know that takes no other source."""
    named = (dialect.named(source, call) for call in source.calls)
    return any(each is not None and source.function_of(each) is None for each in named)
