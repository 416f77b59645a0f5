"""What a frozen copy calls the operators that its file registers."""

from __future__ import annotations

import pytest

from agent.rewriting.common.own_operators import with_own_operators

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
