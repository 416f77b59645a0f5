"""What single entries do beyond their example."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.syntax import Source

TRITON = "import triton\nimport triton.language as tl\n\n"
CUTILE = "import cuda.tile as ct\n\n"


def variants(name: str, text: str) -> list[Params]:
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware())
    return list(playbook.get(name).variants(subject))


def apply(name: str, text: str, params: Params) -> str:
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware())
    return playbook.get(name).apply(subject, params)


def refusal(name: str, text: str) -> str:
    with pytest.raises(NotApplicable) as refused:
        variants(name, text)
    return str(refused.value)


# --- occupancy-hint, num-ctas -------------------------------------------------------------------

TWO = (
    CUTILE + "@ct.kernel\ndef one(x): ...\n\n@ct.kernel(occupancy=2)\ndef two(x): ...\n\n"
    "def run(x, stream):\n    ct.launch(stream, (1,), one, (x,))\n"
    "    ct.launch(stream, (1,), {two}, (x,))\n"
)


def test_every_launched_kernel_gets_the_hint() -> None:
    text = TWO.format(two="two")
    changed = apply("occupancy-hint", text, {"occupancy": 2})
    assert changed == text.replace("@ct.kernel\n", "@ct.kernel(occupancy=2)\n")
    assert {"occupancy": 2} in variants("occupancy-hint", text)
    assert {"occupancy": 2} not in variants("occupancy-hint", changed)


def test_a_hint_at_the_launch_outranks_the_decorator() -> None:
    text = TWO.format(two="two.replace_hints(occupancy=8)")
    changed = apply("occupancy-hint", text, {"occupancy": 4})
    assert changed == text.replace("@ct.kernel\n", "@ct.kernel(occupancy=4)\n")


def test_a_hint_by_target_is_the_authors_matter() -> None:
    text = CUTILE + "@ct.kernel(occupancy=ct.ByTarget(sm_100=4))\ndef k(x): ...\n"
    assert "is computed: `ct.ByTarget(sm_100=4)`" in refusal("occupancy-hint", text)


def test_a_tuned_kernel_keeps_its_hints() -> None:
    text = CUTILE + (
        "@ct.kernel\ndef k(x): ...\n\n"
        "best = ct.tune.exhaustive_search(space, stream, grid, k, args)\n"
    )
    assert refusal("occupancy-hint", text) == "k is tuned at line 6"


def test_pairs_of_blocks_are_for_products() -> None:
    assert "multiplies tiles" in refusal("num-ctas", TWO.format(two="two"))


# --- load-latency, store-without-tma ------------------------------------------------------------


def test_loads_of_helpers_count_and_those_of_others_do_not() -> None:
    text = CUTILE + (
        "import numpy as np\n"
        "def fetch(x):\n    return ct.load(x, (0,), (8,))\n\n"
        "@ct.kernel\ndef k(x, y):\n"
        "    ct.store(y, (0,), fetch(x) + ct.gather(x, 1, latency=LATENCY))\n\n"
        "def host(path, stream, x, y):\n"
        "    ct.launch(stream, (1,), k, (x, y))\n    return np.load(path)\n"
    )
    changed = apply("load-latency", text, {"latency": 3})
    assert changed == text.replace("(8,))", "(8,), latency=3)")
    changed = apply("store-without-tma", text, {})
    assert changed == text.replace("latency=LATENCY))", "latency=LATENCY), allow_tma=False)")


# --- warps-and-stages ---------------------------------------------------------------------------

ROWS = TRITON + (
    "@triton.jit\ndef k(x, n, BLOCK: tl.constexpr):\n"
    "    cols = tl.arange(0, BLOCK)\n    tl.store(x + cols, tl.load(x + cols))\n\n"
    "def run(x, n):\n    warps, stages = 4, 3\n    {launch}\n"
)
DOT = ROWS.replace("tl.load(x + cols)", "tl.dot(tl.load(x + cols), tl.load(x + cols))")


@pytest.mark.parametrize(
    ("launch", "changed"),
    [
        ("k[(1,)](x, n, n)", "k[(1,)](x, n, n, num_warps=8)"),
        ("k[(1,)](x, n, n, num_warps=2)", "k[(1,)](x, n, n, num_warps=8)"),
        ("k[(1,)](x, n, n, num_warps=2, a=1)", "k[(1,)](x, n, n, num_warps=8, a=1)"),
    ],
)  # fmt: skip
def test_warps_at_the_launch(launch: str, changed: str) -> None:
    text = ROWS.format(launch=launch)
    assert apply("warps-and-stages", text, {"num_warps": 8}) == ROWS.format(launch=changed)


def test_warps_in_a_local() -> None:
    text = ROWS.format(launch="k[(1,)](x, n, n, num_warps=warps)")
    changed = apply("warps-and-stages", text, {"num_warps": 8})
    assert changed == text.replace("= 4, 3", "= 8, 3")


def test_warps_and_stages_of_a_dot() -> None:
    found = variants("warps-and-stages", DOT.format(launch="k[(1,)](x, n, n)"))
    assert len(found) == 7
    assert {"num_warps": 4, "num_stages": 3} not in found
    assert {"num_warps": 8, "num_stages": 4} in found


def test_no_more_warps_than_the_tile_has_work_for() -> None:
    found = variants("warps-and-stages", ROWS.format(launch="k[(1,)](x, n, 64)"))
    assert found == [{"num_warps": 1}, {"num_warps": 2}]


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        ("k[(1,)](x, n, n, num_warps=pick(n))", "num_warps of the launch at line 11 is computed"),
        ("k[(1,)](x, n, n, **options)", "hides arguments behind a `*`"),
        ("print(warps); k[(1,)](x, n, n, num_warps=warps)", "is used elsewhere too"),
        ("pass", "no launch found"),
    ],
)
def test_warps_that_are_not_ours_to_set(launch: str, reason: str) -> None:
    assert reason in refusal("warps-and-stages", ROWS.format(launch=launch))


# --- loop-stages, eviction-policy, reciprocal-square-root ---------------------------------------

LOOP = TRITON + (
    "@triton.jit\ndef helper(x):\n    return x\n\n"
    "@triton.jit\ndef k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n"
    "    for i in {loop}:\n        x = tl.load(x_ptr + i * BLOCK + tl.arange(0, BLOCK))\n"
    "        {body}\n\nk[(1,)](None, None, 1, BLOCK=64)\n"
)


@pytest.mark.parametrize(
    ("loop", "changed"),
    [
        ("range(n)", "tl.range(n, num_stages=4)"),
        ("tl.range(0, n)", "tl.range(0, n, num_stages=4)"),
        ("tl.range(n, num_stages=2)", "tl.range(n, num_stages=4)"),
    ],
)
def test_ranges_get_stages(loop: str, changed: str) -> None:
    text = LOOP.format(loop=loop, body="tl.store(y_ptr + i, x)")
    found = apply("loop-stages", text, {"num_stages": 4})
    assert found == LOOP.format(loop=changed, body="tl.store(y_ptr + i, x)")


@pytest.mark.parametrize(
    ("loop", "body"),
    [
        ("range(n)", "tl.store(x_ptr + i, x)"),
        ("range(n)", "tl.atomic_add(y_ptr, x)"),
        ("range(n)", "tl.store(y_ptr + i, tl.dot(x, x))"),
        ("range(n)", "tl.store(y_ptr + i, helper(x))"),
        ("tl.static_range(4)", "tl.store(y_ptr + i, x)"),
        ("tl.range(n, num_stages=BLOCK)", "tl.store(y_ptr + i, x)"),
    ],
)
def test_loops_that_are_not_pipelined(loop: str, body: str) -> None:
    assert "no innermost loop" in refusal("loop-stages", LOOP.format(loop=loop, body=body))


def test_blocks_of_a_product_share_their_loads() -> None:
    text = DOT.format(launch="k[(1,)](x, n, n)")
    assert "share what they load" in refusal("eviction-policy", text)


def test_loads_the_author_decided_about_stay() -> None:
    text = LOOP.format(loop="range(n)", body='y = tl.load(y_ptr, cache_modifier=".cg")')
    changed = apply("eviction-policy", text, {"reread": "evict_last"})
    assert changed == text.replace(
        "tl.arange(0, BLOCK))", 'tl.arange(0, BLOCK), eviction_policy="evict_last")'
    )


@pytest.mark.parametrize(
    ("expression", "changed"),
    [
        ("1 / tl.sqrt(x)", "tl.rsqrt(x)"),
        ("1.0 / tl.math.sqrt(x)", "tl.math.rsqrt(x)"),
        ("x * (1 / tl.sqrt(x + 1))", "x * tl.rsqrt(x + 1)"),
        ("(x - 1) / tl.sqrt(x)", "(x - 1) * tl.rsqrt(x)"),
        ("(\n            1 / tl.sqrt(x))", "(\n            tl.rsqrt(x))"),
    ],
)
def test_reciprocal_square_roots(expression: str, changed: str) -> None:
    text = LOOP.format(loop="range(n)", body=f"tl.store(y_ptr + i, {expression})")
    expected = LOOP.format(loop="range(n)", body=f"tl.store(y_ptr + i, {changed})")
    assert apply("reciprocal-square-root", text, {}) == expected


@pytest.mark.parametrize(
    "expression", ["x / tl.sqrt(x) ** 2", "(1  # one\n            / tl.sqrt(x))", "tl.sqrt(x) / 2"]
)
def test_other_square_roots_stay(expression: str) -> None:
    text = LOOP.format(loop="range(n)", body=f"tl.store(y_ptr + i, {expression})")
    assert "no launched kernel divides" in refusal("reciprocal-square-root", text)


# --- persistent-programs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("warps", "programs"),
    [
        ("num_warps=8", {4, 8, 16}),
        ("num_warps=32", {1, 2, 4}),
        ("num_warps=64", {1, 2}),
        ("num_warps=pick(n_cols)", {1, 2, 4, 8}),
    ],
)
def test_as_many_programs_as_their_warps_leave_room_for(warps: str, programs: set[int]) -> None:
    text = playbook.get("persistent-programs").before
    found = variants("persistent-programs", text.replace("BLOCK=block)", f"BLOCK=block, {warps})"))
    assert {params["programs_per_sm"] for params in found} == programs
    assert any("num_stages" in params for params in found)


def test_the_interpreter_has_no_warps_to_choose_a_row_for() -> None:
    entry = playbook.get("row-in-registers")
    source = Source(entry.before)
    counts = [
        len(entry.variants(Subject(source, KernelClass.MEMORY, hardware)))
        for hardware in (Hardware(sm=90), Hardware(interpreted=True))
    ]
    assert counts[0] > counts[1] == 1
