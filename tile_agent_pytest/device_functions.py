"""The plain functions that cuTile kernels call: code of the device, which is no one's to replace.

`@ct.kernel` needs no decorator on the helpers of a kernel. They are compiled from what the names in
their text stand for at that moment: a function put there to watch calls would be compiled, too.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator


def device_functions(modules: Iterable[types.ModuleType]) -> set[types.FunctionType]:
    """What the kernels among the modules' attributes call, and what that calls in turn.

    Followed are functions of the same top-level package; more names count than are called, as an
    attribute may be called like a function beside it.
    """
    found: set[types.FunctionType] = set()
    for module in modules:
        for value in list(vars(module).values()):
            kernel = python_function(value)
            waiting = [*_named_in(kernel)] if kernel is not None else []
            while waiting:
                function = waiting.pop()
                if function not in found and _top(function) == _top(kernel):
                    found.add(function)
                    waiting += _named_in(function)
    return found


def python_function(value: object) -> types.FunctionType | None:
    """The function below a `@ct.kernel`; None where the value is no such kernel."""
    if not type(value).__module__.startswith("cuda.tile"):
        return None  # an attribute of what is no kernel may load a library, or raise
    function = getattr(getattr(value, "_annotated_function", None), "pyfunc", None)
    return function if isinstance(function, types.FunctionType) else None


def _named_in(function: types.FunctionType) -> Iterator[types.FunctionType]:
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    held = [function.__globals__.get(name) for name in names]
    held += [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    for module in [value for value in held if isinstance(value, types.ModuleType)]:
        held += [vars(module).get(name) for name in names]
    yield from (value for value in held if isinstance(value, types.FunctionType))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # of a function that is defined later
        return False
    return True


def _top(function: types.FunctionType | None) -> str:
    return str(getattr(function, "__module__", "")).partition(".")[0]
