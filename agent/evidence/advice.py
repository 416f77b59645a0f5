"""What an artifact suggests to try. Hints for a reader, from static facts alone: measure them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.evidence.model import Artifact
from agent.evidence.occupancy import cannot_run

LOW_OCCUPANCY = 0.25
WIDE_TENSOR_CORES = range(90, 120)
"""Capabilities times ten whose tensor cores take 64 rows at once; those of sm_120 take fewer."""
WIDE_BITS = 64
FEW = 8
"""Accesses too few to tell a pattern from a scalar."""
_TMA_MENDS = (
    ("base pointer not", "pass an array that begins at its allocation, or copy it"),
    ("stride not", "pad the rows to a multiple of 16 bytes"),
    ("TMA only supports zero padding", "pad with zeros and set the rest with ct.where"),
)
"""How a reason of the compiler begins -> what removes it."""


def suggestions(artifact: Artifact, *, multiplies: bool) -> tuple[str, ...]:
    """One line each, the gravest first.

    Args:
        artifact: what was compiled.
        multiplies: whether the source asks for matrix products.
    """
    return tuple(_suggestions(artifact, multiplies))


def problem(artifact: Artifact) -> str | None:
    """Why this artifact cannot run on its GPU; None when it can."""
    return cannot_run(artifact.sm, artifact.registers, artifact.threads, artifact.shared_bytes)


def old_products(artifact: Artifact) -> frozenset[int]:
    """The lines of products that use tensor cores as sm_80 has them, on a GPU that has better."""
    if artifact.sm not in WIDE_TENSOR_CORES:
        return frozenset()
    return frozenset(r.line for r in artifact.remarks if r.instruction == "Tensor-core SM80")


def behind_atomics(artifact: Artifact) -> tuple[frozenset[int], frozenset[int]]:
    """The lines of loads in a loop that wait for what acquires, and of what they wait for."""
    loads = [w for w in artifact.waits if w.round_before and w.access.kind == "load"]
    waiting = [wait for wait in loads if wait.awaited.acquires]
    return (
        frozenset(wait.access.line for wait in waiting),
        frozenset(wait.awaited.line for wait in waiting),
    )


def _suggestions(artifact: Artifact, multiplies: bool) -> Iterator[str]:
    mix = artifact.instructions
    if (reason := problem(artifact)) is not None:
        yield f"cannot run: {reason}"
    if artifact.stack_bytes:
        where = f" at line {', '.join(map(str, mix.spill_lines))} most" if mix.spill_lines else ""
        mend = "more warps (num_warps) or smaller blocks"
        if artifact.remarks:
            mend = "smaller tiles, num_worker_warps=8, or num_ctas=2 on sm_100"
        yield f"spills{where}: {mend}"
    if multiplies and not mix.tensor_core:
        yield (
            "matrix products without tensor cores: cast fp32 operands to TF32, or use fp16 or "
            "bf16, where the tolerance allows it"
        )
    if old := old_products(artifact):
        yield (
            f"the products at line {_listed(old)} use the tensor cores as sm_80 has them: "
            "those of this GPU take tiles of 64 rows and more; with 64 columns and more, exchange "
            "the operands (swapped-operands)"
        )
    yield from _memory(artifact)
    yield from _order(artifact)
    found = artifact.occupancy
    if found is not None and found.fraction < LOW_OCCUPANCY and not mix.tensor_core:
        yield (
            "few warps at once: a kernel that waits for memory wants more; "
            + ("occupancy=2, 4 or 8" if artifact.remarks else "fewer registers or smaller blocks")
        )


def _memory(artifact: Artifact) -> Iterator[str]:
    reasons = dict.fromkeys(r.reason for r in artifact.remarks if "Tma" in r.name and r.reason)
    for reason in reasons:  # which the remark tells
        lines = {r.line for r in artifact.remarks if r.reason == reason}
        if mend := next((mend for start, mend in _TMA_MENDS if reason.startswith(start)), ""):
            yield f"no TMA at line {_listed(lines)}: {mend}"
    for what, widths in (
        ("loads", artifact.instructions.load_widths),
        ("stores", artifact.instructions.global_stores),
    ):
        narrow = sum(n for bits, n in widths.items() if bits < WIDE_BITS)
        if narrow > sum(widths.values()) / 2 and narrow >= FEW:
            yield (
                f"most global {what} move less than {WIDE_BITS} bits: what a thread moves is not "
                "known to lie side by side and aligned (steps of more than an element, strides, "
                "extents or offsets that are no multiples of 16, or addresses that are read from "
                "memory)"
            )


def _order(artifact: Artifact) -> Iterator[str]:
    """Of chains of tokens, which keep loads from being made ahead, and stores from overlapping."""
    rounds = [wait for wait in artifact.waits if wait.round_before]
    loads = [wait for wait in rounds if wait.access.kind == "load"]
    behind, lines = behind_atomics(artifact)
    if behind:
        yield (
            f"nothing at line {_listed(behind)} is loaded ahead of line {_listed(lines)}, which "
            "acquires: memory_order=ct.MemoryOrder.RELAXED where blocks hand nothing on by it "
            "(relaxed-atomics)"
        )
    chained = {w.access.line for w in loads if not w.awaited.acquires}
    if chained:
        yield (
            f"the loads at line {_listed(chained)} wait for what the round before stores: nothing "
            "is loaded ahead; load from another array than the loop stores to"
        )
    stores = {w.access.line for w in rounds if w.access.kind == w.awaited.kind == "store"}
    if stores and not chained:
        yield (
            f"the stores at line {_listed(stores)} go one after the other: index them by the "
            "loop's own variable where each round has a tile of its own (token-order)"
        )


def _listed(lines: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(lines)))
