"""Occupancy follows CUDA's rules: checked against published figures and by placing blocks."""

from __future__ import annotations

import pytest

from agent.evidence.occupancy import LIMITS, cannot_run, occupancy

KIB = 1024


@pytest.mark.parametrize(
    ("sm", "registers", "threads", "shared", "blocks", "limiters"),
    [
        (80, 32, 256, 0, 8, {"registers", "warps"}),
        (80, 33, 256, 0, 6, {"registers"}),  # 33 are handed out as 40
        (80, 64, 256, 0, 4, {"registers"}),
        (80, 255, 128, 0, 2, {"registers"}),
        (80, 16, 32, 0, 32, {"blocks"}),
        (90, 82, 32, 0, 20, {"registers"}),  # as an H200's driver has it
        (90, 48, 64, 0, 20, {"registers"}),  # likewise
        (90, 16, 96, 0, 21, {"warps"}),
        (80, 16, 128, 0, 16, {"warps"}),
        (86, 16, 64, 0, 16, {"blocks"}),
        (89, 32, 1024, 0, 1, {"warps"}),
        (90, 32, 128, 48 * KIB, 4, {"shared memory"}),
        (90, 32, 128, 227 * KIB, 1, {"shared memory"}),
        (90, 32, 128, 228 * KIB, 0, {"shared memory"}),
        (100, 168, 384, 0, 1, {"registers"}),
        (120, 40, 128, 0, 12, {"registers", "warps"}),
        (120, 32, 128, 99 * KIB, 1, {"shared memory"}),
    ],
)
def test_figures(
    sm: int, registers: int, threads: int, shared: int, blocks: int, limiters: set[str]
) -> None:
    found = occupancy(sm, registers, threads, shared)
    assert found is not None
    assert (found.blocks, set(found.limiters)) == (blocks, limiters)
    assert found.warps == blocks * -(-threads // 32)


def place(sm: int, registers: int, threads: int, shared: int) -> int:
    """Put blocks on a multiprocessor one by one, each warp into its emptiest partition."""
    limits = LIMITS[sm]
    each = -(-registers * 32 // 256) * 256
    free = [65536 // 4] * 4
    slots = limits.warps
    left = limits.shared_bytes
    blocks = 0
    while blocks < limits.blocks:
        left -= -(-(shared + 1024) // 128) * 128
        for _ in range(-(-threads // 32)):
            free[free.index(max(free))] -= each
            slots -= 1
        if left < 0 or min(free) < 0 or slots < 0:
            break
        blocks += 1
    return blocks


@pytest.mark.parametrize("sm", [80, 89, 90, 120])
def test_no_other_number_of_blocks_can_be_placed(sm: int) -> None:
    for registers in (16, 24, 32, 40, 56, 63, 64, 72, 96, 128, 168, 255):
        for threads in (32, 64, 96, 128, 160, 256, 384, 512, 1024):
            for shared in (0, 16, 1000, 8 * KIB, 33 * KIB, 99 * KIB, 160 * KIB):
                found = occupancy(sm, registers, threads, shared)
                assert found is not None
                assert found.blocks == place(sm, registers, threads, shared)


def test_what_is_not_known_is_not_guessed() -> None:
    assert occupancy(75, 32, 128, 0) is None
    assert occupancy(90, 32, 0, 0) is None


def test_what_cannot_run() -> None:
    assert cannot_run(90, 64, 128, 227 * KIB) is None
    said = cannot_run(90, 64, 128, 227 * KIB + 1)
    assert said == (
        "needs 232449 bytes of shared memory a block, and sm_90 has 232448: "
        "take smaller tiles or fewer stages"
    )
    assert "99" not in (cannot_run(90, 64, 128, 100 * KIB) or "")
    assert "101376" in (cannot_run(120, 64, 128, 100 * KIB) or "")
    assert "255 registers for each of 512 threads" in (cannot_run(90, 255, 512, 0) or "")
    assert cannot_run(90, 128, 512, 0) is None
    assert "2048 threads" in (cannot_run(90, 16, 2048, 0) or "")
