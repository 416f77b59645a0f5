"""A small kernel of each kind, with its launch, as people first write it."""

HEAD = "import cuda.tile as ct\nimport torch\n\nConst = ct.Constant[int]\n\n\n"

ROWS = (
    HEAD
    + """\
@ct.kernel
def scale_kernel(x, y, factor, N: Const):
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, N), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, index=(row, 0), tile=(tile * factor).astype(y.dtype))


def scale(x, factor: float):
    y = torch.empty_like(x)
    n = 1 << (x.shape[1] - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), scale_kernel, (x, y, factor, n))
    return y
"""
)

IN_PLACE = (
    HEAD
    + """\
@ct.kernel(occupancy=4)
def scale_kernel(x, factor, N: Const):
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, N), padding_mode=ct.PaddingMode.ZERO)
    ct.store(x, index=(row, 0), tile=(tile * factor).astype(x.dtype))


def scale_(x, factor: float):
    n = 1 << (x.shape[1] - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), scale_kernel, (x, factor, n))
    return x
"""
)

MATMUL = (
    HEAD
    + """\
@ct.kernel
def matmul_kernel(a, b, c, M: Const, N: Const, K: Const):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.full((M, N), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(i, k), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(k, j), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(c, index=(i, j), tile=total.astype(c.dtype))


def matmul(a, b):
    m, n = a.shape[0], b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    tile_m, tile_n, tile_k = 64, 64, 32
    rows = ct.cdiv(m, tile_m)
    columns = ct.cdiv(n, tile_n)
    args = (a, b, c, tile_m, tile_n, tile_k)
    ct.launch(torch.cuda.current_stream(), (rows, columns), matmul_kernel, args)
    return c
"""
)

PERSISTENT = (
    HEAD
    + """\
OCCUPANCY = 2
M, N, K = 128, 128, 64


@ct.kernel(occupancy=OCCUPANCY, num_ctas=1)
def matmul_kernel(a, b, c, TM: Const, TN: Const, TK: Const):
    columns = ct.cdiv(c.shape[1], TN)
    for tile in range(ct.bid(0), ct.cdiv(c.shape[0], TM) * columns, ct.num_blocks(0)):
        i, j = tile // columns, tile % columns
        total = ct.full((TM, TN), 0, dtype=ct.float32)
        for k in range(ct.num_tiles(a, axis=1, shape=(TM, TK))):
            left = ct.load(a, index=(i, k), shape=(TM, TK), padding_mode=ct.PaddingMode.ZERO)
            right = ct.load(b, index=(k, j), shape=(TK, TN), padding_mode=ct.PaddingMode.ZERO)
            total = ct.mma(left, right, total)
        ct.store(c, index=(i, j), tile=total.astype(c.dtype))


def matmul(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    tiles = ct.cdiv(a.shape[0], M) * ct.cdiv(b.shape[1], N)
    blocks = min(sms, tiles) * OCCUPANCY
    stream = torch.cuda.current_stream()
    ct.launch(stream, (blocks,), matmul_kernel, (a, b, c, M, N, K))
    return c
"""
)

