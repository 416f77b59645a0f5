"""What kernels of an origin and of its port do in a call: the memory and the types of both.

Memory that a call is not given, as a buffer of a module, is the same for the origin and the port.
It is put back to what it was before the port runs, compared, and left as the origin leaves it.

Results may agree because inputs are kind: a product in float16 is one in float32 as long as it is
small. So each kind of operation is asked for the narrowest type that it was done in.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from tile_agent_pytest.ported_values import Copies, ResultComparison

INTERPRETER = "triton.runtime.interpreter"
OF_TRITON = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
HALVES = ("float16", "bfloat16")
BITS = {
    "float64": 64, "float32": 32, "float16": 16, "bfloat16": 16,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "int1": 1,
    "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "bool_": 1,
}  # fmt: skip
OF_BUILDER = {
    "create_fadd": "adds", "create_fsub": "adds", "create_fmul": "multiplies",
    "create_fdiv": "divides", "create_precise_divf": "divides", "create_add": "adds",
    "create_sub": "adds", "create_mul": "multiplies",
}  # fmt: skip
OF_TILES = {"add": "adds", "sub": "adds", "mul": "multiplies", "truediv": "divides"}
REDUCTIONS = {"ReduceOps": ("sum", "generic_reduce"), "ScanOps": ("cumsum", "generic_scan")}


class Done:
    """What the kernels of one side did in a call.

    Attributes:
        narrowest: operation and whether it is of floats -> its narrowest type.
        memory: address -> storage and what it held before, of what was launched with.
        launches: how many there were.
    """

    def __init__(self) -> None:
        self.narrowest: dict[tuple[str, bool], str] = {}
        self.memory: dict[int, tuple[Any, Any]] = {}
        self.launches = 0
        self._summed: dict[int, set[str]] = defaultdict(set)
        self._now: set[str] = set()

    def operation(self, name: str, kind: str) -> None:
        """An operation was done in a type."""
        if kind in BITS:
            key = (name, kind in OF_TRITON.values())
            if BITS[kind] < BITS.get(self.narrowest.get(key, ""), 99):
                self.narrowest[key] = kind

    def reduction(self, kind: str) -> None:
        """Something was summed up in a type."""
        if kind in HALVES:
            self._now.add(kind)

    @contextmanager
    def launch(self, arguments: Any) -> Iterator[None]:
        """A kernel runs with these: what it computes in, its arguments and what it gives share."""
        import torch

        self.launches += 1
        tensors = [each for each in _flat(arguments) if isinstance(each, torch.Tensor)]
        storages = [tensor.untyped_storage() for tensor in tensors]
        for storage in storages:
            if storage.data_ptr() not in self.memory and storage.nbytes():
                self.memory[storage.data_ptr()] = (storage, storage.clone())
        self._now = set().union(*(self._summed[s.data_ptr()] for s in storages))
        yield
        for storage in storages:
            self._summed[storage.data_ptr()] |= self._now

    def is_written(self, tensor: Any) -> bool:
        """Whether a tensor's memory is not what it was before kernels had it."""
        import torch

        storage, before = self.memory.get(tensor.untyped_storage().data_ptr(), (None, None))
        if storage is None:
            return False
        now, then = (torch.empty(0, dtype=torch.uint8).set_(s) for s in (storage, before))
        return not torch.equal(now, then)

    def summed_in(self, tensor: Any) -> Any:
        """The half that decides what is near for a tensor, None where its own type does.

        The order of a sum is nobody's: in a half it shows, whatever type the sum is stored in.
        """
        import torch

        known = self._summed.get(tensor.untyped_storage().data_ptr())
        if known is None:  # no kernel had it: the host made it of what kernels gave
            known = set().union(*self._summed.values())
        if not known or tensor.dtype not in (torch.float32, torch.float64, torch.float16):
            return None
        return torch.bfloat16 if "bfloat16" in known else torch.float16


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _flat(value)
        else:
            yield getattr(value, "base", value)  # of a descriptor, or of a tensor seen otherwise


