"""Differences in words, over artifacts made up for the purpose."""

from __future__ import annotations

from dataclasses import replace

from agent.evidence.advice import suggestions
from agent.evidence.compare import changes, pairs, unchanged
from agent.evidence.model import Artifact, CompiledLaunch, NotCompiled
from agent.evidence.sass import InstructionMix
from agent.evidence.text import difference, lines
from agent.launches import ObservedLaunch, ObservedTensor

LAUNCH = CompiledLaunch(
    "k", (("x", "*fp16"), ("B", "= 64")), grid=(8,), test="t.py::test", timed=True
)
BASE = Artifact(
    launch=LAUNCH,
    sm=90,
    registers=255,
    stack_bytes=1040,
    shared_bytes=100_000,
    threads=256,
    instructions=InstructionMix(
        total=1000, global_loads={32: 12, 128: 4}, spill_loads=9, spill_stores=3, spill_lines=(7,)
    ),
    digest="a",
    cubin_bytes=10,
    compile_s=0.1,
)
BETTER = replace(
    BASE,
    registers=128,
    stack_bytes=0,
    instructions=InstructionMix(total=1010, tensor_core={"HGMMA": 64}, global_loads={128: 16}),
    digest="b",
)


def test_what_an_engineer_would_say() -> None:
    assert changes(BASE, BETTER) == (
        "registers 255 -> 128",
        "spills gone",
        "warps a multiprocessor 8 -> 16",
        "HGMMA 0 -> 64",
        "128-bit loads 4 -> 16",
        "32-bit loads 12 -> 0",
    )
    assert changes(BETTER, BASE)[1] == "spills 1040 bytes a thread"
    assert "spilled 1040 -> 16 bytes a thread" in changes(
        BASE, replace(BASE, stack_bytes=16, digest="c")
    )


def test_the_same_digest_is_the_same_code() -> None:
    assert changes(BASE, replace(BETTER, digest="a")) == ()
    assert unchanged([BASE], [replace(BASE, compile_s=9.0)])
    assert not unchanged([BASE], [BASE, BASE])
    assert not unchanged([], [])


def test_a_failure_for_another_reason_is_a_change() -> None:
    one, other = NotCompiled(LAUNCH, 90, "no such attribute"), NotCompiled(LAUNCH, 90, "killed")
    assert unchanged([one], [one])
    assert not unchanged([one], [other])
    assert not unchanged([one], [BASE])


def test_code_that_nobody_has_seen_may_differ() -> None:
    late = NotCompiled(LAUNCH, 90, "not done within 60 s", inconclusive=True)
    assert not unchanged([late], [late])
    assert not unchanged([BASE, late], [BASE, late])


def test_special_functions_are_told_by_kind() -> None:
    exact = replace(BASE, instructions=InstructionMix(special={"MUFU.EX2": 4, "MUFU.RCP": 4}))
    other = InstructionMix(special={"MUFU.EX2": 4, "MUFU.TANH": 1})
    assert list(changes(exact, replace(exact, digest="b", instructions=other))) == [
        "MUFU.RCP 4 -> 0",
        "MUFU.TANH 0 -> 1",
        "special functions 8 -> 5",
    ]


def test_launches_are_paired_by_what_they_are_then_by_their_order() -> None:
    small = replace(BASE, launch=replace(LAUNCH, grid=(1,)))
    moved = replace(BETTER, launch=replace(LAUNCH, arguments=(("x", "*fp16"), ("B", "= 128"))))
    assert list(pairs([BASE, small], [moved, small])) == [(small, small), (BASE, moved)]
    other = replace(BASE, sm=80)
    assert list(pairs([BASE], [other])) == []


def test_the_difference_in_lines() -> None:
    failed = NotCompiled(LAUNCH, 90, "no")
    assert list(difference([BASE], [failed])) == ["k(B=64) for sm_90: compiles -> does not compile"]
    assert list(difference([BASE], [BASE])) == ["k(B=64) for sm_90: the same code"]
    hinted = replace(BASE, launch=replace(LAUNCH, options=(("occupancy", "4"),)))
    assert list(difference([BASE], [hinted])) == [
        "k(B=64, occupancy=4) for sm_90: the same code; no effect: occupancy=4"
    ]
    twin = replace(BASE, digest="other")
    assert list(difference([BASE], [twin])) == ["k(B=64) for sm_90: other code of the same kind"]


