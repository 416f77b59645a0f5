"""What a cuTile kernel is compiled for where nothing runs, read from the source alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.signature import Parameter, Signature, signatures
from agent.playbook import for_backend, get
from agent.syntax import Source

EXAMPLES = Path(__file__).parents[3] / "examples"
HEAD = "import cuda.tile as ct\nimport torch\n\n"
X2, X1 = "float16[2]", "float16[1]"
KNOWN: dict[str, list[Any]] = {
    "cutile_matmul/matmul.py": [X2, X2, X2, 64, 64, 64],
    "cutile_rms_norm/rms_norm.py": [X2, X1, X2, "float32", 1024],
    "cutile_softmax/softmax.py": [X2, X2, 1024],
    "occupancy-hint": [X2, X2, 1024],
    "tile-sizes": [X2, X2, X2, 64, 64, 64],
    "store-without-tma": [X2, X2, "float32", 1024],
    "load-latency": [X2, "float32[1]"],
    "num-ctas": [X2, X2, X2],
}
AFTER = {"tile-sizes": [X2, X2, X2, 128, 128, 64]}


def short(parameters: Iterable[Parameter]) -> list[Any]:
    """A signature as a person would write it."""
    return [
        p.value if p.kind == "constant" else f"{p.dtype}[{p.ndim}]" if p.ndim else p.dtype
        for p in parameters
    ]


def only(text: str) -> Signature:
    (signature,) = signatures(Source(text))
    return signature


def kernel(parameters: str, body: str, launch: str = "") -> Signature:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    host = f"\n\ndef host(a, b, n, s=2.5, t=64):\n{launch}\n" if launch else ""
    return only(f"{HEAD}@ct.kernel\ndef k({parameters}):\n{lines}{host}")


@pytest.mark.parametrize("path", [key for key in KNOWN if key.endswith(".py")])
def test_the_examples(path: str) -> None:
    signature = only((EXAMPLES / path).read_text())
    assert short(signature.parameters) == KNOWN[path]
    assert any("type assumed" in line for line in signature.assumptions)


@pytest.mark.parametrize("name", [key for key in KNOWN if not key.endswith(".py")])
def test_the_playbook(name: str) -> None:
    entry = get(name)
    assert short(only(entry.before).parameters) == KNOWN[name]
    assert short(only(entry.after).parameters) == AFTER.get(name, KNOWN[name])


@pytest.mark.parametrize("entry", for_backend("cutile"), ids=lambda entry: entry.name)
def test_every_kernel_of_the_playbook_has_a_signature(entry: Any) -> None:
    for text in (entry.before, entry.after):
        source = Source(text)
        launched = {k.name: len(k.function.parameters) for k in CUTILE.launched(source)}
        found = {s.kernel: len(s.parameters) for s in signatures(source)}
        assert found == launched


def test_what_is_assumed_is_told() -> None:
    told = only((EXAMPLES / "cutile_softmax/softmax.py").read_text()).assumptions
    assert told == (
        "softmax_kernel: x, y: 2-dimensional float16 (type assumed)",
        "softmax_kernel: arrays: last stride 1, address, strides and extents divisible by 16",
        "softmax_kernel: TILE_N = 1024 (assumed for a row: line 24 passes `tile_n`, not a "
        "constant)",
    )


def test_what_the_source_tells_is_not_called_an_assumption() -> None:
    told = only((EXAMPLES / "cutile_rms_norm/rms_norm.py").read_text()).assumptions
    assert not [line for line in told if "eps" in line or "TILE_N" in line]


# --- constants ----------------------------------------------------------------------------------

STORE = "ct.store(x, index=(ct.bid(0),), tile=ct.zeros((N,), dtype=x.dtype))"
LAUNCH = "    ct.launch(torch.cuda.current_stream(), (1,), k, (a, {}))"


@pytest.mark.parametrize(
    ("given", "value", "told"),
    [
        ("64", 64, ""),
        ("2 * 64", 128, ""),
        ("t", 64, "a caller may pass another"),
        ("n", 1024, "passes `n`, not a constant"),
        ("1 << n.bit_length()", 1024, "assumed for a row"),
        ("-3", -3, ""),
        ("True", True, ""),
    ],
)
def test_a_constant(given: str, value: Any, told: str) -> None:
    found = kernel("x, N: ct.Constant[int]", STORE, LAUNCH.format(given)).parameters[1]
    assert found.value == value
    assert told in found.why if told else found.why == ""


def test_a_kernel_that_nothing_launches() -> None:
    found = kernel("x, N: ct.Constant[int]", STORE)
    assert short(found.parameters) == [X1, 1024]
    assert "this file does not launch the kernel in plain sight" in found.assumptions[-1]


def test_of_several_rows_the_last_one_is_long() -> None:
    """Of a gather over two dimensions, each of which counts by itself."""
    body = (
        "i = ct.bid(0) * TX + ct.arange(TX, dtype=ct.int32)\n"
        "j = ct.bid(1) * TY + ct.arange(TY, dtype=ct.int32)\n"
        "ct.scatter(x, (i[:, None], j[None, :]), ct.gather(x, (i[:, None], j[None, :])))"
    )
    found = kernel("x, TX: ct.Constant[int], TY: ct.Constant[int]", body)
    assert [each.value for each in found.parameters[1:]] == [4, 1024]
    assert found.parameters[1].why.startswith("assumed for a tile's edge")


def test_launches_that_differ() -> None:
    found = kernel(
        "x, N: ct.Constant[int]", STORE, f"{LAUNCH.format(32)}\n{LAUNCH.format(64)}"
    ).parameters[1]
    assert found.value == 32
    assert "the launches give 32, 64" in found.why


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ("(M, N)", [4, 1024]),
        ("(M, N), ct.float32) + ct.zeros((M,)", [4, 1024]),
        ("(M, N), ct.float32) + ct.zeros((N, M)", [64, 64]),
        ("(16,)", [8, 8]),
    ],
)
def test_tile_sizes_that_nothing_tells_stay_small(shape: str, values: list[int]) -> None:
    body = f"t = ct.zeros({shape}, ct.float32)"
    found = kernel("M: ct.Constant[int], N: ct.Constant[int]", body)
    assert short(found.parameters) == values


def test_flags_and_factors_that_nothing_tells() -> None:
    found = kernel("a: ct.Constant[bool], b: ct.Constant[float]", "pass")
    assert short(found.parameters) == [False, 1.0]


# --- arrays -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "ndim"),
    [
        ("t = ct.load(x, index=(0, 0, 0), shape=(1, 1, 8))", 3),
        ("t = ct.load(x, 0, (8,))", 1),
        ("where = (0, 1)\nt = ct.load(x, where, shape=(1, 8))", 2),
        ("t = ct.gather(x, ct.arange(8, dtype=ct.int32))", 1),
        ("t = ct.gather(x, (0, ct.arange(8, dtype=ct.int32)))", 2),
        ("ct.atomic_add(x, (0, 0), 1.0)", 2),
        ("m, n = x.shape", 2),
        ("n = x.shape[2]", 3),
        ("v = x.tiled_view((1, 8))\nt = v.load((0, 0))", 2),
        ("y = x.slice(axis=0, start=0, stop=4)\nt = ct.load(y, (0, 0), (1, 8))", 2),
        ("n = ct.num_tiles(x, axis=1, shape=(1, 8))", 2),
    ],
)
def test_an_array_and_its_dimensions(body: str, ndim: int) -> None:
    assert short(kernel("x", body).parameters) == [f"float16[{ndim}]"]


def test_a_list_of_arrays() -> None:
    found = kernel("xs", "for i in range(2):\n    t = ct.load(xs[i], (0, 0), (1, 8))")
    assert [(p.kind, p.ndim) for p in found.parameters] == [("list", 2)]


def test_through_a_helper() -> None:
    text = (
        f"{HEAD}def helper(src, at, step):\n    return ct.load(src, (at, 0), (1, 8)) * step\n\n\n"
        "@ct.kernel\ndef k(x, i, factor):\n    t = helper(x, i, step=factor)\n"
    )
    assert short(only(text).parameters) == [X2, "int32", "float32"]


@pytest.mark.parametrize(
    ("made", "dtype"),
    [
        ("torch.empty((n,), dtype=torch.bfloat16)", "bfloat16"),
        ("torch.zeros(n)", "float32"),
        ("a.to(torch.int64)", "int64"),
        ("a.float().contiguous()", "float32"),
        ("torch.empty(1, dtype=torch.int64) if n else b", "int64"),
    ],
)
def test_an_array_that_the_host_makes_in_plain_sight(made: str, dtype: str) -> None:
    launch = f"    y = {made}\n    ct.launch(torch.cuda.current_stream(), (1,), k, (a, y))"
    body = "ct.store(y, (0,), ct.load(x, (0,), (8,)))"
    found = kernel("x, y", body, launch)
    assert short(found.parameters)[1] == f"{dtype}[1]"
    assert not [line for line in found.assumptions if "y:" in line and "type" in line]


@pytest.mark.parametrize(
    "use", ["ct.gather(x, i * 2)", "x.slice(axis=0, start=0, stop=i.item())", "ct.load(x, i, (8,))"]
)
def test_values_that_index_are_integers(use: str) -> None:
    body = f"i = ct.load(order, (0,), (8,))\nn = x.shape[0]\nt = {use}"
    assert short(kernel("x, order", body).parameters) == [X1, "int32[1]"]


def test_element_types_are_tried_in_turn_where_they_are_guessed() -> None:
    found = kernel("x, y", "ct.store(y, (0,), ct.load(x, (0,), (8,)))")
    assert [short(v.parameters) for v in found.variants] == [
        [X1, X1],
        [X1, "float32[1]"],
        ["float32[1]", "float32[1]"],
        ["int32[1]", "int32[1]"],
    ]
    assert (
        "y: 1-dimensional float32 (type assumed, since float16 does not compile)"
        in (found.variants[1].assumptions[1])
    )
    assert len(kernel("n", "pass").variants) == 1


# --- scalars ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameter", "use", "dtype"),
    [
        ("s: float", "pass", "float32"),
        ("s: int", "pass", "int32"),
        ("s: ct.ScalarInt64", "pass", "int64"),
        ("s", "t = ct.load(x, (0,), (8,)) * s", "float32"),
        ("s", "t = ct.load(x, (s,), (8,))", "int32"),
        ("s", "for i in range(s):\n    pass", "int32"),
        ("s", "ok = ct.arange(8, dtype=ct.int32) < s", "int32"),
        ("s", "pass", "int32"),
    ],
)
def test_a_scalar(parameter: str, use: str, dtype: str) -> None:
    assert kernel(f"x, {parameter}", f"{use}\nn = x.shape[0]").parameters[1].dtype == dtype


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ("a.shape[0]", "int32"),
        ("1.0 / n", "float32"),
        ("s", "float32"),
        ("t", "int32"),
        ("float(n)", "float32"),
        ("a.numel() // 2", "int32"),
    ],
)
def test_a_scalar_that_the_launch_tells(given: str, dtype: str) -> None:
    found = kernel("x, v", "t = ct.load(x, (0,), (8,))", LAUNCH.format(given)).parameters[1]
    assert (found.dtype, found.why) == (dtype, "")
