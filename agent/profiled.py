"""Which kernels of a command of the user's are worth it: their share of its time on the GPU.

What each takes is told by torch's profiler in the command's own processes, and how near that is to
the least that its bytes or its products need by what its launches were given.
"""

from __future__ import annotations

import math
import os
import shlex
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from libcst import ParserSyntaxError

from agent import environment as machine
from agent.analysis.triton.wrapped import decorated
from agent.backends import BACKENDS
from agent.errors import CommandFailed, NothingCaptured, UsageError
from agent.evidence.model import TensorArgument, TimedWork
from agent.evidence.peaks import Peaks, peaks_of
from agent.evidence.roofline import position
from agent.harness.diagnostician import multiplying
from agent.harness.processes.interpreter import check_triton_of
from agent.harness.processes.recorded_command import (
    LAUNCHES,
    how_it_ended,
    other_python,
    run_recorded,
)
from agent.redaction import redact
from agent.repository import Repository
from agent.syntax.source import Source

MANGLED = "_K"
"""What cuda.tile puts between the name of a kernel and what it was compiled for."""
WITHOUT_GPU = (
    " where no GPU is visible, so that what asks for one fails (Triton is interpreted here, and "
    "cuTile runs under `pytest --tile-cpu`)"
)


@dataclass(frozen=True)
class KernelShare:
    """What one kernel takes of a command."""

    file: str
    """From the root of the repository where it lies there, else its whole path."""
    kernel: str
    own: bool
    """Whether it is the user's: of the repository, and not installed into it."""
    launches: int
    total_ms: float
    share: float
    """Of the time of all processes, from 0 to 1."""
    least_ms: float | None
    """What its bytes or its products need on this GPU; None where that is not known."""

    @property
    def of_the_roof(self) -> float | None:
        """The least over what it takes."""
        return self.least_ms / self.total_ms if self.least_ms and self.total_ms else None

    @property
    def whole_if_halved(self) -> float:
        """How many times as fast the whole becomes where this takes half the time (Amdahl)."""
        return 1 / (1 - self.share / 2)


@dataclass(frozen=True)
class CommandProfile:
    """What a command spends its time on."""

    command: str
    """As it may be shown: without secrets."""
    clock: str
    """What the times are."""
    processes: int
    total_ms: float
    """Of all kernels, copies and fills; without a GPU of all launches."""
    kernels: tuple[KernelShare, ...]
    """Written in Triton or cuTile, the most expensive first."""
    others: tuple[tuple[str, float], ...]
    """What else the GPU did: name and share, the largest first."""
    notes: tuple[str, ...]
    root: Path
    """What the user's own files are named from."""
    uncaptured: Mapping[str, str]
    """Of the user's own files those of whose calls no tests can be made, and why."""
    stopped_after_s: float | None = None
    """When the command was ended, as it was asked for."""

    @property
    def files(self) -> Mapping[str, float]:
        """The user's own files with kernels, and the share of each; the largest first."""
        found: dict[str, float] = {}
        for kernel in self.kernels:
            if kernel.own:
                found[kernel.file] = found.get(kernel.file, 0.0) + kernel.share
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def profile_command(
    command: Sequence[str],
    folder: Path,
    stop_after_s: float | None = None,
    when_interrupted: Callable[[], None] | None = None,
) -> CommandProfile:
    """Run a command, and rank the kernels that it launches.

    Args:
        command: a program and its arguments; without a GPU Triton interprets in it.
        folder: in whose repository the user's own files are.
        stop_after_s: when to end the command, and be content with what it launched until then.
        when_interrupted: has the first interruption do so, too; tells the user.

    Raises:
        UsageError: there is no such program, or its Triton is too old.
        CommandFailed: it ended with an error, and launched nothing.
        NothingCaptured: it launched no kernel of Triton's or cuTile's.
    """
    check_triton_of(command)
    gpu = machine.probe().gpu
    interpreting = BACKENDS["triton"].worker_environment(machine.probe())
    root = _root_of(folder)
    variables = interpreting if gpu is None else {}
    end = run_recorded(
        command,
        LAUNCHES,
        {},
        variables,
        stop_after_s,
        also_on_path=(root, root / "src"),
        when_interrupted=when_interrupted,
    )
    shown = redact(shlex.join(command), os.environ)
    told = [messages[-1] for messages in end.records if messages]
    launched = any(message["launches"] for message in told)
    failed = f"the command failed ({how_it_ended(end.code)})" if end.code else ""
    if end.stopped_s is not None:
        how = "interrupted" if end.interrupted else "ended"
        failed = f"the command was {how} after {end.stopped_s:.0f} s"
        if not launched:
            raise NothingCaptured(
                f"{failed}, with no kernel launched, or no time to tell of it: give it longer"
            )
    if failed and not launched:
        without = "" if gpu else WITHOUT_GPU
        raise CommandFailed(f"{failed}{without}: mend it: {shown}{other_python(command)}")
    if not launched:
        raise NothingCaptured(
            "the command launched no kernel of Triton's or cuTile's: run one that does, "
            "in this environment's Python (not with -I, -E or -S)"
        )
    found = profile_of(told, shown, root, peaks_of(gpu.name) if gpu else None)
    if failed:  # as a test does that is off for want of a GPU
        notes = (*found.notes, f"{failed}: what it launched until then is ranked")
        return replace(found, notes=notes, stopped_after_s=stop_after_s if end.stopped_s else None)
    return found


