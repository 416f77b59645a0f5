"""The code that is written, running: on the CPU, where every config must give the same numbers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agent.analysis.common.subject import Hardware, Params, Subject
from agent.backends import detect
from agent.playbook.cutile.autotune import Autotune
from agent.syntax import Source
from tests.tuning import sources

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from tile_agent_pytest.tile_cpu import TileCpu  # noqa: E402

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def example(name: str, kind: str) -> ModuleType:
    return load(EXAMPLES / f"cutile_autotune_{name}" / f"{name}_{kind}.py")


def tuned(text: str, folder: Path, params: Params | None = None) -> ModuleType:
    source = Source(text)
    backend = detect(source)
    assert backend is not None
    subject = Subject(source, backend.classify(source).kernel_class, Hardware())
    path = folder / "tuned_kernel.py"
    path.write_text(Autotune().apply(subject, params or {}))
    return load(path)


class Search:
    """Stands in for the timing: launches every config, as the real one does, and picks the last."""

    def __init__(self, module: ModuleType) -> None:
        self.tried: list[list[Any]] = []
        self._launch = sys.modules["cuda.tile"].launch
        module.exhaustive_search = self

    def __call__(
        self,
        configs: list[Any],
        stream: Any,
        grid: Callable[[Any], Any],
        kernel: Any,
        args: Callable[[Any], Any],
        hints: Callable[[Any], dict[str, Any]],
        *,
        quiet: bool,
    ) -> Any:
        self.tried.append(list(configs))
        for config in configs:
            tuned = kernel.replace_hints(**hints(config))
            for _ in range(2):
                sys.modules["cuda.tile"].launch(stream, grid(config), tuned, args(config))
        return SimpleNamespace(best=SimpleNamespace(config=configs[-1]))


@pytest.fixture
def no_gpu() -> Iterator[None]:
    with TileCpu(compute_capability=(9, 0)):
        yield


def random(*shape: int, dtype: Any = None) -> Any:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to("cuda", dtype or torch.float16)


CALLS: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "rms_norm": ("rms_norm", lambda: (random(37, 200), random(200))),
    "matmul": ("matmul", lambda: (random(150, 70), random(70, 45))),
    "rope": ("rope_", lambda: (random(2, 3, 70, 32), random(70, 16), random(70, 16))),
}


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", CALLS)
class TestTheWorkedExamples:
    def test_the_numbers_are_those_of_the_fixed_config(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Searching, afterwards, and without a search."""
        function, inputs = CALLS[name]
        expected = getattr(example(name, "fixed"), function)(*inputs())
        module = example(name, "tuned")
        search = Search(module)
        for calls in range(2):
            torch.testing.assert_close(getattr(module, function)(*inputs()), expected)
            assert len(search.tried) == 2, f"call {calls + 1}"
        monkeypatch.setenv("DISABLE_AUTOTUNE", "1")
        module = example(name, "tuned")
        search = Search(module)
        torch.testing.assert_close(getattr(module, function)(*inputs()), expected, rtol=0, atol=0)
        assert not search.tried

    def test_every_config_gives_them(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        function, inputs = CALLS[name]
        expected = getattr(example(name, "fixed"), function)(*inputs())
        module = example(name, "tuned")
        search = Search(module)
        getattr(module, function)(*inputs())
        for config in search.tried[0]:
            module = example(name, "tuned")
            pick = f"_best_{name}_config"
            assert hasattr(module, pick)
            monkeypatch.setattr(module, pick, lambda *_, config=config: config)
            torch.testing.assert_close(getattr(module, function)(*inputs()), expected)

    def test_the_fixed_config_comes_first_and_has_a_second_chance(self, name: str) -> None:
        function, inputs = CALLS[name]
        module = example(name, "tuned")
        search = Search(module)
        getattr(module, function)(*inputs())
        fixed = getattr(module, f"_{name.upper()}_FIXED")
        everything, last_two = search.tried
        assert everything[0] is fixed
        assert last_two == [everything[-1], fixed]


@pytest.mark.usefixtures("no_gpu")
def test_other_shapes_types_and_constants_are_searched_anew() -> None:
    module = example("rms_norm", "tuned")
    search = Search(module)
    for x, weight in (
        (random(4, 64), random(64)),
        (random(8, 64), random(64)),
        (random(4, 64, dtype=torch.float32), random(64)),
        (random(4, 64), random(64, dtype=torch.float32)),
        (random(4, 64), random(64)),
    ):
        module.rms_norm(x, weight)
    assert len(search.tried) == 2 * 4


@pytest.mark.usefixtures("no_gpu")
def test_a_product_shares_its_config_up_to_the_next_power_of_two() -> None:
    module = example("matmul", "tuned")
    search = Search(module)
    for m in (65, 100, 128, 129):
        module.matmul(random(m, 32), random(32, 32))
    assert len(search.tried) == 2 * 2


@pytest.mark.parametrize(
    ("capability", "sizes", "expected"),
    [
        ((8, 0), (4096, 4096, 4096), (64, 64, 32, 1, 1)),
        ((8, 9), (4096, 4096, 4096), (64, 64, 32, 1, 1)),
        ((9, 0), (4096, 4096, 4096), (256, 128, 64, 2, 2)),
        ((10, 3), (4096, 4096, 4096), (256, 256, 64, 1, 4)),
        ((12, 1), (4096, 4096, 4096), (64, 64, 64, 1, 1)),
    ],
)
def test_the_table_is_filtered_by_the_gpu(
    capability: tuple[int, int], sizes: tuple[int, int, int], expected: tuple[int, ...]
) -> None:
    with TileCpu(compute_capability=capability):
        module = example("matmul", "tuned")
        rows = [tuple(vars(c).values()) for c in module._matmul_configs("cuda", sizes)]
    assert expected in rows
    assert all((row[-1] or 1) == 1 for row in rows) or capability[0] in (9, 10)


@pytest.mark.usefixtures("no_gpu")
def test_no_tile_far_larger_than_the_arrays() -> None:
    module = example("matmul", "tuned")
    large = module._matmul_configs("cuda", (4096, 4096, 4096))
    small = module._matmul_configs("cuda", (64, 4096, 4096))
    assert small[0] is large[0] is module._MATMUL_FIXED
    assert max(config.TILE_M for config in small[1:]) == 64
    assert max(config.TILE_M for config in large[1:]) == 256
    assert max(config.TILE_M for config in module._matmul_configs("cuda", (100, 64, 64))[1:]) == 128


@pytest.mark.usefixtures("no_gpu")
def test_an_array_that_is_read_and_written_is_searched_on_a_copy(tmp_path: Path) -> None:
    module = tuned(sources.IN_PLACE, tmp_path)
    Search(module)
    x = random(5, 33)
    expected = x * 3
    torch.testing.assert_close(module.scale_(x, 3.0), expected)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("text", [sources.MATMUL, sources.PERSISTENT], ids=["grid", "persistent"])
def test_a_moved_grid_covers_everything(text: str, tmp_path: Path) -> None:
    module = tuned(text, tmp_path)
    Search(module)
    a, b = random(300, 90), random(90, 140)
    torch.testing.assert_close(
        module.matmul(a, b).float(), a.float() @ b.float(), rtol=1e-2, atol=1e-2
    )


BATCHED = (
    sources.HEAD
    + """\
TILE_M, TILE_N, TILE_K = 64, 32, 16


@ct.kernel
def bmm_kernel(a, b, c, M: Const, N: Const, K: Const):
    batch, i, j = ct.bid(2), ct.bid(0), ct.bid(1)
    total = ct.full((M, N), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=2, shape=(1, M, K))):
        left = ct.load(a, (batch, i, k), (1, M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, (batch, k, j), (1, K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(ct.reshape(left, (M, K)), ct.reshape(right, (K, N)), total)
    ct.store(c, index=(batch, i, j), tile=ct.reshape(total.astype(c.dtype), (1, M, N)))


def matmul(a, b):
    tiles, n = a.shape[0], b.shape[2]
    c = torch.empty((tiles, a.shape[1], n), dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(a.shape[1], TILE_M), ct.cdiv(n, TILE_N), tiles)
    args = (a, b, c, TILE_M, TILE_N, TILE_K)
    ct.launch(torch.cuda.current_stream(), grid, bmm_kernel, args)
    return c
"""
)
FLAT = sources.MATMUL.replace(
    "    i, j = ct.bid(0), ct.bid(1)\n",
    "    width = ct.num_tiles(c, axis=1, shape=(M, N))\n"
    "    i, j = ct.bid(0) // width, ct.bid(0) % width\n",
).replace("(rows, columns)", "(rows * columns, 1, 1)")


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (sources.MATMUL, ((840, 40), (40, 700))),  # more tiles than multiprocessors
        (sources.MATMUL, ((150, 140), (140, 130))),  # fewer
        (BATCHED, ((5, 300, 40), (5, 40, 260))),
        (FLAT, ((300, 40), (40, 260))),
    ],
    ids=["many", "few", "batched", "flat"],
)
def test_blocks_that_stay_cover_everything_whatever_the_config(
    text: str, shapes: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    module = tuned(text, tmp_path, {"persistent": True})
    search = Search(module)
    a, b = (random(*shape) for shape in shapes)
    expected = a.float() @ b.float()
    torch.testing.assert_close(module.matmul(a, b).float(), expected, rtol=1e-2, atol=1e-2)
    assert len(search.tried[0]) > 4
    (name,) = (n for n in vars(module) if n.startswith("_best_"))
    for config in search.tried[0]:
        module = tuned(text, tmp_path, {"persistent": True})
        setattr(module, name, lambda *_, config=config: config)
        torch.testing.assert_close(module.matmul(a, b).float(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.usefixtures("no_gpu")
def test_two_products_with_blocks_that_stay(tmp_path: Path) -> None:
    module = tuned(sources.TWO_PRODUCTS, tmp_path, {"persistent": True})
    Search(module)
    a, b, gates = random(150, 40), random(40, 140), random(40, 140)
    expected = (a.float() @ b.float()) * (a.float() @ gates.float())
    torch.testing.assert_close(module.matmul(a, b, gates).float(), expected, rtol=1e-2, atol=1e-1)


@pytest.mark.usefixtures("no_gpu")
def test_as_many_blocks_stay_as_the_gpu_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tuned(sources.MATMUL, tmp_path, {"persistent": True})
    n_sms = torch.cuda.get_device_properties(0).multi_processor_count
    launched = []
    real = sys.modules["cuda.tile"].launch
    config = SimpleNamespace(M=64, N=64, K=32, occupancy=2, num_ctas=2)
    monkeypatch.setattr(module, "_best_matmul_config", lambda *_: config)
    monkeypatch.setattr(
        sys.modules["cuda.tile"], "launch", lambda *a: (launched.append(a[1]), real(*a))
    )
    for rows, blocks in ((64, 4), (64 * n_sms, n_sms // 2 * 2)):
        module.matmul(random(rows, 32), random(32, 256))
        assert launched.pop() == (blocks,)


@pytest.mark.usefixtures("no_gpu")
def test_attention(tmp_path: Path) -> None:
    module = tuned(sources.ATTENTION, tmp_path)
    search = Search(module)
    q, k, v = (random(n, 32) for n in (100, 150, 150))
    weights = torch.softmax(q.float() @ k.float().T * 32**-0.5, dim=-1)
    torch.testing.assert_close(
        module.attention(q, k, v).float(), weights @ v.float(), rtol=1e-2, atol=1e-2
    )
    assert {config.TILE_M for config in search.tried[0]} == {64, 128}


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", ["args", "best", "config", "grid", "kernel", "key", "stream"])
@pytest.mark.parametrize("given", ["factor", "n"])
def test_a_name_of_the_module_that_the_written_function_has_too(
    name: str, given: str, tmp_path: Path
) -> None:
    value, changed = {
        "factor": ("3.0", f"(x, y, {name}, n)"),
        "n": ("64", f"(x, y, factor, {name})"),
    }[given]
    text = sources.ROWS.replace("(x, y, factor, n)", changed)
    module = tuned(f"{text}\n\n{name} = {value}\n", tmp_path)
    Search(module)
    x = random(5, 60)
    torch.testing.assert_close(module.scale(x, 3.0), x * 3)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("name", "parameters"),
    [("tile_of", "tile_of"), ("kernel", "total"), ("config", "total"), ("best", "total")],
)
def test_a_function_of_the_grid_that_the_written_function_hides(
    name: str, parameters: str, tmp_path: Path
) -> None:
    """By a name of its own, or by a parameter of the kernel's."""
    text = sources.MATMUL.replace("rows = ct.cdiv(", f"rows = {name}(")
    text = text.replace("matmul_kernel(a, b, c, M", f"matmul_kernel(a, b, c, {parameters}, M")
    text = text.replace("args = (a, b, c, tile_m", "args = (a, b, c, m, tile_m")
    text = (
        text.replace("total =", "summed =")
        .replace("total)", "summed)")
        .replace("total.as", "summed.as")
    )
    module = tuned(f"{text}\n\ndef {name}(n, tile):\n    return -(-n // tile)\n", tmp_path)
    Search(module)
    a, b = random(300, 90), random(90, 140)
    expected = a.float() @ b.float()
    torch.testing.assert_close(module.matmul(a, b).float(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", ["str", "max", "len", "zip", "matmul_kernel"])
def test_a_parameter_of_the_kernel_that_hides_what_the_written_function_calls(
    name: str, tmp_path: Path
) -> None:
    text = sources.ROWS.replace("y, factor, N", f"y, {name}, N").replace("* factor)", f"* {name})")
    module = tuned(text.replace("scale_kernel", "matmul_kernel"), tmp_path)
    Search(module)
    x = random(5, 60)
    torch.testing.assert_close(module.scale(x, 3.0), x * 3)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("absent", "is_there"),
    [
        ("None", "bias is not None"),
        ("0", "isinstance(bias, torch.Tensor)"),
    ],
)
def test_an_array_that_a_caller_leaves_out(absent: str, is_there: str, tmp_path: Path) -> None:
    text = sources.ROWS.replace("x, y, factor, N", "x, bias, y, factor, HAS_BIAS: Const, N")
    added = (
        "    if HAS_BIAS:\n        tile += ct.load(bias, index=(0, 0), shape=(1, N))\n    ct.store("
    )
    text = text.replace("    ct.store(", added).replace("factor: float)", f"factor, bias={absent})")
    text = text.replace("(x, y, factor, n)", f"(x, bias, y, factor, {is_there}, n)")
    module = tuned(text, tmp_path)
    search = Search(module)
    x, bias = random(5, 64), random(1, 64)
    for given in ((), (bias,), ()):
        expected = (x + given[0] if given else x) * 3
        torch.testing.assert_close(module.scale(x, 3.0, *given), expected)
    assert len(search.tried) == 2 * 2


@pytest.mark.usefixtures("no_gpu")
def test_a_result_that_a_caller_leaves_out(tmp_path: Path) -> None:
    """A trial run writes to an array of its own, where there is one."""
    text = sources.ROWS.replace("x, y, factor, N", "x, y, sums, factor, WITH_SUMS: Const, N")
    added = (
        "    if WITH_SUMS:\n"
        "        total = ct.sum(tile, 1, keepdims=True)\n"
        "        ct.store(sums, index=(row, 0), tile=total)\n"
        "    ct.store("
    )
    text = text.replace("    ct.store(", added).replace("factor: float)", "factor, sums=0)")
    there = "isinstance(sums, torch.Tensor)"
    text = text.replace("(x, y, factor, n)", f"(x, y, sums, factor, {there}, n)")
    module = tuned(text, tmp_path)
    Search(module)
    x, sums = random(5, 64), random(5, 1)
    torch.testing.assert_close(module.scale(x, 3.0), x * 3)
    torch.testing.assert_close(module.scale(x, 3.0, sums), x * 3)
    torch.testing.assert_close(sums, x.sum(1, keepdim=True), rtol=1e-2, atol=1e-2)
