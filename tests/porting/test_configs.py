"""The first config of a tuner, however the file makes its list."""

from __future__ import annotations

import pytest

from agent.porting import NotPortable, port

FILE = """\
import itertools

import torch
import triton
import triton.language as tl

from project import listed

{made}


@triton.autotune(configs={configs}, key=["n"])
@triton.jit
def kernel(x_ptr, y_ptr, n, BD: tl.constexpr):
    i = tl.program_id(0) * BD + tl.arange(0, BD)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def run(x, y):
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BD"]),)](x, y, x.numel())
"""
SIZES = "SIZES = (32, 64, 128)\nWARPS = range(2, 8)\n"
FUNCTION = """\
def configs(small=False):
    '''What is worth trying.'''
    sizes = [16, 32]
    return [triton.Config({'BD': 2 * b}, num_warps=w) for b in sizes for w in (2, 4)]
"""
APPENDED = """\
def listed_here():
    found = []
    for b in (8, 16):
        # for all GPUs
        for w, s in itertools.product((2, 4), (3, 4)):
            if b * s >= 48:
                found.append(triton.Config({"BD": b}, num_warps=w, num_stages=s))
    return found
"""
GIVEN = """\
def made_for(size, pre_hook=None, *, warps=(4, 8)):
    doubled = 2 * size
    if size > 128:
        return [triton.Config({'BD': 1})]
    elif pre_hook is None:
        return [
            triton.Config({'BD': doubled}, num_warps=w, pre_hook=pre_hook) for w in warps
        ]
    return []
"""
FILLED = """\
def filled(sizes, large):
    found = []
    for b in sizes:
        if b >= large:
            found.append(triton.Config({"BD": b}))
    return found
"""
KEPT = """\
def is_cuda():
    return triton.runtime.driver.active.get_current_target().backend == "cuda"

def keep(conf):
    BD = conf.kwargs["BD"]
    warps = conf.num_warps
    return not (is_cuda() and BD * warps < 128 and conf.num_stages == 3)

CONFIGS = [triton.Config({"BD": b}, num_warps=w) for b in (8, 16, 32) for w in (2, 4)]
"""


@pytest.mark.parametrize(
    ("made", "configs", "first"),
    [
        (
            "",
            '[triton.Config({"BD": bd}, num_warps=w) for bd in (32, 64, 128) for w in (2, 4, 8)]',
            "32",
        ),
        (SIZES, '[triton.Config({"BD": b}, num_warps=w) for b in SIZES for w in WARPS]', "32"),
        ("", '[triton.Config({"BD": 2**i}) for i in range(4, 8)]', "16"),
        ("", '[triton.Config({"BD": b * 2}) for b in (8, 16, 32) if b >= 16 and not b % 4]', "32"),
        ("", 'list(triton.Config({"BD": 1 << i}, num_warps=2) for i in [5, 6])', "32"),
        ("", '[triton.Config({"BD": b}, num_warps=w) for b, w in [(64, 2), (32, 4)]]', "64"),
        (
            "",
            '[triton.Config({"BD": b}) for b, w in itertools.product([64, 32], (2, 4))]',
            "64",
        ),
        ("", '[c for c in (triton.Config({"BD": 8}), triton.Config({"BD": 16}))]', "8"),
        (FUNCTION, "configs()", "32"),
        (f"{FUNCTION}\n\nCONFIGS = configs()\n", "CONFIGS", "32"),
        ('ONE = [triton.Config({"BD": 4})]\nTWO = [triton.Config({"BD": 8})]', "ONE + TWO", "4"),
        ('# one\nONE = [\n    # best\n    triton.Config({"BD": 4}),\n]', "[*ONE]", "4"),
        (APPENDED, "listed_here()", "16"),
        ("TABLE = {'BD': 4}\nONE: list = [triton.Config(TABLE)]", "ONE", "4"),
        (FUNCTION, "configs(True)", "32"),
        (GIVEN, "made_for(64)", "128"),
        (GIVEN, "made_for(size=2**4, pre_hook=None)", "32"),
        (GIVEN, "made_for(256)", "1"),
        (FILLED, "filled([16, 64, 128], large=32)", "64"),
        (KEPT, "list(filter(keep, CONFIGS))", "32"),
        (KEPT, "[c for c in CONFIGS if keep(c)]", "32"),
        (
            'LIST = [triton.Config({"BD": b}, w) for b in (8, 16) for w in (2, 4)]',
            'list(filter(lambda c: c.kwargs["BD"] > 8 and c.num_warps > 2, LIST))',
            "16",
        ),
    ],
)
def test_the_first_is_taken(made: str, configs: str, first: str) -> None:
    text = port(FILE.format(made=made, configs=configs), "k.py").text
    assert f"(flat(x), flat(y), x.numel(), {first}))" in text
    assert "Config" not in text
    assert ("import itertools" in text) is ("itertools" not in configs + made)
    assert "# best" not in text
    assert "def configs" not in text and "def keep" not in text and "def is_cuda" not in text


