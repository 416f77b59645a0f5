"""What a translation word by word gets wrong, the port gets right; and the check would tell."""

from pathlib import Path

import pytest

from agent.port_answers import Checked
from agent.ported import Project, check
from agent.porting import NotPortable, Port, port
from tests.porting.traps import CALLS, TESTS, TRITON
from tests.support.warm_python import warm_interpreter

NAIVE = {
    "quotient(x, y)": "(x // y)",
    "remainder(x, y)": "(x % y)",
    "wide(x) / y": "x / y",
    "ct.max(wide_for_max(x), axis=0)": "ct.max(x, axis=0)",
    "ct.sum(wide_for_sum(x), axis=0)": "ct.sum(x, axis=0)",
}
"""What the port has -> what a naive one would."""


@pytest.fixture(scope="module")
def made() -> Port:
    return port(TRITON, "traps.py")


def folder_with(tmp_path: Path) -> Path:
    (tmp_path / "traps.py").write_text(TRITON)
    (tmp_path / "test_traps.py").write_text(TESTS)
    return tmp_path / "traps.py"


def checked(made: Port, kernel: Path, *selected: str) -> Checked:
    tests = (kernel.with_name("test_traps.py"),)
    if selected:
        tests = tuple(Path(f"{tests[0]}::{name}") for name in selected)
    project = Project(kernel.parent, tests, (kernel.parent,))
    return check(
        made, kernel, project, made.functions, python=warm_interpreter(), timeout_s=300, targets=()
    )


def test_every_call_agrees(made: Port, tmp_path: Path) -> None:
    found = checked(made, folder_with(tmp_path))
    assert found.problems == ()
    assert found.calls == CALLS


@pytest.mark.full
@pytest.mark.parametrize(("right", "wrong"), NAIVE.items(), ids=list(NAIVE))
def test_a_naive_port_is_told(made: Port, tmp_path: Path, right: str, wrong: str) -> None:
    assert right in made.text.partition("@ct.kernel")[2]
    head, mark, kernels = made.text.partition("@ct.kernel")  # the prelude defines what is called
    text = f"{head}{mark}{kernels.replace(right, wrong)}"
    naive = Port(text, made.kernels, made.helpers, made.functions, made.notes)
    assert checked(
        naive, folder_with(tmp_path), "test_divide", "test_halves", "test_bytes"
    ).problems


def test_memory_that_is_shared_is_refused_at_the_launch(made: Port, tmp_path: Path) -> None:
    """cuTile takes arrays to be distinct, which a test of results cannot show to be wrong."""
    assert 'apart("strips_kernel", {"q_ptr": q, "k_ptr": k}, {})' in made.text
    kernel = folder_with(tmp_path)
    (tmp_path / "test_traps.py").write_text(
        "import torch\nfrom traps import strips\n\n\n"
        "def test_same():\n    x = torch.randn(4, 10)\n    strips(x[:, :5], x[:, 4:9])\n"
    )
    (problem,) = checked(made, kernel).problems
    assert "share memory" in problem


def test_the_same_tensor_twice_is_refused() -> None:
    text = TRITON.replace(
        "strips_kernel[(q.shape[0],)](q, k,", "strips_kernel[(q.shape[0],)](q, q,"
    )
    with pytest.raises(NotPortable, match="the same tensor given twice"):
        port(text, "traps.py")


def test_a_variable_of_a_constant_is_a_tensor() -> None:
    """In Triton `scale = 2.0` has the type fp32, and fp16 times it is fp32."""
    text = """\
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr):
    scale = 0.1
    tl.store(y_ptr, tl.load(x_ptr).to(tl.float16) * scale)

def run(x, y):
    kernel[(1,)](x, y)
"""
    assert "* ct.full((), scale, ct.float32)" in port(text, "k.py").text


def test_offsets_are_added_in_64_bits() -> None:
    """Each of them fits into 32 bits, and Triton adds them to a pointer of 64."""
    text = """\
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, stride):
    i = tl.program_id(0) * stride
    tl.store(y_ptr + i + tl.arange(0, 8), tl.load(x_ptr + (i + tl.arange(0, 8))))

def run(x, y):
    kernel[(1,)](x, torch.empty_like(y), 8)
"""
    made = port(text, "k.py").text
    assert "ct.astype(i, ct.int64) + ct.arange(8, dtype=ct.int32)" in made
    assert "ct.gather(x_ptr, i + ct.arange(8, dtype=ct.int32), check_bounds=False)" in made
