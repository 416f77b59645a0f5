"""Which integers are tile sizes and nothing else: the traps."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.provenance import tile_of
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source
from tests.support.causal_kernel import PREFIX

ROOT = Path(__file__).parents[2]
HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n"
COPY = """
@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x, mask=offsets < n)

"""
GRID = "    grid = (triton.cdiv(n, block),)\n"
SECOND = COPY.replace("def copy", "def second").replace("BLOCK", "B")


def variants(text: str, entry: str = "block-size") -> list[Params]:
    found = Source(text if "import" in text else HEAD + text)
    return list(playbook.get(entry).variants(Subject(found, KernelClass.MEMORY, Hardware())))


def refusal(text: str, entry: str = "block-size") -> str:
    with pytest.raises(NotApplicable) as refused:
        variants(text, entry)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def resized(text: str, params: Params) -> str:
    subject = Subject(Source(HEAD + text), KernelClass.MEMORY, Hardware())
    return playbook.get("block-size").apply(subject, params).removeprefix(HEAD)


@pytest.mark.parametrize(
    "launch",
    [
        "    copy[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, y, n, BLOCK=1024)\n",
        "    grid = lambda meta: (triton.cdiv(n, meta['BLOCK']),)\n"
        "    copy[grid](x, y, n, BLOCK=1024)\n",
        "    block = 1024\n    copy[(triton.cdiv(n, block),)](x, y, n, block)\n",
        "    block = 1024\n" + GRID + "    copy[grid](x, y, n, BLOCK=block)\n",
        "    block, warps = 1024, 4\n" + GRID + "    copy[grid](x, y, n, BLOCK=block)\n",
        "    block = 1024\n    blocks = (n + block - 1) // block\n    grid = (blocks,)\n"
        "    copy[grid](x, y, n, BLOCK=block)\n",
        "    block = 1024\n    copy[(-(-n // block),)](x, y, n, BLOCK=block)\n",
        "    block = 1024\n    def grid(meta):\n        return (triton.cdiv(n, block),)\n"
        "    copy[grid](x, y, n, BLOCK=block)\n",
        "    block = 1024\n    if n < 2**20:\n        grid = (triton.cdiv(n, block),)\n"
        "        copy[grid](x, y, n, BLOCK=block)\n        return\n"
        "    grid = (triton.cdiv(n, block), 1)\n    copy[grid](x, y, n, BLOCK=block)\n",
    ],
)
def test_where_a_size_may_be_set(launch: str) -> None:
    text = f"{COPY}def run(x, y, n):\n{launch}"
    assert variants(text) == [{"BLOCK": 512}, {"BLOCK": 2048}, {"BLOCK": 4096}]
    assert resized(text, {"BLOCK": 2048}) == text.replace("1024", "2048")


@pytest.mark.parametrize("size", ["2**10", "1 << 10", "8 * 128"])
@pytest.mark.parametrize(
    "launch",
    [
        "    block = SIZE\n    copy[(triton.cdiv(n, block),)](x, y, n, BLOCK=block)\n",
        "    copy[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, y, n, BLOCK=SIZE)\n",
        "    copy[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, y, n, BLOCK=block)\n",
    ],
)
def test_an_expression_of_integers_is_a_size_that_is_set_as_a_whole(size: str, launch: str) -> None:
    parameter = "" if "SIZE" in launch else ", block=SIZE"
    text = f"{COPY}def run(x, y, n{parameter}):\n{launch}"
    written = text.replace("SIZE", size)
    assert variants(written) == [{"BLOCK": 512}, {"BLOCK": 2048}, {"BLOCK": 4096}]
    assert resized(written, {"BLOCK": 2048}) == text.replace("SIZE", "2048")
    reason = refusal(written, "scaled-blocks")
    assert reason.endswith(("what the host computes can be scaled", "gives no variable for it"))


def test_a_search_sets_what_is_an_expression_of_integers() -> None:
    """As learn-cuTile writes `tile_size = 2**4`, in the function that launches."""
    entry = playbook.get("autotune")
    text = (ROOT / "examples/cutile_matmul/matmul.py").read_text(encoding="utf-8")
    sizes = "TILE_M = 64\nTILE_N = 64\nTILE_K = 64\n"
    head = '"""A @ B for fp16 or bf16 matrices of shapes (M, K) and (K, N)."""\n'
    assert sizes in text and head in text

    def tuned(local: str) -> str:
        moved = text.replace(sizes, "").replace(head, f"{head}    {local}\n")
        return entry.apply(Subject(Source(moved), KernelClass.COMPUTE, Hardware()), {})

    plain = tuned("TILE_M, TILE_N, TILE_K = 64, 64, 64")
    assert "_FIXED = SimpleNamespace(TILE_M=64, TILE_N=64, TILE_K=64, " in plain
    assert tuned("TILE_M, TILE_N, TILE_K = 2**6, 1 << 6, 2 * 32") == plain


def test_an_expression_with_another_use_is_no_size() -> None:
    text = (
        f"{COPY}def run(x, y, n):\n    block = 2**10\n{GRID}    pad(x, block)\n"
        "    copy[grid](x, y, n, BLOCK=block)\n"
    )
    assert "uses `block` for more than tiles and grid" in refusal(text)


def test_an_integer_is_changed_that_is_a_default_of_one_of_two_launches() -> None:
    text = (
        f"{COPY}B = 1024\n\ndef run(x, y, n):\n"
        "    copy[(triton.cdiv(n, B),)](x, y, n, BLOCK=B)\n\n"
        "def other(x, y, n, block=B):\n"
        "    copy[(triton.cdiv(n, block),)](x, y, n, BLOCK=block)\n"
    )
    assert resized(text, {"BLOCK": 2048}) == text.replace("1024", "2048")


def test_a_default_is_changed_and_who_gives_another_size_keeps_it() -> None:
    text = (
        f"{COPY}def run(x, y, n, block: int = 1024):\n{GRID}    copy[grid](x, y, n, BLOCK=block)\n"
        "\n\ndef small(x, y, n):\n    run(x, y, n, block=256)\n"
    )
    assert resized(text, {"BLOCK": 2048}) == text.replace("1024", "2048")


@pytest.mark.parametrize(
    ("wrapper", "reason"),
    [
        (
            "def run(x, y, n):\n    block = triton.next_power_of_2(n)\n"
            "    copy[(1,)](x, y, n, BLOCK=block)\n",
            "gives is computed: `triton.next_power_of_2(n)`",
        ),
        (
            "def run(x, y, n, block):\n" + GRID + "    copy[grid](x, y, n, BLOCK=block)\n",
            "gives is `block`, which is a parameter",
        ),
        (
            "def run(x, y, n, block=1024):\n    scales = torch.empty(n // block)\n" + GRID
            + "    copy[grid](x, y, n, BLOCK=block)\n",
            "uses `block` for more than tiles and grid",
        ),
        (
            "def run(x, y, n, args):\n    copy[(1,)](*args, BLOCK=1024)\n",
            "hides arguments behind a `*`",
        ),
        (
            "def run(x, y, n, opts):\n    copy[(1,)](x, y, n, **opts)\n",
            "does not show what it is given",
        ),
        (
            "def run(x, y, n):\n    copy[lambda meta: (n // meta['BLOCK'],)](x, y, n)\n",
            "does not show what it is given",
        ),
        (
            "SIZES = {'b': 1024}\ndef run(x, y, n):\n    copy[(1,)](x, y, n, BLOCK=SIZES['b'])\n",
            "gives is computed: `SIZES['b']`",
        ),
        (
            "def run(x, y, n):\n    copy[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)\n",
            "neither the grid nor a loop is computed from it",
        ),
        (
            "def run(x, y, n):\n    block = 1024\n" + GRID
            + "    grid = (triton.cdiv(n, 1024),)\n    copy[grid](x, y, n, BLOCK=block)\n",
            "neither the grid nor a loop is computed from it",
        ),
        (
            SECOND + "def run(x, y, z, n):\n    block = 1024\n" + GRID
            + "    copy[grid](x, y, n, BLOCK=block)\n    second[grid](x, z, n, B=1024)\n",
            "the grid of second uses it, and its tiles do not",
        ),
        (
            SECOND + "def run(x, y, z, n):\n    block = 1024\n" + GRID
            + "    copy[grid](x, y, n, BLOCK=block)\n" + GRID
            + "    second[grid](x, z, n, B=1024)\n",
            "the grid of second uses it, and its tiles do not",
        ),
        (
            "def run(x, y, n):\n    block = 1000\n" + GRID
            + "    copy[grid](x, y, n, BLOCK=block)\n",
            "1000 is no power of two",
        ),
        (
            "def run(x, y, n):\n    block = 1024\n    scales = torch.empty(n // block)\n" + GRID
            + "    copy[grid](x, y, n, BLOCK=block)\n",
            "uses `block` for more than tiles and grid",
        ),
        (
            "def run(x, y, n):\n    block = 1024\n    blocks = triton.cdiv(n, block)\n"
            "    scales = torch.empty(blocks)\n    copy[(blocks,)](x, y, n, BLOCK=block)\n",
            "uses `blocks`, which is computed from it, for more than the grid",
        ),
        (
            "def run(x, y, n):\n    block = 1024\n    blocks = triton.cdiv(n, block)\n"
            "    total = blocks * 2\n    scales = torch.empty(total)\n"
            "    copy[(total,)](x, y, n, BLOCK=block)\n",
            "uses `total`, which is computed from it, for more than the grid",
        ),
        (
            "@triton.jit\ndef row(x_ptr, n, WIDTH: tl.constexpr):\n"
            "    tl.store(x_ptr + tl.arange(0, WIDTH), 0, mask=tl.arange(0, WIDTH) < n)\n"
            "def run(x, y, n):\n    block = 1024\n"
            "    copy[(triton.cdiv(n, block),)](x, y, n, BLOCK=block)\n"
            "    row[(1,)](x, n, WIDTH=block)\n",
            "row shares it, and there neither the grid nor a loop is computed from it",
        ),
        (
            "def run(x, y, n):\n    block = 1024\n    copy[(n // block,)](x, y, n, BLOCK=block)\n",
            "drops a remainder by it",
        ),
        (
            "def run(x, y, n):\n"
            "    copy[lambda m: (triton.cdiv(n, m['BLOCK']),)](x, y, n, BLOCK=64)\n"
            "def again(x, y, n):\n"
            "    copy[lambda m: (triton.cdiv(n, m['BLOCK']),)](x, y, n, BLOCK=128)\n",
            "different values: [64, 128]",
        ),
        ("", "this file does not launch copy"),
    ],
)  # fmt: skip
def test_where_a_size_may_not_be_set(wrapper: str, reason: str) -> None:
    assert reason in refusal(COPY + wrapper)


@pytest.mark.parametrize(
    ("blocks", "drops"),
    [
        ("int(n / B)", True),
        ("round(n / B)", True),
        ("math.floor(n / B)", True),
        ("n // B", True),
        ("divmod(n, B)[0]", True),
        ("divmod(n, 2 * B)[0]", True),
        ("math.ceil(n / B)", False),
        ("int(math.ceil(n / B))", False),
        ("-(-n // B)", False),
    ],
)
def test_a_grid_has_to_round_up_however_it_divides(blocks: str, drops: bool) -> None:
    run = f"def run(x, y, n):\n    copy[({blocks},)](x, y, n, B)\n"
    text = f"import math\n{HEAD}{COPY}B = 1024\n\n{run}"
    if drops:
        assert "drops a remainder by it" in refusal(text)
    else:
        assert variants(text) == [{"BLOCK": 512}, {"BLOCK": 2048}, {"BLOCK": 4096}]


LAUNCH = (
    "def run(x, y, n):\n"
    "    kernel[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, y, n, BLOCK=1024)\n"
)


def kernel(*lines: str) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"@triton.jit\ndef kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n{body}\n{LAUNCH}"


OFFSETS = "offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"
LOADED = "x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)"
STORED = "tl.store(y_ptr + offsets, x, mask=offsets < n)"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            (OFFSETS, LOADED, "tl.store(y_ptr + tl.program_id(0), tl.sum(x, axis=0))"),
            "reduces along it, block by block",
        ),
        (
            (OFFSETS, LOADED, "s = tl.dot(x[:, None], x[None, :])", "m = tl.max(s, 1)", STORED),
            "reduces a tile, and whether that is along it is not followed",
        ),
        (
            (OFFSETS, LOADED, "x = x - tl.max(tl.abs(x), axis=0)", STORED),
            "reduces along it, block by block",
        ),
        (
            (OFFSETS, LOADED, "tl.atomic_add(y_ptr, tl.sum(x, axis=0) / BLOCK)"),
            "it is part of what line",
        ),
        ((OFFSETS, LOADED, "scale = 1.0 / BLOCK", "x = x * scale", STORED), "part of what line"),
        ((OFFSETS, LOADED, "x = tl.rand(0, offsets)", STORED), "it is part of what line"),
        (
            ("first = 0", "top = -1.0", "for i in range(0, n, BLOCK):",
             "    offsets = i + tl.arange(0, BLOCK)", f"    {LOADED}", "    own = tl.max(x)",
             "    first = tl.where(own > top, tl.min(tl.where(x == own, offsets, n)), first)",
             "    top = tl.maximum(top, own)", "tl.store(y_ptr, first)"),
            "stores what is computed from element numbers, and whether another size changes",
        ),
        (
            ("for i in range(n // BLOCK):", "    offsets = i * BLOCK + tl.arange(0, BLOCK)",
             f"    {LOADED}", f"    {STORED}"),
            "drops a remainder by it",
        ),
    ],
)  # fmt: skip
def test_what_a_kernel_may_not_do_with_a_size(lines: tuple[str, ...], reason: str) -> None:
    assert reason in refusal(kernel(*lines))


def test_without_a_mask_a_size_may_only_shrink() -> None:
    text = kernel(OFFSETS, "x = tl.load(x_ptr + offsets)", "tl.store(y_ptr + offsets, x)")
    assert variants(text) == [{"BLOCK": 512}]
    with pytest.raises(NotApplicable, match="cannot grow to 2048: an access is unguarded"):
        resized(text, {"BLOCK": 2048})


def test_a_loop_may_reduce_along_its_step() -> None:
    text = kernel(
        "total = tl.zeros((BLOCK,), dtype=tl.float32)",
        "for start in range(0, n, BLOCK):",
        "    offsets = start + tl.arange(0, BLOCK)",
        f"    {LOADED}",
        "    total += x",
        "tl.store(y_ptr, tl.sum(total, axis=0) / n)",
    )
    assert len(variants(text)) == 3


def test_two_launches_change_together() -> None:
    text = COPY + "def run(x, y, n):\n" + "".join(
        f"    copy[lambda m: (triton.cdiv(n, m['BLOCK']),)]({a}, {b}, n, BLOCK=64)\n"
        for a, b in ("xy", "yx")
    )  # fmt: skip
    assert resized(text, {"BLOCK": 128}) == text.replace("BLOCK=64", "BLOCK=128")


def test_several_kernels_are_named() -> None:
    text = (
        COPY + COPY.replace("def copy(", "def copy2(") + "def run(x, y, n):\n"
        "    copy[lambda m: (triton.cdiv(n, m['BLOCK']),)](x, y, n, BLOCK=64)\n"
        "    copy2[lambda m: (triton.cdiv(n, m['BLOCK']),)](x, y, n, BLOCK=32)\n"
    )
    found = variants(text)
    assert {params["kernel"] for params in found} == {"copy", "copy2"}
    assert len(found) <= 8
    changed = resized(text, {"kernel": "copy2", "BLOCK": 16})
    assert changed == text.replace("BLOCK=32", "BLOCK=16")


def test_kernels_that_share_an_integer_change_once() -> None:
    text = (
        COPY + COPY.replace("def copy(", "def copy2(") + "def run(x, y, n):\n    block = 64\n"
        "    copy[(triton.cdiv(n, block),)](x, y, n, BLOCK=block)\n"
        "    copy2[(triton.cdiv(n, block),)](x, y, n, BLOCK=block)\n"
    )
    assert variants(text) == [{"BLOCK": 32}, {"BLOCK": 128}, {"BLOCK": 256}]


def test_autotuned_kernels_are_left_alone() -> None:
    tuned = "@triton.autotune(configs=[triton.Config({'BLOCK': 64})], key=['n'])"
    text = COPY.replace("@triton.jit", f"{tuned}\n@triton.jit") + (
        "def run(x, y, n):\n    copy[lambda m: (triton.cdiv(n, m['BLOCK']),)](x, y, n)\n"
    )
    assert "copy is autotuned" in refusal(text)
    assert "copy is autotuned" in refusal(text, "warps-and-stages")


def test_a_tuner_of_one_of_several_kernels_is_named_once() -> None:
    tuned = COPY.replace(
        "@triton.jit", "@triton.autotune([triton.Config({'BLOCK': 64})], ['n'])\n@triton.jit"
    )
    tuned = tuned.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, SIZE: tl.constexpr")
    tuned = tuned.replace(
        "    tl.store", "    x += tl.sum(tl.zeros((SIZE,), tl.float32))\n    tl.store"
    )
    plain = "\n\n@triton.jit\ndef one(x_ptr):\n    tl.store(x_ptr, tl.program_id(0))\n\n\n"
    text = f"{tuned}{plain}def run(x, y, n):\n    copy[(1,)](x, y, n)\n    one[(1,)](x)\n"
    for entry in ("block-size", "blocks-and-warps"):
        assert refusal(text, entry) == "BLOCK and SIZE of copy: chosen by its tuner"
    assert refusal(text, "add-autotune") == (
        "copy is autotuned already; one has no block size of its own to tune"
    )


CUTILE = """
import cuda.tile as ct
import torch

