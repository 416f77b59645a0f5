"""Decorators of a kernel: configs to choose from, and parameters that are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from agent.analysis.triton.tables import HEURISTICS, computed_by, constants_of
from agent.porting.config_values import CONFIG, UnreadConfig
from agent.porting.configs import ConfigReader
from agent.porting.context import Context
from agent.syntax import Function, Source, argument

JIT = "triton.jit"
AUTOTUNE = "triton.autotune"
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


def is_tuner(source: Source, decorator: cst.Decorator) -> bool:
    """Whether a decorator chooses among configs."""
    call = decorator.decorator
    return isinstance(call, cst.Call) and source.name(call.func) == AUTOTUNE


def _instead(name: str, call: cst.Call | None) -> str:
    """What to do about a decorator: the launches may need what an autotuner gives them."""
    given = [a.keyword.value for a in call.args if a.keyword is not None] if call else []
    if "tune" in name.rpartition(".")[2].lower() or "configs" in given:
        return f"{WITHOUT_TUNER}, and take it off the kernel"
    if name == "staticmethod":
        return "make the kernel a function of the module"
    return "take it off the kernel, and write what it gives to the launches into them"


def _first_config(context: Context, call: cst.Call) -> dict[str, cst.BaseExpression]:
    """What the first of the configs gives to the launches.

    Raises:
        NotPortable: it cannot be read off the file, or does more than give values.
    """
    source, configs = context.source, argument(call, 0, "configs")
    try:
        if configs is None:
            raise UnreadConfig("there are none")
        reader = ConfigReader(source)
        first = reader.first(configs)
        config = first.node
        if not isinstance(config, cst.Call) or source.name(config.func) != CONFIG:
            raise UnreadConfig(f"`{source.code(config)}` is no `triton.Config`")
        if any(each.star for each in config.args):
            raise UnreadConfig(f"`{source.code(config)}` has arguments with `*`")
        hook = argument(config, 5, "pre_hook")
        if hook is not None and source.code(reader.behind(first.of(hook)).node) != "None":
            raise context.refuse(
                call, "a config with a `pre_hook`", "do what it does at the launch"
            )
        given = argument(config, 0, "kwargs")
        table = reader.behind(first.of(given)) if given is not None else first
        constants = constants_of(source, table.node)
        if constants is None or None in constants:
            raise UnreadConfig("its first config has no table with strings for its keys")
        values = {
            name: reader.written(table.of(value))
            for name, value in constants.items()
            if name is not None
        }
    except UnreadConfig as unread:
        raise context.refuse(
            call, "`@triton.autotune` whose configs are computed",
            f"{WITHOUT_TUNER}, and let `tile-agent autotune` search for others", str(unread),
        ) from None  # fmt: skip
    context.note(
        call,
        "`@triton.autotune` becomes its first config; `tile-agent autotune` writes cuTile's search",
    )
    return values


def _heuristics(context: Context, call: cst.Call) -> dict[str, cst.Lambda]:
    table = computed_by(context.source, call)
    if table is None:
        raise context.refuse(
            call, "`@triton.heuristics` that are no table", "write the table into the decorator"
        )
    found: dict[str, cst.Lambda] = {}
    for name, function in table.items():
        if name is None:
            raise context.refuse(
                call, "`@triton.heuristics` that are no table", "write the table out"
            )
        if not isinstance(function, cst.Lambda):
            raise context.refuse(
                call, "`@triton.heuristics` with a named function", "write it as a lambda"
            )
        found[name] = function
    return found
