"""Which jitted functions become kernels: what returns a value, no host can launch."""

import pytest

from agent.analysis.triton.kinds import classify
from agent.errors import UsageError
from agent.porting import NotPortable, port
from agent.syntax import Source

HEAD = """\
import torch
import triton
import triton.language as tl


"""
FUNCTIONS = """\
@triton.jit
def twice(x):
    return 2 * x


@triton.jit
def cubed(x):
    return twice(x) * x * x


"""
KERNEL = """\
@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i))


"""
LAUNCH = """\
def run(x, y):
    kernel[(1,)](x, y, BLOCK=8)
"""


def test_a_file_of_functions_for_kernels_is_refused_as_classify_refuses_it() -> None:
    with pytest.raises(UsageError, match="holds only functions that kernels call, such as"):
        classify(Source(HEAD + FUNCTIONS, "k.py"))
    with pytest.raises(NotPortable) as found:
        port(HEAD + FUNCTIONS, "k.py")
    assert str(found.value) == (
        "k.py:1: a file without a `@triton.jit` kernel (only functions that kernels call, such as "
        "twice) is not ported: put them into the file of a kernel that calls them"
    )


@pytest.mark.parametrize("launch", [LAUNCH, ""])
def test_beside_a_kernel_they_are_left_out(launch: str) -> None:
    made = port(HEAD + FUNCTIONS + KERNEL + launch, "k.py")
    assert made.kernels == ("kernel",)
    assert made.text.count("@ct.kernel") == 1
    assert "def cubed" not in made.text
    assert "cubed is left out: no kernel of the file calls it" in made.notes


def test_a_helper_that_a_host_names_is_refused() -> None:
    text = HEAD + FUNCTIONS + KERNEL + LAUNCH + "\n\nACTIVATIONS = {'cubed': cubed}\n"
    with pytest.raises(NotPortable, match="host code that names a function for kernels"):
        port(text, "k.py")


def test_a_kernel_that_another_file_launches_is_ported() -> None:
    other = KERNEL.replace("def kernel", "def other")
    assert port(HEAD + KERNEL + other + LAUNCH, "k.py").kernels == ("kernel", "other")
