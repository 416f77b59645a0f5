"""Searches that a kernel's author wrote: `exhaustive_search`, its configs, and what they set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.listed_configs import COPIES, taken_by_number
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.syntax import Function, Source, argument, descendants, keyword

SEARCH = f"{CT}tune.exhaustive_search"


@dataclass(frozen=True)
class AuthorsSearch:
    """A search over configs that are written out: each a call with keywords alone."""

    call: cst.Call
    configs: tuple[cst.Call, ...]
    generator: Function | None
    """Yields them; else they are the elements of `listed`."""
    listed: cst.List | None
    constants: Mapping[str, str]
    """Field of a config -> the kernel's parameter that is given it, and nothing else."""
    hints: Mapping[str, str]
    """Field of a config -> the compiler's hint that is given it."""
    counted: int = 0
    """How many of the first configs have to stay: the file takes some by their number."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Of every config, in the order of the first."""
        return tuple(_fields(self.configs[0]))

    def values(self, source: Source, field: str) -> tuple[str, ...]:
        """The texts that a field is given, each once."""
        given = (keyword(config, field) for config in self.configs)
        return tuple(dict.fromkeys(source.code(value) for value in given if value is not None))


def search_of(source: Source, kernel: Kernel) -> AuthorsSearch:
    """The search that tunes a kernel.

    Raises:
        NotApplicable: there is none, or its configs are not written out in this file.
    """
    call = CUTILE.tuned(source, kernel)
    if call is None or source.name(call.func) != SEARCH:
        raise NotApplicable(f"{kernel.name} is tuned by no exhaustive_search")
    line = source.line(call)
    given = argument(call, 0, "search_space")
    space = _copied(source, given) if given is not None else None
    generator = source.function_of(space.func) if isinstance(space, cst.Call) else None
    listed = space if isinstance(space, cst.List) else None
    if generator is not None:
        found = [node.value for node in _yields(source, generator)]
    elif listed is not None:
        found = [element.value for element in listed.elements]
    else:
        raise NotApplicable(f"the configs at line {line} are no list or generator of this file")
    configs = tuple(config for config in found if isinstance(config, cst.Call))
    if not configs or len(configs) < len(found) or not _alike(source, configs):
        raise NotApplicable(f"the configs at line {line} are not written out, or not all alike")
    assert space is not None  # one of the two was found
    return AuthorsSearch(
        call,
        configs,
        generator,
        listed,
        _constants(source, kernel, argument(call, 4, "args_fn")),
        _hints(source, argument(call, 5, "hints_fn")),
        taken_by_number(source, space, kernel.name, lambda call: _tunes(source, call, kernel)),
    )


def _copied(source: Source, space: cst.BaseExpression) -> cst.BaseExpression:
    """The list or generator behind names and copies."""
    space = value_of(source, space)
    while isinstance(space, cst.Call) and source.name(space.func) in COPIES and space.args:
        space = value_of(source, space.args[0].value)
    return space


def _tunes(source: Source, call: cst.Call, kernel: Kernel) -> bool:
    tuned = argument(call, 3, "kernel") if source.name(call.func) == SEARCH else None
    return tuned is not None and source.function_of(tuned) is kernel.function


def _yields(source: Source, function: Function) -> Iterator[cst.Yield]:
    """Of a generator that runs to its end; `yield from` counts as something else than a config."""
    here = [
        n for n in descendants(function.node.body, cst.Return) if source.enclosing(n) is function
    ]
    if here:
        raise NotApplicable(f"line {source.line(here[0])} ends {function.name} early")
    for node in descendants(function.node.body, cst.Yield):
        if source.enclosing(node) is function:
            yield node


def _alike(source: Source, configs: tuple[cst.Call, ...]) -> bool:
    kinds = {(source.code(c.func), frozenset(_fields(c)), len(c.args)) for c in configs}
    return len(kinds) == 1 and len(configs[0].args) == len(_fields(configs[0]))


def _fields(config: cst.Call) -> list[str]:
    return [arg.keyword.value for arg in config.args if arg.keyword is not None]


def _constants(
    source: Source, kernel: Kernel, args_fn: cst.BaseExpression | None
) -> dict[str, str]:
    config, result = _taken_apart(source, args_fn)
    if not isinstance(result, cst.Tuple | cst.List):
        return {}
    names = [p.name.value for p in kernel.function.parameters]
    pairs = zip((e.value for e in result.elements), names, strict=False)
    return {f: name for value, name in pairs if (f := _field(value, config)) is not None}


def _hints(source: Source, hints_fn: cst.BaseExpression | None) -> dict[str, str]:
    config, result = _taken_apart(source, hints_fn)
    named: list[tuple[cst.BaseExpression, str]] = []
    if isinstance(result, cst.Dict):
        named = [
            (element.value, str(element.key.evaluated_value))
            for element in result.elements
            if isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString)
        ]
    elif isinstance(result, cst.Call) and source.name(result.func) == "builtins.dict":
        named = [(arg.value, arg.keyword.value) for arg in result.args if arg.keyword]
    return {f: hint for value, hint in named if (f := _field(value, config)) is not None}


def _taken_apart(
    source: Source, function: cst.BaseExpression | None
) -> tuple[str, cst.BaseExpression | None]:
    """The name that a function of one parameter has for it, and what it gives."""
    if isinstance(function, cst.Lambda) and len(function.params.params) == 1:
        return function.params.params[0].name.value, function.body
    defined = source.function_of(function) if function is not None else None
    if defined is None or len(defined.parameters) != 1:
        return "", None
    returned = list(descendants(defined.node.body, cst.Return))
    if len(returned) != 1 or returned[0].value is None:
        return "", None
    return defined.parameters[0].name.value, value_of(source, returned[0].value)


def _field(value: cst.BaseExpression, config: str) -> str | None:
    """`cfg.NAME` -> NAME."""
    if isinstance(value, cst.Attribute) and isinstance(value.value, cst.Name):
        return value.attr.value if value.value.value == config else None
    return None
