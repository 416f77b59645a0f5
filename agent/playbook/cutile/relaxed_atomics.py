"""Let atomics that only accumulate overtake one another and the loads beside them.

When: a cuTile kernel that accumulates with `ct.atomic_add`, `and`, `max`, `min`, `or` or `xor` and
    uses no result of them: histograms, gradients that many blocks add to, partial products.
Do: pass `memory_order=ct.MemoryOrder.RELAXED`. By default an atomic releases what its block wrote
    before and acquires what others wrote, which takes fences around each. A sum needs neither: it
    is complete when the kernel is.
Risk: none to results where no block learns from an atomic what another one has done. So a kernel is
    refused that uses the result of an atomic, reads the array that it accumulates in, exchanges
    values, or gives an order or a scope by itself; and one that writes other arrays too, where a
    single element is counted, which may tell another kernel that they are ready.
Source: the memory model of cuda-tile 1.7, and what it compiles to. A block that adds 8 rows of 1024
    numbers to one takes 1128 instructions for sm_90, with 64 fences of the whole GPU and as many
    ATOMG; relaxed 640, with 64 REDG and none. For sm_80 456 and 256, for sm_100 1144 and 656.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.reaching_definitions import binds, value_of
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import ATOMICS, CT, CUTILE
from agent.analysis.cutile.spelling import tile_module
from agent.analysis.cutile.tile_shapes import edges_of
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import F32, TileTrial
from agent.syntax import Edits, Source, argument, descendants, keyword, setting

EXCHANGES = (f"{CT}atomic_xchg", f"{CT}atomic_cas")
"""They set values that others may wait for."""
ACCUMULATES = tuple(name for name in ATOMICS if name not in EXCHANGES)
WAITS = (f"{CT}grid_dependency_control_wait", f"{CT}grid_dependency_control_launch_dependents")
FACTS = ("dtype", "ndim", "shape", "strides")
"""What an array may be asked for that its elements do not decide."""
_DEEP = 10


class RelaxedAtomics(OfEachKernel):
    """`ct.atomic_add(...)` -> `ct.atomic_add(..., memory_order=ct.MemoryOrder.RELAXED)`."""

    name = "relaxed-atomics"
    title = "relaxed atomics"
    backend = "cutile"
    family = "atomics"
    priority: ClassVar = {
        KernelClass.MEMORY: 250,
        KernelClass.BALANCED: 280,
        KernelClass.COMPUTE: 220,
    }
    expected = "sums over 32768 rows on an H200: 1.04x; a histogram: 1.00x"
    hypothesis = "What only adds need not wait until all that was written before can be seen."
    example: ClassVar[Params] = {}
    before = """\
import cuda.tile as ct
import torch

TILE, BINS = 256, 64


@ct.kernel
def histogram_kernel(x, counts):
    at = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)
    bins = ct.astype(ct.minimum(ct.abs(ct.gather(x, at)) * 16, BINS - 1), ct.int32)
    bins = ct.where(at < x.shape[0], bins, BINS)
    ct.atomic_add(counts, bins, 1)


def histogram(x):
    x = x.reshape(-1)
    counts = torch.zeros(BINS, dtype=torch.int32, device=x.device)
    grid = (ct.cdiv(x.shape[0], TILE),)
    ct.launch(torch.cuda.current_stream(), grid, histogram_kernel, (x, counts))
    return counts
