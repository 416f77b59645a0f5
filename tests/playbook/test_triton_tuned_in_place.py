"""What a tuner's trials change: memory that a kernel reads and writes, under whatever names."""

from __future__ import annotations

import re

import pytest

from agent.syntax import Source
from tests.playbook.test_triton_traps import HEAD, apply, refusal

HALVED = (
    HEAD
    + """\
@triton.jit
def halve_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * 0.5, mask=offsets < n)


def halve(x, {parameter}):
    {line}
    n, size = x.numel(), 1024
    halve_kernel[(triton.cdiv(n, size),)]({read}, y, n, BLOCK=size)
    return y
"""
)


def halved(line: str, read: str = "x", parameter: str = "y=None") -> str:
    text = HALVED.replace("{line}", line).replace("{read}", read)
    return text.replace("{parameter}", parameter)


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("pass", "x"),
        ("if y is None:\n        y = torch.empty_like(x)", "x"),
        ("y = x if y else torch.empty_like(x)", "x"),
        ("y = x", "x.view(-1)"),
        ("flat, y = x.flatten(), x", "flat"),
        ("y, x = x, x[0]", "x"),
        ("y = torch.empty_like(x)\n    x = y.view(-1)", "x"),
        ("y = torch.empty_like(x)\n    held = []\n    held.append(y)", "held[0]"),
        ("y = torch.full(x.shape, 0.0, out=x)", "x"),
    ],
)
def test_an_output_that_may_be_the_input_is_restored(line: str, read: str) -> None:
    assert 'restore_value=["y_ptr"]' in apply("add-autotune", halved(line, read))


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("y = torch.empty_like(x)", "x"),
        ("y = x.new_empty(x.shape).view(-1)", "x.view(-1)"),
        ("y = torch.zeros(x.shape, device=x.device)[0]", "x[0]"),
        ("copy = x.clone()\n    y = x", "copy"),
        ("y = torch.empty_like(x)", "None"),
        ("y = torch.empty_like(x)", "torch.zeros_like(y)"),
    ],
)
def test_an_output_that_is_new_is_not(line: str, read: str) -> None:
    tuned = apply("add-autotune", halved(line, read))
    assert "restore_value" not in tuned
    assert "@triton.autotune" in tuned
    assert Source(tuned).functions


# --- what requires gradients --------------------------------------------------------------------


def in_graph(text: str) -> bool:
    tuned = apply("add-autotune", text)
    assert 'restore_value=["y_ptr"]' in tuned
    wrapped = re.search(r"    with torch.no_grad\(\):\n        (held = )?halve_kernel\[", tuned)
    assert wrapped or tuned.count("no_grad") == text.count("no_grad")
    return wrapped is not None


def test_a_leaf_that_requires_a_gradient_is_restored_outside_of_the_graph() -> None:
    assert in_graph(halved("pass"))
    assert in_graph(halved("y = x"))
    assert in_graph(halved("pass").replace("    halve_kernel[", "    held = halve_kernel["))


def test_a_file_without_torch_imports_it_once() -> None:
    text = halved("pass").replace("import torch\n", "")
    text += "    halve_kernel[(triton.cdiv(n, size),)](x, y, n, BLOCK=size)\n"
    tuned = apply("add-autotune", text)
    assert tuned.startswith("import torch\nimport triton\n")
    assert tuned.count("import torch") == 1
    shadowed = text.replace("(x, y=None)", "(x, y=None, torch=None)")
    assert "does not import torch" in refusal("add-autotune", shadowed)


@pytest.mark.parametrize("line", ["y = x.detach()", "y = x.data"])
def test_what_requires_no_gradient_is_restored_as_it_is(line: str) -> None:
    assert not in_graph(halved(line))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def halve(", "@torch.no_grad()\ndef halve("),
        ("def halve(", "@torch.inference_mode\ndef halve("),
        (
            "def halve(x, y=None):\n",
            "class Halve(torch.autograd.Function):\n  @staticmethod\n  def forward(x, y=None):\n",
        ),
        ("    halve_kernel[", "    with torch.no_grad(): halve_kernel["),
    ],
)
def test_where_gradients_are_off_the_launch_stays_where_it_is(old: str, new: str) -> None:
    assert not in_graph(halved("pass").replace(old, new))


def test_where_a_function_is_defined_says_nothing_of_where_it_is_called() -> None:
    text = halved("pass")
    start = text.index("def halve(")
    inner = text[start:].rstrip().replace("\n", "\n        ")
    made = f"def make():\n    with torch.no_grad():\n        {inner}\n    return halve\n"
    tuned = apply("add-autotune", text[:start] + made)
    assert "            with torch.no_grad():\n                halve_kernel[" in tuned


def test_a_launch_that_is_no_statement_is_not_tuned_in_a_graph() -> None:
    text = halved("pass").replace("    halve_kernel[", "    if n: halve_kernel[")
    assert "is no statement of its own" in refusal("add-autotune", text)
    text = text.replace("pass", "y = torch.empty_like(x)")
    assert "restore_value" not in apply("add-autotune", text)


# --- more configs for a tuner that had one ------------------------------------------------------

ONE = 'triton.Config({"BLOCK": 1024}, num_warps=4)'


def tuned(configs: str, line: str, more: str = "") -> str:
    text = halved(line).replace(
        "@triton.jit", f'@triton.autotune(configs={configs}, key=["n"]{more})\n@triton.jit'
    )
    grid = 'lambda meta: (triton.cdiv(n, meta["BLOCK"]),)'
    return text.replace("(triton.cdiv(n, size),)", grid).replace(", n, BLOCK=size)", ", n)")


@pytest.mark.parametrize("entry", ["widen-configs", "config-options"])
@pytest.mark.parametrize(
    ("configs", "line", "more"),
    [(f"[{ONE}]", "y = x", ""), (f"[{ONE}]", "pass", ', reset_to_zero=["y_ptr"]')],
)
def test_one_config_in_place_is_never_tried(entry: str, configs: str, line: str, more: str) -> None:
    told = {
        "y = x": "halve_kernel reads and writes y_ptr, which no tuner restores",
        "pass": "halve_kernel writes y_ptr, which may be a tensor that it reads, and no tuner "
        "restores it",
    }
    assert refusal(entry, tuned(configs, line, more)) == told[line]


def test_one_config_that_a_function_makes_is_one() -> None:
    made = f"\n\ndef made():\n    return [{ONE}]\n\n\n@triton.autotune("
    text = tuned("made()", "y = x")
    assert "restore_value" not in apply("config-options", text)  # nobody sees how many there are
    text = text.replace("@triton.autotune(", made.lstrip())
    assert "no tuner restores" in refusal("config-options", text)


@pytest.mark.parametrize("entry", ["widen-configs", "config-options"])
@pytest.mark.parametrize(
    ("configs", "line", "more"),
    [
        (f"[{ONE}]", "y = torch.empty_like(x)", ""),
        (f"[{ONE}]", "y = x", ', restore_value=["y_ptr"]'),
        (f"[{ONE}, {ONE[:-2]}8)]", "pass", ""),
        (f"[{ONE}, {ONE[:-2]}8)]", "y = x", ""),  # its tuner runs it again and again as it is
    ],
)
def test_what_may_be_tried_is(entry: str, configs: str, line: str, more: str) -> None:
    text = tuned(configs, line, more)
    assert apply(entry, text) != text
