"""Tests made of the calls that a command of the user's makes of a kernel's file.

The command runs as it is, in the user's checkout. Nothing is written here: `capture` writes the
files, and a run commits them before its first measurement, see `captured_trial`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path

from agent import environment as machine
from agent.backends import BACKENDS
from agent.backends.base import Backend
from agent.capture.calls import Capture, collected
from agent.capture.cases import CapturedEntry, entries, passed_over, unwritable
from agent.capture.files import CaptureFiles
from agent.capture.gpu_guards import asks_for_gpu
from agent.capture.import_place import ImportPlace
from agent.capture.test_file import CapturedSource, WrittenTests, test_names, write_tests
from agent.errors import CommandFailed, NothingCaptured
from agent.harness.compiling.cutile import PROJECT_MARKS, import_roots
from agent.harness.processes.interpreter import check_triton_of
from agent.harness.processes.recorded_command import (
    CALLS,
    how_it_ended,
    other_python,
    run_recorded,
)
from agent.harness.processes.wanted_gpu import REMEDY, shown_question, wants_gpu
from agent.importers import module_of
from agent.on_disk import on_disk
from agent.redaction import redact
from agent.rewriting.common.own_operators import computed_names, with_own_operators

MOST_SHOWN = 160
"""Characters of a reason."""
NO_TESTS = 5
"""With what pytest ends where it has run none, as where files skip themselves."""


@dataclass(frozen=True)
class CapturedTests:
    """What is to be written, and what it was made of."""

    places: CaptureFiles
    source: CapturedSource
    origin: bytes
    """The kernel's file."""
    calls: Capture
    entries: tuple[CapturedEntry, ...]
    notes: tuple[str, ...] = ()
    untried: str = ""
    """Why it could not be found out which of them pass; empty where it was."""

    @cached_property
    def _written(self) -> WrittenTests:
        return write_tests(self.source, self.calls, self.entries)

    @property
    def files(self) -> Mapping[Path, bytes]:
        """What goes where; the test file first."""
        written, places = self._written, self.places
        kept = {places.values: written.kept} if written.kept else {}
        return {places.test: written.text.encode(), places.origin: self.origin, **kept}

    @property
    def command(self) -> str:
        """As it may be shown: without secrets."""
        return self.source.command

    @property
    def all_notes(self) -> tuple[str, ...]:
        """What is to be told of them."""
        if not (drawn := self._written.drawn):
            return self.notes
        return (*self.notes, f"the values of {drawn} integer tensors are drawn anew")

    @property
    def cases(self) -> int:
        """How many calls are tested."""
        return sum(len(entry.calls) for entry in self.entries)

    @property
    def timed(self) -> int:
        """How many of them are timed."""
        return sum(entry.timed for entry in self.entries)

    def at(self, places: CaptureFiles) -> CapturedTests:
        """The same tests elsewhere."""
        here, there = (each.test.parent.resolve() for each in (self.places, places))

        def moved(path: str) -> str:
            return os.path.relpath(here / path, there) if path else ""

        source = self.source
        source = replace(source, folder=moved(source.folder), file=moved(source.file))
        return replace(self, places=places, source=source)

    def share(self, entry: CapturedEntry) -> float:
        """The part of the time of all calls that an entry's took, from 0 to 1."""
        return sum(self.calls.share(call) for call in entry.calls)


