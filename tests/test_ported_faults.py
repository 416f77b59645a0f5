"""What a check of a port says where nothing, or not all, could be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.environment import probe
from agent.port_answers import Checked, read
from agent.ported import Project, check
from agent.porting import port
from tests.support.repo import write
from tests.support.warm_python import warm_interpreter

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("cuda.tile", reason="cuda.tile is not installed")

KERNEL = """\
import torch
import triton
import triton.language as tl


def on_accelerator(x):
    return str(x.device).startswith("cpu")


@triton.jit
def scale_kernel(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2.0, mask=i < n)


def scaled(x):
    assert on_accelerator(x)
    o = torch.empty_like(x)
    scale_kernel[(1,)](x, o, x.numel(), BLOCK=8)
    return o
"""
TESTS = """\
import torch
from scale import scaled


def test_scaled():
    for device in ("cpu", "cuda"):
        x = torch.ones(8, device=device)
        assert scaled(x).sum() == 16
"""


def checked(
    folder: Path,
    tests: str = TESTS,
    kernel: str = KERNEL,
    changed: tuple[str, str] = ("", ""),
    names: tuple[str, ...] = ("test_scale.py",),
    targets: tuple[str, ...] = (),
) -> Checked:
    """A kernel's port checked, with one text of the port in the place of another."""
    write(folder, {"scale.py": kernel, "test_scale.py": tests})
    made = port(kernel, "scale.py")
    if changed[0]:
        assert changed[0] in made.text
        made = replace(made, text=made.text.replace(*changed))
    project = Project(folder, tuple(folder / name for name in names), (folder,))
    return check(
        made, folder / "scale.py", project, made.functions,
        python=warm_interpreter(), timeout_s=300, targets=targets, name="new.py",
    )  # fmt: skip


def test_tensors_name_the_device_that_the_origin_saw(tmp_path: Path) -> None:
    found = checked(tmp_path)
    assert found.problems == ()
    assert found.calls == 2


def test_an_exception_without_a_message_is_told_by_its_line(tmp_path: Path) -> None:
    found = checked(tmp_path, changed=('startswith("cpu")', 'startswith("gpu")'))
    (problem,) = found.problems
    assert problem == "scaled: the port raises AssertionError at `assert on_accelerator(x)`"
    assert found.fault == "the port cannot be run as its origin can"


def test_other_results_are_told_as_such(tmp_path: Path) -> None:
    found = checked(tmp_path, changed=("* 2.0", "* 3.0"))
    assert found.fault == "the port does not agree with its origin"


LONG = "'Could not run it\\nfor the following reasons:\\n- of two the last'"
BY_METHOD = KERNEL.replace(
    "def scaled(x):\n", "class Scaler:\n    @staticmethod\n    def scaled(x):\n"
).replace(
    """    assert on_accelerator(x)
    o = torch.empty_like(x)
    scale_kernel[(1,)](x, o, x.numel(), BLOCK=8)
    return o
""",
    """        o = torch.empty_like(x)
        scale_kernel[(1,)](x, o, x.numel(), BLOCK=8)
        return o
""",
)
ASKS = """\
import torch
from scale import Scaler


def test_scaled():
    assert Scaler.scaled(torch.ones(8)).sum() == 16
"""


@pytest.mark.parametrize("kernel", [KERNEL, BY_METHOD])
def test_tests_that_fail_on_the_origin_too_say_nothing_of_the_port(
    tmp_path: Path, kernel: str
) -> None:
    fails = f"def test_it():\n    raise NotImplementedError({LONG})\n"
    found = checked(tmp_path, f"import scale\n\n\n{fails}", kernel)
    assert (found.problems, found.fault) == ((), "")
    assert found.unchecked == (
        "1 of 1 tests do not pass on the origin either, without a GPU: "
        "NotImplementedError: Could not run it"
    )
    beside = f"{ASKS}\n\n{fails}"
    if kernel == BY_METHOD:
        found = checked(tmp_path, beside, kernel)
        assert (found.problems, found.unchecked, found.tests) == ((), "", 1)
        assert found.notes == ("1 tests do not pass on the origin, without a GPU",)
        found = checked(tmp_path, beside, kernel, changed=("* 2.0", "* 3.0"))
        assert found.problems[0].startswith("2 of 2 tests fail on the port: ")
        assert found.fault == "the port does not agree with its origin"


