"""The order of the cuTile entries; those on arithmetic and hints, and the advice."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.playbook import ADVICE, PLAYBOOK
from agent.syntax import Source
from tests.support.playbook import advice, apply, kernel, refusal, variants

# --- the order ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel_class", KernelClass)
def test_priorities_are_tens_and_no_two_are_alike(kernel_class: KernelClass) -> None:
    entries = [e for e in (*PLAYBOOK, *ADVICE) if e.backend == "cutile"]
    given = [e.priority[kernel_class] for e in entries if kernel_class in e.priority]
    assert len(set(given)) == len(given)
    assert all(priority % 10 == 0 for priority in given)


@pytest.mark.parametrize(
    ("kernel_class", "expected"),
    [
        (
            KernelClass.MEMORY,
            ["occupancy-hint", "load-without-tma", "store-without-tma", "fast-math",
             "static-shapes", "tile-sizes", "check-bounds", "worker-warps", "exp2",
             "load-latency", "gather-to-load", "rows-per-block", "persistent-blocks", "autotune",
             "dead-parameters"],
        ),
        (
            KernelClass.BALANCED,
            ["tile-sizes", "occupancy-hint", "fast-math", "tf32-guard", "store-without-tma",
             "gather-to-load", "load-latency", "grouped-order", "autotune", "dead-parameters"],
        ),
        (
            KernelClass.COMPUTE,
            ["tf32-guard", "tile-sizes", "exp2", "occupancy-hint", "num-ctas", "grouped-order",
             "persistent-blocks", "load-latency", "autotune", "opt-level", "dead-parameters"],
        ),
    ],
)  # fmt: skip
def test_the_order_of_each_class(kernel_class: KernelClass, expected: list[str]) -> None:
    """TileGym's order, but where an NVIDIA H200 says otherwise: occupancy first for row kernels,
    cheap arithmetic before persistent blocks. What reads a tile's shape, or the grid, comes before
    what makes the host check bounds by them. And autotuning comes after the sweeps that it would
    repeat: it takes the hints out of the playbook's hands."""
    names = [entry.name for entry in playbook.ordered("cutile", kernel_class)]
    assert [name for name in names if name in expected] == expected


# --- tf32-guard ---------------------------------------------------------------------------------

PRODUCT = kernel(
    "acc = ct.zeros((16, 16), ct.float32)\n"
    "a = ct.load(x, (0, 0), (16, 16))\n"
    "acc = {product}\n"
    "ct.store(y, (0, 0), acc)"
)


@pytest.mark.parametrize(
    ("product", "changed"),
    [
        ("ct.mma(a, a, acc)", "ct.mma(as_tf32(a), as_tf32(a), acc)"),
        ("ct.mma(a, a, acc=acc)", "ct.mma(as_tf32(a), as_tf32(a), acc=acc)"),
        ("ct.mma(a, ct.transpose(a), acc)", "ct.mma(as_tf32(a), as_tf32(ct.transpose(a)), acc)"),
    ],
)
def test_operands_of_products_are_guarded(product: str, changed: str) -> None:
    text = apply("tf32-guard", PRODUCT.format(product=product))
    assert changed in text
    assert text.index("def as_tf32(tile):") < text.index("@ct.kernel")


@pytest.mark.parametrize(
    "product",
    [
        "ct.mma(ct.astype(a, ct.tfloat32), ct.astype(a, ct.tfloat32), acc)",
        "ct.mma(a.astype(ct.bfloat16), a.astype(ct.bfloat16), acc)",
        "ct.mma(guard(a), guard(a), acc)",
    ],
)
def test_operands_that_are_cast_stay(product: str) -> None:
    guard = "def guard(t):\n    return ct.astype(t, ct.tfloat32)\n\n"
    text = PRODUCT.format(product=product).replace("@ct", f"{guard}@ct", 1)
    assert "not cast yet" in refusal("tf32-guard", text)


def test_a_guard_in_statements_of_their_own_is_known() -> None:
    body = (
        "acc = ct.zeros((16, 16), ct.float32)\n"
        "a = ct.load(x, (0, 0), (16, 16))\n"
        "dtype = ct.tfloat32 if a.dtype == ct.float32 else a.dtype\n"
        "a = ct.astype(a, dtype)\n"
        "ct.store(y, (0, 0), ct.mma(a, a, acc))"
    )
    assert "not cast yet" in refusal("tf32-guard", kernel(body))


def test_the_guard_takes_a_free_name_and_the_files_own_spelling() -> None:
    text = PRODUCT.format(product="ct.mma(a, a, acc)").replace("ct.", "T.")
    text = text.replace("as ct", "as T").replace("def run(", "as_tf32 = 1\n\n\ndef run(")
    changed = apply("tf32-guard", text)
    assert "T.mma(as_tf32_2(a), as_tf32_2(a), acc)" in changed
    assert "T.tfloat32 if tile.dtype == T.float32" in changed


