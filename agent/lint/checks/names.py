"""CT001 to CT006: what cuda.tile lacks, and what of Python it does not compile."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.kernel_file import KernelFile
from agent.analysis.cutile.values import array_parameters, is_tile, tile_names
from agent.lint import api
from agent.lint.base import Found, Severity, check
from agent.syntax import Function, descendants

COMPILER = "confirmed with the compiler of cuda-tile 1.7"
FOREIGN = ("cupy", "jax", "math", "numpy", "random", "scipy", "time", "torch", "triton")
"""Packages whose functions run on the host."""
TENSOR_METHODS = frozenset(
    {
        "abs", "argmax", "bfloat16", "bool", "cast", "clone", "contiguous", "cos", "cpu", "cuda",
        "data_ptr", "detach", "dim", "double", "exp", "expand", "fill_", "flatten", "float",
        "half", "int", "is_contiguous", "log", "long", "matmul", "max", "mean", "min", "mul",
        "new_empty", "new_zeros", "norm", "numel", "pow", "prod", "relu", "repeat", "sigmoid",
        "sin", "size", "softmax", "sqrt", "squeeze", "stride", "sum", "t", "tanh", "to", "type",
        "unsqueeze", "view", "zero_",
    }
)  # fmt: skip
"""Methods of a tensor, or thought to be, that neither an array nor a tile has."""
UNSUPPORTED: dict[type[cst.CSTNode], str] = {
    cst.Assert: "`assert`",
    cst.ClassDef: "a class",
    cst.Del: "`del`",
    cst.Dict: "a dict",
    cst.DictComp: "a dict comprehension",
    cst.Global: "`global`",
    cst.Import: "an import",
    cst.ImportFrom: "an import",
    cst.List: "a list",
    cst.ListComp: "a list comprehension",
    cst.Match: "`match`",
    cst.NamedExpr: "`:=`",
    cst.Nonlocal: "`nonlocal`",
    cst.Set: "a set",
    cst.SetComp: "a set comprehension",
    cst.Try: "`try`",
    cst.Yield: "`yield`",
}


@check(
    "CT001",
    "unknown-name",
    Severity.ERROR,
    mend="use a name that cuda.tile has; `dir(cuda.tile)` lists them",
    source="cuda-tile 1.7; kernels written by models often use names of CUDA or Triton",
    bad="""
@ct.kernel
def k(x):
    i = ct.program_id(0)  # <-
    ct.store(x, (i,), ct.sigmoid(ct.load(x, (i,), (128,))))  # <-
""",
    good="""
@ct.kernel
def k(x):
    i = ct.bid(0)
    ct.store(x, (i,), 1.0 / (1.0 + ct.exp(-ct.load(x, (i,), (128,)))))
""",
)
def unknown_name(file: KernelFile) -> Iterator[Found]:
    """A name below `cuda.tile` has to exist there."""
    for node in _dotted_names(file):
        named = file.source.name(node)
        if named is None or not named.startswith(CT):
            continue
        name = _below_class(named.removeprefix(CT))
        if name not in api.names() and not name.startswith("_"):
            yield node, f"cuda.tile {api.VERSION} has no `{name}`"
    for statement in descendants(file.source.module, cst.ImportFrom):
        module = statement.module and file.source.code(statement.module)
        if module == CT.rstrip(".") and not isinstance(statement.names, cst.ImportStar):
            for alias in statement.names:
                name = alias.evaluated_name
                if name not in api.names() and not name.startswith("_"):
                    yield alias, f"cuda.tile {api.VERSION} has no `{name}`"


def _dotted_names(file: KernelFile) -> Iterator[cst.Attribute]:
    """Attributes that are not part of a longer one, outside imports."""
    module = file.source.module
    imports = (*descendants(module, cst.Import), *descendants(module, cst.ImportFrom))
    parts: set[cst.CSTNode] = {
        part for statement in imports for part in descendants(statement, cst.Attribute)
    }
    for node in descendants(module, cst.Attribute):
        parts.add(node.value)
        if node not in parts:
            yield node


def _below_class(name: str) -> str:
    """'PaddingMode' of 'PaddingMode.ZERO': what a class or function holds is not listed."""
    first, dot, rest = name.partition(".")
    return name if first in ("tune", "compilation") and dot and "." not in rest else first


@check(
    "CT002",
    "wrong-arguments",
    Severity.ERROR,
    mend="call it as its signature says: `help` of the function shows it",
    source=f"TileGym's cuTile API reference, rule 4 (the accumulator of `mma`); {COMPILER}",
    bad="""
