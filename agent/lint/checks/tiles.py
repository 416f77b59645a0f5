"""CT007 to CT011: shapes, indices and hints that the compiler refuses."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.dialect import ArgumentSlot
from agent.analysis.cutile.definite_assignment import Definite
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.kernel_file import KernelFile
from agent.analysis.cutile.values import (
    DEEP,
    has_run_time_extents,
    is_runtime,
    is_tile,
    late_names,
    runs_in,
    unmarked,
)
from agent.lint import api
from agent.lint.base import Found, Severity, check
from agent.lint.checks.names import COMPILER
from agent.syntax import Function, argument, assigned, descendants

SHAPED_METHODS = {"tiled_view": "tile_shape"}
"""Method of an array -> its parameter that is a tile shape."""
COUNTING = {
    f"{CT}extract": ArgumentSlot(2, "shape"),
    **{name: shape for name, (_, shape) in CUTILE.shape_queries.items()},
}
"""What takes the shape of a part, or of the tiles it counts -> where."""
PART_METHODS = {"extract": ArgumentSlot(1, "shape"), "reshape": ArgumentSlot(0, "shape")}
"""Method of a tile -> where it takes a shape."""
RESHAPES = frozenset({f"{CT}reshape", "reshape"})
"""A dimension of -1 is found from the others."""
LATENCY = range(1, 11)


def shapes(
    file: KernelFile,
) -> Iterator[tuple[Function, cst.Call, cst.BaseExpression]]:
    """The constant shapes in what cuTile compiles, each with its function and what takes it."""
    for function, call in file.compiled(cst.Call):
        shape = constant_shape_of(file, call)
        if shape is not None:
            yield function, call, shape


def constant_shape_of(file: KernelFile, call: cst.Call) -> cst.BaseExpression | None:
    """The shape that a call takes and the compiler has to know: of a tile, or of a part of one."""
    shape = shape_of(file, call)
    if shape is not None:
        return shape
    taken = COUNTING.get(file.called(call))
    if taken is None and of_tile(file, call):
        taken = PART_METHODS.get(method_of(file, call))
    return taken.of(call) if taken is not None else None


def of_tile(file: KernelFile, call: cst.Call) -> bool:
    """Whether what is called is surely a method of a tile."""
    return isinstance(call.func, cst.Attribute) and is_tile(file, call.func.value)


def method_of(file: KernelFile, call: cst.Call) -> str:
    """The name of the method that a call calls; empty when it calls a function of cuda.tile."""
    if not isinstance(call.func, cst.Attribute):
        return ""
    named = isinstance(call.func.value, cst.Name | cst.Attribute)  # and not what a call gives
    return "" if named and CUTILE.owns(file.called(call)) else call.func.attr.value


def shape_of(file: KernelFile, call: cst.Call) -> cst.BaseExpression | None:
    """The tile shape that a call takes, if it takes one."""
    taken = CUTILE.shapes.get(file.called(call))
    if taken is not None:
        return taken.of(call)
    method = method_of(file, call)
    return argument(call, 0, SHAPED_METHODS[method]) if method in SHAPED_METHODS else None


def elements(file: KernelFile, expression: cst.BaseExpression) -> tuple[cst.BaseExpression, ...]:
    """The elements of a tuple, or the one number that stands for it; none when unknown."""
    value = file.source.resolve(expression)
    if isinstance(value, cst.Tuple):
        if any(isinstance(e, cst.StarredElement) for e in value.elements):
            return ()
        return tuple(e.value for e in value.elements)
    return (expression,)


@check(
    "CT007",
    "not-a-power-of-two",
    Severity.ERROR,
    mend="take the next power of two, and mask or pad what reaches past the end: `ct.load` with "
    "`padding_mode=`, `ct.gather` with `mask=`",
    source=COMPILER,
    bad="""
@ct.kernel
def k(x, size: ct.Constant[int]):
    ct.store(x, (0,), ct.zeros((size,), ct.float32))

def run(x):
    ct.launch(torch.cuda.current_stream(), (1,), k, (x, 100))  # <-
""",
    good="""
