"""What a call is given and gives: copied for a port, and compared with what its origin made of it.

Looked into are tuples, lists, dictionaries, modules of PyTorch and plain objects, which are those
whose attributes say all of them. Of the rest nothing is known: it is handed on as it is, and what a
call returns of it is told as not compared.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

NUMBERS = (bool, int, float, complex)


def fields(value: Any) -> dict[str, Any] | None:
    """The attributes of a plain object, and None of anything else."""
    import torch

    kind: Any = type(value)
    plain: Any = object
    defined = {name for each in kind.__mro__ for name, v in vars(each).items() if v is not None}
    slots = any(vars(each).get("__slots__") for each in kind.__mro__)
    if isinstance(value, type | ModuleType | FunctionType) or slots:
        return None
    attributes: dict[str, Any] | None = getattr(value, "__dict__", None)
    if isinstance(value, torch.nn.Module) or kind is SimpleNamespace:
        return attributes
    odd = not defined.isdisjoint(("__copy__", "__deepcopy__", "__call__"))
    made_otherwise = (kind.__reduce_ex__, kind.__reduce__) != (
        plain.__reduce_ex__,
        plain.__reduce__,
    )
    return None if _is_of_library(kind) or odd or made_otherwise else attributes


def _is_of_library(kind: Any) -> bool:
    return kind.__module__.partition(".")[0] in ("builtins", "torch", "triton", "numpy", "cuda")


def is_state(value: Any) -> bool:
    """Whether a global holds values alone, in something that a call may write to."""
    import torch

    held: list[Any] = []

    def only_values(each: Any) -> bool:
        if any(each is known for known in held):
            return True
        held.append(each)
        if isinstance(each, torch.Tensor):
            return type(each) in (torch.Tensor, torch.nn.Parameter)
        if isinstance(each, (*NUMBERS, str, type(None), torch.dtype, torch.device, torch.Size)):
            return True
        inside = _inside(each)
        return inside is not None and all(map(only_values, inside.values()))

    return (isinstance(value, torch.Tensor) or _inside(value) is not None) and only_values(value)


def _inside(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    return value if isinstance(value, dict) else fields(value)


class Copies:
    """Copies of values; tensors that share memory share the copy of it, and one object has one.

    An object of a class of the origin's becomes one of the port's class of that name: its methods
    launch the port's kernels.
    """

    def __init__(self, origin: ModuleType | None = None, port: ModuleType | None = None) -> None:
        self._storages: dict[int, tuple[Any, Any]] = {}
        self._made: dict[int, tuple[Any, Any]] = {}
        self._origin, self._port = origin, port

    def has_memory(self, address: int) -> bool:
        """Whether memory at an address was copied, so that the port writes to the copy."""
        return address in self._storages

    def of(self, value: Any) -> Any:
        """A copy of what can be copied; anything else is itself."""
        if id(value) not in self._made:
            made = self._of(value)
            self._made.setdefault(id(value), (value, made))
        return self._made[id(value)][1]

    def _of(self, value: Any) -> Any:
        import torch

        made: Any
        if isinstance(value, torch.Tensor):
            made = self._begun(value, self._tensor(value))
            vars(made).update({name: self.of(each) for name, each in vars(value).items()})
            return made
        if isinstance(value, torch.Generator):
            return value.clone_state()
        if isinstance(value, random.Random) or type(value).__module__.startswith("numpy"):
            return copy.deepcopy(value)
        if type(value) is tuple:
            return tuple(map(self.of, value))
        if isinstance(value, tuple) and hasattr(value, "_make"):
            return value._make(map(self.of, value))
        if type(value) is list:
            made = self._begun(value, [])
            made.extend(map(self.of, value))
            return made
        if isinstance(value, dict):
            made = self._begun(value, copy.copy(value))
            for key, each in value.items():
                made[key] = self.of(each)
            return made
        attributes = fields(value)
        if attributes is None:
            return value
        kind = self._class(type(value))
        made = self._begun(value, kind.__new__(kind))
        made.__dict__.update({name: self.of(each) for name, each in attributes.items()})
        return made

    def _begun(self, value: Any, made: Any) -> Any:
        self._made[id(value)] = (value, made)  # it may hold itself
        return made

    def _class(self, kind: Any) -> Any:
        name = kind.__name__
        if self._origin is None or vars(self._origin).get(name) != kind:
            return kind
        theirs = vars(self._port).get(name, kind)
        return theirs if isinstance(theirs, type) else kind

    def _tensor(self, tensor: Any) -> Any:
        import torch

        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._storages:
            self._storages[storage.data_ptr()] = (storage, storage.clone())
        copied = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        copied.set_(
            self._storages[storage.data_ptr()][1], tensor.storage_offset(), tensor.shape,
            tensor.stride(),
        )  # fmt: skip
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(copied, requires_grad=tensor.requires_grad)
        return copied.requires_grad_(tensor.requires_grad and tensor.is_leaf)


class Drawn:
    """Where the generators of random numbers stand that every process has."""

    def __init__(self) -> None:
        import torch

        self._torch, self._python = torch.get_rng_state(), random.getstate()
        self._of_numpy = getattr(sys.modules.get("numpy"), "random", None)
        self._numpy = self._of_numpy.get_state() if self._of_numpy is not None else None

    def restore(self) -> None:
        """Have them stand there again."""
        import torch

        torch.set_rng_state(self._torch)
        random.setstate(self._python)
        if self._of_numpy is not None:
            self._of_numpy.set_state(self._numpy)


@contextmanager
def filled_memory() -> Iterator[None]:
    """`torch.empty` gives the same on both sides: NaN, or the largest integer."""
    import torch

    was, warned = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was, warn_only=warned)


# --- comparing -----------------------------------------------------------------------------------


class ResultComparison:
    """Of what a port gave with what its origin gave.

    Attributes:
        problem: what is wrong first.
        relative: the largest relative difference.
        values: how many tensors and numbers were compared that a call gave or wrote to.
        uncompared: what could not be.
    """

    def __init__(
        self,
        computed_in: Callable[[Any], Any] = lambda _: None,
        is_written: Callable[[Any], bool] = lambda _: True,
    ) -> None:
        """Of nothing yet.

        Args:
            computed_in: of a tensor of the origin's, the dtype that decides what is near.
            is_written: whether a kernel of the origin wrote to a tensor that it was given.
        """
        self.problem: str | None = None
        self.relative: float | None = None
        self.values = 0
        self.uncompared: list[str] = []
        self._computed_in, self._is_written = computed_in, is_written
        self._seen: dict[tuple[int, int], tuple[Any, Any]] = {}  # whose ids are theirs

    def compare(self, one: Any, other: Any, name: str, *, given: bool = False) -> None:
        """Compare, unless something is wrong already.

        Args:
            one: of the port.
            other: of the origin.
            name: how it is called.
            given: whether it was given to the call: a number of it is as it was.
        """
        import torch

        if self.problem is not None or (id(one), id(other)) in self._seen:
            return
        self._seen[id(one), id(other)] = (one, other)
        ours = one.item() if _is_numpy_scalar(one) else one
        theirs = other.item() if _is_numpy_scalar(other) else other
        if type(one).__module__ == type(other).__module__ == "numpy" and hasattr(one, "dtype"):
            if str(one.dtype) != str(other.dtype):
                self.problem = f"{name} is {one.dtype}, the origin's {other.dtype}"
                return
            if getattr(one, "ndim", 0) and one.dtype.kind in "biufc":
                ours, theirs = torch.from_numpy(one.copy()), torch.from_numpy(other.copy())
        if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
            self._tensors(ours, theirs, given=given)
            if vars(theirs) and ours is one:  # what their owner has set on them
                self._holders(vars(ours), vars(theirs), name, given=given)
        elif isinstance(theirs, NUMBERS) and type(ours) is type(theirs):
            self._numbers(ours, theirs, name, given=given)
        elif type(ours).__name__ != type(theirs).__name__:
            self.problem = (
                f"{name} is of {type(ours).__name__}, the origin's of {type(theirs).__name__}"
            )
        elif (inside := _inside(theirs)) is not None:
            self._holders(_inside(ours) or {}, inside, name, given=given)
        elif isinstance(theirs, str) and ours != theirs:
            self.problem = f"{name} is {ours!r}, the origin's {theirs!r}"
        elif not isinstance(theirs, (str, type(None), torch.dtype, torch.device)) and not (
            given and _says_nothing(theirs)
        ):
            self.uncompared.append(f"{name}, of {type(theirs).__name__}")

    def _holders(
        self, ours: Mapping[Any, Any], theirs: Mapping[Any, Any], name: str, *, given: bool
    ) -> None:
        if list(ours) != list(theirs):
            self.problem = f"{name} holds {_listed(ours)}, the origin's {_listed(theirs)}"
        for key in theirs:
            if key in ours:
                self.compare(ours[key], theirs[key], f"{name}[{key!r}]", given=given)

    def _numbers(self, ours: Any, theirs: Any, name: str, *, given: bool) -> None:
        import torch

        self.values += not given
        wrong = ours != theirs
        if wrong and isinstance(theirs, float):  # of an element: a kernel's floats are float32
            a, b = (torch.tensor([each], dtype=torch.float32) for each in (ours, theirs))
            wrong = self._gap(a, b, None) is not None
        if wrong:
            self.problem = f"{name} is {ours}, the origin's {theirs}"

    def _tensors(self, a: Any, b: Any, *, given: bool) -> None:
        self.values += not given or self._is_written(b)
        kind = self._computed_in(b)
        a, b = a.detach(), b.detach()
        both = (a.isnan() & b.isnan()) if a.is_floating_point() and a.shape == b.shape else None
        if both is not None and bool(both.any()):
            a, b = (x.double().masked_fill(both, 0).to(x.dtype) for x in (a, b))
        self.problem = self._gap(a, b, kind)

    def _gap(self, a: Any, b: Any, kind: Any) -> str | None:
        from tile_agent_pytest.tile_ir.closeness import Tolerance

        problem, gap = Tolerance(computed_in=kind).difference(a, b, b)
        if problem is None and gap is not None:
            self.relative = max(self.relative or 0.0, gap[1])
        return problem


def _says_nothing(given: Any) -> bool:
    """Whether what a call is given is not for it to write to."""
    return callable(given) or isinstance(given, ModuleType | Enum) or _is_of_library(type(given))


def _is_numpy_scalar(value: Any) -> bool:
    return (
        type(value).__module__ == "numpy"
        and hasattr(value, "item")
        and not (getattr(value, "ndim", 1))
    )


def _listed(keys: Mapping[Any, Any]) -> str:
    return f"{len(keys)} of {', '.join(map(repr, list(keys)[:4]))}" if keys else "nothing"
