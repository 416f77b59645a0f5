"""Whether a tuner's configs have a number of warps or stages already, each beside its others.

And whether they differ in that number alone, so that with one more number some would be the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from agent.analysis.triton.configs import DEFAULT_STAGES, DEFAULT_WARPS
from agent.syntax import Source, argument, assigned, descendants, integer_of, names_in, positional

OPTIONS = {"num_warps": (1, DEFAULT_WARPS), "num_stages": (2, DEFAULT_STAGES)}
"""Option -> its place among what `triton.Config` takes, and what it is by default."""
MOST_NUMBERS = 64
"""Of a `range` in a comprehension of configs."""


def adds_none(source: Source, configs: cst.BaseExpression, option: str, value: int) -> bool:
    """Whether each of the configs, were its number this one, would be one of them.

    Or one that the author's `filter` leaves out. Where that is not to be seen, it is taken to be
    another one.
    """
    listed = _lists(source, _unfiltered(source, configs))
    return bool(listed) and all(_has_all(source, each, option, value) for each in listed)


def may_repeat(source: Source, configs: cst.BaseExpression, option: str) -> bool:
    """Whether configs may differ in a number alone, or not at all: they do not, if it is seen."""
    listed = _lists(source, configs)
    return len(listed) != 1 or _may_repeat(source, listed[0], option)


def added_to(configs: cst.BaseExpression) -> cst.ListComp | cst.GeneratorExp | None:
    """The comprehension of `[... for made in MADE ...]`; of `list(dict.fromkeys(...))` of it."""
    match configs:
        case cst.Call(
            func=cst.Name(value="list"),
            args=[
                cst.Arg(
                    value=cst.Call(
                        func=cst.Attribute(
                            value=cst.Name(value="dict"), attr=cst.Name(value="fromkeys")
                        ),
                        args=[cst.Arg(value=cst.GeneratorExp() as found)],
                    )
                )
            ],
        ):
            return found
        case cst.ListComp():
            return configs
    return None


def _may_repeat(source: Source, listed: cst.BaseExpression, option: str) -> bool:
    match listed:
        case cst.List(elements=elements) | cst.Tuple(elements=elements):
            made = [element.value for element in elements]
            if not all(isinstance(_number(source, each, option), int) for each in made):
                return True
            return len({_others(source, each, option) for each in made}) != len(made)
        case cst.ListComp(elt=made, for_in=cst.CompFor(target=cst.Name(value="made")) as loop):
            return may_repeat(
                source, loop.iter, option
            )  # what was written here: with other options
        case cst.ListComp(elt=made):
            return not isinstance(_number(source, made, option), int)
    return True


def _unfiltered(source: Source, configs: cst.BaseExpression) -> cst.BaseExpression:
    """`MADE` of `list(filter(keep, MADE))`."""
    found = source.resolve(configs)
    while isinstance(found, cst.Call):
        given = positional(found)
        match source.name(found.func), len(given):
            case ("builtins.list" | "builtins.tuple", 1) | ("builtins.filter", 2):
                found = source.resolve(given[-1])
            case _:
                break
    return found


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
            if number is None or isinstance(number, int):
                return number == value
            names = names_in(number)
            tried = _tried(source, listed, loop, names.pop()) if len(names) == 1 else ()
            return value in {_computed(number, each) for each in tried}
    return False


def _computed(number: cst.BaseExpression, each: int) -> int | None:
    """What a number such as `2**i` is where the one name in it is an integer."""
    return integer_of(_filled_in(number, each))


def _filled_in(number: cst.BaseExpression, each: int) -> cst.BaseExpression:
    match number:
        case cst.Name():
            return cst.Integer(str(each))
        case cst.BinaryOperation(left=left, right=right):
            return number.with_changes(left=_filled_in(left, each), right=_filled_in(right, each))
    return number


def _number(
    source: Source, made: cst.BaseExpression, option: str
) -> int | cst.BaseExpression | None:
    """What a config has for an option, or what it is computed by; None where that is not seen."""
    if not isinstance(made, cst.Call) or any(arg.star for arg in made.args):
        return None
    called, (place, default) = source.name(made.func) or "", OPTIONS[option]
    given = argument(made, place, option) if called.endswith(".Config") else None
    match given:
        case None:
            return default if called == "triton.Config" else None
        case cst.Integer():
            return given.evaluated_value
        case cst.Name() | cst.BinaryOperation():
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
            numbers = _beside_each(source, source.resolve(loop.iter), target.index(name))
            beside = {*target}
        loop = loop.inner_for_in
    keywords = [arg for arg in descendants(listed.elt, cst.Arg)
                if arg.keyword is not None and arg.keyword.value == name]  # fmt: skip
    is_free = len(uses) - len(keywords) == 2 and not asked & beside
    return numbers if is_free else set()


def _beside_each(source: Source, tried: cst.BaseExpression, place: int) -> set[int]:
    """The numbers that a list of numbers holds; of one of rows, those beside all else of a row."""
    if isinstance(tried, cst.Call) and source.name(tried.func) == "builtins.range":
        ends = [integer_of(end) for end in positional(tried)]
        known = [end for end in ends if end is not None]
        counts = known == ends and 0 < len(known) == len(tried.args) and known[2:] != [0]
        counted = range(*known) if counts else range(0)
        return set(counted) if len(counted) <= MOST_NUMBERS else set()
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
