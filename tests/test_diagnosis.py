"""Facts in, a cause with its evidence out. The figures of an H200 are measured ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.analysis.common.kernels import KernelClass
from agent.causes import Cause
from agent.diagnosis import Facts, diagnose
from agent.diagnosis.symptoms import CAUSES, FAMILIES, Symptom
from agent.evidence.counters import Counters
from agent.evidence.model import Artifact, CompiledLaunch, TensorArgument, TimedWork
from agent.evidence.peaks import PEAKS, peaks_of
from agent.evidence.remarks import Remark
from agent.evidence.roofline import product_flop
from agent.evidence.sass import InstructionMix
from agent.evidence.tokens import MemoryAccess, Wait
from agent.playbook import ADVICE, PLAYBOOK

H200 = "NVIDIA H200"
WIDE = InstructionMix(total=300, global_loads={128: 4}, global_stores={128: 4})
TENSOR = InstructionMix(total=500, tensor_core={"HGMMA": 16}, tma={"UTMALDG": 2})


def tensor(name: str, *shape: int, dtype: str = "bfloat16", item_bytes: int = 2) -> TensorArgument:
    size = item_bytes
    for extent in shape:
        size *= extent
    return TensorArgument(name, dtype, shape, size)


def work(kernel: str, grid: tuple[int, ...], *tensors: TensorArgument) -> TimedWork:
    return TimedWork("test_it.py::test_perf_it", "forward", ((kernel, grid),), tensors)


def artifact(kernel: str, registers: int, threads: int, mix: InstructionMix = WIDE) -> Artifact:
    launch = CompiledLaunch(kernel, (), test="test_it.py::test_perf_it", timed=True)
    return Artifact(launch, 90, registers, 0, 2072, threads, mix, kernel, 8192, 0.1)


SOFTMAX = work(
    "softmax", (16384,), tensor("x", 16384, 4096), tensor("y", 16384, 4096)
)  # 268 MB: 0.056 ms at 4.8 TB/s
MATMUL = work(
    "matmul", (64, 64), *(tensor(name, 4096, 4096) for name in "abc")
)  # 137 GFLOP: 0.139 ms at 989 TFLOP/s


def of_softmax(latency_ms: float, made: Artifact, timed: TimedWork = SOFTMAX) -> Facts:
    return Facts(
        KernelClass.MEMORY,
        1.25,
        results=(made,),
        timed=((timed, latency_ms),),
        peaks=peaks_of(H200),
        gpu=H200,
    )


def of_matmul(latency_ms: float, made: Artifact, timed: TimedWork = MATMUL) -> Facts:
    facts = of_softmax(latency_ms, made, timed)
    return replace(
        facts, kernel_class=KernelClass.COMPUTE, flop_per_byte=64, multiplying=frozenset({"matmul"})
    )


FULL = artifact("softmax", 32, 256)
PRODUCT = artifact("matmul", 168, 256, TENSOR)


@pytest.mark.parametrize(
    ("facts", "cause", "said", "first"),
    [
        pytest.param(
            of_softmax(0.0698, FULL), Cause.MEMORY, "3846 GB/s, 80%", "passes", id="bandwidth"
        ),
        pytest.param(
            of_softmax(0.09, FULL), Cause.MEMORY, "nearer roof", None, id="near-bandwidth"
        ),
        pytest.param(
            of_softmax(0.3795, artifact("softmax", 255, 256)),
            Cause.OCCUPANCY,
            "1 block = 8 of 64 warps (12%), limited by registers",
            "occupancy",
            id="occupancy",
        ),
        pytest.param(
            of_softmax(0.2161, artifact("softmax", 128, 256)),
            Cause.OCCUPANCY,
            "2 blocks = 16 of 64 warps",
            "occupancy",
            id="occupancy-known-to-wait",
        ),
        pytest.param(
            of_softmax(0.3, FULL), Cause.LOCALITY, "5.4 times the least", "reuse", id="rereads"
        ),
        pytest.param(
            of_softmax(0.0698, artifact("softmax", 255, 256)),
            Cause.MEMORY,
            "3846 GB/s",
            "passes",
            id="occupancy-is-no-matter-at-the-roof",
        ),
        pytest.param(
            of_matmul(0.1803, PRODUCT), Cause.COMPUTE, "762 TFLOP/s, 77%", "precision", id="peak"
        ),
        pytest.param(
            of_matmul(0.2214, PRODUCT), Cause.COMPUTE, "63% of the tensor", None, id="near-peak"
        ),
        pytest.param(
            of_matmul(0.3755, PRODUCT), Cause.LOCALITY, "11438 GB/s", "tiles", id="small-tiles"
        ),
        pytest.param(
            of_matmul(1.2, artifact("matmul", 168, 256)),
            Cause.COMPUTE,
            "no instruction is a tensor core's",
            "precision",
            id="no-tensor-cores",
        ),
        pytest.param(
            of_matmul(
                3.03,
                replace(PRODUCT, stack_bytes=600, instructions=replace(TENSOR, spill_stores=200)),
            ),
            Cause.OCCUPANCY,
            "spills 600 bytes a thread",
            "tiles",
            id="spills",
        ),
        pytest.param(
            of_matmul(
                0.35,
                replace(PRODUCT, instructions=replace(TENSOR, tma={}, global_loads={128: 9})),
                replace(MATMUL, launches=(("matmul", (16, 16)),)),
            ),
            Cause.LATENCY,
            "without cp.async or TMA",
            "pipelining",
            id="not-pipelined",
        ),
    ],
)
def test_a_cause_with_its_figures(facts: Facts, cause: Cause, said: str, first: str | None) -> None:
    found = diagnose(facts)
    assert found.cause is cause
    assert said in found.evidence[0]
    assert (found.families[0] if found.families else None) == first
    assert "missing: no latency" not in " ".join(found.evidence)


def test_a_kernel_as_short_as_its_launch() -> None:
    small = work("softmax", (256,), tensor("x", 1024, 256), tensor("y", 1024, 256))
    found = diagnose(of_softmax(0.0042, FULL, small))
    assert found.cause is Cause.LATENCY
    assert found.evidence[0] == "measured: 4.2 us, of which the work needs 0.2"


def test_a_short_kernel_at_the_roof_is_not_waiting_for_its_launch() -> None:
    small = work("softmax", (4096,), tensor("x", 4096, 2048), tensor("y", 4096, 2048))
    assert diagnose(of_softmax(0.0085, FULL, small)).cause is Cause.MEMORY


@pytest.mark.parametrize(
    ("grid", "said"),
    [((8, 8), "64 blocks for 132"), ((1100,), "1100 blocks, 1.04 rounds of 132 x 8: 52%")],
)
def test_blocks_that_leave_multiprocessors_idle(grid: tuple[int, ...], said: str) -> None:
    timed = replace(SOFTMAX, launches=(("softmax", grid),))
    found = diagnose(of_softmax(0.3, FULL, timed))
    assert found.cause is Cause.SCHEDULING
    assert said in found.evidence[0]
    assert found.escalates
    assert found.families[0] == "scheduling"


@pytest.mark.parametrize(
    ("rows", "cols", "many"),
    [(524288, 128, True), (16384, 4096, False), (512, 128, False)],
    ids=["many short rows", "long rows", "few short rows"],
)
def test_blocks_with_little_to_do(rows: int, cols: int, many: bool) -> None:
    timed = work("softmax", (rows,), tensor("x", rows, cols), tensor("y", rows, cols))
    latency_ms = 2.1 * timed.tensor_bytes / PEAKS["H200"].bandwidth_gb_s / 1e6
    found = diagnose(of_softmax(latency_ms, artifact("softmax", 16, 128), timed))
    said = "524288 blocks of 128 threads that move 4 bytes each"
    assert (said in found.evidence[0]) == many
    assert (found.families[:1] == ("rows",)) == many
    assert not many or found.cause is Cause.LATENCY


def test_a_grid_that_nobody_knows_is_not_counted() -> None:
    timed = replace(SOFTMAX, launches=(("softmax", ()),))
    assert diagnose(of_softmax(0.3, FULL, timed)).cause is Cause.LOCALITY


def test_which_config_a_tuner_chose_is_not_known() -> None:
    """One without spills may be the one that ran."""
    good = artifact("softmax", 32, 256)
    bad = replace(good, stack_bytes=64, instructions=replace(WIDE, spill_loads=9))
    facts = replace(of_softmax(0.3, good), results=(good, bad))
    assert "spills" not in " ".join(diagnose(facts).evidence)
    assert diagnose(replace(facts, results=(bad, bad))).cause is Cause.OCCUPANCY


def test_unknown_is_a_kernel_that_is_known_to_wait() -> None:
    half = artifact("softmax", 96, 256)  # 2 blocks of 8 warps: neither few nor enough is shown
    facts = of_softmax(0.3, replace(half, threads=0))
    found = diagnose(facts)
    assert found.cause is Cause.UNKNOWN
    assert found.escalates
    assert found.families == ()
    assert diagnose(replace(facts, timed=())).cause is Cause.MEMORY


def test_a_product_that_cannot_be_counted_is_not_said_to_wait() -> None:
    """Attention: four tensors, and the operations depend on a mask."""
    four = work("matmul", (1024,), *(tensor(name, 8, 16, 1024, 64) for name in "qkvo"))
    found = diagnose(of_matmul(1.0, PRODUCT, four))
    assert found.cause is Cause.COMPUTE
    assert found.evidence[0].startswith("source: compute-bound")


def test_faster_than_memory_says_that_the_figure_is_no_use() -> None:
    found = diagnose(of_softmax(0.02, FULL))
    assert found.cause is Cause.MEMORY
    assert any("more than the peak" in line for line in found.evidence)


def test_what_is_read_and_written_in_place_is_moved_twice() -> None:
    facts = of_softmax(0.1, FULL)
    once = diagnose(facts)
    twice = diagnose(replace(facts, rewritten={"softmax": frozenset({"x"})}))
    assert any("for 268.4 MB of tensors, 2684 GB/s" in line for line in once.evidence)
    assert any(
        "for 268.4 MB of tensors, of which 134.2 MB are read and written, 4027 GB/s" in line
        for line in twice.evidence
    )
    assert (once.cause, twice.cause) == (Cause.MEMORY, Cause.MEMORY)
    assert "84% of the peak" in twice.evidence[0]


def test_copies_around_the_launch_are_told() -> None:
    copies = ((3, ".clone()"), (9, "torch.cat"))
    (line,) = (
        line for line in diagnose(Facts(KernelClass.MEMORY, 1.0, copies=copies)).evidence
        if "around the launch" in line
    )  # fmt: skip
    assert line.endswith("where the test runs it: .clone() (line 3), torch.cat (line 9)")
    many = diagnose(
        Facts(KernelClass.MEMORY, 1.0, copies=tuple((n, "torch.cat") for n in range(9)))
    )
    assert any(line.endswith("(line 3) and 5 more") for line in many.evidence)


def test_without_a_gpu_only_source_and_compiler_speak() -> None:
    facts = Facts(KernelClass.MEMORY, 1.25, results=(FULL,), timed=((SOFTMAX, 0.0),))
    found = diagnose(facts)
    assert (found.cause, found.families) == (Cause.MEMORY, ())
    assert "missing: no latency of a GPU: this is what source and compiler say alone" in (
        found.evidence
    )
    assert not any(line.startswith("measured") for line in found.evidence)
    narrow = replace(FULL, instructions=replace(WIDE, global_loads={16: 32}))
    found = diagnose(replace(facts, results=(narrow,)))
    assert found.cause is Cause.LOCALITY
    assert found.evidence[0] == ("compiled: softmax: 32 of 32 global loads move less than 64 bits")
    copies = replace(narrow.instructions, async_widths={128: 32})  # wide ones, beside the threads
    found = diagnose(replace(facts, results=(replace(FULL, instructions=copies),)))
    assert found.cause is Cause.MEMORY


def test_a_gpu_that_the_table_lacks_has_no_roof() -> None:
    found = diagnose(replace(of_softmax(0.3, FULL), peaks=None, gpu="NVIDIA X1"))
    assert found.cause is Cause.MEMORY
    assert "missing: the peaks of NVIDIA X1 are not known: no roofline" in found.evidence


def test_counters_go_before_the_estimate() -> None:
    facts = of_softmax(0.3, FULL)
    busy = Counters("softmax", 0.3, dram_share=0.91, sm_share=0.2)
    found = diagnose(replace(facts, counters=(busy,)))
    assert found.cause is Cause.MEMORY
    assert "DRAM 91.0% of peak" in found.evidence[0]
    again = replace(busy, dram_share=0.4, dram_bytes=805e6)
    found = diagnose(replace(facts, counters=(again,)))
    assert found.cause is Cause.LOCALITY
    assert "moves 805.0 MB of device memory for 268.4 MB" in found.evidence[0]
    stalls = {"long_scoreboard": 9.0, "barrier": 1.0}
    waiting = replace(busy, dram_share=0.1, dram_bytes=268e6, stalls=stalls)
    found = diagnose(replace(facts, counters=(waiting,)))
    assert found.cause is Cause.LATENCY
    assert "90% of the waiting is for long_scoreboard" in found.evidence[0]


def test_products_of_few_rows_exchange_their_operands() -> None:
    """Beside a memory that is busy too; not where a tuner may choose a config without them."""
    remark = Remark("Passed", "RemarkTensorCoreMMA", 11, "mma", instruction="Tensor-core SM80")
    old = replace(PRODUCT, remarks=(remark,))
    found = diagnose(of_matmul(0.3, old))
    assert (found.cause, found.families[0]) == (Cause.COMPUTE, "operands")
    assert found.evidence[0] == (
        "compiled: matmul multiplies at line 11 by the instructions of sm_80: the tensor cores of "
        "sm_90 take 64 rows and more"
    )
    for results in ((replace(old, sm=80),), (old, PRODUCT)):
        assert "operands" not in diagnose(replace(of_matmul(0.3, old), results=results)).families


def test_loads_behind_an_atomic_want_it_relaxed() -> None:
    atomic = MemoryAccess(14, "atomic", acquires=True)
    load = MemoryAccess(10, "load")
    waiting = replace(FULL, waits=(Wait(load, atomic, round_before=True),))
    found = diagnose(of_softmax(0.3, waiting))
    assert (found.cause, found.families[0]) == (Cause.LATENCY, "atomics")
    assert found.evidence[0] == (
        "compiled: softmax loads nothing at line 10 ahead of line 14, which acquires"
    )
    for wait in (
        Wait(load, replace(atomic, acquires=False), round_before=True),
        Wait(load, atomic, round_before=False),
        Wait(replace(load, kind="store"), atomic, round_before=True),
    ):
        found = diagnose(of_softmax(0.3, replace(FULL, waits=(wait,))))
        assert "atomics" not in found.families


def test_every_symptom_has_a_cause_and_families_of_the_playbook() -> None:
    known = {entry.family for entry in (*PLAYBOOK, *ADVICE)}
    assert CAUSES.keys() == FAMILIES.keys() == set(Symptom)
    assert {family for names in FAMILIES.values() for family in names} <= known


@pytest.mark.parametrize(
    ("shapes", "flop"),
    [
        (((128, 64), (64, 256), (128, 256)), 2 * 128 * 256 * 64),
        (((128, 64), (256, 64), (128, 256)), 2 * 128 * 256 * 64),
        (((4, 8, 16), (4, 16, 32), (4, 8, 32)), 2 * 4 * 8 * 32 * 16),
        (((128, 64), (64, 256), (128, 256), (256,)), 2 * 128 * 256 * 64),
        (((128, 64), (128, 64), (128, 64)), 0),
        (((128, 64), (64, 256)), 0),
        (((2, 8, 16), (4, 16, 32), (4, 8, 32)), 0),
    ],
)
def test_operations_of_a_product_by_its_shapes(
    shapes: tuple[tuple[int, ...], ...], flop: float
) -> None:
    assert product_flop([tensor("t", *shape) for shape in shapes]) == flop


def test_a_name_that_only_begins_like_one_of_the_table() -> None:
    assert peaks_of("NVIDIA H200") is PEAKS["H200"]
    assert peaks_of("NVIDIA H200 NVL") is PEAKS["H200 NVL"]
    for name in ("NVIDIA H200 MIG 1g.18gb", "NVIDIA GeForce RTX 4090 Laptop GPU", "", "XH200"):
        assert peaks_of(name) is None
