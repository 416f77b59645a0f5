"""Python's own `min`, `max`, `//` and `%` in Triton's interpreter, as the compiler takes them.

Between tiles the compiler takes `min` and `max` element by element; Python asks whether all of a
tile is less, to which the interpreter says yes. The counter of a loop is an int32 to the compiler,
whose division goes toward zero; the interpreter counts with Python's numbers, which round down.
"""

from __future__ import annotations

import ast
import builtins
from typing import Any

EXTREMES = {builtins.min: "minimum", builtins.max: "maximum"}
UNROLLED = "static_range"
"""Its counter is a constant, which the compiler divides as Python does."""


def mend(interpreter: Any) -> None:
    """Have kernels compute so; a second time changes nothing."""
    transformer = interpreter.ASTTransformer
    if "visit_Call" in vars(transformer):
        return
    semantic, core = interpreter.interpreter_semantic, interpreter.tl.core

    def extreme(function: Any, *values: Any) -> Any:
        if function not in EXTREMES or not any(isinstance(v, core.tensor) for v in values):
            return function(*values)
        of_two = getattr(core, EXTREMES[function])
        found = values[0]
        for value in values[1:]:
            found = of_two(found, value, _semantic=semantic)
        return found

    semantic.extreme = extreme
    semantic.quotient = quotient
    semantic.remainder = remainder
    transformer.visit_Call = _with_extremes


def _with_extremes(transformer: Any, node: ast.Call) -> ast.AST:
    node = transformer.generic_visit(node)
    named = isinstance(node.func, ast.Name) and node.func.id in ("min", "max")
    plain = not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
    if not named or not plain or len(node.args) < 2:
        return node
    return ast.copy_location(_called("extreme", node.func, *node.args), node)


def _called(name: str, *arguments: ast.expr) -> ast.Call:
    semantic = ast.Name(id="interpreter_semantic", ctx=ast.Load())
    return ast.Call(ast.Attribute(value=semantic, attr=name, ctx=ast.Load()), [*arguments], [])


def quotient(one: Any, other: Any) -> Any:
    """`one // other`, of Python's numbers toward zero."""
    if type(one) is int and type(other) is int and other:
        size = abs(one) // abs(other)
        return size if (one < 0) == (other < 0) else -size
    return one // other


def remainder(one: Any, other: Any) -> Any:
    """`one % other`, of Python's numbers with the sign of `one`."""
    if type(one) is int and type(other) is int and other:
        return one - other * quotient(one, other)
    return one % other


def with_divided_counter(loop: ast.For) -> None:
    """Have the body of a loop divide its counter as the compiler does."""
    made = loop.iter.func if isinstance(loop.iter, ast.Call) else None
    name = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
    if isinstance(loop.target, ast.Name) and name != UNROLLED:
        divided = _Divided(loop.target.id)
        loop.body = [divided.visit(statement) for statement in loop.body]


class _Divided(ast.NodeTransformer):
    def __init__(self, counter: str) -> None:
        self._counter = counter

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        by = {ast.FloorDiv: "quotient", ast.Mod: "remainder"}.get(type(node.op))
        names = (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
        if by is None or self._counter not in names:
            return node
        return ast.copy_location(_called(by, node.left, node.right), node)
