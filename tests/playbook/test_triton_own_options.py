"""Launches that compute an option for themselves: another stands in its place, in plain sight."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.syntax import Source

TEXT = """\
import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=0.0)
    y = x / tl.sqrt(tl.sum(x * x, axis=0))
    tl.store(y_ptr + row * stride + cols, y, mask=cols < n)


def norm(x, plan):
    y = torch.empty_like(x)
    n = x.shape[1]
    # as many as there are rows of 256
    {line}
    norm_kernel[(x.shape[0],)](x, y, n, n, BLOCK=plan.block, {given})
    return y
"""
RAMP = "min(max(plan.block // 512, 1), 32)"
ROW = {"elements_per_warp": 512}


def changed(name: str, text: str, **params: int) -> str:
    entry = playbook.get(name)
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware())
    assert params in entry.variants(subject)
    new = entry.apply(subject, params)
    again = Subject(Source(new), KernelClass.MEMORY, Hardware())
    assert params not in entry.variants(again)
    return new


@pytest.mark.parametrize(
    ("name", "params", "value"),
    [
        ("warps-and-stages", {"num_warps": 8}, "8"),
        ("warps-by-row", {"elements_per_warp": 512}, RAMP),
    ],
)
@pytest.mark.parametrize(
    ("line", "given", "edited"),
    [
        ("warps = min(plan.block // 256, 16)", "num_warps=warps", "min(plan.block // 256, 16)"),
        ("pass", "num_warps=max(n // 256, 1)", "max(n // 256, 1)"),
    ],
)
def test_what_a_launch_computes_is_replaced_where_it_stands(
    name: str, params: dict[str, int], value: str, line: str, given: str, edited: str
) -> None:
    text = TEXT.format(line=line, given=given)
    assert changed(name, text, **params).replace("\n        ", "").replace(
        "\n    )", ")"
    ) == text.replace(edited, value)


def test_a_line_that_others_need_stays() -> None:
    line = "warps = min(plan.block // 256, 16)\n    y.warps = warps"
    new = changed("warps-by-row", TEXT.format(line=line, given="num_warps=warps"), **ROW)
    assert f"num_warps={RAMP}" in new
    assert line in new
    assert "heuristics" not in new


def test_a_line_that_stands_too_early_goes() -> None:
    line = "warps = min(plan.block // 256, 16)\n    plan = plan.best()"
    new = changed("warps-by-row", TEXT.format(line=line, given="num_warps=warps"), **ROW)
    assert f"num_warps={RAMP}" in new
    assert "    n = x.shape[1]\n    plan = plan.best()\n    norm_kernel" in new


BRANCHES = (
    "if n > 4096:\n        warps = 16\n    elif n > 1024:\n        warps = 8\n"
    "    else:\n        warps = 4"
)
STEPS = "warps = 4\n    if n > 4096:\n        warps = 16\n    # more of them\n    warps = warps * 2"


@pytest.mark.parametrize("line", [BRANCHES, STEPS])
@pytest.mark.parametrize(
    ("name", "params", "value"),
    [
        ("warps-and-stages", {"num_warps": 8}, "8"),
        ("warps-by-row", {"elements_per_warp": 512}, RAMP),
    ],
)
def test_lines_that_chose_the_warps_go_with_what_they_chose(
    name: str, params: dict[str, int], value: str, line: str
) -> None:
    """Not a heuristic above the kernel, beside a launch that goes on saying otherwise."""
    new = changed(name, TEXT.format(line=line, given="num_warps=warps"), **params)
    expected = TEXT.format(line=line, given=f"num_warps={value}")
    expected = expected.replace("    # as many as there are rows of 256\n", "")
    laid_out = new.replace("\n        x, y", "x, y").replace("\n    )", ")")
    assert laid_out == expected.replace(f"    {line}\n", "")


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (f"{BRANCHES}\n    print(warps)", BRANCHES),
        ("warps = 4\n    if pick(n):\n        warps = 8", "if pick(n):\n        warps = 8"),
        ("warps = 4\n    for _ in x:\n        warps = 8", "for _ in x:\n        warps = 8"),
    ],
)
def test_lines_that_do_more_stay(line: str, kept: str) -> None:
    text = TEXT.format(line=line, given="num_warps=warps")
    new = changed("warps-and-stages", text, num_warps=2)
    assert "num_warps=2)" in new
    assert kept in new


def test_a_number_that_is_set_again_is_what_the_launch_has() -> None:
    text = TEXT.format(line="warps = max(n // 256, 1)\n    warps = 8", given="num_warps=warps")
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware())
    assert {"num_warps": 8} not in playbook.get("warps-and-stages").variants(subject)


def test_a_comment_of_its_own_stays_above_what_is_left() -> None:
    line = "# about the launch\n\n    warps = 4\n    if n > 4096:\n        warps = 8"
    text = TEXT.format(line=line, given="num_warps=warps")
    new = changed("warps-and-stages", text, num_warps=2)
    assert "    # about the launch\n\n    norm_kernel" in new


@pytest.mark.parametrize(
    ("line", "given"),
    [("warps = pick(n)", "num_warps=warps"), ("warps = plan.warps; n += 0", "num_warps=warps")],
)
def test_what_is_not_followed_is_set_on_the_kernel(line: str, given: str) -> None:
    text = TEXT.format(line=line, given=given)
    new = changed("warps-and-stages", text, num_warps=8)
    assert "@triton.heuristics" in new
    assert line in new
    assert ("num_warps=warps" in new) == ("pick(" in line)  # which may do more


def test_options_that_a_text_gives_are_not_set_once_more() -> None:
    """Some write decorators so for a version of Triton; a heuristic outranks a launch."""
    text = playbook.get("warps-and-stages").before.replace(
        "@triton.jit\n",
        "@eval('''triton.heuristics({\"num_warps\": lambda args: 8})''')\n@triton.jit\n",
    )
    for name in ("warps-and-stages", "even-blocks"):
        entry = playbook.get(name)
        with pytest.raises(NotApplicable, match="a text makes the decorator of"):
            entry.variants(Subject(Source(text), KernelClass.MEMORY, Hardware()))


@pytest.mark.parametrize(
    "table",
    [
        '{"num_warps": lambda args: pick(args["n"])}',
        'dict(num_warps=lambda args: pick(args["n"]))',
        'values=dict(num_warps=lambda args: pick(args["n"]))',
    ],
)
def test_a_heuristic_of_the_authors_is_changed_where_it_stands(table: str) -> None:
    """It outranks what a launch says."""
    theirs = f"@triton.heuristics({table})\n@triton.jit"
    text = TEXT.format(line="pass", given="num_stages=2").replace("@triton.jit", theirs)
    new = changed("warps-and-stages", text, num_warps=8)
    assert new == text.replace('lambda args: pick(args["n"])', "lambda args: 8")


def test_nothing_is_put_on_a_function_that_only_kernels_call() -> None:
    text = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef softplus(x):\n"
        "    return tl.where(x < 20, tl.log(1 + tl.exp(x)), x)\n"
    )
    with pytest.raises(NotApplicable, match="only kernels can call softplus"):
        playbook.get("warps-and-stages").variants(
            Subject(Source(text), KernelClass.MEMORY, Hardware())
        )
