"""Let Triton choose block sizes, warps and stages, for each problem size anew.

When: a Triton kernel whose `tl.constexpr` block sizes are integers in this file, launched from this
    file only. Not one whose block sizes reach its results or are handed in by a caller, whose block
    has to hold a row, or which sums and is named batch-invariant or deterministic.
Do: `@triton.autotune` above the kernel: the config it is launched with first, then about ten by
    formula for the architecture; `key=` the parameters that loops run to and indices are compared
    with; `restore_value=` what the kernel both reads and writes, or may: an output that a caller
    hands in can be an input. Where that may require a gradient, the launch stands in
    `torch.no_grad()`, for the tuner copies into it. The launch no longer gives block sizes, warps
    and stages, and its grid takes the block sizes from `META`.
Risk: a block size that a loop adds up in changes the order of the sum. The first call for each new
    value of the key takes as long as compiling and timing every config, seconds; a size that
    changes with every call, as a number of tokens does, makes that the common case.
Source: TileGym's cuTile playbook, item C, claims 10 to 50 % over fixed sizes. The configs follow
    Helion's seeds for H100: at most 32768 fp32 accumulators, 8 warps from 16384.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.absent import may_be_none
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.each_kernel import all_refuse, of_constants
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.provenance import TileConstant, tile_names, tile_of
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.arguments import does_without, rewritten, size_parameters
from agent.analysis.triton.configs import DEFAULT_STAGES, DEFAULT_WARPS, Config, axes_of, configs
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.fixed_order import check_order_may_change
from agent.analysis.triton.heuristics import heuristics_of
from agent.analysis.triton.host import HostView, launches_in_sight, triton_module
from agent.analysis.triton.tuners import check_untuned
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import PAIRS, P, TritonTrial
from agent.rewriting.triton.edits import Edit, above, fitted, without
from agent.rewriting.triton.grid import grid_from_meta
from agent.rewriting.triton.launch_options import check_shown
from agent.rewriting.triton.restoring import without_gradients
from agent.syntax import Source, Untraceable

OPTIONS = ("num_warps", "num_stages")
CTAS = "num_ctas"
"""An option that every config of Triton gives, 1 where it says nothing of it."""


class AddAutotune(Optimization):
    """`@triton.jit` -> `@triton.autotune(configs=[...], key=[...])` above it."""

    name = "add-autotune"
    title = "autotune"
    backend = "triton"
    family = "tuning"
    priority: ClassVar = {KernelClass.COMPUTE: 74, KernelClass.BALANCED: 74, KernelClass.MEMORY: 74}
    expected = "10 to 50 % over a guessed size (TileGym); more where shapes differ"
    hypothesis = "Each problem size has its own best blocks, warps and stages; Triton times them."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {}
    before = '''\
import torch
import triton
import triton.language as tl

BLOCK_SIZE = 1024


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Adds two vectors."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


def add(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    grid = (triton.cdiv(n, BLOCK_SIZE),)
    add_kernel[grid](x, y, out, n, BLOCK=BLOCK_SIZE, num_warps=8)
    return out
'''
    after = before.replace(
        "@triton.jit\n",
        """\
@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 1024}, num_warps=8),
        triton.Config({"BLOCK": 2048}, num_warps=8),
        triton.Config({"BLOCK": 4096}, num_warps=8),
        triton.Config({"BLOCK": 1024}, num_warps=4),
        triton.Config({"BLOCK": 2048}, num_warps=4),
        triton.Config({"BLOCK": 8192}, num_warps=16),
        triton.Config({"BLOCK": 8192}, num_warps=8),
        triton.Config({"BLOCK": 4096}, num_warps=4),
        triton.Config({"BLOCK": 16384}, num_warps=16),
        triton.Config({"BLOCK": 512}, num_warps=4),
        triton.Config({"BLOCK": 4096}, num_warps=16),
    ],
    key=["n"],
)
@triton.jit
""",
    ).replace(
        """\
    grid = (triton.cdiv(n, BLOCK_SIZE),)
    add_kernel[grid](x, y, out, n, BLOCK=BLOCK_SIZE, num_warps=8)
""",
        """\
    grid = lambda META: (triton.cdiv(n, META["BLOCK"]),)
    add_kernel[grid](x, y, out, n)
