"""What cuda.tile evaluates while it compiles, what only informs the compiler, and debugging."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tile_agent_pytest.tile_cpu import dtypes
from tile_agent_pytest.tile_cpu.elementwise import binary
from tile_agent_pytest.tile_cpu.errors import TileCpuError
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.tile import Tile, as_tile, integer, scalar


class DeviceAssertion(TileCpuError, AssertionError):
    """A `ct.assert_` that does not hold."""


def static_eval(expr: Any, /) -> Any:
    return expr


def static_assert(condition: Any, message: Any = None, /) -> None:
    if isinstance(condition, Tile):
        raise ct.TileTypeError("the condition of static_assert must be a constant")
    if not condition:
        raise ct.TileStaticAssertionError("" if message is None else str(message))


def ensure_constant(value: Any, /) -> Any:
    if isinstance(value, Tile):
        raise ct.TileStaticAssertionError(
            "Argument of ensure_constant() is not a compile-time constant"
        )
    return value


def assume_divisible_by(x: Any, divisor: Any) -> Any:
    """Checked here: a GPU would believe it."""
    by = integer(divisor, "divisor")
    if by < 1 or x.__index__() % by:
        raise ct.TileValueError(f"assume_divisible_by({x}, {by}) is not true")
    return x


def assert_(cond: Any, /, message: Any = None) -> None:
    if not bool(as_tile(cond).values.all()):
        raise DeviceAssertion(message or "ct.assert_ does not hold")


def printf(format: str, *args: Any) -> None:
    builtins.print(format % tuple(as_tile(arg).values.tolist() for arg in args), end="")


def print_(*args: Any, sep: str = " ", end: str = "\n") -> None:
    builtins.print(*args, sep=sep, end=end)


def nothing() -> None:
    """Dependencies between launches: each launch here ends before the next begins."""


# --- Python's own functions ----------------------------------------------------------------------

_range, _min, _max = range, min, max


def _tile_range(*args: Any) -> Any:
    """Indices are tiles if a bound is; else it is Python's `range`, which static code needs."""
    if not any(isinstance(arg, Tile) for arg in args):
        return _range(*args)
    dtype = ct.int32
    for arg in args:
        dtype = dtypes.promote(dtype, as_tile(arg).dtype)
    bounds = [arg.__index__() for arg in args]
    if len(bounds) == 3 and bounds[2] <= 0:
        raise ct.TileTypeError(f"the step of range must be positive, got {bounds[2]}")
    return (scalar(i, dtype) for i in _range(*bounds))


def _tile_min(*args: Any, **options: Any) -> Any:
    if len(args) == 2 and any(isinstance(arg, Tile) for arg in args):
        return binary("min", *args)
    return _min(*args, **options)


def _tile_max(*args: Any, **options: Any) -> Any:
    if len(args) == 2 and any(isinstance(arg, Tile) for arg in args):
        return binary("max", *args)
    return _max(*args, **options)


@contextmanager
def python_functions_for_tiles() -> Iterator[None]:
    """`range`, `min` and `max` take tiles while this is open, and are else what they were."""
    module: Any = builtins
    module.range, module.min, module.max = _tile_range, _tile_min, _tile_max
    try:
        yield
    finally:
        module.range, module.min, module.max = _range, _min, _max


OPERATIONS = {
    "static_eval": static_eval,
    "static_assert": static_assert,
    "ensure_constant": ensure_constant,
    "assume_divisible_by": assume_divisible_by,
    "assert_": assert_,
    "printf": printf,
    "print": print_,
    "grid_dependency_control_wait": nothing,
    "grid_dependency_control_launch_dependents": nothing,
}
