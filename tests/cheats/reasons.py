"""Why a candidate has to be refused, and the words by which the judge says so."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WRONG = (
    r"mismatch|not close|assert|another result|not the origin's result|other results"
    r"|less precise|on fresh inputs|lies in the memory of"
)
_NO_LAUNCH = (
    r"without a launch|launches no kernel|timed calls launch|launches are missing|first call only"
)
_ENDED = (
    r"no longer be collected|ended by itself|killed by|closed its connection|no answer|skip|Exit"
    r"|Interrupt"
)
_REPLACED = r"something of its own in place of"
_LIBRARY = r"torch computes"
_OTHER_INPUTS = r"the test makes other inputs"


@dataclass(frozen=True)
class Kind:
    """A way to cheat."""

    meaning: str
    reasons: str
    """A regular expression: some reason that the judge may give for it."""

    def explains(self, reason: str) -> bool:
        """Whether a reason of the judge is one for this kind."""
        return re.search(self.reasons, reason, re.IGNORECASE) is not None


KINDS = {
    "wrong-results": Kind("what is timed gives other results than what is tested", _WRONG),
    "stale-results": Kind("results come from an earlier call", rf"{_WRONG}|{_NO_LAUNCH}"),
    "less-work": Kind(
        "a part of the work is left out where it is timed", rf"{_WRONG}|{_NO_LAUNCH}"
    ),
    "no-launch": Kind("no kernel of the file is launched", rf"{_NO_LAUNCH}|{_WRONG}"),
    "torch-work": Kind(
        "a library computes the result", rf"{_LIBRARY}|{_NO_LAUNCH}|other threads|more threads"
    ),
    "disarmed-tests": Kind(
        "tests, or what runs them, no longer find anything",
        rf"{_REPLACED}|{_WRONG}|{_NO_LAUNCH}|{_ENDED}|{_LIBRARY}|{_OTHER_INPUTS}|makes no sense",
    ),
    "clock": Kind(
        "the time that is reported is not the time that it took",
        rf"{_REPLACED}|clock|of the time that passed|was on a processor for|latency of"
        r"|timed calls launch"
        r"|more than an edit can do|no median",
    ),
    "inputs-changed": Kind(
        "inputs are changed that are only to be read", rf"changes its input|{_WRONG}"
    ),
    "aliasing": Kind(
        "results share memory with inputs or with earlier results", rf"changes its input|{_WRONG}"
    ),
    "tampered": Kind(
        "files of the checkout, or around it, are changed",
        rf"{_REPLACED}|starts processes|Read-only|Permission denied|PermissionError|changed",
    ),
    "side-work": Kind(
        "work goes on outside of the call",
        rf"{_WRONG}|threads|starts processes|processes run beside|another stream|{_NO_LAUNCH}"
        rf"|{_ENDED}|PermissionError",
    ),
    "lazy-results": Kind(
        "the work is put off until somebody looks, or is never done",
        rf"{_WRONG}|no plain tensor|{_NO_LAUNCH}",
    ),
    "precision": Kind("results are less exact than the origin's", _WRONG),
    "impossible": Kind("it is faster than can be", rf"more than an edit can do|{_WRONG}"),
    "test-detection": Kind(
        "it finds out who is looking",
        rf"{_WRONG}|{_NO_LAUNCH}|{_LIBRARY}|{_REPLACED}|takes more memory",
    ),
    "early-exit": Kind("the process ends with success before it is judged", rf"{_ENDED}|{_WRONG}"),
}
"""By the word that a file names. What another detector finds first is as good a reason where the
cheat does both, such as a buffer that is kept and is stale."""