def profile_of(
    told: Sequence[Mapping[str, Any]], command: str, root: Path, peaks: Peaks | None
) -> CommandProfile:
    """What processes told, put together.

    Args:
        told: the last message of each (`tile_agent_pytest.profiling.process_profile`).
        command: as it may be shown.
        root: of the user's files.
        peaks: of the GPU, where they are known.
    """
    on_gpu = any(message["on_gpu"] for message in told)
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for message in told:
        for kind in message["launches"]:
            found.setdefault((kind["file"], kind["kernel"]), []).append(kind)
    by_symbol = _gpu_times(told) if on_gpu else {}
    users = _users(found)
    taken = {
        key: sum(_of_symbol(by_symbol, symbol, users[symbol], key) for symbol in _symbols(kinds))
        if on_gpu
        else sum(kind["wall_ms"] for kind in kinds)
        for key, kinds in found.items()
    }
    total_ms = sum(by_symbol.values()) if on_gpu else sum(taken.values())
    kernels = [
        KernelShare(
            file=_shown(file, root),
            kernel=kernel,
            own=_is_own(Path(file), root),
            launches=sum(kind["count"] for kind in kinds),
            total_ms=taken[file, kernel],
            share=taken[file, kernel] / total_ms if total_ms else 0.0,
            least_ms=_least_ms(file, kernel, kinds, peaks),
        )
        for (file, kernel), kinds in found.items()
    ]
    others = {name: ms / total_ms for name, ms in by_symbol.items() if name not in users}
    shared = sorted(symbol for symbol, keys in users.items() if len(keys) > 1 and on_gpu)
    return CommandProfile(
        command,
        "time on the GPU, by torch's profiler"
        if on_gpu
        else "wall time of Triton's interpreter on the CPU: it ranks nothing for a GPU",
        len(told),
        total_ms,
        tuple(sorted(kernels, key=lambda kernel: -kernel.total_ms)),
        tuple(sorted(others.items(), key=lambda item: -item[1])),
        (
            *(
                f"{len(users[symbol])} files have a kernel {symbol}: its time is divided by the "
                "number of launches"
                for symbol in shared
            ),
            *(
                ["the command profiles itself: what the GPU did meanwhile is not counted"]
                if any(message["gave_way"] for message in told)
                else []
            ),
        ),
        root,
        {
            kernel.file: why
            for kernel in kernels
            if kernel.own and (why := _uncaptured(told, root / kernel.file))
        },
    )


def _uncaptured(told: Iterable[Mapping[str, Any]], file: Path) -> str:
    """Why `capture` makes no tests of a file's calls; empty where it does."""
    launching = [m for m in told if any(kind["file"] == str(file) for kind in m["launches"])]
    if any(str(file) in message["callable"] for message in launching):
        return ""
    if all(message["main"] == str(file) for message in launching):
        return (
            "is itself what Python runs, and launches in no function that a test can call: put the "
            "launch in one"
        )
    return (
        "is launched by no function of its project that can be called: name a test that times "
        "it, with --tests"
    )


_Key = tuple[str, str]
"""A file and a kernel of it."""


def _symbols(kinds: Iterable[Mapping[str, Any]]) -> set[str]:
    return {kind["symbol"] for kind in kinds}


def _users(found: Mapping[_Key, Sequence[Mapping[str, Any]]]) -> dict[str, dict[_Key, int]]:
    """What the driver calls a kernel -> the kernels that are called so, and their launches."""
    users: dict[str, dict[_Key, int]] = {}
    for key, kinds in found.items():
        for kind in kinds:
            counts = users.setdefault(kind["symbol"], {})
            counts[key] = counts.get(key, 0) + kind["count"]
    return users


def _gpu_times(told: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """What the driver calls it, without what cuda.tile adds -> ms."""
    times: dict[str, float] = {}
    for message in told:
        symbols = _symbols(message["launches"])
        for name, time in message["gpu"].items():
            plain = name.rpartition(MANGLED)[0]
            symbol = plain if name not in symbols and plain in symbols else name
            times[symbol] = times.get(symbol, 0.0) + time["total_ms"]
    return times


def _of_symbol(
    times: Mapping[str, float], symbol: str, users: Mapping[_Key, int], key: _Key
) -> float:
    return times.get(symbol, 0.0) * users[key] / sum(users.values())


def _least_ms(
    file: str, kernel: str, kinds: Iterable[Mapping[str, Any]], peaks: Peaks | None
) -> float | None:
    """What all launches of a kernel need at least; None where one is not known."""
    if peaks is None:
        return None
    products = _multiplying(file)
    least_ms = 0.0
    for kind in kinds:
        tensors = tuple(
            TensorArgument("", dtype, tuple(shape), size) for dtype, shape, size in kind["tensors"]
        )
        at = position(TimedWork("", "", ((kernel, ()),), tensors), math.inf, peaks, products)
        if at is None or (kernel in products and not at.compute_ms):
            return None
        least_ms += kind["count"] * max(at.memory_ms, at.compute_ms)
    return least_ms


@cache
def _multiplying(file: str) -> frozenset[str]:
    """Names of the kernels of a file that ask for matrix products; none where it cannot be read."""
    try:
        return multiplying(decorated(Source(Path(file).read_text(encoding="utf-8"), file)))
    except (OSError, ValueError, ParserSyntaxError):
        return frozenset()


def _root_of(folder: Path) -> Path:
    """Of the repository, or the folder where it lies in none."""
    try:
        return Repository.open(folder).root
    except UsageError:
        return folder.resolve()


def _is_own(file: Path, root: Path) -> bool:
    installed = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")]
    return file.is_relative_to(root) and not (
        any(file.is_relative_to(place) for place in installed) or "site-packages" in file.parts
    )


def _shown(file: str, root: Path) -> str:
    path = Path(file)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else file
