"""What TileCpu replaces while it is open, and that it puts everything back."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.warm_python import warm_interpreter

ct = pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")

from tile_agent_pytest.tile_cpu import (  # noqa: E402
    TileCpu,
    UninitializedRead,
    UnsupportedVersion,
    dtypes,
    hook,
)

ROOT = Path(__file__).parents[2]


@ct.kernel
def double(x, y, TILE: ct.Constant[int]):
    ct.store(y, (ct.bid(0),), ct.load(x, (ct.bid(0),), (TILE,)) * 2)


def test_everything_is_put_back() -> None:
    names = ("is_available", "current_stream", "synchronize", "Stream", "device")
    before = [getattr(torch.cuda, name) for name in names]
    launch, search, generator = ct.launch, ct.tune.exhaustive_search, torch.Generator
    functions = (builtins.range, builtins.min, builtins.max, torch.get_num_threads())
    with TileCpu():
        assert ct.launch is not launch
        assert torch.cuda.is_available()
        ct.launch(torch.cuda.current_stream(), (1,), double, (torch.ones(4), torch.ones(4), 4))
    assert [getattr(torch.cuda, name) for name in names] == before
    assert (ct.launch, ct.tune.exhaustive_search, torch.Generator) == (launch, search, generator)
    assert (builtins.range, builtins.min, builtins.max, torch.get_num_threads()) == functions
    with pytest.raises(RuntimeError, match="only be called from device code"):
        ct.exp(1.0)


def test_what_an_operator_allocates_is_there_too() -> None:
    register = torch.library.Library.impl
    with TileCpu():

        @torch.library.custom_op("test_context::doubled", mutates_args=())
        def doubled(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty(x.shape, device="cuda")
            ct.launch(torch.cuda.current_stream(), (1,), double, (x, y, 4))
            return y

        assert doubled(torch.ones(4, device="cuda")).tolist() == [2, 2, 2, 2]
    assert torch.library.Library.impl is register


def test_a_launch_that_was_imported_by_name_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("imports_by_name")
    module.launch = ct.launch
    monkeypatch.setitem(sys.modules, "imports_by_name", module)
    y = torch.zeros(4)
    with TileCpu() as cpu:
        module.launch(torch.cuda.current_stream(), (1,), double, (torch.ones(4), y, 4))
        assert cpu.launched == [f"{__name__}.double"]
    assert y.tolist() == [2, 2, 2, 2]
    assert module.launch is ct.launch


def test_a_launch_that_a_module_gets_later_is_replaced_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the module held one while another context was open."""
    module: Any = ModuleType("gets_it_later")
    module.launch = None
    monkeypatch.setitem(sys.modules, "gets_it_later", module)
    with TileCpu():
        pass
    module.launch = ct.launch
    with TileCpu(), TileCpu():
        assert module.launch is ct.launch
    with TileCpu() as cpu:
        module.launch(torch.cuda.current_stream(), (1,), double, (torch.ones(4),) * 2 + (4,))
    assert len(cpu.launched) == 1


def test_contexts_nest() -> None:
    with TileCpu() as outer:
        with TileCpu() as inner:
            ct.launch(torch.cuda.current_stream(), (1,), double, (torch.ones(4), torch.ones(4), 4))
        ct.launch(torch.cuda.current_stream(), (1,), double, (torch.ones(4), torch.ones(4), 4))
        assert len(outer.launched) == len(inner.launched) == 1


def test_another_dispatch_hook_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(self: Any, function: Any, arguments: Any) -> None: ...

    monkeypatch.setattr(hook._dispatch.DispatchMode, "call_tile_function_from_host", renamed)
    with pytest.raises(UnsupportedVersion, match="another dispatch hook"):
        TileCpu()


