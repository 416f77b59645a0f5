"""Calls that the tests make of the kernel's file, kept so that they can be made in other shapes.

The user's tests choose the shapes they look at. What a candidate loses at others (a mask at the
end, a stride that is taken for granted, an address that has to be aligned) shows when the same
function gets the same arguments with a size cut, with rows further apart, or one element further
on. Values are taken from the test's own tensors, so that indices, lengths and flags stay valid.

Each tensor is laid into a buffer of its own between guards, whose bytes change from call to call:
who reads them differs from itself, and who writes them is told.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tile_agent_pytest import since_fork
from tile_agent_pytest.capture.elsewhere import held_kernels
from tile_agent_pytest.compiled_ahead_cutile import compile_calls_first
from tile_agent_pytest.device_functions import device_functions
from tile_agent_pytest.examining.arrays import as_array, as_tensor, library_of
from tile_agent_pytest.examining.tensors import is_tensor, torch, within

MOST_CALLS = 8
MOST_ELEMENTS = 1 << 22
"""Of the tensors of a call that is kept."""
GUARD = 1024
"""Elements on either side of a tensor; a multiple of what any address has to be aligned to."""
FILLS = (0xFF, 0x3F)
"""Bytes that nothing was written to: NaN in every floating-point type, and a number near one."""


@dataclass(frozen=True)
class ArgumentLayout:
    """How the arguments of a call differ from those that a test gave."""

    sizes: tuple[tuple[int, int], ...] = ()
    """Old size and new one, which is smaller; also of integers among the arguments."""
    pitch: int = 0
    """Elements between the rows of tensors of two and more dimensions."""
    offset: int = 0
    """Elements between an aligned address and the first element."""
    spread: int = 1
    """Elements from one neighbour to the next in the last of two and more dimensions."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ArgumentLayout:
        """As a message tells it."""
        sizes = tuple((old, new) for old, new in told["sizes"])
        return cls(sizes, told["pitch"], told["offset"], told["spread"])


@dataclass(frozen=True)
class RecordedCall:
    """A function of the kernel's file with the arguments that a test gave it."""

    nodeid: str
    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def tensors(self) -> dict[str, Any]:
        """Path -> tensor, of the arguments."""
        return within(self.arguments, "") | within(dict(self.keywords), "")

    def described(self) -> dict[str, Any]:
        """What the parent chooses layouts by."""
        shapes = {path: [*tensor.shape] for path, tensor in self.tensors().items()}
        return {"nodeid": self.nodeid, "name": self.name, "shapes": shapes}

    def laid_out(self, layout: ArgumentLayout) -> Callable[[], Any]:
        """The same call with the arguments in another layout."""
        guards = _Guards()
        function = self.function
        arguments = _mapped(self.arguments, lambda value: _given(value, layout, guards))
        keywords = _mapped(dict(self.keywords), lambda value: _given(value, layout, guards))

        def call() -> Any:
            guards.turn()
            return function(*arguments, **keywords)

        return call