@ct.kernel
def k(x, y):
    t = ct.load(x, (0, 0), (16, 16))
    e = ct.exp(t, flush_to_zero=True)  # <-
    ct.store(y, (0, 0), ct.mma(e, t))  # <-
""",
    good="""
@ct.kernel
def k(x, y):
    t = ct.load(x, (0, 0), (16, 16))
    e = ct.exp2(t, flush_to_zero=True)
    ct.store(y, (0, 0), ct.mma(e, t, ct.zeros((16, 16), ct.float32)))
""",
)
def wrong_arguments(file: KernelFile) -> Iterator[Found]:
    """A call of a function of `cuda.tile` has to fit its signature."""
    for call in file.source.calls:
        name = file.called(call).removeprefix(CT)
        signature = api.signatures().get(name) if CUTILE.owns(file.source.name(call.func)) else None
        if signature is None or any(arg.star for arg in call.args):
            continue
        positional = [arg for arg in call.args if arg.keyword is None]
        keywords = {arg.keyword.value: arg for arg in call.args if arg.keyword is not None}
        try:
            signature.bind(*positional, **keywords)
        except TypeError as problem:
            yield call, f"`{name}`: {problem}; it is {name}{_shown(str(signature))}"


def _shown(signature: str) -> str:
    return signature.replace("=0", "=...")


@check(
    "CT003",
    "tensor-method",
    Severity.ERROR,
    mend="tiles have astype, reshape, permute, transpose, extract, insert and item; the rest are "
    "functions of cuda.tile: `t.astype(dtype)` for `.to` and `.cast`, `x.shape[0]` for `.size(0)`; "
    "an array is loaded first",
    source=f"TileGym's cuTile API reference, rule 7; {COMPILER}",
    bad="""
@ct.kernel
def k(x, y):
    t = ct.load(x, (0,), (128,))
    ct.store(y, (0,), t.to(ct.float16))  # <-
    ct.store(y, (1,), t.cast(ct.float16))  # <-
""",
    good="""
@ct.kernel
def k(x, y):
    t = ct.load(x, (0,), (128,))
    ct.store(y, (0,), t.astype(ct.float16))
    ct.store(y, (1,), t.astype(ct.float16))
""",
)
def tensor_method(file: KernelFile) -> Iterator[Found]:
    """Arrays and tiles are no tensors: they lack the methods that torch's tensors have. An array
    has no methods of a tile either."""
    for function, node in file.compiled(cst.Attribute):
        what = node.attr.value
        if CUTILE.owns(file.source.name(node) or ""):
            continue
        if is_tile(file, node.value):
            if what not in api.TILE:
                yield node, f"`.{what}` in {function.name}: tiles have no such attribute"
        elif isinstance(node.value, cst.Name) and node.value.value in array_parameters(
            file, function
        ):
            if what not in api.ARRAY:
                yield node, f"`.{what}` in {function.name}: arrays have no such attribute"
        elif what in TENSOR_METHODS and _is_called(file, node) and _is_value(file, node.value):
            yield node, f"`.{what}(...)` in {function.name}: arrays and tiles have no such method"


def _is_called(file: KernelFile, node: cst.Attribute) -> bool:
    around = next(file.source.ancestors(node), None)
    return isinstance(around, cst.Call) and around.func is node


def _is_value(file: KernelFile, expression: cst.BaseExpression) -> bool:
    """Whether an expression is no module, class or function: a local name, or what a call gives."""
    match expression:
        case cst.Call() | cst.BinaryOperation() | cst.UnaryOperation():
            return True
        case cst.Name():
            around = file.source.enclosing(expression)
            return around is not None and any(
                assignment.scope.__class__.__name__ == "FunctionScope"
                for assignment in file.source.assignments(expression)
            )
    return False


@check(
    "CT004",
    "host-function",
    Severity.ERROR,
    mend="use the function of cuda.tile (`ct.cdiv`, `ct.exp`, ...), or wrap an expression of "
    "constants in `ct.static_eval(...)`",
    source=f"TileGym's cuTile API reference, rule 6; {COMPILER}",
    bad="""
@ct.kernel
def k(x, n: ct.Constant[int]):
    for j in range(math.ceil(n / 128)):  # <-
        t = ct.load(x, (j,), (128,))
        ct.store(x, (j,), torch.exp(t))  # <-
""",
    good="""
@ct.kernel
def k(x, n: ct.Constant[int]):
    for j in range(ct.cdiv(n, 128)):
        t = ct.load(x, (j,), (128,))
        ct.store(x, (j,), ct.exp(t))
