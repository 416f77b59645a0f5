"""A file that does without Triton where there is none is ported as with it."""

from __future__ import annotations

import pytest

from agent.porting import NotPortable, port

BODY = """\


@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i))


def run(x, y):
    assert HAVE_TRITON
    kernel[(triton.cdiv(x.numel(), 8),)](x, y, BLOCK=8)
"""
GUARDED = """\
import torch

try:
    import triton
    import triton.language as tl

    HAVE_TRITON = True
except ImportError:
    from unittest.mock import MagicMock

    triton = MagicMock()
    triton.jit = lambda function: function
    tl = MagicMock()
    HAVE_TRITON = False
"""
VERSIONED = """\
from unittest.mock import MagicMock

import torch

try:
    import triton
    import triton.language as tl

    if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 4):
        HAVE_TRITON = False
    else:
        HAVE_TRITON = tl.constexpr(triton.__version__ >= "2.0.0")
except (ImportError, ModuleNotFoundError):
    HAVE_TRITON = False

if not HAVE_TRITON:
    triton = MagicMock()
    triton.jit = lambda function: function
    tl = MagicMock()
"""
OTHERS = """\
import torch

try:
    import triton
    import triton.language as tl
    from fractions import Fraction

    HAVE_TRITON = True
except ImportError:
    triton = tl = None
    HAVE_TRITON = False
"""


@pytest.mark.parametrize("head", [GUARDED, VERSIONED, OTHERS], ids=["plain", "version", "others"])
def test_it_is_ported_as_with_triton(head: str) -> None:
    made = port(head + BODY, "k.py")
    assert "triton" not in made.text.replace("HAVE_TRITON", "").replace("Ported from Triton by", "")
    before = made.text.partition("@ct.kernel")[0]
    found: dict[str, object] = {}
    exec(before.replace("import cuda.tile as ct", "").replace("import torch", ""), found)
    assert found["HAVE_TRITON"] is True
    assert ("try:" in before) is (head is OTHERS)


def test_nothing_else_is_left_of_a_guard() -> None:
    text = port(GUARDED + BODY, "k.py").text
    assert "\nHAVE_TRITON = True\n\n\n@ct.kernel\n" in text
    assert "MagicMock" not in text


def test_a_version_is_noted() -> None:
    notes = port(VERSIONED + BODY, "k.py").notes
    assert notes["`triton.__version__` is taken to be 3.6.0"] == (9, 12)


def test_what_needs_triton_in_a_guard_is_refused_all_the_same() -> None:
    text = GUARDED.replace("HAVE_TRITON = True", "HAVE_TRITON = triton.runtime.driver.active")
    with pytest.raises(NotPortable, match=r"`triton\.runtime\.driver\.active` in host code"):
        port(text + BODY, "k.py")


def test_a_helper_for_each_triton_is_refused() -> None:
    helper = "    @triton.jit\n    def double(x):\n        return 2 * x\n"
    text = f"{GUARDED}\n\nif HAVE_TRITON:\n\n{helper}\nelse:\n\n{helper}{BODY}"
    with pytest.raises(NotPortable, match="a function that is defined twice"):
        port(text, "k.py")


def test_what_only_looks_like_a_guard_stays() -> None:
    added = "\n\ndef length(x):\n    try:\n        tl = x.shape[0]\n    finally:\n        x.sum()\n"
    added += "    return tl\n"
    assert added.strip() in port(GUARDED + BODY + added, "k.py").text
