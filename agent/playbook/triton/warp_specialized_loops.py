"""Let some warps load tiles while others multiply them: warp specialization.

When: a Triton kernel that multiplies tiles in a loop, all of which descriptors can load, on
    sm_100 or later.
Do: `warp_specialize=True` on the loop's `tl.range`, tensor descriptors for its tiles where it has
    none, and 4 warps, beside which the compiler puts others that only load. Block sizes and stages
    go with it, so all are set at once.
Risk: other block sizes may change the last digits of a sum. The compiler's pass is young: a
    version that fails, hangs or loses is a row like any other.
Source: the `warp_specialize` of `tl.range`, which the tutorials use for attention and products.
    Triton's documentation names Blackwell alone, and is right: with Triton 3.6 the same loops
    compile for sm_90, to 384 threads of which one group issues all `UTMALDG`, but on an H200 the
    results of 21 of 23 such versions of a product, a batch of them and an attention were wrong by
    more than the result itself, and the other two were 1.7 and 2.7 times as slow as the origin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import libcst as cst

from agent.backends.base import KernelClass
from agent.backends.dialect import Kernel
from agent.backends.triton import TRITON
from agent.playbook.base import NotApplicable, Optimization, Params, Subject
from agent.playbook.pointers import root
from agent.playbook.triton.blocks_and_warps import BlocksAndWarps
from agent.playbook.triton.tile_descriptors import TileDescriptors
from agent.playbook.triton_described import MAKE, check_hardware
from agent.playbook.triton_edits import Edit, preceded
from agent.playbook.triton_host import language
from agent.playbook.triton_loops import PLAIN, ranging
from agent.playbook.triton_options import DEFAULTS, check, setting_options
from agent.playbook.triton_programs import unused
from agent.playbook.triton_tiles import LOAD
from agent.syntax import Source, assigned, descendants, keyword

FIRST_RIGHT = 100
WARPS = 4
"""Of each group. With more the compiler takes no loop apart."""
STAGES = (2, 3, 4)
MOST_VARIANTS = 8
WIDEST_BITS = 16
"""Of an element: for sm_90 the compiler fails on products of fp32 tiles."""
OPTION = "warp_specialize"
LOOPS = (cst.For, cst.While)


class WarpSpecializedLoops(Optimization):
    """`range(...)` -> `tl.range(..., warp_specialize=True)` over descriptors, with 4 warps."""

    name = "warp-specialized-loops"
    title = "warp-specialized loops"
    backend = "triton"
    family = "specialization"
    priority: ClassVar = {KernelClass.COMPUTE: 15, KernelClass.BALANCED: 31}
    expected = "to be measured; Triton's tutorials use it on Blackwell"
    changes_rounding = True
    hypothesis = "Warps that only load never wait for a product, nor a product for an address."
    revisit_after = frozenset({"tiles"})
    example: ClassVar[Params] = {"num_stages": 3}
    before = TileDescriptors.before
    after = TileDescriptors.after.replace(
        "    for k in range(0, K, BLOCK_K):",
        "    specialized: tl.constexpr = DESCRIPTORS and "
        "a_ptr.dtype.element_ty.primitive_bitwidth <= 16\n"
        "    for k in tl.range(0, K, BLOCK_K, warp_specialize=specialized):",
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Stages for the present blocks, then the blocks and stages of `blocks-and-warps`."""
        found: list[Params] = [{"num_stages": stages} for stages in STAGES]
        self.apply(subject, found[0])
        try:
            sweep = BlocksAndWarps().variants(subject)
        except NotApplicable:
            return found
        for params in sweep:
            specialized = {**params, "num_warps": WARPS}
            if specialized not in found and "num_stages" in params:
                found.append(specialized)
        return [params for params in found if _is_another(subject, params)][:MOST_VARIANTS]

    def apply(self, subject: Subject, params: Params) -> str:
        """Set sizes and options, load through descriptors, and take the loops apart."""
        check_hardware(subject)
        if 0 < subject.hardware.sm < FIRST_RIGHT:
            raise NotApplicable(f"for sm_{subject.hardware.sm} the compiler's results are wrong")
        described = _described(subject, _sized(subject, params))
        edits: dict[cst.CSTNode, Edit] = {}
        for kernel in _kernels(described):
            edits |= _specializing(described, kernel)
        return described.rewrite(edits)