def capture_tests(
    command: Sequence[str],
    kernel: Path,
    text: str,
    backend: str,
    files: CaptureFiles,
    stop_after_s: float | None = None,
    when_interrupted: Callable[[], None] | None = None,
) -> CapturedTests:
    """Run a command and make tests of the calls that launch kernels of a file.

    Args:
        command: a program and its arguments; without a GPU Triton interprets in it.
        kernel: the file.
        text: its content, which becomes the origin.
        backend: its language.
        files: where the tests will lie.
        stop_after_s: when to end the command, and be content with the calls made until then.
        when_interrupted: has the first interruption do so, too; tells the user.

    Raises:
        UsageError: there is no such program, or its Triton is too old.
        CommandFailed: it ended with an error.
        NothingCaptured: it made no call that can become a test.
    """
    if backend == "triton":
        check_triton_of(command)
    environment = machine.probe()
    worker = BACKENDS[backend].worker_environment(environment)
    variables = worker if environment.gpu is None else {}
    told = {"kernel": str(kernel.resolve())}
    roots = _package_roots(kernel.resolve())
    every = import_roots(kernel.resolve())
    end = run_recorded(
        command, CALLS, told, variables, stop_after_s, roots, every, when_interrupted
    )
    shown = redact(shlex.join(command), os.environ)
    elsewhere = "" if environment.gpu else _without_gpu(BACKENDS[backend], kernel, command)
    failed = f"the command failed ({how_it_ended(end.code)})" if end.code else ""
    seen = collected(end.records)
    found = entries(seen)
    is_skipped = end.code == NO_TESTS and bool(seen.tests and seen.tests.all_of_them)
    if not found and failed and end.stopped_s is None and not is_skipped:
        if not elsewhere and wants_gpu(question := shown_question(seen.failure)):
            raise CommandFailed(f"{failed}, nothing was written: {question}: {REMEDY}")
        test, name = seen.tests.no_fixture if seen.tests else ("", "")
        mend = f"mend it, or leave out what fails: {shown}{other_python(command)}"
        if test:
            script = shlex.quote(test.partition("::")[0])
            mend = (
                f"{test} takes `{name}`, which is no fixture, so that pytest cannot call it: where "
                f"a script calls it, run that, `python {script}`"
            )
        raise CommandFailed(f"{failed}, nothing was written: {elsewhere or mend}")
    if not found:
        how = "interrupted" if end.interrupted else "ended"
        until = f"{how} after {end.stopped_s:.0f} s, give it longer; " if end.stopped_s else ""
        raise NothingCaptured(f"{until}{elsewhere or _nothing(kernel, seen)}")
    names = [backend in test for test in test_names(found)]
    mixed = any(names) and not all(names)  # those that name it would be taken for all
    named = mixed or _named_after(backend, files.test, module_of(str(kernel)).name)
    suffix = f"_{backend}" if named else ""
    first = found[0].calls[0]
    place = _import_place(first.module, Path(first.launching_file or kernel.resolve()))
    own = _import_place(first.kernels_of, kernel.resolve()) if first.kernels_of else place
    loads_kernel = bool(first.kernels_of) and own.module != first.kernels_of
    folder = place.folder or (None if loads_kernel else own.folder)

    def from_test(path: Path | None) -> str:
        return os.path.relpath(path, files.test.parent.resolve()) if path else ""

    computed = computed_names(text, seen.registered)
    source = CapturedSource(
        kernel.name,
        suffix,
        shown,
        date.today().isoformat(),
        files.origin.name,
        place.module,
        from_test(folder),
        from_test(place.file),
        loads_kernel=loads_kernel,
        asks_for_gpu=_asks_for_gpu(kernel.resolve(), text),
        renames_operators=bool(computed),
    )
    end_note = f"{failed} after calls that are kept: see what it said, whether there should be more"
    cut = (f"the command was ended after {end.stopped_s:.0f} s",) if end.stopped_s else ()
    cut = cut or ((end_note,) if failed else ())
    notes = (*cut, *unwritable(seen), *_notes(seen))
    origin = with_own_operators(text, computed=computed).encode()
    return CapturedTests(files, source, origin, seen, found, notes)


def _asks_for_gpu(kernel: Path, text: str) -> bool:
    """Whether no tensor of the CPU's will do, for the file or what it calls of its project."""
    folders = import_roots(kernel)
    root = min(folders, key=lambda folder: len(folder.parts))
    is_project = any((root / mark).exists() for mark in PROJECT_MARKS)
    tree = on_disk(root, whole=is_project)
    roots = [folder.relative_to(root).as_posix() for folder in folders]
    return asks_for_gpu(tree, roots, kernel.relative_to(root).as_posix(), text)


