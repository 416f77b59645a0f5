"""What single entries do beyond their example."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.launches import ObservedLaunch
from agent.playbook.triton.warps_and_stages import WARPS
from agent.rewriting.common.dead_names import without_dead_names
from agent.syntax import Source

TRITON = "import triton\nimport triton.language as tl\n\n"
CUTILE = "import cuda.tile as ct\n\n"


def variants(name: str, text: str) -> list[Params]:
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware())
    return list(playbook.get(name).variants(subject))


def apply(name: str, text: str, params: Params) -> str:
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware())
    return without_dead_names(text, playbook.get(name).apply(subject, params))


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


def test_a_hint_by_target_is_the_authors_matter_where_no_target_is_known() -> None:
    text = CUTILE + "@ct.kernel(occupancy=ct.ByTarget(sm_100=4))\ndef k(x): ...\n"
    assert "is computed: `ct.ByTarget(sm_100=4)`" in refusal("occupancy-hint", text)


@pytest.mark.parametrize(
    ("given", "sm", "present", "expected"),
    [
        ("sm_100=4", 100, 4, "sm_100=8"),
        ("sm_100=4", 90, 1, "sm_100=4, sm_90=8"),
        ("sm_100=4, default=2", 90, 2, "sm_100=4, default=2, sm_90=8"),
        ("default=None, sm_90=2", 90, 2, "default=None, sm_90=8"),
    ],
)
def test_a_hint_by_target_is_set_for_the_target_of_the_run(
    given: str, sm: int, present: int, expected: str
) -> None:
    text = CUTILE + f"@ct.kernel(occupancy=ct.ByTarget({given}))\ndef k(x): ...\n"
    subject = Subject(Source(text), KernelClass.BALANCED, Hardware(sm=sm))
    entry = playbook.get("occupancy-hint")
    values = [params["occupancy"] for params in entry.variants(subject)]
    assert present not in values and 8 in values
    assert entry.apply(subject, {"occupancy": 8}) == text.replace(given, expected)


def test_a_tuned_kernel_keeps_its_hints() -> None:
    text = CUTILE + (
        "@ct.kernel\ndef k(x): ...\n\n"
        "best = ct.tune.exhaustive_search(space, stream, grid, k, args)\n"
    )
    assert refusal("occupancy-hint", text) == "k is tuned at line 6"


def test_pairs_of_blocks_are_for_products_where_memory_is_no_limit() -> None:
    asked = Subject(Source(TWO.format(two="two")), KernelClass.BALANCED, Hardware(sm=90))
    with pytest.raises(NotApplicable, match="no launched kernel multiplies tiles"):
        playbook.get("num-ctas").variants(asked)


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


def test_no_thread_is_given_more_of_a_row_than_its_registers_hold() -> None:
    found = variants("warps-and-stages", ROWS.format(launch="k[(1,)](x, n, 32768)"))
    assert found == [{"num_warps": 8}, {"num_warps": 16}, {"num_warps": 32}]


def test_a_tile_that_only_a_launch_tells() -> None:
    text = ROWS.format(launch="k[(1,)](x, n, n)")
    asked = Subject(Source(text), KernelClass.MEMORY, Hardware())
    launches = tuple(ObservedLaunch("k", "t", (1,), {"BLOCK": n}, {}, {}) for n in (512, 128))
    entry = playbook.get("warps-and-stages")
    found = entry.variants(replace(asked, launches=launches))
    assert found == [{"num_warps": 1}, {"num_warps": 2}]
    assert len(entry.variants(asked)) == len(WARPS) - 1


@pytest.mark.parametrize(
    "launch",
    [
        "k[(1,)](x, n, n, num_warps=pick(n))",
        "k[(1,)](x, n, n, **options)",
        "k[(1,)](*x, n)",
        "print(warps); k[(1,)](x, n, n, num_warps=warps)",
        "k.run(x, n, n, grid=(1,), warmup=False)",
        "return dispatch(k)",
        "pass",
    ],
)
def test_warps_of_a_launch_that_cannot_be_edited_are_set_on_the_kernel(launch: str) -> None:
    text = ROWS.format(launch=launch)
    assert len(variants("warps-and-stages", text)) == len(WARPS)
    changed = apply("warps-and-stages", text, {"num_warps": 8})
    heuristic = '@triton.heuristics({"num_warps": lambda args: 8})\n'
    plain = text.replace(", num_warps=warps)", ")")  # which the heuristic outranks
    assert changed == plain.replace("@triton.jit\n", f"{heuristic}@triton.jit\n")
    again = apply("warps-and-stages", changed, {"num_warps": 16})
    assert again == changed.replace("args: 8", "args: 16")
    assert {"num_warps": 8} not in variants("warps-and-stages", changed)


def test_warps_of_the_authors_own_heuristic_are_computed_otherwise() -> None:
    own = (
        '@triton.heuristics({"num_warps": lambda args: 4 if args["n"] < 64 else 8})\n@triton.jit\n'
    )
    text = ROWS.format(launch="k[(1,)](x, n, n, **options)").replace("@triton.jit\n", own)
    changed = apply("warps-and-stages", text, {"num_warps": 2})
    assert changed == text.replace('lambda args: 4 if args["n"] < 64 else 8', "lambda args: 2")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ROWS.format(launch="k[(1,)](*x)").replace("n, BLOCK", "n, num_warps, BLOCK"),
         "k takes num_warps as a parameter"),
        (ROWS.format(launch="k[(1,)](*x); k.fn"), "line 11 takes k.fn"),
        ("import torch\n" + ROWS.format(launch="torch.library.wrap_triton(k)[(1,)](*x)"),
         "wraps k, which takes no heuristics then"),
        (ROWS.format(launch="k[(1,)](*x)") + "\n@triton.jit\ndef outer(x):\n    k(x, 1, 1)\n",
         "outer calls k"),
    ],
)  # fmt: skip
def test_warps_that_are_not_ours_to_set(text: str, reason: str) -> None:
    assert reason in refusal("warps-and-stages", text)


# --- warps-by-row -------------------------------------------------------------------------------

SETTINGS = ROWS.replace("warps, stages = 4, 3", "block, warps = calculate_settings(n)")


@pytest.mark.parametrize(
    "launch",
    [
        "k[(1,)](x, n, BLOCK=block, num_warps=warps)",
        "k[(1,)](*x, BLOCK=block)",
        "k[(1,)](x, n, min(block, 2048), num_warps=4)",
        "dispatch(k)",
    ],
)
def test_the_warps_of_a_computed_block_are_computed_from_it(launch: str) -> None:
    text = SETTINGS.format(launch=launch)
    changed = apply("warps-by-row", text, {"elements_per_warp": 512})
    plain = re.sub(r", num_warps=\w+\)", ")", text)
    assert changed == plain.replace(
        "@triton.jit\n",
        '@triton.heuristics({"num_warps": lambda args: min(max(args["BLOCK"] // 512, 1), 32)})\n'
        "@triton.jit\n",
    )
    assert {"elements_per_warp": 512} not in variants("warps-by-row", changed)
    again = apply("warps-by-row", changed, {"elements_per_warp": 128})
    assert again == changed.replace("512", "128")


def test_the_ramp_of_warps_may_begin_at_four() -> None:
    text = SETTINGS.format(launch="k[(1,)](x, n, BLOCK=block, num_warps=warps)")
    params = {"elements_per_warp": 512, "least_warps": 4}
    assert params in variants("warps-by-row", text)
    changed = apply("warps-by-row", text, params)
    assert 'min(max(args["BLOCK"] // 512, 4), 32)' in changed
    assert params not in variants("warps-by-row", changed)
    assert {"elements_per_warp": 512} in variants("warps-by-row", changed)


def test_the_warps_of_one_block_are_no_matter_of_its_length() -> None:
    text = ROWS.format(launch="k[(1,)](x, n, BLOCK=1024)")
    assert refusal("warps-by-row", text) == "BLOCK of k is one number: see warps-and-stages"


# --- loop-stages, eviction-policy ---------------------------------------------------------------

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
    ("loop", "expected"),
    [
        ("range(n)", [2, 3, 4]),
        ("tl.range(n, num_stages=3)", [2, 4]),
        ("tl.range(n, num_stages=4)", [2, 3, 6, 8]),
        ("tl.range(n, num_stages=8)", [2, 3, 4, 6]),
        ("tl.range(n, num_stages=5)", [2, 3, 4, 6, 8]),
    ],
)
def test_more_stages_are_tried_where_the_most_were_kept(loop: str, expected: list[int]) -> None:
    text = LOOP.format(loop=loop, body="tl.store(y_ptr + i, x)")
    assert [params["num_stages"] for params in variants("loop-stages", text)] == expected
    assert playbook.get("loop-stages").climbs


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


def test_loads_of_one_address_in_branches_of_a_choice_are_each_read_once() -> None:
    branches = """if n % 2:
            y = tl.load(y_ptr + tl.program_id(0) + i)
        else:
            y = tl.load(y_ptr + tl.program_id(0) + i)"""
    text = LOOP.format(loop="range(n)", body=branches)
    changed = apply("eviction-policy", text, {"streamed": "evict_first"})
    assert (
        changed.count('tl.load(y_ptr + tl.program_id(0) + i, eviction_policy="evict_first")') == 2
    )


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
