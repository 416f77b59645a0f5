"""CT101 to CT106: what `ct.launch` refuses."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.host import constant
from agent.analysis.cutile.kernel_file import KernelFile
from agent.lint.base import Found, Severity, check
from agent.lint.space import SEARCH
from agent.syntax import argument, descendants

LAUNCHER = "confirmed with `ct.launch` of cuda-tile 1.7"
MOST_DIMENSIONS = 3
INTEGERS = (f"{CT}cdiv", "triton.cdiv", "math.ceil", "math.prod", "builtins.int", "builtins.len",
            "builtins.max", "builtins.min")  # fmt: skip
"""Functions that give one number."""
TORCH_TYPES = frozenset(
    f"torch.{name}"
    for name in (
        "bfloat16", "bool", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "int8",
        "int16", "int32", "int64", "uint8",
    )
)  # fmt: skip
TILE_TYPES = frozenset(
    f"{CT}{name.removeprefix('torch.')}" for name in TORCH_TYPES - {"torch.bool"}
) | {f"{CT}bool_"}


def handed_over(
    file: KernelFile, position: int, keyword: str, function_position: int, function_keyword: str
) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
    """What launches give for a parameter, and what a search's function of a config gives for it."""
    for call in file.calls(f"{CT}launch"):
        value = argument(call, position, keyword)
        if value is not None:
            yield call, file.source.resolve(value)
    for call in file.calls(SEARCH):
        value = file.result_of(argument(call, function_position, function_keyword))
        if value is not None:
            yield call, value


def arguments(file: KernelFile) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
    """The tuples of arguments of launches and searches."""
    return handed_over(file, 3, "kernel_args", 4, "args_fn")


@check(
    "CT101",
    "grid",
    Severity.ERROR,
    mend="give a tuple of one to three integers: `(ct.cdiv(n, 128),)`",
    source=f"TileGym's cuTile API reference, rule 11; {LAUNCHER}",
    bad="""
@ct.kernel
def k(x):
    pass

def run(x):
    ct.launch(torch.cuda.current_stream(), ct.cdiv(x.shape[0], 128), k, (x,))  # <-
    ct.launch(torch.cuda.current_stream(), (1, 1, 1, 1), k, (x,))  # <-
""",
    good="""
@ct.kernel
def k(x):
    pass

def run(x):
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 128),), k, (x,))
""",
)
def grid(file: KernelFile) -> Iterator[Found]:
    """The grid is a tuple of at most three integers; `/` gives a float."""
    for _, value in handed_over(file, 1, "grid", 2, "grid_fn"):
        text = file.code(value)
        match value:
            case cst.Tuple(elements=elements):
                starred = any(isinstance(e, cst.StarredElement) for e in elements)
                if len(elements) > MOST_DIMENSIONS and not starred:
                    yield value, f"the grid `{text}` has {len(elements)} dimensions"
                for element in elements:
                    if _is_fraction(file, element.value):
                        yield element.value, f"`{file.code(element.value)}` is a float"
            case cst.List() | cst.ListComp() | cst.Lambda() | cst.Integer():
                yield value, f"the grid `{text}` is no tuple"
            case cst.BinaryOperation(operator=cst.FloorDivide()):
                yield value, f"the grid `{text}` is a number and no tuple"
            case cst.Call() if file.called(value) in INTEGERS:
                yield value, f"the grid `{text}` is a number and no tuple"


def _is_fraction(file: KernelFile, expression: cst.BaseExpression) -> bool:
    value = file.source.resolve(expression)
    return isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Divide)


@check(
    "CT102",
    "unsupported-argument",
    Severity.ERROR,
    mend="give a tensor of one element and a constant that says whether to use it for an optional "
    "tensor, an integer for a mode, and let the kernel take element types from its arrays",
    source=f"TileGym's cuTile API reference, rules 5 and 16; {LAUNCHER}",
    bad="""
@ct.kernel
def k(x, bias, mode: ct.Constant[int]):
    pass

def run(x):
    ct.launch(torch.cuda.current_stream(), (1,), k, (x, None, "mean"))  # <-
""",
    good="""
@ct.kernel
def k(x, bias, has_bias: ct.Constant[bool], mode: ct.Constant[int]):
    pass

def run(x):
    unused = x.new_empty(1)
    ct.launch(torch.cuda.current_stream(), (1,), k, (x, unused, False, 0))
""",
)
def unsupported_argument(file: KernelFile) -> Iterator[Found]:
    """A kernel takes tensors, numbers, and tuples of them: not None, no string, no element type.
    The arguments stand in a tuple."""
    for _, value in arguments(file):
        if isinstance(value, cst.List | cst.ListComp | cst.Dict):
            yield value, f"the arguments `{file.code(value)}` stand in no tuple"
        for element in value.elements if isinstance(value, cst.Tuple) else ():
            what = _refused(file, element.value)
            if what is not None:
                yield element.value, f"`{file.code(element.value)}` gives the kernel {what}"


def _refused(file: KernelFile, expression: cst.BaseExpression) -> str | None:
    """What an argument is, or may be, that no kernel takes."""
    value = file.source.resolve(expression)
    if isinstance(value, cst.IfExp):  # names in it may be guarded by its condition
        sides = (value.body, value.orelse)
        return next((f for s in sides if (f := _refused_itself(file, s))), None)
    return _refused_itself(file, value)


def _refused_itself(file: KernelFile, value: cst.BaseExpression) -> str | None:
    match value:
        case cst.Name(value="None"):
            return "None"
        case cst.SimpleString() | cst.FormattedString() | cst.ConcatenatedString():
            return "a string"
    if isinstance(value, cst.Attribute | cst.Name):
        named = file.source.name(value)
        if named in TORCH_TYPES or named in TILE_TYPES:
            return "an element type"
    return None


