"""What the host writes: imports, annotations, and tensors under several names."""

from __future__ import annotations

import importlib.util

import pytest

from agent.lint import lint
from agent.lint.checks.imports import WRONG
from agent.syntax import Source
from tests.lint.test_checks import codes


@pytest.mark.parametrize(
    ("imported", "decorator", "found"),
    [
        ("import cutile as ct", "ct.kernel", True),
        ("import cutile", "cutile.kernel(occupancy=2)", True),
        ("from cutile import kernel", "kernel", True),
        ("from cuda import cutile as ct", "ct.kernel", True),
        ("import cuda_tile as ct", "ct.kernel", True),
        ("import cuda.tile as ct", "ct.kernel", False),
        ("from cuda import tile", "tile.kernel", False),
        ("import tile as ct", "ct.kernel", False),  # somebody's own
        ("import cutile\nimport cuda.tile as ct", "ct.kernel", False),
        ("try:\n    import cuda.tile as ct\nexcept ImportError:\n    import cutile as ct",
         "ct.kernel", False),
        ("from . import cutile as ct", "ct.kernel", False),
    ],
)  # fmt: skip
def test_names_of_the_module(imported: str, decorator: str, found: bool) -> None:
    text = f"{imported}\n\n@{decorator}\ndef k(x):\n    pass\n"
    assert ("CT014" in [f.code for f in lint(Source(text)).findings]) is found


@pytest.mark.parametrize("module", sorted(WRONG))
def test_no_module_has_a_wrong_name(module: str) -> None:
    pytest.importorskip("cuda.tile")
    assert importlib.util.find_spec(module) is None


@pytest.mark.parametrize(
    ("annotation", "launched", "found"),
    [
        ("ct.Constant[str]", "", True),
        ("'ct.Constant[str]'", "", True),
        ("Text", "", True),
        ('ct.Constant[Literal["a", "b"]]', "", True),
        ("ct.Constant[str]", "MODE", True),
        ("ct.Constant[str]", "1", False),  # it works, whatever the annotation says
        ("ct.Constant[int]", "", False),
        ("ct.Constant", "", False),
        ("ct.Constant[Literal[1, 2]]", "", False),
        ("str", "", False),  # no constant: an argument that CT102 looks at
        ("Elsewhere", "", False),
    ],
)
def test_constants_that_are_strings(annotation: str, launched: str, found: bool) -> None:
    text = (
        "from typing import Literal\nfrom elsewhere import MODE, Elsewhere\n"
        f"Text = ct.Constant[str]\n\n@ct.kernel\ndef k(x, mode: {annotation}):\n"
        "    ct.store(x, (mode,), 0.0)\n"
    )
    if launched:
        text += f"\ndef run(x, stream):\n    ct.launch(stream, (1,), k, (x, {launched}))\n"
    assert ("CT106" in codes(text)) is found


ALIASED = [
    "x", "x.view(-1)", "x.reshape(8, 8).t()", "x.flatten()", "x.detach()", "x.T", "x.unsqueeze(0)",
    "x.view(torch.int32)", "torch.transpose(x, 0, 1)", "x.contiguous().view(-1)", "x.clone()",
    "x.view(-1).clone()", "torch.empty_like(x)", "x.float().double()", "torch.clone(x.view(-1))",
    "x[1:]", "y",
]  # fmt: skip


@pytest.mark.parametrize("expression", ALIASED)
def test_an_alias_is_what_torch_says_is_one(expression: str) -> None:
    """For a contiguous tensor; of its parts lint says nothing, since two may be apart."""
    torch = pytest.importorskip("torch")
    x, y = torch.zeros(8, 8), torch.zeros(8, 8)
    made = eval(expression, {"torch": torch, "x": x, "y": y})
    text = f"""
@ct.kernel
def scale(x, y):
    rows = x.tiled_view((1, 8))
    ct.store(y, (ct.bid(0), 0), rows.load((ct.bid(0), 0)) * 2)

def run(x, y, stream):
    other = {expression}
    return ct.tune.exhaustive_search([1], stream, lambda n: (1,), scale, lambda n: (other, x))
"""
    assert ("CT404" in codes(text)) is (made.data_ptr() == x.data_ptr())
