"""Ten kernels of five kinds, of 2 to 50 us each. `MAKERS` has a launch of each on its inputs."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + places, tl.load(x_ptr + places) + tl.load(y_ptr + places))


@triton.jit
def swiglu_kernel(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places).to(tl.float32)
    z = x * tl.sigmoid(x) * tl.load(y_ptr + places).to(tl.float32)
    tl.store(z_ptr + places, z)


@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, places = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + places, mask=places < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / n + 1e-6)
    w = tl.load(w_ptr + places, mask=places < n)
    tl.store(y_ptr + row * n + places, x * scale * w, mask=places < n)


@triton.jit
def l2_norm_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, places = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + places, mask=places < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * n + places, x * tl.rsqrt(tl.sum(x * x, axis=0) + 1e-6), mask=places < n)


@triton.jit
def row_mean_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, places = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + places, mask=places < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(x, axis=0) / n)


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1) * ROWS
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(first, first + ROWS):
        total += tl.load(x_ptr + row * n + places).to(tl.float32)
    tl.atomic_add(y_ptr + places, total)


@triton.jit
def embedding_kernel(ids_ptr, table_ptr, y_ptr, n, BLOCK: tl.constexpr):
    token, places = tl.program_id(0), tl.arange(0, BLOCK)
    row = tl.load(ids_ptr + token)
    tl.store(y_ptr + token * n + places, tl.load(table_ptr + row * n + places))


@triton.jit
def rope_kernel(x_ptr, cos_ptr, sin_ptr, heads, HALF: tl.constexpr):
    token, head, places = tl.program_id(0), tl.program_id(1), tl.arange(0, HALF)
    at = x_ptr + (token * heads + head) * 2 * HALF + places
    cos, sin = tl.load(cos_ptr + token * HALF + places), tl.load(sin_ptr + token * HALF + places)
    one, other = tl.load(at).to(tl.float32), tl.load(at + HALF).to(tl.float32)
    tl.store(at, one * cos - other * sin)
    tl.store(at + HALF, other * cos + one * sin)


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for begin in range(0, K, BK):
        depth = begin + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + depth[None, :])
        b = tl.load(b_ptr + depth[:, None] * N + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(tl.bfloat16))


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(shape, device="cuda", dtype=dtype)


def make_add():
    x, y = random(4096, 1024), random(4096, 1024)

    def launch():
        z = torch.empty_like(x)
        add_kernel[(x.numel() // 1024,)](x, y, z, BLOCK=1024)
        return z

    return launch


def make_swiglu():
    x, y = random(2048, 4096), random(2048, 4096)

    def launch():
        z = torch.empty_like(x)
        swiglu_kernel[(x.numel() // 1024,)](x, y, z, BLOCK=1024)
        return z

    return launch


def make_rms_norm(rows=4096, n=2048):
    x, w = random(rows, n), random(n)

    def launch():
        y = torch.empty_like(x)
        rms_norm_kernel[(rows,)](x, w, y, n, BLOCK=triton.next_power_of_2(n))
        return y

    return launch


def make_l2_norm(rows=4096, n=1024):
    x = random(rows, n, dtype=torch.float32)

    def launch():
        y = torch.empty_like(x)
        l2_norm_kernel[(rows,)](x, y, n, BLOCK=n)
        return y

    return launch


def make_row_mean(rows=8192, n=1024):
    x = random(rows, n)

    def launch():
        y = torch.empty(rows, device="cuda")
        row_mean_kernel[(rows,)](x, y, n, BLOCK=n)
        return y

    return launch


def make_column_sum(rows=2048, n=2048):
    x = random(rows, n)

    def launch():
        y = torch.zeros(n, device="cuda")
        column_sum_kernel[(n // 128, rows // 64)](x, y, n, BLOCK=128, ROWS=64)
        return y

    return launch


def make_embedding(tokens=4096, n=1024):
    ids = torch.randint(0, 8192, (tokens,), device="cuda")
    table = random(8192, n)

    def launch():
        y = torch.empty(tokens, n, device="cuda", dtype=table.dtype)
        embedding_kernel[(tokens,)](ids, table, y, n, BLOCK=n)
        return y

    return launch


def make_rope(tokens=2048, heads=16, half=64):
    x = random(tokens, heads, 2 * half)
    angle = torch.rand(tokens, half, device="cuda")
    cos, sin = angle.cos(), angle.sin()

    def launch():
        rope_kernel[(tokens, heads)](x, cos, sin, heads, HALF=half)

    return launch


def make_matmul(m=1024, n=1024, k=1024):
    a, b = random(m, k), random(k, n)

    def launch():
        c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        matmul_kernel[(m // 64, n // 64)](a, b, c, n, k, BM=64, BN=64, BK=64)
        return c

    return launch


def make_wide_rms_norm():
    return make_rms_norm(rows=8192, n=3072)


MAKERS = {
    "add": make_add,
    "swiglu": make_swiglu,
    "rms_norm": make_rms_norm,
    "wide_rms_norm": make_wide_rms_norm,
    "l2_norm": make_l2_norm,
    "row_mean": make_row_mean,
    "column_sum": make_column_sum,
    "embedding": make_embedding,
    "rope": make_rope,
    "matmul": make_matmul,
}
