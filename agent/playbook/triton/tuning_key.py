"""Have Triton tune for each power of two of a size that the tuner's key leaves out.

When: a Triton kernel under `@triton.autotune` whose key lacks a size: another parameter that an
    index is compared with or a loop runs to, or the number of programs. Where launches of the perf
    tests were seen, two of them have to share a key and differ in that size. Not one that works
    in place without `restore_value`: a launch that tunes it leaves other results. Not one that
    sums and is named batch-invariant or deterministic: its order would follow from the size.
Do: append `N_bucket` to the kernel's parameters and to the key, and to each launch
    `N_bucket=triton.next_power_of_2(n)`. The kernel does not read it.
Risk: none to results. Tuning is done once for each power of two instead of once; a bucket and not
    the size itself, so that a number of tokens is not tuned for anew with every call.
Source: public kernels: `key=["n_cols"]` of row kernels leaves out the number of rows, and
    flash-linear-attention's chunk kernels the sequence length; its norms have `NB`, a count of 2048
    rows, in the key for this, others an `M_BUCKET`. The tutorials' products name all sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.arguments import size_parameters
from agent.analysis.triton.dialect import ROUNDING
from agent.analysis.triton.fixed_order import check_order_may_change
from agent.analysis.triton.multiprocessors import grid_follows_gpu
from agent.analysis.triton.tuners import check_restored, config_count, key_of, tuner_of
from agent.launches import ObservedLaunch, power_of_two
from agent.playbook.base import REORDERED, OfEachKernel
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.triton.edits import Edit
from agent.rewriting.triton.tuning_key import LaunchSize, bucketed, program_counts
from agent.syntax import Source, descendants, names_in


class TuningKey(OfEachKernel):
    """`key=["n_cols"]` -> `key=["n_cols", "n_rows_bucket"]`."""

    name = "tuning-key"
    title = "sizes in the tuning key"
    backend = "triton"
    family = "tuning"
    priority: ClassVar = {KernelClass.COMPUTE: 16, KernelClass.BALANCED: 16, KernelClass.MEMORY: 21}
    expected = "where sizes share a config that is best for the first of them: to be measured"
    hypothesis = "Sizes that share a key run with the config that was best for the first of them."
    changes_rounding = REORDERED
    idle_in_interpreter = "Triton's interpreter cannot time configs"
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"ROWS": 1, "COLS": 1024}, num_warps=4),
        triton.Config({"ROWS": 4, "COLS": 256}, num_warps=4),
    ],
    key=["n_cols"],
)
@triton.jit
def cap_kernel(x_ptr, y_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    x = tl.load(x_ptr + rows * n_cols + cols, mask=mask)
    tl.store(y_ptr + rows * n_cols + cols, tl.minimum(x, 1.0), mask=mask)


def cap(x):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid = lambda META: (triton.cdiv(n_rows, META["ROWS"]), triton.cdiv(n_cols, META["COLS"]))
    cap_kernel[grid](x, y, n_rows, n_cols)
    return y
"""
    after = (
        before.replace('key=["n_cols"]', 'key=["n_cols", "n_rows_bucket"]')
        .replace(
            "def cap_kernel(x_ptr, y_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):",
            """\
def cap_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    n_rows_bucket,
):""",
        )
        .replace(
            "(x, y, n_rows, n_cols)",
            "(x, y, n_rows, n_cols, n_rows_bucket=triton.next_power_of_2(n_rows))",
        )
    )

    trial = TritonTrial(
        kernel="cap_kernel",
        types=(P, P, "i32", "i32", 4, 256),
        types_after=(P, P, "i32", "i32", 4, 256, "i32"),
        function="cap",
    )

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> dict[cst.CSTNode, Edit]:
        """Put what the key leaves out into it."""
        source = subject.source
        tuner = tuner_of(source, kernel)
        if config_count(source, tuner) == 1:
            raise NotApplicable(f"the tuner of {kernel.name} has one config, whatever its key is")
        check_restored(source, kernel, tuner)
        key = key_of(source, tuner)[1]
        sizes = [LaunchSize(n, n) for n in size_parameters(source, kernel) if n not in key]
        sizes += program_counts(source, kernel)
        sizes = [s for s in sizes if all(s.is_whole(source, x) for x in kernel.launches)]
        seen = [launch for launch in subject.launches if launch.kernel == kernel.name]
        if seen:
            sizes = [size for size in sizes if _decides(size, key, seen)]
        else:
            sizes = [size for size in sizes if not _is_told(source, kernel, size, key)]
        sizes = _once(source, kernel, sizes)
        if not sizes:
            where = "of those that the tests launch " if seen else ""
            reason = f"the key of {kernel.name} tells all sizes {where}apart"
            if any(grid_follows_gpu(source, launch) for launch in kernel.launches):
                reason += "; its number of programs is always the same on one GPU"
            raise NotApplicable(reason)
        check_order_may_change(source, kernel)
        return bucketed(source, kernel, sizes, instead=False)


def _decides(size: LaunchSize, key: Iterable[str], seen: Iterable[ObservedLaunch]) -> bool:
    """Whether launches share a key and differ in the size's power of two."""

    def shared(launch: ObservedLaunch) -> object:
        dtypes = [tensor.dtype for tensor in launch.tensors.values()]
        return [launch.integers.get(name) for name in key], dtypes

    known = [(shared(launch), found) for launch in seen if (found := size.seen(launch)) is not None]
    return any(
        one == other and power_of_two(n) != power_of_two(m)
        for (one, n), (other, m) in combinations(known, 2)
    )


def _is_told(source: Source, kernel: Kernel, size: LaunchSize, key: Iterable[str]) -> bool:
    """Whether every launch computes a parameter of the key from the size, or it from those."""

    def told(launch: Launch) -> bool:
        expression = size.given(source, launch)
        whole = source.code(expression)
        given = [launch.arguments[name] for name in key if name in launch.arguments]
        called = {
            name
            for call in descendants(expression, cst.Call)
            if source.name(call.func) in ROUNDING
            for name in names_in(call.func)
        }
        if names_in(expression) - called <= set(map(source.code, given)):
            return True
        behind = [found for value in given if (found := value_of(source, value)) is not None]
        return any(
            source.code(part) == whole
            for value in (*given, *behind)
            for kind in (cst.Name, cst.Attribute, cst.Subscript, cst.Call, cst.BinaryOperation)
            for part in descendants(value, kind)
        )

    return all(map(told, kernel.launches))


def _once(source: Source, kernel: Kernel, sizes: Iterable[LaunchSize]) -> list[LaunchSize]:
    """Those sizes that launches do not give for an earlier one as well."""
    found: dict[tuple[str, ...], LaunchSize] = {}
    for size in sizes:
        given = tuple(source.code(size.given(source, x)) for x in kernel.launches)
        found.setdefault(given, size)
    return list(found.values())