def test_single_names_of_the_language_leave_no_way_to_write_others() -> None:
    text = "from cuda.tile import kernel, mma\n\n@kernel\ndef k(x):\n    mma(x, x, x)\n"
    assert "import cuda.tile under a name" in refusal("tf32-guard", text)


# --- exp2, fast-math ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ("a = ct.astype(x, ct.float32)\nct.exp(a)", "ct.exp2(a * LOG2_E, flush_to_zero=True)"),
        ("a = x.astype(ct.float32)\nct.exp(a - 1)", "exp2((a - 1) * LOG2_E, flush_to_zero=True)"),
        ("a = ct.zeros((8,), ct.float32)\nct.exp(a * x)", "ct.exp2((a * x) * LOG2_E, flu"),
        ("a = ct.full((8,), 0, dtype=ct.float32)\nct.exp(ct.max(a, 0))", "exp2(ct.max(a, 0) *"),
        (
            "a = ct.zeros((8,), ct.float32)\nfor i in range(8):\n    a = a + i\nct.exp(a)",
            "ct.exp2(a * LOG2_E",
        ),
        (
            "a = ct.zeros((8,), ct.float32)\nfor i in range(8):\n    a += ct.exp(a)",
            "a += ct.exp2(a * LOG2_E",
        ),
        ("a = ct.load(x, 0, 8)\na = a.astype(ct.float32)\nct.exp(a)", "ct.exp2(a * LOG2_E"),
        ("b = x.astype(ct.float32)\nct.exp(ct.where(x > 0, b, x))", "exp2(ct.where(x > 0, b, x) *"),
    ],
)
def test_exponentials_of_float32_tiles(body: str, changed: str) -> None:
    text = apply("exp2", kernel(body))
    assert changed in text
    assert text.startswith("import cuda.tile as ct\n\nLOG2_E = 1.44269504")


@pytest.mark.parametrize(
    "body",
    [
        "a = ct.load(x, 0, 8)\nct.exp(a)",
        "a = ct.astype(x, y.dtype)\nct.exp(a)",
        "a = ct.astype(x, ct.float32)\na = ct.load(x, 0, 8)\nct.exp(a)",
        "a = ct.astype(x, ct.float32)\nfor i in range(8):\n    ct.exp(a)\n    a = x",
        "a, b = ct.astype(x, ct.float32), y\nct.exp(b)",
        "for a in range(8):\n    ct.exp(a)",
        "a = ct.astype(x, ct.float32)\nct.exp(a, rounding_mode=ct.RoundingMode.APPROX)",
    ],
)
def test_exponentials_of_other_tiles_stay(body: str) -> None:
    assert "none of the 1 ct.exp is of a tile that is certainly float32" in refusal(
        "exp2", kernel(body)
    )


def test_the_constant_takes_a_free_name() -> None:
    text = kernel("LOG2_E = 2\nct.exp(ct.astype(x, ct.float32))")
    assert "ct.exp2(ct.astype(x, ct.float32) * LOG2_E_2," in apply("exp2", text)


FULL, APPROX = {"rounding": "FULL"}, {"rounding": "APPROX"}
FLUSH = {"flush_to_zero": True}


@pytest.mark.parametrize(
    ("expression", "params", "changed"),
    [
        ("a / 3", FULL, "ct.truediv(a, 3, rounding_mode=ct.RoundingMode.FULL, flush_to_zero=True)"),
        ("(1 / a)", APPROX, "ct.truediv(1, a, rounding_mode=ct.RoundingMode.APPROX, flush_to"),
        ("ct.truediv(x, a)", FULL, "ct.truediv(x, a, rounding_mode=ct.RoundingMode.FULL, flush"),
        ("ct.rsqrt(a)", FLUSH, "ct.rsqrt(a, flush_to_zero=True)"),
        ("ct.exp2(a)", FLUSH, "ct.exp2(a, flush_to_zero=True)"),
        ("ct.sqrt(a)", FLUSH, "ct.sqrt(a, flush_to_zero=True)"),
        ("ct.sqrt(a)", APPROX, "sqrt(a, rounding_mode=ct.RoundingMode.APPROX, flush_to_zero=True)"),
        ("ct.tanh(a)", APPROX, "ct.tanh(a, rounding_mode=ct.RoundingMode.APPROX)"),
        ("ct.exp(a)", APPROX, "ct.exp(a, rounding_mode=ct.RoundingMode.APPROX)"),
    ],
)
def test_fast_forms(expression: str, params: Params, changed: str) -> None:
    text = kernel(f"a = ct.astype(ct.load(x, 0, 8), ct.float32)\nb = {expression}")
    assert changed in apply("fast-math", text, params)
    assert params in variants("fast-math", text)


