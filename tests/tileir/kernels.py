"""Small Triton kernels, one of each kind, and those that words of the file get wrong."""

from __future__ import annotations

HEAD = """\
import torch
import triton
import triton.language as tl


"""
ADD = (
    HEAD
    + """\
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + tl.load(y_ptr + offsets, mask=mask), mask=mask)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out
"""
)
IN_PLACE = (
    HEAD
    + """\
@triton.jit
def double_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


def double_(x):
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, x.numel(), BLOCK=64)
"""
)
SOFTMAX = (
    HEAD
    + """\
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=cols < n_cols)


def softmax(x):
    y = torch.empty_like(x)
    n = x.shape[1]
    softmax_kernel[(x.shape[0],)](x, y, n, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
"""
)
MATMUL = (
    HEAD
    + """\
CONFIGS = [
    triton.Config({"M_TILE": 64, "N_TILE": 64, "K_TILE": 32}, num_warps=4),
    triton.Config({"M_TILE": 64, "N_TILE": 64, "K_TILE": 32}, num_warps=8),
    triton.Config({"M_TILE": 128, "N_TILE": 128, "K_TILE": 32}, num_warps=8),
]


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"])
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k,
    M_TILE: tl.constexpr, N_TILE: tl.constexpr, K_TILE: tl.constexpr,
):
    rows = tl.program_id(0) * M_TILE + tl.arange(0, M_TILE)
    cols = tl.program_id(1) * N_TILE + tl.arange(0, N_TILE)
    inner = tl.arange(0, K_TILE)
    total = tl.zeros((M_TILE, N_TILE), dtype=tl.float32)
    for start in range(0, k, K_TILE):
        a_mask = (rows[:, None] < m) & (start + inner[None, :] < k)
        b_mask = (start + inner[:, None] < k) & (cols[None, :] < n)
        a = tl.load(a_ptr + rows[:, None] * k + start + inner[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + (start + inner[:, None]) * n + cols[None, :], mask=b_mask, other=0.0)
        total = tl.dot(a, b, total)
    mask = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], total, mask=mask)


def matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(m, meta["M_TILE"]), triton.cdiv(n, meta["N_TILE"]))
    matmul_kernel[grid](a, b, c, m, n, k)
    return c
"""
)


