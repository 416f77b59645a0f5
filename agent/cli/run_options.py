"""Makes a run's options of what the command line says."""

from __future__ import annotations

import math
import shlex

from agent.errors import UsageError


def seconds(option: str, value: float | None) -> float | None:
    """A number of seconds that ends.

    Raises:
        UsageError: it is none.
    """
    if value is not None and not math.isfinite(value):
        raise UsageError(f"{option} {value} is no number of seconds: leave it out for no limit")
    return value


def limit(option: str, value: float) -> float:
    """The same, where one is needed."""
    found = seconds(option, value)
    assert found is not None
    return found


def entries(names: list[str] | None) -> tuple[str, ...]:
    """Names of the playbook that exist.

    Raises:
        UsageError: one does not.
    """
    from agent.playbook import find

    return tuple(find(name).name for name in names or ())


def proposers(chain: str) -> tuple[str, ...]:
    """'playbook,model' as a tuple.

    Raises:
        UsageError: one is not known, comes twice, or is not for `run`.
    """
    from agent.options import ASSISTANT, PROPOSERS

    names = tuple(name.strip() for name in chain.split(",") if name.strip())
    known = [name for name in PROPOSERS if name != ASSISTANT]
    if ASSISTANT in names:
        raise UsageError("an assistant leads its run itself: `tile-agent begin --kernel PATH`")
    for name in names:
        if name not in known:
            raise UsageError(f"--proposer {name} is not known: choose from {', '.join(known)}")
    if not names or len(set(names)) < len(names):
        raise UsageError(f"--proposer {chain!r}: name each of {', '.join(known)} at most once")
    return names


def argv(command: str) -> tuple[str, ...]:
    """A command line as its words; no shell is involved.

    Raises:
        UsageError: a quote is not closed.
    """
    try:
        return tuple(shlex.split(command))
    except ValueError as problem:
        raise UsageError(f"--command {command!r} cannot be split into words: {problem}") from None