def test_what_a_person_reads() -> None:
    assert list(lines([BASE], {"k"})) == [
        "k(B=64), grid 8",
        "  as t.py::test launches it",
        "  x: *fp16",
        "  sm_90: 255 registers, 1040 bytes spilled, 100000 bytes of shared memory, 256 threads",
        "    1 block = 8 of 64 warps (12%), limited by registers",
        "    1000 instructions; loads 4 of 128 bits, 12 of 32 bits; 12 spills",
        "    -> spills at line 7 most: more warps (num_warps) or smaller blocks",
        "    -> matrix products without tensor cores: cast fp32 operands to TF32, or use fp16 or "
        "bf16, where the tolerance allows it",
        "    -> most global loads move less than 64 bits: what a thread moves is not known to "
        "lie side by side and aligned (steps of more than an element, strides, extents or offsets "
        "that are no multiples of 16, or addresses that are read from memory)",
        "    -> few warps at once: a kernel that waits for memory wants more; fewer registers or "
        "smaller blocks",
    ]
    assert not suggestions(BETTER, multiplies=True)


def test_a_launch_beside_the_tests_was_seen_all_the_same() -> None:
    """As that of a test file which calls a kernel while it is imported."""
    seen = ObservedLaunch("k", "", (8,), {}, {}, {})
    beside = replace(BASE, launch=replace(LAUNCH, test="", observed=seen))
    assert "  as it is launched while the tests are imported" in list(lines([beside], {"k"}))
    unseen = replace(BASE, launch=replace(LAUNCH, test=""))
    assert "  as its source suggests; no test was seen to launch it" in list(lines([unseen], {"k"}))


def test_arguments_that_configs_in_a_row_share_are_told_once() -> None:
    tensor = ObservedTensor("float16", (64,), (1,), aligned=True)

    def launched(block: int, n: int, test: str = "t.py::test") -> NotCompiled:
        arguments = (("x", "*fp16"), ("n", "i32"), ("B", f"= {block}"))
        warps = block // 32
        seen = ObservedLaunch(
            "k", test, (8,), {"n": n, "B": block}, {"x": tensor}, {"num_warps": warps}
        )
        options = (("num_warps", str(warps)),) if warps != 4 else ()
        launch = CompiledLaunch("k", arguments, options, (8,), test, timed=True, observed=seen)
        return NotCompiled(launch, 90, "no")

    told = list(lines([launched(64, 5), launched(128, 5), launched(256, 5)], ()))
    assert told == [
        "k(B=64, num_warps=2), grid 8",
        "  as t.py::test launches it",
        "  x: *fp16",
        "  n: i32",
        "  given x: float16[64], contiguous, 16-byte aligned",
        "  given n=5",
        "  sm_90: no",
        "k(B=128), grid 8",
        "  arguments as above",
        "  sm_90: no",
        "k(B=256, num_warps=8), grid 8",
        "  arguments as above",
        "  sm_90: no",
    ]
    for other in (launched(128, 6), launched(128, 5, "t.py::other")):
        assert "  arguments as above" not in list(lines([launched(64, 5), other], ()))


def test_nothing_is_told_twice() -> None:
    tensor = ObservedTensor("float16", (64,), (1,), aligned=True)
    told = (("x", "*fp16, divisible by 16"), ("n", "i32"), ("B", "= 64"))
    seen = ObservedLaunch("k", "t.py::test", (8,), {"n": 5, "B": 64}, {"x": tensor}, {})
    launch = replace(LAUNCH, arguments=told, observed=seen)
    other = replace(launch, grid=(16,), observed=replace(seen, integers={"n": 6, "B": 64}))
    first = replace(BASE, launch=launch)
    assert list(lines([first, replace(first, launch=other)], ()))[:4] == [
        "k(B=64), grid 8",
        "  as t.py::test launches it",
        "  n: i32",
        "  given x: float16[64], contiguous, 16-byte aligned",
    ]
    assert list(lines([first, replace(first, launch=other)], ()))[-1] == "  sm_90: as above"
    slower = replace(first, launch=other, registers=40)
    assert "  sm_90: 40 registers" in "\n".join(lines([first, slower], ()))
    # what the compiler is told beyond what the tensor shows
    odd = (("x", "1-dimensional float16, stride of axis 0 not divisible by 16 bytes"), *told[1:])
    assert f"  x: {odd[0][1]}" in list(
        lines([replace(first, launch=replace(launch, arguments=odd))], ())
    )


def test_what_cannot_run_comes_first() -> None:
    first, *_ = suggestions(replace(BASE, shared_bytes=300_000), multiplies=False)
    assert first.startswith("cannot run: needs 300000 bytes of shared memory")


def test_a_constant_without_a_letter_is_seen() -> None:
    assert str(replace(LAUNCH, arguments=(("ACTIVATION", "= "),))) == "k(ACTIVATION='')"
