"""Tell the caches which loads are read once and which are read again.

When: a Triton kernel without `tl.dot` that waits for memory. In a matrix product the blocks share
    what they load, so that hints about one block mislead.
Do: `eviction_policy="evict_first"` on loads of what only this program reads, and only once;
    `"evict_last"` on loads of what is read again: the first passes over a row, and weights that
    every program reads.
Risk: none to results; a wrong guess costs a few percent.
Source: Helion searches the policy of every load. Compiled with Triton 3.6 the policies become
    `ld.global.L1::evict_first` and `L1::evict_last` with a matching L2 hint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.caching import DECIDED, loads_by_use
from agent.playbook.base import Optimization
from agent.playbook.trial import P, TritonTrial
from agent.syntax import setting

POLICY = "eviction_policy"
POLICIES = {"streamed": "evict_first", "reread": "evict_last"}


class EvictionPolicy(Optimization):
    """`tl.load(p)` -> `tl.load(p, eviction_policy="evict_first")`."""

    name = "eviction-policy"
    title = "eviction policy"
    backend = "triton"
    family = "cache"
    priority: ClassVar = {KernelClass.MEMORY: 40, KernelClass.BALANCED: 40}
    expected = "a few percent either way"
    hypothesis = "Data that is read once no longer displaces data that is read again."
    opt_in = "it gained 0.3 % at most on seven kernels, and lost up to 6.6 %"
    example: ClassVar[Params] = POLICIES
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0)
        square += x * x
    scale = 1.0 / tl.sqrt(tl.sum(square, axis=0) / n_cols + eps)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0)
        weight = tl.load(weight_ptr + cols, mask=cols < n_cols)
        tl.store(y_ptr + row * stride + cols, x * scale * weight, mask=cols < n_cols)


def rms_norm(x, weight, eps=1e-6):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rms_norm_kernel[(n_rows,)](x, weight, y, x.stride(0), n_cols, eps, BLOCK=1024)
    return y
"""
    after = (
        before.replace(
            "(x_ptr + cols, mask=cols < n_cols, other=0.0)",
            """(
            x_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last"
        )""",
            1,
        )
        .replace(
            "(x_ptr + cols, mask=cols < n_cols, other=0.0)",
            """(
            x_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first"
        )""",
            1,
        )
        .replace(
            "(weight_ptr + cols, mask=cols < n_cols)",
            """(
            weight_ptr + cols, mask=cols < n_cols, eviction_policy="evict_last"
        )""",
        )
    )

    trial = TritonTrial(
        kernel="rms_norm_kernel",
        types=(P, P, P, "i32", "i32", "fp32", 1024),
        function="rms_norm",
        calls=(((3, 1024), (1024,)), ((5, 77), (77,)), ((1, 1), (1,)), ((4, 2500), (2500,))),
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The streamed loads, the others, or both."""
        kinds = {kind for kind, _ in loads_by_use(subject, DECIDED)}
        each: list[Params] = [{kind: POLICIES[kind]} for kind in POLICIES if kind in kinds]
        return [dict(POLICIES), *each] if len(each) > 1 else each

    def apply(self, subject: Subject, params: Params) -> str:
        """Set the policies on the loads whose author has not decided."""
        edits: dict[cst.Call, Callable[[cst.Call], cst.Call]] = {
            call: setting(POLICY, f'"{params[kind]}"')
            for kind, call in loads_by_use(subject, DECIDED)
            if kind in params
        }
        if not edits:
            raise NotApplicable(f"no {' or '.join(params)} load is undecided")
        return subject.source.rewrite(edits)
