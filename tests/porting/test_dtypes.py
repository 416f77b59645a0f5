"""The tables of types are those of the languages that are installed."""

import itertools
from typing import Any

import cuda.tile as ct
import pytest
from cuda.tile._ir import ops_utils
from cuda.tile._ir.type import LooselyTypedScalar
from triton.language import core as tl
from triton.language.semantic import TritonSemantic

from agent.porting import dtypes

SEMANTIC: Any = TritonSemantic(None)
OF_TRITON = {tile: getattr(tl, name) for name, tile in dtypes.OF_TRITON.items()}
TO_TILE = {kind: name for name, kind in OF_TRITON.items()}
PAIRS = list(itertools.product(dtypes.ALL, dtypes.ALL))
DIVIDES = pytest.mark.parametrize("divides", [False, True])


def asked_of_triton(a: Any, a_scalar: bool, b: Any, divides: bool) -> str:
    try:
        return TO_TILE[SEMANTIC.computation_type_impl(a, a_scalar, b, False, divides)]
    except TypeError:
        return dtypes.ERROR


def asked_of_tile(a: Any, b: Any, divides: bool) -> str:
    try:
        found = ops_utils.promote_dtypes(a, b, force_float=divides)
    except ct.TileError:
        return dtypes.ERROR
    return next(name for name in dtypes.ALL if getattr(ct, name) == found)


@DIVIDES
def test_triton_computes_two_types_in(divides: bool) -> None:
    for a, b in PAIRS:
        expected = asked_of_triton(OF_TRITON[a], False, OF_TRITON[b], divides)
        assert dtypes.triton_type(a, b, divides=divides) == expected, (a, b)


@DIVIDES
def test_cutile_computes_two_types_in(divides: bool) -> None:
    for a, b in PAIRS:
        expected = asked_of_tile(getattr(ct, a), getattr(ct, b), divides)
        assert dtypes.tile_type(a, b, divides=divides) == expected, (a, b)


@pytest.mark.parametrize("constant", [True, 3, 2.5], ids=str)
def test_a_constant_yields_alike_in_both(constant: Any) -> None:
    """So that constants need no type in the port."""
    kind = SEMANTIC.to_tensor_type(constant)
    for b in dtypes.ALL:
        in_triton = asked_of_triton(kind, True, OF_TRITON[b], False)
        assert asked_of_tile(LooselyTypedScalar(constant), getattr(ct, b), False) == in_triton, b
