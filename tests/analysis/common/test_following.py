"""A file in which launches by other names count has the nodes of the file in which they do not."""

from __future__ import annotations

from agent.syntax import Source

TEXT = "def f(k, x):\n    k[1](x)\n"


def test_both_have_one_tree() -> None:
    source = Source(TEXT, "kernel.py", ("f",), ((2, 3),))
    followed = source.following()
    assert followed is not source
    assert followed is source.following() is followed.following()
    assert followed.module is source.module
    assert followed.functions[0] is source.functions[0]
    assert (followed.text, followed.timed, followed.moved) == (TEXT, ("f",), ((2, 3),))
    assert followed.line(followed.calls[0]) == 5
    assert followed.rewrite({source.calls[0].args[0]: lambda old: old}) == TEXT
    assert not source.follows


def test_what_comes_of_it_counts_them_too() -> None:
    source = Source(TEXT, "kernel.py", ("f",))
    assert source.following().with_text("x = 1") is Source(
        "x = 1", "kernel.py", ("f",), follows=True
    )
    assert not source.with_text("x = 1").follows
