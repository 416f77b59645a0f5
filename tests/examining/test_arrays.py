"""Arrays of NumPy and CuPy as tensors on the same memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

from tile_agent_pytest.examining.arrays import (  # noqa: E402
    as_fixed,
    as_tensor,
    is_fixed,
    library_of,
)
from tile_agent_pytest.examining.calls import (  # noqa: E402
    ArgumentLayout,
    RecordedCall,
    _copied,
    _mapped,
)
from tile_agent_pytest.examining.examination import Examination  # noqa: E402
from tile_agent_pytest.examining.exchange import hand_out, take  # noqa: E402
from tile_agent_pytest.examining.inputs import Inputs  # noqa: E402
from tile_agent_pytest.examining.tensors import digest, reachable, within  # noqa: E402
from tile_agent_pytest.input_sets import that_can_lie_elsewhere  # noqa: E402
from tile_agent_pytest.launch_detector import LaunchDetector  # noqa: E402


def test_an_array_is_seen_through_a_tensor_on_its_memory() -> None:
    array = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    found = within({"out": (array, torch.ones(2))}, "result")
    assert [*found] == ["result['out'][0]", "result['out'][1]"]
    seen = found["result['out'][0]"]
    array[0, 0] = 7
    assert float(seen[0, 0]) == 7
    assert is_fixed(seen) and not is_fixed(found["result['out'][1]"])
    assert type(seen + 1) is torch.Tensor


@pytest.mark.parametrize(
    "array", [np.arange(4)[::-1], np.array(["a"]), np.zeros(2, dtype=[("x", "f4")])]
)
def test_what_is_no_tensor_is_left_out(array: Any) -> None:
    assert library_of(array) == "numpy"
    assert as_tensor(array) is None
    assert within(array, "result") == {}


def test_memory_that_is_only_read_is_seen_without_a_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    array = np.arange(4)
    array.flags.writeable = False
    assert within(array, "result")["result"].tolist() == [0, 1, 2, 3]
    assert not recwarn


def test_what_only_looks_like_one_is_none() -> None:
    class ndarray:  # noqa: N801
        """Not NumPy's."""

    assert library_of(ndarray()) == library_of(torch.ones(1)) == library_of(np.float32(1)) == ""


def test_arrays_of_numpy_are_no_inputs() -> None:
    table, x = np.ones(3), torch.ones(3)
    assert [*reachable(partial(max, table, x), "kernel.py")] == ["[1]"]


def test_an_input_that_is_an_array_gets_other_bytes_where_it_lies() -> None:
    x = torch.randn(64)
    fixed = as_fixed(x)
    before, place = x.clone(), x.data_ptr()
    inputs = Inputs({"x": fixed})
    assert inputs.to_be_moved() == []
    for seed in range(4):
        inputs.refresh(seed)
        assert fixed.data_ptr() == place
        assert not torch.equal(x, before)
    inputs.restore()
    assert torch.equal(x, before)
    assert that_can_lie_elsewhere([fixed], 1 << 20) == []


def test_a_call_that_takes_one_is_made_with_other_layouts() -> None:
    given = np.arange(24, dtype=np.float32).reshape(4, 6)

    def strides_of(x: Any, n: int) -> tuple[Any, ...]:
        assert type(x) is np.ndarray
        return x.strides, x.shape, n, float(x.sum())

    kept = _mapped((given, 6), _copied)
    given[:] = 0  # what a test does to it later
    call = RecordedCall("test_x", "strides_of", strides_of, kept, {})
    assert call.laid_out(ArgumentLayout(pitch=3, offset=1))() == ((36, 4), (4, 6), 6, 276.0)
    assert call.laid_out(ArgumentLayout(sizes=((6, 5),)))() == ((20, 4), (4, 5), 5, 220.0)


def test_it_is_handed_over_by_its_bytes(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)[:, 1:]
    (described,) = hand_out(within(array, "result"), tmp_path)
    assert "handle" not in described
    assert np.array_equal(take(described).numpy(), array)


def test_a_result_that_is_an_array_is_examined(tmp_path: Path) -> None:
    x = torch.randn(100)
    shown = []
    for scale in (2, 3):
        examination = Examination(
            lambda scale=scale: (x * scale).numpy(), LaunchDetector("k.py"), "k.py", tmp_path,
            lambda: None,
        )  # fmt: skip
        examination.first()
        examination.pick(2, lambda call=examination.call: [float(call() is not None)])
        (result,) = examination.show()["results"]
        shown.append(take(result).clone())
        examination.close()
    assert torch.allclose(shown[0] * 1.5, shown[1])
    assert digest(shown[0]) != digest(shown[1])


GPU = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU, and torch sees none"
)


@pytest.mark.gpu
@GPU
def test_arrays_of_cupy_are_inputs_and_results(tmp_path: Path) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    x, y = cupy.arange(1000, dtype=cupy.float32), cupy.zeros(1000, dtype=cupy.float32)

    def doubled() -> Any:
        cupy.multiply(x, 2, out=y)
        return y

    found = reachable(doubled, "kernel.py")
    assert sorted(found) == [" x", " y"] and all(map(is_fixed, found.values()))
    assert found[" x"].data_ptr() == x.data.ptr
    (described,) = hand_out(within(doubled(), "result"), tmp_path)
    assert torch.equal(take(described), torch.arange(1000.0) * 2)
    before = found[" x"].clone()
    inputs = Inputs(found)
    inputs.refresh(3)
    assert not torch.equal(torch.as_tensor(x), before)
    inputs.restore()
    assert torch.equal(torch.as_tensor(x), before)
