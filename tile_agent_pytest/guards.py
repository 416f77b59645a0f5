"""Guard bands around what an interpreted Triton kernel is given, and launches that are repeated.

Triton's interpreter reads and writes whatever address a kernel computes: a load out of bounds
returns what lies there, a store ruins the heap of the test's process, and the test may pass. Here
each tensor lies in an allocation of its own with a band on either side, and every address is
looked at before it is used, so that nothing out of bounds is ever touched.

A launch that is repeated starts each time from the same memory: once more with ones, instead of
zeros, in the lanes that a load masks off without `other`, and once more with its programs in the
opposite order. A kernel whose results then differ may differ from itself on a GPU too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

BAND_BYTES = 1 << 16
"""On either side of a tensor. What is further away is told by the nearest tensor, too."""
_ALIGNMENT_BYTES = 64
_BETWEEN = frozenset(("contextlib", "functools", "tile_agent_pytest", "triton", "unittest"))
"""Packages whose functions stand between a kernel's line and the memory that it reads."""


class OutOfBounds(Exception):
    """A kernel loads or stores outside of its tensors; the message says where and how far."""


@dataclass
class Region:
    """The storage of one or more arguments, at its place between two bands."""

    names: list[str]
    description: str
    storage: Any
    first: int
    """Address of the user's storage."""
    size_bytes: int
    buffer: Any
    """uint8 tensor: band, storage, band."""
    begin: int = 0
    """Address of the copy."""
    written: bool = False

    @property
    def end(self) -> int:
        """The address behind the copy."""
        return self.begin + self.size_bytes

    @property
    def content(self) -> Any:
        """The bytes of the copy, as a tensor that shares them."""
        offset = self.begin - self.buffer.data_ptr()
        return self.buffer[offset : offset + self.size_bytes]

    def excess_bytes(self, low: int, high: int) -> int:
        """How far an access reaches out of it."""
        return max(self.begin - low, high - self.end, 0)


@dataclass
class GuardedLaunch:
    """One execution of a kernel over copies of its tensors."""

    kernel: str
    backwards: bool = False
    ones: bool = False
    """What a load without `other` gives for lanes that are masked off."""
    regions: list[Region] = field(default_factory=list)
    foreign: bool = False
    """The kernel makes pointers of integers, so that it may know tensors that we do not."""
    fault: OutOfBounds | None = None


