"""Runs a kernel: binds its parameters, and runs its blocks one by one in a shuffled order."""

from __future__ import annotations

import inspect
import itertools
import random
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, get_args, get_origin

import torch

from tile_agent_pytest.tile_cpu import (
    atomics,
    casts,
    dtypes,
    elementwise,
    grid,
    hook,
    matrix,
    memory,
    reductions,
    shapes,
    statics,
    unary,
    views,
)
from tile_agent_pytest.tile_cpu.errors import TileCpuError, UnsupportedOperation
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.memory import Array
from tile_agent_pytest.tile_cpu.tile import Tile, scalar

OPERATIONS: dict[str, Callable[..., Any]] = {
    name: operation
    for module in (
        atomics,
        casts,
        elementwise,
        grid,
        matrix,
        memory,
        reductions,
        shapes,
        statics,
        unary,
        views,
    )
    for name, operation in module.OPERATIONS.items()
}
"""By the qualified name of cuda.tile's function or method."""

OUR_FOLDERS = tuple(
    str(Path(file).parent) for file in (__file__, torch.__file__, ct.__file__) if file
)
NO_CONSTRUCTOR = "DType cannot be constructed"
"""What calling a dtype says outside of the compiler: it does not ask the dispatch mode."""


def launch(
    kernel: Any,
    blocks: Any,
    arguments: tuple[Any, ...],
    *,
    seed: int,
    report_unwritten: bool = True,
) -> None:
    """Run every block of a `@ct.kernel` on CPU tensors. `seed` decides the order of the blocks."""
    if not isinstance(kernel, ct.kernel):
        raise TypeError(f"ct.launch needs a @ct.kernel, got {type(kernel).__name__}")
    function = hook.python_function(kernel)
    values = _bind(function, arguments, report_unwritten)
    extents = _grid(blocks)
    first, second, third = extents
    order = [*itertools.product(range(first), range(second), range(third))]
    random.Random(seed).shuffle(order)
    grid.running.grid = extents
    with (
        hook.dispatching_to(_call),
        statics.python_functions_for_tiles(),
        _one_thread(),
        # What watches torch calls in the user's code need not see ours.
        torch._C.DisableTorchFunction(),
        torch.no_grad(),
    ):
        for block in order:
            grid.running.begin(block)
            try:
                function(*values)
            except Exception as problem:
                raise _located(problem, function.__name__, block) from problem


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tiles are too small to be worth several: waiting for a busy core can cost a hundredfold."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not hook.is_operation(function):
        return function.__wrapped__(*args, **kwargs)
    operation = OPERATIONS.get(function.__qualname__)
    if operation is None:
        raise UnsupportedOperation(f"the CPU execution has no ct.{function.__qualname__}")
    hints = {name: value for name, value in kwargs.items() if name in memory.HINTS}
    memory.check_hints(hints)
    return operation(*args, **{name: v for name, v in kwargs.items() if name not in hints})


def _grid(blocks: Any) -> grid.Grid:
    extents = tuple(blocks)
    if not 1 <= len(extents) <= 3 or not all(
        isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in extents
    ):
        raise ValueError(f"a grid is one to three positive integers, got {blocks!r}")
    first, second, third = (*extents, 1, 1)[:3]
    return first, second, third


# --- parameters ----------------------------------------------------------------------------------


def _bind(
    function: Callable[..., Any], arguments: tuple[Any, ...], report_unwritten: bool
) -> list[Any]:
    parameters = inspect.signature(function).parameters
    if len(parameters) != len(arguments):
        raise TypeError(
            f"kernel {function.__name__} has {len(parameters)} parameters,"
            f" got {len(arguments)} arguments"
        )
    hints = typing.get_type_hints(function, include_extras=True)
    return [
        _parameter(name, value, hints.get(name), False, report_unwritten)
        for name, value in zip(parameters, arguments, strict=True)
    ]


class ArrayList:
    """A list of arrays; the index may be a tile."""

    def __init__(self, arrays: list[Any]) -> None:
        self._arrays = arrays

    def __getitem__(self, index: Any) -> Any:
        return self._arrays[index.__index__()]

    def __len__(self) -> int:
        return len(self._arrays)


