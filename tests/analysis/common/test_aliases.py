"""What is said of kernels that are launched by another name."""

from __future__ import annotations

import pytest

from agent.analysis.common.aliases import not_launched
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

FILE = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x, n):
    tl.store(x, n)


@triton.jit
def other(x, n):
    tl.store(x, 2 * n)


def run(x, n, fast):
    {line}
    {launch}
"""
LAUNCH = "f[(n,)](x, n)"
NOT_HERE = "this file does not launch kernel"
AS_F = (
    "line 17 launches kernel as `f`, which is not followed: give each of its kernels a launch by "
    "its name"
)
MAY_BE = (
    "line 18 launches `f`, which may be kernel and is not followed: give each of its kernels a "
    "launch by its name"
)
MAY_BE_LATER = MAY_BE.replace("18", "19")


@pytest.mark.parametrize(
    ("line", "launch", "reason"),
    [
        ("f = kernel if fast else other", LAUNCH, AS_F),
        ("f: object = kernel if fast else other", LAUNCH, AS_F),
        ("f = triton.heuristics({})(kernel)", LAUNCH, AS_F),
        ("f, g = (kernel, other) if fast else (other, kernel)", LAUNCH, AS_F),
        ("f = kernel if fast else other", "ct.launch(n, (n,), f, (x, n))", AS_F),
        ("f = kernel if fast else other", "launch(n, (n,), f, (x, n))", AS_F),
        ("f = kernel if fast else other", "print(n, f)", NOT_HERE),
        ("f = kernel if fast else other", "f.run(x, n)", NOT_HERE),
        ("f = kernel if fast else other", "return f[n]", NOT_HERE),
        ("f = other", LAUNCH, NOT_HERE),
        ('f = {"a": kernel, "b": other}[fast]', LAUNCH, AS_F),
        ('table = {"a": kernel, "b": other}\n    f = table["b"]', LAUNCH, MAY_BE),
        ('table = {"a": kernel}\n    row = table["a"]\n    f = row or other', LAUNCH, MAY_BE_LATER),
        ("print(kernel)", "f = n[x](n)", NOT_HERE),
        ("f = [kernel, other]", "f[fast][(n,)](x, n)", AS_F.replace("`f`", "`f[fast]`")),
        (
            "f = [kernel, other]",
            "launch(n, (n,), f[fast], (x, n))",
            AS_F.replace("`f`", "`f[fast]`"),
        ),
        (
            "f = [kernel, other]",
            "launch(n, (n,), f[0].replace_hints(), x)",
            AS_F.replace("`f`", "`f[0]`"),
        ),
        ("f = [kernel, other]", "f[fast].run(x, n)", NOT_HERE),
        ("f = [kernel, other]", "f[fast]", NOT_HERE),
        ("f = [kernel, other]", "print(f[fast])", NOT_HERE),
        (
            "f = [kernel, other]",
            "run_it(f[fast], x)",
            "line 17 hands `f[fast]`, which may be kernel, to `run_it`, whose launches are not "
            "followed",
        ),
    ],
)
def test_it_says_by_which(line: str, launch: str, reason: str) -> None:
    source = Source(FILE.format(line=line, launch=launch))
    kernel = TRITON.kernels(source)[0]
    assert not kernel.launches
    assert str(not_launched(source, kernel)) == reason


@pytest.mark.parametrize(
    ("line", "rebuilt"),
    [
        (
            "f = triton.JITFunction(kernel.fn)\n    f._unsafe_update_src(f.src.replace('n', 'm'))",
            True,
        ),
        ("text = kernel.src.replace('n', 'm')\n    exec(text)\n    f = globals()['kernel']", True),
        ("f = kernel.fn", False),
    ],
)
def test_a_kernel_whose_source_is_put_together_is_not_the_one_that_stands_here(
    line: str, *, rebuilt: bool
) -> None:
    source = Source(FILE.format(line=line, launch=LAUNCH))
    told = str(not_launched(source, TRITON.kernels(source)[0]))
    why = "line 16 takes the source of kernel to put another together when it runs: "
    assert told.startswith(why) == rebuilt
