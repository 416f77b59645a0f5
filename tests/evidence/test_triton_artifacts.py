"""Triton: the same, config by config."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment import probe
from agent.errors import UsageError
from agent.evidence.compare import changes, ignored_options, unchanged
from agent.evidence.model import Artifact, NotCompiled
from tests.support.evidence import TEST, TRITON, evidence, only
from tests.support.processes import alive, mark
from tile_agent_pytest.artifacts import OF_CAPTURED_TESTS

pytestmark = pytest.mark.skipif(
    probe().versions["triton"] is None, reason="triton is not installed"
)
AUTOTUNED = (
    TRITON.replace(
        "@triton.jit",
        """\
@triton.autotune(
    [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((512, 4), (1024, 8))], key=["n"]
)
@triton.jit""",
    )
    .replace(", BLOCK=BLOCK)", ")")
    .replace("grid = (triton.cdiv(x.numel(), BLOCK),)", "")
)
AUTOTUNED = AUTOTUNED.replace("[grid]", '[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)]')
MATMUL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, K, T: tl.constexpr):
    i = tl.arange(0, T)
    total = tl.zeros((T, T), dtype=tl.float32)
    for k in range(0, K, T):
        a = tl.load(a_ptr + i[:, None] * K + (k + i)[None, :])
        b = tl.load(b_ptr + (k + i)[:, None] * T + i[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + i[:, None] * T + i[None, :], total)


def run():
    a, b = (torch.ones(128, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(128, 128, device="cuda")
    matmul_kernel[(1,)](a, b, c, 4096, T=128, num_stages=4, num_warps=8)
"""


OPERATOR = TRITON.replace(
    'def run():\n    x = torch.ones(2**20, device="cuda")\n',
    """\
def run():
    return scaled(torch.ones(2**20, device="cuda"))


@torch.library.triton_op("tests_of_tile_agent::scaled", mutates_args={})
def scaled(x: torch.Tensor) -> torch.Tensor:
""",
).replace("scale_kernel[grid]", "torch.library.wrap_triton(scale_kernel)[grid]")


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return only(evidence(tmp_path_factory.mktemp("scaled"), TRITON))


@pytest.mark.full
def test_every_generation(tmp_path: Path) -> None:
    found = evidence(tmp_path, TRITON, 80, 90, 100, 120)
    assert [a.sm for a in found.artifacts] == [80, 90, 100, 120]
    assert len(set(found.digests)) == 4
    for artifact in found.artifacts:
        assert artifact.threads == 128
        assert artifact.registers > 0
        assert artifact.shared_bytes == 0
        assert artifact.instructions.global_loads == {128: 2}
        assert f".target sm_{artifact.sm}" in artifact.listing
        assert artifact.occupancy is not None
        assert artifact.occupancy.fraction == 1


def test_what_a_launch_shows(scaled: Artifact) -> None:
    assert scaled.launch.captured
    assert scaled.launch.grid == (1024,)
    assert dict(scaled.launch.arguments) == {
        "x_ptr": "*fp32, divisible by 16",
        "y_ptr": "*fp32, divisible by 16",
        "n": "i32, divisible by 16",
        "BLOCK": "= 1024",
    }
    assert not scaled.launch.options


def test_comments_names_and_places_do_not_count(scaled: Artifact, tmp_path: Path) -> None:
    text = "# moved down\n\n" + TRITON.replace("scale_kernel", "renamed_kernel")
    other = only(evidence(tmp_path, text.replace("mask =", "# the rest\n    mask =", 1)))
    assert other.launch.kernel == "renamed_kernel"
    assert other.digest == scaled.digest
    assert not changes(scaled, other)


@pytest.mark.full
def test_an_odd_length_is_seen(scaled: Artifact, tmp_path: Path) -> None:
    other = only(evidence(tmp_path, TRITON.replace("2**20,", "2**20 + 1,")))
    assert dict(other.launch.arguments)["n"] == "i32"
    assert set(other.instructions.global_loads) == {32}
    assert "128-bit loads 2 -> 0" in changes(scaled, other)


@pytest.mark.full
def test_options_of_a_launch(scaled: Artifact, tmp_path: Path) -> None:
    other = only(evidence(tmp_path, TRITON.replace("BLOCK=BLOCK)", "BLOCK=BLOCK, num_warps=8)")))
    assert dict(other.launch.options) == {"num_warps": "8"}
    assert "threads a block 128 -> 256" in changes(scaled, other)


