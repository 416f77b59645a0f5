"""What cuda.tile offers, as data: lint has to answer on a machine that lacks it.

`cutile_api.json` is made of an installed cuda.tile by `python -m tools.cutile_api`, and
`tests/lint/test_api.py` says when it is stale.
"""

from __future__ import annotations

import ast
import inspect
import json
from functools import cache
from pathlib import Path

_READ = json.loads(Path(__file__).with_name("cutile_api.json").read_text(encoding="utf-8"))

VERSION = ".".join(_READ["cuda_tile"].split(".")[:2])
"""The release of cuda-tile that the tables were read from, such as '1.7'."""
RESULT = frozenset(_READ["result"])
"""What a TuningResult has."""
MEASUREMENT = frozenset(_READ["measurement"])
"""What its `best` has."""
ARRAY, TILE = (frozenset(_READ["members"][kind]) for kind in ("Array", "Tile"))
"""What an array of a kernel has, and what a tile has."""
HINTS = tuple(_READ["hints"])
"""The compiler options of a kernel."""
BUILTINS = frozenset(
    {
        "abs", "bool", "divmod", "float", "getattr", "int", "len", "max", "min", "print", "range",
        "repr", "str", "tuple",
    }
)  # fmt: skip
"""The functions of Python that a kernel may call."""


@cache
def signatures() -> dict[str, inspect.Signature]:
    """Function of cuda.tile, 'load' or 'tune.exhaustive_search' -> how it is called.

    A default is 0, whatever it is.
    """
    return {name: _signature(shape) for name, shape in _READ["signatures"].items()}


@cache
def names() -> frozenset[str]:
    """Every public name below cuda.tile, submodules' by their dotted names."""
    return frozenset(_READ["names"])


def _signature(shape: str) -> inspect.Signature:
    (definition,) = ast.parse(f"def call{shape}: ...").body
    assert isinstance(definition, ast.FunctionDef)
    given = definition.args
    plain = [*given.posonlyargs, *given.args]
    required = len(plain) - len(given.defaults)
    parameters = [
        inspect.Parameter(
            argument.arg,
            inspect.Parameter.POSITIONAL_ONLY
            if number < len(given.posonlyargs)
            else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if number < required else 0,
        )
        for number, argument in enumerate(plain)
    ]
    if given.vararg is not None:
        parameters.append(inspect.Parameter(given.vararg.arg, inspect.Parameter.VAR_POSITIONAL))
    for argument, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        default = inspect.Parameter.empty if value is None else 0
        parameters.append(
            inspect.Parameter(argument.arg, inspect.Parameter.KEYWORD_ONLY, default=default)
        )
    return inspect.Signature(parameters)