ATTENTION = (
    HEAD
    + """\
TILE_M, TILE_N = 64, 64


@ct.kernel
def attention_kernel(q, k, v, out, scale, D: Const, TILE_M: Const, TILE_N: Const):
    i = ct.bid(0)
    zero_pad = ct.PaddingMode.ZERO
    query = ct.load(q, index=(i, 0), shape=(TILE_M, D), padding_mode=zero_pad)
    highest = ct.full((TILE_M, 1), -1e30, dtype=ct.float32)
    total = ct.full((TILE_M, 1), 0, dtype=ct.float32)
    acc = ct.full((TILE_M, D), 0, dtype=ct.float32)
    for j in range(ct.cdiv(k.shape[0], TILE_N)):
        key = ct.load(k, index=(j, 0), shape=(TILE_N, D), padding_mode=zero_pad)
        zero = ct.full((TILE_M, TILE_N), 0, dtype=ct.float32)
        scores = ct.mma(query, ct.transpose(key), zero) * scale
        inside = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32) < k.shape[0]
        scores = ct.where(inside[None, :], scores, -1e30)
        higher = ct.maximum(highest, ct.max(scores, axis=1, keepdims=True))
        weights = ct.exp(scores - higher)
        shrink = ct.exp(highest - higher)
        total = total * shrink + ct.sum(weights, axis=1, keepdims=True)
        value = ct.load(v, index=(j, 0), shape=(TILE_N, D), padding_mode=zero_pad)
        acc = ct.mma(weights.astype(v.dtype), value, acc * shrink)
        highest = higher
    ct.store(out, index=(i, 0), tile=(acc / total).astype(out.dtype))


def attention(q, k, v):
    out = torch.empty_like(q)
    length, dim = q.shape
    args = (q, k, v, out, dim**-0.5, dim, TILE_M, TILE_N)
    grid = (ct.cdiv(length, TILE_M),)
    ct.launch(torch.cuda.current_stream(), grid, attention_kernel, args)
    return out
"""
)

VARLEN = (
    ATTENTION.replace("q, k, v, out, scale", "q, k, v, ends, out, scale")
    .replace("ct.cdiv(k.shape[0], TILE_N)", "ct.cdiv(ct.load(ends, index=(i,), shape=()), TILE_N)")
    .replace("def attention(q, k, v)", "def attention(q, k, v, ends)")
    .replace("(q, k, v, out,", "(q, k, v, ends, out,")
)

EIGHT_BIT = (
    MATMUL.replace("a, b, c, M", "a, b, scales, c, M")
    .replace("total = ct.mma(left, right, total)",
             "scale = ct.load(scales, index=(k,), shape=())\n"
             "        total = total + scale * ct.mma(left, right, ct.zeros((M, N), ct.float32))")
    .replace("def matmul(a, b)", "def matmul(a, b, scales)")
    .replace("(a, b, c, tile", "(a, b, scales, c, tile")
    .replace("    m, n =", "    assert a.dtype == torch.float8_e4m3fn\n    m, n =")
    .replace("dtype=a.dtype", "dtype=torch.bfloat16")
)  # fmt: skip

GROUPED = (
    HEAD
    + """\
@ct.kernel
def grouped_kernel(lefts, rights, results, M: Const, N: Const, K: Const):
    for group in range(len(lefts)):
        a = lefts[group]
        b = rights[group]
        c = results[group]
        columns = ct.cdiv(c.shape[1], N)
        for tile in range(ct.bid(0), ct.cdiv(c.shape[0], M) * columns, ct.num_blocks(0)):
            i, j = tile // columns, tile % columns
            total = ct.full((M, N), 0, dtype=ct.float32)
            for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
                left = ct.load(a, index=(i, k), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
                right = ct.load(b, index=(k, j), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
                total = ct.mma(left, right, total)
            ct.store(c, index=(i, j), tile=total.astype(c.dtype))


def grouped(lefts, rights):
    pairs = zip(lefts, rights, strict=True)
    results = [torch.empty(a.shape[0], b.shape[1], dtype=a.dtype) for a, b in pairs]
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    args = (lefts, rights, results, 64, 64, 32)
    ct.launch(torch.cuda.current_stream(), (sms,), grouped_kernel, args)
    return results
"""
)

TWO_PRODUCTS = (
    MATMUL.replace("a, b, c, M", "a, b, gates, c, M")
    .replace("    for k", "    gated = ct.full((M, N), 0, dtype=ct.float32)\n    for k")
    .replace("        total = ct.mma",
             "        gate = ct.load(gates, index=(k, j), shape=(K, N), "
             "padding_mode=ct.PaddingMode.ZERO)\n"
             "        gated = ct.mma(left, gate, gated)\n        total = ct.mma")
    .replace("tile=total.astype", "tile=(total * gated).astype")
    .replace("def matmul(a, b)", "def matmul(a, b, gates)")
    .replace("(a, b, c, tile", "(a, b, gates, c, tile")
)  # fmt: skip
