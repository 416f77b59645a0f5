"""Exchange the operands of a product whose tile has few rows: C^T = B^T A^T.

When: a cuTile kernel whose tile of a matrix product has fewer than 64 rows and at least 64 columns,
    as for few tokens and a large weight, on sm_90 or sm_100. The tensor cores of these generations
    take 64 rows or more; below that cuda-tile multiplies with the instructions of sm_80.
Do: `ct.transpose(ct.mma(ct.transpose(y), ct.transpose(x), ct.transpose(acc)))` for
    `ct.mma(x, y, acc)`. A helper decides by the shapes of the tiles, so that a kernel which tunes
    its tiles gets it for those sizes alone. The transposes around the accumulator cancel out: the
    code is that of an accumulator which is kept transposed in the loop.
Risk: changes rounding: what is summed is the same, in another order. Sums of 8-bit floats keep
    fewer bits on the tensor cores of sm_90 than on those of sm_80.
Source: `swap_ab` of TileGym's template for 8-bit products, in cuTile autotuning. Compiled with
    cuda-tile 1.7, a bf16 product with tiles of 16 x 128 x 128 falls from 754 instructions with 64
    HMMA to 425 with 16 HGMMA for sm_90, and from 816 with 64 HMMA to 616 with 8 UTCHMMA for sm_100;
    so do 32 rows, and 8-bit floats. With 64 rows and more either order is the same kind of
    instruction, and with fewer than 64 columns none is gained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.host import constant
from agent.analysis.cutile.listed_sizes import listed_sizes
from agent.analysis.cutile.spelling import tile_module
from agent.analysis.cutile.tile_shapes import Edges, edges_of
from agent.launches import ObservedLaunch, values_of
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import F16, TILE_PRODUCT, TileTrial
from agent.rewriting.common.insertion import free_name
from agent.rewriting.cutile.insertion import before_kernels
from agent.syntax import Function, Source, argument, assigned, keyword

MMA = f"{CT}mma"
FEWEST = 64
"""Rows of a tile that the tensor cores of sm_90 and sm_100 take."""
GENERATIONS = range(90, 120)
"""Those that have such tensor cores. sm_120 multiplies with the instructions of sm_80."""


class SwappedOperands(Optimization):
    """`ct.mma(x, y, acc)` -> `product(x, y, acc)`, which exchanges x and y where x has few rows."""

    name = "swapped-operands"
    title = "operands exchanged"
    backend = "cutile"
    family = "operands"
    priority: ClassVar = {
        KernelClass.MEMORY: 0,
        KernelClass.BALANCED: -20,
        KernelClass.COMPUTE: -20,
    }
    expected = "16 rows in bf16 on an H200: 1.06x and 1.02x; TileGym: 10-50 % in 8 bits"
    hypothesis = (
        "Tiles of few rows are no rows but columns for the tensor cores, which take any few."
    )
    changes_rounding = REORDERED
    example: ClassVar[Params] = {}
    before = TILE_PRODUCT.replace("M, N, K = 128", "M, N, K = 16")
    after = before.replace(
        "@ct.kernel\n",
        '''\
def product(x, y, acc):
    """`ct.mma`; where x has too few rows for the tensor cores, of the transposed matrices."""
    if x.ndim == 2 and x.shape[0] < 64 and y.shape[1] >= 64:
        result = ct.transpose(ct.mma(ct.transpose(y), ct.transpose(x), ct.transpose(acc)))
    else:
        result = ct.mma(x, y, acc)
    return result


@ct.kernel
''',
    ).replace("ct.mma(left, right, sum)", "product(left, right, sum)")

    trial = TileTrial(kernel="matmul_kernel", arguments=((F16, 2), (F16, 2), (F16, 2)))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """One: exchanged, where something was launched that it may change."""
        self.apply(subject, {})
        if not _products(subject.source, subject.launches):
            raise NotApplicable(
                f"what was launched multiplies tiles of {FEWEST} rows and more, or of fewer than "
                f"{FEWEST} columns"
            )
        return [{}]

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Every product of the launched kernels whose tile has few rows, or may have."""
        source, sm = subject.source, subject.hardware.sm
        if sm and sm not in GENERATIONS:
            raise NotApplicable(f"sm_{sm} multiplies tiles of few rows as any other")
        products = _products(source)
        if not products:
            raise NotApplicable(
                f"no launched kernel has a `ct.mma(x, y, acc)` of tiles that may have fewer than "
                f"{FEWEST} rows and {FEWEST} columns or more{_known_rows(source)}"
            )
        name = free_name(source, "product")
        tile = tile_module(source)
        helper = before_kernels(source, _helper(tile, name), module=tile)
        return source.rewrite({source.module: helper, **dict.fromkeys(products, _called(name))})