@ct.kernel
def matmul(a, b, c, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    acc = ct.full((M, N), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(ct.bid(0), k), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(k, ct.bid(1)), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(left, right, acc)
    ct.store(c, index=(ct.bid(0), ct.bid(1)), tile=acc)

def run(a, b, c, stream, m=64):
    n, k = 64, 64
    ct.launch(stream, (ct.cdiv(a.shape[0], m), ct.cdiv(b.shape[1], n)), matmul, (a, b, c, m, n, k))
"""


def test_a_matrix_product_sweeps_its_three_sizes_together() -> None:
    text = CUTILE.replace(", m=64):\n", "):\n    m = 64\n")
    found = variants(text, "tile-sizes")
    assert {"M": 128, "N": 128, "K": 64} in found
    assert {"M": 64, "N": 64, "K": 64} not in found
    assert len(found) == 7


def test_a_default_is_swept_as_another_integer_is() -> None:
    assert {"M": 128, "N": 128, "K": 64} in variants(CUTILE, "tile-sizes")


def test_the_sizes_a_caller_has_to_choose_stay() -> None:
    found = variants(CUTILE.replace("m=64", "m"), "tile-sizes")
    assert {"N": 128, "K": 64} in found
    assert all("M" not in params for params in found)


def test_undetermined_padding_in_a_loop_may_only_shrink() -> None:
    text = CUTILE.replace(", padding_mode=ct.PaddingMode.ZERO", "").replace(
        ", m=64):\n", "):\n    m = 64\n"
    )
    found = variants(text, "tile-sizes")
    assert {"M": 128, "N": 128, "K": 64} in found
    assert max(params["K"] for params in found) == 64


def test_one_integer_for_two_sizes_takes_one_value() -> None:
    text = CUTILE.replace(", m=64):\n    n, k = 64, 64\n", "):\n    m = n = k = 64\n")
    assert "is not assigned a plain value" in refusal(text, "tile-sizes")
    text = CUTILE.replace(", m=64)", ")").replace("n, k = 64, 64", "t = 64").replace(
        "a.shape[0], m", "a.shape[0], t").replace("b.shape[1], n", "b.shape[1], t").replace(
        "c, m, n, k", "c, t, t, t")  # fmt: skip
    found = variants(text, "tile-sizes")
    assert found == [{"M": size, "N": size, "K": size} for size in (32, 128, 256)]


# --- blocks-and-warps ---------------------------------------------------------------------------


def with_warps(text: str) -> list[Params]:
    return variants(text, "blocks-and-warps")


def test_blocks_come_with_the_warps_that_hold_them() -> None:
    text = COPY + "def run(x, y, n):\n    block = 256\n" + GRID + (
        "    copy[grid](x, y, n, BLOCK=block, num_warps=2)\n"
    )  # fmt: skip
    found = with_warps(text)
    assert found[0] == {"BLOCK": 2048, "num_warps": 8}
    assert len(found) == 8
    assert all(8 <= p["BLOCK"] // p["num_warps"] // 32 <= 32 for p in found)
    subject = Subject(Source(HEAD + text), KernelClass.MEMORY, Hardware())
    entry = playbook.get("blocks-and-warps")
    changed = entry.apply(subject, found[0]).removeprefix(HEAD)
    assert changed == text.replace("= 256", "= 2048").replace("num_warps=2", "num_warps=8")
    again = Subject(Source(HEAD + changed), KernelClass.MEMORY, Hardware())
    assert found[0] not in entry.variants(again)
    with pytest.raises(NotApplicable, match="these blocks and warps already"):
        entry.apply(again, found[0])


def test_only_the_warps_change_where_the_blocks_are_right() -> None:
    text = COPY + "def run(x, y, n):\n    block = 2048\n" + GRID + (
        "    copy[grid](x, y, n, BLOCK=block)\n"
    )  # fmt: skip
    assert {"BLOCK": 2048, "num_warps": 4} not in with_warps(text)
    subject = Subject(Source(HEAD + text), KernelClass.MEMORY, Hardware())
    params = {"BLOCK": 2048, "num_warps": 8}
    changed = playbook.get("blocks-and-warps").apply(subject, params).removeprefix(HEAD)
    assert changed == text.replace("BLOCK=block)", "BLOCK=block, num_warps=8)")


def test_only_the_warps_of_one_kernel_change_where_another_has_a_block_of_that_name() -> None:
    def launching(copy: str, block: int) -> str:
        kernel = COPY.replace("copy", copy)
        host = f"def run_{copy}(x, y, n):\n    block = {block}\n{GRID}"
        return f"{kernel}{host}    {copy}[grid](x, y, n, BLOCK=block)\n"

    text = launching("copy", 2048) + launching("other", 64)
    subject = Subject(Source(HEAD + text), KernelClass.MEMORY, Hardware())
    entry = playbook.get("blocks-and-warps")
    params = {"kernel": "copy", "BLOCK": 2048, "num_warps": 8}
    assert params in entry.variants(subject)
    made = {entry.apply(subject, each).removeprefix(HEAD) for each in entry.variants(subject)}
    launch = "    copy[grid](x, y, n, BLOCK=block"
    assert text.replace(f"{launch})", f"{launch}, num_warps=8)") in made


def test_a_handful_of_rows_is_scaled_and_no_vector() -> None:
    text = (
        "@triton.jit\ndef copy(x_ptr, y_ptr, m, n, ROWS: tl.constexpr, WIDTH: tl.constexpr):\n"
        "    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)\n"
        "    cols = tl.arange(0, WIDTH)\n"
        "    mask = (rows[:, None] < m) & (cols[None, :] < n)\n"
        "    x = tl.load(x_ptr + rows[:, None] * n + cols[None, :], mask=mask)\n"
        "    tl.store(y_ptr + rows[:, None] * n + cols[None, :], x, mask=mask)\n\n"
        "def run(x, y, m, n):\n    rows = 4\n    width = triton.next_power_of_2(n)\n"
        "    copy[(triton.cdiv(m, rows),)](x, y, m, n, ROWS=rows, WIDTH=width)\n"
    )
    assert {p["ROWS"] for p in with_warps(text)} == {2, 4, 8}


@pytest.mark.parametrize("deep", [False, True])
def test_edges_of_a_tile_with_a_third_dimension_are_scaled(deep: bool) -> None:
    """Of single elements, and of 16 each: 128 x 128 x 16 was seen to compile for two minutes."""
    behind, third = (", None", 16) if deep else ("", 1)
    parts = "tl.arange(0, 16)[None, None, :]" if deep else "0"
    text = (
        "@triton.jit\ndef copy(x_ptr, y_ptr, h, w, BH: tl.constexpr, BW: tl.constexpr):\n"
        "    rows = tl.program_id(0) * BH + tl.arange(0, BH)\n"
        "    cols = tl.program_id(1) * BW + tl.arange(0, BW)\n"
        f"    rows, cols = rows[:, None{behind}], cols[None, :{behind}]\n"
        "    mask = (rows < h) & (cols < w)\n"
        f"    at = (rows * w + cols) * {third} + {parts}\n"
        "    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=mask), mask=mask)\n\n"
        "def run(x, y, h, w):\n    bh, bw = 16, 16\n"
        "    copy[(triton.cdiv(h, bh), triton.cdiv(w, bw))](x, y, h, w, BH=bh, BW=bw)\n"
    )
    largest = max(p["BH"] * p["BW"] for p in with_warps(text))
    assert largest == (32 * 32 if deep else 128 * 128)


def test_the_tiles_of_an_attention_are_known_by_their_accumulator() -> None:
    found = with_warps(PREFIX)
    assert found[0] == {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3}
    assert all(p["BLOCK_M"] % p["BLOCK_N"] == 0 for p in found)  # its loop ends at a block of rows
    assert "multiplies tiles, whose sizes go with their warps" in refusal(PREFIX)


def test_the_blocks_of_a_product_go_with_warps_and_stages() -> None:
    text = playbook.get("tile-descriptors").before
    for edge in ("M", "N"):
        text = text.replace(f"cdiv({edge}, 64)", f'cdiv({edge}, META["BLOCK_{edge}"])')
    found = with_warps(text.replace("grid = (", "grid = lambda META: ("))
    assert {
        "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3
    } in found  # fmt: skip
    assert all(p["num_warps"] == 8 for p in found if p["BLOCK_M"] * p["BLOCK_N"] > 128 * 128)


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        ("**{'BLOCK': block, **options})", "does not show what it is given"),
        ("BLOCK=triton.next_power_of_2(n))", "gives is computed"),
    ],
)
def test_blocks_and_warps_that_are_not_ours_to_set(launch: str, reason: str) -> None:
    text = (
        COPY + "def run(x, y, n):\n    block = 64\n" + GRID + f"    copy[grid](x, y, n, {launch}\n"
    )
    assert reason in refusal(text, "blocks-and-warps")


def test_blocks_change_where_a_launch_computes_its_warps() -> None:
    text = COPY + (
        "def run(x, y, n):\n    block = 64\n" + GRID + "    warps = 4 if n < 64 else 8\n"
        "    copy[grid](x, y, n, BLOCK=block, num_warps=warps)\n"
    )
    subject = Subject(Source(HEAD + text), KernelClass.MEMORY, Hardware())
    changed = playbook.get("blocks-and-warps").apply(subject, {"BLOCK": 2048, "num_warps": 16})
    heuristic = '@triton.heuristics({"num_warps": lambda args: 16})\n'
    assert changed.removeprefix(HEAD) == text.replace("block = 64", "block = 2048").replace(
        "@triton.jit\n", f"{heuristic}@triton.jit\n"
    )  # fmt: skip


# --- scaled-blocks ------------------------------------------------------------------------------

LAUNCHED = "    grid = (triton.cdiv(n, block),)\n    copy[grid](x, y, n, BLOCK=block)\n"
DOUBLED = "    block = min(2 * block, 65536)\n"


def scaled(text: str, factor: float = 2) -> str:
    subject = Subject(Source(HEAD + text), KernelClass.MEMORY, Hardware())
    params = {"block": "block", "factor": factor}
    return playbook.get("scaled-blocks").apply(subject, params).removeprefix(HEAD)


@pytest.mark.parametrize(
    "computed",
    [
        "    block = min(2048, triton.next_power_of_2(n))\n",
        "    block, warps = settings(n)\n",
        "    block = 256\n    if n > 4096:\n        block = 1024\n",
        "    block = 512 if x.dtype == torch.float16 else 256\n",
        "    block = settings(n)\n    if block > 65536:\n        raise ValueError(block)\n",
        "    block = CONFIGS[x.dtype]['BLOCK']\n    assert block % 16 == 0\n",
        "    block = settings(n)\n    warps = 4\n    if block >= 2048:\n        warps = 8\n",
    ],
)
def test_a_computed_block_is_scaled_above_its_first_use(computed: str) -> None:
    text = f"{COPY}def run(x, y, n):\n{computed}{LAUNCHED}"
    if "warps = 8" in computed:
        text = text.replace("BLOCK=block)", "BLOCK=block, num_warps=warps)")
    launched = text[text.index("    grid =") :]
    assert [p["factor"] for p in variants(text, "scaled-blocks")] == [2, 0.5, 4, 0.25]
    changed = scaled(text)
    assert changed == text.replace(launched, DOUBLED + launched)
    assert scaled(changed, 0.25) == text.replace(
        launched, f"    block = max(block // 4, 1)\n{launched}"
    )
    assert [p["factor"] for p in variants(changed, "scaled-blocks")] == [0.5, 4, 0.25]


def test_a_computed_block_is_scaled_above_the_function_that_makes_the_grid() -> None:
    grid = (
        "    def grid(meta):\n        return (triton.cdiv(n, block),)\n\n"
        "    with torch.cuda.device(x.device):\n        copy[grid](x, y, n, BLOCK=block)\n"
    )
    text = f"{COPY}def run(x, y, n):\n    block = settings(n)\n{grid}"
    assert scaled(text) == text.replace(grid, DOUBLED + grid)


def test_a_block_whose_tail_nothing_masks_only_shrinks() -> None:
    text = f"{COPY}def run(x, y, n):\n    block = settings(n)\n{LAUNCHED}"
    text = text.replace(", mask=offsets < n", "")
    assert [p["factor"] for p in variants(text, "scaled-blocks")] == [0.5, 0.25]


def test_a_part_of_a_block_is_never_more_than_the_block() -> None:
    """A product takes 16 elements at least, or its own fewer; what is none of a product, one."""
    product = """\
@triton.jit
def product(a_ptr, b_ptr, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        ks = k + i
        a = tl.load(a_ptr + i[:, None] * K + ks[None, :], mask=ks[None, :] < K, other=0.0)
        total += tl.dot(a, tl.trans(a))
    tl.store(b_ptr + i[:, None] * BLOCK + i[None, :], total)


def square(a, b, K):
    size = settings(K)
    product[(1,)](a, b, K, BLOCK=size)


"""
    copying = f"{COPY}def run(x, y, n):\n    block = settings(n)\n{LAUNCHED}"
    assert "    block = max(block // 2, 1)\n    grid" in scaled(product + copying, 0.5)
    text = copying.replace(
        "x = tl.load", "w = tl.zeros((16, 16), tl.float32)\n    tl.dot(w, w)\n    x = tl.load"
    )
    halved = scaled(text, 0.5)
    assert "    block = max(block // 2, min(block, 16))\n    grid" in halved
    assert "    block = max(block // 4, min(block, 16))\n    grid" in scaled(halved, 0.25)
    assert halved.count("max(") == scaled(halved, 0.25).count("max(") == 1


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("    block = 64\n" + LAUNCHED,
         "it is an integer of the file, and only what the host computes can be scaled"),
        ("    block = triton.next_power_of_2(n)\n    copy[(1,)](x, y, n, BLOCK=block)\n",
         "neither the grid nor a loop is computed from it"),
        ("    block = settings(n)\n    partial = torch.empty(n // block)\n" + LAUNCHED,
         "uses `block` for more than tiles and grid"),
        ("    block = settings(n)\n    print(block)\n" + LAUNCHED,
         "uses `block` for more than tiles and grid"),
        ("    for block in (64, 128):\n        copy[(triton.cdiv(n, block),)](x, y, n, block)\n",
         "it is computed in a loop"),
        ("    block = settings(n)\n    grid = (triton.cdiv(n, block),)\n"
         "    block = settings(n)\n    copy[grid](x, y, n, BLOCK=block)\n",
         "it is used where it is computed, or before"),
        ("    block = settings(n)\n" + LAUNCHED + "    return y, block\n", "line 16 uses `block`"),
        ("    block = settings(n)\n    max = 3\n" + LAUNCHED, "`max` is a name of the file's own"),
    ],
)  # fmt: skip
def test_computed_blocks_that_are_not_ours_to_scale(lines: str, reason: str) -> None:
    assert reason in refusal(f"{COPY}def run(x, y, n):\n{lines}", "scaled-blocks")


def test_what_is_written_above_a_statement_leaves_it_its_comments() -> None:
    computed = "    block = settings(n)\n"
    said = "\n    # Each block\n    # takes its own.\n"
    text = f"{COPY}def run(x, y, n):\n{computed}{said}{LAUNCHED}"
    assert scaled(text, 0.5) == text.replace(said, f"\n    block = max(block // 2, 1)\n{said[1:]}")


def test_a_block_of_two_launches_is_scaled_once() -> None:
    """Whose grids have one name: each is the one that was assigned last."""
    made = "    block = settings(n)\n"
    text = f"{COPY}def run(x, y, n):\n{made}{LAUNCHED}{LAUNCHED}"
    assert scaled(text, 0.5) == text.replace(made, f"{made}    block = max(block // 2, 1)\n")


def test_a_block_that_a_caller_chooses_is_not_scaled() -> None:
    text = f"{COPY}def run(x, y, n, block):\n{LAUNCHED}"
    assert "is not computed in this function" in refusal(text, "scaled-blocks")


# --- blocks that are counted --------------------------------------------------------------------

SCALED = """
@triton.jit
def product(a_ptr, b_ptr, s_ptr, c_ptr, M, N, K,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_ptrs = a_ptr + rows[:, None] * K + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * N + cols[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (inner[None, :] < K - k * BK), other=0.0)
        b = tl.load(b_ptrs, mask=(inner[:, None] < K - k * BK) & (cols[None, :] < N), other=0.0)
        {scale}
        acc += tl.dot(a, b) * scale
        a_ptrs += BK
        b_ptrs += BK * N
        {step}
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc, mask=mask)

def run(a, b, s, c):
    M, K = a.shape
    K, N = b.shape
    grid = lambda META: (triton.cdiv(M, META["BM"]), triton.cdiv(N, META["BN"]))
    product[grid](a, b, s, c, M, N, K, BM=64, BN=64, BK=64)
"""
BY_COUNTER = "scale = tl.load(s_ptr + k * N + cols)"
BY_NAME = "group = k + 0\n        scale = tl.load(s_ptr + group * N + cols)"
BY_STEP = "scale = tl.load(s_ptr + cols)"
BY_ELEMENT = "scale = tl.load(s_ptr + (k * BK // 64) * N + cols)"


@pytest.mark.parametrize(
    ("scale", "step"),
    [(BY_COUNTER, "pass"), (BY_NAME, "pass"), (BY_STEP, "s_ptr += N"), (BY_STEP, "s_ptr += 64")],
)
@pytest.mark.parametrize("entry", ["blocks-and-warps", "add-autotune"])
def test_a_block_that_has_one_scale_keeps_its_size(entry: str, scale: str, step: str) -> None:
    """Another BK would load other scales: 1.5 off where 0.0007 is right, and no mask shows it."""
    text = HEAD + SCALED.format(scale=scale, step=step)
    found = variants(text, entry)
    assert found
    assert all("BK" not in params for params in found)
    subject = Subject(Source(text), KernelClass.COMPUTE, Hardware(sm=90))
    for params in found:
        changed = playbook.get(entry).apply(subject, params)
        assert "BK=64" in changed and '"BK"' not in changed


@pytest.mark.parametrize("scale", ["scale = 2.0", BY_ELEMENT])
def test_a_block_whose_number_is_multiplied_by_its_size_may_change(scale: str) -> None:
    found = variants(HEAD + SCALED.format(scale=scale, step="pass"), "blocks-and-warps")
    assert all("BK" in params for params in found)


BEHIND_NAMES = """group = k * BK // 64 + tl.arange(0, 1)
        places = group[:, None] * N + cols[None, :]
        scale = tl.load(s_ptr + places, mask=cols[None, :] < N)"""


@pytest.mark.parametrize("scale", [BY_ELEMENT, BEHIND_NAMES])
def test_a_block_of_which_all_has_one_groups_scale_does_not_grow(scale: str) -> None:
    """As AutoAWQ reads it: a block of twice the group has two scales."""
    for each, grows in ((scale, False), ("scale = 2.0", True)):
        source = Source(HEAD + SCALED.format(scale=each, step="pass"))
        (kernel,) = TRITON.kernels(source)
        assert tile_of(TRITON, source, kernel, "BK").changes.may_grow is grows


def test_a_program_that_takes_its_tile_apart_counts_no_blocks() -> None:
    text = HEAD + SCALED.format(scale="scale = 2.0", step="pass").replace(
        "    rows = tl.program_id(0) * BM",
        "    pid = tl.program_id(0)\n    wide = tl.cdiv(N, BN)\n    rows = (pid // wide) * BM",
    ).replace("tl.program_id(1) * BN", "(pid % wide) * BN").replace(
        '(triton.cdiv(M, META["BM"]), triton.cdiv(N, META["BN"]))',
        '(triton.cdiv(M, META["BM"]) * triton.cdiv(N, META["BN"]),)',
    )  # fmt: skip
    assert all({"BM", "BN", "BK"} <= params.keys() for params in variants(text, "blocks-and-warps"))


CUTILE_SCALED = (
    CUTILE.replace("(a, b, c, M:", "(a, b, s, c, M:")
    .replace("(a, b, c, m, n, k)", "(a, b, s, c, m, n, k)")
    .replace("run(a, b, c, stream, m=64)", "run(a, b, s, c, stream)")
    .replace("n, k = 64, 64", "m, n, k = 64, 64, 64")
)
MULTIPLIED = "        acc = ct.mma(left, right, acc)\n"


@pytest.mark.parametrize(
    ("scale", "kept"),
    [
        ("ct.load(s, (k, ct.bid(1)), (1, N))", True),
        ("ct.load(s, index=(ct.bid(0), k), shape=(M, 1))", True),
        ("ct.gather(s, (k, ct.arange(N, dtype=ct.int32)))", True),
        ("ct.load(s, (ct.bid(1), k), (N, K))", False),
        ("ct.gather(s, (k * K, ct.arange(N, dtype=ct.int32)))", False),
    ],
)
@pytest.mark.parametrize("entry", ["tile-sizes", "autotune"])
def test_a_tile_that_has_one_scale_keeps_its_size(entry: str, scale: str, kept: bool) -> None:
    text = CUTILE_SCALED.replace(MULTIPLIED, f"{MULTIPLIED}        acc = acc * {scale}\n")
    subject = Subject(Source(text), KernelClass.COMPUTE, Hardware(sm=100))
    if entry == "tile-sizes":
        assert all(("K" in p) is (not kept) and "N" in p for p in variants(text, entry))
    else:  # the space that is searched at run time
        (params, *_) = playbook.get(entry).variants(subject)
        changed = playbook.get(entry).apply(subject, params)
        assert ("_MATMUL_SPACE" in changed) is (not kept)


def test_a_tile_index_that_also_counts_experts_keeps_its_size() -> None:
    text = CUTILE.replace("    acc = ct.full", "    n = ct.bid(1)\n    acc = ct.full").replace(
        "(k, ct.bid(1))", "(k, n)"
    )  # fmt: skip
    assert all("N" in params for params in variants(text, "tile-sizes"))
    counted = text.replace(MULTIPLIED, f"{MULTIPLIED}        acc *= ct.load(a, (n, 0), (1, 1))\n")
    assert all("N" not in params for params in variants(counted, "tile-sizes"))


ATTENTION = (Path(__file__).parents[2] / "benchmarks/cutile/attention/attention.py").read_text()
CAUSAL, UP_TO = "columns <= rows", "ct.cdiv((i + 1) * TILE_M, TILE_N)"
TO_THE_ROWS = "min(k.shape[2], (i + 1) * TILE_M)"
WHOLE = "takes in whole tiles up to its loop's end"


@pytest.mark.parametrize(
    ("mask", "end", "reason"),
    [
        (CAUSAL, UP_TO, ""),
        (CAUSAL, f"ct.cdiv({TO_THE_ROWS}, TILE_N)", ""),
        ("columns < k.shape[2]", "ct.cdiv(k.shape[2], TILE_N)", ""),
        ("columns < k.shape[2]", UP_TO, WHOLE),  # a block of rows sees whole blocks of columns
        ("columns < k.shape[2]", f"ct.cdiv({TO_THE_ROWS}, TILE_N)", WHOLE),
        ("columns <= rows + 64", UP_TO, WHOLE),
    ],
)
def test_a_loop_up_to_an_end_of_its_own_takes_tiles_of_one_size(
    mask: str, end: str, reason: str
) -> None:
    """Unless the mask removes what is behind the end; behind an array's there is padding."""
    text = ATTENTION.replace(CAUSAL, mask).replace(UP_TO, end)
    assert mask in text and end in text
    asked = Subject(Source(text), KernelClass.COMPUTE, Hardware(sm=90))
    entry = playbook.get("tile-sizes")
    if not reason:
        assert 128 in [params.get("TILE_N") for params in entry.variants(asked)]
        return
    with pytest.raises(NotApplicable, match=reason):
        entry.variants(asked)


REDUCED = """\
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, y, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y, tl.sum(total, axis=0))


def run(x, y):
    k[(1,)](x, y, x.numel(), BLOCK=64)
"""


def test_a_range_of_elements_may_be_given_by_keyword() -> None:
    named = REDUCED.replace("arange(0, BLOCK)", "arange(start=0, end=BLOCK)")
    for text in (REDUCED, named):
        (kernel,) = TRITON.kernels(Source(text))
        assert tile_of(TRITON, Source(text), kernel, "BLOCK").changes.may_grow
