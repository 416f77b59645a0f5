"""Arguments like those of a captured call, as Python that makes them."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from operator import mul
from typing import Any

from agent.capture.calls import Fact, walk

MOST_INLINE = 8
"""Integers that are written into the code."""
_FORMATS = {"int8": "b", "uint8": "B", "bool": "B", "int16": "h", "int32": "i", "int64": "q"}
"""PyTorch's name -> the type of `struct`."""
_SAFETENSORS = {
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
}


@dataclass
class ArgumentWriter:
    """Writes arguments, and notes what their text needs."""

    helpers: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    """Modules."""
    arrays: set[str] = field(default_factory=set)
    """Libraries whose arrays are among them."""
    kept: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """Name -> dtype, shape, values."""
    drawn: int = 0
    """Integer tensors whose values are drawn anew, since they are not kept."""

    @property
    def kept_types(self) -> dict[str, str]:
        """What a file of safetensors calls the types of what is kept -> what PyTorch does."""
        found = {dtype for dtype, _, _ in self.kept.values()}
        return {_SAFETENSORS[dtype]: dtype for dtype in sorted(found)}

    def call(self, given: Mapping[str, Any]) -> list[str]:
        """The arguments of one call, each as code: positional ones, then keywords."""
        positional, keywords = given["arguments"], given["keywords"]
        facts = list(walk((*positional, *keywords.values())))
        tensors = [fact for fact in facts if fact["kind"] == "tensor"]
        memories = _Memories(tensors)
        some_on_gpu = any(not fact["on_cpu"] for fact in tensors)

        def on_cpu(text: str, fact: Fact) -> str:
            return f"{text}.cpu()" if fact["on_cpu"] and some_on_gpu else text

        def code(fact: Fact) -> str:
            match fact["kind"]:
                case "tensor":
                    text = memories.code(fact, self)
                    if told := fact.get("attributes"):
                        return self.attributed(on_cpu(text, fact), told, code)
                    if "array" in fact:
                        return self.array(text, fact["array"])
                    return on_cpu(text, fact)
                case "tuple" | "list":
                    parts = [code(part) for part in fact["items"]]
                    if fact["kind"] == "list":
                        return f"[{', '.join(parts)}]"
                    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
                case "dict":
                    parts = [f"{key}: {code(part)}" for key, part in fact["items"]]
                    return f"{{{', '.join(parts)}}}"
                case "generator":
                    self.helpers.add("generator")
                    return "generator()"
                case "device":
                    return "torch.device(DEVICE)"
                case "name":
                    self.imports.add(fact["module"])
                    return f"{fact['module']}.{fact['name']}"
                case _:
                    return str(fact["code"])

        texts = [code(fact) for fact in positional]
        return [*texts, *(f"{name}={code(fact)}" for name, fact in keywords.items())]

    def fresh(self, fact: Fact, shape: tuple[int, ...]) -> str:
        """A new tensor, contiguous, with contents like those that were seen."""
        contents = fact["contents"]
        dtype = f"torch.{fact['dtype']}"
        if "monotone" in contents:
            return self.cumulative(fact)
        match contents["kind"]:
            case "empty":
                return f"torch.empty({shape}, dtype={dtype}, device=DEVICE)"
            case "full":
                value = contents["value"]
                if fact["dtype"] == "bool":
                    value = bool(value)
                return f"torch.full({shape}, {_formatted(value)}, dtype={dtype}, device=DEVICE)"
            case "normal":
                self.helpers.add("normal")
                return f"normal({shape}, {dtype}{_distribution(contents)})"
            case "distinct":
                self.helpers.add("distinct")
                return f"distinct({shape}, {dtype}, below={contents['below']})"
            case "uniform":
                self.helpers.add("uniform")
                return f"uniform({shape}, {dtype}{_range(contents)})"
        if contents["kind"] == "arange":
            begin, step = contents["begin"], contents["step"]
            text = f"torch.arange({begin}, {begin + step * math.prod(shape)}"
            text += f", {step}" if step != 1 else ""
            text += f", dtype={dtype}, device=DEVICE)"
            return text if len(shape) == 1 else f"{text}.view({shape})"
        values = contents.get("values")
        if values is not None:
            if len(values) <= MOST_INLINE and len(shape) == 1:
                return f"torch.tensor({values}, dtype={dtype}, device=DEVICE)"
            if not values:
                return f"torch.empty({shape}, dtype={dtype}, device=DEVICE)"
            if fact["dtype"] in _FORMATS:
                self.helpers.add("kept")
                return f'kept("{self._keep(fact["dtype"], shape, tuple(values))}")'
        self.helpers.add("integers")
        self.drawn += 1
        return f"integers({shape}, {dtype}, low={contents['low']}, high={contents['high']})"

    def attributed(
        self, tensor: str, told: Iterable[tuple[str, Fact]], code: Callable[[Fact], str]
    ) -> str:
        """A tensor with what its owner has set on it."""
        self.helpers.add("attributed")
        given = [f"{name}={code(fact)}" for name, fact in told]
        return f"attributed({', '.join([tensor, *given])})"

    def array(self, tensor: str, library: str) -> str:
        """An array on a tensor's memory, or on a copy of it that lies on the CPU."""
        self.arrays.add(library)
        if library == "numpy":
            return f"{tensor}.numpy(force=True)"
        self.imports.add(library)
        return f"{library}.asarray({tensor})"

    def cumulative(self, fact: Fact) -> str:
        """A new tensor, contiguous, that rises or falls along a dimension as the one seen did."""
        self.helpers.add("cumulative")
        return _cumulative(fact)

    def _keep(self, dtype: str, shape: tuple[int, ...], values: tuple[int, ...]) -> str:
        value = (dtype, shape, values)
        for name, other in self.kept.items():
            if other == value:
                return name
        name = f"{dtype}_{'x'.join(map(str, shape))}"
        same = sum(other.startswith(name) for other in self.kept)
        name += f"_{same + 1}" if same else ""
        self.kept[name] = value
        return name


