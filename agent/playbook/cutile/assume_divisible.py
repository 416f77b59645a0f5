"""Tell the compiler that a stride or an offset is a multiple of 16, where it is.

When: a cuTile kernel that computes the indices of `ct.gather` or `ct.scatter` from an integer that
    it is handed, such as a row's stride. What cuda-tile knows of an array, it does not know of a
    scalar: it loads and stores one element at a time.
Do: hand the kernel a constant, `16 if stride % 16 == 0 else 1`, and let it say
    `stride = ct.assume_divisible_by(stride, STRIDE_DIVISOR)`. The host decides at every launch, so
    that the assumption always holds.
Risk: none to results. The kernel is compiled once more for the first stride of the other kind.
Source: the documentation of cuda.tile; TileGym's cuTile playbook, item K, on alignment that a
    computed offset loses. Compiled with cuda-tile 1.7, a float32 gather and scatter of 1024
    elements a row has 8 LDG and 8 STG for sm_80, sm_90 and sm_100, and 2 LDG.128 and 2 STG.128 with
    the assumption; for sm_80 33 instructions instead of 63. With a divisor of 1 nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.purity import is_pure
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile import host
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.spelling import tile_module
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.common.insertion import free_name
from agent.rewriting.common.interface import Interface
from agent.syntax import Edits, Source, argument, assigned, positional

DIVISOR = 16
"""cuda-tile assumes the same of an array's strides where they are multiples of it."""
INDEXED = (f"{CT}gather", f"{CT}scatter")
SHAPING = tuple(f"{CT}{name}" for name in ("astype", "broadcast_to", "expand_dims", "reshape"))
"""What leaves the values of a tile of indices as they are."""


class AssumeDivisible(OfEachKernel):
    """`stride` -> `ct.assume_divisible_by(stride, STRIDE_DIVISOR)`, decided at the launch."""

    name = "assume-divisible"
    title = "divisible strides"
    backend = "cutile"
    family = "alignment"
    priority: ClassVar = {
        KernelClass.MEMORY: 50,
        KernelClass.BALANCED: 180,
        KernelClass.COMPUTE: 160,
    }
    expected = "a quarter of the load and store instructions; its time is not measured"
    otherwise = "no index of a gather or scatter is computed from an integer parameter"
    hypothesis = "Addresses that are known to be aligned are loaded 16 bytes at a time."
    example: ClassVar[Params] = {"divisor": DIVISOR}
    sweep = (example,)
    before = """\
import cuda.tile as ct
import torch


@ct.kernel
def copy_kernel(x, y, stride, N: ct.Constant[int]):
    offsets = ct.bid(0) * stride + ct.arange(N, dtype=ct.int32)
    ct.scatter(y, offsets, ct.gather(x, offsets))


def copy(x):
    y = torch.empty_like(x)
    rows, n = x.shape
    args = (x.view(-1), y.view(-1), x.stride(0), n)
    ct.launch(torch.cuda.current_stream(), (rows,), copy_kernel, args)
    return y
"""
    after = (
        before.replace("ct.Constant[int])", "ct.Constant[int], STRIDE_DIVISOR: ct.Constant[int])")
        .replace("offs", "stride = ct.assume_divisible_by(stride, STRIDE_DIVISOR)\n    offs", 1)
        .replace("x.stride(0), n)", "x.stride(0), n, 16 if x.stride(0) % 16 == 0 else 1)")
    )

    trial = TileTrial(
        kernel="copy_kernel",
        arguments=((F32, 1), (F32, 1), "int32", 1024),
        arguments_after=((F32, 1), (F32, 1), "int32", 1024, 16),
        columns=64,
    )

    def edits(self, subject: Subject, kernel: Kernel, params: Params) -> Edits:
        """Declare every such scalar of a kernel whose launches are in plain sight."""
        names = _scalars(subject.source, kernel)
        divisor = int(params["divisor"])
        return _edits(subject.source, kernel, names, divisor) if names else {}


def _scalars(source: Source, kernel: Kernel) -> list[str]:
    """Integer parameters that indices are sums or products of, and that nothing is assumed of."""
    body = kernel.function.node.body
    values: dict[str, list[cst.BaseExpression]] = {}
    for target, value in assigned(body):
        if isinstance(target, cst.Name):
            values.setdefault(target.value, []).append(value)
    indices = [argument(call, 1, "indices") for call in CUTILE.find(source, body, INDEXED)]
    terms = [index for index in indices if index is not None]
    names: set[str] = set()
    for term in terms:
        if isinstance(term, cst.Name) and term.value not in names:
            names.add(term.value)
            terms += values.get(term.value, ())
        terms += _terms(source, term)
    return [p.name.value for p in kernel.function.parameters
            if p.name.value in names - set(values) - set(kernel.constants)
            and p.default is None and _is_integer(source, kernel, p.name.value)]  # fmt: skip


def _terms(source: Source, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What an index is computed from such that a multiple of 16 stays one."""
    match node:
        case cst.Tuple() | cst.List():
            return [element.value for element in node.elements]
        case cst.BinaryOperation(operator=cst.Add() | cst.Subtract() | cst.Multiply()):
            return [node.left, node.right]
        case cst.Subscript():
            return [node.value]
        case cst.Call() if source.name(node.func) in SHAPING:
            return list(positional(node)[:1])
    return []


def _is_integer(source: Source, kernel: Kernel, name: str) -> bool:
    """Whether every launch gives an integer of which it can ask the remainder; no plain one."""
    given = [launch.arguments.get(name) for launch in kernel.launches]
    return bool(given) and all(
        value is not None
        and not isinstance(value, cst.Integer)
        and is_pure(source, value)
        and host.scalar_type(source, value) == "int32"
        for value in given
    )


def _edits(source: Source, kernel: Kernel, names: Sequence[str], divisor: int) -> Edits:
    interface = Interface.of(source, kernel)
    check_builtins(source, kernel.function.node, "int")
    tile = tile_module(source)
    constants = {name: free_name(source, f"{name.upper()}_DIVISOR") for name in names}
    parameters = [f"{constant}: {tile}.Constant[int]" for constant in constants.values()]
    arguments = [
        [_decided(source, launch.arguments[name], divisor) for name in names]
        for launch in kernel.launches
    ]
    statements = [
        cst.parse_statement(f"{name} = {tile}.assume_divisible_by({name}, {constant})\n")
        for name, constant in constants.items()
    ]
    body = kernel.function.node.body
    if not isinstance(body, cst.IndentedBlock):
        raise NotApplicable(f"{kernel.name} is written on one line")
    place = 1 if kernel.function.node.get_docstring() is not None else 0

    def edit(block: cst.IndentedBlock) -> cst.IndentedBlock:
        return block.with_changes(body=[*block.body[:place], *statements, *block.body[place:]])

    return {**interface.added(parameters, arguments), body: edit}


def _decided(source: Source, given: cst.BaseExpression, divisor: int) -> str:
    text = source.code(given)
    is_sum = isinstance(given, cst.BinaryOperation | cst.UnaryOperation) and not given.lpar
    return f"{divisor} if {f'({text})' if is_sum else text} % {divisor} == 0 else 1"