class Beyond:
    """Memory that kernels of the origin had, and the call was not given."""

    def __init__(self, origin: Done, copies: Copies) -> None:
        self._before = {
            address: found
            for address, found in origin.memory.items()
            if not copies.has_memory(address)
        }
        self._after = {address: storage.clone() for address, (storage, _) in self._before.items()}

    def put_back(self) -> None:
        """As it was before the origin ran."""
        for storage, before in self._before.values():
            storage.copy_(before)

    def compare(self, port: Done, tensors: Callable[[Any], Any], to: ResultComparison) -> None:
        """Compare what the port's kernels had of it too, and leave all as the origin left it."""
        import torch

        for address, (storage, before) in self._before.items():
            if address in port.memory:
                kind = tensors(address)
                ours, theirs, was = (
                    torch.empty(0, dtype=kind).set_(each, 0, (each.nbytes() // kind.itemsize,))
                    for each in (storage.clone(), self._after[address], before)
                )
                same = torch.equal(*(each.view(torch.uint8) for each in (theirs, was)))
                to.compare(ours, theirs, "memory that the call was not given", given=same)
            storage.copy_(self._after[address])


class KernelWatch:
    """Tells the `Done` of whichever side runs of what its kernels do."""

    def __init__(self) -> None:
        self.done: Done | None = None
        self.kinds: dict[int, Any] = {}
        self.elsewhere: dict[tuple[str, str], None] = {}
        """File and name of Triton's kernels that were launched while no side ran."""

    @contextmanager
    def watching(self, done: Done) -> Iterator[None]:
        """A side runs."""
        self.done = done
        try:
            yield
        finally:
            self.done = None

    @contextmanager
    def launch(self, arguments: Any) -> Iterator[None]:
        """A kernel of the side that runs is launched."""
        if self.done is None:
            yield
            return
        for each in _flat(arguments):
            if hasattr(each, "untyped_storage"):
                self.kinds[each.untyped_storage().data_ptr()] = each.dtype
        with self.done.launch(arguments):
            yield

    def of_interpreter(self) -> None:
        """Be told by Triton's interpreter, once it is there; a second time changes nothing."""
        interpreter: Any = sys.modules.get(INTERPRETER)
        if interpreter is None or hasattr(interpreter.GridExecutor.__call__, "is_watched"):
            return
        for method, operation in OF_BUILDER.items():
            self._tell(interpreter.InterpreterBuilder, method, self._operation(operation))
        for owner, methods in REDUCTIONS.items():
            for method in methods:
                self._tell(getattr(interpreter, owner), method, self._reduction)
        self._tell(interpreter.InterpreterBuilder, "create_atomic_rmw", self._atomic)
        original = interpreter.GridExecutor.__call__

        @wraps(original)
        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            if self.done is None:
                code = executor.fn.__code__
                self.elsewhere[code.co_filename, executor.fn.__name__] = None
            with self.launch([*args, *kwargs.values()]):
                return original(executor, *args, **kwargs)

        watched: Any = call
        watched.is_watched = True
        interpreter.GridExecutor.__call__ = watched

    def of_tiles(self) -> None:
        """Be told by the execution of tiles on the CPU."""
        from tile_agent_pytest.tile_cpu import elementwise

        original: Any = elementwise._compute

        @wraps(original)
        def compute(name: str, a: Any, b: Any, dtype: Any, *rest: Any) -> Any:
            if self.done is not None and name in OF_TILES:
                self.done.operation(OF_TILES[name], dtype.name)
            return original(name, a, b, dtype, *rest)

        module: Any = elementwise
        module._compute = compute

    def _tell(self, owner: Any, method: str, told: Callable[..., None]) -> None:
        original = getattr(owner, method, None)
        if original is None:
            return

        @wraps(original)
        def telling(*args: Any, **kwargs: Any) -> Any:
            if self.done is not None:
                told(self.done, *args)
            return original(*args, **kwargs)

        setattr(owner, method, telling)

    @staticmethod
    def _operation(name: str) -> Callable[..., None]:
        return lambda done, _, one, *__: done.operation(name, _named(one.dtype))

    @staticmethod
    def _reduction(done: Done, _: Any, given: Any) -> None:
        for each in given if isinstance(given, tuple) else (given,):
            done.reduction(_named(each.dtype))
            done.operation("adds", _named(each.dtype))

    @staticmethod
    def _atomic(done: Done, _: Any, __: Any, ___: Any, value: Any, *____: Any) -> None:
        done.reduction(_named(value.dtype))


def _named(dtype: Any) -> str:
    name = str(dtype.scalar.name)
    return OF_TRITON.get(name, name)


def narrower(port: Done, origin: Done) -> str | None:
    """In which operation the port computes in a narrower type than the origin ever does."""
    for key, ours in port.narrowest.items():
        theirs = origin.narrowest.get(key)
        index = not key[1] and BITS[ours] >= BITS["int32"]  # which the port computes its own way
        if theirs is not None and BITS[ours] < BITS[theirs] and not index:
            return f"{key[0]} in {ours}, where the origin {key[0]} in no less than {theirs}"
    return None
