"""A softmax of some microseconds in cuTile. PAD turns of a loop multiply by one."""

import cuda.tile as ct
import torch

PAD = 0


@ct.kernel(occupancy=4)
def softmax_kernel(x, y, one, pad, BLOCK: ct.Constant[int]):
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, BLOCK)).astype(ct.float32)
    numerator = ct.exp(tile - ct.max(tile, axis=1, keepdims=True))
    for _ in range(pad):
        numerator = numerator * one
    result = numerator / ct.sum(numerator, axis=1, keepdims=True)
    ct.store(y, index=(row, 0), tile=result.astype(y.dtype))


def make(device="cuda"):
    """A launch on fixed inputs."""
    x = torch.randn(256, 1024, device=device, dtype=torch.bfloat16)
    y = torch.empty_like(x)
    stream = torch.cuda.current_stream

    def launch():
        args = (x, y, 1.0, PAD, x.shape[1])
        ct.launch(stream(), (x.shape[0],), softmax_kernel, args)

    return launch
