"""The playbook: every optimization tile-agent can make, one a file.

To add one, write its file beside the others and name it here; the tests find it by this tuple.
"""

from __future__ import annotations

from difflib import get_close_matches

from agent.analysis.common.kernels import KernelClass
from agent.errors import UsageError
from agent.playbook.base import Advice, Entry, Optimization
from agent.playbook.cutile.assume_divisible import AssumeDivisible
from agent.playbook.cutile.autotune import Autotune
from agent.playbook.cutile.batched_copies import BatchedCopies
from agent.playbook.cutile.check_bounds import CheckBounds
from agent.playbook.cutile.custom_plan import CustomPlan
from agent.playbook.cutile.dead_parameters import DeadParameters
from agent.playbook.cutile.exp2 import Exp2
from agent.playbook.cutile.fast_math import FastMath
from agent.playbook.cutile.gather_to_load import GatherToLoad
from agent.playbook.cutile.grouped_order import GroupedOrder
from agent.playbook.cutile.load_latency import LoadLatency
from agent.playbook.cutile.load_without_tma import LoadWithoutTma
from agent.playbook.cutile.num_ctas import NumCtas
from agent.playbook.cutile.occupancy_hint import OccupancyHint
from agent.playbook.cutile.opt_level import OptLevel
from agent.playbook.cutile.persistent_blocks import PersistentBlocks
from agent.playbook.cutile.rows_per_block import RowsPerBlock
from agent.playbook.cutile.slices_per_block import SlicesPerBlock
from agent.playbook.cutile.static_shapes import StaticShapes
from agent.playbook.cutile.store_latency import StoreLatency
from agent.playbook.cutile.store_without_tma import StoreWithoutTma
from agent.playbook.cutile.tf32_guard import Tf32Guard
from agent.playbook.cutile.tile_sizes import TileSizes
from agent.playbook.cutile.token_order import TokenOrder
from agent.playbook.cutile.worker_warps import WorkerWarps
from agent.playbook.cutile.zero_padding import ZeroPadding
from agent.playbook.triton.add_autotune import AddAutotune
from agent.playbook.triton.aligned_offsets import AlignedOffsets
from agent.playbook.triton.block_descriptors import BlockDescriptors
from agent.playbook.triton.block_size import BlockSize
from agent.playbook.triton.blocks_and_warps import BlocksAndWarps
from agent.playbook.triton.cache_modifiers import CacheModifiers
from agent.playbook.triton.causal_skip import CausalSkip
from agent.playbook.triton.causal_split import CausalSplit
from agent.playbook.triton.epilogue_halves import EpilogueHalves
from agent.playbook.triton.even_blocks import EvenBlocks
from agent.playbook.triton.eviction_policy import EvictionPolicy
from agent.playbook.triton.folded_exp2 import FoldedExp2
from agent.playbook.triton.fused_kernels import FusedKernels
from agent.playbook.triton.grouped_programs import GroupedPrograms
from agent.playbook.triton.hoisted_reciprocal import HoistedReciprocal
from agent.playbook.triton.host_descriptors import HostDescriptors
from agent.playbook.triton.longest_first import LongestFirst
from agent.playbook.triton.loop_stages import LoopStages
from agent.playbook.triton.online_softmax import OnlineSoftmax
from agent.playbook.triton.persistent_programs import PersistentPrograms
from agent.playbook.triton.reciprocal_square_root import ReciprocalSquareRoot
from agent.playbook.triton.row_in_registers import RowInRegisters
from agent.playbook.triton.rows_per_program import RowsPerProgram
from agent.playbook.triton.split_k import SplitK
from agent.playbook.triton.static_ranges import StaticRanges
from agent.playbook.triton.tf32_dots import Tf32Dots
from agent.playbook.triton.tile_descriptors import TileDescriptors
from agent.playbook.triton.tile_ir_hints import TileIrHints
from agent.playbook.triton.unrolled_loops import UnrolledLoops
from agent.playbook.triton.warp_specialized_loops import WarpSpecializedLoops
from agent.playbook.triton.warps_and_stages import WarpsAndStages
from agent.playbook.triton.warps_by_row import WarpsByRow
from agent.playbook.triton.widen_configs import WidenConfigs

PLAYBOOK: tuple[Optimization, ...] = (
    OccupancyHint(),
    TileSizes(),
    StoreWithoutTma(),
    LoadLatency(),
    NumCtas(),
    GatherToLoad(),
    PersistentBlocks(),
    GroupedOrder(),
    TokenOrder(),
    Tf32Guard(),
    Exp2(),
    FastMath(),
    LoadWithoutTma(),
    StoreLatency(),
    WorkerWarps(),
    OptLevel(),
    StaticShapes(),
    RowsPerBlock(),
    SlicesPerBlock(),
    AssumeDivisible(),
    DeadParameters(),
    CheckBounds(),
    Autotune(),
    BlocksAndWarps(),
    WarpSpecializedLoops(),
    WarpsAndStages(),
    BlockSize(),
    LoopStages(),
    CacheModifiers(),
    EvictionPolicy(),
    ReciprocalSquareRoot(),
    WarpsByRow(),
    RowInRegisters(),
    AddAutotune(),
    WidenConfigs(),
    GroupedPrograms(),
    LongestFirst(),
    EvenBlocks(),
    FoldedExp2(),
    CausalSplit(),
    HostDescriptors(),
    TileDescriptors(),
    PersistentPrograms(),
    RowsPerProgram(),
    AlignedOffsets(),
    UnrolledLoops(),
    StaticRanges(),
    HoistedReciprocal(),
    BlockDescriptors(),
    EpilogueHalves(),
    Tf32Dots(),
)

ADVICE: tuple[Advice, ...] = (
    ZeroPadding(),
    BatchedCopies(),
    CustomPlan(),
    FusedKernels(),
    OnlineSoftmax(),
    CausalSkip(),
    SplitK(),
    TileIrHints(),
)
"""The entries that need judgement; a program can only say where they fit."""

LAST = 1000
"""Priority of an optimization for a kernel class that it does not name."""


def for_backend(backend: str) -> tuple[Optimization, ...]:
    """The optimizations of one kernel language."""
    return tuple(o for o in PLAYBOOK if o.backend == backend)


def ordered(backend: str, kernel_class: KernelClass) -> tuple[Optimization, ...]:
    """Those of one kernel language, the most promising for a kernel class first."""
    return tuple(sorted(for_backend(backend), key=lambda o: o.priority.get(kernel_class, LAST)))


def find(name: str) -> Entry:
    """The entry of that name, with a transform or without.

    Raises:
        UsageError: there is none; the message names those it is near to.
    """
    by_name: dict[str, Entry] = {entry.name: entry for entry in (*PLAYBOOK, *ADVICE)}
    if name in by_name:
        return by_name[name]
    near = get_close_matches(name, by_name, n=3)
    mend = f"did you mean {' or '.join(near)}?" if near else "see `tile-agent playbook list`"
    raise UsageError(f"no optimization is called {name!r}; {mend}")


def get(name: str) -> Optimization:
    """The optimization of that name.

    Raises:
        UsageError: there is none that a program can carry out; the message says what to do.
    """
    entry = find(name)
    if not isinstance(entry, Optimization):
        raise UsageError(
            f"{name} needs judgement, so that no program carries it out: "
            f"read `tile-agent playbook show {name}`"
        )
    return entry
