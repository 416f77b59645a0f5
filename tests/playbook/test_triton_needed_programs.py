"""needed-programs: which programs store nothing, that results stay, and what refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.idle_programs import needs_of
from agent.launches import ObservedLaunch
from agent.proposers.playbook import edited as laid_out
from tests.support.rewriting import subject
from tests.support.triton_numbers import disagreement

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

ENTRY = playbook.get("needed-programs")
SHAPES = [[[3, 40]], [[5, 77]], [[1, 1]], [[64, 2]]]
GIVEN = {"n": 6000, "rows": 60, "cols": 100, "step": 100, "first": 0, "BLOCK": 16}


def file(
    body: str, *, grid: str = "(n,)", host: str = "", launch: str = "k[{grid}]", wrap: str = ""
) -> str:
    """A kernel of a few lines, and a caller that launches a program for each element."""
    return f"""\
import torch
import triton
import triton.language as tl


{wrap}@triton.jit
def k(x_ptr, y_ptr, n, rows, cols, step, first, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
{body}

def f(x):
    y = torch.zeros_like(x)
    n = x.numel()
    block = 16
{host}
    {launch.format(grid=grid)}(x, y, n, x.shape[0], x.shape[1], x.stride(0), 0, BLOCK=block)
    return y
"""


def seen(text: str, *grid: int) -> Subject:
    """A file as its tests were seen to launch it."""
    launch = ObservedLaunch("k", "test", grid or (6000,), GIVEN, {}, {})
    return replace(subject(text), launches=(launch,))


def refusal(text: str, *grid: int) -> str:
    with pytest.raises(NotApplicable) as refused:
        ENTRY.variants(seen(text, *grid))
    return str(refused.value)


FIXED = "1, 1, 1, 0, 16"
COPY = "    x = tl.load(x_ptr + at, mask=at < n)\n    tl.store(y_ptr + at, 2 * x, mask={mask})\n"
AT = "    at = pid * BLOCK + tl.arange(0, BLOCK)\n"
PLAIN = AT + COPY.format(mask="at < n")
ROW = "    at = pid * step + tl.arange(0, BLOCK)\n"
TWO = """\
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = pid * 2 + tl.arange(0, 2)
    mask = (row < rows)[:, None] & (at < cols)[None, :]
    x = tl.load(x_ptr + row[:, None] * step + at[None, :], mask=mask)
    tl.store(y_ptr + row[:, None] * step + at[None, :], x + 1.0, mask=mask)
"""
LOOP = """\
    row = pid * 2 + tl.arange(0, 2)[:, None]
    for begin in range(0, cols, BLOCK):
        at = begin + tl.arange(0, BLOCK)[None, :]
        mask = (at < cols) & (row < rows)
        x = tl.load(x_ptr + row * step + at, mask=mask)
        tl.store(y_ptr + row * step + at, x + 1.0, mask=mask)
"""
FLAT = """\
    for part in range(2):
        at = pid * (2 * BLOCK) + part * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 3.0, mask=at < n)
