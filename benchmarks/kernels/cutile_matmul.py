"""Matrix product in cuTile. PAD further rows of tiles repeat the first ones: wasted work."""

import cuda.tile as ct
import torch

PAD = 0


@ct.kernel
def matmul_kernel(a, b, c, rows, BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int]):
    i = ct.bid(0) % rows
    j = ct.bid(1)
    acc = ct.full((BM, BN), 0.0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(BM, BK))):
        a_tile = ct.load(a, index=(i, k), shape=(BM, BK))
        b_tile = ct.load(b, index=(k, j), shape=(BK, BN))
        acc = ct.mma(a_tile, b_tile, acc)
    ct.store(c, index=(i, j), tile=acc.astype(c.dtype))


def make(device="cuda"):
    """A launch on fixed inputs."""
    a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    b = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    c = torch.empty_like(a)
    stream = torch.cuda.current_stream

    def launch():
        ct.launch(stream(), (64 + PAD, 64), matmul_kernel, (a, b, c, 64, 64, 64, 64))

    return launch
