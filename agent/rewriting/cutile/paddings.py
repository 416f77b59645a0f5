"""What a load pads with, where a gather names a value."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.index_runs import NotRegular
from agent.analysis.common.reaching_definitions import value_of
from agent.syntax import Source, keyword

INFINITIES = ("math.inf", "numpy.inf", "torch.inf")
NANS = ("math.nan", "numpy.nan", "torch.nan")


def padding_mode(source: Source, call: cst.Call, ct: str) -> str:
    """The padding mode that stands for a gather's padding value."""
    given = keyword(call, "padding_value")
    mode = _mode(source, value_of(source, given)) if given is not None else "ZERO"
    if given is not None and mode is None:
        raise NotRegular(f"no padding mode is `{source.code(given)}`")
    return f"padding_mode={ct}.PaddingMode.{mode}"


def _mode(source: Source, value: cst.BaseExpression) -> str | None:
    match value:
        case cst.Integer() | cst.Float():
            return "ZERO" if value.evaluated_value == 0 else None
        case cst.UnaryOperation(operator=cst.Minus(), expression=inner):
            negated = {"ZERO": "NEG_ZERO", "POS_INF": "NEG_INF", "NAN": "NAN"}
            return negated.get(_mode(source, inner) or "")
        case cst.Call(args=[cst.Arg(value=cst.SimpleString() as text)]):
            if source.name(value.func) in ("float", "builtins.float"):
                words = {"inf": "POS_INF", "-inf": "NEG_INF", "nan": "NAN"}
                return words.get(str(text.evaluated_value).lower())
        case cst.Name() | cst.Attribute():
            named = source.name(value)
            return "POS_INF" if named in INFINITIES else "NAN" if named in NANS else None
    return None
