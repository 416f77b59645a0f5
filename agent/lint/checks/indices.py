"""CT012 and CT013: indices of another rank than their tile, floats where integers are needed."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.dialect import ArgumentSlot
from agent.analysis.cutile.dialect import ATOMICS, CT, CUTILE
from agent.analysis.cutile.kernel_file import KernelFile
from agent.analysis.cutile.values import DEEP
from agent.lint.base import Found, Severity, check
from agent.lint.checks.names import COMPILER
from agent.lint.checks.tiles import constant_shape_of, elements, method_of, of_tile, shape_of
from agent.syntax import argument, keyword

INDEX = ArgumentSlot(1, "index")
INDICES = ArgumentSlot(1, "indices")
INDEXED = {
    f"{CT}load": INDEX,
    f"{CT}store": INDEX,
    f"{CT}extract": INDEX,
    **dict.fromkeys((f"{CT}gather", f"{CT}scatter", f"{CT}atomic_cas", *ATOMICS), INDICES),
}
"""Function -> its index."""
VIEW = "tiled_view"
VIEW_METHODS = frozenset({"load", "store"})
"""Methods of a tiled view whose first argument is an index."""
SAME_RANK = frozenset(
    f"{CT}{name}"
    for name in (
        "abs", "astype", "ceil", "cos", "cosh", "exp", "exp2", "floor", "log", "log2", "negative",
        "permute", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "transpose",
    )
)  # fmt: skip
"""What gives a tile of as many dimensions as its first operand has."""
SAME_RANK_METHODS = frozenset({"astype", "permute", "transpose"})
REDUCES = frozenset(f"{CT}{name}" for name in ("argmax", "argmin", "max", "min", "prod", "sum"))
SCALARS = frozenset(f"{CT}{name}" for name in ("bid", "num_blocks", "num_tiles", "cdiv"))
"""What gives one number."""
FLOATING = frozenset({f"{CT}{name}" for name in ("ceil", "floor", "maximum", "minimum", "negative")}
                     | {"builtins.max", "builtins.min"})  # fmt: skip
"""What gives a float when it is given one."""
ARITHMETIC = (cst.Add, cst.Subtract, cst.Multiply, cst.Divide, cst.FloorDivide, cst.Modulo,
              cst.Power)  # fmt: skip


@check(
    "CT012",
    "rank-mismatch",
    Severity.ERROR,
    mend="give one index and one extent for every dimension of the array: `ct.load(x, (i, 0), "
    "(1, 128))` of a matrix; `ct.reshape` makes a tile fit the index it is stored at",
    source=COMPILER,
    bad="""
@ct.kernel
def k(x, y, size: ct.Constant[int]):
    i = ct.bid(0)
    t = ct.load(x, index=(i, 0), shape=(size,))  # <-
    ct.store(y, (i, 0), ct.reshape(t, (size,)))  # <-
""",
    good="""
@ct.kernel
def k(x, y, size: ct.Constant[int]):
    i = ct.bid(0)
    t = ct.load(x, index=(i, 0), shape=(1, size))
    ct.store(y, (i, 0), ct.reshape(t, (1, size)))
