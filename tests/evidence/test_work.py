"""What the timings of perf tests cover: tensors and grids, seen on tensors without storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.environment import probe
from agent.evidence.model import TimedWork
from tests.support.evidence import CUTILE, TRITON, evidence

VERSIONS = probe().versions
triton = pytest.mark.skipif(VERSIONS["triton"] is None, reason="triton is not installed")
cutile = pytest.mark.skipif(VERSIONS["cuda-tile"] is None, reason="cuda-tile is not installed")

TAKES_TENSORS = (
    TRITON.replace("def run():", "def run(x, y):")
    .replace('    x = torch.ones(2**20, device="cuda")\n', "")
    .replace("    y = torch.empty_like(x)\n", "")
)
TIMINGS = """\
import pytest
import torch
from kernel import run


def tensor(*shape, dtype=torch.float32):
    return torch.empty(*shape, device="cuda", dtype=dtype)


@pytest.mark.parametrize("n", [4096, 8192])
def test_perf_sizes(n, tile_bench):
    run(tensor(2**20), tensor(2**20))  # not timed
    x, y = tensor(n), tensor(n)
    tile_bench(lambda: run(x, y))


def test_perf_in_place(tile_bench):
    x = tensor(4096, dtype=torch.float16)
    tile_bench(lambda: run(x, x), config="in place")
    tile_bench(lambda: [run(x, x) for _ in range(3)], config="three times")


def test_perf_views(tile_bench):
    x = tensor(64)
    tile_bench(lambda: run(x.expand(1024, 64), tensor(2, 4096)[1]))


def test_perf_by_hand():
    x = tensor(4096)
    run(x, tensor(4096))
    run(x, tensor(4096))


def test_right():
    run(tensor(4096), tensor(4096))
"""


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TimedWork]:
    """Of one run of all tests: test and config -> work."""
    found = evidence(tmp_path_factory.mktemp("work"), TAKES_TENSORS, test=TIMINGS)
    assert not found.failures
    return {f"{work.test.partition('::')[2]} {work.config}": work for work in found.work}


@triton
def test_each_timing_has_its_own(works: dict[str, TimedWork]) -> None:
    """Of code that compiles once, and whatever is launched outside a timing."""
    assert list(works) == [
        "test_perf_sizes[4096] forward",
        "test_perf_sizes[8192] forward",
        "test_perf_in_place in place",
        "test_perf_in_place three times",
        "test_perf_views forward",
        "test_perf_by_hand forward",
    ]
    small, large = (works[f"test_perf_sizes[{n}] forward"] for n in (4096, 8192))
    assert (small.tensor_bytes, large.tensor_bytes) == (2 * 4 * 4096, 2 * 4 * 8192)
    assert (small.launches, large.launches) == (
        (("scale_kernel", (4,)),),
        (("scale_kernel", (8,)),),
    )
    assert [(t.name, t.dtype, t.shape) for t in small.tensors] == [
        ("x_ptr", "float32", (4096,)),
        ("y_ptr", "float32", (4096,)),
    ]


@triton
def test_a_tensor_counts_once(works: dict[str, TimedWork]) -> None:
    for config in ("in place", "three times"):
        work = works[f"test_perf_in_place {config}"]
        assert work.tensor_bytes == 2 * 4096
        assert work.kernels == ("scale_kernel",)


@triton
def test_a_view_counts_what_it_shows(works: dict[str, TimedWork]) -> None:
    expanded, row = works["test_perf_views forward"].tensors
    assert (expanded.shape, expanded.size_bytes) == ((1024, 64), 4 * 64)
    assert (row.shape, row.size_bytes) == ((4096,), 4 * 4096)


@triton
def test_a_test_that_times_by_its_own_means(works: dict[str, TimedWork]) -> None:
    """Its launches on copies of the same inputs are one."""
    assert works["test_perf_by_hand forward"].tensor_bytes == 2 * 4 * 4096


@cutile
def test_a_tuner_and_a_list_of_arrays(tmp_path: Path) -> None:
    """Each config is a launch on the same tensors; of a list each element counts."""
    tuned = CUTILE.replace(
        "    ct.launch(torch.cuda.current_stream(), grid, scale_kernel, (x, y, TILE))\n",
        "    tune.exhaustive_search([512, 1024], torch.cuda.current_stream(),\n"
        "        lambda tile: (ct.cdiv(x.shape[0], tile),), scale_kernel,\n"
        "        lambda tile: ([x, y], y, tile))\n",
    )
    tuned = tuned.replace("import torch\n", "import torch\nfrom cuda.tile import tune\n")
    tuned = tuned.replace("scale_kernel(x, y,", "scale_kernel(xs, y,").replace(
        "(x, in", "(xs[1], in"
    )
    (work,) = evidence(tmp_path, tuned, most=1).work
    assert work.launches == (("scale_kernel", (2048,)), ("scale_kernel", (1024,)))
    assert [(t.name, t.size_bytes) for t in work.tensors] == [("xs[0]", 2**22), ("xs[1]", 2**22)]
