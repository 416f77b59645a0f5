"""Which kernels a fleet works on: files by patterns, or a list with arguments of their own."""

from __future__ import annotations

import shlex
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import UsageError
from agent.fleet.home import FleetOutcome, KernelStanding, branch_of
from agent.fleet.jobs import KernelJob
from agent.fleet.order import known_lengths, ordered
from agent.options import Request
from agent.preflight import preflight
from agent.repository import Repository, shown
from agent.runs import slug
from agent.settings import as_words
from agent.target import NoKernelError, find_target

_WILD = "*?["


@dataclass(frozen=True)
class ListedKernel:
    """A file that was asked for."""

    kernel: Path
    words: tuple[str, ...] = ()
    """Arguments of `tile-agent run` for it alone."""
    by_pattern: bool = False
    """A pattern finds files without kernels too, which nobody meant."""
    share: float = 0.0
    """Of the workload's time on the GPU, from 0 to 1."""


def by_patterns(
    patterns: Iterable[str], words: tuple[str, ...] = (), share: float = 0.0
) -> Iterator[ListedKernel]:
    """The Python files that patterns name, from the current folder.

    Raises:
        UsageError: one names none.
    """
    for pattern in patterns:
        if not any(letter in pattern for letter in _WILD):
            yield ListedKernel(Path(pattern), words, share=share)
            continue
        if Path(pattern).is_absolute():
            raise UsageError(f"--kernels {pattern}: give the pattern from the current folder on")
        found = sorted(p for p in Path().glob(pattern) if p.suffix == ".py" and p.is_file())
        if not found:
            raise UsageError(f"--kernels {pattern} names no Python file: quote it for the shell")
        yield from (ListedKernel(path, words, by_pattern=True, share=share) for path in found)


def by_file(path: Path) -> list[ListedKernel]:
    """The targets of a file.

    A TOML file has tables `[[target]]` with `kernel`, `share` where it is known, and options of
    `run`; any other file has a kernel a line, with options of `run` behind it. Lines with `#` in
    front are comments.

    Raises:
        UsageError: it cannot be read, or names no target.
    """
    try:
        text = path.read_text(encoding="utf-8")
        read = _tables(text) if path.suffix == ".toml" else _lines(text)
        found = [each for k, words, share in read for each in by_patterns([k], words, share)]
    except (OSError, ValueError) as problem:  # what TOML and shlex raise is a ValueError
        raise UsageError(f"--targets {path} cannot be read: {problem}") from None
    if not found:
        raise UsageError(f"--targets {path} names no target")
    return found


def _tables(text: str) -> Iterator[tuple[str, tuple[str, ...], float]]:
    targets = tomllib.loads(text).get("target", [])
    for target in targets if isinstance(targets, list) else []:
        if not isinstance(target, dict) or not isinstance(target.get("kernel"), str):
            raise ValueError("a [[target]] needs its kernel, a path")
        options: dict[str, Any] = {**target}
        kernel, share = options.pop("kernel"), options.pop("share", 0.0)
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(f"the share of {kernel} is {share}, not a number from 0 to 1")
        words = [as_words(f"--{k.replace('_', '-')}", v) for k, v in options.items()]
        yield kernel, tuple(word for each in words for word in each), float(share)


def _lines(text: str) -> Iterator[tuple[str, tuple[str, ...], float]]:
    for line in text.splitlines():
        kernel, *words = shlex.split(line, comments=True) or [""]
        if kernel:
            yield kernel, tuple(words), 0.0


# --- jobs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelRequest:
    """A kernel with all arguments that its run is called with, but for the branch."""

    request: Request
    words: tuple[str, ...]
    by_pattern: bool
    share: float = 0.0


def planned(
    repository: Repository, fleet_id: str, asked: Sequence[KernelRequest], gpus: int, python: str
) -> tuple[list[KernelJob], list[KernelStanding]]:
    """The jobs of a fleet, and how each kernel stands at its beginning.

    A kernel that no run can begin on is refused now, and the others go on.

    Args:
        repository: of all kernels.
        fleet_id: of the fleet.
        asked: the kernels. What patterns found and holds no kernel is left out. The jobs come in
            the order in which they are to begin.
        gpus: for each run.
        python: the interpreter of the tests; empty for that of each worker.
    """
    jobs, standings, shares = [], [], {}
    names = _names(repository, [each.request.kernel for each in asked])
    for each, name in zip(asked, names, strict=True):
        kernel = _shown(repository, each.request.kernel)
        try:
            backend = _backend(repository, each.request)
        except NoKernelError as problem:
            if not each.by_pattern:
                standings.append(KernelStanding(name, kernel, FleetOutcome.REFUSED, str(problem)))
            continue
        except UsageError as problem:
            standings.append(KernelStanding(name, kernel, FleetOutcome.REFUSED, str(problem)))
            continue
        branch = branch_of(fleet_id, name)
        folder = Path.cwd().resolve().relative_to(repository.root).as_posix()
        words = (*each.words, f"--branch={branch}")
        jobs.append(KernelJob(name, kernel, backend, branch, words, folder, python, gpus))
        standings.append(KernelStanding(name, kernel))
        shares[kernel] = each.share
    return ordered(jobs, shares, known_lengths(repository)), standings


def _backend(repository: Repository, request: Request) -> str:
    """The language of a kernel that a run can begin on.

    Raises:
        UsageError: none can.
    """
    found = preflight(request.kernel)
    if found.repository.root != repository.root:
        raise UsageError(f"{shown(request.kernel)} is in another repository")
    target = find_target(
        found.tree, found.kernel, request.tests, request.bench, needs_tests=not request.capture
    )
    return target.backend


def _names(repository: Repository, kernels: Sequence[Path]) -> list[str]:
    """A name for each kernel: the file's where that is the only one, else with its folders.

    Raises:
        UsageError: a kernel is named twice.
    """
    short = [slug(kernel) for kernel in kernels]
    whole = [
        slug(Path(_shown(repository, k).removesuffix(".py").replace("/", "-"))) for k in kernels
    ]
    times = Counter(short)
    names = [a if times[a] == 1 else b for a, b in zip(short, whole, strict=True)]
    for name, count in Counter(names).items():
        if count > 1:
            raise UsageError(f"{kernels[names.index(name)]} is named {count} times: name it once")
    return names


def _shown(repository: Repository, kernel: Path) -> str:
    real = kernel.resolve()
    inside = real.is_relative_to(repository.root)
    return real.relative_to(repository.root).as_posix() if inside else str(kernel)
