"""Counts and times the outermost calls of a file's entry points that launch its kernels.

So are those of other modules that launch them by themselves; calls of the file inside count alone.

A line is written when a kind of call is seen for the first time, so that a process that dies loses
no more than its last counts. Counts and times follow from time to time, and at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

from tile_agent_pytest.capture.call_clock import CallClock, StartedClock, is_capturing
from tile_agent_pytest.capture.described import ArgumentFacts, describe, parameters_of
from tile_agent_pytest.capture.elsewhere import HeldKernels
from tile_agent_pytest.examining.tensors import torch

Message = dict[str, Any]

MOST_KINDS = 512
"""Kinds of calls that a process tells apart; further ones are only counted."""
MOST_ELSEWHERE = 256
"""Of these, from where on no more are told apart of modules that only may launch the kernels."""
MOST_OUTSIDE = 64
"""Launches by no call that is recorded, of which it is told by what they are."""
BETWEEN_TALLIES_S = 0.5


@dataclass(frozen=True)
class EntryPoint:
    """What of the file was called, or of a module that launches its kernels."""

    module: str
    name: str
    """As it is reached in the module: 'softmax', 'RMSNorm.apply'; a class: its instance."""
    signature: Callable[..., Any] | None = None
    """Has the names of the parameters, where the function itself has not."""
    bound: int = 0
    """Leading arguments that the caller does not give: `self`, `cls`."""
    owner: type | None = None
    """The class whose instances it is called on."""
    kernels: HeldKernels | None = None
    """What its module holds of the file; None for an entry point of the file itself."""

    @property
    def launching(self) -> str:
        """The module that launches, where it is another than the file's."""
        return self.module if self.kernels else ""


@dataclass
class OpenCall:
    """A call that has not returned."""

    key: str = ""
    """Of its kind; empty where the kinds are too many."""
    writable: bool = True
    """Whether a text can make its arguments; if not, what it calls is recorded instead."""
    has_tensors: bool = True
    """Whether it is given any. One that is not may be a benchmark or a test of the file's own: what
    it calls is recorded instead, where a text can make that, and its own launches count for it."""
    launching: str = ""
    """The module whose launches count, where it is another than the file's: calls of the file, or
    of a third one, inside of it count by themselves."""
    by_others: bool = False
    """A third module launched, which nobody watches: the call tells nothing of that."""
    launches: dict[str, None] = field(default_factory=dict)

    def may_hold(self, launching: str) -> bool:
        """Whether calls inside, of the file or of the module that launches, may be a part of it."""
        return self.writable and self.launching in ("", launching)

    def holds(self, launching: str) -> bool:
        """Whether they are, and nobody looks at them."""
        return self.may_hold(launching) and self.has_tensors


@dataclass
class CallTally:
    """How often a kind of call was made, and how long it took."""

    count: int = 0
    first_ms: float = 0.0
    """With what is compiled then."""
    later_ms: float = 0.0
    """All but the first, together."""
    backward_count: int = 0
    backward_first_ms: float = 0.0
    backward_later_ms: float = 0.0

    @property
    def calls(self) -> int:
        """Of both kinds."""
        return self.count + self.backward_count

    def add(self, backward: bool, elapsed_ms: float) -> None:
        """Count a call in."""
        before = "backward_" if backward else ""
        count = getattr(self, f"{before}count")
        setattr(self, f"{before}count", count + 1)
        name = f"{before}{'later' if count else 'first'}_ms"
        setattr(self, name, getattr(self, name) + elapsed_ms)


def _autocast() -> str:
    """The type that `torch.autocast` casts to where a call is made; empty outside of it."""
    for device in ("cuda", "cpu"):
        with contextlib.suppress(TypeError):  # before torch 2.4 they take no device
            if torch().is_autocast_enabled(device):
                return str(torch().get_autocast_dtype(device)).removeprefix("torch.")
    return ""


