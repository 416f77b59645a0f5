"""Give the loop of a product another block, with the warps and stages that go with it.

When: a Triton kernel with `tl.dot` in a loop over blocks, as that of an attention over its keys,
    whose block size the launch is given as something that cannot be another number where it is
    made: it sizes the grid as well, a caller chooses it, or it is computed.
Do: `BLOCK_N=max(BLOCK // 2, min(BLOCK, 32))` at the launch alone, together with `num_warps` and
    `num_stages`; sweep half and a quarter of the present block.
Risk: none to results while loops step by the block and the kernel asks nothing else of it, which
    is checked; the order of sums changes. What does not fit into the shared memory fails at the
    launch, and the variant with it.
Source: flash attention's tiles on Hopper are 128 x 64 to 128 x 128 with two warpgroups; the public
    copies of Triton's first attention tutorial have 128 x 128 with four warps, or one stage. On an
    NVIDIA H200 with Triton 3.6, blocks of 32 for 128 took 13.6 % from `context_attn_llama` of
    TritonBench, with a head of 256; masks at the edges and eight warps 16 % from its
    `triton_attention`, tiles of 128 x 128.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.each_kernel import all_refuse
from agent.analysis.common.given_sizes import GivenSize
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.launches import values_of
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import PRODUCTS, P, TritonTrial
from agent.rewriting.triton.edits import Edit, writing
from agent.rewriting.triton.kernel_options import options_of
from agent.rewriting.triton.launch_options import DEFAULTS
from agent.rewriting.triton.loop_sizes import loop_sizes
from agent.rewriting.triton.unread_options import with_options
from agent.syntax import Source

SWEEP = (
    (0.5, None, None), (0.25, None, None),
    (0.5, 8, 3), (0.5, 4, 3), (0.5, 8, 2), (0.25, 4, 3), (0.25, 8, 4),
)  # fmt: skip
"""Part of the block, warps, stages; None: as they are."""
SMALLEST = 32
"""Elements of a block: fewer are too few for products of eight bits."""


class LoopBlocks(Optimization):
    """`kernel[grid](..., BLOCK_N=BLOCK)` -> `BLOCK_N=max(BLOCK // 2, min(BLOCK, 32))`."""

    name = "loop-blocks"
    title = "loop block"
    backend = "triton"
    family = "tiles"
    priority: ClassVar = {KernelClass.COMPUTE: 24, KernelClass.BALANCED: 28, KernelClass.MEMORY: 60}
    expected = "14 to 18 % of an attention with a head of 256 on an H200"
    hypothesis = "A smaller block leaves registers for more warps, and room for more stages."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {"block": "K", "factor": 0.5, "num_warps": 8, "num_stages": 3}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        a_mask = (rows[:, None] < m) & (inner[None, :] < k)
        b_mask = (inner[:, None] < k) & (columns[None, :] < n)
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + inner[:, None] * n + columns[None, :], mask=b_mask, other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total, mask=mask)


def product(a, b):
    m, k = a.shape
    n = b.shape[1]
    block = max(min(64, triton.next_power_of_2(m)), 16)
    c = torch.empty((m, n), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(m, block), triton.cdiv(n, block))
    product_kernel[grid](a, b, c, m, n, k, ROWS=block, COLUMNS=block, K=block)
    return c
"""
    after = before.replace(
        "    product_kernel[grid](a, b, c, m, n, k, ROWS=block, COLUMNS=block, K=block)\n",
        """\
    product_kernel[grid](
        a,
        b,
        c,
        m,
        n,
        k,
        ROWS=block,
        COLUMNS=block,
        K=max(block // 2, min(block, 32)),
        num_warps=8,
    )
""",
    )

    trial = TritonTrial(
        kernel="product_kernel",
        types=(P, P, P, "i32", "i32", "i32", 64, 64, 64),
        function="product",
        calls=PRODUCTS,
        types_after=(P, P, P, "i32", "i32", "i32", 64, 64, 32),
        options_after={"num_warps": 8},
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Blocks with warps and stages; with several such blocks each variant names its own."""
        sizes = _sizes(subject)
        share = len(SWEEP) // len(sizes) or 1
        found: list[Params] = []
        for size in sizes:
            named: Params = {"kernel": size.kernel.name} if len(_kernels(sizes)) > 1 else {}
            sweep = [each for each in SWEEP if _may(subject, size, each[0])]
            found += [{**named, **_params(size, each)} for each in sweep[:share]]
        if not found:
            raise NotApplicable(f"no block was seen that may be half as large: {SMALLEST} elements "
                                "are what products take at least")  # fmt: skip
        return found

    def apply(self, subject: Subject, params: Params) -> str:
        """Set the block and the options at every launch of the kernel."""
        size = _asked(_sizes(subject), params)
        factor = float(params["factor"])
        if not _may(subject, size, factor):
            raise NotApplicable(
                f"{size.constant} is {factor:g} times as large already, or too small"
            )
        edits: dict[cst.CSTNode, Edit] = {
            given: writing(_scaled(subject.source, given, factor)) for given in size.given
        }
        resized = subject.source.with_text(subject.source.rewrite(edits))
        kernel = next(k for k in TRITON.launched(resized) if k.name == size.kernel.name)
        chosen = {option: int(params[option]) for option in DEFAULTS if option in params}
        more = options_of(resized, kernel, DEFAULTS).setting(chosen)
        return with_options(resized, more) if more else resized.text

    def describe(self, params: Params) -> str:
        """The text of the table: 'loop block (0.5 BLOCK_N, num_warps=4, num_stages=3)'."""
        if not params:
            return self.title
        shown = [f"{name}={params[name]}" for name in DEFAULTS if name in params]
        block = f"{params['factor']:g} {params['block']}"
        return f"{self.title} ({', '.join([block, *shown])})"


def _sizes(subject: Subject) -> list[GivenSize]:
    if subject.hardware.interpreted:
        raise NotApplicable("Triton's interpreter knows neither warps nor stages")
    found: list[GivenSize] = []
    reasons: list[str] = []
    for kernel in TRITON.chosen(subject.source):
        for launch in kernel.launches:
            check_builtins(subject.source, launch.node, "max", "min")
        sizes, why_not = loop_sizes(subject.source, kernel)
        found += sizes
        reasons += why_not
    if not found:
        raise all_refuse(reasons, "no Triton kernel is launched here")
    return found


def _params(size: GivenSize, choice: tuple[float, int | None, int | None]) -> Params:
    factor, warps, stages = choice
    chosen: Params = {"num_warps": warps, "num_stages": stages} if warps and stages else {}
    return {"block": size.constant, "factor": factor, **chosen}


def _kernels(sizes: Sequence[GivenSize]) -> set[str]:
    return {size.kernel.name for size in sizes}


def _asked(sizes: Sequence[GivenSize], params: Params) -> GivenSize:
    for size in sizes:
        if size.constant == params["block"] and params.get("kernel") in (None, size.kernel.name):
            return size
    raise NotApplicable(f"{params['block']} is no block that a product's loop goes on by")


def _may(subject: Subject, size: GivenSize, factor: float) -> bool:
    """Whether a block may be such a part of what it was at first, as far as its size is known."""
    source = subject.source
    now = {_read(source, given)[1] for given in size.given}
    if now == {factor}:
        return False
    seen = values_of(subject.launches, size.kernel.name, size.constant)
    seen += tuple(g.evaluated_value for g in size.given if isinstance(g, cst.Integer))
    return all(n * factor / each >= SMALLEST for each in now for n in seen)


def _read(source: Source, given: cst.BaseExpression) -> tuple[str, float]:
    """What a launch gives, without what this entry made of it, and which part that is."""
    match given:
        case cst.Call(
            func=cst.Name(value="max"),
            args=[
                cst.Arg(
                    value=cst.BinaryOperation(
                        left=whole, operator=cst.FloorDivide(), right=cst.Integer() as parts
                    )
                ),
                cst.Arg(value=least),
            ],
        ) if source.code(least) == f"min({source.code(whole)}, {SMALLEST})":
            return source.code(whole), 1 / parts.evaluated_value
    return source.code(given), 1.0


def _scaled(source: Source, given: cst.BaseExpression, factor: float) -> str:
    """`max(BLOCK // 2, min(BLOCK, 32))` of `BLOCK`; of a number the number."""
    if isinstance(given, cst.Integer):
        return str(int(given.evaluated_value * factor))
    text, _ = _read(source, given)
    parsed = cst.parse_expression(text)
    is_one = isinstance(parsed, cst.Name | cst.Call | cst.Attribute | cst.Subscript)
    if not is_one and not parsed.lpar:
        text = f"({text})"
    return f"max({text} // {1 / factor:g}, min({text}, {SMALLEST}))"