@ct.kernel
def k(x, size: ct.Constant[int]):
    ct.store(x, (0,), ct.zeros((size,), ct.float32))

def run(x):
    ct.launch(torch.cuda.current_stream(), (1,), k, (x, 128))
""",
)
def not_a_power_of_two(file: KernelFile) -> Iterator[Found]:
    """Every dimension of a tile is a power of two."""
    dimensions: dict[Function, set[str]] = {}
    for function, call, shape in shapes(file):
        inferred = bool(RESHAPES & {file.called(call), method_of(file, call)})
        for element in elements(file, shape):
            if isinstance(element, cst.Name):
                dimensions.setdefault(function, set()).add(element.value)
            size = file.integer(element)
            if size is not None and not _is_power_of_two(size) and not (inferred and size == -1):
                yield element, f"a tile dimension of {size} is no power of two"
    for kernel in file.kernels:
        body = kernel.function.node.body
        changed = {n.value for t, _ in assigned(body) for n in descendants(t, cst.Name)}
        reached = CUTILE.reached(file.source, kernel)
        own = set[str]().union(*(dimensions.get(function, ()) for function in reached))
        sizes = {name for name in kernel.constants if name in own and name not in changed}
        for launch in kernel.launches:
            for name in sizes & launch.arguments.keys():
                size = file.integer(launch.arguments[name])
                if size is not None and not _is_power_of_two(size):
                    message = (
                        f"`{name}` of {kernel.name} is a tile dimension; {size} is no power of two"
                    )
                    yield launch.arguments[name], message


def _is_power_of_two(size: int) -> bool:
    return size > 0 and not size & (size - 1)


@check(
    "CT008",
    "run-time-shape",
    Severity.ERROR,
    mend="make it a constant: a parameter annotated `ct.Constant[int]`",
    source=f"TileGym's cuTile API reference, rule 17; {COMPILER}",
    bad="""
@ct.kernel
def k(x, size, n):
    ct.store(x, (0,), ct.load(x, (0,), (size,)))  # <-
    rows = n * 2
    ct.store(x, (0,), ct.full((rows,), 0.0, ct.float32))  # <-
    ct.store(x, (0,), ct.full(x.shape, 0.0, ct.float32))  # <-
""",
    good="""
@ct.kernel
def k(x, size: ct.Constant[int], n: ct.Constant[int]):
    ct.store(x, (0,), ct.load(x, (0,), (size,)))
    rows = n * 2
    ct.store(x, (0,), ct.full((rows,), 0.0, ct.float32))
    ct.store(x, (0,), ct.full((size,), 0.0, ct.float32))
""",
)
def run_time_shape(file: KernelFile) -> Iterator[Found]:
    """The shape of a tile is known when the kernel is compiled. A parameter is a value of the
    running kernel unless its annotation says that it is a constant; a default does not. So are the
    extents of an array; those of a tile are constants."""
    for function, call, shape in shapes(file):
        if not runs_in(file, function, call):
            continue
        if has_run_time_extents(file, function, shape):
            text = file.code(shape)
            yield shape, f"`{text}` as a tile's shape is known only when the kernel runs"
            continue
        for element in elements(file, shape):
            text = file.code(element)
            kernel = unmarked(file, element)
            if kernel is not None:
                message = f"is a parameter of {kernel.name} that is not marked `ct.Constant`"
                yield element, f"`{text}` in a tile's shape {message}"
            elif is_runtime(file, function, element, late_names(file, function)):
                yield element, f"`{text}` in a tile's shape is known only when the kernel runs"


@check(
    "CT009",
    "tile-as-index",
    Severity.ERROR,
    mend="use `ct.gather` and `ct.scatter`, which take offsets of elements, or give `ct.load` the "
    "index of a tile: `(ct.bid(0),)`",
    source=f"TileGym's cuTile API reference, rule 2; {COMPILER}",
    bad="""
@ct.kernel
def k(x, y):
    offsets = ct.bid(0) * 128 + ct.arange(128, dtype=ct.int32)
    ct.store(y, (ct.bid(0),), ct.load(x, (offsets,), (128,)))  # <-
""",
    good="""
