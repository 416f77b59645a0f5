"""Triton's interpreter, where it does otherwise than Triton's compiler, put right.

A float among a launch's arguments is a float32 to a compiled kernel, with a type and `.to`. The
interpreter, of Triton 3.9 still, hands over Python's number: kernels that ask for its type fail.
A tuner asks for a GPU to time its configs on; without one its first config is taken, for no time of
the interpreter says anything about a GPU's. Between tiles the compiler combines `and` and `or`
element by element; to Python every tile is true, and `mask_a and mask_b` was `mask_b` alone. The
counter of a loop is an int32 to it, with a type and `.to`; the interpreter counts with Python's.
What a comparison of scalars gives is a mask also beside a tile's; here it was a number. An
annotation in quotes says the same as one without.
Functions of the language work by their names in it; under another name of a module they failed.
CUDA's libdevice is `interpreted_libdevice`, what launches bear `interpreted_launches`, the driver
of a GPU that is not there `interpreted_driver`, device "cuda" `missing_gpu`; what takes it long for
nothing, `faster_interpreter`; bfloat16 and the 8-bit floats, `interpreted_floats`; Python's own
`min` and `//`, `interpreted_python`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from tile_agent_pytest import (
    faster_interpreter,
    interpreted_driver,
    interpreted_floats,
    interpreted_launches,
    interpreted_libdevice,
    interpreted_python,
    missing_gpu,
)

INTERPRETER = "triton.runtime.interpreter"
TUNER = "triton.runtime.autotuner"
DRIVER = "triton.runtime.driver"
MODULES = (
    INTERPRETER,
    TUNER,
    DRIVER,
    interpreted_libdevice.STUBS,
    interpreted_libdevice.FUNCTIONS,
)
"""What is mended, once it is imported."""
NEEDED = frozenset({*MODULES, "torch", "triton"})
"""After which something may be mended: Triton is imported before PyTorch or after it."""


def mend_all() -> None:
    """Put all of it right before anything of the user's is imported, where Triton interprets."""
    if os.environ.get("TRITON_INTERPRET") == "1" and "triton" in sys.modules:
        for name in MODULES:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        mend()


def mend() -> None:
    """Put right what is imported by now, where Triton interprets; a second time changes nothing."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    missing_gpu.install()
    interpreter: Any = _whole(sys.modules.get(INTERPRETER))
    convert = getattr(interpreter, "_implicit_cvt", None)
    if convert is not None and isinstance(convert(0.0), float):
        interpreter._implicit_cvt = _with_floats(interpreter, convert)
    if hasattr(interpreter, "interpreter_semantic"):
        faster_interpreter.keep(interpreter)
        interpreted_floats.mend(interpreter)
        interpreted_libdevice.mend_builder(interpreter.InterpreterBuilder)
        interpreted_libdevice.mend_modules()
        _mend_booleans(interpreter)
        _mend_counters(interpreter)
        interpreted_python.mend(interpreter)
        _mend_aliases(interpreter)
        _mend_numbers(interpreter)
        _mend_splats(interpreter.InterpreterBuilder)
        _mend_annotations(interpreter.GridExecutor)
        _mend_names(getattr(interpreter, "FunctionRewriter", None))
        interpreted_launches.mend(interpreter)
    interpreted_driver.mend(sys.modules.get(DRIVER))
    tuner: Any = getattr(sys.modules.get(TUNER), "Autotuner", None)
    if tuner is not None:
        tuner.do_bench = property(_benchmarker)


def _whole(interpreter: Any) -> Any:
    """Triton's interpreter, or None while the language that it computes is not there yet.

    Triton 3.4 imports it in the middle of the language; it is mended after Triton then.
    """
    return interpreter if hasattr(getattr(interpreter, "tl", None), "float32") else None


def _with_floats(interpreter: Any, convert: Any) -> Any:
    def implicit_cvt(argument: Any) -> Any:
        if not isinstance(argument, float):
            return convert(argument)
        float32 = interpreter.tl.float32
        number = interpreter.np.array([argument], dtype=interpreter.np.float32)
        return interpreter.tl.tensor(interpreter.TensorHandle(number, float32), float32)

    return implicit_cvt


def _mend_aliases(interpreter: Any) -> None:
    """Have `fast_exp = tl.math.exp` of a kernel's module do what `tl.math.exp` does."""
    patch = getattr(interpreter, "_patch_lang", None)
    if patch is None or hasattr(patch, "with_aliases"):
        return

    def patch_lang(function: Any) -> Any:
        scope = patch(function)
        module = sys.modules.get(function.__module__)
        if module is not None and vars(module) is function.__globals__:
            for name, value in list(vars(module).items()):
                if interpreter.tl.core.is_builtin(value):
                    builder = interpreter.interpreter_builder
                    scopes = () if scope is None else (scope,)  # of later Tritons
                    interpreter._patch_attr(module, name, value, builder, *scopes)
        return scope

    patch_lang.with_aliases = True  # type: ignore[attr-defined]
    interpreter._patch_lang = patch_lang


