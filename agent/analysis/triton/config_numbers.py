"""Whether a tuner's configs have a number of warps or stages already, each beside its others."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from agent.analysis.triton.configs import DEFAULT_STAGES, DEFAULT_WARPS
from agent.syntax import Source, argument, assigned, descendants

OPTIONS = {"num_warps": (1, DEFAULT_WARPS), "num_stages": (2, DEFAULT_STAGES)}
"""Option -> its place among what `triton.Config` takes, and what it is by default."""


def adds_none(source: Source, configs: cst.BaseExpression, option: str, value: int) -> bool:
    """Whether each of the configs, were its number this one, would be one of them.

    Where that is not to be seen, it is taken to be another one.
    """
    listed = _lists(source, configs)
    return bool(listed) and all(_has_all(source, each, option, value) for each in listed)


def _lists(source: Source, configs: cst.BaseExpression) -> Sequence[cst.BaseExpression]:
    """What the configs are, one way or another; empty where that is not to be seen."""
    found = source.resolve(configs)
    made = source.function_of(found.func) if isinstance(found, cst.Call) else None
    if made is None:
        return [found]
    body, lists = made.node.body, list[cst.BaseExpression]()
    for line in descendants(body, cst.Return):
        match line.value:
            case cst.Name(value=name):
                lists += [v for t, v in assigned(body) if name in source.code(t)]
            case cst.BaseExpression():
                lists.append(line.value)
    grows = any(True for _ in descendants(body, cst.AugAssign)) or any(
        isinstance(call.func, cst.Attribute) and call.func.attr.value in ("append", "extend")
        for call in descendants(body, cst.Call)
    )
    return [] if grows else lists


def _has_all(source: Source, listed: cst.BaseExpression, option: str, value: int) -> bool:
    match listed:
        case cst.List(elements=elements) | cst.Tuple(elements=elements):
            found: dict[tuple[str, ...], set[int]] = {}
            for element in elements:
                number = _number(source, element.value, option)
                if not isinstance(number, int):
                    return False
                found.setdefault(_others(source, element.value, option), set()).add(number)
            return bool(found) and all(value in numbers for numbers in found.values())
        case cst.ListComp(elt=made, for_in=loop):
            number = _number(source, made, option)
            if isinstance(number, cst.Name):
                return value in _tried(source, listed, loop, number.value)
            return number == value
    return False


def _number(source: Source, made: cst.BaseExpression, option: str) -> int | cst.Name | None:
    """What a config has for an option, or the name of it; None where that is not to be seen."""
    if not isinstance(made, cst.Call) or any(arg.star for arg in made.args):
        return None
    called, (place, default) = source.name(made.func) or "", OPTIONS[option]
    given = argument(made, place, option) if called.endswith(".Config") else None
    match given:
        case None:
            return default if called == "triton.Config" else None
        case cst.Integer():
            return given.evaluated_value
        case cst.Name():
            return given
    return None


def _others(source: Source, made: cst.BaseExpression, option: str) -> tuple[str, ...]:
    """All else that a config is given."""
    place, _ = OPTIONS[option]
    names = ("kwargs", *OPTIONS)
    given = {
        arg.keyword.value if arg.keyword else names[at] if at < len(names) else str(at): arg.value
        for at, arg in enumerate(cst.ensure_type(made, cst.Call).args)
    }
    return tuple(sorted(f"{n}={source.code(v)}" for n, v in given.items() if n != names[place]))


def _tried(source: Source, listed: cst.ListComp, loop: cst.CompFor | None, name: str) -> set[int]:
    """The numbers of a comprehension that has each beside all else; empty where it may not."""
    uses = [n for n in descendants(listed, cst.Name) if n.value == name]
    numbers: set[int] = set()
    beside: set[str] = set()
    asked: set[str] = set()
    while loop is not None:
        target = [n.value for n in descendants(loop.target, cst.Name)]
        asked |= {n.value for test in loop.ifs for n in descendants(test, cst.Name)}
        if name in target:
            numbers = _beside_each(source.resolve(loop.iter), target.index(name))
            beside = {*target}
        loop = loop.inner_for_in
    keywords = [arg for arg in descendants(listed.elt, cst.Arg)
                if arg.keyword is not None and arg.keyword.value == name]  # fmt: skip
    is_free = len(uses) - len(keywords) == 2 and not asked & beside
    return numbers if is_free else set()


def _beside_each(tried: cst.BaseExpression, place: int) -> set[int]:
    """The numbers that a list of numbers holds; of one of rows, those beside all else of a row."""
    if not isinstance(tried, cst.List | cst.Tuple):
        return set()
    found: dict[tuple[int, ...], set[int]] = {}
    for element in tried.elements:
        value = element.value
        row = [e.value for e in value.elements] if isinstance(value, cst.Tuple) else [value]
        numbers = [n.evaluated_value for n in row if isinstance(n, cst.Integer)]
        if len(numbers) != len(row) or place >= len(row):
            return set()
        others = tuple(numbers[:place] + numbers[place + 1 :])
        found.setdefault(others, set()).add(numbers[place])
    return set.intersection(*found.values()) if found else set()