def rows(body: str, *, parameters: str = "", module: str = "tl", head: str = HEAD) -> str:
    """A kernel over the rows of x: the body has `x`, `row`, `cols`, `mask` and stores itself."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    more = f", {parameters}" if parameters else ""
    return f"""\
{head}@triton.jit
def rows_kernel(x_ptr, y_ptr, n{more}, BLOCK: {module}.constexpr):
    row = {module}.program_id(0)
    cols = {module}.arange(0, BLOCK)
    mask = cols < n
    x = {module}.load(x_ptr + row * n + cols, mask=mask, other=0.0)
{lines}
"""


ALIASED = HEAD.replace("language as tl", "language as T")
KINDS = {
    "attention": rows(
        "k = tl.load(k_ptr + cols[:, None] * n + cols[None, :])\n"
        "p = tl.exp(tl.dot(x[:, None] + k, k) - 1.0)\n"
        "tl.store(y_ptr + cols[:, None] * n + cols[None, :], tl.dot(p, k))",
        parameters="k_ptr",
    ),
    "dot-related": MATMUL,
    "norm-like": SOFTMAX,
    "element-wise": ADD,
    "data movement": rows(
        "row_of = tl.load(index_ptr + row)\n"
        "tl.store(y_ptr + row * n + cols, tl.load(x_ptr + row_of * n + cols), mask=mask)",
        parameters="index_ptr",
    ),
    "reduction": rows("tl.store(y_ptr + row, tl.sum(x, axis=0))"),
}
"""Kind -> a kernel that is one."""
TRAPS = {
    "log-sum-exp": (
        rows(
            "top = tl.max(x, axis=0)\n"
            "tl.store(y_ptr + row, top + tl.log(tl.sum(tl.exp(x - top), axis=0)))"
        ),
        "reduction",
    ),
    "L2 norm": (rows("tl.store(y_ptr + row, tl.sqrt(tl.sum(x * x, axis=0)))"), "reduction"),
    "L2 normalization": (
        rows("tl.store(y_ptr + row * n + cols, x * tl.rsqrt(tl.sum(x * x, 0)), mask=mask)"),
        "norm-like",
    ),
    "a sum beside a tile of another branch": (
        rows(
            "if stored == 'none':\n"
            "    y_ptr += row * n + cols\n"
            "    tl.store(y_ptr, x, mask=mask)\n"
            "else:\n"
            "    tl.store(y_ptr + row, tl.sum(x))",
            parameters="stored: tl.constexpr",
        ),
        "reduction",
    ),
    "a softmax that Triton computes": (
        rows("tl.store(y_ptr + row * n + cols, tl.softmax(x), mask=mask)"),
        "norm-like",
    ),
    "abs-max": (rows("tl.store(y_ptr + row, tl.max(tl.abs(x), axis=0))"), "reduction"),
    "abs-max quantization": (
        rows(
            "scale = tl.max(tl.abs(x), axis=0) / 127.0\n"
            "tl.store(s_ptr + row, scale)\n"
            "tl.store(y_ptr + row * n + cols, (x / scale).to(tl.int8), mask=mask)",
            parameters="s_ptr",
        ),
        "reduction",
    ),
    "a comment that names softmax": (
        rows(
            "# unlike softmax, a ReLU has no tl.sum(x) / n and no tl.dot(\n"
            "tl.store(y_ptr + row * n + cols, tl.maximum(x, 0.0), mask=mask)"
        ),
        "element-wise",
    ),
    "an aliased import": (
        rows(
            "y = T.dot(x[:, None], x[None, :])\n"
            "T.store(y_ptr + cols[:, None] * n + cols[None, :], y)",
            module="T",
            head=ALIASED,
        ),
        "dot-related",
    ),
    "a method": (rows("tl.store(y_ptr + row, x.sum(axis=0))"), "reduction"),
    "a scan": (rows("tl.store(y_ptr + row * n + cols, tl.cumsum(x, 0), mask=mask)"), "reduction"),
    "tl.reduce": (
        rows("tl.store(y_ptr + row, tl.reduce(x, 0, combine))").replace(
            "@triton.jit", "@triton.jit\ndef combine(a, b):\n    return a + b\n\n\n@triton.jit", 1
        ),
        "reduction",
    ),
    "a sum over a loop": (
        rows(
            "total = tl.zeros((BLOCK,), dtype=tl.float32)\n"
            "for i in range(n):\n"
            "    total += tl.load(x_ptr + i * n + cols, mask=mask)\n"
            "tl.store(y_ptr + cols, total, mask=mask)"
        ),
        "reduction",
    ),
    "an atomic": (rows("tl.atomic_add(y_ptr + cols, x, mask=mask)"), "reduction"),
    "a loop over tiles that adds nothing up": (
        rows(
            "for i in range(n):\n"
            "    y = tl.load(x_ptr + i * n + cols, mask=mask)\n"
            "    y += 1.0\n"
            "    tl.store(y_ptr + i * n + cols, y, mask=mask)"
        ),
        "element-wise",
    ),
    "cross entropy": (
        rows(
            "top = tl.max(x, axis=0)\n"
            "total = tl.log(tl.sum(tl.exp(x - top), axis=0)) + top\n"
            "tl.store(y_ptr + row, total - tl.load(x_ptr + row * n + tl.load(t_ptr + row)))",
            parameters="t_ptr",
        ),
        "reduction",
    ),
    "a norm in a helper": (
        rows("tl.store(y_ptr + row * n + cols, centered(x, n), mask=mask)").replace(
            "@triton.jit",
            "@triton.jit\ndef centered(a, n):\n    return a - tl.sum(a, axis=0) / n\n\n\n"
            "@triton.jit",
            1,
        ),
        "norm-like",
    ),
    "a dot of a name of the user's": (
        rows(
            "tl.store(y_ptr + row * n + cols, dot(x), mask=mask)",
        ).replace("@triton.jit", "@triton.jit\ndef dot(a):\n    return a + 1\n\n\n@triton.jit", 1),
        "element-wise",
    ),
}
"""What a search for words gets wrong, and what it is."""
MORE = {
    "an online softmax in a helper": (
        HEAD
        + """\
@triton.jit
def step(total, top, q, k, v):
    scores = tl.dot(q, tl.trans(k)) * 0.125
    higher = tl.maximum(top, tl.max(scores, 1))
    p = tl.math.exp2(scores - higher[:, None])
    total = total * tl.math.exp2(top - higher)[:, None]
    return tl.dot(p.to(tl.float16), v, total), higher


@triton.jit
def forward_kernel(q_ptr, k_ptr, v_ptr, o_ptr, n, M: tl.constexpr, D: tl.constexpr):
    at = tl.arange(0, M)[:, None] * D + tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + at)
    total = tl.zeros((M, D), dtype=tl.float32)
    top = tl.full((M,), float("-inf"), dtype=tl.float32)
    for start in range(0, n, M):
        k = tl.load(k_ptr + start * D + at)
        total, top = step(total, top, q, k, tl.load(v_ptr + start * D + at))
    tl.store(o_ptr + at, total)
