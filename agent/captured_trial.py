"""Captured tests, run on the code that they were captured of, and committed for a run.

Those that fail there are left out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent.capture.files import CaptureFiles
from agent.capture.refused import Case, why_perhaps, with_distinct, without
from agent.captured import CapturedTests, capture_tests
from agent.errors import NothingCaptured, UsageError
from agent.frozen_tests import holds
from agent.harness.processes.captured_tests import failing_cases
from agent.harness.processes.wanted_gpu import remedy as of_no_gpu
from agent.repository import shown
from agent.target import Target
from agent.workspace import Workspace

FailingOf = Callable[[CapturedTests], Mapping[Case, str] | str]
"""Runs tests; gives those that fail, with the reason of each in a line, or why that could not be
found out."""


def not_checked(why: str) -> str:
    """A note on tests that could not be tried."""
    return (
        f"whether the tests pass on the code itself could not be found out ({why}): run them, and "
        "leave out what fails"
    )


def trying(found: CapturedTests) -> str:
    """A line for who waits while captured tests are run for the first time."""
    cases = "1 case; it is" if found.cases == 1 else f"{found.cases} cases; they are"
    return f"captured   {cases} tried on the code itself"


def without_failing(found: CapturedTests, failing_of: FailingOf) -> CapturedTests:
    """The tests that pass on the code that they were captured of.

    Args:
        found: all of them.
        failing_of: runs tests; gives those that fail, with the reason of each in a line, or why
            that could not be found out.

    Raises:
        NothingCaptured: none passes.
    """
    failing = failing_of(found)
    if isinstance(failing, str):
        return untried(found, failing)
    notes = []
    if failing and (distinct := with_distinct(found.entries, failing)) != found.entries:
        found = replace(found, entries=distinct)
        before, failing = failing, failing_of(found)
        if isinstance(failing, str):
            return untried(found, failing)
        if mended := len(before.keys() - failing.keys()):
            notes.append(
                f"{_calls(mended)} differed from the same one again, since programs wrote the same "
                "places: in the tests no place occurs twice among their indices"
            )
    if failing:
        left = without(found.entries, failing)
        (test, case), reason = next(iter(failing.items()))
        lacks = why_perhaps(found.entries, (test, case))
        first = f"{test}[{case}]: {reason}{lacks or of_no_gpu(reason)}"
        if not left:
            raise NothingCaptured(f"every call fails on the code itself: {first}")
        found = replace(found, entries=left)
        notes.append(f"{_calls(len(failing))} left out, which fail on the code itself: {first}")
    return replace(found, notes=(*found.notes, *notes))


def untried(found: CapturedTests, why: str) -> CapturedTests:
    """The tests with a note that nobody knows which of them pass, and why."""
    return replace(found, notes=(*found.notes, not_checked(why)), untried=why)


def placed(
    captured: CapturedTests,
    kernel: Path,
    failing_of: FailingOf,
) -> CapturedTests:
    """Those that pass: beside the kernel where the `conftest.py` of the project's tests lets none.

    It may import what is not installed, or set up what this machine has not.

    Args:
        captured: all of them, where tests of the project are.
        kernel: the file.
        failing_of: see `without_failing`.

    Raises:
        NothingCaptured: none passes.
    """
    elsewhere = CaptureFiles.beside(kernel, captured.places)
    try:
        found = without_failing(captured, failing_of)
        nothing, why = None, found.untried
    except NothingCaptured as none_passes:
        found, nothing, why = captured, none_passes, str(none_passes)
    if why and elsewhere is not None:
        try:
            moved = without_failing(captured.at(elsewhere), failing_of)
        except NothingCaptured as none_passes:  # nor is it the project's conftest.py
            raise nothing or none_passes from None
        if not moved.untried:
            note = (
                "captured tests lie beside the kernel, and judge without those beside the "
                f"project's conftest.py, with which none can be run here: {why}"
            )
            return replace(moved, notes=(*moved.notes, note))
    if nothing is not None:
        raise nothing
    return found


def _calls(number: int) -> str:
    return "1 kind of calls" if number == 1 else f"{number} kinds of calls"


@dataclass(frozen=True)
class CapturedCommit:
    """Captured tests as a commit that a run can start from."""

    sha: str
    test: str
    """The test file, from the root of the repository."""
    target: Target
    """With these tests."""
    told: str
    """What they are: before the run, whose branch goes again where its baseline fails."""
    told_at_the_end: str
    """The same, and how they are taken without the rest of the branch."""
    notes: tuple[str, ...]


def commit_captured(
    workspace: Workspace,
    head_sha: str,
    target: Target,
    command: Sequence[str],
    stop_after_s: float | None = None,
    say: Callable[[str], None] = lambda _line: None,
    passed: Collection[str] = (),
    python: str = sys.executable,
) -> CapturedCommit:
    """Capture tests of the kernel of a commit, and commit them on top of it; the checkout stays.

    Args:
        workspace: of the run.
        head_sha: the commit, which the checkout has.
        target: what the run works on, without these tests.
        command: a program and its arguments.
        stop_after_s: when to end it, and be content with the calls made until then.
        say: told in a line what goes on when it is over.
        passed: names of variables that the tests get besides.
        python: the interpreter of the tests.

    Raises:
        UsageError: there are such files already, or no tests can be made.
    """
    repository = workspace.repository
    kernel = repository.root / target.kernel
    files = CaptureFiles.of(kernel)
    if path := files.existing():
        raise UsageError(
            f"--capture would write {shown(path)}, which exists: leave --capture out to judge by "
            "what it holds, or move it away"
        )
    text = repository.read(head_sha, target.kernel).decode()

    def inside(path: Path) -> str:
        return path.relative_to(repository.root).as_posix()

    def committed(found: CapturedTests) -> str:
        contents = {inside(path): content for path, content in found.files.items()}
        test, command = inside(found.places.test), found.command
        message = f"{test}: captured\n\nFrom the calls that this command made: {command}\n"
        return workspace.commit_files(head_sha, contents, message, time.time())

    def failing(found: CapturedTests) -> Mapping[Case, str] | str:
        sha = committed(found)
        root = workspace.checkout(sha)
        try:
            test = root / inside(found.places.test)
            return failing_cases(
                test,
                root,
                target.backend,
                target.sys_path(root),
                found.source.suffix,
                passed,
                python,
            )
        finally:
            workspace.release(sha)

    captured = capture_tests(command, kernel, text, target.backend, files, stop_after_s)
    say(trying(captured))
    found = placed(captured, kernel, failing)
    sha, test = committed(found), inside(found.places.test)
    cases = f"captured: {found.cases} correctness and {found.timed} perf cases"
    told = f"{cases}, as {shown(test)} in the commit that the branch is to begin with"
    told_at_the_end = (
        f"{cases}, which the branch holds as {shown(test)}; `git cherry-pick {sha[:12]}` takes "
        "them alone, whatever the run gains"
    )
    broken = found.places.left_behind(captured.places)  # no test in these can be collected
    usable = tuple(
        path
        for path in target.tests
        if not broken & {repository.root / path, *(repository.root / path).parents}
    )
    known = any(holds(path, test) for path in usable)
    tests = usable if known else (*usable, test)
    judged = replace(target, tests=tests)
    return CapturedCommit(sha, test, judged, told, told_at_the_end, found.all_notes)
