"""The exit codes of tile-agent, and its errors in one tree.

    TileAgentError
    ├── UsageError          the user can mend it: one line, exit code 2, nothing changed
    │   ├── BaselineFailed
    │   │   └── BaselineOutrun
    │   ├── CommandFailed
    │   ├── FinalTestsFailed
    │   ├── NoTests
    │   └── NothingCaptured
    ├── JournalError        a journal that cannot be read or written
    ├── TransitionError     an event that its phase does not know: a fault of ours
    ├── GitError            git refused something that should have worked
    └── WorkerError         a worker process that could not do its job
        ├── WorkerTimedOut
        ├── WorkerDied
        ├── NoLaunch
        └── WrongImport

Expected failures (a candidate that does not compile, a wrong result, a deadline) are not
exceptions for the loop: they become events, and rows of the table. `NotApplicable`, in
`agent.playbook.base`, is a signal and not an error, so it lacks the suffix and lives elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum


class ExitCode(IntEnum):
    """What the command line answers with."""

    DONE = 0
    FAULT = 1
    """A fault of ours, with a traceback."""
    USAGE = 2
    """Bad usage or bad input; nothing has been changed."""
    NO_IMPROVEMENT = 3
    ESCALATED = 4
    STOPPED = 5
    """At a budget, or by the user."""


class Interrupted(BaseException):
    """The user, or the system, asked the process to end: Ctrl-C, `tile-agent stop`, a hang-up.

    Its message, where it has one, tells the user what had been done by then. Like
    KeyboardInterrupt it is no Exception, so that nothing swallows it on its way out.

    Args:
        message: what to tell.
        by: the signal that asked for it; 0 where none did.
    """

    def __init__(self, message: str = "", by: int = 0) -> None:
        super().__init__(*([message] if message else []))
        self.by = by


class TileAgentError(Exception):
    """Root of every error this project raises on purpose."""


class UsageError(TileAgentError):
    """Bad usage or bad input that the user can mend.

    The message is one line that says what is wrong and how to mend it. Nothing has been changed
    when it is raised.
    """


class BaselineFailed(UsageError):
    """The user's own tests fail on the user's own code."""


class BaselineOutrun(BaselineFailed):
    """They take longer than the whole run may."""


class CommandFailed(UsageError):
    """A command of the user's, of which tests were to be made, ended with an error."""


class FinalTestsFailed(UsageError):
    """Tests fail on the kept steps of a run where they are replayed."""


class NoTests(UsageError):
    """No committed test of a kernel was found, or none of a kind that is needed."""


class NothingCaptured(UsageError):
    """A command of the user's made no call of which a test can be made."""


class UnreadableCode(UsageError):
    """A binary utility of this machine cannot read what a compiler made."""


class JournalError(TileAgentError):
    """The journal cannot be read or written."""


class TransitionError(TileAgentError):
    """An event arrived in a phase that does not know it."""


class GitError(TileAgentError):
    """A git command failed that tile-agent relies on."""


class WorkerError(TileAgentError):
    """A worker process could not do its job."""


class WorkerTimedOut(WorkerError):
    """A worker passed its deadline; its whole process tree has been killed."""


class WorkerDied(WorkerError):
    """A worker ended without answering: a crash, a signal, `os._exit`."""


class CallFailed(WorkerDied):
    """What a worker was to call raised; the worker says what, and may go on."""


class NoLaunch(WorkerError):
    """A candidate launches no kernel of its file where the incumbent does."""


class WrongResult(WorkerError):
    """A candidate's timed call computed something else than the incumbent's."""


class WrongImport(WorkerError):
    """The tests imported the kernel from another file than the one under judgement."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that names what a mistyped name is nearest to; empty where nothing is near.

    What begins with the name, or else what holds it, where nothing is spelled alike.
    """
    names = list(known)
    near = get_close_matches(name, names, n=3)
    if not near and len(name) > 2:
        begun = [each for each in names if each.startswith(name)]
        near = (begun or [each for each in names if name in each])[:3]
    return f"did you mean {' or '.join(near)}?" if near else ""