@pytest.mark.full
def test_an_option_without_effect_is_named(scaled: Artifact, tmp_path: Path) -> None:
    """Stages pipeline loops with a dot; this kernel has no loop at all."""
    other = only(evidence(tmp_path, TRITON.replace("BLOCK=BLOCK)", "BLOCK=BLOCK, num_stages=5)")))
    assert ignored_options(scaled, other) == ("num_stages=5",)
    assert unchanged([scaled], [other])


@pytest.mark.full
def test_every_config_of_the_autotuner(tmp_path: Path) -> None:
    found = evidence(tmp_path, AUTOTUNED)
    assert [str(a.launch) for a in found.artifacts] == [
        "scale_kernel(BLOCK=512)",
        "scale_kernel(BLOCK=1024, num_warps=8)",
    ]
    assert [a.threads for a in found.artifacts] == [128, 256]
    assert [a.launch.grid for a in found.artifacts] == [(2048,), (1024,)]


@pytest.mark.full
def test_a_config_that_cannot_run_is_refused(tmp_path: Path) -> None:
    found = evidence(tmp_path, MATMUL, 90, 120)
    assert [sum(a.instructions.tensor_core.values()) > 0 for a in found.artifacts] == [True, True]
    large, larger = found.problems
    assert "bytes of shared memory a block, and sm_90 has 232448" in large
    assert "bytes of shared memory a block, and sm_120 has 101376" in larger
    assert [a.occupancy and a.occupancy.blocks for a in found.artifacts] == [0, 0]


def test_a_compile_that_takes_too_long_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark(monkeypatch, tmp_path)
    (result,) = evidence(tmp_path, MATMUL, compile_s=0.01).results
    assert isinstance(result, NotCompiled)
    assert result.inconclusive
    assert not alive(tmp_path, "artifacts")


@pytest.mark.full
def test_a_test_that_never_ends(tmp_path: Path) -> None:
    test = TEST.replace("    tile_bench", "    import time\n    time.sleep(600)\n    tile_bench")
    with pytest.raises(UsageError, match="cannot be run: not done after 6 s: killed"):
        evidence(tmp_path, TRITON, test=test, timeout_s=6)


@pytest.mark.full
def test_what_was_launched_in_time_is_compiled(tmp_path: Path) -> None:
    """As of FlagAttention's tests, which take longer than anybody waits; each takes seconds."""
    more = """

import pytest
import time


@pytest.mark.parametrize("n", range(100))
def test_more(n):
    time.sleep(4)
    run()
"""
    found = evidence(tmp_path, TRITON, test=TEST + more, timeout_s=20)
    assert len(found.artifacts) == 1
    (said,) = found.failures
    assert re.fullmatch(
        r"[34] of 101 tests ran in 1\d s \(--tests names others, --timeout-s gives them more\)",
        said,
    )


@pytest.mark.full
def test_a_compiler_that_dies_takes_nothing_along(tmp_path: Path) -> None:
    """Triton's passes end the process where they find their own mistake."""
    text = f"{TRITON}\n\nimport triton.compiler.compiler as _c, os\n_real = _c.compile\n"
    text += "triton.compile = lambda *a, options, **k: os.abort() if options else "
    text += "_real(*a, options=options, **k)\n"
    text = text.replace("    return y", "    scale_kernel[grid](x, y, 7, BLOCK=64, num_warps=8)")
    first, second = evidence(tmp_path, text).results
    assert isinstance(first, Artifact)
    assert isinstance(second, NotCompiled)
    assert second.reason == "the compiler ended by SIGABRT"


def test_the_first_failing_test_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the first that fails: test_kernel\.py::test_perf_run: "):
        evidence(tmp_path, TRITON, test=TEST.replace("lambda: run()", "walk"))


CAPTURED = """\
import torch
from kernel import run


origin = None


def computed(function):
    return function()


def nearness(right):
    return {"atol": right.double().square().mean().sqrt().item()}


def test_run():
    actual, right = computed(run), computed(run)
    torch.testing.assert_close(actual, right, **nearness(right))
"""
ASSERTING = """

def test_total():
    assert run().cpu().sum() == 7, f"not {run().cpu()}"
"""


