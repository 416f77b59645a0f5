"""A port leaves the operators of its origin to that."""

from __future__ import annotations

from agent.porting import port

FILE = """\
import torch
import triton
import triton.language as tl

from project import direct_register_custom_op, register_kernel_op

NAME = "other"
aten = torch.library.Library("aten", "IMPL")


@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i))


@torch.library.custom_op("mine::copy", mutates_args=("y",))
def copy(x: torch.Tensor, y: torch.Tensor) -> None:
    kernel[(1,)](x, y, BLOCK=8)


@copy.register_fake
def _(x, y):
    pass


@register_kernel_op("mine::again")
def again(x, y):
    torch.ops.mine.copy(x, y)


aten.impl("copy_", again)
direct_register_custom_op("third", again)
torch.library.define(f"mine::{NAME}", "(Tensor x) -> Tensor")
"""


def test_operators_have_names_of_their_own() -> None:
    made = port(FILE, "k.py")
    assert '@torch.library.custom_op("mine_cutile::copy", mutates_args=("y",))' in made.text
    assert '@register_kernel_op("mine_cutile::again")' in made.text
    assert "torch.ops.mine_cutile.copy(x, y)" in made.text
    assert '"mine::copy"' in made.in_place
    assert '"mine::again"' in made.in_place


def test_it_says_which_are_renamed_and_which_stay() -> None:
    notes = port(FILE, "k.py").notes
    renamed = {note: at for note, at in notes.items() if note.startswith("the operator mine::")}
    assert list(renamed.values()) == [(17,), (27,)]
    kept = {note.split("`")[1]: at for note, at in notes.items() if "a name that stays" in note}
    assert kept == {
        "aten.impl": (32,), "direct_register_custom_op": (33,), "torch.library.define": (34,)
    }  # fmt: skip


def test_a_file_without_operators_says_nothing_of_them() -> None:
    before, _, behind = FILE.partition('@torch.library.custom_op("mine::copy", ')
    head = before.replace('aten = torch.library.Library("aten", "IMPL")', "")
    made = port(head + behind.partition("\n")[2].partition("@copy")[0], "k.py")
    assert not made.in_place
    assert made.notes == {}
