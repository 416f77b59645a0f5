"""Turn block pointers into tensor descriptors, which the tensor memory accelerator (TMA) serves.

When: a Triton kernel that loads or stores through `tl.make_block_ptr`, on sm_90 or later.
Do: `tl.make_tensor_descriptor` in place of each block pointer, integers for its offsets, which move
    where the pointer was advanced, and `descriptor.load([i, j])` for the `tl.load`. A heuristic
    looks at pointers and strides; where they do not fit, plain pointers with masks are used.
Risk: none to results: what lies past an end is zero. Each program writes its descriptors, which
    short programs do not gain back.
Source: compiled with Triton 3.6 for sm_90, a block pointer never becomes TMA (24 `cp.async`), the
    descriptor does (7 `cp.async.bulk.tensor`). Triton 3.8 calls block pointers deprecated, 3.9 has
    none. NVIDIA reports an attention backward of 92 to 175 TFLOP/s on a B200 with Tile IR.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.arguments import rewritten
from agent.analysis.triton.block_pointers import STORE, BlockPointer, block_pointers
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import language
from agent.playbook.base import Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.common.formatting import STEP, NewCall, Place, laid_out
from agent.rewriting.common.insertion import unused
from agent.rewriting.triton.descriptors import (
    Layout,
    branching,
    check_given,
    conditions,
    descriptor_place,
    fitting,
    only_where,
    replaced,
    with_descriptors,
)
from agent.rewriting.triton.edits import Edit, removing, with_heuristics, with_parameters
from agent.syntax import Source, argument, assigned, keyword, names_in

FIRST_TMA = 90
MAKE = "triton.language.make_tensor_descriptor"
Described = tuple[BlockPointer, Sequence[str]]
"""A block pointer with the names of its descriptor and of its offsets."""


class BlockDescriptors(Optimization):
    """`tl.load(block_ptr)` -> `descriptor.load([i, j])`."""

    name = "block-descriptors"
    title = "descriptors for block pointers"
    backend = "triton"
    family = "tma"
    priority: ClassVar = {KernelClass.COMPUTE: 15, KernelClass.BALANCED: 30, KernelClass.MEMORY: 63}
    expected = "a few to 15 % for large products on sm_90 and later"
    hypothesis = "One thread asks for a whole tile; the others no longer compute addresses."
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, M, N, stride, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0) * BLOCK_M
    tile = tl.make_block_ptr(x_ptr, (M, N), (stride, 1), (row, 0), (BLOCK_M, BLOCK_N), (1, 0))
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for _ in range(0, N, BLOCK_N):
        x = tl.load(tile, boundary_check=(0, 1), padding_option="zero")
        total += tl.sum(x, axis=1)
        tile = tl.advance(tile, (0, BLOCK_N))
    rows = row + tl.arange(0, BLOCK_M)
    tl.store(y_ptr + rows, total, mask=rows < M)


def row_sum(x):
    M, N = x.shape
    y = torch.empty(M, device=x.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 16),)
    row_sum_kernel[grid](x, y, M, N, x.stride(0), BLOCK_M=16, BLOCK_N=64)
    return y
"""
    after = '''\
import torch
import triton
import triton.language as tl


def descriptors_fit(args):
    """Whether the arrays are laid out as tensor descriptors need."""
    return (
        args["x_ptr"].data_ptr() % 16 == 0
        and args["x_ptr"].element_size() * args["stride"] % 16 == 0
        and args["x_ptr"].element_size() * args["BLOCK_N"] >= 16
    )


def allocate(size, alignment, stream):
    """Memory for the descriptors of one launch."""
    return torch.empty(size, device="cuda", dtype=torch.int8)


@triton.heuristics({"DESCRIPTORS": descriptors_fit})
@triton.jit
def row_sum_kernel(
    x_ptr,
    y_ptr,
    M,
    N,
    stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_M
    tile_1 = 0
    if DESCRIPTORS:
        tile_desc = tl.make_tensor_descriptor(x_ptr, [M, N], [stride, 1], [BLOCK_M, BLOCK_N])
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for _ in range(0, N, BLOCK_N):
        if DESCRIPTORS:
            x = tile_desc.load([row, tile_1])
        else:
            at_0 = (row + tl.arange(0, BLOCK_M).to(tl.int64))[:, None]
            at_1 = (tile_1 + tl.arange(0, BLOCK_N).to(tl.int64))[None, :]
            inside = (at_0 >= 0) & (at_0 < M) & (at_1 >= 0) & (at_1 < N)
            x = tl.load(x_ptr + at_0 * stride + at_1, mask=inside, other=0)
        total += tl.sum(x, axis=1)
        tile_1 += BLOCK_N
    rows = row + tl.arange(0, BLOCK_M)
    tl.store(y_ptr + rows, total, mask=rows < M)


def row_sum(x):
    M, N = x.shape
    y = torch.empty(M, device=x.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 16),)
    triton.set_allocator(allocate)
    row_sum_kernel[grid](x, y, M, N, x.stride(0), BLOCK_M=16, BLOCK_N=64)
    return y
'''

    trial = TritonTrial(
        kernel="row_sum_kernel",
        types=(P, P, "i32", "i32", "i32", 16, 64),
        function="row_sum",
        calls=(((3, 1024),), ((5, 77),), ((1, 1),), ((4, 2500),), ((3, 77),), ((20, 132),)),
        types_after=(P, P, "i32", "i32", "i32", 16, 64, True),
        reference="def row_sum(x):\n    return x.sum(dim=1)\n",
    )

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Describe the block pointers of every launched kernel."""
        source = subject.source
        if subject.hardware.interpreted or 0 < subject.hardware.sm < FIRST_TMA:
            where = f"sm_{subject.hardware.sm}" if subject.hardware.sm else "Triton's interpreter"
            raise NotApplicable(f"{where} has no tensor memory accelerator")
        return with_descriptors(source, lambda kernel, fits: _described(source, kernel, fits))


def _described(source: Source, kernel: Kernel, fits: str) -> tuple[dict[cst.CSTNode, Edit], str]:
    """The edits of a kernel, and the function that says whether its arrays fit."""
    if TRITON.has(source, kernel.function.node.body, (MAKE,)):
        raise NotApplicable(f"{kernel.name} makes tensor descriptors already")
    pointers, reasons = block_pointers(source, kernel)
    if not pointers:
        raise NotApplicable("; ".join(reasons[:1]) or f"{kernel.name} makes no block pointers")
    if again := {p.base for p in pointers} & set(rewritten(source, kernel)):
        raise NotApplicable(f"{kernel.name} loads and stores {sorted(again)[0]}: TMA may overtake")
    layouts = [_layout(pointer) for pointer in pointers]
    check_given(source, kernel, layouts)
    tl = language(source, kernel)
    flag = unused(kernel, "DESCRIPTORS")
    edits = with_parameters(source, kernel, [f"{flag}: {tl}.constexpr"], "False")
    edits |= with_heuristics(source, kernel, {flag: fits})
    uses: dict[cst.SimpleStatementLine, dict[cst.Call, Described]] = {}
    above: dict[cst.For | cst.While, list[str]] = {}
    for pointer in pointers:
        names = _names(kernel, pointer)
        place = _loop_above(source, pointer)
        descriptor = _descriptor(source, pointer, place or pointer.made, names[0], tl)
        starts = [
            f"{name} = {start}"
            for name, start in zip(names[1:], pointer.starts, strict=True)
            if name != start
        ]
        edits[pointer.made] = _written(starts, [] if place else [only_where(flag, [descriptor])])
        if place is not None:
            above.setdefault(place, []).append(descriptor)
        for line, by in pointer.steps:
            moved = [f"{n} += {b}" for n, b in zip(names[1:], by, strict=True) if b != "0"]
            edits[line] = _written(moved)
        for call in pointer.accesses:
            uses.setdefault(_line_of(source, call), {})[call] = (pointer, names)
    for line, calls in uses.items():
        if line in edits:
            raise NotApplicable(f"line {source.line(line)} loads and moves on in one statement")
        edits[line] = _accessing(source, kernel, line, calls, tl, flag)
    for place, lines in above.items():
        edits[place] = _above(only_where(flag, lines))
    return edits, fitting(fits, conditions(source, kernel, layouts))


def _layout(pointer: BlockPointer) -> Layout:
    *strides, inner = ((stride,) if stride != "1" else () for stride in pointer.strides)
    return Layout(pointer.base, pointer.offsets, tuple(strides), inner, pointer.block[-1])


def _names(kernel: Kernel, pointer: BlockPointer) -> list[str]:
    """Of the descriptor, and of its offsets, where those need names of their own."""
    stem = _stem(pointer)
    own = [f"{stem}_{axis}" for axis in range(len(pointer.shape))]
    offsets = [pointer.fixed_start(kernel, n) or unused(kernel, own[n]) for n in range(len(own))]
    return [unused(kernel, f"{stem}_desc"), *offsets]


def _stem(pointer: BlockPointer) -> str:
    return pointer.name.removesuffix("_ptr").removesuffix("_block")


def _loop_above(source: Source, pointer: BlockPointer) -> cst.For | cst.While | None:
    """The outermost loop around a block pointer that changes nothing its descriptor says.

    What is made on a condition stays below it: there may be no array otherwise.
    """
    said = {pointer.base, *pointer.shape, *pointer.strides, *pointer.block}
    said = said.union(*map(names_in, pointer.offsets))
    found = None
    for around in source.ancestors(pointer.made):
        if isinstance(around, cst.FunctionDef | cst.If):
            break
        if isinstance(around, cst.For | cst.While):
            if said & {name for target, _ in assigned(around) for name in names_in(target)}:
                break
            found = around
    return found


def _descriptor(
    source: Source, pointer: BlockPointer, place: cst.CSTNode, name: str, tl: str
) -> str:
    """The statement that makes a descriptor, to be written at a place."""
    base = " + ".join([pointer.base, *(source.code(offset) for offset in pointer.offsets)])
    strides = [*pointer.strides[:-1], "1"]
    sizes = [f"[{', '.join(s)}]" for s in (pointer.shape, strides, pointer.block)]
    made = NewCall(f"{tl}.make_tensor_descriptor", [base, *sizes])
    where = descriptor_place(source, place, name)
    return f"{name} = {laid_out(made, where)}"


def _accessing(
    source: Source,
    kernel: Kernel,
    line: cst.SimpleStatementLine,
    calls: Mapping[cst.Call, Described],
    tl: str,
    flag: str,
) -> Edit:
    """The edit of a line with loads or a store: through descriptors, or with plain pointers."""
    described: dict[cst.Call, str] = {}
    plain: dict[cst.Call, str] = {}
    setup: dict[str, None] = {}
    nested_first = sorted(calls, key=lambda call: source.name(call.func) == STORE)
    for call in nested_first:
        pointer, names = calls[call]
        prefix = f"{_stem(pointer)}_" if len(calls) > 1 else ""
        axes = [unused(kernel, f"{prefix}at_{axis}") for axis in range(len(names) - 1)]
        inside = unused(kernel, f"{prefix}inside")
        setup |= dict.fromkeys(_places(pointer, names, axes, inside, tl))
        addresses = " + ".join([
            pointer.base,
            *(source.code(offset) for offset in pointer.offsets),
            *(
                axis if stride == "1" else f"{axis} * {stride}"
                for axis, stride in zip(axes, pointer.strides, strict=True)
            ),
        ])  # fmt: skip
        hints = [
            f"{name}={source.code(given)}"
            for name in ("cache_modifier", "eviction_policy")
            if (given := keyword(call, name)) is not None
        ]
        at = f"[{', '.join(names[1:])}]"
        if source.name(call.func) == STORE:
            value = argument(call, 1, "value")
            if value is None or pointer.transposed:
                raise NotApplicable(f"line {source.line(call)} stores a tile that is transposed")
            code, element = (
                source.module.code_for_node(replaced(value, texts)) for texts in (described, plain)
            )
            described[call] = f"{names[0]}.store({at}, {code})"
            if not isinstance(value, cst.Name | cst.Call):
                element = f"({element})"
            cast = f".to({pointer.base}.dtype.element_ty)"
            element = element.removesuffix(cast) + cast
            stored = NewCall(f"{tl}.store", [addresses, element, f"mask={inside}", *hints])
            plain[call] = _written_in(source, line, call, stored)
        else:
            turned = ".T" if pointer.transposed else ""
            described[call] = f"{names[0]}.load({at}){turned}"
            loaded = NewCall(f"{tl}.load", [addresses, f"mask={inside}", "other=0", *hints])
            plain[call] = _written_in(source, line, call, loaded, len(turned)) + turned
    return branching(line, described, flag, plain, list(setup))


def _written_in(
    source: Source, line: cst.SimpleStatementLine, call: cst.Call, new: NewCall, behind: int = 0
) -> str:
    """What a call becomes where its line is one of `else:`; a load in a store is not laid out."""
    if any(isinstance(around, cst.Arg) for around in source.ancestors(call)):
        return str(new)
    column, place = source.place(line).start.column + STEP, Place.of(source, call)
    return laid_out(new, Place(column, column, place.before + STEP, place.behind + behind))


def _places(
    pointer: BlockPointer, names: Sequence[str], axes: Sequence[str], inside: str, tl: str
) -> Iterator[str]:
    """The lines that compute where the elements of a block lie, and which the array has."""
    expanded = ("[:, None]", "[None, :]") if len(axes) == 2 else ("",)
    for axis, name, extent, how in zip(axes, names[1:], pointer.block, expanded, strict=True):
        at = f"{tl}.arange(0, {extent}).to({tl}.int64)"
        at = at if name == "0" else f"{name} + {at}"
        yield f"{axis} = ({at}){how}" if how else f"{axis} = {at}"
    bounds = (
        f"({axis} < {length})" if name.isdigit() else f"({axis} >= 0) & ({axis} < {length})"
        for axis, name, length in zip(axes, names[1:], pointer.shape, strict=True)
    )
    yield f"{inside} = {' & '.join(bounds)}"


def _written(lines: Sequence[str], more: Sequence[cst.BaseStatement] = ()) -> Any:
    """The edit that writes statements in place of one."""
    added = [cst.ensure_type(cst.parse_statement(x), cst.SimpleStatementLine) for x in lines]

    def edit(line: cst.SimpleStatementLine) -> cst.FlattenSentinel[cst.BaseStatement]:
        lines: list[Any] = [*added, *more]
        lines[0] = lines[0].with_changes(leading_lines=line.leading_lines)
        return cst.FlattenSentinel(lines)

    return edit if added or more else removing


def _above(statement: cst.If) -> Edit:
    """The edit that writes a statement above a loop."""

    def edit(loop: cst.For | cst.While) -> Any:
        first = statement.with_changes(leading_lines=loop.leading_lines)
        return cst.FlattenSentinel([first, loop.with_changes(leading_lines=())])

    return edit


def _line_of(source: Source, call: cst.Call) -> cst.SimpleStatementLine:
    return next(a for a in source.ancestors(call) if isinstance(a, cst.SimpleStatementLine))