def test_tests_that_the_origin_skips_say_nothing_of_the_port(tmp_path: Path) -> None:
    """As where they ask for a GPU, which cuTile's execution on the CPU stands in for."""
    skips = """\
def test_it():
    import pytest
    import scale

    if not hasattr(scale, "ct"):
        pytest.skip("needs CUDA")
    raise NotImplementedError("torch.compile has no such device")
"""
    found = checked(tmp_path, f"{ASKS}\n\n{skips}", BY_METHOD)
    assert (found.problems, found.unchecked, found.tests) == ((), "", 1)
    assert found.notes == ("1 tests do not pass on the origin, without a GPU",)


OTHERS = KERNEL.replace(
    "def on_accelerator",
    """\
@triton.jit
def half_kernel(x_ptr, o_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i) * 0.5)


def dropped(x):
    if x.numel():
        half_kernel[(1,)](x, torch.empty_like(x), BLOCK=8)


@triton.jit
def third_kernel(x_ptr, o_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i) / 3)


def thirds(x):
    o = torch.empty_like(x)
    third_kernel[(1,)](x, o, BLOCK=8)
    return o


def on_accelerator""",
)
SILENT = """\


def test_dropped():
    dropped(torch.ones(8))
    dropped(torch.ones(8))
    dropped(torch.ones(0))
"""


def test_kernels_that_no_call_was_compared_of_are_named(tmp_path: Path) -> None:
    tests = TESTS.replace("import scaled", "import dropped, scaled") + SILENT
    found = checked(tmp_path, tests, OTHERS)
    assert found.problems == ()
    assert found.notes == (
        "3 of 5 calls give nothing that can be compared: 2 return None and change nothing that "
        "they are given, 1 launch no kernel",
        "no call launches third_kernel: neither compared nor compiled",
        "not compared: half_kernel, of which no call gives a result",
    )
    told = found.to_json()
    assert told["not_compared"] == ["half_kernel", "third_kernel"]
    assert told["not_compiled"] == ["half_kernel", "third_kernel", "scale_kernel"]


def test_kernels_that_no_test_launches_on_the_port_are_named(tmp_path: Path) -> None:
    """No call gives anything to compare, so the tests judge the port in the origin's place."""
    tests = TESTS.partition("def test")[0].replace("scaled", "dropped") + SILENT
    found = checked(tmp_path, tests, OTHERS)
    assert found.replaced
    assert found.not_compared == ("third_kernel", "scale_kernel")
    assert found.notes == (
        "no call launches third_kernel, scale_kernel: neither compared nor compiled",
    )


WITH_BACKWARD = (
    KERNEL
    + """

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return scaled(x)

    @staticmethod
    def backward(ctx, dy):
        dx = torch.empty_like(dy)
        back_kernel[(1,)](dy.contiguous(), dx, BLOCK=8)
        return dx
"""
)
WITH_BACKWARD = WITH_BACKWARD.replace(
    "def on_accelerator",
    """\
@triton.jit
def back_kernel(x_ptr, o_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i) * 4.0)


def on_accelerator""",
)
BACKWARD = """\
import torch
from scale import Scaled, scaled


def test_scaled():
    assert scaled(torch.ones(8)).sum() == 16


def test_backward():
    x = torch.ones(8, requires_grad=True)
    Scaled.apply(x).sum().backward()
    assert x.grad.sum() == 32
"""