def _is_another(subject: Subject, params: Params) -> bool:
    """Whether sizes of blocks can be set, and are not set so already."""
    try:
        _sized(subject, params)
    except NotApplicable:
        return False
    return True


def _sized(subject: Subject, params: Params) -> Source:
    """The file with the block sizes, the stages, and 4 warps."""
    source, options = subject.source, {**params, "num_warps": WARPS}
    if any(name not in DEFAULTS for name in params):
        return Source(BlocksAndWarps().apply(subject, options), source.path)
    launches = [launch for kernel in _kernels(source) for launch in kernel.launches]
    check(source, launches)
    edits = setting_options(source, launches, options)
    return Source(source.rewrite(edits), source.path) if edits else source


def _described(subject: Subject, source: Source) -> Source:
    """The file with descriptors for its tiles, if it has none yet."""
    if all(_descriptors(source, kernel) for kernel in _kernels(source)):
        return source
    text = TileDescriptors().apply(replace(subject, source=source), {"tiles": "loads"})
    return Source(text, source.path)


def _kernels(source: Source) -> list[Kernel]:
    """The launched kernels that multiply tiles, whose warps the launches choose."""
    found = [k for k in TRITON.launched(source) if TRITON.has_dot(source, k)]
    if not found:
        raise NotApplicable("no launched kernel multiplies tiles")
    for kernel in found:
        if TRITON.autotuned(source, kernel.function):
            raise NotApplicable(f"Triton tunes the warps itself: {kernel.name} is autotuned")
    return found


def _descriptors(source: Source, kernel: Kernel) -> dict[str, cst.Call]:
    """The tensor descriptors of a kernel: name -> the call that makes it."""
    made = set(TRITON.find(source, kernel.function.node.body, (MAKE,)))
    return {
        target.value: value
        for target, value in assigned(kernel.function.node.body)
        if isinstance(target, cst.Name) and isinstance(value, cst.Call) and value in made
    }


def _loop(source: Source, kernel: Kernel) -> tuple[cst.For, cst.Call, cst.Call]:
    """The innermost loop that multiplies what descriptors load, with one of them and its load."""
    made = _descriptors(source, kernel)
    found = []
    for loop in descendants(kernel.function.node.body, cst.For):
        if any(inner is not loop for kind in LOOPS for inner in descendants(loop, kind)):
            continue
        if not any(True for _ in TRITON.find(source, loop.body, TRITON.dots)):
            continue
        for call in descendants(loop.body, cst.Call):
            match call.func:
                case cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value="load")):
                    if name in made:
                        found.append((loop, made[name], call))
                        break
    if len(found) != 1:
        raise NotApplicable(
            f"{kernel.name} has {len(found)} loops that multiply what descriptors load; "
            "the compiler takes one apart"
        )
    called = found[0][0].iter
    if not isinstance(called, cst.Call) or source.name(called.func) not in PLAIN:
        raise NotApplicable(f"line {source.line(called)} is no range")
    if keyword(called, OPTION) is not None:
        raise NotApplicable(f"the loop at line {source.line(called)} is specialized already")
    for call in TRITON.find(source, found[0][0].body, (LOAD,)):
        if not _stands_in(source, kernel, call):
            raise NotApplicable(f"line {source.line(call)} loads through pointers in the same loop")
    return found[0]


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
    """The edits that take a kernel's loop apart, where its elements are of 16 bits or fewer."""
    loop, made, load = _loop(source, kernel)
    tl = language(source, kernel)
    name = unused(kernel, "specialized")
    conditions = list(_flags(source, kernel, loop, load))
    base = root(source, kernel, made.args[0].value) if made.args else None
    if base is not None:
        conditions.append(f"{base}.dtype.element_ty.primitive_bitwidth <= {WIDEST_BITS}")
    specialized = f"{name}: {tl}.constexpr = {' and '.join(conditions) or 'True'}"
    return {
        loop: lambda updated: preceded(updated, [specialized]),
        loop.iter: ranging(tl, OPTION, name),
    }


def _flags(source: Source, kernel: Kernel, loop: cst.For, load: cst.Call) -> Iterator[str]:
    """The constants that say whether there are descriptors, where pointers may stand in."""
    for around in source.ancestors(load):
        if around is loop:
            return
        match around:
            case cst.If(test=cst.Name(value=name)) if name in kernel.constants:
                yield name
