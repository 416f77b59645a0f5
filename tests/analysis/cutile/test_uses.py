"""What a cuTile kernel does with its parameters, through its helpers."""

from __future__ import annotations

from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.uses import Uses
from agent.syntax import Source

TEXT = """\
import cuda.tile as ct


def put(out, tile):
    target = out
    ct.store(target, index=(ct.bid(0),), tile=tile)


def place(target, tile):
    put(target, tile)


def value(array):
    return ct.load(array, index=(ct.bid(0),), shape=(64,))


@ct.kernel
def kernel(x, y, z, w, v):
    tile = value(x)
    put(y, tile)
    place(z, tile)
    place(w, value(v))
"""
LISTED = """\
import cuda.tile as ct


def put(outs, number, tile):
    ct.store(outs[number], index=(ct.bid(0),), tile=tile)


@ct.kernel
def kernel(x, outs, first, second):
    tile = ct.load(x, index=(ct.bid(0),), shape=(64,))
    put(outs, first, tile)
    put(outs, second, tile)
"""


def test_a_helper_may_be_given_one_array_and_then_another() -> None:
    source = Source(TEXT)
    (kernel,) = CUTILE.kernels(source)
    uses = Uses(source, kernel)
    assert uses.stored == {"y", "z", "w"}
    assert uses.loaded == {"x", "v"}
    assert uses.arrays == {"x", "y", "z", "w", "v"}
    assert [uses.ndim(name) for name in "xyzwv"] == [1] * 5
    assert not uses.stores_elsewhere


def test_the_number_of_a_list_s_array_is_no_array() -> None:
    source = Source(LISTED)
    (kernel,) = CUTILE.kernels(source)
    uses = Uses(source, kernel)
    assert uses.stored == {"outs"} and uses.lists == {"outs"}
    assert uses.arrays == {"x", "outs"}