@pytest.mark.parametrize(
    "expression",
    [
        "x / 3",
        "ct.rsqrt(x)",
        "a // 3",
        "ct.truediv(a, x, rounding_mode=ct.RoundingMode.RZ)",
        "ct.exp2(a, flush_to_zero=False)",
        "ct.log(a)",
    ],
)
def test_other_forms_stay(expression: str) -> None:
    text = kernel(f"a = ct.astype(ct.load(x, 0, 8), ct.float32)\nb = {expression}")
    assert "certainly float32" in refusal("fast-math", text)


@pytest.mark.parametrize(
    "expression", ["ct.sum(a, 0) / 8", "ct.rsqrt(ct.sum(a, 0) / x.shape[1] + 1)", "1 / b"]
)
def test_what_is_computed_once_a_row_stays(expression: str) -> None:
    text = kernel(
        f"a = ct.astype(ct.load(x, 0, 8), ct.float32)\nb = ct.max(a, 0)\nc = {expression}"
    )
    assert "whole tile that is certainly float32" in refusal("fast-math", text)
    assert "ct.truediv(a, b," in apply("fast-math", text.replace(expression, "a / b"), FULL)


def test_a_helper_may_be_handed_a_tile() -> None:
    helper = "def half(t):\n    t = ct.astype(t, ct.float32)\n    return t / 2\n\n"
    text = kernel("half(ct.load(x, 0, 8))").replace("@ct", f"{helper}@ct")
    assert "return ct.truediv(t, 2," in apply("fast-math", text, FULL)


SIGMOID = "def _sigmoid(t):\n    return 1.0 / (1.0 + ct.exp(-t))\n\n\n"
GATED = f"{SIGMOID}def _gated(t, u):\n    return u * t * _sigmoid(t)\n\n\n"
CAST = "a = ct.astype(ct.load(x, 0, 8), ct.float32)\n"


@pytest.mark.parametrize(
    ("helpers", "body", "certain"),
    [
        (GATED, "_gated(a, a)", True),
        (GATED, "_gated(u=a, t=a)", True),
        (GATED, "_gated(a, ct.load(x, 0, 8))", True),
        (GATED, "_gated(ct.load(x, 0, 8), a)", False),
        (GATED, "_gated(a, a) + _sigmoid(ct.load(x, 0, 8))", False),
        (GATED, "_gated(*(a, a))", False),
        (GATED, "ct.exp(_gated(a, a))", True),
        (GATED.replace("_gated", "gated"), "gated(a, a)", False),
        (GATED.replace("(t, u):", "(t, u, n=0):"), "_gated(a, a)", True),
        (f"{GATED}TABLE = (_sigmoid,)\n\n\n", "_gated(a, a)", False),
        (SIGMOID.replace("ct.exp(-t)", "ct.exp(-_sigmoid(t))"), "_sigmoid(a)", False),
    ],
)
def test_what_a_helper_of_the_file_alone_is_handed(helpers: str, body: str, certain: bool) -> None:
    """As in TileGym's SwiGLU: the exponential is two helpers away from the cast."""
    text = kernel(f"{CAST}b = {body}").replace("@ct", f"{helpers}@ct", 1)
    if not certain:
        assert "of a tile that is certainly float32" in refusal("exp2", text)
        return
    changed = apply("exp2", text)
    assert "ct.exp2(-t * LOG2_E, flush_to_zero=True)" in changed
    assert changed.count("ct.exp2") == body.count("ct.exp") + 1


def test_what_a_helper_returns_is_known_whoever_calls_it() -> None:
    helper = "def wide(t):\n    return ct.astype(t, ct.float32) * 2\n\n\n"
    text = kernel("b = ct.exp(wide(ct.load(x, 0, 8)))").replace("@ct", f"{helper}@ct", 1)
    assert "ct.exp2(wide(" in apply("exp2", text)
    narrow = text.replace("* 2\n", "* 2 if BIG else t\n")
    assert "certainly float32" in refusal("exp2", narrow)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("ct.exp2(a)", [FLUSH]),
        ("ct.exp2(a) + ct.rsqrt(a)", [FLUSH]),
        ("ct.exp2(a) + ct.tanh(a)", [FLUSH, APPROX]),
        ("ct.exp2(a) / a", [FULL, APPROX]),
        ("ct.truediv(a, 2)", [FULL, APPROX]),
    ],
)
def test_a_variant_is_named_for_what_it_does(expression: str, expected: list[Params]) -> None:
    """A rounding mode is no word for what only flushes, and no two variants are one text."""
    text = kernel(f"a = ct.astype(ct.load(x, 0, 8), ct.float32)\nb = {expression}")
    assert variants("fast-math", text) == expected
    assert len({apply("fast-math", text, params) for params in expected}) == len(expected)
    entry = playbook.get("fast-math")
    assert entry.describe(FLUSH) == "fast float32 arithmetic (flush_to_zero=True)"