def _package_roots(kernel: Path) -> list[Path]:
    """From where the kernel's package is imported: a command finds this copy, installed or not.

    Where the folders above the package are none, they may be a namespace: `conch.kernels`.
    """
    above, *others = import_roots(kernel)
    if not (kernel.parent / "__init__.py").exists():
        return [root for root in others if root.name == "src" and kernel.is_relative_to(root)]
    outer = [root for root in others if above.is_relative_to(root)]
    sources = [root for root in outer if root.name == "src"]
    names = above.relative_to(outer[-1]).parts if outer else ()
    is_namespace = not sources and above.name != "src" and all(map(str.isidentifier, names))
    return [above, *sources, *(outer[-1:] if is_namespace else [])]


def _import_place(module: str, file: Path) -> ImportPlace:
    above, *others = import_roots(file)
    is_package = (file.parent / "__init__.py").exists()
    text = file.read_text(encoding="utf-8", errors="replace")
    roots = [*others, *([above] if is_package else [])]
    same_name = file.parent / f"{module.partition('.')[0]}.py"
    is_shadowed = not is_package and same_name.exists()
    return ImportPlace.of(module, file, text, roots, is_shadowed=is_shadowed)


def _named_after(backend: str, test: Path, stem: str) -> bool:
    """Whether tests beside it, for the same kernel, are: then tests of other names are not run."""
    for path in test.parent.glob("*test*.py"):
        text = path.read_text(encoding="utf-8", errors="replace") if path != test else ""
        if stem in text and re.search(rf"def test_\w*{backend}", text):
            return True
    return False


def _without_gpu(backend: Backend, kernel: Path, command: Sequence[str]) -> str:
    """What a command needs without a GPU, where it lacks that; empty where it lacks nothing."""
    if not backend.without_gpu or {*backend.without_gpu} <= {*command}:
        return ""
    options = shlex.join(backend.without_gpu)
    return (
        f"no GPU is visible, and `pytest {options}` alone runs such kernels without one "
        f"(docs/tile_cpu.md): tile-agent capture --kernel {shlex.quote(str(kernel))} -- python -m "
        f"pytest {options} TESTS"
    )


def _nothing(kernel: Path, seen: Capture) -> str:
    if seen.tests and (skipped := seen.tests.all_of_them):
        why = " ".join(seen.tests.why.split())[:MOST_SHOWN] or "no reason"
        return (
            f"{skipped}, the first for: {why}; run them where they are not, or others that launch "
            f"a kernel of {kernel}"
        )
    if seen.calls:
        return f"no call can be written down: {'; '.join(unwritable(seen))}"
    if seen.faults:
        return f"no call could be described: {'; '.join(seen.faults)}"
    if seen.operators:
        return f"{_unrecorded(seen)}: call a function of {kernel} that calls it, or its object"
    if seen.as_script:
        return (
            f"{kernel} launches {', '.join(seen.outside)} in no function of it that was seen to be "
            "called: launch in a function that it defines"
        )
    if seen.outside:
        return (
            f"{', '.join(seen.outside)} of {kernel} was launched outside of the file, by nothing "
            "whose calls are recorded: those are functions of a module that imports the kernel at "
            "its top. Name tests that reach it with --tests, and a committed script that times it "
            "with --bench"
        )
    return (
        f"the command made no call that launches a kernel of {kernel}: run one that does, "
        "in this environment's Python (not with -I, -E or -S)"
    )


def _notes(seen: Capture) -> list[str]:
    notes = [f"calls were not described: {fault}" for fault in seen.faults]
    if seen.left_out:
        notes.append(f"{seen.left_out} calls were counted only: of too many kinds, or in a graph")
    if others := passed_over(seen):
        notes.append(f"{', '.join(others)}: calls that launch kernels of the file are left out")
    if seen.operators:
        notes.append(f"there are others: {_unrecorded(seen)}")
    if seen.outside:
        place = "calls that were seen" if seen.as_script else "the file"
        notes.append(f"{', '.join(seen.outside)} was also launched by code outside of {place}")
    if seen.imported_s:
        notes.append(
            f"the file launches kernels whenever it is imported, which takes {seen.imported_s:.1f} "
            's in each process of the tests: put that under `if __name__ == "__main__":`'
        )
    return notes


def _unrecorded(seen: Capture) -> str:
    named = [f"`{name}`" for name in seen.operators]
    if len(named) == 1:
        return f"{named[0]} is a torch custom op, whose calls are not recorded"
    return f"{', '.join(named)} are torch custom ops, whose calls are not recorded"