""",
)
def host_function(file: KernelFile) -> Iterator[Found]:
    """A kernel cannot call functions of the host, and only some of Python's own."""
    for function, call in file.compiled(cst.Call):
        called = file.called(call)
        package, dot, name = called.partition(".")
        if dot and package in FOREIGN:
            yield call, f"{function.name} calls `{called}`, which runs on the host only"
        elif package == "builtins" and name not in api.BUILTINS and name[0].islower():
            yield call, f"{function.name} calls `{name}`, which cuTile does not compile"


@check(
    "CT005",
    "unsupported-syntax",
    Severity.ERROR,
    mend="write it with `if`, `for ... in range`, `while`, tuples and plain assignments",
    source=COMPILER,
    bad="""
@ct.kernel
def k(x):
    for i in [0, 1]:  # <-
        ct.store(x, (i,), 0.0)
    return x  # <-
""",
    good="""
@ct.kernel
def k(x):
    for i in range(2):
        ct.store(x, (i,), 0.0)
""",
)
def unsupported_syntax(file: KernelFile) -> Iterator[Found]:
    """cuTile compiles a part of Python: no lists, dicts, classes, `assert`, `try`, or `else` of a
    loop. A kernel returns nothing."""
    kernels = {kernel.function for kernel in file.kernels}
    for function, node in file.compiled_nodes():
        what = UNSUPPORTED.get(type(node))
        match node:
            case cst.For(orelse=cst.Else()) | cst.While(orelse=cst.Else()):
                what = "the `else` of a loop"
            case cst.Raise(exc=cst.BaseExpression() as raised):
                is_static = isinstance(raised, cst.Call) and file.called(raised) == (
                    f"{CT}static_exception"
                )
                what = None if is_static else "`raise` without `ct.static_exception`"
            case cst.Return(value=cst.BaseExpression() as value):
                nested = file.source.enclosing(node) not in kernels
                is_none = isinstance(value, cst.Name) and value.value == "None"
                what = (
                    "a value returned" if function in kernels and not (nested or is_none) else None
                )
            case cst.For(iter=cst.Tuple()):
                what = "a loop over a tuple without `ct.static_iter`"
            case cst.Yield() if _manages_context(file, function):
                what = None  # cuda-tile 1.6 and newer run it around the block
            case cst.List() if _is_assigned(file, node):
                what = None
        if what is not None:
            yield node, f"{function.name} has {what}, which cuTile does not compile"


def _manages_context(file: KernelFile, function: Function) -> bool:
    decorators = (each.decorator for each in function.node.decorators)
    return any(file.source.name(d) == "contextlib.contextmanager" for d in decorators)


def _is_assigned(file: KernelFile, node: cst.List) -> bool:
    """Whether it is no list but names that are assigned: `[a, b] = pair`."""
    below = {cst.Element, cst.List, cst.Tuple}
    around = (each for each in file.source.ancestors(node) if type(each) not in below)
    return isinstance(next(around, None), cst.AssignTarget)


@check(
    "CT006",
    "subscript",
    Severity.ERROR,
    mend="read arrays with `ct.load` or `ct.gather`, write them with `ct.store` or `ct.scatter`; "
    "take a part of a tile with `ct.extract`",
    source=COMPILER,
    bad="""
@ct.kernel
def k(x, y):
    t = ct.load(x, (0,), (128,))
    ct.store(y, (0,), t[0:64])  # <-
""",
    good="""
@ct.kernel
def k(x, y):
    t = ct.load(x, (0,), (128,))
    ct.store(y, (0,), ct.extract(t, (0,), (64,)))
""",
)
def subscript(file: KernelFile) -> Iterator[Found]:
    """Arrays have no subscripts, and those of tiles only add axes: `t[:, None]`."""
    for function, node in file.compiled(cst.Subscript):
        if not isinstance(node.value, cst.Name):
            continue
        name = node.value.value
        if name in array_parameters(file, function):
            yield node, f"`{file.code(node)}`: `{name}` is an array"
        elif name in tile_names(file, function) and not all(map(_adds_axis, node.slice)):
            yield node, f"`{file.code(node)}`: `{name}` is a tile"


def _adds_axis(element: cst.SubscriptElement) -> bool:
    inner = element.slice
    if isinstance(inner, cst.Slice):
        return inner.lower is None and inner.upper is None and inner.step is None
    value = inner.value if isinstance(inner, cst.Index) else None
    return isinstance(value, cst.Ellipsis) or (
        isinstance(value, cst.Name) and value.value == "None"
    )
