"""Let some warps load tiles while others multiply them: warp specialization.

When: a Triton kernel that multiplies tiles in a loop, all of which descriptors can load, on
    sm_100 or later.
Do: `warp_specialize=True` on the loop's `tl.range`, with tensor descriptors for its tiles where it
    has none: the compiler puts warps beside those of the launch that only load. A heuristic asks
    for the GPU, so that the file stays right on others. The stages go with it and are set at once.
Risk: none to results by itself. The compiler's pass is young: a version that fails, hangs or loses
    is a row like any other.
Source: the `warp_specialize` of `tl.range`, which the tutorials use for attention and products.
    Triton's documentation names Blackwell alone, and is right: with Triton 3.6 the same loops
    compile for sm_90, to 384 threads of which one group issues all `UTMALDG`, but on an H200 the
    results of 21 of 23 such versions of a product, a batch of them and an attention were wrong,
    mostly by more than the result itself, and the other two took 1.7 and 2.7 times as long as the
    origin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import language, torch_module
from agent.analysis.triton.tiles import LOAD
from agent.analysis.triton.tuners import check_untuned
from agent.playbook.base import Optimization
from agent.playbook.trial import PRODUCTS, P, TritonTrial
from agent.playbook.triton.tile_descriptors import TileDescriptors
from agent.rewriting.common.insertion import unused
from agent.rewriting.triton.described import MAKE, check_hardware
from agent.rewriting.triton.edits import Edit, with_heuristics, with_parameters
from agent.rewriting.triton.launch_options import check, setting_options
from agent.rewriting.triton.loops import PLAIN, ranging
from agent.syntax import Source, assigned, descendants, keyword

FIRST_RIGHT = 100
STAGES = (2, 3, 4)
OPTION = "warp_specialize"
LOOPS = (cst.For, cst.While)


class WarpSpecializedLoops(Optimization):
    """`range(...)` -> `tl.range(..., warp_specialize=True)` over descriptors."""

    name = "warp-specialized-loops"
    title = "warp-specialized loops"
    backend = "triton"
    family = "specialization"
    priority: ClassVar = {KernelClass.COMPUTE: 14, KernelClass.BALANCED: 30}
    expected = "to be measured; Triton's tutorials use it on Blackwell"
    hypothesis = "Warps that only load never wait for a product, nor a product for an address."
    revisit_after = frozenset({"tiles"})
    example: ClassVar[Params] = {"num_stages": 3}
    sweep = tuple({"num_stages": stages} for stages in STAGES)
    before = TileDescriptors.before
    after = TileDescriptors.after.replace(
        """\
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DESCRIPTORS: tl.constexpr,
):
""",
        """\