def _helper(tile: str, name: str) -> str:
    return (
        f"def {name}(x, y, acc):\n"
        f'    """`{tile}.mma`; where x has too few rows for the tensor cores, of the transposed '
        'matrices."""\n'
        f"    if x.ndim == 2 and x.shape[0] < {FEWEST} and y.shape[1] >= {FEWEST}:\n"
        f"        result = {tile}.transpose("
        f"{tile}.mma({tile}.transpose(y), {tile}.transpose(x), {tile}.transpose(acc)))\n"
        "    else:\n"
        f"        result = {tile}.mma(x, y, acc)\n"
        "    return result\n"
    )


def _called(name: str) -> Callable[[cst.CSTNode], cst.CSTNode]:
    return lambda call: cst.ensure_type(call, cst.Call).with_changes(func=cst.Name(name))


def _products(source: Source, launches: Sequence[ObservedLaunch] = ()) -> list[cst.Call]:
    """The products of two tiles and an accumulator; none of a function that exchanges some.

    Args:
        source: the file.
        launches: they settle what the text leaves open, as a size that a tuner chooses.
    """
    return [call for kernel, call in _sums(source) if _gains(source, kernel, call, launches)]


def _sums(source: Source) -> Iterator[tuple[Kernel, cst.Call]]:
    """The products that can be exchanged, whatever their sizes, each with a kernel that has it."""
    reached = {
        f.name: (f, kernel)
        for kernel in CUTILE.chosen(source)
        for f in CUTILE.reached(source, kernel)
    }
    for function, kernel in reached.values():
        if not _exchanges(source, function):
            for call in CUTILE.find(source, function.node.body, (MMA,)):
                if len(call.args) == 3 and keyword(call, "use_fast_acc") is None:
                    yield kernel, call


def _known_rows(source: Source) -> str:
    """For a refusal: the rows of the tiles, where all that they may have are known."""
    told: dict[str, None] = {}
    for kernel, call in _sums(source):
        rows, _ = _extents(source, kernel, call, ())
        if rows and min(rows) >= FEWEST:
            sizes = " or ".join(str(n) for n in sorted(set(rows)))
            told[f"those at line {source.line(call)} have {sizes} rows"] = None
    return f": {'; '.join(told)}" if told else ""


def _exchanges(source: Source, function: Function) -> bool:
    """Whether a function transposes a product right where it makes it."""
    products = set(CUTILE.find(source, function.node.body, (MMA,)))
    transposed = CUTILE.find(source, function.node.body, (f"{CT}transpose",))
    return any(argument(call, 0, "x") in products for call in transposed)


def _gains(
    source: Source, kernel: Kernel, call: cst.Call, launches: Sequence[ObservedLaunch]
) -> bool:
    """Whether the shapes that are known let a product gain; a size that is open lets it."""
    if any(edges is not None and len(edges) != 2 for edges in _shapes(source, kernel, call)):
        return False
    rows, columns = _extents(source, kernel, call, launches)
    return (not rows or min(rows) < FEWEST) and (not columns or max(columns) >= FEWEST)


def _shapes(source: Source, kernel: Kernel, call: cst.Call) -> list[Edges | None]:
    """The edges of both operands, as far as the code tells; of the result where it does not."""
    operands = (argument(call, 0, "x"), argument(call, 1, "y"))
    # No operand is a scalar: where that is what it looks like, it is a helper's parameter.
    known = [(tile is not None and edges_of(source, tile)) or None for tile in operands]
    result = _edges_of_sum(source, kernel, call)
    return [edges or result for edges in known]


def _extents(
    source: Source, kernel: Kernel, call: cst.Call, launches: Sequence[ObservedLaunch]
) -> tuple[Sequence[int], Sequence[int]]:
    """The rows and columns that the result of a product may have; none where that is open."""
    left, right = (
        () if edges is None or len(edges) != 2 else _sizes(source, kernel, edges[place], launches)
        for edges, place in zip(_shapes(source, kernel, call), (0, 1), strict=True)
    )
    return left, right


def _edges_of_sum(source: Source, kernel: Kernel, call: cst.Call) -> Edges | None:
    """The edges of a product by what its sum begins with, in the kernel itself."""
    total = argument(call, 2, "acc")
    begins = [
        value
        for target, value in assigned(kernel.function.node.body)
        if isinstance(total, cst.Name)
        and isinstance(target, cst.Name)
        and target.value == total.value
        and isinstance(value, cst.Call)
        and source.name(value.func) in (f"{CT}full", f"{CT}zeros")
    ]
    return edges_of(source, begins[0]) if len(begins) == 1 else None


def _sizes(
    source: Source, kernel: Kernel, edge: cst.BaseExpression, launches: Sequence[ObservedLaunch]
) -> Sequence[int]:
    """What an edge is in each launch and config; empty where one leaves it open."""
    if isinstance(edge, cst.Name) and edge.value in kernel.constants:
        seen = values_of(launches, kernel.name, edge.value)
        return seen or listed_sizes(source, kernel, edge.value)
    known = constant(source, edge)
    return [int(known.value)] if known is not None else ()
