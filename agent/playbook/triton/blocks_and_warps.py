"""Choose block sizes together with the warps, and for a dot the stages, that suit them.

When: a Triton kernel whose `tl.constexpr` tile sizes are set to integers in the file. Not an
    autotuned one, and not one whose block must hold a whole row.
Do: set the sizes, `num_warps` and for a dot `num_stages` at once: a tile of 128 x 256 accumulators
    spills with the default 4 warps, and 8 warps idle on the 64 x 64 that it replaces, so that
    neither step gains anything alone. Where a launch computes its warps, a heuristic sets them.
Risk: sums in another order; else none to results while a constant is a tile size only, which is
    checked. The block sizes hold for every problem size; `add-autotune` chooses for each.
Source: Triton's matrix product tutorial lists 128 x 256 x 64 with 8 warps and 3 stages first;
    Helion's seeds for H100: at most 32768 fp32 accumulators, 8 warps from 16384 of them. Compiled
    with Triton 3.9 for sm_90, a bf16 product of 128 x 256 x 64 spills 1024 bytes a thread with 4
    warps and none with 8, at 204 registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.following import following
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.configs import Config, axes_of, configs
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.tile_extents import have_work
from agent.analysis.triton.tuners import check_untuned
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.common.tile_sizes import ChangeableTiles
from agent.rewriting.triton.kernel_options import options_of
from agent.rewriting.triton.launch_options import DEFAULTS
from agent.rewriting.triton.unread_options import with_options
from agent.syntax import Source

MOST_VARIANTS = 8


class BlocksAndWarps(Optimization):
    """Other integers where the block sizes are set, with warps and stages to match."""

    name = "blocks-and-warps"
    title = "blocks and warps"
    backend = "triton"
    family = "tiles"
    priority: ClassVar = {KernelClass.COMPUTE: 6, KernelClass.BALANCED: 6, KernelClass.MEMORY: 8}
    expected = "up to twice as fast over small blocks with the default of 4 warps"
    hypothesis = "A larger block reuses more, with the warps whose registers just hold it."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {"BLOCK": 2048, "num_warps": 8}
    before = """\
import torch
import triton
import triton.language as tl

BLOCK_SIZE = 512


@triton.jit
def swish_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x / (1 + tl.exp(-x)), mask=mask)


def swish(x):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK_SIZE),)
    swish_kernel[grid](x, y, x.numel(), BLOCK=BLOCK_SIZE)
    return y
"""
    after = before.replace("BLOCK_SIZE = 512", "BLOCK_SIZE = 2048").replace(
        "BLOCK=BLOCK_SIZE)", "BLOCK=BLOCK_SIZE, num_warps=8)"
    )

    trial = TritonTrial(
        kernel="swish_kernel",
        types=(P, P, "i32", 512),
        function="swish",
        types_after=(P, P, "i32", 2048),
        options_after={"num_warps": 8},
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The most promising configs; with several kernels each names the one it changes."""
        subject = following(TRITON, subject)
        tiles = _tiles(subject)
        share = MOST_VARIANTS // len(tiles.kernels) or 1
        found: list[Params] = []
        for name in tiles.kernels:
            named = {"kernel": name} if len(tiles.kernels) > 1 else {}
            found += [{**named, **params} for params in _worth_trying(subject, tiles, name)[:share]]
        if not found:
            raise NotApplicable("every config worth trying is out of bounds or already there")
        return found[:MOST_VARIANTS]

    def apply(self, subject: Subject, params: Params) -> str:
        """Set the sizes where the launches take them from, and the options at the launches."""
        subject = following(TRITON, subject)
        tiles = _tiles(subject)
        name = str(params.get("kernel") or next(iter(tiles.kernels)))
        if name not in tiles.kernels:
            raise NotApplicable(f"no block size of {name} can change")
        options = {option: int(params[option]) for option in DEFAULTS if option in params}
        resized = subject.source.with_text(_resized(tiles, name, params))
        edits = options_of(resized, _kernel(resized, name), DEFAULTS).setting(options)
        text = with_options(resized, edits) if edits else resized.text
        if text == subject.source.text:
            raise NotApplicable(f"{name} is launched with these blocks and warps already")
        return text


def _tiles(subject: Subject) -> ChangeableTiles:
    if subject.hardware.interpreted:
        raise NotApplicable("Triton's interpreter knows neither warps nor stages")
    source = subject.source
    launched = [k for k in TRITON.kernels(source) if k.launches]
    check_untuned(source, launched, "blocks and warps")
    tiles = ChangeableTiles.of(TRITON, source)
    for name in tiles.kernels:
        check_untuned(source, [_kernel(source, name)], "blocks and warps")
        options_of(source, _kernel(source, name), DEFAULTS)
    return tiles


def _kernel(source: Source, name: str) -> Kernel:
    return next(k for k in TRITON.kernels(source) if k.name == name and k.launches)


def _resized(tiles: ChangeableTiles, kernel: str, params: Params) -> str:
    """The text with the block sizes; as it is when they are these already."""
    sizes = {name: value for name, value in params.items() if name not in DEFAULTS}
    try:
        return tiles.resize(sizes)
    except NotApplicable:
        by_name = {t.constant: t.size for t in tiles.kernels[kernel]}
        if any(by_name.get(name) != value for name, value in sizes.items() if name != "kernel"):
            raise
        return tiles.source.text


def _worth_trying(subject: Subject, tiles: ChangeableTiles, name: str) -> list[Params]:
    source = subject.source
    kernel = _kernel(source, name)
    found = configs(source, kernel, axes_of(tiles.kernels[name]), subject.hardware.sm)
    options = options_of(source, kernel, DEFAULTS)
    sizes = {t.constant: t.size for t in tiles.kernels[name]}

    def is_there(params: Params) -> bool:
        chosen = {name: value for name, value in params.items() if name in DEFAULTS}
        return options.say(chosen) and all(
            sizes[name] == value for name, value in params.items() if name not in DEFAULTS
        )

    return [
        _params(config)
        for config in found
        if not is_there(_params(config)) and have_work(subject, kernel, dict(config.constants))
    ]


def _params(config: Config) -> Params:
    stages = {} if config.num_stages is None else {"num_stages": config.num_stages}
    return {**dict(config.constants), "num_warps": config.num_warps, **stages}
