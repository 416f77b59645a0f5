import cuda.tile as ct
import torch

PAGE, DEPTH, QUERIES = 64, 128, 16


@ct.kernel
def scores_kernel(queries, cache, table, scores):
    sequence, i = ct.bid(0), ct.bid(1)
    positions = i * PAGE + ct.arange(PAGE, dtype=ct.int32)
    columns = ct.arange(DEPTH, dtype=ct.int32)
    pages = ct.gather(table, (sequence, positions // PAGE))
    slots = positions % PAGE
    keys = ct.gather(cache, (pages[:, None], slots[:, None], columns[None, :]))
    asked = ct.load(queries, index=(sequence, 0, 0), shape=(1, QUERIES, DEPTH))
    product = ct.mma(
        ct.reshape(asked, (QUERIES, DEPTH)),
        ct.transpose(keys),
        ct.zeros((QUERIES, PAGE), dtype=ct.float32),
    )
    ct.store(scores, index=(sequence, 0, i), tile=ct.reshape(product, (1, QUERIES, PAGE)))


def run(queries, cache, table):
    sequences, n_pages = table.shape
    scores = torch.empty(
        (sequences, QUERIES, n_pages * PAGE), dtype=torch.float32, device=cache.device
    )
    grid = (sequences, n_pages)
    stream = torch.cuda.current_stream()
    ct.launch(stream, grid, scores_kernel, (queries, cache, table, scores))
    return scores