class _Memories:
    """Which tensors of a call share their memory: a view of another, or the same once more."""

    def __init__(self, tensors: Iterable[Fact]) -> None:
        self._users: dict[int, list[Fact]] = {}
        for fact in tensors:
            if math.prod(fact["shape"]):
                self._users.setdefault(fact["memory"], []).append(fact)
        self._named: dict[int, str] = {}

    def code(self, fact: Fact, writer: ArgumentWriter) -> str:
        """The tensor, or a view of memory that an argument to its left has made."""
        shape = tuple(fact["shape"])
        grad = ".requires_grad_()" if fact["requires_grad"] else ""
        users = self._users.get(fact["memory"], [])
        if len(users) > 1 and len({user["dtype"] for user in users}) == 1:
            return self._shared(fact, users, writer) + grad
        if _is_contiguous(fact) and (fact["aligned"] or not fact["offset"]):
            return writer.fresh(fact, shape) + grad
        if fact["aligned"] and (order := _dense_order(fact)) is not None:
            dense = tuple(shape[d] for d in order)
            back = tuple(order.index(d) for d in range(len(shape)))
            laid = _spread([fact], fact["offset"], math.prod(shape))
            view = f"{writer.fresh(laid, dense)}.permute({back})"
            return f"{view}{_filled(fact, writer)}{grad}"
        offset = 0 if fact["aligned"] else fact["offset"] % 16
        size = offset + 1 + _last(fact)
        memory = writer.fresh(_spread([fact], fact["offset"] - offset, size), (size,))
        return f"{memory}.as_strided({_view(fact, offset)}){_filled(fact, writer)}{grad}"

    def _shared(self, fact: Fact, users: list[Fact], writer: ArgumentWriter) -> str:
        memory = fact["memory"]
        alike = {(*user["shape"], "", *user["strides"], "", user["offset"]) for user in users}
        name = self._named.get(memory)
        if len(alike) == 1 and _is_contiguous(fact):  # the same tensor several times
            if name is not None:
                return name
            self._named[memory] = name = f"shared_{len(self._named)}"
            return f"({name} := {writer.fresh(fact, tuple(fact['shape']))})"
        lowest = min(user["offset"] for user in users)
        lowest -= lowest % 16
        view = f".as_strided({_view(fact, fact['offset'] - lowest)}){_filled(fact, writer)}"
        if name is not None:
            return f"{name}{view}"
        self._named[memory] = name = f"shared_{len(self._named)}"
        size = max(user["offset"] - lowest + 1 + _last(user) for user in users)
        laid = _spread(users, lowest, size)
        return f"({name} := {writer.fresh(laid, (size,))}){view}"


def _spread(users: Sequence[Fact], begin: int, size: int) -> Fact:
    """Memory with the users' values where their elements lie, and the least of them elsewhere.

    Args:
        users: tensors in that memory; of others than integers the first one stands for all, in
            any order.
        begin: place of the memory's first element, as the users' offsets count.
        size: in elements.
    """
    values = [(user, _values(user["contents"], math.prod(user["shape"]))) for user in users]
    if any(not found for _, found in values):
        plain = {key: part for key, part in users[0]["contents"].items() if key != "monotone"}
        return {**users[0], "contents": plain}
    low = min(min(found) for _, found in values)
    memory = [low] * size
    for user, found in values:
        ranges = (range(0, n * step, step) if step else [0] * n for n, step in _axes(user))
        for steps, value in zip(product(*ranges), found, strict=True):
            memory[user["offset"] - begin + sum(steps)] = value
    high = max(max(found) for _, found in values)
    contents = {"kind": "integers", "low": low, "high": high, "values": memory}
    return {**users[0], "contents": contents}


