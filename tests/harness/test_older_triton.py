"""What Triton 3.4 and 3.5 have otherwise than the one that is installed: stand-ins of its shape."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tile_agent_pytest import interpreted_driver, interpreted_launches, mended_interpreter
from tile_agent_pytest.compiled_apart import asking
from tile_agent_pytest.interpreted_launches import WarmKernel


def as_of_triton_3_5() -> Any:
    """An interpreter whose functions have no `run` of their class's."""

    class InterpretedFunction:
        def __init__(self, fn: Any, **kwargs: Any) -> None:
            self.fn = fn
            self.launched: list[Any] = []

            def run(*args: Any, **kwargs: Any) -> None:
                self[kwargs.pop("grid")](*args, **kwargs)

            self.run = run

        @property
        def __name__(self) -> str:
            return str(self.fn.__name__)

        def __getitem__(self, grid: Any) -> Any:
            def execute(*args: Any, warmup: bool = False, **kwargs: Any) -> None:
                assert not warmup
                shape = grid(kwargs) if callable(grid) else grid
                assert isinstance(shape, tuple)
                self.launched.append((shape, args, kwargs))

            return execute

    return SimpleNamespace(InterpretedFunction=InterpretedFunction)


def kernel(x: Any, n: Any, BLOCK: Any) -> None:
    """What is launched."""


def test_functions_that_are_given_their_run_bear_lists_and_are_warmed_up() -> None:
    interpreter = as_of_triton_3_5()
    interpreted_launches.mend(interpreter)
    mended = vars(interpreter.InterpretedFunction).copy()
    interpreted_launches.mend(interpreter)
    assert vars(interpreter.InterpretedFunction) == mended, "a second time changes nothing"
    function = interpreter.InterpretedFunction(kernel)
    function[[2, 3]](1, 2, BLOCK=4)
    function[lambda meta: [meta["BLOCK"]]](1, 2, BLOCK=4)
    function.run(1, 2, grid=[5], BLOCK=4)  # as a tuner does
    function.run(1, 2, grid=(6,), warmup=False, BLOCK=4)
    assert [shape for shape, _, _ in function.launched] == [(2, 3), (4,), (5,), (6,)]
    warm = function.warmup(1, 2, grid=(1,), BLOCK=4)
    assert isinstance(warm, WarmKernel)
    assert warm.metadata.name == "kernel"
    assert len(function.launched) == 4, "to be warmed up is not to be launched"
    warm[[7]](1, 2)
    assert function.launched[-1] == ((7,), (1, 2), {"BLOCK": 4})


@pytest.mark.parametrize("name", ["_active", "active"])
def test_a_driver_answers_and_leaves_what_was_there(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until Triton 3.4 `active` is an attribute like any other; since then, a property."""
    runtime = SimpleNamespace(driver=SimpleNamespace(**{name: "what was there"}))
    monkeypatch.setitem(sys.modules, "triton.runtime", runtime)
    with asking("a stand-in"):
        assert vars(runtime.driver) == {name: "a stand-in"}
    assert vars(runtime.driver) == {name: "what was there"}


def test_an_interpreter_in_the_middle_of_its_language_is_left_for_later() -> None:
    whole = SimpleNamespace(tl=SimpleNamespace(float32="float32"))
    assert mended_interpreter._whole(whole) is whole
    assert mended_interpreter._whole(SimpleNamespace(tl=SimpleNamespace())) is None
    assert mended_interpreter._whole(SimpleNamespace()) is None
    assert mended_interpreter._whole(None) is None
    assert "triton" in mended_interpreter.NEEDED, "after which it is whole"


def test_a_driver_that_is_made_later_by_a_function_of_then_makes_do_without_a_gpu() -> None:
    """As Triton 3.4's, which keeps the function that makes it."""

    class LazyProxy:
        def __init__(self, init_fn: Any) -> None:
            self._init_fn = init_fn

        def _initialize_obj(self) -> Any:
            return self._init_fn()

    def create() -> Any:
        raise RuntimeError("0 active drivers")

    driver = SimpleNamespace(default=LazyProxy(create))
    module = SimpleNamespace(_create_driver=create, driver=driver)
    interpreted_driver.mend(module)
    interpreted_driver.mend(module)
    assert driver.default._initialize_obj().get_current_device() == 0