"""
    after = before.replace("bins, 1)", "bins, 1, memory_order=ct.MemoryOrder.RELAXED)")

    trial = TileTrial(kernel="histogram_kernel", arguments=((F32, 1), ("int32", 1)))

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> Edits:
        """Relax the atomics of one kernel."""
        source = subject.source
        _check_order(source, kernel)
        body = kernel.function.node.body
        atomics = list(CUTILE.find(source, body, ACCUMULATES))
        if not atomics:
            raise NotApplicable(f"{kernel.name} accumulates nothing atomically")
        arrays = [_array(source, kernel, call) for call in atomics]
        _check_uses(source, kernel, atomics, set(arrays))
        if len(set(arrays)) > 1 or _writes_more(source, kernel, len(atomics)):
            _check_no_signal(source, atomics)
        strict = [call for call in atomics if keyword(call, "memory_order") is None]
        if not strict:
            raise NotApplicable(f"the atomics of {kernel.name} are relaxed already")
        relaxed = f"{tile_module(source)}.MemoryOrder.RELAXED"
        return dict.fromkeys(strict, setting("memory_order", relaxed))


def _check_order(source: Source, kernel: Kernel) -> None:
    """Raise `NotApplicable` where the file may hand something on in an order of its own."""
    for call in source.calls:
        order, scope = keyword(call, "memory_order"), keyword(call, "memory_scope")
        relaxed = order is None or (source.name(order) or "").endswith(".RELAXED")
        if not relaxed or scope is not None:
            raise NotApplicable(f"line {source.line(call)} gives an order or a scope by itself")
    for function in CUTILE.reached(source, kernel):
        for call in CUTILE.find(source, function.node.body, (*EXCHANGES, *WAITS)):
            raise NotApplicable(f"line {source.line(call)} may hand something to another block")
        if function.node is kernel.function.node:
            continue
        for call in CUTILE.find(source, function.node.body, ACCUMULATES):
            raise NotApplicable(f"line {source.line(call)} accumulates in a helper")


def _array(source: Source, kernel: Kernel, call: cst.Call) -> str:
    """The parameter that an atomic accumulates in.

    Raises:
        NotApplicable: its result is used, or the array is no parameter that stays what it is.
    """
    line = source.line(call)
    if not isinstance(next(source.ancestors(call)), cst.Expr):
        raise NotApplicable(f"line {line} uses the result of an atomic")
    array = argument(call, 0, "array")
    parameters = {parameter.name.value for parameter in kernel.function.parameters}
    if not isinstance(array, cst.Name) or array.value not in parameters:
        raise NotApplicable(f"line {line} accumulates in no parameter of {kernel.name}")
    if binds(kernel.function.node.body, array.value):
        raise NotApplicable(f"{kernel.name} gives {array.value} another value")
    return array.value


def _check_uses(
    source: Source, kernel: Kernel, atomics: Sequence[cst.Call], arrays: set[str]
) -> None:
    """Raise `NotApplicable` for a use of the arrays that an order could matter to."""
    targets = {argument(call, 0, "array") for call in atomics}
    for name in descendants(kernel.function.node.body, cst.Name):
        if name.value not in arrays or name in targets:
            continue
        around = next(source.ancestors(name))
        asked = isinstance(around, cst.Attribute)
        if asked and (around.attr is name or around.attr.value in FACTS):  # type: ignore[attr-defined]
            continue
        if isinstance(around, cst.Arg) and around.keyword is name:
            continue
        raise NotApplicable(
            f"line {source.line(name)} of {kernel.name} does more to {name.value} than accumulate"
        )
    for launch in kernel.launches:
        given = {name: source.code(value) for name, value in launch.arguments.items()}
        for array in arrays:
            same = [n for n, text in given.items() if n != array and text == given.get(array)]
            if same:
                raise NotApplicable(
                    f"line {source.line(launch.node)} hands the same to {array} and {same[0]}"
                )


def _writes_more(source: Source, kernel: Kernel, accumulated: int) -> bool:
    """Whether a kernel writes by anything but the atomics that are known, methods of views too."""
    writes = 0
    for function in CUTILE.reached(source, kernel):
        for call in descendants(function.node.body, cst.Call):
            method = isinstance(call.func, cst.Attribute) and "store" in call.func.attr.value
            writes += method or source.name(call.func) in CUTILE.stores
    return writes > accumulated


def _check_no_signal(source: Source, atomics: Sequence[cst.Call]) -> None:
    """Raise `NotApplicable` for an atomic on a single element, as far as can be told."""
    for call in atomics:
        given = (argument(call, 1, "indices"), argument(call, 2, "update"))
        if not any(value is not None and _is_tile(source, value) for value in given):
            raise NotApplicable(
                f"line {source.line(call)} may count what is ready: it is not seen to update a "
                "tile, and the kernel writes more"
            )


def _is_tile(source: Source, expression: cst.BaseExpression, deep: int = 0) -> bool:
    """Whether an expression is known to be a tile, or a tuple with one."""
    value = value_of(source, expression)
    if deep > _DEEP:
        return False
    if edges_of(source, value):
        return True
    if isinstance(value, cst.Tuple):
        return any(_is_tile(source, element.value, deep + 1) for element in value.elements)
    if isinstance(value, cst.BinaryOperation):
        return any(_is_tile(source, side, deep + 1) for side in (value.left, value.right))
    if isinstance(value, cst.Subscript):
        return _is_tile(source, value.value, deep + 1)
    return isinstance(value, cst.Call) and source.name(value.func) == f"{CT}arange"