def _axes(fact: Fact) -> Iterable[tuple[int, int]]:
    return zip(fact["shape"], fact["strides"], strict=True)


def _values(contents: Mapping[str, Any], count: int) -> list[int]:
    """In the order of indices; empty where they are not known, or no integers."""
    if contents["kind"] == "arange":
        return [contents["begin"] + contents["step"] * n for n in range(count)]
    if contents["kind"] == "full" and type(contents["value"]) is int:
        return [contents["value"]] * count
    return list(contents.get("values", ()))


def _view(fact: Fact, offset: int) -> str:
    text = f"{tuple(fact['shape'])}, {tuple(fact['strides'])}"
    return f"{text}, {offset}" if offset else text


def _last(fact: Fact) -> int:
    """The place of the last element, counted from the first one."""
    return sum((n - 1) * step for n, step in _axes(fact))


def _is_contiguous(fact: Fact) -> bool:
    steps = tuple(accumulate(reversed(fact["shape"][1:]), mul, initial=1))[::-1]
    given = zip(fact["shape"], fact["strides"], steps, strict=False)
    return not math.prod(fact["shape"]) or all(n == 1 or s == step for n, s, step in given)


def _dense_order(fact: Fact) -> tuple[int, ...] | None:
    """The dimensions from the outermost to the innermost; None where memory lies between."""
    strides, shape = fact["strides"], fact["shape"]
    order = sorted(range(len(shape)), key=lambda d: (-strides[d], d))
    step = 1
    for dimension in reversed(order):
        if shape[dimension] > 1 and strides[dimension] != step:
            return None
        step *= shape[dimension]
    return tuple(order)


def _filled(fact: Fact, writer: ArgumentWriter) -> str:
    """What puts the order that was seen into a view, whose memory knows of none."""
    spread = any(step == 0 and n > 1 for n, step in _axes(fact))  # PyTorch copies into no such
    if spread or "monotone" not in fact["contents"]:
        return ""
    return f".copy_({writer.cumulative(fact)})"


def _cumulative(fact: Fact) -> str:
    """A sum from where the values are nearest to zero on, so that it stays on its side of it."""
    order, shape = fact["contents"]["monotone"], tuple(fact["shape"])
    dim, chunk = order["dimension"], order["chunk"]
    begin, end = order["first"], order["last"]
    mean, std = order["step_mean"], order["step_std"]
    backwards = abs(end) < abs(begin) and (not chunk or shape[dim] % chunk == 0)
    if backwards:
        begin, end, mean = end, begin, -mean
    std = std if std > abs(mean) / 1000 else 0.0
    start = begin - mean
    crosses = start * end < 0 <= begin * end and std > 0
    text = f"dim={dim}, mean={_formatted(f'{mean:.2g}')}"
    text += f", std={_formatted(f'{std:.2g}')}" if std else ""
    text += f", chunk={chunk}" if chunk else ""
    if not crosses and abs(start) > max(std, abs(mean) / 100):
        text += f", start={_formatted(f'{start:.2g}')}"
    text = f"cumulative({shape}, torch.{fact['dtype']}, {text})"
    return f"{text}.flip({dim})" if backwards else text


def _distribution(contents: Mapping[str, Any]) -> str:
    """What differs from a mean of 0 and a deviation of 1, by more than a draw does."""
    mean, std = contents["mean"], contents["std"]
    text = f", mean={_formatted(f'{mean:.2g}')}" if abs(mean) > std / 4 else ""
    return text if 0.7 < std < 1.4 else f"{text}, std={_formatted(f'{std:.2g}')}"


def _range(contents: Mapping[str, Any]) -> str:
    low, high = contents["low"], contents["high"]
    text = f", low={_formatted(f'{low:.2g}')}" if low > high / 20 else ""
    return text if 0.9 < high <= 1 else f"{text}, high={_formatted(f'{high:.2g}')}"


def _formatted(number: object) -> str:
    """A number as formatters of Python write it: 1e06, where Python's own has a plus."""
    return str(number).replace("e+", "e")


def as_safetensors(kept: Mapping[str, tuple[str, tuple[int, ...], tuple[int, ...]]]) -> bytes:
    """A file of safetensors: the length of a header, the header, and the bytes that it places."""
    header, data = {}, b""
    for name, (dtype, shape, values) in sorted(kept.items()):
        packed = struct.pack(f"<{len(values)}{_FORMATS[dtype]}", *values)
        header[name] = {
            "dtype": _SAFETENSORS[dtype],
            "shape": shape,
            "data_offsets": [len(data), len(data) + len(packed)],
        }
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data
