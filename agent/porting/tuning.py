"""Decorators of a kernel: configs to choose from, and parameters that are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from agent.porting.context import Context
from agent.syntax import Function, argument

JIT = "triton.jit"
AUTOTUNE, HEURISTICS = "triton.autotune", "triton.heuristics"
CONFIG = "triton.Config"
WITHOUT_TUNER = "write one config into the launches"


@dataclass(frozen=True)
class Tuning:
    """What decorators give to every launch of a kernel.

    Attributes:
        values: parameter -> its value in the first config.
        computed: parameter -> the function that computes it of all others.
    """

    values: Mapping[str, cst.BaseExpression]
    computed: Mapping[str, cst.Lambda]


def tuning_of(context: Context, function: Function) -> Tuning:
    """Read the decorators of a kernel.

    Raises:
        NotPortable: one of them is not known, or does not show what it gives.
    """
    values: dict[str, cst.BaseExpression] = {}
    computed: dict[str, cst.Lambda] = {}
    for decorator in function.node.decorators:
        expression = decorator.decorator
        call = expression if isinstance(expression, cst.Call) else None
        named = context.source.name(call.func if call is not None else expression)
        if named == JIT:
            continue
        if named == AUTOTUNE and call is not None:
            values |= _first_config(context, call)
        elif named == HEURISTICS and call is not None:
            computed |= _heuristics(context, call)
        else:
            name = context.source.code(call.func if call is not None else expression)
            raise context.refuse(
                decorator, "a decorator that is not Triton's", _instead(name, call), f"@{name}"
            )
    return Tuning(values, computed)


def _instead(name: str, call: cst.Call | None) -> str:
    """What to do about a decorator: the launches may need what an autotuner gives them."""
    given = [a.keyword.value for a in call.args if a.keyword is not None] if call else []
    if "tune" in name.rpartition(".")[2].lower() or "configs" in given:
        return f"{WITHOUT_TUNER}, and take it off the kernel"
    return "take it off the kernel, and write what it gives to the launches into them"


def _first_config(context: Context, call: cst.Call) -> dict[str, cst.BaseExpression]:
    source = context.source
    configs = argument(call, 0, "configs")
    listed = source.resolve(configs) if configs is not None else None
    way = f"{WITHOUT_TUNER}, and let `tile-agent autotune` search for others"
    if not isinstance(listed, cst.List | cst.Tuple) or not listed.elements:
        raise context.refuse(call, "`@triton.autotune` whose configs are computed", way)
    first = listed.elements[0].value
    if not isinstance(first, cst.Call) or source.name(first.func) != CONFIG:
        raise context.refuse(call, "`@triton.autotune` whose configs are computed", way)
    given = argument(first, 0, "kwargs")
    if any(a.keyword and a.keyword.value == "pre_hook" for a in first.args):
        raise context.refuse(call, "a config with a `pre_hook`", "do what it does at the launch")
    if not isinstance(given, cst.Dict):
        raise context.refuse(call, "`@triton.autotune` whose configs are computed", way)
    values: dict[str, cst.BaseExpression] = {}
    for element in given.elements:
        if not isinstance(element, cst.DictElement) or not isinstance(
            element.key, cst.SimpleString
        ):
            raise context.refuse(call, "`@triton.autotune` whose configs are computed", way)
        values[_name(element)] = element.value
    context.note(
        call,
        "`@triton.autotune` becomes its first config; `tile-agent autotune` writes cuTile's search",
    )
    return values


def _heuristics(context: Context, call: cst.Call) -> dict[str, cst.Lambda]:
    table = call.args[0].value if call.args else None
    if not isinstance(table, cst.Dict):
        raise context.refuse(
            call, "`@triton.heuristics` that are no table", "write the table into the decorator"
        )
    found: dict[str, cst.Lambda] = {}
    for element in table.elements:
        if not isinstance(element, cst.DictElement) or not isinstance(
            element.key, cst.SimpleString
        ):
            raise context.refuse(
                call, "`@triton.heuristics` that are no table", "write the table out"
            )
        if not isinstance(element.value, cst.Lambda):
            raise context.refuse(
                call, "`@triton.heuristics` with a named function", "write it as a lambda"
            )
        found[_name(element)] = element.value
    return found


def _is_named(element: cst.BaseDictElement) -> bool:
    """Whether an element of a table has a string for its key."""
    return isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString)


def _name(element: cst.BaseDictElement) -> str:
    assert isinstance(element, cst.DictElement)
    assert isinstance(element.key, cst.SimpleString)
    return str(element.key.evaluated_value)
