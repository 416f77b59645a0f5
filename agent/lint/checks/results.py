"""CT201, CT202 and CT205: what compiles and may give wrong results."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.kernel_file import KernelFile
from agent.lint.base import Found, Severity, check
from agent.lint.checks.tiles import elements, shape_of
from agent.syntax import Function, argument, descendants, keyword

WRITES = (f"{CT}scatter", *(name for name in CUTILE.stores if "atomic" in name))
INEXACT = frozenset({f"{CT}RoundingMode.APPROX", f"{CT}RoundingMode.FULL"})


@check(
    "CT201",
    "element-offset",
    Severity.ERROR,
    mend="give the number of the tile, `(ct.bid(0),)`: cuTile multiplies it by the tile's shape",
    source="TileGym's cuTile API reference, rule 2; compiles on cuda-tile 1.7 and reads elsewhere",
    bad="""
@ct.kernel
def k(x, y, size: ct.Constant[int]):
    start = ct.bid(0) * size
    t = ct.load(x, (start,), (size,))  # <-
    ct.store(y, (start,), t)  # <-
""",
    good="""
@ct.kernel
def k(x, y, size: ct.Constant[int]):
    t = ct.load(x, (ct.bid(0),), (size,))
    ct.store(y, (ct.bid(0),), t)
""",
)
def element_offset(file: KernelFile) -> Iterator[Found]:
    """The index of a load or store counts tiles, not elements. `bid * size` with a tile of `size`
    skips all but every size-th tile, and past the end of the array loads padding."""
    for function, call in file.compiled_calls((f"{CT}load", f"{CT}store")):
        index = argument(call, 1, "index")
        if index is None:
            continue
        indices = elements(file, index)
        shape = shape_of(file, call)
        sizes: tuple[cst.BaseExpression | None, ...] = (
            elements(file, shape) if shape is not None else (None,) * len(indices)
        )
        for element, size in zip(indices, sizes, strict=False):
            if (factor := _tile_size(file, function, element, size)) is not None:
                text = file.code(element)
                yield (
                    element,
                    f"`{text}` counts elements: it is a multiple of the tile's `{factor}`",
                )


def _tile_size(
    file: KernelFile,
    function: Function,
    index: cst.BaseExpression,
    size: cst.BaseExpression | None,
) -> str | None:
    """The tile size that an index is a multiple of; `size` is None when any of the function's may
    be meant."""
    product = file.source.resolve(index)
    if not isinstance(product, cst.BinaryOperation) or not isinstance(
        product.operator, cst.Multiply
    ):
        return None
    if size is not None:
        names = {size.value} if isinstance(size, cst.Name) else set()
    else:
        names = alone_in_shapes(file, function)
    sides = [s.value for s in (product.left, product.right) if isinstance(s, cst.Name)]
    return next((name for name in sides if name in names), None)


def alone_in_shapes(file: KernelFile, function: Function) -> set[str]:
    return {
        element.value
        for call in file.inside(function, cst.Call)
        if (shape := shape_of(file, call)) is not None
        for element in elements(file, shape)
        if isinstance(element, cst.Name)
    }


@check(
    "CT202",
    "unchecked-write",
    Severity.NOTE,
    mend="leave `check_bounds` at its default, or give `mask=`, unless the block divides the axis "
    "at every call",
    source="TileGym's cuTile API reference, rules 14 and 15; cuda-tile 1.7's documentation of "
    "`scatter`: an access out of bounds is then undefined",
    bad="""
@ct.kernel
def k(x, y):
    offsets = ct.bid(0) * 128 + ct.arange(128, dtype=ct.int32)
    ct.scatter(y, offsets, ct.gather(x, offsets), check_bounds=False)  # <-
""",
    good="""
@ct.kernel
def k(x, y):
    offsets = ct.bid(0) * 128 + ct.arange(128, dtype=ct.int32)
    ct.scatter(y, offsets, ct.gather(x, offsets))
""",
)
def unchecked_write(file: KernelFile) -> Iterator[Found]:
    """`ct.scatter` and the atomics drop what is out of bounds, unless told not to check: then a
    block that reaches past the end writes into other memory."""
    for _, call in file.compiled_calls(WRITES):
        checked = keyword(call, "check_bounds")
        if (
            isinstance(checked, cst.Name)
            and checked.value == "False"
            and keyword(call, "mask") is None
        ):
            yield call, f"`{file.code(call)}` writes without a check or mask"


@check(
    "CT205",
    "inexact-division",
    Severity.NOTE,
    mend="use `/`, which rounds to the nearest as IEEE 754 does",
    source="TileGym's autotuning guide, pitfall 6, which asks for `RoundingMode.FULL`. With "
    "cuda-tile 1.7 and tileiras 13.4 it is the other way round: the code of `/` for sm_90 checks "
    "its operands and has an exact slow path, that of FULL has neither",
    bad="""
@ct.kernel
def k(x, scale, y):
    t = ct.truediv(  # <-
        ct.load(x, (0,), (128,)), ct.load(scale, (0,), (128,)), rounding_mode=ct.RoundingMode.FULL
    )
    ct.store(y, (0,), t.astype(ct.float8_e4m3fn))
""",
    good="""
@ct.kernel
def k(x, scale, y):
    t = ct.load(x, (0,), (128,)) / ct.load(scale, (0,), (128,))
    ct.store(y, (0,), t.astype(ct.float8_e4m3fn))
""",
)
def inexact_division(file: KernelFile) -> Iterator[Found]:
    """A quotient that is rounded to eight bits afterwards has to be exact before: an error in its
    last place moves a value at the edge of a step to the next one."""
    for function in file.device:
        names = (file.source.name(node) or "" for node in descendants(function.node, cst.Attribute))
        if not any(name.startswith(f"{CT}float8") for name in names):
            continue
        for call in file.inside(function, cst.Call):
            if file.called(call) != f"{CT}truediv":
                continue
            mode = keyword(call, "rounding_mode")
            if mode is not None and file.source.name(mode) in INEXACT:
                yield (
                    call,
                    f"{function.name} rounds to 8 bits and divides with `{file.code(mode)}`",
                )
