"""Records what cuTile kernels are launched with, on a GPU or without one.

On a GPU `KernelSignature.from_kernel_args` tells what the launch compiles for. It asks the driver,
so without a GPU the same rules are followed here, as cuda.tile 1.7 has them in `tile_kernel.cpp`:
of an array the unit strides, the extents of 1, and whether address, strides (in bytes) and extents
are divisible by 16; a kernel is specialized to these and to its constants, and to nothing else of
its arguments. `tests/evidence/test_on_gpu.py` holds the two against each other.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tile_agent_pytest.compile_cutile import Compiler
from tile_agent_pytest.launch_functions import Given, kernel_name
from tile_agent_pytest.launches import LaunchRecorder, Message, RecordedLaunch, tensors_of
from tile_agent_pytest.observed_launches import as_recorded

DIVISOR = 16
LARGEST_RANK = 5
"""Arrays of more dimensions are not specialized: TMA does not know them."""


def _known_values() -> Any:
    """Needs torch, as what pretends to be a GPU does."""
    return importlib.import_module("tile_agent_pytest.known_values")


@contextlib.contextmanager
def recording(recorder: LaunchRecorder, *, sm: int | None) -> Iterator[None]:
    """Record while the block lasts.

    Args:
        recorder: takes the launches.
        sm: without a GPU, the one to pretend to have; launches end once they are recorded. None:
            there is one.
    """
    compiler = Compiler.installed()
    tile = compiler.tile
    tune: Any = importlib.import_module("cuda.tile.tune")
    original = tile.launch

    def launch(stream: Any, grid: Any, kernel: Any, kernel_args: Any, **options: Any) -> Any:
        _record(recorder, compiler, kernel, grid, kernel_args, on_gpu=sm is None)
        if sm is None:
            return original(stream, grid, kernel, kernel_args, **options)
        _known_values().launched(kernel_args)
        return None

    def search(
        search_space: Any, stream: Any, grid_fn: Any, kernel: Any, args_fn: Any,
        hints_fn: Any = None, **_: Any,
    ) -> Any:  # fmt: skip
        """Every config is recorded; all are equally fast."""
        configs = list(search_space)
        for config in configs:
            chosen = kernel if isinstance(kernel, tile.kernel) else kernel(config)
            hinted = chosen.replace_hints(**hints_fn(config)) if hints_fn else chosen
            launch(stream, grid_fn(config), hinted, args_fn(config))
        found = [
            tune.Measurement(config=config, mean_us=1.0, num_samples=1, error_margin_us=0.0)
            for config in configs
        ]
        return SimpleNamespace(best=found[0], successes=found, failures=[])

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(tile, "launch", launch))
        if sm is not None:
            stack.enter_context(mock.patch.object(tune, "exhaustive_search", search))
        yield


def _record(
    recorder: LaunchRecorder,
    compiler: Compiler,
    kernel: Any,
    grid: Any,
    arguments: Any,
    *,
    on_gpu: bool,
) -> None:
    function = kernel._annotated_function.pyfunc
    if not recorder.covers(function):
        return
    if on_gpu:
        constraints: Sequence[Any] = compiler.from_arguments(kernel, arguments).parameters
    else:
        nodes = kernel._annotated_function.parameter_annotations
        rules = ConstraintRules(compiler)
        constraints = [rules.constraint(a, n) for a, n in zip(arguments, nodes, strict=True)]
    options = _options(kernel)

    def into(target: str, folder: Path) -> Message:
        return compiler.into(kernel, constraints, target, folder)

    names = kernel._annotated_function.pysig.parameters
    given = Given(grid, dict(zip(names, arguments, strict=True)), options)
    recorder.add(
        RecordedLaunch(
            key=(function, repr(constraints), repr(options)),
            kernel=kernel_name(function),
            arguments={n: _text(c) for n, c in zip(names, constraints, strict=True)},
            options=options,
            compile=into,
            grid=tuple(int(n) for n in grid),
            values=tuple(repr(a) for a in arguments if isinstance(a, bool | int | float)),
            tensors=tensors_of(given.arguments),
            observed=as_recorded(kernel_name(function), given),
        )
    )


class ConstraintRules:
    """Arguments of a launch -> constraints, as a launch on a GPU would find them."""

    def __init__(self, compiler: Compiler) -> None:
        self._tile = compiler.tile
        self._compilation = compiler.compilation

    def constraint(self, value: Any, node: Any) -> Any:
        """Of one argument.

        Args:
            value: what the host passes.
            node: how the parameter is annotated, in cuda.tile's own terms.
        """
        if isinstance(value, tuple):
            each = getattr(node, "each", None)
            nodes = getattr(node, "items", None) or [each if each is not None else node] * len(
                value
            )
            items = [self.constraint(v, n) for v, n in zip(value, nodes, strict=True)]
            return self._compilation.TupleConstraint(items)
        if isinstance(value, bool | int | float):
            if node.constant:
                return self._compilation.ConstantConstraint(value)
            return self._compilation.ScalarConstraint(self._scalar(value, node))
        if isinstance(value, list):
            elements = [self._array(v, node.list and node.list.element) for v in value]
            return self._compilation.ListConstraint(
                _common(elements), alias_groups=(), elements_may_alias=True
            )
        return self._array(value, node.array)

    def _scalar(self, value: float, node: Any) -> Any:
        if isinstance(value, bool):
            return self._tile.bool_
        if isinstance(value, float):
            return self._tile.float32
        return getattr(node.scalar, "dtype", None) or self._tile.int32

    def _array(self, tensor: Any, annotation: Any) -> Any:
        dtype = getattr(self._tile, _dtype_name(tensor))
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        size, ndim = tensor.element_size(), len(shape)
        known = ndim <= LARGEST_RANK
        index = getattr(annotation, "index_dtype", None) or self._tile.int32
        static = {d % ndim for d in getattr(annotation, "static_shape_dims", None) or ()}
        fixed = {d % ndim for d in getattr(annotation, "static_stride_dims", None) or ()}
        units = set() if fixed or not known else {d for d, s in enumerate(strides) if s == 1}
        return self._compilation.ArrayConstraint(
            dtype,
            ndim,
            index_dtype=index,
            stride_lower_bound_incl=0,
            alias_groups=(),
            may_alias_internally=not _disjoint(shape, strides),
            stride_constant=[s if d in fixed | units else None for d, s in enumerate(strides)],
            shape_constant=[n if d in static or n == 1 else None for d, n in enumerate(shape)],
            stride_divisible_by=[
                DIVISOR // size if known and d not in fixed and s * size % DIVISOR == 0 else 1
                for d, s in enumerate(strides)
            ],
            shape_divisible_by=[DIVISOR if known and n % DIVISOR == 0 else 1 for n in shape],
            base_addr_divisible_by=DIVISOR if tensor.data_ptr() % DIVISOR == 0 else 1,
        )


def _common(elements: list[Any]) -> Any:
    """What holds for every array of a list."""
    first = elements[0]
    if any(element != first for element in elements):
        raise TypeError("the arrays of a list differ in type, rank or alignment")
    return first


def _disjoint(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether no two elements share an address."""
    axes = sorted(zip(strides, shape, strict=True))
    if not axes:
        return True
    return axes[0][0] > 0 and all(s >= before * n for (before, n), (s, _) in pairwise(axes))


