"""Keep data that is used once out of the first-level cache.

When: a Triton kernel without `tl.dot` that waits for memory and reads or writes each element once.
Do: `cache_modifier=".cg"` on the loads of what only this program reads: cached in L2, not in L1;
    `".cs"` on stores, which are not read again: evicted first. Sweep both and each.
Risk: none to results; a wrong guess costs a few percent.
Source: Liger-Kernel and FlagGems set them. Compiled with Triton 3.6 they appear as `ld.global.cg`
    and `st.global.cs`. Helion searches them on AMD only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.caching import DECIDED, kernels_that_stream, loads_by_use
from agent.analysis.triton.dialect import TRITON
from agent.playbook.base import Optimization
from agent.playbook.trial import PAIRS, P, TritonTrial
from agent.syntax import keyword, setting

MODIFIER = "cache_modifier"
BOTH = {"loads": ".cg", "stores": ".cs"}


class CacheModifiers(Optimization):
    """`tl.load(p)` -> `tl.load(p, cache_modifier=".cg")`."""

    name = "cache-modifiers"
    title = "cache modifiers"
    backend = "triton"
    family = "cache"
    priority: ClassVar = {KernelClass.MEMORY: 42, KernelClass.BALANCED: 60}
    expected = "a few percent either way"
    hypothesis = "What is used once no longer takes room in the first-level cache."
    opt_in = "it gained 0.4 % at most on seven kernels"
    example: ClassVar[Params] = BOTH
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def gate_kernel(x_ptr, gate_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    gate = tl.load(gate_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * gate, mask=offsets < n)


def gate(x, g):
    y = torch.empty_like(x)
    gate_kernel[(triton.cdiv(x.numel(), 1024),)](x, g, y, x.numel(), BLOCK=1024)
    return y
"""
    after = before.replace(
        "offsets, mask=offsets < n)", 'offsets, mask=offsets < n, cache_modifier=".cg")'
    ).replace("x * gate, mask=offsets < n)", 'x * gate, mask=offsets < n, cache_modifier=".cs")')

    trial = TritonTrial(
        kernel="gate_kernel", types=(P, P, P, "i32", 1024), function="gate", calls=PAIRS
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Loads, stores, or both."""
        calls = _calls(subject)
        each: list[Params] = [{kind: BOTH[kind]} for kind in BOTH if calls[kind]]
        return [dict(BOTH), *each] if len(each) > 1 else each

    def apply(self, subject: Subject, params: Params) -> str:
        """Set them where the author has not decided."""
        edits: dict[cst.Call, Callable[[cst.Call], cst.Call]] = {
            call: setting(MODIFIER, f'"{modifier}"')
            for kind, modifier in params.items()
            for call in _calls(subject)[kind]
        }
        if not edits:
            raise NotApplicable(f"no undecided {' or '.join(params)}")
        return subject.source.rewrite(edits)


def _calls(subject: Subject) -> dict[str, list[cst.Call]]:
    """The loads and stores to change. Raises `NotApplicable` when there is none."""
    source = subject.source
    stores = [
        call
        for kernel in kernels_that_stream(subject)
        for call in TRITON.find(source, kernel.function.node.body, ("triton.language.store",))
        if all(keyword(call, name) is None for name in DECIDED)
    ]
    try:
        loads = [call for kind, call in loads_by_use(subject, DECIDED) if kind == "streamed"]
    except NotApplicable:
        loads = []
    if not loads and not stores:
        raise NotApplicable("every load and store is decided already, or there is none")
    return {"loads": loads, "stores": stores}
