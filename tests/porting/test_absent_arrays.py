"""Arrays that may be None: a kernel does not touch them then, and cuTile takes no None."""

from pathlib import Path

import pytest

from agent.ported import Project, check
from agent.porting import port
from tests.support.warm_python import warm_interpreter

TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def sums_kernel(x_ptr, add_ptr, out_ptr, total_ptr, kept_ptr, n,
                HAS_ADD: tl.constexpr, KEEP: tl.constexpr, TOTAL: tl.constexpr,
                BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    if HAS_ADD:
        x += tl.load(add_ptr + i, mask=i < n, other=0.0)
    if KEEP:
        tl.store(kept_ptr + i, x, mask=i < n)
    if TOTAL:
        tl.store(total_ptr, tl.sum(x, axis=0))
    tl.store(out_ptr + i, x * 2, mask=i < n)


def sums(x, out, total, with_total, add=None, keep=False):
    {kept}
    sums_kernel[(1,)](
        x, add, out, total, {passed}, x.numel(), add is not None, keep, with_total,
        BLOCK=8,
    )
    return kept
"""
BRANCH = "if keep:\n        kept = torch.empty_like(x)\n    else:\n        kept = None"
WAYS = {
    BRANCH: "kept",
    "kept = torch.empty_like(x) if keep else None": "kept",
    "kept = torch.empty_like(x)": "kept if keep else None",
}
"""How an array is made that the kernel stores to where `keep` holds -> how it is passed."""
TESTS = """
import pytest
import torch
from sums import sums

X = torch.arange(8.0)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("add", [None, X + 1])
@pytest.mark.parametrize("total", [None, torch.zeros(1)])
def test_sums(keep, add, total):
    out = torch.empty(8)
    kept = sums(X.clone(), out, total, total is not None, add, keep)
    assert torch.equal(out, 2 * (X if add is None else X + add))
"""


@pytest.mark.parametrize(("made", "passed"), WAYS.items(), ids=["branch", "choice", "launch"])
def test_none_is_not_passed_for_an_array(made: str, passed: str, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    pytest.importorskip("cuda.tile", reason="cuda.tile is not installed")
    text = TRITON.format(kept=made, passed=passed)
    kernel = tmp_path / "sums.py"
    kernel.write_text(text)
    tests = tmp_path / "test_sums.py"
    tests.write_text(TESTS)
    new = port(text, "sums.py")
    assert "flat(total if total is not None else x)" in new.text  # which no line says of it
    found = check(
        new,
        kernel,
        Project(tmp_path, (tests,), (tmp_path,)),
        new.functions,
        python=warm_interpreter(),
        timeout_s=300,
        targets=(),
    )
    assert found.problems == ()
    assert found.calls == 8


def test_none_that_is_written_out_gives_way_to_another_array() -> None:
    text = TRITON.format(kept="kept = None", passed="None")
    assert "flat(total if total is not None else x),\n" in port(text, "sums.py").text
    assert "None)" not in port(text, "sums.py").text


def test_an_array_that_a_kernel_touches_in_any_case_is_there_whatever_the_host_says() -> None:
    """As of one that `x, add = None, None` leaves out together with others, launch and all."""
    made = (
        f"{BRANCH}\n    if with_total:\n        x = x + 0\n    else:\n        x, add = None, None\n"
        "    if out is None:\n        return"
    )
    text = port(TRITON.format(kept=made, passed="kept"), "sums.py").text
    assert "flat(x)," in text
    assert "flat(add if add is not None else x)" in text
