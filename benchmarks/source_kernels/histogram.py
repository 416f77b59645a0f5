import cuda.tile as ct
import torch

TILE, BINS = 1024, 1024


@ct.kernel
def histogram_kernel(bins, counts):
    at = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)
    ct.atomic_add(counts, ct.gather(bins, at, padding_value=BINS), 1)


def run(bins):
    counts = torch.zeros(BINS, dtype=torch.int32, device=bins.device)
    grid = (ct.cdiv(bins.shape[0], TILE),)
    ct.launch(torch.cuda.current_stream(), grid, histogram_kernel, (bins, counts))
    return counts
