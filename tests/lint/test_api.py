"""The tables of cuda.tile's names are those of the cuda.tile that is installed."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("cuda.tile")

import cuda.tile as ct
from cuda.tile import compilation, tune

from agent.lint import api

Shape = list[tuple[str, inspect._ParameterKind, bool]]


def shape(signature: inspect.Signature) -> Shape:
    """What decides whether a call fits."""
    return [
        (p.name, p.kind, p.default is not inspect.Parameter.empty)
        for p in signature.parameters.values()
    ]


def test_names() -> None:
    installed = {*ct.__all__, *(f"tune.{n}" for n in tune.__all__)}
    installed |= {f"compilation.{n}" for n in compilation.__all__}
    assert api.names() == installed


@pytest.mark.parametrize("name", sorted(api.signatures()))
def test_signatures(name: str) -> None:
    function = tune.exhaustive_search if name.startswith("tune.") else getattr(ct, name)
    if name == "kernel":
        wanted = shape(inspect.signature(ct.kernel.__init__))[1:]
        assert tuple(n for n, kind, _ in wanted if kind is inspect.Parameter.KEYWORD_ONLY) == (
            api.HINTS
        )
    else:
        wanted = shape(inspect.signature(function))
    assert shape(api.signatures()[name]) == wanted


def test_every_function_has_its_signature() -> None:
    functions = {n for n in ct.__all__ if inspect.isroutine(getattr(ct, n))}
    assert functions <= api.signatures().keys()


def test_results() -> None:
    assert set(tune.TuningResult.__dataclass_fields__) | {"summary"} == set(api.RESULT)
    assert set(tune.Measurement.__dataclass_fields__) == set(api.MEASUREMENT)
