"""What a frozen copy or a port calls the operators that its file registers."""

from __future__ import annotations

import pytest

from agent.rewriting.common.own_operators import (
    computed_names,
    registered_otherwise,
    with_own_operators,
)
from agent.syntax import Source

OPERATORS = """\
import torch
from torch.library import Library, triton_op

lib = Library("mine", "FRAGMENT")
lib.define("scale(Tensor x) -> Tensor")


also = torch.library.Library("mine", "IMPL", "CPU")
also.impl("scale", torch.abs)


@torch.library.impl(lib, "scale", "CUDA")
def scale(x):  # as "mine::scale" does
    return torch.ops.others.scale(x)


@triton_op("mine::gelu", mutates_args=())
def gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.mine.scale(x) + torch.ops.mine.other(x)


@torch.library.register_fake(r"mine::gelu")
def _(x):
    return torch.empty_like(x)


DEFAULT = torch.ops.mine.gelu.default
UNKNOWN = "mine::unknown"
"""


def test_what_a_file_registers_gets_a_namespace_of_its_own() -> None:
    renamed = with_own_operators(OPERATORS)
    expected = OPERATORS.replace('Library("mine"', 'Library("mine_origin"')
    expected = expected.replace('.Library("mine"', '.Library("mine_origin"')
    expected = expected.replace('"mine::gelu"', '"mine_origin::gelu"')
    expected = expected.replace("ops.mine.scale", "ops.mine_origin.scale")
    assert renamed == expected.replace("ops.mine.gelu", "ops.mine_origin.gelu")


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nX = torch.ops.mine.scale\n",
        "import torch\nNAME = 'scale'\n@torch.library.custom_op(f'mine::{NAME}')\ndef f(x): ...\n",
        "import torch\nlib = make()\nlib.define('scale(Tensor x) -> Tensor')  # library\n",
    ],
)
def test_a_file_that_names_none_stays_as_it_is(text: str) -> None:
    assert with_own_operators(text) == text


def test_a_namespace_of_the_files_own_is_renamed_by_its_name_too() -> None:
    text = "import torch\nops = torch.ops.r\n@torch.library.custom_op(r'r::f')\ndef f(x): ...\n"
    renamed = with_own_operators(text)
    assert renamed == text.replace("ops.r\n", "ops.r_origin\n").replace("'r::f", "'r_origin::f")


def test_a_decorator_of_the_project_may_name_one() -> None:
    text = """\
from project import register_fake, register_op
import torch


@register_op("mine::scale", tag=1)
def scale(x):
    return x


@register_fake("others::scale")
def fake(x):
    return torch.ops.mine.scale(x)
"""
    expected = text.replace('"mine::', '"mine_copy::').replace("ops.mine.", "ops.mine_copy.")
    assert with_own_operators(text, "_copy") == expected


@pytest.mark.parametrize(
    ("code", "kept"),
    {
        "torch.library.register_fake('mine::gelu', f)": False,
        "torch.library.register_fake('others::gelu', f)": True,
        "torch.library.impl(lib, 'scale', 'CUDA')": False,
        "torch.library.impl(NAME, 'CUDA')": False,
        "torch.library.impl(f'mine::{NAME}', 'CUDA')": True,
        "torch.library.custom_op(NAME, f)": True,
        "also.impl('scale', f)": False,
        "Library('aten', 'IMPL').impl('add', f)": True,
        "other.impl('add', f)": False,
        "project.register_custom_op(f)": True,
    }.items(),
)
def test_what_keeps_its_name_is_found(code: str, kept: bool) -> None:
    source = Source(f"import project\n{OPERATORS}\n{code}\n")
    last = source.module.body[-1]
    line = source.line(last)
    assert [source.line(call) for call in registered_otherwise(source)] == [line] * kept


def test_names_that_do_not_stand_in_the_file_are_known_by_what_was_registered() -> None:
    text = "import torch\n\n\n@decorator\ndef one(x):\n    return torch.ops.theirs.one(x)\n"
    literal = '\n\n@torch.library.custom_op("mine::two", mutates_args=())\ndef two(x): ...\n'
    computed = computed_names(text + literal, ["theirs::one", "mine::two"])
    assert computed == {("theirs", "one")}
    renamed = with_own_operators(text + literal, computed=computed)
    assert "torch.ops.theirs_origin.one(x)" in renamed
    assert '"mine_origin::two"' in renamed
    assert computed_names(text, []) == set()


def test_a_decorator_may_be_given_nothing() -> None:
    text = "# from our kernel library\nimport triton\n\n\n@triton.jit()\ndef k(x):\n    pass\n"
    assert with_own_operators(text) == text