class CallRecorder:
    """Keeps the largest call of each kind that is made of functions of a file, and of those modules
    that hold its kernels to launch them.

    Args:
        file_name: of the kernel's file, without its folder.
    """

    def __init__(self, file_name: str) -> None:
        self._file_name = file_name
        self._inside = False
        self._kept: dict[Any, tuple[int, RecordedCall]] = {}
        """Kind -> how many elements its call has."""

    @property
    def calls(self) -> list[RecordedCall]:
        """What is kept, in the order of the kinds' first calls."""
        return [call for _, call in self._kept.values()]

    def laid_out(self, told: Mapping[str, Any]) -> tuple[RecordedCall, Callable[[], Any]]:
        """A call that is kept, and the same in the layout that a message tells."""
        call = self.calls[told["call"]]
        return call, call.laid_out(ArgumentLayout.of(told))

    def _make(self, told: Mapping[str, Any]) -> object:
        return self.laid_out(told)[1]()

    def compile_first(self, told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Compile what some calls launch in layouts, side by side: one after the other, each waits
        for its compiler."""
        pid = os.getpid()
        count = compile_calls_first([functools.partial(self._make, each) for each in told])
        if os.getpid() != pid:  # a child that the code of a call forked and let escape
            os._exit(1)
        return {"event": "compiled", "count": count}

    @contextlib.contextmanager
    def recording(self, running: Callable[[], str]) -> Iterator[None]:
        """Look at calls from everywhere below the working directory while the block lasts.

        Args:
            running: gives the node id of the test that runs.
        """
        with contextlib.ExitStack() as stack:
            for owner, name, called in list(self._reachable()):
                watched = self._watched(getattr(owner, name), called, running)
                stack.enter_context(mock.patch.object(owner, name, watched))
            yield

    def _reachable(self) -> Iterator[tuple[Any, str, str]]:
        """Where a test may find functions of the file: owner and attribute, and what to call it."""
        modules = _modules_below(str(Path.cwd()) + os.sep)
        own = since_fork.loaded_from(self._file_name)
        launching = [each for each in modules if own and held_kernels(each, each.__file__, own)]
        names = {module.__name__ for module in (*own, *launching)}
        of_device = device_functions(modules)
        for module in modules:
            for name, value in list(vars(module).items()):
                if isinstance(value, types.FunctionType) and value.__module__ in names:
                    if value not in of_device:
                        yield module, name, value.__name__
                elif _is_operator(value) and value.__module__ in names:
                    yield value, "apply", f"{value.__name__}.apply"

    def _watched(
        self, function: Callable[..., Any], name: str, running: Callable[[], str]
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        def recorded(*arguments: Any, **keywords: Any) -> Any:
            if self._inside:
                return function(*arguments, **keywords)
            self._inside = True  # also for what a tensor's own class does when it is looked at
            try:
                self._keep(running(), name, function, arguments, keywords)
                return function(*arguments, **keywords)
            finally:
                self._inside = False

        return recorded

    def _keep(
        self,
        nodeid: str,
        name: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> None:
        tensors = within(arguments, "") | within(keywords, "")
        elements = sum(tensor.numel() for tensor in tensors.values())
        if not 0 < elements <= MOST_ELEMENTS:
            return
        kind = (name, *((path, tensor.dtype, tensor.ndim) for path, tensor in tensors.items()))
        known, _ = self._kept.get(kind, (0, None))
        if elements <= known or (not known and len(self._kept) == MOST_CALLS):
            return
        with contextlib.suppress(_NotPlain):
            kept = _mapped(arguments, _copied), _mapped(keywords, _copied)
            self._kept[kind] = elements, RecordedCall(nodeid, name, function, *kept)


def _modules_below(folder: str) -> list[Any]:
    """Those whose file is below it."""
    return [
        module
        for module in list(sys.modules.values())
        if isinstance(module, types.ModuleType)
        and isinstance(file := getattr(module, "__file__", None), str)
        and file.startswith(folder)
    ]


def _is_operator(value: Any) -> bool:
    """Whether it is an operator with a gradient."""
    return isinstance(value, type) and issubclass(value, torch().autograd.Function)


class _NotPlain(Exception):
    """An argument that may hold anything."""


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same nest of tuples, lists and dicts with other leaves."""
    if isinstance(value, dict):
        return {key: _mapped(part, change) for key, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_mapped(part, change) for part in value)
    return change(value)


@dataclass(frozen=True)
class _Array:
    """An argument that is no tensor of torch, as one that holds the same."""

    library: str
    tensor: Any


def _copied(value: Any) -> Any:
    if is_tensor(value):
        return value.detach().clone()
    if (library := library_of(value)) and (tensor := as_tensor(value)) is not None:
        return _Array(library, tensor.clone())
    plain = (int, float, str, type(None), torch().dtype, torch().device, torch().Size)
    if isinstance(value, plain):
        return value
    raise _NotPlain


def _given(value: Any, layout: ArgumentLayout, guards: _Guards) -> Any:
    if isinstance(value, _Array):
        return as_array(_changed(value.tensor, layout, guards), value.library)
    return _changed(value, layout, guards)


def _changed(value: Any, layout: ArgumentLayout, guards: _Guards) -> Any:
    sizes = dict(layout.sizes)
    if is_tensor(value):
        return guards.around(_cut(value, sizes), layout, value.numel())
    if isinstance(value, torch().Size):
        return torch().Size(sizes.get(n, n) for n in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return sizes.get(value, value)
    return value


def _cut(tensor: Any, sizes: Mapping[int, int]) -> Any:
    for dimension, size in enumerate(tensor.shape):
        tensor = tensor.narrow(dimension, 0, sizes.get(size, size))
    return tensor


class _Guards:
    """What lies around the tensors of a call. It has no `__dict__`: it is no input of the call."""

    __slots__ = ("_regions", "_turns")

    def __init__(self) -> None:
        self._regions: list[Any] = []
        self._turns = 0

    def around(self, tensor: Any, layout: ArgumentLayout, given: int) -> Any:
        """The tensor's elements in a buffer of their own, its dimensions in the same order.

        The guard behind them reaches as far as what the test gave did: an index that was valid
        there and is not in fewer rows reads the guard, and nobody else's memory.

        Args:
            tensor: what is left of what a test gave.
            layout: how it is to be laid out.
            given: the elements that the test gave.
        """
        if not tensor.numel() or tensor.is_complex() or tensor.dtype == torch().bool:
            return tensor.clone()
        order = sorted(range(tensor.ndim), key=lambda d: -tensor.stride(d))
        plain = tensor.permute(order)
        columns = plain.shape[-1] if tensor.ndim else 1
        rows = plain.numel() // columns
        offset, is_matrix = layout.offset, tensor.ndim > 1
        spread = layout.spread if is_matrix else 1
        used = columns * spread
        wide = used + (layout.pitch if is_matrix else 0)
        gone = -(-max(given - plain.numel(), 0) // columns) * wide
        buffer = torch().empty(
            2 * GUARD + offset + rows * wide + gone, dtype=tensor.dtype, device=tensor.device
        )
        body = buffer[GUARD + offset : GUARD + offset + rows * wide].view(rows, wide)
        inner = body[:, :used]
        strides: list[int] = []
        step = wide
        for size in reversed(plain.shape[:-1]):
            strides.insert(0, step)
            step *= size
        if tensor.ndim:
            laid = inner.as_strided(plain.shape, (*strides, spread), GUARD + offset)
        else:
            laid = inner.as_strided((), (), GUARD + offset)
        laid.copy_(plain)
        self._regions += [buffer[: GUARD + offset], buffer[GUARD + offset + rows * wide :]]
        if wide > used:
            self._regions.append(body[:, used:])
        if spread > 1:
            self._regions.append(inner.unflatten(1, (columns, spread))[..., 1:])
        return laid.permute([order.index(d) for d in range(tensor.ndim)])

    def turn(self) -> None:
        """Other bytes around the tensors.

        Raises:
            RuntimeError: somebody wrote there.
        """
        before, now = self._turns % 2, (self._turns + 1) % 2
        for region in self._regions:
            if self._turns and not bool((_octets(region) == FILLS[before]).all()):
                raise RuntimeError("something was written outside of the arguments")
        for region in self._regions:
            _octets(region).fill_(FILLS[now])
        self._turns += 1


def _octets(region: Any) -> Any:
    """The bytes of a guard, which is one-dimensional or has rows next to each other's elements."""
    return region.view(torch().uint8)
