"""Which kernels of a file are changed where another file launches them."""

from __future__ import annotations

import pytest

from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

HEAD = "import triton\nimport triton.language as tl\n\n\n"
ADD = "@triton.jit\ndef add(x, y):\n    return x + y\n\n\n"
SCAN = "@triton.jit\ndef scan(x_ptr):\n    x = tl.load(x_ptr + tl.arange(0, 8))\n"
OTHER = "@triton.jit\ndef other(x_ptr):\n    tl.store(x_ptr, 1)\n"
HOST = "\n\ndef run(x):\n    other[(1,)](x)\n"


@pytest.mark.parametrize(
    ("use", "more", "names"),
    [
        ("tl.associative_scan(x, 0, add)", OTHER, ["scan", "other"]),
        ("add(x, x)", OTHER, ["scan", "other"]),
        ("x + x", "", ["add", "scan"]),
        ("add(x, x)", OTHER + HOST, ["other"]),
    ],
    ids=["handed on", "called", "nobody's", "another is launched here"],
)
def test_helpers_are_none_of_them(use: str, more: str, names: list[str]) -> None:
    source = Source(f"{HEAD}{ADD}{SCAN}    tl.store(x_ptr, {use})\n\n\n{more}")
    assert [kernel.name for kernel in TRITON.launched(source)] == names