@ct.kernel
def k(x, y):
    offsets = ct.bid(0) * 128 + ct.arange(128, dtype=ct.int32)
    ct.scatter(y, offsets, ct.gather(x, offsets))
""",
)
def tile_as_index(file: KernelFile) -> Iterator[Found]:
    """The index of `ct.load` and `ct.store` is one integer a dimension, not a tile of offsets."""
    for _, call in file.compiled_calls((f"{CT}load", f"{CT}store")):
        index = argument(call, 1, "index")
        for element in elements(file, index) if index is not None else ():
            if _has_iota(file, element):
                yield element, f"`{file.code(element)}` is a tile of offsets"


def _has_iota(file: KernelFile, expression: cst.BaseExpression, deep: int = 0) -> bool:
    if deep > DEEP:
        return False
    match file.source.resolve(expression):
        case cst.BinaryOperation(left=left, right=right):
            return any(_has_iota(file, side, deep + 1) for side in (left, right))
        case cst.Call() as call:
            return file.called(call) in CUTILE.iotas
    return False


@check(
    "CT010",
    "maybe-undefined",
    Severity.ERROR,
    mend="give it a value before the branch or loop",
    source=f"TileGym's cuTile API reference, rule 9; {COMPILER}",
    bad="""
@ct.kernel
def k(x, y):
    i = ct.bid(0)
    if i > 0:
        t = ct.load(x, (i,), (128,))
    ct.store(y, (i,), t)  # <-
""",
    good="""
@ct.kernel
def k(x, y):
    i = ct.bid(0)
    t = ct.zeros((128,), ct.float32)
    if i > 0:
        t = ct.load(x, (i,), (128,))
    ct.store(y, (i,), t)
""",
)
def maybe_undefined(file: KernelFile) -> Iterator[Found]:
    """A variable is defined on every way to its use. A loop may run zero times; two branches with
    the same condition are not matched up. Branches on constants do not count: the compiler
    decides them."""
    for function in file.device:
        for name, use in Definite(file, function).run().items():
            yield use, f"`{name}` is not defined on every way to this line of {function.name}"


@check(
    "CT011",
    "hint-out-of-range",
    Severity.ERROR,
    mend="num_ctas: 1, 2, 4, 8 or 16; occupancy: 1 to 32; opt_level: 0 to 3; num_worker_warps: "
    "1, 2, 4, 8, 16 or 32; latency: 1 to 10",
    source=f"cuda-tile 1.7's documentation of `kernel` and `load`; {COMPILER}",
    bad="""
@ct.kernel(num_warps=4)  # <-
def k(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (128,), latency=12))  # <-
""",
    good="""
@ct.kernel(num_worker_warps=4)
def k(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (128,), latency=10))
""",
)
def hint_out_of_range(file: KernelFile) -> Iterator[Found]:
    """Hints of a kernel and of its loads and stores have ranges."""
    for call in file.source.calls:
        is_kernel = file.called(call) == f"{CT}kernel"
        is_replacement = (
            isinstance(call.func, cst.Attribute) and call.func.attr.value == "replace_hints"
        )
        for arg in call.args if is_kernel or is_replacement else ():
            hint = arg.keyword.value if arg.keyword is not None else None
            value = file.integer(arg.value)
            if hint is not None and hint not in api.HINTS:
                yield arg, f"a kernel has no hint `{hint}`: it has {', '.join(api.HINTS)}"
            elif hint is not None and value is not None and not _in_range(hint, value):
                yield arg, f"{hint}={value} is out of range"
    for _, call in file.compiled(cst.Call):
        latency = argument(call, 99, "latency") if CUTILE.owns(file.called(call)) else None
        value = file.integer(latency) if latency is not None else None
        if latency is not None and value is not None and value not in LATENCY:
            yield latency, f"latency={value} is out of range"


def _in_range(hint: str, value: int) -> bool:
    match hint:
        case "occupancy":
            return 1 <= value <= 32
        case "opt_level":
            return 0 <= value <= 3
        case "num_ctas":
            return value <= 16 and _is_power_of_two(value)
    return value <= 32 and _is_power_of_two(value)