@check(
    "CT103",
    "argument-count",
    Severity.ERROR,
    mend="give one value for every parameter, in order; defaults do not count",
    source=LAUNCHER,
    bad="""
@ct.kernel
def k(x, y, size: ct.Constant[int] = 128):
    pass

def run(x, y):
    ct.launch(torch.cuda.current_stream(), (1,), k, (x, y))  # <-
""",
    good="""
@ct.kernel
def k(x, y, size: ct.Constant[int] = 128):
    pass

def run(x, y):
    ct.launch(torch.cuda.current_stream(), (1,), k, (x, y, 128))
""",
)
def argument_count(file: KernelFile) -> Iterator[Found]:
    """A launch gives every parameter of the kernel a value; a default is not used."""
    for kernel in file.kernels:
        wanted = len(kernel.function.parameters)
        for launch in kernel.launches:
            given = argument(launch.node, 3, "kernel_args")
            values = file.source.resolve(given) if given is not None else None
            if not isinstance(values, cst.Tuple):
                continue
            if any(isinstance(e, cst.StarredElement) for e in values.elements):
                continue
            if len(values.elements) != wanted:
                count = f"{len(values.elements)} arguments for {wanted} parameters"
                yield launch.node, f"{count} of {kernel.name}"


@check(
    "CT104",
    "kernel-called",
    Severity.ERROR,
    mend="launch it with `ct.launch(stream, grid, kernel, args)`; a function that kernels call "
    "needs no decorator",
    source=f"TileGym's cuTile API reference, rule 8; {LAUNCHER} and its compiler",
    bad="""
@ct.kernel
def relu(t):
    return ct.maximum(t, 0.0)

@ct.kernel
def k(x):
    ct.store(x, (0,), relu(ct.load(x, (0,), (128,))))  # <-

def run(x):
    k[(1,)](x)  # <-
""",
    good="""
def relu(t):
    return ct.maximum(t, 0.0)

@ct.kernel
def k(x):
    ct.store(x, (0,), relu(ct.load(x, (0,), (128,))))

def run(x):
    ct.launch(torch.cuda.current_stream(), (1,), k, (x,))
""",
)
def kernel_called(file: KernelFile) -> Iterator[Found]:
    """Nobody calls a kernel: neither the host nor another kernel."""
    kernels = {kernel.function for kernel in file.kernels}
    for call in file.source.calls:
        target = call.func.value if isinstance(call.func, cst.Subscript) else call.func
        function = file.source.function_of(target)
        if function in kernels and isinstance(target, cst.Name):
            yield call, f"`{file.code(call)}` calls the kernel {function.name}"


@check(
    "CT105",
    "not-a-kernel",
    Severity.ERROR,
    mend="decorate the function with `@ct.kernel`",
    source=LAUNCHER,
    bad="""
@ct.kernel
def other(x):
    pass

def k(x):
    pass

def run(x):
    ct.launch(torch.cuda.current_stream(), (1,), k, (x,))  # <-
""",
    good="""
@ct.kernel
def k(x):
    pass

def run(x):
    ct.launch(torch.cuda.current_stream(), (1,), k, (x,))
""",
)
def not_a_kernel(file: KernelFile) -> Iterator[Found]:
    """What is launched is a kernel."""
    for call in file.calls(f"{CT}launch"):
        given = argument(call, 2, "kernel")
        function = file.source.function_of(given) if given is not None else None
        if function is None or function.node.decorators:
            continue
        if file.source.decorator(function, CUTILE.decorator) is None:
            yield call, f"{function.name} is launched and is no kernel"


@check(
    "CT106",
    "string-constant",
    Severity.ERROR,
    mend="number the modes, and annotate the parameter `ct.Constant[int]`: an IntEnum gives the "
    "numbers names",
    source="TileGym's cuTile API reference, rule 16; the compiler of cuda-tile 1.7 takes no string "
    "for a constant, 'Unexpected constant value type <class 'str'>'; a calling convention that "
    "does is switched off in it",
    bad="""
@ct.kernel
def k(x, mode: ct.Constant[str]):  # <-
    if mode == "double":
        ct.store(x, (0,), ct.load(x, (0,), (128,)) * 2)
""",
    good="""
DOUBLE = 1

@ct.kernel
def k(x, mode: ct.Constant[int]):
    if mode == DOUBLE:
        ct.store(x, (0,), ct.load(x, (0,), (128,)) * 2)
""",
)
def string_constant(file: KernelFile) -> Iterator[Found]:
    """A constant is an integer, a float, a truth value, or a tuple of them. What is annotated as a
    string can be given nothing that fits, whoever launches the kernel."""
    for kernel in file.kernels:
        for given in kernel.function.parameters:
            name = given.name.value
            launched = [launch.arguments.get(name) for launch in kernel.launches]
            numbers = [v is not None and constant(file.source, v) is not None for v in launched]
            if _is_string(file, given) and not (numbers and all(numbers)):
                yield given, f"`{name}` of {kernel.name} is annotated as a constant string"


def _is_string(file: KernelFile, given: cst.Param) -> bool:
    """Whether a parameter is annotated `ct.Constant[str]`, or with a choice of strings."""
    annotation = file.source.resolve(given.annotation.annotation) if given.annotation else None
    if isinstance(annotation, cst.SimpleString):
        return str(annotation.raw_value).endswith("Constant[str]")
    match annotation:
        case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index(value=kind))]):
            if file.source.name(annotation) != CUTILE.constant:
                return False
            if file.source.name(kind) in ("typing.Literal", "typing_extensions.Literal"):
                return any(True for _ in descendants(kind, cst.SimpleString))
            return file.source.name(kind) == "builtins.str" or file.source.code(kind) == '"str"'
    return False
