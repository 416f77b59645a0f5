"""The arguments of a call as facts: enough of them to make others like them."""

from __future__ import annotations

import enum
import functools
import keyword
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tile_agent_pytest.capture.contents import contents
from tile_agent_pytest.examining.arrays import as_tensor, library_of
from tile_agent_pytest.examining.tensors import is_tensor, torch

Message = dict[str, Any]

ALIGNMENT = 16
"""Bytes: what Triton specializes a pointer to."""
_CONTAINERS = (tuple, list)


class ArgumentFacts:
    """Describes the arguments of one call; memory that several share is told by a number."""

    def __init__(self) -> None:
        self._memories: dict[int, int] = {}
        self._tensors: list[tuple[Message, Any]] = []
        self._numbers: list[tuple[Message, Any]] = []
        self._unknown = False

    def of(self, value: Any) -> Message:
        """What is told of a value, without what is in its tensors."""
        if is_tensor(value):
            fact = self._tensor(value)
            if fact["kind"] == "tensor" and vars(value):
                self._add_attributes(fact, value)
            return fact
        if library := library_of(value):
            return self._array(value, library)
        if type(value) is dict and all(type(key) in (str, int) for key in value):
            return {"kind": "dict", "items": [[repr(k), self.of(v)] for k, v in value.items()]}
        if type(value) in _CONTAINERS or isinstance(value, torch().Size):
            kind = "list" if isinstance(value, list) else "tuple"
            return {"kind": kind, "items": [self.of(part) for part in value]}
        return self._noting(_plain(value))

    def _array(self, array: Any, library: str) -> Message:
        """As the tensor that it is made of, but for arrays that lie in one memory."""
        tensor = as_tensor(array)
        if tensor is None:
            return self._noting(_unknown(array))
        fact = self._tensor(tensor)
        fact["array"] = library
        return fact

    def _noting(self, fact: Message) -> Message:
        self._unknown |= fact["kind"] == "unknown"
        return fact

    @property
    def writable(self) -> bool:
        """Whether a text can make each value that was described."""
        return not self._unknown

    @property
    def has_tensors(self) -> bool:
        """Whether a tensor is among them."""
        return bool(self._tensors)

    def add_contents(self) -> None:
        """Complete the descriptions by what is in the tensors now."""
        for fact, tensor in self._tensors:
            fact["contents"] = contents(tensor)
        for fact, number in self._numbers:
            fact |= _plain(number)

    def _tensor(self, tensor: Any) -> Message:
        if type(tensor) not in _tensor_types():
            return self._noting(_unknown(tensor))
        storage = tensor.untyped_storage()
        memory = self._memories.setdefault(storage.data_ptr(), len(self._memories))
        fact = {
            "kind": "tensor",
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": [int(n) for n in tensor.shape],
            "strides": [int(n) for n in tensor.stride()],
            "offset": int(tensor.storage_offset()),
            "aligned": tensor.data_ptr() % ALIGNMENT == 0,
            "requires_grad": bool(tensor.requires_grad),
            "memory": memory,
            "memory_elements": storage.nbytes() // tensor.element_size(),
            "on_cpu": tensor.device.type == "cpu",
        }
        self._tensors.append((fact, tensor))
        return fact

    def _add_attributes(self, fact: Message, tensor: Any) -> None:
        """What the tensor's owner has set on it, as `weight.main_grad`; of the rest the names.

        Numbers follow with the contents: one that counts is no other kind of call each time.
        """
        told: list[list[Any]] = []
        others: list[str] = []
        for name, value in vars(tensor).items():
            if name.startswith("_"):  # PyTorch's and its compiler's notes
                continue
            if not name.isidentifier() or keyword.iskeyword(name):
                others.append(name)
            elif type(value) in _tensor_types() and value is not tensor:
                told.append([name, self._tensor(value)])
            elif type(value) in (int, float):
                told.append([name, {"kind": "value", "code": ""}])
                self._numbers.append((told[-1][1], value))
            elif value is None or type(value) in (bool, str):
                told.append([name, _plain(value)])
            else:
                others.append(name)
        if told:
            fact["attributes"] = told
        if others:
            fact["not_made"] = others


def _tensor_types() -> tuple[type, ...]:
    return (torch().Tensor, torch().nn.Parameter)


def _plain(value: Any) -> Message:
    if isinstance(value, torch().Generator):
        return {"kind": "generator", "on_cpu": value.device.type == "cpu"}
    if isinstance(value, torch().device):
        return {"kind": "device", "on_cpu": value.type == "cpu"}
    if isinstance(value, torch().dtype | torch().memory_format):
        return {"kind": "value", "code": str(value)}
    if isinstance(value, enum.Enum):
        return _named(type(value), f".{value.name}") or _unknown(value)
    if type(value) is float:
        text = repr(value).replace("e+", "e")  # as formatters write it
        return {"kind": "value", "code": text if text[-1] not in "fn" else f'float("{text}")'}
    if value is None or type(value) in (bool, int, str):
        return {"kind": "value", "code": repr(value)}
    return _named(value, "") or _unknown(value)


def _named(value: Any, behind: str) -> Message | None:
    """A function or a class that can be imported by its name."""
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not value:
        return None
    return {"kind": "name", "module": module, "name": f"{name}{behind}"}


def _unknown(value: Any) -> Message:
    kind = type(value)
    return {"kind": "unknown", "type": f"{kind.__module__}.{kind.__qualname__}"}


def parameters_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[str]:
    """The names of a call's positional arguments, as far as the function has some."""
    code = getattr(_innermost(function), "__code__", None)
    if code is None:
        return []
    return list(code.co_varnames[: min(code.co_argcount, len(arguments))])


def _innermost(function: Any) -> Any:
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = getattr(function, "__wrapped__", None) or function.func
    return getattr(function, "__func__", function)


def describe(
    arguments: tuple[Any, ...], keywords: Mapping[str, Any], facts: ArgumentFacts
) -> Message:
    """What a call is given."""
    return {
        "arguments": [facts.of(value) for value in arguments],
        "keywords": {name: facts.of(value) for name, value in keywords.items()},
    }
