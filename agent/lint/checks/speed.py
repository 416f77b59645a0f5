"""CT301 to CT303: what costs time for nothing."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.host import element_type
from agent.analysis.cutile.kernel_file import KernelFile
from agent.lint.base import Found, Severity, check
from agent.syntax import argument, descendants

FULL = f"{CT}float32"
ANNOTATIONS = frozenset(
    f"{CT}{name}"
    for name in ("Array", "ArrayAnnotation", "Constant", "ConstantAnnotation", "IndexedWithInt64",
                 "ListAnnotation", "ScalarInt64")
)  # fmt: skip
"""What says of a parameter how it is compiled; `typing.Annotated` holds some of them."""


@check(
    "CT301",
    "float32-mma",
    Severity.NOTE,
    mend="where 10 bits of mantissa are enough, cast both operands: `a.astype(ct.tfloat32)`",
    source="TileGym's cuTile playbook, item D; the remark of tileiras 13.4 for sm_90 and sm_100: "
    "'failed to optimize to use Tensor Cores, it is using FMA instructions instead'",
    bad="""
@ct.kernel
def k(x, y):
    a = ct.load(x, (0, 0), (16, 16)).astype(ct.float32)
    ct.store(y, (0, 0), ct.mma(a, a, ct.zeros((16, 16), ct.float32)))  # <-
""",
    good="""
@ct.kernel
def k(x, y):
    a = ct.load(x, (0, 0), (16, 16)).astype(ct.tfloat32)
    ct.store(y, (0, 0), ct.mma(a, a, ct.zeros((16, 16), ct.float32)))
""",
)
def float32_mma(file: KernelFile) -> Iterator[Found]:
    """A product of float32 tiles does not use the tensor cores."""
    for kernel in file.kernels:
        for call in CUTILE.find(file.source, kernel.function.node.body, CUTILE.dots):
            operands = argument(call, 0, "x"), argument(call, 1, "y")
            if all(o is not None and _is_float32(file, kernel, o) for o in operands):
                yield call, f"`{file.code(call)}` multiplies float32 tiles without tensor cores"


def _is_float32(file: KernelFile, kernel: Kernel, operand: cst.BaseExpression) -> bool:
    """Whether a tile is cast to float32, or loaded from an array that every launch gives so."""
    value = file.source.resolve(operand)
    if not isinstance(value, cst.Call):
        return False
    called = file.called(value)
    if called == f"{CT}astype":
        to = argument(value, 1, "dtype")
        return to is not None and file.source.name(to) == FULL
    if isinstance(value.func, cst.Attribute) and value.func.attr.value == "astype":
        to = argument(value, 0, "dtype")
        return to is not None and file.source.name(to) == FULL
    if called == f"{CT}load" and value.args and isinstance(value.args[0].value, cst.Name):
        name = value.args[0].value.value
        given = [launch.arguments.get(name) for launch in kernel.launches]
        types = {element_type(file.source, g) if g is not None else None for g in given}
        return types == {"float32"}
    return False


@check(
    "CT302",
    "dead-parameter",
    Severity.NOTE,
    mend="remove it from the kernel and its launches",
    source="TileGym's cuTile API reference, rule 18",
    bad="""
@ct.kernel
def k(x, n):  # <-
    ct.store(x, (ct.bid(0),), ct.zeros((128,), ct.float32))
""",
    good="""
@ct.kernel
def k(x):
    ct.store(x, (ct.bid(0),), ct.zeros((128,), ct.float32))
""",
)
def dead_parameter(file: KernelFile) -> Iterator[Found]:
    """Every argument is prepared at every launch, used or not, and each value of a constant
    compiles the kernel again."""
    for kernel in file.kernels:
        for parameter in kernel.function.parameters:
            name = parameter.name.value
            used = any(a.references for a in file.source.assignments(parameter.name))
            if not used and not name.startswith("_"):
                yield parameter, f"{kernel.name} does not use its parameter `{name}`"


@check(
    "CT303",
    "default-for-annotation",
    Severity.WARNING,
    mend="write `:` for `=`: `swizzle: ct.Constant[bool]`",
    source="cutile-transformers, whose product takes `swizzle=ct.Constant[bool]`; cuda-tile 1.7 "
    "compiles that as a parameter of run time",
    bad="""
@ct.kernel
def k(x, y, flipped=ct.Constant[bool]):  # <-
    t = ct.load(x, (0,), (128,))
    if flipped:
        t = -t
    ct.store(y, (0,), t)
""",
    good="""
@ct.kernel
def k(x, y, flipped: ct.Constant[bool]):
    t = ct.load(x, (0,), (128,))
    if flipped:
        t = -t
    ct.store(y, (0,), t)
""",
)
def default_for_annotation(file: KernelFile) -> Iterator[Found]:
    """As a default, an annotation says nothing: the parameter has none, so what is given is no
    constant, and both sides of every branch on it are compiled and decided at run time. A launch
    gives every argument, so that a default is never used."""
    for kernel in file.kernels:
        for parameter in kernel.function.parameters:
            default = parameter.default
            if default is not None and _is_annotation(file, default):
                name = parameter.name.value
                code = file.code(default)
                yield parameter, f"`{code}` is the default of `{name}`, and no annotation of it"


def _is_annotation(file: KernelFile, value: cst.BaseExpression) -> bool:
    """Whether a value is one of cuTile's annotations, or `Annotated` with one."""
    named = file.source.name(value)
    behind = file.source.resolve(value)
    if named in ("typing.Annotated", "typing_extensions.Annotated"):
        parts = [*descendants(behind, cst.Name), *descendants(behind, cst.Attribute)]
        return any(file.source.name(part) in ANNOTATIONS for part in parts)
    called = file.called(behind) if isinstance(behind, cst.Call) else None
    return named in ANNOTATIONS or called in ANNOTATIONS
