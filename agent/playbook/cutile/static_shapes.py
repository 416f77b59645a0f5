"""Make the length of rows a constant of the compilation.

When: a cuTile kernel on arrays of two or more dimensions, whose last extent is a feature or hidden
    size of a model: of few values, while the number of rows varies.
Do: annotate the arrays with `Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(-1,))]`;
    also vectors that every block reads in tiles of a row's length, as a norm's weights are.
Risk: none to results: the launch passes the extent on, whatever it is. Every new extent is
    compiled, for some tenths of a second. What a kernel computes from an extent alone is computed
    when it is compiled: where that fails for some, as 1 / (n - 1) for rows of one, it stays.
Source: the documentation of cuda.tile (since 1.5). Compiled with cuda-tile 1.7, an rms_norm of
    float16 rows of 4096 in tiles of 1024 falls from 1768 to 293 instructions and from 112 to 47
    registers for sm_80, and from 56784 to 25712 bytes of shared memory for sm_90: loops of known
    length are not prepared for others, and whole tiles are not checked. A copy of rows falls from
    68 to 36 instructions for sm_80 and from 94 to 62 for sm_90. No public source gives a time. Of
    an rms_norm of bfloat16 rows of 4096 in one tile, loaded without TMA, the four loads of weights
    wait for one another for sm_90 until the weights are of known length, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import libcst as cst

from agent.analysis.common.absent import may_be_none, may_be_number
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.row_lengths import (
    as_long_as_rows,
    read_under_conditions,
    undefined_for_some,
)
from agent.analysis.cutile.spelling import tile_module
from agent.analysis.cutile.uses import Uses
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.common.insertion import first_kernel, free_name
from agent.rewriting.cutile.insertion import after_imports, with_import
from agent.syntax import Source, descendants


class StaticShapes(Optimization):
    """`x` -> `x: StaticRow`, where StaticRow says that the last extent is a constant."""

    name = "static-shapes"
    title = "static row length"
    backend = "cutile"
    family = "static-shapes"
    priority: ClassVar = {
        KernelClass.MEMORY: 60,
        KernelClass.BALANCED: 90,
        KernelClass.COMPUTE: 150,
    }
    expected = "35 to 83 % fewer instructions in row kernels"
    hypothesis = "What the compiler knows of a row's length, no thread has to compute or to check."
    example: ClassVar[Params] = {"dimension": -1}
    sweep = (example,)
    before = """\
import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def scale_kernel(x, y, factor: float):
    row = ct.bid(0)
    for i in range(ct.num_tiles(x, axis=1, shape=(1, TILE))):
        tile = ct.load(x, index=(row, i), shape=(1, TILE))
        ct.store(y, index=(row, i), tile=tile * factor)


def scale(x, factor):
    y = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), scale_kernel, (x, y, factor))
    return y
"""
    after = (
        before.replace("import cuda", "from typing import Annotated\n\nimport cuda")
        .replace(
            "import torch\n",
            "import torch\n\n"
            "StaticRow = Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(-1,))]\n",
        )
        .replace("(x, y, factor: float)", "(x: StaticRow, y: StaticRow, factor: float)")
    )

    trial = TileTrial(
        kernel="scale_kernel",
        arguments=((F32, 2), (F32, 2), 2.0),
        arguments_after=((F32, 2, (None, 4096)), (F32, 2, (None, 4096)), 2.0),
        fp32_only=True,
    )

    def apply(self, subject: Subject, params: Params) -> str:
        """Annotate the arrays of the launched kernels that nothing is said of."""
        source = subject.source
        found = of_each(
            CUTILE.chosen(source),
            lambda kernel: _arrays(source, kernel),
            "no launched kernel has an array of two or more dimensions without an annotation",
        )
        tile, alias = tile_module(source), free_name(source, "StaticRow")
        dims = f"static_shape_dims=({params['dimension']},)"
        line = f"{alias} = Annotated[{tile}.Array, {tile}.ArrayAnnotation({dims})]\n"
        edits = {p: _annotating(alias) for parameters in found for p in parameters}
        below = after_imports(source, line, module=tile)
        if _has_annotated(source):
            return source.rewrite({**edits, source.module: below})
        above = with_import(source, "from typing import Annotated")
        return source.rewrite({**edits, source.module: lambda module: above(below(module))})


def _arrays(source: Source, kernel: Kernel) -> list[cst.Param]:
    """A kernel's arrays of several dimensions, and flat ones that are as long as their rows.

    An annotation of an array takes no `None` and no number, which a launch may give in its place:
    neither where the launch shows it, nor where the kernel asks before it reads the array.
    """
    if (place := undefined_for_some(source, kernel)) is not None:
        at = f"line {source.line(place)} of {kernel.name}"
        raise NotApplicable(f"{at} computes from a length alone what some lengths have not")
    uses = Uses(source, kernel)
    given = {
        name
        for launch in kernel.launches
        for name, value in launch.arguments.items()
        if may_be_none(source, value) or may_be_number(source, value)
    }
    asked = read_under_conditions(source, kernel)
    arrays = [
        p
        for p in kernel.function.parameters
        if p.name.value in uses.arrays - uses.lists - given - asked and _is_open(source, p)
    ]
    rows = [p for p in arrays if (uses.ndim(p.name.value) or 0) > 1]
    if not rows:
        return []
    shared = as_long_as_rows(source, kernel, {p.name.value for p in rows}) - uses.stored
    return [p for p in arrays if p in rows or p.name.value in shared]


def _is_open(source: Source, parameter: cst.Param) -> bool:
    annotation = parameter.annotation
    return annotation is None or (
        isinstance(annotation.annotation, cst.Name | cst.Attribute)
        and source.name(annotation.annotation) == f"{CT}Array"
    )


def _annotating(alias: str) -> Callable[[cst.Param], cst.Param]:
    return lambda p: p.with_changes(annotation=cst.Annotation(cst.Name(alias)))


def _has_annotated(source: Source) -> bool:
    """Whether the file imports `Annotated` from typing, by that name, above its kernels."""
    return any(
        isinstance(imported.module, cst.Name)
        and imported.module.value == "typing"
        and not isinstance(imported.names, cst.ImportStar)
        and any(source.code(alias) in ("Annotated", "Annotated,") for alias in imported.names)
        for statement in source.module.body[: first_kernel(CUTILE, source)]
        if isinstance(statement, cst.SimpleStatementLine)
        for imported in descendants(statement, cst.ImportFrom)
    )
