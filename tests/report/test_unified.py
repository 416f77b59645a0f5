"""Diffs that git applies, which tell what changed and nothing else."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.report.unified import unified

LINES = st.lists(st.sampled_from(["a", "b", "    )", "", "x\x0cy"]), max_size=12)


def test_a_frequent_line_is_not_taken_for_a_changed_one() -> None:
    """`difflib.unified_diff` gave the last one here as removed and added."""
    call = "kernel[grid](\n    x,\n    y,\n)\n"
    before = call * 60
    after = before.removesuffix(")\n") + "    num_warps=8,\n)\n"
    changed = [x for x in unified(before, after, Path("k.py")).splitlines()[2:] if x[0] in "+-"]
    assert changed == ["+    num_warps=8,"]


@given(LINES, LINES, st.booleans(), st.booleans())
def test_git_applies_it(before: list[str], after: list[str], old_end: bool, new_end: bool) -> None:
    old, new = (
        "\n".join(lines) + "\n" * end for lines, end in ((before, old_end), (after, new_end))
    )
    applied = with_patch(old, unified(old, new, Path("k.py")))
    assert applied == new


def with_patch(text: str, patch: str) -> str:
    if not patch:
        return text
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "k.py").write_bytes(text.encode())
        command = ["git", "apply", "-p1", "-"]
        subprocess.run(command, cwd=folder, input=patch.encode(), check=True, capture_output=True)
        file = Path(folder) / "k.py"
        return file.read_bytes().decode() if file.exists() else ""


@pytest.mark.parametrize("text", ["", "a\n", "a"])
def test_nothing_changed_is_nothing(text: str) -> None:
    assert unified(text, text, Path("k.py")) == ""