def _dtype_name(tensor: Any) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return "bool_" if name == "bool" else name


def _options(kernel: Any) -> Message:
    options = vars(kernel._compiler_options)
    return {name: str(v) for name, v in options.items() if v is not None and (name, v) != _LEVEL}


_LEVEL = ("opt_level", 3)


def _text(constraint: Any) -> str:
    """A constraint for a person."""
    if hasattr(constraint, "value"):
        return f"= {constraint.value}"
    if hasattr(constraint, "element"):
        return f"list of {_text(constraint.element)}"
    if hasattr(constraint, "items"):
        return f"({', '.join(_text(item) for item in constraint.items)})"
    if not hasattr(constraint, "ndim"):
        return str(constraint.dtype)
    said = [f"{constraint.ndim}-dimensional {constraint.dtype}"]
    if constraint.base_addr_divisible_by < DIVISOR:
        said.append("address not 16-byte aligned")
    units = [axis for axis, stride in enumerate(constraint.stride_constant) if stride == 1]
    if constraint.ndim and not units:
        said.append("no unit stride")
    strides = enumerate(constraint.stride_divisible_by)
    if odd := [str(axis) for axis, step in strides if step == 1 and axis not in units]:
        said.append(f"stride of axis {', '.join(odd)} not divisible by 16 bytes")
    if odd := [str(axis) for axis, n in enumerate(constraint.shape_divisible_by) if n < DIVISOR]:
        said.append(f"extent of axis {', '.join(odd)} not divisible by 16")
    return ", ".join(said)
