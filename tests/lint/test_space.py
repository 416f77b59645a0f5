"""Counting the configs of a search, against Python's own count."""

from __future__ import annotations

import itertools

import pytest

from agent.analysis.cutile.kernel_file import KernelFile
from agent.lint.space import at_least, is_generator, values
from agent.syntax import Source

FUNCTIONS = """
import itertools

SIZES = (32, 64, 128)

def nested(big):
    for m in SIZES:
        for n in [16, 32]:
            yield (m, n)

def branches(big):
    if big:
        yield 1
        yield 2
    elif big is None:
        yield 3
    else:
        yield 4
        yield 5
        yield 6

def delegating(big):
    yield 0
    yield from nested(big)

def listing(big):
    return [(m, n) for m in SIZES for n in SIZES]

def spaces():
    for n in [1, 2]:
        yield dict(occ=n)
    yield dict(occ=16)

def cut(big):
    for m in SIZES:
        if big:
            continue
        yield m

def stopped(big):
    yield 1
    if big:
        return
    yield 2
"""


def space(expression: str) -> tuple[KernelFile, object]:
    source = Source(f"{FUNCTIONS}\nspace = {expression}\n")
    statement = source.module.body[-1].body[0]
    return KernelFile(source), statement.value


@pytest.mark.parametrize(
    "expression",
    ["[1, 2, 3]", "[*SIZES, 7]", "list(range(3, 20, 4))", "[(a, b) for a in SIZES for b in (1, 2)]",
     "list(itertools.product(SIZES, (1, 2), SIZES))", "list(nested(True))", "listing(True)",
     "list(delegating(True))", "sorted(SIZES)", "tuple(a for a in SIZES)"],
)  # fmt: skip
def test_it_counts_as_python_does(expression: str) -> None:
    names: dict[str, object] = {"itertools": itertools}
    exec(FUNCTIONS, names)
    assert at_least(*space(expression)) == len(eval(expression, names))


@pytest.mark.parametrize(
    ("expression", "least"),
    [("[a for a in SIZES if a > 32]", 0), ("list(branches(x))", 1), ("list(cut(x))", 0),
     ("list(stopped(x))", 0), ("unknown()", 0), ("list(range(n))", 0)],
)  # fmt: skip
def test_it_never_counts_too_many(expression: str, least: int) -> None:
    assert at_least(*space(expression)) == least


@pytest.mark.parametrize(
    ("expression", "tried"),
    [
        ("[dict(occ=1), dict(occ=4)]", {1, 4}),
        ("[{'occ': n, 'size': 64} for n in (2, 8)]", {2, 8}),
        ("list(spaces())", {1, 2, 16}),
        ("[dict(size=1)]", None),
        ("[dict(occ=n) for n in range(4)]", None),
        ("[dict(occ=1), other]", None),
    ],
)
def test_the_values_of_a_field(expression: str, tried: set[int] | None) -> None:
    assert values(*space(expression), "occ") == tried


@pytest.mark.parametrize(
    ("expression", "generator"),
    [("nested(True)", True), ("itertools.product(SIZES, SIZES)", True), ("zip(SIZES, SIZES)", True),
     ("(a for a in SIZES)", True), ("listing(True)", False), ("list(nested(True))", False),
     ("[1, 2]", False), ("unknown()", False), ("range(4)", False)],
)  # fmt: skip
def test_what_has_no_length(expression: str, generator: bool) -> None:
    assert is_generator(*space(expression)) is generator
