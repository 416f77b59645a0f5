"""cuTile kernels without a GPU, for correctness only: blocks run one after another on the CPU.

    with TileCpu():
        y = softmax(torch.randn(4, 100, device="cuda"))

Nothing of the user's code changes: `ct.launch` and the search of `ct.tune` are replaced while the
context is open, and device "cuda" is CPU memory.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack
from types import ModuleType
from typing import Any
from weakref import ref

from tile_agent_pytest.tile_cpu import hook
from tile_agent_pytest.tile_cpu.errors import (
    TileCpuError,
    UndefinedAccess,
    UninitializedRead,
    UnsupportedOperation,
    UnsupportedVersion,
)
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.launch import OPERATIONS, launch

__all__ = [
    "OPERATIONS",
    "TileCpu",
    "TileCpuError",
    "UndefinedAccess",
    "UninitializedRead",
    "UnsupportedOperation",
    "UnsupportedVersion",
]

_launch_on_gpu = ct.launch
_search_on_gpu = ct.tune.exhaustive_search
_open: list[TileCpu] = []


class TileCpu:
    """While open, `ct.launch` runs kernels on the CPU. The innermost one counts.

    `seed` decides the order of the blocks, anew for each launch: a result that changes with it
    depends on the order. `poison`: fill `torch.empty` with values that tell, and report kernels
    that read them. `map_cuda`: treat device "cuda" as CPU memory and answer for `torch.cuda`, as a
    GPU of `compute_capability` with `sm_count` multiprocessors.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        poison: bool = True,
        map_cuda: bool = True,
        compute_capability: tuple[int, int] = (9, 0),
        sm_count: int = 4,
    ) -> None:
        hook.check()
        self.launched: list[str] = []
        """Module and name of the kernels that ran to their end, in order."""
        self._seed, self._poison, self._map_cuda = seed, poison, map_cuda
        self._capability, self._sm_count = compute_capability, sm_count
        self._stack = ExitStack()

    def __enter__(self) -> TileCpu:
        from tile_agent_pytest.tile_cpu.cuda_as_cpu import CudaAsCpu

        with ExitStack() as stack:
            if self._map_cuda:
                stack.enter_context(
                    CudaAsCpu(
                        poisons=self._poison,
                        capability=self._capability,
                        sm_count=self._sm_count,
                    )
                )
            stack.callback(_replace({_launch_on_gpu: _launch, _search_on_gpu: _search}))
            _open.append(self)
            stack.callback(_open.remove, self)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *problem: Any) -> None:
        self._stack.__exit__(*problem)

    def launch(self, grid: Any, kernel: Any, arguments: Any, *, tunes: bool = False) -> None:
        """What `ct.launch` does while this is open.

        Whoever `tunes` makes no use of the results, and may measure on arrays that nobody wrote.
        """
        launch(
            kernel,
            grid,
            tuple(arguments),
            seed=self._seed + len(self.launched),
            report_unwritten=self._poison and not tunes,
        )
        function = hook.python_function(kernel)
        self.launched.append(f"{function.__module__}.{function.__qualname__}")


def _replace(replacements: Mapping[Any, Any]) -> Callable[[], None]:
    """Put functions in the place of others wherever a module holds one; returns what takes that
    back."""
    wanted = {id(original) for original in replacements}
    places = [
        (namespace, name, value)
        for namespace in _holders(wanted | {id(other) for other in replacements.values()})
        if namespace is not globals()
        for name, value in list(namespace.items())
        if id(value) in wanted
    ]
    for namespace, name, original in places:
        namespace[name] = replacements[original]

    def undo() -> None:
        for namespace, name, original in places:
            namespace[name] = original

    return undo


def _holders(wanted: Set[int]) -> Iterator[dict[str, Any]]:
    """The namespaces of modules with one of these objects, by their ids.

    There are hundreds of thousands of names, and a test may open this a dozen times: what is
    installed, and held none of them, is looked at again where it has more names, or fewer.
    """
    for key, module in list(sys.modules.items()):
        looked_at = _holding_none.get(key)
        if looked_at is not None and looked_at[0]() is module:
            if looked_at[1] == len(vars(module)):
                continue
            del _holding_none[key]
        namespace = getattr(module, "__dict__", None)
        if not isinstance(namespace, dict):
            continue
        file = getattr(module, "__file__", None)
        stays = type(module) is ModuleType and isinstance(file, str) and file.startswith(_ROOTS)
        if not wanted.isdisjoint(map(id, list(namespace.values()))):
            yield namespace
        elif stays:
            _holding_none[key] = ref(module), len(namespace)


_ROOTS = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")})
"""Where what is installed lies."""
_holding_none: dict[str, tuple[ref[ModuleType], int]] = {}
"""Modules by their names, and how many names they had when they were looked at."""


def _launch(stream: Any, grid: Any, kernel: Any, kernel_args: Any, /, **options: Any) -> None:
    if not _open:
        # A module that was imported meanwhile still holds this function.
        _launch_on_gpu(stream, grid, kernel, kernel_args, **options)
        return
    if stream is None:
        raise TypeError("Stream is required")
    _open[-1].launch(grid, kernel, kernel_args)


def _search(
    search_space: Any,
    stream: Any,
    grid_fn: Callable[[Any], Any],
    kernel: Any,
    args_fn: Callable[[Any], Any],
    hints_fn: Callable[[Any], dict[str, Any]] | None = None,
    **options: Any,
) -> Any:
    """Take the first config whose kernel runs. Nothing is timed: the times are zero."""
    if not _open:
        return _search_on_gpu(search_space, stream, grid_fn, kernel, args_fn, hints_fn, **options)
    failures = []
    for config in search_space:
        chosen = kernel if isinstance(kernel, ct.kernel) else kernel(config)
        if hints_fn is not None:
            chosen = chosen.replace_hints(**hints_fn(config))
        try:
            _open[-1].launch(grid_fn(config), chosen, args_fn(config), tunes=True)
        except Exception as problem:
            failures.append((config, type(problem), str(problem)))
            continue
        best = ct.tune.Measurement(config=config, mean_us=0.0, num_samples=0, error_margin_us=0.0)
        return ct.tune.TuningResult(best=best, successes=(best,), failures=tuple(failures))
    if not failures:
        raise ValueError("Search space is empty.")
    config, kind, message = failures[0]
    raise ValueError(f"No valid config found. Config: {config}: {kind.__name__}: {message}")