""",
)
def rank_mismatch(file: KernelFile) -> Iterator[Found]:
    """The index of a load or store and its tile have as many dimensions as the array has. Only a
    tile without dimensions, a single number, fits any index."""
    for _, call in file.compiled(cst.Call):
        index = index_of(file, call)
        given = _rank(file, index) if index is not None else None
        tile = _accessed(file, call) if given is not None else None
        if given is None or not tile or given == tile:
            continue
        assert index is not None
        yield (
            call,
            f"the index `{file.code(index)}` has {_dimensions(given)}, its tile {tile}",
        )


def index_of(file: KernelFile, call: cst.Call) -> cst.BaseExpression | None:
    """The index that an access of an array, of a view of one, or of a tile takes."""
    taken = INDEXED.get(file.called(call))
    if taken is not None:
        return taken.of(call)
    method = method_of(file, call)
    on_view = method in VIEW_METHODS and _view(file, call) is not None
    if on_view or (method == "extract" and of_tile(file, call)):
        return argument(call, 0, "index")
    return None


def _view(file: KernelFile, call: cst.Call) -> cst.Call | None:
    """The call that makes the view of which a method is called."""
    made = file.source.resolve(call.func.value) if isinstance(call.func, cst.Attribute) else None
    is_view = isinstance(made, cst.Call) and method_of(file, made) == VIEW
    return made if is_view and isinstance(made, cst.Call) else None


def _accessed(file: KernelFile, call: cst.Call) -> int | None:
    """The dimensions of the tile that an access takes or gives, if the source tells them."""
    called, method = file.called(call), method_of(file, call)
    if called == f"{CT}store":
        stored = CUTILE.stored(file.source, call)
        return tile_rank(file, stored) if stored is not None else None
    if called in (f"{CT}load", f"{CT}extract") or method == "extract":
        shape = constant_shape_of(file, call)
    elif method in VIEW_METHODS and (view := _view(file, call)) is not None:
        shape = shape_of(file, view)
    else:
        return None
    return _rank(file, shape) if shape is not None else None


def _dimensions(rank: int) -> str:
    return f"{rank} dimension" if rank == 1 else f"{rank} dimensions"


def _rank(file: KernelFile, expression: cst.BaseExpression) -> int | None:
    """The length of an index or shape; a single number is as good as a tuple of one."""
    value = file.source.resolve(expression)
    if isinstance(value, cst.Tuple):
        starred = any(isinstance(e, cst.StarredElement) for e in value.elements)
        return None if starred else len(value.elements)
    return 1 if _is_number(file, value) else None


def _is_number(file: KernelFile, expression: cst.BaseExpression, deep: int = 0) -> bool:
    """Whether an expression is surely one number, and no tuple."""
    if deep > DEEP:
        return False
    match file.source.resolve(expression):
        case cst.Integer():
            return True
        case cst.Call() as call:
            return file.called(call) in SCALARS
        case cst.BinaryOperation(operator=cst.Multiply(), left=left, right=right):
            return all(_is_number(file, side, deep + 1) for side in (left, right))
        case cst.BinaryOperation(
            operator=cst.Add() | cst.Subtract() | cst.FloorDivide(), left=left, right=right
        ):
            return any(_is_number(file, side, deep + 1) for side in (left, right))
    return False


def tile_rank(file: KernelFile, expression: cst.BaseExpression, deep: int = 0) -> int | None:
    """The dimensions of a tile; None when the source does not tell."""
    if deep > DEEP:
        return None
    value = file.source.resolve(expression)
    match value:
        case cst.Integer() | cst.Float():
            return 0
        case cst.UnaryOperation(operator=cst.Minus(), expression=operand):
            return tile_rank(file, operand, deep + 1)
        case cst.BinaryOperation(operator=operator) if isinstance(operator, ARITHMETIC):
            left = tile_rank(file, value.left, deep + 1)
            right = tile_rank(file, value.right, deep + 1)
            return None if left is None or right is None else max(left, right)
        case cst.Call():
            return _rank_of_call(file, value, deep + 1)
    return None


def _rank_of_call(file: KernelFile, call: cst.Call, deep: int) -> int | None:
    called, method = file.called(call), method_of(file, call)
    if called in CUTILE.iotas:
        return 1
    if called in SAME_RANK:
        return tile_rank(file, call.args[0].value, deep) if _plain(call) else None
    if method in SAME_RANK_METHODS and isinstance(call.func, cst.Attribute):
        return tile_rank(file, call.func.value, deep)
    if called in REDUCES and _plain(call):
        return _reduced(file, call, deep)
    if called in CUTILE.shapes or called == f"{CT}extract" or method in ("reshape", "extract"):
        shape = constant_shape_of(file, call)
        return _rank(file, shape) if shape is not None else None
    return None


def _plain(call: cst.Call) -> bool:
    """Whether the first argument is what it seems to be."""
    return bool(call.args) and call.args[0].keyword is None and not call.args[0].star


def _reduced(file: KernelFile, call: cst.Call, deep: int) -> int | None:
    """What is left after a reduction along one axis that it names."""
    rank = tile_rank(file, call.args[0].value, deep)
    axis = argument(call, 1, "axis")
    one = axis is not None and file.integer(axis) is not None
    kept = keyword(call, "keepdims")
    hidden = any(arg.star for arg in call.args)
    return rank - 1 if rank and one and kept is None and not hidden else None


@check(
    "CT013",
    "float-as-integer",
    Severity.ERROR,
    mend="divide with `//`, or round up with `ct.cdiv(a, b)`",
    source=COMPILER,
    bad="""
@ct.kernel
def k(x, y):
    half = ct.num_tiles(x, 1, (16, 16)) / 2
    for j in range(x.shape[1] / 32):  # <-
        t = ct.load(x, (ct.bid(0), j), (16, 32 / 2))  # <-
        ct.store(y, (ct.bid(0), half), t)  # <-
""",
    good="""
@ct.kernel
def k(x, y):
    half = ct.num_tiles(x, 1, (16, 16)) // 2
    for j in range(ct.cdiv(x.shape[1], 32)):
        t = ct.load(x, (ct.bid(0), j), (16, 32 // 2))
        ct.store(y, (ct.bid(0), half), t)
""",
)
def float_as_integer(file: KernelFile) -> Iterator[Found]:
    """The bounds of `range`, the elements of an index and those of a shape are integers. `/` gives
    a float, whatever it divides."""
    for what, number in _integers(file):
        if _is_float(file, number):
            yield number, f"`{file.code(number)}` in {what} is a float"


def _integers(file: KernelFile) -> Iterator[tuple[str, cst.BaseExpression]]:
    """What has to be an integer."""
    for _, call in file.compiled(cst.Call):
        if file.called(call) == "builtins.range":
            yield from (("a range", arg.value) for arg in call.args if not arg.star)
        index = index_of(file, call)
        if index is not None:
            yield from (("an index", element) for element in elements(file, index))
        shape = constant_shape_of(file, call)
        if shape is not None:
            yield from (("a shape", element) for element in elements(file, shape))


def _is_float(file: KernelFile, expression: cst.BaseExpression, deep: int = 0) -> bool:
    """Whether an expression is surely a float."""
    if deep > DEEP:
        return False
    match file.source.resolve(expression):
        case cst.Float() | cst.BinaryOperation(operator=cst.Divide()):
            return True
        case cst.UnaryOperation(operator=cst.Minus() | cst.Plus(), expression=operand):
            return _is_float(file, operand, deep + 1)
        case cst.BinaryOperation(operator=operator, left=left, right=right):
            sides = (left, right) if isinstance(operator, ARITHMETIC) else ()
            return any(_is_float(file, side, deep + 1) for side in sides)
        case cst.IfExp(body=body, orelse=orelse):
            return all(_is_float(file, side, deep + 1) for side in (body, orelse))
        case cst.Call() as call if file.called(call) in FLOATING:
            given = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
            return any(_is_float(file, value, deep + 1) for value in given)
        case cst.Call() as call:
            return file.called(call) == f"{CT}truediv"
    return False
