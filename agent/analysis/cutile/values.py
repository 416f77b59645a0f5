"""Which values of a cuTile kernel are known at run time only, and may be no constants.

All answers err on the side of 'not known'. A closure's variable, an argument of a helper, or a
parameter with an annotation from another module may all be constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import libcst as cst

from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.host import parameter
from agent.analysis.cutile.kernel_file import STATIC, KernelFile
from agent.syntax import Function, assigned, descendants

RUNTIME = frozenset(
    {
        *CUTILE.loads,
        *(name for name in CUTILE.stores if "atomic" in name),
        *(f"{CT}{name}" for name in ("bid", "num_blocks", "num_tiles")),
    }
)
"""What such a call gives is known when the kernel runs, and not before."""
RANGES = ("range", "builtins.range")
"""cuTile does not unroll a loop over one, so that its variable is never a constant."""
RUNTIME_METHODS = frozenset({"item", "load", "num_tiles"})
TILES = frozenset({*CUTILE.loads, *CUTILE.dots, *CUTILE.accumulators, *CUTILE.iotas})
"""What such a call gives is a tile."""
TILE_METHODS = frozenset({"astype", "extract", "permute", "reshape", "transpose"})
"""Methods of a tile that give another; cuda.tile has functions of these names."""
SCALARS = frozenset({"int", "float", "bool", "builtins.int", "builtins.float", "builtins.bool"})
DEEP = 10
"""Values behind names are followed so far: in a file that is wrong, two may name each other."""


@lru_cache(maxsize=64)
def runtime_names(file: KernelFile, function: Function) -> frozenset[str]:
    """The names of a function that hold run-time values whenever they are read."""
    pairs = [*_pairs(file, function)]
    scalars = scalar_parameters(file, function)
    found: set[str] = set()
    while True:
        values: dict[str, list[bool]] = {name: [True] for name in scalars}
        for name, value in pairs:
            values.setdefault(name, []).append(
                value is not None
                and (
                    has_run_time_extents(file, function, value)
                    or is_runtime(file, function, value, found | scalars)
                )
            )
        now = {name for name, ones in values.items() if all(ones)}
        if now == found:
            return frozenset(found)
        found = now


def _pairs(file: KernelFile, function: Function) -> Iterator[tuple[str, cst.BaseExpression | None]]:
    """What names are assigned; a part of what is unpacked is None where the source hides it.

    Each of `m, n = x.shape` is as late as all of it.
    """
    for target, value in assigned(function.node.body):
        if isinstance(target, cst.Name):
            # the extents as a whole are no number: only what is taken of them is
            yield target.value, None if extents_of(file, value) is not None else value
            continue
        if not isinstance(target, cst.Tuple | cst.List):
            continue
        parts = value.elements if isinstance(value, cst.Tuple) else ()
        matched = len(parts) == len(target.elements) and not any(
            isinstance(e, cst.StarredElement) for e in (*parts, *target.elements)
        )
        for number, element in enumerate(target.elements):
            for name in descendants(element, cst.Name):
                if matched and name is element.value:
                    yield name.value, parts[number].value
                elif name is element.value and extents_of(file, value) is not None:
                    yield name.value, value
                else:
                    yield name.value, None


def extents_of(file: KernelFile, expression: cst.BaseExpression) -> cst.BaseExpression | None:
    """Of what an expression is all extents or strides: `x` of `x.shape`."""
    match file.source.resolve(expression):
        case cst.Attribute(value=owner, attr=cst.Name(value="shape" | "strides")):
            return owner
    return None


def has_run_time_extents(
    file: KernelFile, function: Function, expression: cst.BaseExpression, deep: int = 0
) -> bool:
    """Whether an expression surely is the shape of an array, or is made of one."""
    parts: tuple[cst.BaseExpression, ...] = ()
    match file.source.resolve(expression):
        case cst.Tuple(elements=elements):
            parts = tuple(e.value for e in elements if isinstance(e, cst.StarredElement))
        case cst.BinaryOperation(operator=cst.Add(), left=left, right=right):
            parts = left, right
        case cst.Call(args=[cst.Arg(value=inner, star="")]) as call:
            parts = (inner,) if file.called(call) == "builtins.tuple" else ()
    if parts:
        return deep < DEEP and any(
            has_run_time_extents(file, function, part, deep + 1) for part in parts
        )
    owner = extents_of(file, expression)
    return owner is not None and _is_array(file, function, owner)


def _is_array(file: KernelFile, function: Function, expression: cst.BaseExpression) -> bool:
    """Whether what has a shape is surely an array of unknown extents: a parameter of a kernel.

    A parameter of a helper may be a tile, and the extent of a slice between constants is one.
    """
    value = file.source.resolve(expression)
    return isinstance(value, cst.Name) and value.value in _plain_parameters(file, function)


def is_runtime(
    file: KernelFile,
    function: Function,
    expression: cst.BaseExpression,
    names: set[str] | frozenset[str] | None = None,
) -> bool:
    """Whether an expression surely depends on a value that only the running kernel has."""
    if names is None:
        names = runtime_names(file, function)
    match expression:
        case cst.Name():
            return expression.value in names
        case cst.Call():
            called = file.called(expression)
            if called in RUNTIME:
                return True
            method = (
                expression.func.attr.value if isinstance(expression.func, cst.Attribute) else ""
            )
            if method in RUNTIME_METHODS and not CUTILE.owns(called):
                return True
            if called in STATIC:
                return False
            if called in RANGES:
                return True
            if CUTILE.owns(called):
                return any(is_runtime(file, function, a.value, names) for a in expression.args)
            return False
        case cst.Subscript(value=all_extents):
            owner = extents_of(file, all_extents)
            return owner is not None and _is_array(file, function, owner)
        case cst.BinaryOperation():
            sides: tuple[cst.BaseExpression, ...] = (expression.left, expression.right)
        case cst.UnaryOperation():
            sides = (expression.expression,)
        case cst.Comparison():
            if any(isinstance(c.operator, cst.Is | cst.IsNot) for c in expression.comparisons):
                return False
            sides = (expression.left, *(c.comparator for c in expression.comparisons))
        case _:
            return False
    return any(is_runtime(file, function, side, names) for side in sides)


def late_names(file: KernelFile, function: Function) -> frozenset[str]:
    """The names that hold no constant of the compiler's: run-time values, and plain parameters."""
    return runtime_names(file, function) | _plain_parameters(file, function)


