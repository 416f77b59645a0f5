"""What the host gives a kernel, and what its grid is computed from."""

from __future__ import annotations

import pytest

from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import HostView, torch_module
from agent.syntax import Source

FILE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def scale(x, other):
    y = torch.empty_like(x)
    block = 512
    grid = (triton.cdiv(x.numel(), block),)
    {between}
    scale_kernel[grid](x, y, {given}, BLOCK=block)
    return y
"""


def is_one_program_a_block(given: str, between: str = "pass") -> bool:
    source = Source(FILE.format(given=given, between=between))
    (kernel,) = TRITON.launched(source)
    view = HostView(source, kernel.launches[0])
    return view.is_cdiv(view.extent(0), "n", "BLOCK")


def test_what_is_asked_of_a_tensor_on_two_lines_is_the_same() -> None:
    assert is_one_program_a_block("x.numel()")


@pytest.mark.parametrize(
    ("given", "between"),
    [
        ("other.numel()", "pass"),
        ("x.count()", "pass"),
        ("x.numel()", "x = x[1:]"),
        ("x.numel()", "x.resize_(7)"),
        ("x.numel()", "x.shape = (7,)"),
        ("x.numel() + 1", "pass"),
    ],
)
def test_what_may_differ_is_another_value(given: str, between: str) -> None:
    assert not is_one_program_a_block(given, between)


def test_torch_that_only_a_type_checker_imports_is_not_there() -> None:
    local = FILE.replace("def scale(x, other):\n", "def scale(x, other):\n    import torch\n\n")
    checked = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import torch\n"
    text = local.replace("import torch\n", checked, 1).format(given="x.numel()", between="pass")
    source = Source(text)
    (kernel,) = TRITON.launched(source)
    assert torch_module(source, "for this", kernel.launches[0].node) == "torch"
    with pytest.raises(NotApplicable, match="the file does not import torch, for this"):
        torch_module(source, "for this")
