"""What to do about a kernel on Triton's Tile IR backend, beyond the configs that are written.

Sources: the Triton-to-tile-IR README and its performance tuning tips; TensorRT-LLM's
kernel-tileir-optimization skill.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.kinds import KernelKind, Kind
from agent.analysis.triton.operations import Operations, operations_of
from agent.syntax import Source
from agent.tileir.compatibility import Obstacle, stops
from agent.tileir.configs import HINTS, is_persistent
from agent.tileir.hints import RANGES

APPROXIMATED = frozenset(("exp", "exp2", "log", "log2", "tanh", "sigmoid", "softmax"))
"""What TILEIR_ENABLE_APPROX makes cheaper."""


def recommend(
    source: Source, kinds: tuple[KernelKind, ...], findings: tuple[Obstacle, ...]
) -> tuple[str, ...]:
    """What to do, a line each, the kernel with the most work first."""
    by_name = {kernel.name: kernel for kernel in TRITON.launched(source)}
    found: list[str] = []
    for each in kinds:
        stopping = stops(findings, each.kernel)
        if stopping:
            found.append(f"{each.kernel} stays on PTX: line {stopping[0].line}: {stopping[0].text}")
            continue
        operations = operations_of(source, by_name[each.kernel])
        found += [f"{each.kernel}: {line}" for line in _recommend(each, operations, findings)]
    return tuple(dict.fromkeys(found))


def _recommend(
    kind: KernelKind, operations: Operations, findings: tuple[Obstacle, ...]
) -> Iterator[str]:
    called = {operation for _, _, operation in operations.calls}
    family = kind.kind.family
    if family == Kind.DOT:
        if is_persistent(operations):
            yield "tune occupancy and num_stages, and try tiles of 256: `tileir apply`"
            yield "leave num_ctas at 1: its grid counts on one CTA an SM"
        else:
            yield "tune occupancy, num_stages and num_ctas=2, and try tiles of 256: `tileir apply`"
        yield "time small products apart: Tile IR is slow at them, whatever the hints"
        yield "num_stages is a hint of cost: none may run out of shared or tensor memory; report it"
        if any(f.kind == "speed" and f.kernel == kind.kernel for f in findings):
            yield "load the dot's operands through tensor descriptors, for TMA: `tileir apply`"
    elif family in (Kind.NORM, Kind.REDUCTION):
        yield "tune occupancy, 2 and 4: `tileir apply`; Tile IR chooses the warps itself"
        yield "compare long rows too: they may spill, and num_warps cannot help there"
    elif family == Kind.ELEMENT_WISE:
        yield "tune occupancy, 1 to 16, and num_stages: `tileir apply`; 16 is for small inputs"
    if family in HINTS:
        yield f"occupancy is 1 where nobody sets it, and may be {RANGES}"
    if "exp" in called:
        yield (
            "call tl.exp2 of a multiple by log2(e), which CUDA 13.1 does not make of tl.exp: "
            "`tileir apply`"
        )
    if called & APPROXIMATED:
        yield "try `tileir bench --approx --ftz`, which PTX does unasked; results lose digits"
    if "sigmoid" in called:
        yield "write 1 / (1 + tl.exp(-x)) for tl.sigmoid, which some builds lack: `tileir apply`"
