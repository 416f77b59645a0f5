"""Kernels that call functions which their file does not show: nothing is said of their work."""

from __future__ import annotations

import pytest

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.unseen import unseen_calls
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.kinds import Kind
from agent.analysis.triton.kinds import classify as kinds
from agent.backends import BACKENDS
from agent.syntax import Source

HEAD = "import triton\nimport triton.language as tl\n"
KERNEL = """
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c_ptr + o, {value}, mask=o < n)
"""


def written(imports: str, value: str) -> Source:
    return Source(HEAD + imports + KERNEL.format(value=value))


@pytest.mark.parametrize(
    ("imports", "value"),
    [
        ("from ops import mm\n", "mm(a_ptr, b_ptr, n, BLOCK)"),
        ("from .ops import mm as product\n", "product(a_ptr, b_ptr, n, BLOCK)"),
        ("from package.ops import Ops\n", "Ops.mm(a_ptr, b_ptr, n, BLOCK)"),
        ("import ops\n", "ops.mm(a_ptr, b_ptr, n, BLOCK)"),
        ("from ops import *\n", "mm(a_ptr, b_ptr, n, BLOCK)"),
    ],
)
def test_an_imported_helper_may_multiply(imports: str, value: str) -> None:
    source = written(imports, value)
    found = BACKENDS["triton"].classify(source)
    assert found.kernel_class is KernelClass.BALANCED
    assert not any("no dot" in line for line in found.evidence)
    name = value.partition("(")[0]
    assert any(f"`{name}` is not of this file" in line for line in found.evidence)
    (kind,) = kinds(source)
    assert kind.kind is Kind.UNKNOWN
    assert value in kind.indicators[0]


@pytest.mark.parametrize(
    ("call", "multiplies"),
    [
        ("language.dot(tl.trans(x), x)", True),
        ("_dot_ieee(x, x)", True),
        ("language.scaled_mma(x, x)", True),
        ("language.dotted(x, x)", False),
        ("language.silu(x)", False),
    ],
)
def test_a_product_of_loaded_tiles_is_known_by_its_name(call: str, multiplies: bool) -> None:
    """As trident's attention, which was called norm-like and bound by memory for its sums."""
    value = f"tl.sum({call}, 1)"
    text = HEAD + "from package import language\n" + KERNEL.format(value=value)
    load = "    x = tl.load(a_ptr + o[:, None] * n + o[None, :])\n    tl.store"
    source = Source(text.replace("    tl.store", load))
    found = BACKENDS["triton"].classify(source).kernel_class
    assert found is (KernelClass.BALANCED if multiplies else KernelClass.MEMORY)
    assert (kinds(source)[0].kind is Kind.UNKNOWN) == multiplies


@pytest.mark.parametrize(
    ("imports", "value"),
    [
        ("", "tl.load(a_ptr + o, mask=o < n)"),
        ("", "tl.load(a_ptr + o, mask=o < n).to(tl.float32)"),
        ("", "tl.exp(tl.load(a_ptr + o, mask=o < n))"),
        ("from triton.language.extra.libdevice import exp\n", "exp(tl.load(a_ptr + o))"),
        ("from package.utils import tl, libdevice\n", "libdevice.exp(tl.load(a_ptr + o))"),
        ("import math\n", "tl.load(a_ptr + o) * math.sqrt(2.0)"),
        ("", "tl.load(a_ptr + o) * max(n, 1)"),
        ("from ops import swizzled\n", "tl.load(a_ptr + swizzled(o, n))"),
        ("exp = tl.exp\n", "exp(tl.load(a_ptr + o))"),
    ],
)
def test_what_is_known_or_gives_only_places(imports: str, value: str) -> None:
    source = written(imports, value)
    assert BACKENDS["triton"].classify(source).kernel_class is KernelClass.MEMORY
    assert not unseen_calls(TRITON, source, TRITON.kernels(source)[0])
    (kind,) = kinds(source)
    assert kind.kind in (Kind.MOVEMENT, Kind.ELEMENT_WISE)


def test_a_helper_of_the_file_calls_it() -> None:
    helper = "\n@triton.jit\ndef own(p, n):\n    y = mm(p, n)\n    return y\n"
    source = written(f"from ops import mm\n{helper}", "own(a_ptr, n)")
    assert BACKENDS["triton"].classify(source).kernel_class is KernelClass.BALANCED


@pytest.mark.parametrize("call", ["gelu(tl.load(a_ptr + o))", "dropped(tl.load(a_ptr + o), n)"])
def test_one_of_tiles_alone_is_of_each_element(call: str) -> None:
    """As the activations that TileGym's and attorch's kernels import."""
    source = written("from ops import dropped, gelu\n", call)
    found = BACKENDS["triton"].classify(source)
    assert found.kernel_class is KernelClass.MEMORY
    assert "as far as this file shows" in found.evidence[0]
    name = call.partition("(")[0]
    assert found.evidence[1].endswith(
        f"`{name}` is not of this file: what it does to tiles is not counted"
    )


def test_what_is_handed_over_to_be_called() -> None:
    text = KERNEL.format(value="act(tl.load(a_ptr + o))").replace("n, BLOCK", "n, act, BLOCK")
    found = BACKENDS["triton"].classify(Source(HEAD + text))
    assert any("`act` is not of this file" in line for line in found.evidence)


def test_a_dot_in_sight_is_enough() -> None:
    text = KERNEL.format(value="mm(tl.dot(tl.load(a_ptr), tl.load(b_ptr)))")
    (kind,) = kinds(Source(f"{HEAD}from ops import mm\n{text}"))
    assert kind.kind is Kind.DOT


def test_cutile() -> None:
    text = """
import cuda.tile as ct
from ops import mm

@ct.kernel
def kernel(a, b, c, n: ct.Constant[int]):
    ct.store(c, (0, 0), mm(a, b, n).astype(c.dtype))
"""
    found = BACKENDS["cutile"].classify(Source(text))
    assert found.kernel_class is KernelClass.BALANCED
    assert "`mm` is not of this file" in found.evidence[1]
