"""CT203, CT204 and CT206: what a block holds past the end of its axis, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.reaching_definitions import definition, traced
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.kernel_file import KernelFile
from agent.analysis.cutile.values import DEEP, extents_of, is_tile
from agent.lint.base import Found, Severity, check
from agent.lint.checks.results import alone_in_shapes
from agent.lint.checks.tiles import elements, shape_of
from agent.syntax import Function, argument, keyword

REDUCTIONS = frozenset(CUTILE.reductions)
SPOILED_BY_ZERO = frozenset(
    f"{CT}{name}" for name in ("argmax", "argmin", "cumprod", "max", "min", "prod")
)
"""Reductions of which a zero may be the result."""
RESHAPED = tuple(f"{CT}{name}" for name in ("astype", "permute", "reshape", "transpose"))


@check(
    "CT203",
    "mean-over-block",
    Severity.NOTE,
    mend="divide by the length of the axis, `x.shape[axis]` or a parameter with it",
    source="TileGym's cuTile API reference, rule 14",
    bad="""
@ct.kernel
def k(x, y, size: ct.Constant[int]):
    t = ct.load(x, (0,), (size,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (0,), ct.sum(t) / size)  # <-
    ct.store(y, (1,), ct.sum(t) * (1.0 / t.shape[0]))  # <-
""",
    good="""
@ct.kernel
def k(x, y, size: ct.Constant[int]):
    t = ct.load(x, (0,), (size,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (0,), ct.sum(t) / x.shape[0])
    ct.store(y, (1,), ct.sum(t) * (1.0 / x.shape[0]))
""",
)
def mean_over_block(file: KernelFile) -> Iterator[Found]:
    """A mean divides by the length of the axis. The size of the block is that only when the block
    is no longer than the axis."""
    for function, node, dividend, divisor in _quotients(file):
        divided = file.source.resolve(dividend)
        is_sum = isinstance(divided, cst.Call) and file.called(divided) == f"{CT}sum"
        if is_sum and _is_block(file, function, divisor):
            yield node, f"`{file.code(node)}` divides a sum by the size of the block"


def _quotients(
    file: KernelFile,
) -> Iterator[tuple[Function, cst.CSTNode, cst.BaseExpression, cst.BaseExpression]]:
    """The divisions, each with what is divided and by what: products with a reciprocal too."""
    for function, node in file.compiled(cst.BinaryOperation):
        if isinstance(node.operator, cst.Divide):
            yield function, node, node.left, node.right
        elif isinstance(node.operator, cst.Multiply):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                match file.source.resolve(other):
                    case cst.BinaryOperation(operator=cst.Divide(), left=above, right=below):
                        if file.source.code(above) in ("1", "1.0"):
                            yield function, node, one, below
    for function, call in file.compiled_calls((f"{CT}truediv",)):
        dividend, divisor = argument(call, 0, "x"), argument(call, 1, "y")
        if dividend is not None and divisor is not None:
            yield function, call, dividend, divisor


def _is_block(file: KernelFile, function: Function, divisor: cst.BaseExpression) -> bool:
    """Whether a number is the size of a tile: `size`, or `t.shape[0]`."""
    if isinstance(divisor, cst.Name) and divisor.value in alone_in_shapes(file, function):
        return True
    match file.source.resolve(divisor):
        case cst.Subscript(value=extents):
            tile = extents_of(file, extents)
            return tile is not None and is_tile(file, tile)
        case cst.Call(args=[cst.Arg(value=inner)]) as call:
            return file.called(call) == "builtins.float" and _is_block(file, function, inner)
    return False


@check(
    "CT204",
    "undetermined-padding",
    Severity.NOTE,
    mend="give `padding_mode=ct.PaddingMode.ZERO` for sums and products, `NEG_INF` for a maximum, "
    "unless the tile divides the axis at every call",
    source="cuda-tile 1.7's documentation of `load`: the default padding is undetermined",
    bad="""
@ct.kernel
def k(x, y):
    t = ct.load(x, (ct.bid(0), 0), (1, 128))
    ct.store(y, (ct.bid(0),), ct.sum(t, axis=1))  # <-
""",
    good="""
@ct.kernel
def k(x, y):
    t = ct.load(x, (ct.bid(0), 0), (1, 128), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (ct.bid(0),), ct.sum(t, axis=1))
""",
)
def undetermined_padding(file: KernelFile) -> Iterator[Found]:
    """What a load gives past the end of an array is undetermined, unless it is told. Reduced or
    multiplied along that axis, it reaches the result."""
    for _, call in file.compiled_calls({*REDUCTIONS, *CUTILE.dots}):
        operands = [arg.value for arg in call.args[:2] if arg.keyword is None]
        for operand in operands if file.called(call) in CUTILE.dots else operands[:1]:
            load = next(_undetermined(file, operand), None)
            if load is not None:
                array = file.code(load.args[0].value) if load.args else "an array"
                yield call, f"past the end of {array}, `{file.code(operand)}` is undetermined"
                break


def _undetermined(
    file: KernelFile, operand: cst.BaseExpression, deep: int = 0
) -> Iterator[cst.Call]:
    """The loads without a padding that a tile comes from, element by element: a weight of zero
    makes no zero of NaN. A helper's parameter comes from what its callers give."""
    if deep > DEEP:
        return
    value = _reshaped(file, operand)
    match value:
        case cst.BinaryOperation(operator=cst.Multiply() | cst.Add() | cst.Subtract()):
            for part in (value.left, value.right):
                yield from _undetermined(file, part, deep + 1)
        case cst.UnaryOperation(expression=inner):
            yield from _undetermined(file, inner, deep + 1)
        case cst.Call(args=args) if file.called(value) in {*CUTILE.arithmetic} - {f"{CT}where"}:
            for arg in args:
                if arg.keyword is None:
                    yield from _undetermined(file, arg.value, deep + 1)
        case cst.Name():
            for given in _given(file, value):
                yield from _undetermined(file, given, deep + 1)
        case cst.Call() if file.called(value) == f"{CT}load":
            shape = shape_of(file, value)
            sizes = [file.integer(e) for e in elements(file, shape)] if shape is not None else []
            if any(size != 1 for size in sizes) and keyword(value, "padding_mode") is None:
                yield value


def _given(file: KernelFile, name: cst.Name) -> Iterator[cst.BaseExpression]:
    """What the callers of a helper give for one of its parameters, where it is unchanged."""
    found = definition(file.source, name.value, name)
    helper = file.source.enclosing(name)
    if found is None or helper is None or not isinstance(found.node, cst.Param):
        return
    place = next((n for n, p in enumerate(helper.parameters) if p is found.node), None)
    for _, call in file.compiled(cst.Call):
        if place is not None and file.source.function_of(call.func) is helper:
            given = argument(call, place, name.value)
            if given is not None:
                yield given


def _origin(file: KernelFile, operand: cst.BaseExpression) -> cst.Call | None:
    """The call that a tile comes from, through casts and changes of its shape."""
    value = _reshaped(file, operand)
    return value if isinstance(value, cst.Call) else None


def _reshaped(file: KernelFile, operand: cst.BaseExpression) -> cst.BaseExpression:
    """What a tile comes from, through casts and changes of its shape."""
    value = traced(file.source, operand)
    if not isinstance(value, cst.Call):
        return value
    if file.called(value) in RESHAPED and value.args:
        return _reshaped(file, value.args[0].value)
    if isinstance(value.func, cst.Attribute) and value.func.attr.value == "astype":
        return _reshaped(file, value.func.value)
    return value


@check(
    "CT206",
    "padded-gather",
    Severity.NOTE,
    mend="give `mask=offsets < n`, with the length of the row, and a `padding_value=` that changes "
    "no result: 0 for a sum, 1 for a product, `-math.inf` for a maximum; or `ct.where` afterwards. "
    "A block that is never longer than the row needs neither",
    source="TileGym's cuTile API reference, rule 14; cuda-tile 1.7's documentation of `gather`: "
    "what is out of bounds of the array, and nothing else, is `padding_value`, zero by default",
    bad="""
@ct.kernel
def k(x, y, n, size: ct.Constant[int]):
    offsets = ct.arange(size, dtype=ct.int32)
    row = ct.gather(x, ct.bid(0) * n + offsets)
    ct.store(y, (ct.bid(0), 0), ct.sum(row))  # <-
    column = ct.gather(y, (offsets, 1))
    ct.store(y, (ct.bid(0), 2), ct.max(column))  # <-
""",
    good="""
@ct.kernel
def k(x, y, n, size: ct.Constant[int]):
    offsets = ct.arange(size, dtype=ct.int32)
    row = ct.gather(x, ct.bid(0) * n + offsets, mask=offsets < n)
    ct.store(y, (ct.bid(0), 0), ct.sum(row))
    column = ct.gather(y, (offsets, 1), padding_value=-math.inf)
    ct.store(y, (ct.bid(0), 2), ct.max(column))
""",
)
def padded_gather(file: KernelFile) -> Iterator[Found]:
    """A gather checks the bounds of the array, and gives zero beyond them and where its mask is
    false. That is right for a sum, and may be the maximum or makes a product zero. In an array of
    one dimension that holds rows, a block longer than a row has the next row's elements, which is
    wrong for all of them."""
    for function, call in file.compiled_calls(REDUCTIONS):
        operand = next((arg.value for arg in call.args[:1] if arg.keyword is None), None)
        gather = _origin(file, operand) if operand is not None else None
        if operand is None or gather is None or file.called(gather) != f"{CT}gather":
            continue
        index = argument(gather, 1, "indices")
        if index is None:
            continue
        text, array = file.code(operand), file.code(gather.args[0].value)
        spoiled = file.called(call) in SPOILED_BY_ZERO and _pads_with_zero(file, gather, index)
        if keyword(gather, "mask") is not None:
            if spoiled:
                yield call, f"where its mask is false, `{text}` is zero"
        elif _runs_into_next_row(file, function, index):
            yield call, f"past the end of its row, `{text}` holds elements of `{array}`'s next one"
        elif spoiled:
            yield call, f"past the end of `{array}`, `{text}` is zero"


def _pads_with_zero(file: KernelFile, gather: cst.Call, index: cst.BaseExpression) -> bool:
    checked = keyword(gather, "check_bounds")
    if keyword(gather, "padding_value") is not None or any(arg.star for arg in gather.args):
        return False
    if checked is not None and file.code(checked) != "True":
        return False
    return any(_iota(file, element) is not None for element in elements(file, index))


def _runs_into_next_row(file: KernelFile, function: Function, index: cst.BaseExpression) -> bool:
    """Whether an index is a row's number times its length, and as many elements as a block has.

    What else is added, but for whole blocks, may keep it in its row.
    """
    (only, *others) = elements(file, index) or (index,)
    iota = _iota(file, only) if not others else None
    size = argument(iota, 0, "size") if iota is not None else None
    if size is None or file.integer(size) == 1:
        return False
    rows = False
    for term in _terms(file, only):
        if term is iota:
            continue
        if not isinstance(term, cst.BinaryOperation) or not isinstance(term.operator, cst.Multiply):
            return False
        sides = (term.left, term.right)
        if not any(_same(file, function, side, size) for side in sides):
            rows = rows or any(_is_length(file, function, side) for side in sides)
    return rows


def _iota(file: KernelFile, index: cst.BaseExpression) -> cst.Call | None:
    """The numbers from zero on that an index adds to where it begins."""
    for term in _terms(file, index):
        if isinstance(term, cst.Call) and file.called(term) in CUTILE.iotas:
            return term
    return None


def _terms(
    file: KernelFile, expression: cst.BaseExpression, deep: int = 0
) -> Iterator[cst.BaseExpression]:
    """What is added up, behind its names."""
    value = file.source.resolve(expression)
    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add):
        if deep <= DEEP:
            yield from _terms(file, value.left, deep + 1)
            yield from _terms(file, value.right, deep + 1)
    else:
        yield value


def _is_length(file: KernelFile, function: Function, side: cst.BaseExpression) -> bool:
    """Whether a factor is a parameter or an extent of an array, and so maybe a row's length."""
    value = file.source.resolve(side)
    if isinstance(value, cst.Name):
        return value.value in {p.name.value for p in function.parameters}
    return isinstance(value, cst.Subscript) and extents_of(file, value.value) is not None


def _same(
    file: KernelFile, function: Function, one: cst.BaseExpression, other: cst.BaseExpression
) -> bool:
    """Whether two numbers are the same in the kernel, or at every launch of the file."""
    names = [file.source.code(file.source.resolve(number)) for number in (one, other)]
    kernel = next((k for k in file.kernels if k.function is function), None)
    launches = kernel.launches if kernel is not None else ()
    given = [[launch.arguments.get(name) for name in names] for launch in launches]
    return names[0] == names[1] or (
        bool(given)
        and all(
            None not in pair and len({file.source.code(v) for v in pair if v is not None}) == 1
            for pair in given
        )
    )