"""
TUNED = '@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=[])\n'


@pytest.mark.parametrize(
    ("text", "written"),
    [
        pytest.param(file(PLAIN), "min(n, triton.cdiv(n, block))", id="a block"),
        pytest.param(
            file(PLAIN.replace("pid *", "pid.to(tl.int64) *")),
            "min(n, triton.cdiv(n, block))",
            id="in 64 bits",
        ),
        pytest.param(
            file(PLAIN.replace("at < n)\n", "n > at)\n")),
            "min(n, triton.cdiv(n, block))",
            id="turned around",
        ),
        pytest.param(
            file(AT + COPY.format(mask="at <= n - 1")),
            "min(n, triton.cdiv(n, block))",
            id="or equal",
        ),
        pytest.param(
            file(AT + COPY.format(mask="(at < n) & (at % 2 == 0)")),
            "min(n, triton.cdiv(n, block))",
            id="one of two conditions",
        ),
        pytest.param(
            file(AT + "    if pid * BLOCK >= n:\n        return\n" + COPY.format(mask="at < n")),
            "min(n, triton.cdiv(n, block))",
            id="a program that leaves",
        ),
        pytest.param(
            file(
                "    if pid < rows:\n        at = pid * step + tl.arange(0, BLOCK)\n"
                "        tl.store(y_ptr + at, 1.0, mask=tl.arange(0, BLOCK) < cols)\n"
            ),
            "min(n, triton.cdiv(x.shape[0], 1))",
            id="under a condition",
        ),
        pytest.param(
            file(ROW + COPY.format(mask="at < n")),
            "min(n, triton.cdiv(n, x.stride(0))) if x.stride(0) > 0 else n",
            id="by a stride",
        ),
        pytest.param(
            file(AT.replace("tl.arange", "first + tl.arange") + COPY.format(mask="at < n")),
            "min(n, triton.cdiv(n - 0, block))",
            id="from a number on",
        ),
        pytest.param(
            file(TWO, grid="(n, x.shape[1])"),
            "min(n, max(triton.cdiv(x.shape[0], 2), 0)), "
            "min(x.shape[1], max(triton.cdiv(x.shape[1], block), 0)),",
            id="two axes",
        ),
        pytest.param(file(LOOP), "min(n, triton.cdiv(x.shape[0], 2))", id="in a loop"),
        pytest.param(file(FLAT), "min(n, triton.cdiv(n, 2 * block))", id="by a counter"),
        pytest.param(
            file(PLAIN, grid="grid", host="    grid = (n,)"),
            "k[(min(n, triton.cdiv(n, block)),)]",
            id="a grid with a name",
        ),
        pytest.param(
            file(PLAIN, grid="grid", host="    grid = lambda meta: (n,)"),
            "k[lambda meta: (min(n, triton.cdiv(n, block)),)]",
            id="a function of the launch",
        ),
        pytest.param(
            file(PLAIN, grid="lambda meta: (n,)", wrap=TUNED).replace(", BLOCK=block)", ")"),
            'min(n, triton.cdiv(n, meta["BLOCK"]))',
            id="a block of a config",
        ),
        pytest.param(
            file(PLAIN, grid="grid", host=f"    grid = (n,)\n    k[grid](x, y, n - 5, {FIXED})"),
            "k[(min(n, triton.cdiv((n - 5), 16)),)]",
            id="one of two launches",
        ),
        pytest.param(
            file(PLAIN, grid="(n if n > 7 else 7,)"),
            "min(n if n > 7 else 7, triton.cdiv(n, block))",
            id="an extent on a condition",
        ),
        pytest.param(
            file(PLAIN + "    tl.store(y_ptr + BLOCK + at, 1.0, mask=at + BLOCK < n)\n"),
            "min(n, max(triton.cdiv(n, block), triton.cdiv(n - block, block)))",
            id="two stores",
        ),
        pytest.param(
            file(PLAIN + "    tl.store(y_ptr + at, 1.0, mask=at + 1 < n)\n"),
            "min(n, triton.cdiv(n, block))",
            id="two stores of which one needs more",
        ),
        pytest.param(
            file(AT + "    tl.atomic_add(y_ptr + at, 1.0, mask=at < n)\n"),
            "min(n, triton.cdiv(n, block))",
            id="an atomic",
        ),
    ],
)  # fmt: skip
def test_the_grid_is_bounded_and_results_stay(text: str, written: str, tmp_path: Path) -> None:
    new = laid_out(ENTRY, seen(text, 6000, 100), {})
    assert written in " ".join(new.split()).replace("( ", "(").replace(", )", ",)"), new
    assert disagreement("f", SHAPES, text, [new], False, tmp_path) == ""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(file(AT + COPY.format(mask="at >= 0")), id="a bound from below"),
        pytest.param(file(AT + COPY.format(mask="(at < n) | (at > 5)")), id="one of two"),
        pytest.param(file(AT + COPY.format(mask="(at < n) == 0")), id="the contrary"),
        pytest.param(file(PLAIN + "    tl.store(y_ptr + pid, 1.0)\n"), id="a store without"),
        pytest.param(
            file(PLAIN.replace("pid * BLOCK +", "(rows - pid) * BLOCK +")), id="downwards"
        ),
        pytest.param(file(PLAIN.replace("+ tl.arange", "- tl.arange")), id="a run downwards"),
        pytest.param(file(PLAIN.replace("pid * BLOCK", "pid % 4 * BLOCK")), id="round and round"),
        pytest.param(
            file(
                AT + "    to = tl.arange(0, BLOCK)\n"
                "    mask = (at[:, None] - to[None, :] < step) & (at[:, None] >= to[None, :])\n"
                "    tl.store(y_ptr + at[:, None] * 0 + to[None, :] * 0, 1.0, mask=mask)\n"
            ),
            id="two runs that take from each other",
        ),
        pytest.param(
            file(
                "    first = 0\n    for i in tl.static_range(2):\n        if i == 0:\n"
                "            at = i\n        tl.store(y_ptr + pid, 1.0, mask=pid + at - i < n)\n"
            ),
            id="a variable of an earlier round",
        ),
        pytest.param(file(AT + COPY.format(mask="at < n.to(tl.int32)")), id="a length that is cut"),
        pytest.param(
            file(PLAIN.replace("tl.arange(0,", "tl.load(x_ptr).to(tl.int32) + tl.arange(0,")),
            id="by what is loaded",
        ),
        pytest.param(
            file(AT + "    if n > 3:\n        n = n * 2\n" + COPY.format(mask="at < n")),
            id="a length that changes",
        ),
        pytest.param(
            file("    at = tl.arange(0, BLOCK)\n    if pid >= rows:\n        x_ptr += 1\n"
                 + COPY.format(mask="at < n")),
            id="a branch that goes on",
        ),
        pytest.param(
            file("    at = tl.arange(0, BLOCK)\n    if pid < rows:\n        x_ptr += 1\n    else:\n"
                 "        tl.store(y_ptr + at, 1.0, mask=at < n)\n"),
            id="the other branch",
        ),
        pytest.param(
            file("    at = tl.arange(0, BLOCK)\n    if (pid >= rows) and (n > 3):\n"
                 "        return\n" + COPY.format(mask="at < n")),
            id="a return under two conditions",
        ),
        pytest.param(
            file("    for part in range(4, -4, -1):\n        at = (pid + part) * BLOCK\n"
                 "        tl.store(y_ptr + at, 1.0, mask=at < n)\n"),
            id="a counter that goes down",
        ),
    ],
)  # fmt: skip
def test_a_store_that_nothing_bounds(text: str) -> None:
    assert "stores under no condition that bounds a program's number" in refusal(text)


HELPER = "@triton.jit\ndef put(y_ptr, at):\n    tl.store(y_ptr + at, 1.0)\n\n\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (file(PLAIN + "    tl.device_print('x', pid)\n"), "may do more than to compute"),
        (file(PLAIN + "    put(y_ptr, at)\n", wrap=HELPER), "put stores for k"),
        (
            "from elsewhere import put\n" + file(PLAIN + "    put(y_ptr, at)\n"),
            "may do more than to compute: `put`",
        ),
        (file(PLAIN.replace("BLOCK +", "tl.num_programs(0) +")), "deals with the grid itself"),
        (file(PLAIN + "    tl.atomic_cas(y_ptr, 0, 1)\n"), "may wait for another program"),
        (file(PLAIN, grid="(triton.cdiv(n, block),)"), "is counted by what is stored already"),
        (
            file(PLAIN, grid="grid", host="    grid = [n]\n    grid[0] = 7"),
            "is computed elsewhere",
        ),
        (
            file(PLAIN, grid="grid", host="    grid = (n,)\n    n = 7"),
            "`n` changes between the grid",
        ),
        (file(PLAIN, grid="lambda n: (7000,)"), "does not show n"),
        (file(PLAIN, grid="lambda meta, n=9: (7000,)"), "has names of its own"),
        (file(PLAIN, grid="lambda min: (7000,)"), "has names of its own"),
        (file(PLAIN, grid="grid", host="    def grid(meta): return (n,)"), "is computed elsewhere"),
        (
            file(PLAIN).replace("import torch", "from torch import *\nimport torch"),
            "may hide Python's",
        ),
        (file(PLAIN).replace("def f(x)", "def f(x, triton=1)"), "would need triton"),
        (
            file(PLAIN).replace("def f(x)", "def f(x, n)").replace("    n = x.numel()\n", ""),
            "`n` at line 18 may be no integer",
        ),
        (file(PLAIN, host="    n = n * 0.5"), "may be no integer"),
        (file(ROW + COPY.format(mask="at < n")).replace("x.stride(0), 0,", "0, 0,"), "gives 0 for"),
        (
            file(PLAIN).replace("x.stride(0), 0,", "*x.stride()[:1], 0,"),
            "hides arguments behind a `*`",
        ),
        (
            file(PLAIN) + "\n\nif torch:\n    k = triton.autotune([], key=[])(k)\n",
            "of another kernel",
        ),
        (file(PLAIN, wrap="@triton.heuristics(TABLE)\n"), "may give k something of its own"),
        (file(PLAIN + "    tl.atomic_store(y_ptr, 1.0)\n"), "may do more than to compute"),
        (file(PLAIN + "    y_ptr.atomic_store(1.0)\n"), "may do more than to compute"),
        (file(PLAIN + "    getattr(tl, 'store')(y_ptr, 1.0)\n"), "may do more than to compute"),
        (file(PLAIN + "    tl.core.store(y_ptr, 1.0)\n"), "may do more than to compute"),
        (file(PLAIN + "    print(pid)\n"), "may do more than to compute: `print`"),
        (file(PLAIN + "    assert n < 9\n"), "does more than to compute"),
        (file("    if (n := n * 2) > 0:\n        pass\n" + PLAIN), "does more than to compute"),
        (
            file(
                PLAIN + "    tl.reduce(x, 0, put)\n",
                wrap=HELPER.replace("1.0)", "1.0)\n    return y_ptr"),
            ),
            "put stores for k",
        ),
        (file(PLAIN, wrap=TUNED).replace(", BLOCK=block)", ")"), "does not show BLOCK"),
        (file(PLAIN, wrap='@triton.heuristics({"n": lambda args: 9})\n'), "does not show n"),
        (file(PLAIN).replace("(x, y, n,", "(x, y, next(it),"), "does not show n"),
        (file(PLAIN, host="    min = max"), "`min` is a name of the file's own"),
    ],
)
def test_what_else_programs_do_and_what_is_not_to_be_seen(text: str, reason: str) -> None:
    assert reason in refusal(text)


def test_programs_that_are_needed_stay() -> None:
    assert "has the programs that its stores need" in refusal(file(PLAIN), 375)
    assert "has the programs that its stores need" in refusal(file(PLAIN), 400)
    assert "nobody saw with how many" in _unseen()
    ENTRY.variants(seen(file(PLAIN), 420))


def _unseen() -> str:
    with pytest.raises(NotApplicable) as refused:
        ENTRY.variants(subject(file(PLAIN)))
    return str(refused.value)


def test_a_sign_that_is_not_as_said_needs_all() -> None:
    source = subject(file(ROW + COPY.format(mask="at < n"))).source
    (kernel,) = TRITON.chosen(source)
    (need,) = needs_of(source, kernel)[0]
    assert need.programs({**GIVEN, "step": 100}) == 60
    assert need.programs({**GIVEN, "step": 0}) is None
    assert need.programs({**GIVEN, "step": -3}) is None


def test_rows_that_lie_on_each_other_keep_their_programs(tmp_path: Path) -> None:
    """A stride of zero: programs of any number store, and the last one counts."""
    text = file(
        "    at = pid * step + tl.arange(0, BLOCK)\n"
        "    old = tl.load(y_ptr + at, mask=at < n)\n"
        "    tl.store(y_ptr + at, old + 1.0, mask=at < n)\n",
        host="    wide = x.expand(n, *x.shape)",
    ).replace("x.stride(0), 0,", "wide.stride(0), 0,")
    new = laid_out(ENTRY, seen(text), {})
    assert ".stride(0) > 0 else n" in new
    assert disagreement("f", SHAPES, text, [new], False, tmp_path) == ""
