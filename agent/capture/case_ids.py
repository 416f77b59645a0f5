"""What the cases of a captured test are called. Pure.

A case has the shapes of its first two tensors and the type of the first in its name. Cases that
are alike in these name what else tells them apart, in as few words as do: a number, a layout.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agent.capture.calls import CapturedCall, Fact, walk

MOST_CHARACTERS = 24
"""Of a value in a name."""
_ASPECTS = ("value", "dtype", "shape", "strides", "offset", "aligned", "grad", "memory", "device")
"""What may tell two arguments apart; what says most first."""


def ids(calls: Iterable[CapturedCall]) -> list[str]:
    """A name for each call of an entry point."""
    known = [*calls]
    names = [_shapes(call) for call in known]
    alike: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        alike.setdefault(name, []).append(at)
    for places in alike.values():
        for at, words in zip(places, _differences([known[at] for at in places]), strict=True):
            names[at] = "-".join([names[at], *words])
    return unique(names)


def unique(names: Iterable[str]) -> list[str]:
    """The names, the second of its kind with a 2 behind it."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(f"{name}_{seen[name]}" if seen[name] > 1 else name)
    return found


def _shapes(call: CapturedCall) -> str:
    tensors = [f for f in walk(call.facts) if f["kind"] == "tensor" and f["shape"]][:2]
    shapes = ["x".join(map(str, fact["shape"])) for fact in tensors]
    name = "-".join([*dict.fromkeys(shapes), *(fact["dtype"] for fact in tensors[:1])])
    return name or "no-tensor"


def _differences(calls: Sequence[CapturedCall]) -> list[list[str]]:
    """For each of some calls what tells it apart from the others: nothing of a single one."""
    words: list[list[str]] = [[] for _ in calls]
    groups: list[Sequence[int]] = [range(len(calls))] if len(calls) > 1 else []
    told = [_told(call) for call in calls] if groups else []
    labels = list(dict.fromkeys(label for each in told for label in each))
    for aspect in _ASPECTS:
        for label in labels:
            left: list[Sequence[int]] = []
            for group in groups:
                parts: dict[str, list[int]] = {}
                for at in group:
                    parts.setdefault(told[at].get(label, {}).get(aspect, ""), []).append(at)
                for word, part in parts.items() if len(parts) > 1 else ():
                    for at in part:
                        words[at] += [f"{label}={word}"] if word else []
                left += parts.values()
            groups = [group for group in left if len(group) > 1]
    return words


def _told(call: CapturedCall) -> Mapping[str, Mapping[str, str]]:
    """Each argument of a call, and those inside of others, with what a name may say of it."""
    given = [*zip(_labels(call), call.arguments, strict=True), *call.keywords.items()]
    if call.made_by:
        own: Mapping[str, Fact] = call.made_by["keywords"]
        positional: Sequence[Fact] = call.made_by["arguments"]
        given += [(f"own.{n}", fact) for n, fact in enumerate(positional)]
        given += [(f"own.{name}", fact) for name, fact in own.items()]
    return {label: dict(_aspects(fact)) for name, each in given for label, fact in _all(name, each)}


def _labels(call: CapturedCall) -> Iterator[str]:
    for number in range(len(call.arguments)):
        has_name = number < len(call.parameters)
        yield call.parameters[number] if has_name else f"arg{number}"


def _all(label: str, fact: Fact) -> Iterator[tuple[str, Fact]]:
    yield label, fact
    if fact["kind"] == "dict":
        for key, part in fact["items"]:
            yield from _all(f"{label}.{_word(key)}", part)
    elif fact["kind"] in ("tuple", "list"):
        for number, part in enumerate(fact["items"]):
            yield from _all(f"{label}.{number}", part)


def _aspects(fact: Fact) -> Iterator[tuple[str, str]]:
    match fact["kind"]:
        case "tensor":
            yield "dtype", fact["dtype"]
            yield "shape", "x".join(map(str, fact["shape"])) or "scalar"
            yield "strides", f"strides{'x'.join(map(str, fact['strides']))}"
            yield "offset", f"from{fact['offset']}" if fact["offset"] else ""
            yield "aligned", "" if fact["aligned"] else "unaligned"
            yield "grad", "grad" if fact["requires_grad"] else ""
            yield "memory", f"memory{fact['memory']}"
            yield "device", "cpu" if fact["on_cpu"] else ""
        case "value":
            yield "value", _word(fact["code"].removeprefix("torch."))
        case "name":
            yield "value", _word(fact["name"])
        case kind:
            yield "value", kind


def _word(code: str) -> str:
    """What of a value's text can stand in the id of a test."""
    return re.sub(r"[^\w.+-]+", "", code)[:MOST_CHARACTERS] or "empty"