def test_the_search_takes_the_first_config_that_runs() -> None:
    x, y = torch.ones(16), torch.zeros(16)
    configs = [SimpleNamespace(tile=3), SimpleNamespace(tile=8), SimpleNamespace(tile=16)]
    with TileCpu() as cpu:
        result = ct.tune.exhaustive_search(
            configs,
            torch.cuda.current_stream(),
            lambda config: (16 // config.tile,),
            double,
            lambda config: (x, y, config.tile),
            lambda _: {"occupancy": 2},
        )
        assert result.best.config.tile == 8
        assert [failure[0].tile for failure in result.failures] == [3]
        assert (result.best.mean_us, result.best.num_samples) == (0.0, 0)
        assert len(cpu.launched) == 1
        with pytest.raises(ValueError, match="empty"):
            ct.tune.exhaustive_search([], None, None, double, None)


def test_a_search_may_measure_on_arrays_that_nobody_wrote() -> None:
    """As TileGym's backward softmax does, whose results nobody reads."""
    with TileCpu() as cpu:
        x, y = (torch.empty(16, device="cuda") for _ in range(2))
        arguments = (x, y, 16)
        stream = torch.cuda.current_stream()
        ct.tune.exhaustive_search([16], stream, lambda _: (1,), double, lambda _: arguments)
        assert len(cpu.launched) == 1
        with pytest.raises(UninitializedRead):
            ct.launch(stream, (1,), double, arguments)


# --- device "cuda" -------------------------------------------------------------------------------


def test_tensors_say_where_they_are() -> None:
    with TileCpu():
        on_cpu = torch.ones(3)
        on_gpu = torch.ones(3, device="cuda")
        assert (on_cpu.is_cuda, on_gpu.is_cuda) == (False, True)
        assert (on_cpu.device.type, on_gpu.device) == ("cpu", torch.device("cuda", 0))
        assert (on_gpu + 1).is_cuda
        assert not (on_cpu + 1).is_cuda
        assert on_cpu.cuda().is_cuda
        assert on_cpu.to("cuda:0", torch.float16).is_cuda
        assert torch.zeros_like(on_gpu).is_cuda
        assert not on_gpu.cpu().is_cuda
        assert torch.empty(3, device=on_gpu.device).is_cuda
        torch.testing.assert_close(on_gpu.cpu(), on_cpu)


def test_a_transfer_copies_and_no_transfer_does_not() -> None:
    with TileCpu():
        on_cpu = torch.ones(3)
        on_gpu = on_cpu.cuda()
        kept = on_gpu.cpu()
        on_gpu.zero_()
        assert on_cpu.sum() == kept.sum() == 3
        assert on_gpu.cuda() is on_gpu
        assert on_gpu.to("cuda") is on_gpu
        assert on_cpu.cpu() is on_cpu


def test_generators_and_streams_can_be_made() -> None:
    with TileCpu(sm_count=7, compute_capability=(10, 0)):
        generator = torch.Generator(device="cuda").manual_seed(0)
        torch.randn(3, device="cuda", generator=generator)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.synchronize()
        assert torch.cuda.get_device_properties("cuda").multi_processor_count == 7
        assert torch.cuda.get_device_capability() == (10, 0)
        with pytest.raises(RuntimeError, match="no times"):
            torch.cuda.Event(enable_timing=True).elapsed_time(torch.cuda.Event())


# --- the pytest option ---------------------------------------------------------------------------


@pytest.mark.full
def test_the_examples_pass_with_the_option_and_time_nothing() -> None:
    command = ["pytest", "examples/cutile_softmax", "--tile-cpu", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [warm_interpreter(), "-m", *command],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert " passed, 1 skipped" in done.stdout


# --- promotion -----------------------------------------------------------------------------------


def test_a_conftest_may_ask_what_gpu_there_is_for_an_option(tmp_path: Path) -> None:
    """As that of TileGym does."""
    (tmp_path / "conftest.py").write_text(
        "import torch\n\ndef pytest_addoption(parser):\n"
        "    parser.addoption('--arch', default=f'sm{torch.cuda.get_device_capability()[0]}0')\n"
    )
    (tmp_path / "test_arch.py").write_text(
        "def test_arch(request):\n    assert request.config.getoption('--arch') == 'sm90'\n"
    )
    command = ["pytest", "--tile-cpu", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [warm_interpreter(), "-m", *command], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promotion_is_that_of_cuda_tile() -> None:
    from cuda.tile._datatype import _promote_dtypes

    known = list(dtypes.STORAGE)
    for first in known:
        for second in known:
            expected = _promote_dtypes(first, second)
            if expected is None:
                with pytest.raises(ct.TileTypeError):
                    dtypes.promote(first, second)
            else:
                assert dtypes.promote(first, second) is expected
