"""What every entry that puts `@triton.heuristics` on a kernel must not do."""

from __future__ import annotations

import re

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.syntax import Source

MARK = "triton.heuristics("
COMPUTING = [e for e in playbook.PLAYBOOK if e.after.count(MARK) > e.before.count(MARK)]


@pytest.mark.parametrize("name", [entry.name for entry in COMPUTING])
def test_a_kernel_that_pytorch_wraps_gets_no_heuristics(name: str) -> None:
    """`wrap_triton` takes what `@triton.jit` and `@triton.autotune` make, and nothing else."""
    entry = playbook.get(name)
    launch = re.compile(r"^( +)(\w+_kernel)\[", re.MULTILINE)
    text = launch.sub(r"\1torch.library.wrap_triton(\2)[", entry.before)
    assert text != entry.before
    with pytest.raises(NotApplicable, match="which takes no heuristics then"):
        entry.apply(Subject(Source(text), KernelClass.COMPUTE, Hardware()), entry.example)


def test_a_helper_of_a_kernel_that_is_not_seen_gets_none() -> None:
    """A call by its name, without a grid, is one of device code."""
    text = playbook.get("even-blocks").before.replace("(x, y, n, 2.5, BLOCK=1024)", "(*x)")
    text += "\n\ndef outer(x):\n    scale_kernel(x, x, 8, 2, 64)\n"
    entry = playbook.get("warps-and-stages")
    with pytest.raises(NotApplicable, match="outer calls scale_kernel"):
        entry.variants(Subject(Source(text), KernelClass.MEMORY, Hardware()))


def test_entries_are_looked_at() -> None:
    assert {"even-blocks", "host-descriptors"} <= {entry.name for entry in COMPUTING}
