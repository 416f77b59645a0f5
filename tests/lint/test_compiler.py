"""What lint calls an error the compiler refuses, and what it lets pass compiles."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

pytest.importorskip("cuda.tile")

import cuda.tile as ct

from agent.environment import probe
from agent.lint import CHECKS, Check, Severity, lint
from agent.lint.checks.names import COMPILER
from agent.syntax import Source
from tests.lint.compiler import HEAD, refusal

pytestmark = pytest.mark.full

COMPILED = [check for check in CHECKS if COMPILER in check.source and check.code != "CT007"]
"""CT007's example is refused for what its launch gives, which nothing shows the compiler."""
KERNEL = """
SIZE = 128
HALF = 128 / 2
PAIR = (8, 16)

def helper(x, tile=64):
    return ct.load(x, (0,), (tile,))

@ct.kernel(occupancy=ct.ByTarget(sm_100=2, default=1))
def k(x, y, m, n, tile, number: int, size: ct.Constant[int], bare: ct.Constant, default=128):
    i = ct.bid(0)
    p = ct.load(m, (i, 0), (8, 16))
    if n > 0:
        ct.store(y, (i,), ct.load(x, (i,), (size,)))
"""
LOAD = "t = ct.load(x, (i,), (size,))"
SHAPES = [
    "u = ct.load(x, (i,), (tile,))",
    "u = ct.load(x, i, tile)",
    "u = ct.load(x, (i,), (number,))",
    "u = ct.load(x, (i,), (default,))",
    "u = ct.load(x, (i,), (bare,))",
    "u = ct.load(x, (i,), (SIZE,))",
    "u = ct.load(x, (i,), (SIZE // 4,))",
    "u = ct.load(m, (i, 0), PAIR)",
    "s = (tile,)\nu = ct.load(x, (i,), s)",
    "s = (size,)\nu = ct.load(x, (i,), s)",
    "t = tile\nu = ct.zeros(t, ct.float32)",
    "tile = 64\nu = ct.zeros(tile, ct.float32)",
    "u = ct.ones((4, tile), ct.float32)",
    "u = ct.full((size, number), 0.0, ct.float32)",
    "u = ct.arange(tile, dtype=ct.int32)",
    "u = ct.zeros((ct.cdiv(tile, 2),), ct.float32)",
    "u = ct.zeros((ct.cdiv(size, 2),), ct.float32)",
    "u = ct.num_tiles(x, 0, (tile,))",
    "u = ct.num_tiles(x, 0, (size,))",
    "u = ct.num_tiles(x, 0, (100,))",
    "u = ct.reshape(p, (tile,))",
    "u = p.reshape((tile,))",
    "u = p.reshape((-1, 4))",
    "u = p.reshape((3, -1))",
    "u = p.astype(ct.int32).extract((0, 0), (tile, 4))",
    "u = ct.extract(p, (0, 0), (4, 4))",
    "u = ct.broadcast_to(p, (2, 4, tile))",
    "u = x.tiled_view((tile,)).load((i,))",
    "u = x.tiled_view(size).load((i,))",
    "u = helper(x)",
    "u = helper(x, size)",
    "def f(tile):\n    return ct.load(x, (0,), (tile,))\nu = f(64)",
    "def f():\n    return ct.load(x, (0,), (tile,))\nu = f()",
    "def f():\n    return ct.load(x, (0,), (tile,))",
    "def f(n):\n    return ct.load(x, (0,), (n * 2,))\nu = f(64)",
    "u = (lambda tile: ct.load(x, (0,), (tile,)))(64)",
]
"""Constants in shapes, and what is none."""
EXTENTS = [
    "u = ct.full(x.shape, 0.0, ct.float32)",
    "u = ct.zeros(shape=m.shape, dtype=ct.float32)",
    "u = ct.ones(m.strides, ct.float32)",
    "s = x.shape\nu = ct.zeros(s, ct.float32)",
    "u = ct.load(x, (i,), x.shape)",
    "u = ct.reshape(p, x.shape)",
    "u = ct.broadcast_to(p, m.shape)",
    "u = ct.extract(p, (0, 0), m.shape)",
    "u = ct.num_tiles(m, 0, m.shape)",
    "u = m.tiled_view(m.shape)",
    "u = ct.zeros(x.shape + (2,), ct.float32)",
    "u = ct.zeros((*m.shape,), ct.float32)",
    "u = ct.zeros(tuple(m.shape), ct.float32)",
    "u = ct.zeros(m.shape[0:1], ct.float32)",
    "a, b = m.shape\nu = ct.zeros((a, 4), ct.float32)",
    "a, b = x.shape[0], 4\nu = ct.zeros((a, b), ct.float32)",
    "a, b = 8, 4\nu = ct.zeros((a, b), ct.float32)",
    "w = m.slice(axis=0, start=0, stop=8)\nu = ct.zeros((w.shape[0],), ct.float32)",
    "w = x.slice(axis=0, start=0, stop=8)\nu = ct.zeros(w.shape, ct.float32)",
    "u = ct.zeros((m.strides[1],), ct.float32)",
    "u = ct.zeros(tile.shape, ct.float32)",
    "u = ct.zeros(p.shape, ct.float32)",
    "a, b = p.shape\nu = ct.zeros((a, b), ct.float32)",
    "u = ct.zeros(p.shape + (2,), ct.float32)",
    "u = ct.zeros((m.ndim, len(m.shape)), ct.float32)",
    "u = ct.arange(16, dtype=ct.int32) < x.shape[0]",
    "for j in range(ct.cdiv(x.shape[0], size)):\n    pass",
]
"""Extents of arrays where a shape is wanted, and of tiles."""
MEMBERS = [
    f"{what}.{member}"
    for what in ("t", "ct.load(x, (i,), (128,))", "(t + t)", "x")
    for member in ("cast(ct.float16)", "to(ct.float16)", "astype(ct.float16)", "ndim", "T",
                   "type(ct.float16)", "bitcast(ct.int32)", "view((8, 16))", "permute((0,))",
                   "slice(axis=0, start=0, stop=8)", "broadcast_to((2, 128))")
]  # fmt: skip
"""What tiles and arrays have, and what they lack."""
RANKS = [
    "u = ct.load(m, (i, 0), (16,))",
    "u = ct.load(m, (i, 0), 16)",
    "u = ct.load(m, (i, 0), ())",
    "u = ct.load(m, (i, 0), (4, 16))",
    "u = ct.load(m, index=(i,), shape=(4, 16))",
    "u = ct.load(m, i + 1, (4, 16))",
    "u = ct.load(m, i // 2, (4, 16))",
    "u = ct.load(x, i + 1, (16,))",
    "s = (16,)\nu = ct.load(m, (i, 0), s)",
    "s = (4,) + (16,)\nu = ct.load(m, (i, 0), s)",
    "s = (4, 16) if size > 2 else (4,)\nu = ct.load(m, (i, 0), s)",
    "if size > 2:\n    s = (4, 16)\nelse:\n    s = (4,)\nu = ct.load(m, (i, 0), s)",
    "u = ct.load(m, (*PAIR,), (4, 16))",
    "j = (i, 0)\nu = ct.load(m, j, PAIR)",
    "j = (i,)\nu = ct.load(m, j, PAIR)",
    "u = ct.extract(p, (0,), (4, 4))",
    "u = ct.extract(p, (0, 0), (4,))",
    "u = p.extract((0, 0), (4,))",
    "u = ct.load(m, (i, 0), (8, 16)).extract((0, 0), (4,))",
    "u = ct.load(m, (i, 0), (8, 16)).astype(ct.int32).reshape((tile,))",
    "u = p.extract((0, 0), (4, 4))",
    "v = m.tiled_view(PAIR)\nu = v.load((i,))",
    "v = m.tiled_view(PAIR)\nu = v.load((i, 0))",
    "v = m.tiled_view(())\nu = v.load((i, 0))",
    "v = m.tiled_view(PAIR)\nv.store(i, 0.0)",
    "v = m.tiled_view((8, 16))\nv.store((i, 0), ct.zeros((16,), ct.float32))",
]
"""Indices beside shapes."""
INTEGERS = [
    "for j in range(x.shape[0] / 32):\n    pass",
    "for j in range(x.shape[0] // 32):\n    pass",
    "for j in range(ct.cdiv(x.shape[0], 32)):\n    pass",
    "for j in range(size / 4):\n    pass",
    "for j in range(64 / 4):\n    pass",
    "for j in range(HALF):\n    pass",
    "for j in range(2.0):\n    pass",
    "for j in range(0, n / 2, 2):\n    pass",
    "for j in range(ct.truediv(n, 2)):\n    pass",
    "for j in range(n / 2 // 1):\n    pass",
    "for j in range(1 - n / 2):\n    pass",
    "for j in range(-(n / 2)):\n    pass",
    "for j in range((n / 2) % 2):\n    pass",
    "for j in range((n / 2) ** 2):\n    pass",
    "for j in range(max(n / 32, 1)):\n    pass",
    "for j in range(max(n // 32, 1)):\n    pass",
    "for j in range(ct.ceil(n / 32)):\n    pass",
    "for j in range(ct.minimum(1, n / 32)):\n    pass",
    "for j in range(n / 2 if n > 3 else n / 3):\n    pass",
    "for j in range(ct.astype(n / 32, ct.int32)):\n    pass",
    "for j in range(ct.static_eval(int(size / 4))):\n    pass",
    "for j in range(int(size / 4)):\n    pass",
    "for j in ct.static_iter(range(size // 4)):\n    pass",
    "h = n / 2\nfor j in range(h):\n    pass",
    "h = n // 2\nfor j in range(h):\n    pass",
    "h = ct.astype(n / 2, ct.int32)\nu = ct.load(x, (h,), (16,))",
    "u = ct.load(x, (i / 2,), (16,))",
    "u = ct.load(x, i / 2, (16,))",
    "u = ct.load(x, (i // 2,), (16,))",
    "u = ct.load(x, (i * 1.0,), (16,))",
    "ct.store(y, (i / 2,), 0.0)",
    "u = m.tiled_view(PAIR).load((i / 2, 0))",
    "u = ct.load(x, (i,), (size / 2,))",
    "u = ct.load(x, (i,), (HALF,))",
    "u = ct.load(x, (i,), (int(size / 2),))",
    "u = ct.zeros(size / 2, ct.float32)",
    "u = ct.arange(size / 2, dtype=ct.int32)",
    "u = ct.num_tiles(x, 0, (size / 2,))",
    "u = p.reshape((256 / 2,))",
    "u = ct.gather(x, ct.arange(64, dtype=ct.int32) / 2)",
    "u = ct.gather(x, ct.arange(64, dtype=ct.int32) // 2)",
    "u = ct.gather(m, (ct.arange(64, dtype=ct.int32) / 2, 0))",
    "ct.scatter(x, (i / 2,), 1.0)",
    "ct.atomic_add(x, (i / 2,), 1.0)",
]
"""Floats where an integer is needed, and integers."""
BODIES = [
    LOAD,
    *SHAPES,
    *EXTENTS,
    *(f"{LOAD}\nu = {member}" for member in MEMBERS),
    "u = ct.cast(p, ct.float16)",
    *RANKS,
    *INTEGERS,
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
    "[u, (v, w)] = 1, (2, 3)",
    "print(repr(HALF))",
    "u = [*PAIR]",
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


STORED = [
    "ct.store(m, (i, 0), ct.zeros((16,), ct.float32))",
    "ct.store(m, (i, 0), ct.load(x, (i,), (16,)))",
    "ct.store(m, (i, 0), ct.load(x, (i,), (16,)) * 2.0)",
    "ct.store(m, (i, 0), ct.load(x, (i,), (16,)).astype(ct.float32))",
    "ct.store(m, (i, 0), ct.exp(-ct.load(x, (i,), (16,))))",
    "ct.store(m, (i, 0), ct.load(x, (i,), (16,))[None, :])",
    "ct.store(m, (i, 0), ct.load(x, (i,), (16,)) + p)",
    "ct.store(m, (i, 0), ct.load(m, (i, 0), ()))",
    "ct.store(m, (i, 0), ct.astype(ct.arange(16, dtype=ct.int32), ct.float32))",
    "ct.store(m, (i, 0), ct.reshape(p, (128,)))",
    "ct.store(m, (i, 0), ct.sum(p, axis=1))",
    "ct.store(m, (i, 0), ct.sum(p, axis=1, keepdims=True))",
    "ct.store(m, (i, 0), ct.max(p, -1))",
    "ct.store(m, (i, 0), ct.sum(p))",
    "ct.store(m, (i, 0), ct.transpose(p))",
    "ct.store(m, (i, 0), ct.extract(p, (0, 0), ()))",
    "ct.store(m, (i, 0), 0.0)",
    "ct.store(x, (i,), p)",
    "ct.store(x, i, p)",
    "ct.store(x, (i,), ct.sum(p, axis=1))",
    "m.tiled_view((8, 16)).store((i, 0), ct.load(x, (i,), (16,)))",
]


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize("body", STORED)
def test_lint_and_tileiras_agree_on_what_is_stored(body: str, tmp_path: Path) -> None:
    """cuda-tile hands a tile of another rank on; its assembler refuses it."""
    text = f"{HEAD}{KERNEL}    {body}\n"
    problem = refusal(text, tmp_path, through="cubin")
    errors = {f.code for f in lint(Source(text)).findings if f.severity is Severity.ERROR}
    assert errors == ({"CT012"} if problem is not None else set()), problem


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


@pytest.mark.parametrize("value", ["relu", 1, 1.5, True])
def test_a_constant_is_no_string(value: object, tmp_path: Path) -> None:
    """Whatever its annotation says, which nothing checks."""
    array = ct.compilation.ArrayConstraint(
        ct.float32, 1, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=(),
        may_alias_internally=False,
    )  # fmt: skip

    def compiled() -> None:
        convention = ct.compilation.CallingConvention.cutile_python_v2()
        signature = ct.compilation.KernelSignature([array, value], convention)
        ct.compilation.export_kernel(
            _text, [signature], io.BytesIO(), gpu_code="sm_90", output_format="tileir_bytecode"
        )

    if isinstance(value, str):
        with pytest.raises(TypeError, match="relu"):
            compiled()
        with pytest.raises(TypeError, match="Unexpected constant value type <class 'str'>"):
            ct.compilation.ConstantConstraint(value)
    else:
        compiled()


@ct.kernel
def _text(x, mode: ct.Constant[str]):  # type: ignore[no-untyped-def]
    ct.store(x, (0,), 0.0)


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