@pytest.mark.parametrize(
    ("made", "configs", "why"),
    [
        ("", "listed()", "`listed()` calls what is not in the file"),
        ("", "listed", "`listed` is of another file"),
        (FUNCTION, "configs(True, 2)", "`configs(True, 2)` is given arguments that are not told"),
        (FUNCTION, "configs(*SIZES)", "is given arguments that are not told apart"),
        (GIVEN, "made_for()", "`made_for()` does not give `size`"),
        (GIVEN, "made_for(listed)", "`listed` is of another file"),
        (GIVEN, "made_for(8, pre_hook=listed)", "`listed` is of another file"),
        ("def again(n):\n    return again(n)", "again(1)", "`again(n)` calls itself"),
        (KEPT.replace("< 128", "< 999"), "list(filter(keep, CONFIGS))", "`triton.runtime.driver."),
        (
            "def changed(n):\n    n = n + 1\n    return [triton.Config({'BD': n})]",
            "changed(1)",
            "`n` is assigned 2 times",
        ),
        ("ONE = []", "ONE", "`ONE` is empty"),
        (APPENDED.replace("found.append", "listed(found).append"), "listed_here()", "filled"),
        (
            APPENDED.replace("            if", "            if w: continue\n            if"),
            "listed_here()",
            "`found` is filled in a way that is not read, in line 11",
        ),
        (
            "if listed:\n    ONE = triton.Config({})\nelse:\n    ONE = triton.Config({})",
            "[ONE]",
            "`ONE` is assigned 2 times",
        ),
        ("", '[triton.Config({"BD": b}) for b in (2 * listed,)]', "`listed` is of another file"),
        (
            "ONE = [triton.Config({})]\nONE.insert(0, 1)",
            "ONE",
            "`ONE` is changed by `.insert()`",
        ),
        ("ONE = [1]\nONE = [2]", "ONE", "`ONE` is assigned 2 times"),
        ("", "[1]", "`1` is no `triton.Config`"),
        (
            "",
            '[triton.Config({"BD": b}) for b in (8, 16) if listed(b)]',
            "`listed(b)` is not a value that the file spells out",
        ),
        ("", '[triton.Config({"BD": 2**b}) for b in (99,)]', "`2**b` is no small power"),
        ("", '[triton.Config({"BD": 8 // b}) for b in (0,)]', "`8 // b` fails"),
        ("", "[triton.Config(kwargs=listed)]", "no table with strings for its keys"),
        ("", '[triton.Config({"BD": 8}, pre_hook=listed)]', "a config with a `pre_hook`"),
    ],
)
def test_what_cannot_be_read_is_named(made: str, configs: str, why: str) -> None:
    with pytest.raises(NotPortable) as refused:
        port(FILE.format(made=made, configs=configs), "k.py")
    assert why in str(refused.value)
    assert "`tile-agent autotune` search" in str(refused.value) or "hook" in why


def test_a_list_that_is_read_elsewhere_is_refused() -> None:
    made = 'ONE = [triton.Config({"BD": 4})]\nprint(ONE)'
    with pytest.raises(NotPortable, match=r"`triton\.Config` in host code"):
        port(FILE.format(made=made, configs="ONE"), "k.py")
