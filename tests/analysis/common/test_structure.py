"""What a kernel does, whatever its text calls it: other names are the same, other work is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.analysis.common.structure import Structure
from agent.backends import BACKENDS, detect
from agent.errors import UsageError
from agent.syntax import Source

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TRITON_MATMUL = EXAMPLES / "triton_matmul" / "matmul.py"
CUTILE_RMS_NORM = EXAMPLES / "cutile_rms_norm" / "rms_norm.py"


def structure(text: str, *timed: str) -> Structure:
    source = Source(text, "kernel.py", timed)
    backend = detect(source)
    assert backend is not None
    return backend.structure(source)


@pytest.mark.parametrize("path", [TRITON_MATMUL, CUTILE_RMS_NORM], ids=lambda path: path.stem)
def test_names_comments_and_sizes_are_no_part_of_it(path: Path) -> None:
    text = path.read_text()
    found = structure(text)
    (name,) = {k.name for k in BACKENDS[path.parent.name.partition("_")[0]].kernels(Source(text))}
    other = re.sub(rf"\b{name}\b", "acme_secret_kernel", text)
    other = re.sub(r"\b(64|128|1024)\b", "32", other).replace("    #", "    # more of a")
    assert other != text
    assert structure(other) == found
    assert re.fullmatch("[0-9a-f]{16}", found.fingerprint)


KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def helper(p, i):
    return tl.load(p + i)


@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    for i in range(n):
        total += helper(x, i * B + tl.arange(0, B))
    tl.store(y, tl.sum(total))


@triton.jit
def copy(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i))


def run(x, y):
    kernel[(1,)](x, y, 4, 64)
    copy[(1,)](x, y, 64)
"""


def test_a_helper_counts_where_it_is_called() -> None:
    found = structure(KERNEL)
    inlined = KERNEL.replace(
        "helper(x, i * B + tl.arange(0, B))", "tl.load(x + i * B + tl.arange(0, B))"
    )
    assert inlined != KERNEL
    assert structure(inlined) == found
    assert found.kind == "reductions, loads in a loop"


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("tl.sum(total)", "tl.max(total)", "reductions, loads in a loop"),
        ("tl.store(y, tl.sum", "tl.atomic_add(y, tl.sum", "reductions, atomics, loads in a loop"),
        ("    for i in range(n):\n    ", "    if n:\n        i = 0\n    ", "reductions"),
        ("total += helper(", "total += tl.sum(helper(x, i)) + helper(", "reductions in a loop"),
        ("tl.sum(total)", "tl.sum(tl.dot(total, total))", "a product, reductions, loads in a loop"),
    ],
)
def test_other_work_is_another_structure(before: str, after: str, kind: str) -> None:
    other = KERNEL.replace(before, after)
    assert other != KERNEL
    found = structure(other)
    assert found.kind == kind
    assert found.fingerprint != structure(KERNEL).fingerprint


def test_it_is_that_of_the_kernel_that_takes_the_time() -> None:
    assert structure(KERNEL, "copy", "kernel").kind == "element by element"
    assert structure(KERNEL, "kernel", "copy") == structure(KERNEL)


def test_the_languages_differ_and_a_product_does_not_by_how_it_is_written() -> None:
    cutile = (EXAMPLES / "cutile_matmul" / "matmul.py").read_text()
    found = structure(cutile)
    assert found.kind == structure(TRITON_MATMUL.read_text()).kind == "a product in a loop"
    assert found.fingerprint != structure(TRITON_MATMUL.read_text()).fingerprint
    written = re.sub(r"ct\.mma\((\w+), (\w+), (?:acc=)?(\w+)\)", r"\3 + \1 @ \2", cutile)
    assert written != cutile
    assert structure(written) == found


def test_a_file_without_a_kernel_is_refused() -> None:
    with pytest.raises(UsageError, match=r"holds no triton\.jit kernel"):
        BACKENDS["triton"].structure(Source("x = 1\n", "kernel.py"))
