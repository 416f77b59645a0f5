"""Which integers are tile sizes and nothing else: the traps."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.syntax import Source

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n"
COPY = """
@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x, mask=offsets < n)

"""
GRID = "    grid = (triton.cdiv(n, block),)\n"


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
    ],
)
def test_where_a_size_may_be_set(launch: str) -> None:
    text = f"{COPY}def run(x, y, n):\n{launch}"
    assert variants(text) == [{"BLOCK": 512}, {"BLOCK": 2048}, {"BLOCK": 4096}]
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
            "gives `block` is a parameter",
        ),
        (
            "def run(x, y, n, block=1024):\n" + GRID + "    copy[grid](x, y, n, BLOCK=block)\n",
            "a caller chooses it",
        ),
        (
            "def run(x, y, n, args):\n    copy[(1,)](*args, BLOCK=1024)\n",
            "does not show what it is given",
        ),
        (
            "def run(x, y, n, opts):\n    copy[(1,)](x, y, n, **opts)\n",
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
        ("", "this file does not launch the kernel"),
    ],
)  # fmt: skip
def test_where_a_size_may_not_be_set(wrapper: str, reason: str) -> None:
    assert reason in refusal(COPY + wrapper)


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


CUTILE = """
import cuda.tile as ct

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


def test_the_sizes_a_caller_chooses_stay() -> None:
    found = variants(CUTILE, "tile-sizes")
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


ATTENTION = playbook.get("causal-split").before


def test_the_tiles_of_an_attention_are_known_by_their_accumulator() -> None:
    found = with_warps(ATTENTION)
    assert found[0] == {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3}
    assert all(p["BLOCK_M"] % p["BLOCK_N"] == 0 for p in found)  # its loop ends at a block of rows
    assert "multiplies tiles, whose sizes go with their warps" in refusal(ATTENTION)


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
        ("BLOCK=block, num_warps=pick(n))", "num_warps of the launch at line 15 is computed"),
        ("BLOCK=block, **options)", "does not show what it is given"),
        ("BLOCK=triton.next_power_of_2(n))", "gives is computed"),
    ],
)
def test_blocks_and_warps_that_are_not_ours_to_set(launch: str, reason: str) -> None:
    text = (
        COPY + "def run(x, y, n):\n    block = 64\n" + GRID + f"    copy[grid](x, y, n, {launch}\n"
    )
    assert reason in refusal(text, "blocks-and-warps")