def unmarked(file: KernelFile, expression: cst.BaseExpression) -> Function | None:
    """The kernel of which an expression is a parameter that no annotation makes a constant."""
    given = parameter(file.source, file.source.resolve(expression))
    for kernel in file.kernels:
        if given in kernel.function.parameters and given is not None:
            plain = given.name.value in _plain_parameters(file, kernel.function)
            return kernel.function if plain else None
    return None


def runs_in(file: KernelFile, function: Function, node: cst.CSTNode) -> bool:
    """Whether a node is the function's own code, and its names the function's names.

    What a lambda or comprehension names may be its own; a function in the function may never be
    called.
    """
    for above in file.source.ancestors(node):
        if above is function.node:
            return True
        if isinstance(above, cst.FunctionDef | cst.Lambda | cst.CompFor | cst.BaseComp):
            return False
    return False


@lru_cache(maxsize=64)
def array_parameters(file: KernelFile, function: Function) -> frozenset[str]:
    """The parameters of a kernel that are arrays without static extents, and stay what they are."""
    accessed = {
        name.value
        for call in file.inside(function, cst.Call)
        if file.called(call) in (*CUTILE.loads, *CUTILE.stores, f"{CT}num_tiles")
        and call.args
        and isinstance(name := call.args[0].value, cst.Name)
    }
    return frozenset(accessed & _plain_parameters(file, function))


@lru_cache(maxsize=64)
def scalar_parameters(file: KernelFile, function: Function) -> frozenset[str]:
    """The parameters of a kernel that are used as numbers and are no constants."""
    operands = {
        side.value
        for node in file.inside(function, cst.BinaryOperation)
        for side in (node.left, node.right)
        if isinstance(side, cst.Name)
    }
    compared = {
        node.left.value
        for node in file.inside(function, cst.Comparison)
        if isinstance(node.left, cst.Name)
        and not any(isinstance(c.operator, cst.Is | cst.IsNot) for c in node.comparisons)
    }
    bounds = {
        arg.value.value
        for call in file.inside(function, cst.Call)
        if file.called(call) in RANGES
        for arg in call.args
        if isinstance(arg.value, cst.Name)
    }
    arrays = array_parameters(file, function)
    numbers = frozenset(operands | compared | bounds) - arrays
    return numbers & _plain_parameters(file, function)


@lru_cache(maxsize=64)
def _plain_parameters(file: KernelFile, function: Function) -> frozenset[str]:
    """A kernel's own parameters with no annotation that could say more than 'a number'."""
    return frozenset(_plain(file, function))


def _plain(file: KernelFile, function: Function) -> Iterator[str]:
    if not any(kernel.function is function for kernel in file.kernels):
        return
    if len(function.node.decorators) > 1:  # another decorator may annotate them
        return
    changed = {
        name.value for target, _ in assigned(function.node.body)
        for name in descendants(target, cst.Name)
    }  # fmt: skip
    for given in function.parameters:
        annotation = given.annotation.annotation if given.annotation else None
        if annotation is not None and file.source.name(annotation) not in SCALARS:
            continue
        if given.name.value not in changed:
            yield given.name.value


def is_tile(file: KernelFile, expression: cst.BaseExpression, deep: int = 0) -> bool:
    """Whether an expression is surely a tile: what a function of cuda.tile or one's method gave."""
    if deep > DEEP:
        return False
    match file.source.resolve(expression):
        case cst.Call(func=func) as call:
            if file.called(call) in TILES:
                return True
            if not isinstance(func, cst.Attribute) or func.attr.value not in TILE_METHODS:
                return False
            return CUTILE.owns(file.called(call)) or is_tile(file, func.value, deep + 1)
        case cst.BinaryOperation(left=left, right=right):
            return is_tile(file, left, deep + 1) or is_tile(file, right, deep + 1)
    return False


@lru_cache(maxsize=64)
def tile_names(file: KernelFile, function: Function) -> frozenset[str]:
    """The names of a function that hold nothing but tiles that functions of cuda.tile gave it."""
    found: dict[str, list[bool]] = {}
    for target, value in assigned(function.node.body):
        is_tile = isinstance(value, cst.Call) and file.called(value) in TILES
        for name in descendants(target, cst.Name):
            found.setdefault(name.value, []).append(is_tile and name is target)
    parameters = {p.name.value for p in function.parameters}
    return frozenset(name for name, ones in found.items() if all(ones)) - parameters
