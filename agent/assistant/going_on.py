"""A `begin` where a run on the kernel is under way: it goes on with that one, by its options."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from agent.errors import UsageError
from agent.events import Started
from agent.options import Request
from agent.redaction import redact
from agent.repository import Repository
from agent.settings import Setting
from agent.target import CAPTURED
from tile_agent_pytest.bench_command import BenchCommand

Same = Callable[[Repository, Started, Any], bool]
"""Whether a value that is given is the one that a run began with."""


def insist_same(
    repository: Repository, started: Started, request: Request, given: Collection[Setting]
) -> None:
    """Refuse options that the run does not have: they would have no effect.

    Args:
        repository: the user's.
        started: how the run began.
        request: what is asked for now.
        given: the options that the command line names; what others amount to is not looked at.

    Raises:
        UsageError: some differ.
    """
    others = [each.flag for each in given if not _is_same(repository, started, request, each)]
    if others:
        differ = "differ" if len(others) > 1 else "differs"
        raise UsageError(
            f"run {started.run_id} on {started.kernel} is not done (branch {started.branch}), and "
            f"{', '.join(others)} {differ} from what it began with: leave out what differs to go "
            f"on with it, or end it first: tile-agent finish --run {started.run_id}"
        )


def _is_same(repository: Repository, started: Started, request: Request, setting: Setting) -> bool:
    value = attrgetter(".".join(setting.path))(request)
    if setting.path[0] == "options":
        return bool(value == attrgetter(".".join(setting.path))(started))
    known = _SAME.get(setting.path[0])
    return known is None or known(repository, started, value)


def _same_tests(repository: Repository, started: Started, tests: tuple[str, ...]) -> bool:
    given = set()
    for test in tests:
        file, colons, rest = test.partition("::")
        given.add(f"{_inside(repository, file)}{colons}{rest}")
    files = set(started.tests.files)
    return given in (files, {file for file in files if not file.endswith(CAPTURED)})


def _same_benches(repository: Repository, started: Started, benches: tuple[str, ...]) -> bool:
    try:
        given = {
            str(replace(command, path=_inside(repository, command.path)))
            for command in map(BenchCommand.parse, benches)
        }
    except ValueError:
        return False
    return given == set(started.tests.benches)


def _same_capture(repository: Repository, started: Started, command: tuple[str, ...]) -> bool:
    """By the message of the commit that holds the captured tests."""
    message = repository.git("log", "-1", "--format=%B", started.origin_sha).text
    subject, *body = message.splitlines()
    told = redact(shlex.join(command), os.environ)
    return subject.endswith(f"{CAPTURED}: captured") and any(
        line.endswith(f": {told}") for line in body
    )


def _inside(repository: Repository, file: str) -> str:
    """A path from the root of the repository, as a run records it."""
    place = Path(file).resolve()
    if not place.exists():
        place = (repository.root / file).resolve()
    inside = place.is_relative_to(repository.root)
    return place.relative_to(repository.root).as_posix() if inside else file


_SAME: Mapping[str, Same] = {
    "tests": _same_tests,
    "bench": _same_benches,
    "capture": _same_capture,
    "branch": lambda _, started, value: value == started.branch,
    "python": lambda _, started, value: value == started.python,
    "correctness_k": lambda _, started, value: value == started.tests.correctness_k,
    "perf_k": lambda _, started, value: value == started.tests.perf_k,
}
"""What a run records outside its options; nothing is known of the rest."""