def test_what_no_function_launches_is_judged_in_the_origins_place(tmp_path: Path) -> None:
    found = checked(tmp_path, BACKWARD, WITH_BACKWARD)
    assert (found.problems, found.calls, found.not_compared) == ((), 2, ())
    assert found.notes == (
        "2 tests pass with the port in the origin's place, which judges back_kernel, too",
    )
    wrong = checked(tmp_path, BACKWARD, WITH_BACKWARD, changed=("* 4.0", "* 5.0"))
    assert wrong.problems[0].startswith("1 of 2 tests fail on the port: ")
    assert wrong.fault == "the port does not agree with its origin"


def test_tests_that_cannot_be_imported_are_told_with_the_reason(tmp_path: Path) -> None:
    found = checked(tmp_path, f"import no_such_module\n{TESTS}")
    why = "test_scale.py:1: ModuleNotFoundError: No module named 'no_such_module'"
    assert found.unchecked == f"the tests cannot be imported: {why}"
    assert found.remedy == (
        "install what provides no_such_module for the tests' interpreter, or name another with "
        "--python, or other tests with --tests"
    )


def test_a_file_of_tests_that_cannot_be_imported_keeps_no_others_from_it(tmp_path: Path) -> None:
    write(tmp_path, {"test_other.py": "import no_such_module\n"})
    found = checked(tmp_path, names=("test_scale.py", "test_other.py"))
    assert found.calls == 2
    assert found.notes == (
        "left out, as it cannot be imported: test_other.py:1: ModuleNotFoundError: No module named "
        "'no_such_module'",
    )


def test_why_tests_did_not_end_is_told_once() -> None:
    fate = "the process ended with exit code 4: ModuleNotFoundError: No module named 'addict'"
    log = "Traceback:\nModuleNotFoundError: No module named 'addict'\n"
    found = read([], fate, log, in_place=False)
    assert found.unchecked == f"the tests did not run to their end ({fate})"
    found = read([], "not done after 1 s: killed", log, in_place=False)
    assert found.unchecked.endswith("killed): ModuleNotFoundError: No module named 'addict'")


@pytest.mark.skipif(probe().tileiras is None, reason="needs cuda.tile's compiler")
def test_what_does_not_compile_is_told_of_the_port_in_one_line(tmp_path: Path) -> None:
    found = checked(
        tmp_path,
        changed=("    i = ct.arange", "    q = [1, 2]\n    i = ct.arange"),
        targets=("sm_90",),
    )
    (problem,) = found.problems
    assert problem.startswith("scale_kernel does not compile for sm_90: ")
    assert " new.py, line " in problem
    assert problem.endswith("q = [1, 2]")  # without the carets below it


def test_arrays_that_share_memory_are_named_with_their_launch(tmp_path: Path) -> None:
    kernel = KERNEL.replace("def scaled(x):", "def scaled(x, o):").replace(
        "    o = torch.empty_like(x)\n", ""
    )
    tests = TESTS.replace("assert scaled(x).sum() == 16", "assert scaled(x, x.view(2, 4)).sum()")
    found = checked(tmp_path, tests, kernel)
    line = (
        port(kernel, "scale.py")
        .text.splitlines()
        .index('        apart("scale_kernel", {"o_ptr": o}, {"x_ptr": x})')
    )
    assert found.problems == (
        "scaled: the port raises ValueError: scale_kernel: o_ptr and x_ptr share memory, and o_ptr "
        "is stored to: cuTile takes the arrays of a launch to be distinct "
        f"(new.py, line {line + 1})",
    )


def test_tests_that_launch_nothing_check_nothing() -> None:
    """Seen with dion: the one of 66 that passed where there is no GPU asked a question of torch."""
    end = {"event": "end", "passed": 1, "failed": 65, "failing": ["t::a"], "launching": 0}
    found = read([end], "", "no GPU", in_place=True, failing=["t::a"])
    assert found.unchecked.startswith("65 of 66 tests do not pass on the origin either")
    found = read([end | {"launching": 1}], "", "", in_place=True, failing=["t::a"])
    assert (found.unchecked, found.tests) == ("", 1)
    alone = end | {"failed": 0, "failing": [], "passed": 3}
    found = read([alone], "", "", in_place=True)
    assert "call none of its functions" in found.unchecked