""",
        "attention",
    ),
    "probabilities that are divided before the product": (
        rows(
            "e = tl.exp(tl.dot(x[:, None], x[None, :]))\n"
            "p = e / tl.sum(e, axis=1)[:, None]\n"
            "tl.store(y_ptr + cols[:, None] * n + cols[None, :], tl.dot(p, p))"
        ),
        "attention",
    ),
    "two products with a SiLU between": (
        rows(
            "h = tl.dot(x[:, None], x[None, :])\n"
            "h = h / (1.0 + tl.exp(-h))\n"
            "tl.store(y_ptr + cols[:, None] * n + cols[None, :], tl.dot(h, h))"
        ),
        "dot-related",
    ),
    "two products with a sigmoid between, step by step": (
        rows(
            "h = tl.dot(x[:, None], x[None, :])\n"
            "divisor = 1.0 + tl.exp(-h)\n"
            "gate = 1.0 / divisor\n"
            "tl.store(y_ptr + cols[:, None] * n + cols[None, :], tl.dot(gate, x[:, None]))"
        ),
        "dot-related",
    ),
    "a transposition": (
        rows(
            "tile = tl.load(x_ptr + cols[:, None] * n + cols[None, :])\n"
            "tl.store(y_ptr + cols[:, None] * n + cols[None, :], tl.trans(tile))"
        ),
        "data movement",
    ),
    "a copy to another type": (
        rows("tl.store(y_ptr + row * n + cols, x.to(tl.float16), mask=mask)"),
        "data movement",
    ),
    "a concatenation": (
        rows(
            "y = tl.load(x_ptr + cols, mask=cols >= n)\n"
            "tl.store(y_ptr + row * n + cols, tl.where(cols < n, x, y))"
        ),
        "data movement",
    ),
    "a choice by value": (
        rows("tl.store(y_ptr + row * n + cols, tl.where(x > 0, x, 0.0), mask=mask)"),
        "element-wise",
    ),
    "a choice by chance": (
        rows("tl.store(y_ptr + row * n + cols, tl.where(tl.rand(7, cols) > 0.5, x, 0.0))"),
        "element-wise",
    ),
}
"""Attention and data movement, which the skill does not know, and what looks like them."""


def described(body: str, *, made: str = "", parameters: str = "") -> str:
    """A kernel over tiles of x through a descriptor of its own, `desc`, of ROWS by COLS."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    more = f", {parameters}" if parameters else ""
    return f"""\
{HEAD}@triton.jit
def tiles_kernel(x_ptr, y_ptr, m, n{more}, ROWS: tl.constexpr, COLS: tl.constexpr):
    desc = tl.make_tensor_descriptor(x_ptr, [m, n], [n, 1], [ROWS, COLS]{made})
    out = tl.make_tensor_descriptor(y_ptr, [m, n], [n, 1], [ROWS, COLS])
    row = tl.program_id(0) * ROWS
    col = tl.program_id(1) * COLS
{lines}
"""


GROUPED_PRODUCT = (
    HEAD
    + """\
@triton.jit
def partial_products(
    left_ptr, right_ptr, sums_ptr, rows, cols, depth, share,
    R: tl.constexpr, C: tl.constexpr, D: tl.constexpr,
):
    left = tl.make_tensor_descriptor(left_ptr, [rows, depth], [depth, 1], [R, D])
    right = tl.make_tensor_descriptor(right_ptr, [depth, cols], [cols, 1], [D, C])
    sums = tl.make_tensor_descriptor(sums_ptr, [rows, cols], [cols, 1], [R, C])
    at = tl.program_id(2) * share * D
    total = tl.zeros((R, C), dtype=tl.float32)
    for step in range(share):
        a = left.load([tl.program_id(0) * R, at])
        total = tl.dot(a, right.load([at, tl.program_id(1) * C]), total)
        at += D
    sums.atomic_add([tl.program_id(0) * R, tl.program_id(1) * C], total)


def multiply(a, b):
    out = torch.zeros((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    (rows, depth), cols = a.shape, b.shape[1]
    grid = (triton.cdiv(rows, 64), triton.cdiv(cols, 64), 4)
    share = triton.cdiv(depth, 4 * 32)
    partial_products[grid](a, b, out, rows, cols, depth, share, R=64, C=64, D=32)
    return out
"""
)
"""Split K: blocks add up one tile through a descriptor."""