def test_full_precision_leaves_what_has_none() -> None:
    text = kernel("a = ct.astype(ct.load(x, 0, 8), ct.float32)\nb = ct.tanh(a)")
    assert variants("fast-math", text) == [APPROX]


# --- hints --------------------------------------------------------------------------------------

LOOP = kernel(
    "for i in range(ct.num_tiles(x, 1, (1, 8))):\n"
    "    ct.store(y, (0, i), {load})\n"
    "ct.store(y, (1, 0), ct.load(x, (1, 0), (1, 8), allow_tma=False))"
)


def test_four_warps_are_what_no_hint_means() -> None:
    text = LOOP.format(load="ct.load(x, (0, i), (1, 8))")
    assert variants("worker-warps", text) == [{"num_worker_warps": 8}]
    eight = apply("worker-warps", text, {"num_worker_warps": 8})
    assert variants("worker-warps", eight) == [{"num_worker_warps": 4}]


def test_levels_that_are_set_are_not_tried() -> None:
    text = LOOP.format(load="ct.load(x, (0, i), (1, 8))").replace(
        "kernel\n", "kernel(opt_level=0)\n"
    )
    assert variants("opt-level", text) == [{"opt_level": 1}]


def test_only_stores_in_loops_get_a_latency() -> None:
    load = "ct.load(x, (0, i), (1, 8))"
    text = LOOP.format(load=load)
    changed = apply("store-latency", text, {"latency": 1})
    assert changed == text.replace(f"{load})", f"{load}, latency=1)")
    assert variants("store-latency", changed) == [{"latency": 3}]
    assert "sm_80" in refusal("store-latency", text, sm=80)


@pytest.mark.parametrize(
    ("load", "is_changed"),
    [
        ("ct.load(x, (0, i), (1, 8))", True),
        ("ct.load(x, (0, i), (1, 8), padding_mode=ct.PaddingMode.ZERO)", True),
        ("ct.load(x, (0, i), (1, 8), padding_mode=ct.PaddingMode.NEG_INF)", False),
        ("ct.load(x, (0, i), (1, 8), allow_tma=TMA)", False),
    ],
)
def test_loads_that_may_use_tma(load: str, is_changed: bool) -> None:
    text = LOOP.format(load=load)
    if is_changed:
        assert f"{load[:-1]}, allow_tma=False)" in apply("load-without-tma", text)
        assert "sm_80 has no TMA" in refusal("load-without-tma", text, sm=80)
    else:
        assert "no ct.load that may use TMA" in refusal("load-without-tma", text)


@pytest.mark.parametrize("product", ["ct.mma(a, a, acc)", "acc + a @ a"])
def test_loads_of_products_keep_tma(product: str) -> None:
    text = PRODUCT.format(product=product)
    assert "products" in refusal("load-without-tma", text)


def test_occupancies_by_class() -> None:
    text = LOOP.format(load="ct.load(x, (0, i), (1, 8))")
    entry = playbook.get("occupancy-hint")
    swept = {
        kernel_class: [
            params["occupancy"]
            for params in entry.variants(Subject(Source(text), kernel_class, Hardware()))
        ]
        for kernel_class in KernelClass
    }
    assert swept[KernelClass.MEMORY] == [2, 4, 8, 16]
    assert swept[KernelClass.BALANCED] == [2, 4, 8]
    assert swept[KernelClass.COMPUTE] == [2, 4]


# --- advice -------------------------------------------------------------------------------------


def test_padding_that_rules_out_tma() -> None:
    load = "ct.load(x, (0, i), (1, 8), padding_mode=ct.PaddingMode.NEG_INF)"
    text = LOOP.format(load=load)
    assert advice("zero-padding", text) == (
        "the load at line 6 pads with NEG_INF, which rules out TMA"
    )
    for other in ("ct.PaddingMode.ZERO", "ct.PaddingMode.UNDETERMINED", "MODE"):
        with pytest.raises(NotApplicable, match="anything but zeros"):
            advice("zero-padding", text.replace("ct.PaddingMode.NEG_INF", other))
    with pytest.raises(NotApplicable, match="sm_86 has no TMA"):
        advice("zero-padding", text, sm=86)