class Guards:
    """Watches every launch of Triton's interpreter while it is entered.

    Args:
        repeat: run each launch two more times and note what differs.
    """

    def __init__(self, *, repeat: bool = False) -> None:
        self.notes: list[str] = []
        """Kernels that differ from themselves, each with an argument that shows it."""
        self._repeat = repeat
        self._suspended = False
        self._launch: GuardedLaunch | None = None
        self._stack = contextlib.ExitStack()
        self._interpreter: Any = None
        self._torch: Any = None

    def __enter__(self) -> Guards:
        """Take the place of what the interpreter calls. Raises ImportError without Triton."""
        self._interpreter = importlib.import_module("triton.runtime.interpreter")
        self._torch = importlib.import_module("torch")
        builder = self._interpreter.InterpreterBuilder
        replaced = {
            (self._interpreter.GridExecutor, "__call__"): self._called,
            (self._interpreter, "_interpreter"): lambda memory: _Memory(memory, self._check),
            (builder, "create_masked_load"): self._loaded,
            (builder, "create_int_to_ptr"): self._pointed,
            (builder, "set_grid_idx"): self._ordered,
        }
        for (owner, name), wrapper in replaced.items():
            new = wrapper(getattr(owner, name))
            self._stack.enter_context(mock.patch.object(owner, name, new))
        return self

    def __exit__(self, *_: object) -> None:
        """Put everything back."""
        self._stack.close()

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Leave launches alone for a while: what is timed has been checked elsewhere."""
        before, self._suspended = self._suspended, True
        try:
            yield
        finally:
            self._suspended = before

    # --- a launch -------------------------------------------------------------------------------

    def _called(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(executor: Any, *args: Any, **kwargs: Any) -> None:
            if self._suspended:
                original(executor, *args, **kwargs)
                return

            def run(launch: GuardedLaunch) -> GuardedLaunch:
                given = zip(executor.arg_names, args, strict=False)
                copies = [self._copied(launch, name, value) for name, value in given]
                named = {k: self._copied(launch, k, v) for k, v in kwargs.items()}
                with self._running(launch):
                    original(executor, *copies, *args[len(copies) :], **named)
                return launch

            launch = run(GuardedLaunch(executor.fn.__name__))
            if self._repeat:
                self._compare(launch, run)
            for region in launch.regions:
                if region.written:
                    self._bytes(region.storage).copy_(region.content)

        return call

    @contextlib.contextmanager
    def _running(self, launch: GuardedLaunch) -> Iterator[None]:
        self._launch = launch
        try:
            yield
        except Exception as problem:  # the interpreter wraps what a kernel raises in its own
            if launch.fault is not None:
                raise launch.fault from problem
            raise
        finally:
            self._launch = None

    def _compare(self, first: GuardedLaunch, run: Callable[[GuardedLaunch], GuardedLaunch]) -> None:
        """Note what runs that were made to differ do otherwise."""
        lanes = "what a load gives for lanes masked off without `other`"
        for cause, again in (
            (lanes, GuardedLaunch(first.kernel, ones=True)),
            ("the order in which its programs run", GuardedLaunch(first.kernel, backwards=True)),
        ):
            try:
                differs = _difference(first, run(again))
            except Exception as problem:
                differs = f"an error ({problem})"
            note = f"{first.kernel}: {differs} depends on {cause}"
            if differs and note not in self.notes:
                self.notes.append(note)

    # --- placing tensors --------------------------------------------------------------------------

    def _copied(self, launch: GuardedLaunch, name: str, value: Any) -> Any:
        """A copy of an argument whose tensors lie between bands."""
        if isinstance(value, tuple):
            copies = [self._copied(launch, name, element) for element in value]
            return type(value)(*copies) if hasattr(value, "_fields") else type(value)(copies)
        if type(value).__name__ == "TensorDescriptor":
            base = self._copied(launch, name, value.base)
            return dataclasses.replace(value, base=base)
        if not hasattr(value, "data_ptr"):
            return value
        tensor = self._interpreter._unwrap_tensor(value)
        region = self._region(launch, name, tensor)
        if not region.size_bytes:
            return value
        copy = tensor.new_empty(0, device="cpu")
        offset = (region.begin - region.buffer.data_ptr()) // tensor.element_size()
        place = offset + tensor.storage_offset()
        copy.set_(region.buffer.untyped_storage(), place, tensor.size(), tensor.stride())
        return self._interpreter._rewrap_tensor(copy, original_tensor=value)

    def _region(self, launch: GuardedLaunch, name: str, tensor: Any) -> Region:
        storage = tensor.untyped_storage()
        first, size_bytes = storage.data_ptr(), storage.nbytes()
        for region in launch.regions:
            if first and region.first == first:
                region.names += [name] if name not in region.names else []
                return region
        torch = self._torch
        whole = size_bytes + 2 * BAND_BYTES + _ALIGNMENT_BYTES
        shape = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        region = Region(
            names=[name],
            description=f"{shape}, {size_bytes} bytes",
            storage=storage,
            first=first,
            size_bytes=size_bytes,
            buffer=torch.empty(whole, dtype=torch.uint8),
        )
        launch.regions.append(region)
        if size_bytes:  # torch places nothing at 0, which is where the region is then
            start = region.buffer.data_ptr()
            region.begin = start + BAND_BYTES + (first - start) % _ALIGNMENT_BYTES
            region.content.copy_(self._bytes(storage))
        return region

    def _bytes(self, storage: Any) -> Any:
        empty = self._torch.empty(0, dtype=self._torch.uint8, device=storage.device)
        return empty.set_(storage)

    # --- what a kernel does -----------------------------------------------------------------------

    def _check(self, addresses: Any, mask: Any, element_bytes: int, *, writes: bool) -> None:
        launch = self._launch
        if launch is None:
            return
        used = addresses[mask]
        if not used.size:
            return
        low, high = int(used.min()), int(used.max()) + element_bytes
        for region in launch.regions:
            if region.begin <= low and high <= region.end:
                region.written |= writes
                return
        outside = []
        for address in {int(a) for a in used.flat}:
            reached = (address, address + element_bytes)
            excess = [(region.excess_bytes(*reached), region) for region in launch.regions]
            nearest, nearby = min(excess, key=lambda pair: pair[0], default=(sys.maxsize, None))
            if nearest == 0 and nearby is not None:
                nearby.written |= writes
            elif nearest < BAND_BYTES or not launch.foreign:
                outside.append((nearest, *reached, nearby))
        if outside:
            farthest = max(outside, key=lambda one: one[0])
            launch.fault = OutOfBounds(self._fault(launch, writes, *farthest))
            raise launch.fault

    def _fault(
        self,
        launch: GuardedLaunch,
        writes: bool,
        excess: int,
        low: int,
        _: int,
        region: Region | None,
    ) -> str:
        does = f"{launch.kernel} {'stores' if writes else 'loads'}"
        program = ", ".join(map(str, self._interpreter.interpreter_builder.grid_idx))
        where = f"program ({program}){_line()}"
        if region is None:
            return f"{does} at {low:#x} though it is given no tensor, in {where}"
        side = "before the beginning" if low < region.begin else "behind the end"
        return (
            f"{does} up to {excess} bytes {side} of {' = '.join(region.names)} "
            f"({region.description}) in {where}: mend its mask or its offsets"
        )

    def _loaded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(builder: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
            if other is None and self._launch is not None and self._launch.ones:
                kind = ptrs.get_element_ty()
                lanes = _ones(ptrs.data.shape, self._interpreter._get_np_dtype(kind))
                other = self._interpreter.TensorHandle(lanes, kind)
            return original(builder, ptrs, mask, other, *rest, **named)

        return load

    def _pointed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """An integer made a pointer: of a tensor that we moved, its new place."""

        def cast(builder: Any, value: Any, kind: Any) -> Any:
            handle = original(builder, value, kind)
            if self._launch is not None:
                self._launch.foreign = True
                moved = handle.data.copy()
                for region in self._launch.regions:
                    inside = (handle.data >= region.first) & (
                        handle.data < region.first + region.size_bytes
                    )
                    moved[inside] = handle.data[inside] - region.first + region.begin
                handle = self._interpreter.TensorHandle(moved, handle.dtype)
            return handle

        return cast

    def _ordered(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def place(builder: Any, *index: int) -> None:
            if self._launch is not None and self._launch.backwards:
                index = tuple(n - 1 - i for n, i in zip(builder.grid_dim, index, strict=True))
            original(builder, *index)

        return place


def _line() -> str:
    """Where the interpreted function stands, to be told; empty where it has no place."""
    frame = sys._getframe()
    while frame.f_back is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _BETWEEN:
            return f" at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class _Memory:
    """Triton's compiled memory operations, each address checked first."""

    def __init__(self, original: Any, check: Callable[..., None]) -> None:
        self._original = original
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def load(self, ptrs: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._check(ptrs, mask, other.itemsize, writes=False)
        return self._original.load(ptrs, mask, other, dtype)

    def store(self, ptrs: Any, value: Any, mask: Any) -> Any:
        self._check(ptrs, mask, value.itemsize, writes=True)
        return self._original.store(ptrs, value, mask)

    def atomic_rmw(self, operation: Any, ptrs: Any, value: Any, mask: Any, sem: Any) -> Any:
        self._check(ptrs, mask, value.itemsize, writes=True)
        return self._original.atomic_rmw(operation, ptrs, value, mask, sem)

    def atomic_cas(self, ptrs: Any, expected: Any, value: Any, sem: Any) -> Any:
        self._check(ptrs, ..., value.itemsize, writes=True)
        return self._original.atomic_cas(ptrs, expected, value, sem)


def _ones(shape: tuple[int, ...], dtype: Any) -> Any:
    """Every bit set: not a number in floating point, -1 as an integer."""
    numpy: Any = importlib.import_module("numpy")
    if dtype == numpy.bool_:
        return numpy.ones(shape, dtype)
    size_bytes = numpy.dtype(dtype).itemsize
    return numpy.full((*shape, size_bytes), 0xFF, numpy.uint8).view(dtype).reshape(shape)


def _difference(first: GuardedLaunch, second: GuardedLaunch) -> str:
    """The arguments in which two runs left other bytes."""
    pairs = zip(first.regions, second.regions, strict=True)
    return ", ".join(
        " = ".join(one.names)
        for one, other in pairs
        if (one.written or other.written) and not one.content.equal(other.content)
    )
