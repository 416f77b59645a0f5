"""Which names may stand for an array whose shape changes in place."""

from __future__ import annotations

import textwrap

import pytest

from agent.analysis.common.resized import resized
from agent.syntax import Source


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("y.resize_(n)", {"y"}),
        ("torch.resize_as_(y, x)", {"y"}),
        ("y.data = x[:n]", {"y"}),
        ("y.view(-1).add_(n)\ny.data.zero_()", set()),
        # The same array under another name.
        ("z = y\nz.squeeze_(0)", {"y", "z"}),
        ("z = x if n else y.contiguous()\nz.t_()", {"x", "y", "z"}),
        ("zs = [x, y]\nfor z in zs:\n    z.t_()", {"x", "y", "z", "zs"}),
        ("[z.t_() for z in (x, y)]", {"x", "y", "z"}),
        ("for a, b in zip(x, y):\n    b.t_()", {"a", "b", "x", "y"}),
        ("grown(y, 2 * n)", {"y", "array"}),
        ("grown(amount=n, array=y)", {"y", "array"}),
        # What is made like it is another one.
        ("z = torch.empty_like(y)\nz.t_()", {"z"}),
    ],
)
def test_names_of_arrays_that_are_resized(body: str, names: set[str]) -> None:
    grown = "def grown(array, amount):\n    array.resize_(amount)\n\n\n"
    head = grown if "grown" in body else ""
    function = "def host(x, y, n):\n" + textwrap.indent(body, "    ")
    assert resized(Source(f"import torch\n\n\n{head}{function}\n")) == names
