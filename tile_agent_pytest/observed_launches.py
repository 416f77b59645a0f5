"""What the tests launch the kernels of a file with: grid, sizes, tensors, options."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tile_agent_pytest.examining.arrays import as_tensor, library_of
from tile_agent_pytest.launch_functions import (
    Given,
    LaunchFunction,
    evaluated,
    kernel_name,
    wrapped,
)
from tile_agent_pytest.observed_tunings import TuningLog

Message = dict[str, Any]

LOOKS = 32
"""Launches of a kernel by a test that are looked at, before its first timing and from the begin of
each: what comes later repeats what is timed."""
MOST = 128
"""Different launches of all tests together."""
_ALIGNMENT = 16
"""Bytes: what Triton specializes a pointer to."""


class LaunchObserver:
    """Describes the first launches of each test, each different one once."""

    def __init__(self, file_name: str, tunings: TuningLog) -> None:
        """Take the name of the kernel's file, without its folder, and what tuners have done."""
        self._file_name = file_name
        self._tunings = tunings
        self._found: dict[str, Message] = {}
        self._looks: Counter[str] = Counter()
        """Kernel -> how many of its launches were looked at since the test or timing began."""
        self._timing: str | None = None
        """The one that the present test has begun and not ended."""
        self._begun: Counter[str] = Counter()
        """Name of a timing -> how often the present test has begun one."""

    @property
    def launches(self) -> list[Message]:
        """What was seen, in order."""
        return list(self._found.values())

    @contextlib.contextmanager
    def watching(self, test: str) -> Iterator[None]:
        """Look at the launches of a test while the block lasts."""
        self._looks.clear()
        self._begun.clear()
        with wrapped(partial(self._watched, test)):
            yield

    @contextlib.contextmanager
    def timing(self, config: str) -> Iterator[None]:
        """What is launched in the block is what the present test times under that name; a second
        one of the same is told from it as records are."""
        self._looks.clear()
        self._begun[config] += 1
        number, name = self._begun[config], "" if config == "forward" else config
        self._timing = config if number == 1 else f"{name} #{number}".strip()
        try:
            yield
        finally:
            self._timing = None

    def _watched(
        self, test: str, launcher: LaunchFunction, original: Callable[..., Any]
    ) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            if not self._tunings.is_tuning:
                with contextlib.suppress(Exception):  # the launch itself will say what is wrong
                    self._look(launcher, test, args, kwargs)
            return original(*args, **kwargs)

        return launch

    def _look(self, launcher: LaunchFunction, test: str, args: Any, kwargs: Any) -> None:
        function = launcher.function_of(*args, **kwargs)
        code = getattr(function, "__code__", None)
        if code is None or Path(code.co_filename).name != self._file_name:
            return
        name = kernel_name(function)
        if self._looks[name] >= LOOKS:
            return
        self._looks[name] += 1
        given = launcher.given_of(*args, **kwargs)
        seen = _described(name, given)
        known = self._found.get(repr(seen))
        if known is None:
            if len(self._found) >= MOST:
                return
            tuning = self._tunings.before(function, given.arguments)
            known = seen | {"test": test, "tuning": tuning, "timings": []}
            self._found[repr(seen)] = known
        timing = [test, self._timing]
        if self._timing is not None and timing not in known["timings"]:
            known["timings"].append(timing)


def _described(kernel: str, given: Given) -> Message:
    arguments = given.arguments.items()
    tensors = {n: as_tensor(v) if library_of(v) else v for n, v in arguments}
    return {
        "kernel": kernel,
        "grid": list(evaluated(given.grid, given.arguments)),
        "integers": _integers(given.arguments),
        "tensors": {n: _tensor(v) for n, v in tensors.items() if _is_tensor(v)},
        "options": _integers(given.options),
    }


def as_recorded(kernel: str, given: Given) -> Message | None:
    """What a recorded launch is given, as the parent is told it; None where that is not clear."""
    with contextlib.suppress(Exception):
        return _described(kernel, given)
    return None


def _integers(values: Any) -> dict[str, int]:
    return {name: int(value) for name, value in values.items() if isinstance(value, int)}


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage") and hasattr(value, "data_ptr")


def _tensor(value: Any) -> Message:
    return {
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": [int(n) for n in value.shape],
        "strides": [int(n) for n in value.stride()],
        "aligned": value.data_ptr() % _ALIGNMENT == 0,
    }
