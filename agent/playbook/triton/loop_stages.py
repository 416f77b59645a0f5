"""Pipeline the loads of a loop that has no dot.

When: a Triton kernel whose innermost loop loads and computes, without `tl.dot`. The `num_stages` of
    a launch does nothing for such a loop.
Do: `for i in range(...)` -> `for i in tl.range(..., num_stages=N)`; sweep 2, 3, 4.
Risk: none to results. Each stage holds one more tile in shared memory.
Source: the docstring of `tl.range`. Compiled with Triton 3.6, such a loop issues 4, 6 and 8
    `cp.async` with 2, 3 and 4 stages, and none without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import libcst as cst

from agent.backends.base import KernelClass
from agent.backends.dialect import Kernel
from agent.backends.triton import ATOMICS, TRITON
from agent.playbook.base import NotApplicable, Optimization, Params, Subject
from agent.playbook.pointers import root, spelling
from agent.syntax import Source, argument, descendants, keyword, with_keyword

SWEEP = (2, 3, 4)
RANGE = "triton.language.range"
PLAIN = ("builtins.range", RANGE)
LOAD = ("triton.language.load",)
STORE = ("triton.language.store",)
FORBIDDEN = (*TRITON.dots, *ATOMICS, "triton.language.debug_barrier")


class LoopStages(Optimization):
    """`range(...)` -> `tl.range(..., num_stages=N)`."""

    name = "loop-stages"
    title = "loop stages"
    backend = "triton"
    family = "pipelining"
    priority: ClassVar = {KernelClass.MEMORY: 30, KernelClass.BALANCED: 30, KernelClass.COMPUTE: 50}
    expected = "asynchronous copies appear; the gain is to be measured"
    hypothesis = "The loads of later iterations overlap with the computation of this one."
    example: ClassVar[Params] = {"num_stages": 3}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):  # streams the row
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + row, tl.sum(total, axis=0))


def row_sum(x):
    y = torch.empty(x.shape[0], device=x.device, dtype=torch.float32)
    row_sum_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=1024)
    return y
"""
    after = before.replace(
        "in range(0, n_cols, BLOCK):", "in tl.range(0, n_cols, BLOCK, num_stages=3):"
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The sweep, less what every loop says already."""
        source = subject.source
        present = {_stages(source, loop) for loop, _ in _loops(subject)}
        return [{"num_stages": n} for n in SWEEP if present != {str(n)}]

    def apply(self, subject: Subject, params: Params) -> str:
        """Set it for every loop that qualifies, in all launched kernels."""
        stages = str(params["num_stages"])
        edits = {
            loop: _staging(language, stages)
            for loop, language in _loops(subject)
            if _stages(subject.source, loop) != stages
        }
        if not edits:
            raise NotApplicable(f"every loop says num_stages={stages} already")
        return subject.source.rewrite(edits)


def _loops(subject: Subject) -> list[tuple[cst.Call, str]]:
    """The ranges of the loops that qualify, and how the file spells triton.language there."""
    if subject.hardware.interpreted:
        raise NotApplicable("Triton's interpreter does not pipeline")
    source = subject.source
    found = [item for k in TRITON.launched(source) for item in _loops_of(source, k)]
    if not found:
        raise NotApplicable("no innermost loop loads without a dot, an atomic or a helper")
    return found


def _loops_of(source: Source, kernel: Kernel) -> Iterator[tuple[cst.Call, str]]:
    for loop in descendants(kernel.function.node.body, cst.For):
        called = loop.iter
        if not isinstance(called, cst.Call) or source.name(called.func) not in PLAIN:
            continue
        inner = any(descendants(loop.body, cst.For)) or any(descendants(loop.body, cst.While))
        loads = list(TRITON.find(source, loop.body, LOAD))
        language = spelling(source, loads[0]) if loads else None
        if inner or language is None or not _is_plain(source, kernel, loop, loads):
            continue
        given = keyword(called, "num_stages")
        if given is None or isinstance(given, cst.Integer):
            yield called, language


def _is_plain(source: Source, kernel: Kernel, loop: cst.For, loads: list[cst.Call]) -> bool:
    """Whether a loop calls nothing unknown and stores to nothing that it loads from."""
    for call in descendants(loop.body, cst.Call):
        if source.function_of(call.func) is not None:
            return False
        if TRITON.called(source, call) in FORBIDDEN:
            return False
    loaded = {_root(source, kernel, call) for call in loads}
    stored = {_root(source, kernel, call) for call in TRITON.find(source, loop.body, STORE)}
    return not loaded & stored and None not in loaded | stored


def _root(source: Source, kernel: Kernel, access: cst.Call) -> str | None:
    address = argument(access, 0, "pointer")
    return root(source, kernel, address) if address is not None else None


def _stages(source: Source, loop: cst.Call) -> str | None:
    given = keyword(loop, "num_stages")
    return source.code(given) if given is not None else None


def _staging(language: str, stages: str) -> Callable[[cst.Call], cst.Call]:
    def edit(call: cst.Call) -> cst.Call:
        if isinstance(call.func, cst.Name) and call.func.value == "range":
            call = call.with_changes(func=cst.parse_expression(f"{language}.range"))
        return with_keyword(call, "num_stages", stages)

    return edit