def _state_dtype(instance: Any) -> str:
    """The type of a layer's parameters; empty where there are none."""
    if isinstance(instance, torch().nn.Module):
        for parameter in instance.parameters():
            return str(parameter.dtype).removeprefix("torch.")
    return ""


def _is_being_imported(name: str, file: str) -> bool:
    """Whether a module is the one of a file, and its code is still running for the first time."""
    module = sys.modules.get(name)
    origin = getattr(module, "__file__", None) or ""
    spec = getattr(module, "__spec__", None)
    return getattr(spec, "_initializing", False) and os.path.realpath(origin) == file


class ProcessRecorder:
    """Of one process and its forks."""

    def __init__(self, kernel: str, folder: str) -> None:
        """Take the real path of the kernel's file, and a folder for the records."""
        self.kernel = kernel
        self._folder = Path(folder)
        self._clock = CallClock()
        self._here = threading.local()
        self._lock = threading.RLock()
        self.in_place: dict[Any, Any] = {}
        """Function of a module -> what watches it."""
        self._made: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()
        self._begin()
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """A process counts for itself; a fork has seen nothing yet."""
        self._lock = threading.RLock()
        self._clock = CallClock()
        self._tallies: dict[str, CallTally] = {}
        self._untold: set[str] = set()
        """Kinds that are being described, or could not be."""
        self._kernels: dict[str, dict[str, None]] = {}
        self._left_out = self._outside = self.launches = 0
        self._told_outside: set[tuple[str, str]] = set()
        self._told = monotonic()
        self._path = self._folder / f"{os.getpid()}-{os.urandom(4).hex()}.jsonl"

    @property
    def current(self) -> OpenCall | None:
        """The outermost call of this thread, while there is one."""
        return getattr(self._here, "call", None)

    def launched(self, name: str, by: str = "", operator: Callable[[], str] = str) -> None:
        """A kernel of the file is launched, by the code of a module.

        Args:
            name: of the kernel.
            by: of the module.
            operator: says what of the module PyTorch's dispatcher called for that; empty: nothing.
        """
        self.launches += 1
        call = self.current
        if call is not None and call.launching in ("", by):
            call.launches[name] = None
            return
        if call is not None:
            call.by_others = True
        elif _is_being_imported(by, self.kernel):
            return  # by its own last lines: a test that imports the file does that, too
        self._outside += 1
        if self._outside <= MOST_OUTSIDE and (told := (name, operator())) not in self._told_outside:
            self._told_outside.add(told)
            main = os.path.realpath(getattr(sys.modules.get("__main__"), "__file__", "") or "")
            self.write({"outside": name, "as_script": main == self.kernel, "operator": told[1]})

    def launched_when_imported(self, took_s: float) -> None:
        """A statement of the file, which whoever imports it executes, launches kernels."""
        self.write({"imported_s": took_s})

    def remembering(self, init: Callable[..., Any]) -> Callable[..., Any]:
        """A constructor whose arguments are kept with what it makes."""

        @functools.wraps(init)
        def remembered(instance: Any, *args: Any, **kwargs: Any) -> None:
            with contextlib.suppress(TypeError):  # one without weak references
                self._made.setdefault(instance, (args, kwargs))
            init(instance, *args, **kwargs)

        return remembered

    def watched(self, entry: EntryPoint, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function; each outermost call of it is looked at, and inner ones of such a call as
        no text can make: a function that is given a whole model."""

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            outer = self.current
            if outer is not None and outer.holds(entry.launching):
                return function(*args, **kwargs)
            call = self._here.call = OpenCall(launching=entry.launching)
            clock: StartedClock | None = None
            try:
                try:
                    self._tell(call, entry, function, args, kwargs)
                except Exception as problem:  # the command is to end as it would without us
                    self.write({"fault": f"{entry.name}: {type(problem).__name__}: {problem}"})
                if outer is not None and outer.may_hold(entry.launching) and not call.writable:
                    self._here.call = outer
                    return function(*args, **kwargs)
                clock = self._clock.start()
                return function(*args, **kwargs)
            finally:
                self._here.call = outer
                if clock is not None and call.launches:
                    self._count(call, clock, backward=False)

        return recorded

    @contextlib.contextmanager
    def in_backward(self, forward: OpenCall | None) -> Iterator[None]:
        """What is launched in the block counts for an earlier call."""
        outer = self.current
        if forward is None or (outer is not None and outer.holds(forward.launching)):
            yield
            return
        call = self._here.call = OpenCall(
            forward.key, forward.writable, forward.has_tensors, launching=forward.launching
        )
        clock = self._clock.start()
        try:
            yield
        finally:
            self._here.call = outer
            if call.launches:
                self._count(call, clock, backward=True)

    def _tell(
        self,
        call: OpenCall,
        entry: EntryPoint,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
    ) -> None:
        """Complete a call by what it is given; a kind that is new is written down, with what is in
        its tensors now."""
        given, facts = args[entry.bound :], ArgumentFacts()
        found: Message = {"module": entry.module, "name": entry.name}
        if entry.kernels:
            found["kernels_of"] = entry.kernels.file
            found["launching_file"] = entry.kernels.by
            found["held"] = [list(names) for names in entry.kernels.names]
        if entry.owner is not None:
            found["made_by"] = self._made_by(args[0], entry.owner, facts)
            found["state_dtype"] = _state_dtype(args[0])
        if autocast := _autocast():
            found["autocast"] = autocast
        found |= describe(given, kwargs, facts)
        call.writable = facts.writable and found.get("made_by", found) is not None
        call.has_tensors = facts.has_tensors or entry.owner is not None
        key = json.dumps(found, sort_keys=True)
        with self._lock:
            if key in self._tallies:
                call.key = key
                return
            most = MOST_ELSEWHERE if entry.kernels else MOST_KINDS
            if key in self._untold or len(self._tallies) >= most or is_capturing():
                return
            self._untold.add(key)
        signature = entry.signature or function
        names = parameters_of(signature, (None, *args))
        skipped = entry.bound or (1 if names[:1] == ["ctx"] else 0)
        facts.add_contents()
        self.write(
            {
                "call": key,
                **found,
                "parameters": names[skipped : skipped + len(given)],
                "clock": self._clock.meaning,
                "python": sys.executable,
                "versions": {"torch": torch().__version__},
            }
        )
        with self._lock:
            self._untold.discard(key)
            self._tallies[key] = CallTally()
        call.key = key

    def _made_by(self, instance: Any, owner: type, facts: ArgumentFacts) -> Message | None:
        """How to make such an instance; None where that is not known."""
        try:
            made = self._made.get(instance)
        except TypeError:  # it has no hash
            made = None
        return describe(*made, facts) if made and type(instance) is owner else None

    def _count(self, call: OpenCall, clock: StartedClock, *, backward: bool) -> None:
        with self._lock:
            if call.by_others:  # that is told already
                return
            if not call.key:
                self._left_out += 1
                return
            tally = self._tallies.setdefault(call.key, CallTally())
            self._kernels.setdefault(call.key, {}).update(call.launches)
            self._clock.stop(clock, lambda elapsed_ms: tally.add(backward, elapsed_ms))
            if monotonic() - self._told > BETWEEN_TALLIES_S or tally.calls <= 1:
                self.tally()

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):  # a GPU that cannot be asked any more
            self.tally()

    def tally(self) -> None:
        """Write how often and how long, of what has been seen up to now."""
        with self._lock:
            self._clock.settle()
            self._told = monotonic()
            counted = {key: tally for key, tally in self._tallies.items() if tally.calls}
            if not counted and not self._outside:
                return
            told = {
                key: vars(tally) | {"kernels": list(self._kernels[key])}
                for key, tally in counted.items()
            }
            self.write({"tally": told, "left_out": self._left_out, "outside_calls": self._outside})

    def write(self, message: Message) -> None:
        """Add a line to what is recorded of this process, which may outlive the folder."""
        with self._lock, contextlib.suppress(OSError):
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(message)}\n")