""",
    )

    trial = TritonTrial(
        kernel="add_kernel", types=(P, P, P, "i32", 1024), function="add", calls=PAIRS
    )

    def apply(self, subject: Subject, params: Params) -> str:
        """Tune every launched kernel that can be.

        With `configs` as `present` its one config is what the launch gives: the kernel stays what
        it was, for whoever adds configs of their own.
        """
        if subject.hardware.interpreted:
            raise NotApplicable("Triton's interpreter cannot time configs")
        source = subject.source
        edits: dict[cst.CSTNode, Edit] = {}
        reasons: list[str] = []
        tiles = _tiles(source, reasons)
        for kernel in TRITON.chosen(source):
            try:
                edits |= _tuned(
                    source,
                    kernel,
                    tiles.get(kernel.name, ()),
                    subject.hardware.sm,
                    present=params.get("configs") == "present",
                )
            except NotApplicable as reason:
                reasons.append(str(reason))
                continue
        if not edits:
            raise all_refuse(reasons, "no kernel is launched")
        return source.rewrite(edits)


def _tiles(source: Source, reasons: list[str]) -> dict[str, tuple[TileConstant, ...]]:
    """Kernel -> its constants that tuning may choose."""
    kernels = [k for k in TRITON.kernels(source) if k.launches]
    if kernels and all(TRITON.autotuned(source, k.function) for k in kernels):
        are = "is" if len(kernels) == 1 else "are"
        raise NotApplicable(f"{', '.join(k.name for k in kernels)} {are} autotuned already")
    check_untuned(source, kernels, "the block sizes")
    found: dict[str, tuple[TileConstant, ...]] = {}
    for kernel in TRITON.chosen(source):
        tiles = []
        refused: dict[str, str] = {}
        tuned = TRITON.autotuned(source, kernel.function)
        for constant in () if tuned else tile_names(TRITON, source, kernel):
            if constant in kernel.constants:
                try:
                    tiles.append(tile_of(TRITON, source, kernel, constant))
                except NotApplicable as refusal:
                    refused[constant] = str(refusal)
        reasons += of_constants(kernel.name, refused)
        found[kernel.name] = tuple(tiles)
    return found


def _tuned(
    source: Source, kernel: Kernel, tiles: Sequence[TileConstant], sm: int, *, present: bool
) -> dict[cst.CSTNode, Edit]:
    if TRITON.autotuned(source, kernel.function):
        raise NotApplicable(f"{kernel.name} is autotuned already")
    check_untuned(source, [kernel], "the block sizes")
    if not tiles:
        raise NotApplicable(f"{kernel.name} has no block size of its own to tune")
    check_order_may_change(source, kernel)
    launches = launches_in_sight(source, kernel)
    for launch in launches:
        check_shown(source, launch)  # a tuner gives all of them itself
    key = size_parameters(source, kernel)
    if not key:
        raise NotApplicable(f"no parameter of {kernel.name} says how much there is to do")
    restored = rewritten(source, kernel, possibly=True)
    if given := set(restored) & heuristics_of(source, kernel).keys():
        raise NotApplicable(f"a heuristic gives {min(given)}, which no tuner can restore")
    _check_alone(source, launches)
    _check_there(source, launches, [n for n in restored if does_without(source, kernel, n)])
    first = _present(source, kernel, tiles)
    axes = axes_of(tiles)
    found = [first, *(c for c in configs(source, kernel, axes, sm) if not _same(c, first))]
    if len({config.constants for config in found}) == 1:  # its warps are no matter of a tuner
        raise NotApplicable(f"no other block size of {kernel.name} is safe: an access is unguarded")
    triton = triton_module(source, kernel)
    spelled = f"{triton}.Config"
    lines = [
        f"@{triton}.autotune(",
        "    configs=[",
        *(f"        {config.code(spelled)}," for config in (found[:1] if present else found)),
        "    ],",
        f"    key=[{_listed(key)}],",
        *([f"    restore_value=[{_listed(restored)}],"] if restored else []),
        ")",
    ]
    edits: dict[cst.CSTNode, Edit] = above(kernel, "\n".join(lines))
    dropped = {*(t.constant for t in tiles), *OPTIONS, CTAS}
    for launch in launches:
        drop, node = without(launch, dropped), launch.node

        def shorter(call: cst.Call, drop: Edit = drop, node: cst.Call = node) -> cst.Call:
            return fitted(source, node, drop(call))

        edits[node] = shorter
        edits |= grid_from_meta(source, kernel, launch, tiles)
        if restored:
            edits |= without_gradients(source, launch, restored)
    return edits


def _check_there(source: Source, launches: Sequence[Launch], restored: Sequence[str]) -> None:
    """Raise `NotApplicable` where a launch may give `None` for what a tuner is to restore."""
    for launch in launches:
        for name in restored:
            given = HostView(source, launch).given(name)
            if given is not None and may_be_none(source, given):
                raise NotApplicable(
                    f"the launch at line {source.line(launch.node)} may give None for {name}, "
                    "which not every tuner of Triton can restore"
                )


def _check_alone(source: Source, launches: Sequence[Launch]) -> None:
    """Raise `NotApplicable` where a launch spreads a program over several thread blocks."""
    for launch in launches:
        given = launch.hints.get(CTAS)
        if given is not None and source.code(given) != "1":
            raise NotApplicable(
                f"the launch at line {source.line(launch.node)} gives {CTAS}={source.code(given)}, "
                "which a tuner's configs would have to"
            )


def _present(source: Source, kernel: Kernel, tiles: Sequence[TileConstant]) -> Config:
    """What every launch says now. Raises `NotApplicable` when that is not one config."""
    has_dot = TRITON.has_dot(source, kernel)
    given: set[tuple[int, int | None]] = set()
    for launch in kernel.launches:
        values = []
        for option in OPTIONS:
            if option in launch.arguments:
                raise NotApplicable(f"{kernel.name} takes {option} as a parameter")
            try:
                hint = launch.hints.get(option)
                values.append(source.trace(hint).value if hint is not None else None)
            except Untraceable as reason:
                line = source.line(launch.node)
                raise NotApplicable(f"{option} of the launch at line {line} {reason}") from None
        warps, stages = values
        given.add((warps or DEFAULT_WARPS, stages or (DEFAULT_STAGES if has_dot else None)))
    if len(given) > 1:
        raise NotApplicable(f"the launches of {kernel.name} give it different warps or stages")
    ((warps, stages),) = given
    return Config(tuple((t.constant, t.size) for t in tiles), warps, stages)


def _same(one: Config, other: Config) -> bool:
    return (dict(one.constants), one.num_warps, one.num_stages) == (
        dict(other.constants),
        other.num_warps,
        other.num_stages,
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