@triton.heuristics({"SPECIALIZED": lambda args: torch.cuda.get_device_capability() >= (10, 0)})
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_bk,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    SPECIALIZED: tl.constexpr,
):
""",
    ).replace(
        "range(0, K, BLOCK_K)",
        "tl.range(0, K, BLOCK_K, warp_specialize=DESCRIPTORS and SPECIALIZED)",
    )

    trial = TritonTrial(
        kernel="matmul_kernel",
        types=(P, P, P, *["i32"] * 6, 64, 64, 32),
        function="matmul",
        calls=PRODUCTS,
        types_after=(P, P, P, *["i32"] * 6, 64, 64, 32, True, False),
    )

    def apply(self, subject: Subject, params: Params) -> str:
        """Set the stages, load through descriptors, and take the loops apart."""
        check_hardware(subject)
        if 0 < subject.hardware.sm < FIRST_RIGHT:
            raise NotApplicable(f"for sm_{subject.hardware.sm} the compiler's results are wrong")
        source = subject.source
        launches = [launch for kernel in _kernels(source) for launch in kernel.launches]
        check(source, launches)
        staged = source.with_text(source.rewrite(setting_options(source, launches, params)))
        described = _described(subject, staged)
        edits: dict[cst.CSTNode, Edit] = {}
        for kernel in _kernels(described):
            edits |= _specializing(described, kernel)
        return described.rewrite(edits)


def _described(subject: Subject, source: Source) -> Source:
    """The file with descriptors for its tiles, if it has none yet."""
    if all(_loads(source, kernel) for kernel in _kernels(source)):
        return source
    text = TileDescriptors().apply(replace(subject, source=source), {"tiles": "loads"})
    return source.with_text(text)


def _kernels(source: Source) -> list[Kernel]:
    """The launched kernels that multiply tiles, whose stages the launches choose."""
    found = [k for k in TRITON.chosen(source) if TRITON.has_dot(source, k)]
    if not found:
        raise NotApplicable("no launched kernel multiplies tiles")
    for kernel in found:
        check_untuned(source, [kernel], "the stages")
    return found


def _loads(source: Source, kernel: Kernel) -> list[cst.Call]:
    """The loads through tensor descriptors, of the kernel's own making or the host's."""
    body = kernel.function.node.body
    made = set(TRITON.find(source, body, (MAKE,)))
    names = {parameter.name.value for parameter in kernel.function.parameters}
    names |= {
        target.value
        for target, value in assigned(body)
        if isinstance(target, cst.Name) and isinstance(value, cst.Call) and value in made
    }
    found = []
    for call in descendants(body, cst.Call):
        match call.func:
            case cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value="load")):
                if name in names:
                    found.append(call)
    return found


def _loop(source: Source, kernel: Kernel) -> tuple[cst.For, cst.Call, cst.Call]:
    """The innermost loop that multiplies what descriptors load, what it runs over, and a load."""
    loads = _loads(source, kernel)
    found = []
    for loop in descendants(kernel.function.node.body, cst.For):
        if any(inner is not loop for kind in LOOPS for inner in descendants(loop, kind)):
            continue
        if not TRITON.has(source, loop.body, TRITON.dots):
            continue
        found += [(loop, load) for load in loads if loop in source.ancestors(load)][:1]
    if len(found) != 1:
        raise NotApplicable(
            "looks for the one loop that multiplies what descriptors load, and "
            f"{kernel.name} has {len(found) or 'none'}"
        )
    ((loop, load),) = found
    called = loop.iter
    if not isinstance(called, cst.Call) or source.name(called.func) not in PLAIN:
        raise NotApplicable(f"line {source.line(called)} is no range")
    if keyword(called, OPTION) is not None:
        raise NotApplicable(f"the loop at line {source.line(called)} is specialized already")
    for call in TRITON.find(source, loop.body, (LOAD,)):
        if not _stands_in(source, kernel, call):
            raise NotApplicable(f"line {source.line(call)} loads through pointers in the same loop")
    return loop, called, load


def _stands_in(source: Source, kernel: Kernel, call: cst.Call) -> bool:
    """Whether a load by pointers is only what is done where there are no descriptors."""
    inner: cst.CSTNode = call
    for around in source.ancestors(call):
        match around:
            case cst.If(test=cst.Name(value=name), orelse=other) if other is inner:
                if name in kernel.constants:
                    return True
        inner = around
    return False


def _specializing(source: Source, kernel: Kernel) -> dict[cst.CSTNode, Edit]:
    """The edits that take a kernel's loop apart, where there are descriptors and a GPU for it."""
    loop, called, load = _loop(source, kernel)
    tl, flag = language(source, kernel), unused(kernel, "SPECIALIZED")
    torch = torch_module(source, "which knows the GPU")
    capability = f"lambda args: {torch}.cuda.get_device_capability() >= ({FIRST_RIGHT // 10}, 0)"
    wanted = " and ".join([*_flags(source, kernel, loop, load), flag])
    return {
        **with_parameters(source, kernel, [f"{flag}: {tl}.constexpr"], "False"),
        **with_heuristics(source, kernel, {flag: capability}),
        called: ranging(tl, OPTION, wanted),
    }


def _flags(source: Source, kernel: Kernel, loop: cst.For, load: cst.Call) -> Iterator[str]:
    """The constants that say whether there are descriptors, where pointers may stand in."""
    for around in source.ancestors(load):
        if around is loop:
            return
        match around:
            case cst.If(test=cst.Name(value=name)) if name in kernel.constants:
                yield name