def _mend_numbers(interpreter: Any) -> None:
    """Have a scalar serve as a bound of `range`: Triton 3.6 makes an integer of an array of one
    element, which NumPy 2.4 refuses to be one."""
    patch = getattr(interpreter, "_patch_lang_tensor", None)
    if patch is None or hasattr(patch, "with_numbers"):
        return

    def patch_lang_tensor(tensor: Any, *scopes: Any) -> Any:
        patched = patch(tensor, *scopes)
        tensor.__index__ = lambda self: int(self.handle.data.item())
        return patched

    patch_lang_tensor.with_numbers = True  # type: ignore[attr-defined]
    interpreter._patch_lang_tensor = patch_lang_tensor


def _mend_splats(builder: Any) -> None:
    """Have the elements of a tile made of a scalar be of the scalar's own type.

    A comparison keeps the type of what it compares, of Triton 3.9 still: `(row < n) & mask` was a
    tile of integers, and no mask.
    """
    made = builder.create_splat
    if hasattr(made, "keeps_type"):
        return

    def create_splat(self: Any, *args: Any) -> Any:
        (scalar,) = (arg for arg in args if hasattr(arg, "data"))
        tile = made(self, *args)
        tile.data = tile.data.astype(scalar.data.dtype, copy=False)
        return tile

    create_splat.keeps_type = True  # type: ignore[attr-defined]
    builder.create_splat = create_splat