def test_no_value_is_asked_for_or_shown_where_there_are_none(tmp_path: Path) -> None:
    """Captured tests measure how near a result has to be by its values, after all launches."""
    (said,) = evidence(tmp_path, TRITON, test=CAPTURED + ASSERTING).failures
    told = "an assertion fails at test_kernel.py:22; launches are collected with tensors that hold"
    assert said == f"test_kernel.py::test_total: {told} no values"


def test_captured_tests_have_the_names_by_which_they_are_known() -> None:
    template = (Path(__file__).parents[2] / "prompts" / "captured_test.py.j2").read_text()
    for name in OF_CAPTURED_TESTS:
        assert f"\ndef {name}(" in template or f"\n{name} = " in template, name


def test_a_fixture_that_is_missing_is_named(tmp_path: Path) -> None:
    """Public code has functions called test_* that are no tests of pytest's."""
    with pytest.raises(UsageError, match=r"test_kernel\.py::test_size: fixture 'size' not found"):
        evidence(tmp_path, TRITON, test="def test_size(size: tuple):\n    pass\n")


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("test_kernel.py", "from kernel import walk\n", "ImportError: cannot import name 'walk'"),
        ("conftest.py", "raise RuntimeError('no')\n", "RuntimeError: no: mend and commit it"),
        ("conftest.py", "import no_such\n", "No module named 'no_such': install what provides no"),
    ],
)
def test_what_cannot_be_collected_is_told_with_a_remedy(
    tmp_path: Path, file: str, text: str, said: str
) -> None:
    (tmp_path / "conftest.py").write_text(text if file == "conftest.py" else "")
    with pytest.raises(UsageError) as caught:
        evidence(tmp_path, TRITON, test=text if file == "test_kernel.py" else TEST)
    where = f"no test launches a kernel of kernel.py: the tests cannot be collected: {file}:1: "
    assert str(caught.value).startswith(where)
    assert said in str(caught.value)


def test_tests_that_launch_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name others with --tests"):
        evidence(tmp_path, TRITON, test="def test_nothing():\n    pass\n")


@pytest.mark.full
def test_only_perf_tests_count_where_there_are_any(tmp_path: Path) -> None:
    both = TEST + "\n\ndef test_other():\n    from kernel import scale_kernel as k\n"
    both += "    x = torch.ones(64, device='cuda')\n    k[(1,)](x, x, 64, BLOCK=64)\n"
    found = evidence(tmp_path, TRITON, test=both)
    assert (found.launches, found.left_out, len(found.artifacts)) == (2, 1, 1)
    found = evidence(tmp_path, TRITON, test=both, timed_only=False)
    assert [a.launch.timed for a in found.artifacts] == [True, False]


def test_each_kernel_is_compiled_once_before_one_is_twice(tmp_path: Path) -> None:
    kernel = TRITON[TRITON.index("@triton.jit") : TRITON.index("def run")]
    text = TRITON.replace("def run", kernel.replace("scale_kernel", "other_kernel") + "def run")
    last = TRITON[TRITON.index("    scale_kernel[grid]") : TRITON.index("    return y")]
    launches = [last.replace("=BLOCK", f"={block}") for block in (64, 128, 256)]
    launches.append(launches[0].replace("scale_kernel", "other_kernel"))
    launches.append(launches[1].replace("scale_kernel", "other_kernel"))
    text = text.replace(last, "".join(launches))
    found = evidence(tmp_path, text, most=3)
    shown = [(a.launch.kernel, a.launch.arguments[-1]) for a in found.artifacts]
    assert shown == [
        ("scale_kernel", ("BLOCK", "= 64")),
        ("scale_kernel", ("BLOCK", "= 128")),
        ("other_kernel", ("BLOCK", "= 64")),
    ]
    assert (found.left_out, found.untimed, found.kernels_left_out) == (2, 0, ())
    assert evidence(tmp_path, text, most=1).kernels_left_out == ("other_kernel",)


def test_an_interpreter_without_triton(tmp_path: Path) -> None:
    bare = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    python = str(bare / "bin" / "python")
    with pytest.raises(UsageError, match=f"{python} has no triton: {python} -m pip install"):
        evidence(tmp_path, TRITON, python=python)


def test_an_operator_of_torch_launches_as_a_function_does(scaled: Artifact, tmp_path: Path) -> None:
    """On tensors without storage torch would trace the launch, and make none."""
    assert "wrap_triton" in OPERATOR and "triton_op" in OPERATOR
    assert only(evidence(tmp_path, OPERATOR)).digest == scaled.digest
