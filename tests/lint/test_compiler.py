"""What lint calls an error the compiler refuses, and what it lets pass compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cuda.tile")

import cuda.tile as ct

from agent.lint import CHECKS, Check, Severity, lint
from agent.lint.checks.names import COMPILER
from agent.syntax import Source
from tests.lint.compiler import HEAD, refusal

COMPILED = [check for check in CHECKS if COMPILER in check.source and check.code != "CT007"]
"""CT007's example is refused for what its launch gives, which nothing shows the compiler."""
KERNEL = """
@ct.kernel
def k(x, y, n, size: ct.Constant[int]):
    i = ct.bid(0)
    if n > 0:
        ct.store(y, (i,), ct.load(x, (i,), (size,)))
"""
LOAD = "t = ct.load(x, (i,), (size,))"
BODIES = [
    LOAD,
    f"if i > 4:\n    {LOAD}\nct.store(y, (i,), t)",
    f"if i > 4:\n    {LOAD}",
    f"if i > 4:\n    {LOAD}\nif i > 4:\n    ct.store(y, (i,), t)",
    f"if i > 4:\n    {LOAD}\nelse:\n    return\nct.store(y, (i,), t)",
    f"if i > 4:\n    {LOAD}\nelif i > 2:\n    {LOAD}\nelse:\n    {LOAD}\nct.store(y, (i,), t)",
    "if i > 4:\n    u = 1.0\nelse:\n    v = 2.0\nw = u",
    f"if size > 0:\n    {LOAD}\nct.store(y, (i,), t)",
    f"if x.dtype == ct.float32:\n    {LOAD}\nct.store(y, (i,), t)",
    f"if x.shape[0] > 4:\n    {LOAD}\nct.store(y, (i,), t)",
    f"{LOAD}\nif t.shape[0] > 0:\n    u = t\nct.store(y, (i,), u)",
    f"if y is not None:\n    {LOAD}\nct.store(y, (i,), t)",
    f"for j in range(n):\n    {LOAD}\nct.store(y, (i,), t)",
    f"for j in range(4):\n    {LOAD}\nct.store(y, (i,), t)",
    f"for j in ct.static_iter(range(4)):\n    {LOAD}\nct.store(y, (i,), t)",
    "for j in range(n):\n    pass\nu = j",
    f"while i < n:\n    {LOAD}\n    i = i + 1\nct.store(y, (i,), t)",
    f"while True:\n    {LOAD}\n    break\nct.store(y, (i,), t)",
    f"for j in range(n):\n    if j > 0:\n        u = t + 1.0\n    {LOAD}",
    f"for j in range(n):\n    if j > 2:\n        continue\n    {LOAD}",
    "for j in range(n):\n    if j > 2:\n        break",
    "a, b = 1, 2\nu = a + b",
    "def f(a):\n    return a + 1\nu = f(n)",
    "u = (lambda a: a + 1)(n)",
    "u = max(n, 4) + min(n, 2) + abs(n)",
    "u = sum((1, 2))",
    "u = round(1.5)",
    "u = math.sqrt(2.0)",
    "u = math.pi",
    "u = ct.static_eval(math.ceil(size / 3))",
    "u = [1, 2]",
    "u = {1: 2}",
    "assert n > 0",
    "import math",
    "for j in (1, 2):\n    pass",
    "for j in range(n):\n    pass\nelse:\n    pass",
    "try:\n    pass\nexcept Exception:\n    pass",
    "raise ValueError('no')",
    "return",
    "return None",
    "return 1",
    "u = x[0]",
    f"{LOAD}\nu = t[0]",
    f"{LOAD}\nu = t[:, None]",
    f"{LOAD}\nu = t[0:64]",
    f"{LOAD}\nu = t.float()",
    f"{LOAD}\nu = t.sum()",
    f"{LOAD}\nu = t.reshape((size,))",
    "u = x.size(0)",
    "u = x.shape[0]",
    "u = ct.full((n,), 0.0, ct.float32)",
    "u = ct.zeros((x.shape[0],), ct.float32)",
    "u = ct.full((size * 2,), 0.0, ct.float32)",
    "u = ct.load(x, (i,), (100,))",
    "u = ct.arange(96, dtype=ct.int32)",
    "u = ct.arange(64, dtype=ct.int32, start=3, step=2)",
    "u = ct.arange(64)",
    "u = ct.bid()",
    "u = ct.load(array=x, index=(i,), shape=(size,))",
    "u = ct.load(x, (i,), (size,), latency=11)",
    "u = ct.load(x, i, size)",
    "o = ct.arange(size, dtype=ct.int32)\nu = ct.load(x, (o + i * size,), (size,))",
    "o = ct.arange(size, dtype=ct.int32)\nct.scatter(y, o, ct.gather(x, (o + i * size,)))",
]


@pytest.mark.parametrize("check", COMPILED, ids=lambda check: check.code)
def test_the_examples_of_the_rules(check: Check, tmp_path: Path) -> None:
    assert refusal(HEAD + check.bad, tmp_path) is not None
    assert refusal(HEAD + check.good, tmp_path) is None


@pytest.mark.parametrize("body", BODIES)
def test_lint_and_the_compiler_agree(body: str, tmp_path: Path) -> None:
    text = HEAD + KERNEL + "".join(f"    {line}\n" for line in body.splitlines())
    problem = refusal(text, tmp_path)
    errors = [f for f in lint(Source(text)).findings if f.severity is Severity.ERROR]
    assert bool(errors) == (problem is not None), (problem, errors)


@pytest.mark.parametrize(
    ("hint", "value"),
    [("occupancy", 0), ("occupancy", 33), ("num_ctas", 3), ("num_ctas", 32), ("opt_level", 4),
     ("num_worker_warps", 6), ("num_worker_warps", 64), ("occupancy", 32), ("num_ctas", 16),
     ("opt_level", 0), ("num_worker_warps", 32)],
)  # fmt: skip
def test_ranges_of_hints(hint: str, value: int, tmp_path: Path) -> None:
    text = f"{HEAD}@ct.kernel({hint}={value})\ndef k(x):\n    ct.bid(0)\n"
    found = [f.code for f in lint(Source(text)).findings if f.code == "CT011"]
    try:
        exec(compile(text, str(tmp_path / "k.py"), "exec"), {})
    except ValueError:
        assert found == ["CT011"]
    except OSError:  # the decorator wants the source to be in a file; its hints were accepted
        assert found == []
    else:
        assert found == []


STREAM = 0


@pytest.mark.parametrize("grid", [1, [1], (1, 1, 1, 1), (1.5,)])
def test_grids_that_the_launcher_refuses(grid: object) -> None:
    """It looks at the grid before it looks for a GPU."""
    with pytest.raises((TypeError, ValueError), match=r"[Gg]rid|integer"):
        ct.launch(STREAM, grid, _nothing, ())


def test_arguments_that_the_launcher_refuses() -> None:
    with pytest.raises(TypeError, match="tuple"):
        ct.launch(STREAM, (1,), _nothing, [])
    with pytest.raises(TypeError, match="kernel"):
        ct.launch(STREAM, (1,), len, ())
    with pytest.raises(TypeError, match="cannot be called directly"):
        _nothing()


@ct.kernel
def _nothing() -> None:
    pass