def _parameter(name: str, value: Any, hint: Any, constant: bool, report_unwritten: bool) -> Any:
    metadata: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        metadata = tuple(rest)
        constant = constant or any(isinstance(m, ct.ConstantAnnotation) for m in metadata)
        if get_origin(hint) is not tuple:
            _check_annotations(name, value, metadata)
    if isinstance(value, tuple | list):
        hints = get_args(hint) if get_origin(hint) is tuple else ()
        if len(hints) != len(value):
            hints = ((*hints, None)[0],) * len(value)
        listed = _of_type(metadata, ct.ListAnnotation)
        if listed is not None:
            hints = (Annotated[Any, listed.element],) * len(value)
        items = [
            _parameter(name, item, each, constant, report_unwritten)
            for item, each in zip(value, hints, strict=True)
        ]
        return ArrayList(items) if isinstance(value, list) else tuple(items)
    if constant:
        return _constant(name, value)
    if isinstance(value, torch.Tensor):
        annotation = _of_type(metadata, ct.ArrayAnnotation) or ct.ArrayAnnotation()
        return Array(
            value,
            index_dtype=annotation.index_dtype,
            static_shape=annotation.static_shape_dims,
            static_strides=annotation.static_stride_dims,
            report_unwritten=report_unwritten,
        )
    if isinstance(value, bool):
        return scalar(value, ct.bool_)
    if isinstance(value, int):
        return _integer_scalar(name, value, metadata)
    if isinstance(value, float):
        return scalar(value, ct.float32)
    return _constant(name, value)


def _check_annotations(name: str, value: Any, metadata: tuple[Any, ...]) -> None:
    """The compiler refuses what is no array where an annotation says that one is given."""
    is_array = isinstance(value, torch.Tensor)
    wants_array = _of_type(metadata, ct.ArrayAnnotation) is not None
    wants_list = _of_type(metadata, ct.ListAnnotation) is not None
    if (wants_array and not is_array) or (wants_list and not isinstance(value, list)):
        raise TypeError(
            f"Invalid kernel parameter '{name}': ArrayAnnotation/IndexedWithInt64 can only be "
            f"applied to an array or a list-of-array parameter, got {type(value).__name__}"
        )
    if is_array and _scalar_dtype(metadata) is not None:
        raise TypeError(
            f"Invalid kernel parameter '{name}': ScalarAnnotation/ScalarInt64 can only be applied "
            f"to a non-constant scalar parameter, got {type(value).__name__}"
        )


def _scalar_dtype(metadata: tuple[Any, ...]) -> Any:
    # ScalarAnnotation is not public; it is what `ct.ScalarInt64` holds.
    return next((m.dtype for m in metadata if hasattr(m, "dtype")), None)


def _integer_scalar(name: str, value: int, metadata: tuple[Any, ...]) -> Tile:
    dtype = _scalar_dtype(metadata) or ct.int32
    low, high = dtypes.integer_range(dtype)
    if not low <= value <= high:
        raise OverflowError(f"{value} of parameter {name} does not fit {dtype.name}")
    return scalar(value, dtype)


def _of_type(metadata: tuple[Any, ...], kind: Any) -> Any:
    return next((m for m in metadata if isinstance(m, kind)), None)


def _constant(name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor | Tile):
        raise TypeError(f"parameter {name} is a ct.Constant, got {type(value).__name__}")
    if isinstance(value, torch.dtype):
        return dtypes.dtype_of(value)
    return value


# --- errors --------------------------------------------------------------------------------------


def _located(problem: Exception, kernel: str, block: grid.Grid) -> Exception:
    """The same error with the line of the kernel, or of its helper, that it came from."""
    where = f"{_line_of(problem.__traceback__)}, block {block} of {kernel}"
    message = str(problem.args[0]) if problem.args else type(problem).__name__
    if isinstance(problem, TypeError) and NO_CONSTRUCTOR in message:
        return UnsupportedOperation(
            f"{where}: a dtype cannot be called on the CPU, as in ct.float32(x); use ct.astype"
        )
    if isinstance(problem, TileCpuError | ct.TileError):
        return type(problem)(f"{where}: {message}")
    problem.add_note(f"{where}")
    return problem


def _line_of(trace: TracebackType | None) -> str:
    line = "unknown line"
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(OUR_FOLDERS):
            line = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return line
