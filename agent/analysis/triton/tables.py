"""Tables that configs and heuristics have: `{"BLOCK": 64}`, or `dict(BLOCK=64)`."""

from __future__ import annotations

import libcst as cst

from agent.syntax import Source, argument

HEURISTICS = "triton.heuristics"


def constants_of(
    source: Source, given: cst.BaseExpression
) -> dict[str | None, cst.BaseExpression] | None:
    """What `{"BLOCK": 64}` or `dict(BLOCK=64)` sets, None for a name that it computes."""
    match given:
        case cst.Dict(elements=elements):
            return {
                str(element.key.raw_value)
                if isinstance(element, cst.DictElement)
                and isinstance(element.key, cst.SimpleString)
                else None: element.value
                for element in elements
            }
        case cst.Call(func=function, args=args) if source.name(function) == "builtins.dict":
            return {arg.keyword.value if arg.keyword else None: arg.value for arg in args}
    return None


def computed_by(
    source: Source, decorator: cst.BaseExpression
) -> dict[str | None, cst.BaseExpression] | None:
    """What `triton.heuristics(...)` computes: name -> function, None for a name that is not shown.

    None where it is no such decorator, or its table stands elsewhere.
    """
    if not isinstance(decorator, cst.Call) or source.name(decorator.func) != HEURISTICS:
        return None
    table = argument(decorator, 0, "values")
    return constants_of(source, table) if table is not None else None
