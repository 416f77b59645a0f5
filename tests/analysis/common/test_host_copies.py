"""Copies that host code makes around a launch."""

from __future__ import annotations

import pytest

from agent.analysis.common.host_copies import host_copies
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

FILE = """\
import itertools

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, n):
    tl.store(x, n)


def run(x, y, n):
    {line}
    kernel[(n,)](x, n)
    return x


def other(x):
    return x.clone()
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("x = x.clone()", [(14, ".clone()")]),
        ("x = torch.clone(x)", [(14, "torch.clone")]),
        ("x = torch.cat([x, y])", [(14, "torch.cat")]),
        ("x = x.repeat(2, 1)", [(14, ".repeat()")]),
        ("x = x.t().contiguous()", [(14, ".contiguous() of what is transposed")]),
        ("x = x.T.contiguous()", [(14, ".contiguous() of what is transposed")]),
        (
            "x = x.transpose(1, 2)\n    y = x.reshape(-1, n)",
            [(15, ".reshape() of what is transposed")],
        ),
        ("x = x.transpose(1, 2)\n    x = x.view(n)\n    x = x.reshape(-1, n)", []),
        ("x = x.reshape(-1, n)", []),
        ("x = x.contiguous()", []),
        ("x = torch.empty_like(x)", []),
        ("n = n.clone", []),
        ("y = torch.repeat_interleave(x, 2)", [(14, "torch.repeat_interleave")]),
        ("y = itertools.repeat(None, 3)", []),
        ("y = n.repeat(2)", []),
        ("x = x.t()\n    x, y = x.view(n), y\n    y = x.reshape(n)", []),
        ("y = y.t.reshape(n)", []),
    ],
)
def test_they_are_found_where_a_kernel_is_launched(line: str, found: list[tuple[int, str]]) -> None:
    source = Source(FILE.format(line=line))
    assert [*host_copies(source, TRITON.kernels(source))] == found