def _mend_annotations(executor: Any) -> None:
    """Have `BLOCK: "tl.constexpr"` be a constant.

    The interpreter compiles a kernel anew in a module that leaves annotations as they are written,
    with their quotes then.
    """
    init = executor.__init__
    if hasattr(init, "reads_quoted"):
        return

    def __init__(self: Any, fn: Any, arg_names: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        init(self, fn, arg_names, *args, **kwargs)
        quoted = {
            name
            for name, given in inspect.get_annotations(fn).items()
            if isinstance(given, str) and given.strip("'\" ").rpartition(".")[2] == "constexpr"
        }
        self.constexprs = [name for name in arg_names if name in {*self.constexprs, *quoted}]

    __init__.reads_quoted = True  # type: ignore[attr-defined]
    executor.__init__ = __init__


def _mend_names(rewriter: Any) -> None:
    """Have the copy of a kernel that is run know the class or function that it stands in."""
    rewrite = getattr(rewriter, "rewrite_ast", None)
    if rewrite is None or hasattr(rewrite, "keeps_name"):
        return

    def rewrite_ast(self: Any) -> Any:
        copy = rewrite(self)
        copy.__qualname__ = self.fn.__qualname__
        return copy

    rewrite_ast.keeps_name = True  # type: ignore[attr-defined]
    rewriter.rewrite_ast = rewrite_ast


def _mend_booleans(interpreter: Any) -> None:
    """Have `and` and `or` in kernels do with tiles what the compiler does."""
    transformer = interpreter.ASTTransformer
    if "visit_BoolOp" in vars(transformer):
        return
    interpreter.interpreter_semantic.combined = _combining(interpreter)
    transformer.visit_BoolOp = _with_calls


def _with_calls(transformer: Any, node: ast.BoolOp) -> ast.AST:
    """`a and b` as a call that is given both, each to be computed when it is asked for."""
    if any(isinstance(each, ast.NamedExpr) for each in ast.walk(node)):
        return transformer.generic_visit(node)  # type: ignore[no-any-return]  # binds a name here
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    word = "and" if isinstance(node.op, ast.And) else "or"
    later = [ast.Lambda(args=nothing, body=transformer.visit(value)) for value in node.values]
    semantic = ast.Name(id="interpreter_semantic", ctx=ast.Load())
    combined = ast.Attribute(value=semantic, attr="combined", ctx=ast.Load())
    return ast.copy_location(ast.Call(combined, [ast.Constant(word), *later], []), node)


def _mend_counters(interpreter: Any) -> None:
    """Have the counter of a loop be a scalar of the language where something is asked of it: one
    that is not computes with Python's numbers, which takes a hundredth of the time."""
    transformer = interpreter.ASTTransformer
    if "visit_For" in vars(transformer):
        return
    to_tensor = interpreter.interpreter_semantic.to_tensor
    interpreter.interpreter_semantic.counter = lambda number: (
        to_tensor(number, False) if type(number) is int else number
    )
    transformer.visit_For = _with_counter


def _with_counter(transformer: Any, loop: ast.For) -> ast.AST:
    """A loop whose counter is made a scalar first, where the body has an attribute of it."""
    asked = any(
        isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and isinstance(loop.target, ast.Name)
        and each.value.id == loop.target.id
        for statement in loop.body
        for each in ast.walk(statement)
    )
    interpreted_python.with_divided_counter(loop)
    loop = transformer.generic_visit(loop)
    if asked:
        name = loop.target.id  # type: ignore[attr-defined]
        semantic = ast.Name(id="interpreter_semantic", ctx=ast.Load())
        counter = ast.Attribute(value=semantic, attr="counter", ctx=ast.Load())
        made = ast.Call(counter, [ast.Name(id=name, ctx=ast.Load())], [])
        into = ast.Assign([ast.Name(id=name, ctx=ast.Store())], made)
        loop.body.insert(0, ast.copy_location(into, loop.body[0]))
    return loop


def _combining(interpreter: Any) -> Callable[..., Any]:
    semantic = interpreter.interpreter_semantic
    by_word = {"and": semantic.logical_and, "or": semantic.logical_or}

    def is_tensor(value: Any) -> bool:
        return isinstance(value, interpreter.tl.tensor)

    def is_tile(value: Any) -> bool:
        return is_tensor(value) and value.type.is_block()

    def combined(word: str, *operands: Callable[[], Any]) -> Any:
        found: Any = None
        for operand in operands:
            value = operand()
            if is_tile(found) and is_tile(value):
                warnings.warn(
                    f"`{word}` between tiles is taken element by element, as the compiler does it; "
                    f"Triton deprecates that: write {'&' if word == 'and' else '|'}",
                    stacklevel=2,
                )
                found = by_word[word](found, value)
            elif is_tile(found):  # a number changes nothing, or settles all elements
                if bool(value) is not (word == "and"):
                    settled = semantic.not_equal if word == "and" else semantic.equal
                    return settled(found, found) if is_tensor(value) else value
            else:
                found = value
            if not is_tile(found) and bool(found) is not (word == "and"):
                return found
        return found

    return combined


def _benchmarker(_: Any) -> Any:
    return lambda kernel_call, quantiles: [0.0, 0.0, 0.0]  # noqa: ARG005
