"""cuTile: launches that name no kernel, and the tile sizes that they give each of several."""

from __future__ import annotations

import pytest

from agent.analysis.common.following import following
from agent.analysis.cutile.dialect import CUTILE
from tests.support.playbook import apply, refusal, subject, variants

ONE_KERNEL = """\
@ct.kernel
def {name}_kernel(x, y, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (TILE,)) {of_each})


"""
HEAD = "import cuda.tile as ct\nimport torch\n\n\n"
ADD = ONE_KERNEL.format(name="add", of_each="+ 2")
MUL = ONE_KERNEL.format(name="mul", of_each="* 3")
BODY = """\
    y = torch.empty_like(x)
    tile = 512
    grid = (ct.cdiv(x.shape[0], tile),)
    ct.launch(torch.cuda.current_stream(), grid, {kernel}, (x, y, tile))
    return y


"""
HELPER = "def _launch(kernel, x):\n" + BODY.format(kernel="kernel")
CALLS = """\
def add(x):
    return _launch(add_kernel, x)


def mul(x):
    return _launch(kernel=mul_kernel, x=x)
"""
TABLE = 'KERNELS = {"add": add_kernel, "mul": mul_kernel}\n\n\n'
FORMS = {
    "helper": HELPER + CALLS,
    "hints": HELPER.replace("grid, kernel", "grid, kernel.replace_hints(occupancy=2)") + CALLS,
    "table": f"{TABLE}def run(x, op):\n" + BODY.format(kernel="KERNELS[op]"),
    "hints of an entry": f"{TABLE}def run(x, op):\n"
    + BODY.format(kernel="KERNELS[op].replace_hints(occupancy=2)"),
    "condition": "def run(x, op):\n    fn = add_kernel if op else mul_kernel\n"
    + BODY.format(kernel="fn"),
}
forms = pytest.mark.parametrize("form", FORMS)


@forms
def test_the_tiles_of_both_change(form: str) -> None:
    text = HEAD + ADD + MUL + FORMS[form]
    assert variants("tile-sizes", text) == [{"TILE": 256}, {"TILE": 1024}, {"TILE": 2048}]
    assert apply("tile-sizes", text, {"TILE": 1024}) == text.replace("512", "1024")
    asked = following(CUTILE, subject(text))
    assert [kernel.name for kernel in CUTILE.kernels(asked.source) if kernel.launches] == [
        "add_kernel",
        "mul_kernel",
    ]


@forms
@pytest.mark.parametrize(
    ("other", "why"),
    [
        (
            MUL.replace("* 3", "* TILE"),
            "TILE of add_kernel: mul_kernel shares it, and there it is part of what line 14 stores",
        ),
        (
            MUL.replace("(TILE,)", "(512,)"),
            "TILE of add_kernel: mul_kernel shares it, and no tile there goes by it",
        ),
        (MUL.replace("x, y, TILE", "x, y, n, TILE"), "not followed"),
    ],
    ids=["value", "of its own", "more parameters"],
)
def test_tiles_that_another_kernel_needs_stay(form: str, other: str, why: str) -> None:
    assert why in refusal("tile-sizes", HEAD + ADD + other + FORMS[form])


@forms
def test_hints_are_set_where_the_launch_gives_none(form: str) -> None:
    text = HEAD + ADD + MUL + FORMS[form]
    if "replace_hints" in text:
        told = refusal("occupancy-hint", text)
        assert "sets occupancy itself" in told
        return
    new = apply("occupancy-hint", text, {"occupancy": 4})
    assert new == text.replace("@ct.kernel\n", "@ct.kernel(occupancy=4)\n")
