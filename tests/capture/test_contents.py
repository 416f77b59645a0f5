"""What is in a tensor, also where a project has replaced the operators that would tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tile_agent_pytest.capture.contents import contents  # noqa: E402

TENSORS: dict[str, Callable[[], Any]] = {
    "normal": lambda: torch.randn(64, 32),
    "a view with an offset": lambda: torch.rand(40, 16).half()[3:, 4:9],
    "turned": lambda: torch.randint(0, 9, (12, 7)).t(),
    "rising": lambda: torch.arange(300),
    "mask": lambda: torch.rand(5, 5) > 0.5,
    "full": lambda: torch.full((4,), 2.5, dtype=torch.bfloat16),
    "empty": lambda: torch.empty(0, 3),
}


class Replaced(TorchDispatchMode):
    """All that computes with one memory fails; what only looks at it does not."""

    def __init__(self, tensor: Any) -> None:
        super().__init__()
        self._memory = tensor.untyped_storage().data_ptr()
        self.refused = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        looks = func.__name__.split(".")[0] in ("detach", "view", "slice", "alias", "copy_")
        if not looks and any(
            isinstance(arg, torch.Tensor) and arg.untyped_storage().data_ptr() == self._memory
            for arg in args
        ):
            self.refused += 1
            raise TypeError("function takes exactly 24 arguments (20 given)")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", TENSORS)
def test_operators_that_fail_hide_nothing(name: str) -> None:
    tensor = TENSORS[name]()
    expected = contents(tensor)
    with Replaced(tensor) as replaced:
        assert contents(tensor) == expected
    assert replaced.refused == (name != "empty")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_librarys_operators_on_a_gpu_hide_nothing() -> None:
    tensor = torch.randn(1000, device="cuda").abs()
    expected = contents(tensor)

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise TypeError("function takes exactly 24 arguments (20 given)")

    library = torch.library.Library("aten", "IMPL")
    for operator in ("min", "mean", "_to_copy"):
        library.impl(operator, fails, "CUDA")
    found = contents(tensor)
    del library
    assert found == pytest.approx(expected)
