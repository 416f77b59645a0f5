"""Search spaces that hold nothing: lint against what `exhaustive_search` itself says of them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.lint import lint
from agent.syntax import Source

HEAD = """
import functools
import itertools

import cuda.tile as ct

SIZES = (32, 64)
NONE = ()
LEFT = [n for n in NONE]
MADE = iter(SIZES)


@ct.kernel
def k(x):
    ct.bid(0)


def configs():
    for n in SIZES:
        yield n


def nothing():
    for n in NONE:
        yield n
    yield from NONE


def no_list():
    return [n for n in SIZES for m in NONE]


def search(space):
    pass


def tune(x):
    space = SPACE
"""
SEARCH = "ct.tune.exhaustive_search({}, None, lambda n: (1,), k, lambda n: ())"
EMPTY = [
    "[]", "()", "list()", "tuple([])", "[*NONE]", "{}", "[n for n in NONE]", "list(nothing())",
    "no_list()", "list(range(0))", "range(4, 4)", "LEFT", "list(zip(SIZES, NONE))",
    "sorted(itertools.product(SIZES, NONE))", "list(map(str, NONE))", "[] if x else ()",
]  # fmt: skip
FULL = [
    "[1]", "SIZES", "list(configs())", "[*NONE, 1]", "[*SIZES]", "[n for n in SIZES]", "range(4)",
    "list(range(0, 4))", "[1] if x else []", "dict(a=1)", "list(zip(SIZES, SIZES))",
]  # fmt: skip


def text(space: str, body: str) -> str:
    lines = body.replace("SEARCH", SEARCH.format("space")).splitlines()
    return HEAD.replace("SPACE", space) + "".join(f"    {line}\n" for line in lines)


def found(written: str) -> set[str]:
    codes = {finding.code for finding in lint(Source(written)).findings}
    return codes & {"CT401", "CT412", "CT413"}


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """What the real search says when a file's function is called, on a machine without a GPU too:
    it looks at the space first."""
    ct = pytest.importorskip("cuda.tile")
    real = ct.tune.exhaustive_search
    messages: list[str] = []

    def recorded(*arguments: object) -> None:
        try:
            real(*arguments)
        except (TypeError, ValueError) as problem:
            messages.append(str(problem))

    monkeypatch.setattr(ct.tune, "exhaustive_search", recorded)

    def run(written: str, calls: int = 1) -> list[str]:
        path = tmp_path / "spaces_under_test.py"
        path.write_text(written, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("spaces_under_test", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "spaces_under_test", module)
        spec.loader.exec_module(module)
        for _ in range(calls):
            module.tune(True)
        return messages

    yield run


@pytest.mark.parametrize("space", [*EMPTY, *FULL])
def test_what_is_empty(space: str, said) -> None:  # type: ignore[no-untyped-def]
    written = text(space, "SEARCH")
    (message,) = said(written)
    assert (message == "Search space is empty.") is (space in EMPTY)
    assert found(written) == ({"CT412"} if space in EMPTY else set())


@pytest.mark.parametrize(
    "body",
    ["space.append(1)\nSEARCH", "space += [1]\nSEARCH", "space[:] = [1]\nSEARCH",
     "search(space)\nSEARCH", "for n in SIZES:\n    space.extend([n])\nSEARCH",
     "if x:\n    space = [1]\nSEARCH", "other = space\nother.append(1)\nSEARCH"],
)  # fmt: skip
def test_a_list_that_may_grow_stays_unmentioned(body: str) -> None:
    assert found(text("[]", body)) == set()


USED_UP = [
    ("configs()", "ONE(list(space))\nONE(list(space))"),
    ("(n for n in SIZES)", "ONE([*space])\nONE(tuple(space))"),
    ("map(str, SIZES)", "all_of = sorted(space)\nONE(list(space))"),
    ("zip(SIZES, SIZES)", "for n in space:\n    print(n)\nONE([n for n in space])"),
    ("configs()", "for _ in range(2):\n    ONE(list(space))"),
    ("configs()", "first = list(space)\nONE(first)\nsecond = list(space)\nONE(second)"),
    ("configs()", "if x:\n    ONE(list(space))\nONE(list(space))"),
    ("1", "ONE(list(MADE))\nONE(list(MADE))"),
]
NOT_USED_UP = [
    ("list(configs())", "ONE(space)\nONE(space)"),
    ("configs", "ONE(list(space()))\nONE(list(space()))"),
    ("configs()", "first = list(space)\nONE(first)\nONE(first)"),
    ("SIZES", "ONE(list(space))\nONE(list(space))"),
    ("configs()", "if x:\n    ONE(list(space))\nelse:\n    ONE(list(space))"),
    ("configs()", "if x:\n    return ONE(list(space))\nONE(list(space))"),
    ("configs()", "for _ in range(2):\n    space = configs()\n    ONE(list(space))"),
    ("configs()", "for n in space:\n    ONE([n])"),
    ("configs()", "for _ in range(2):\n    ONE(list(space))\n    break"),
    ("range(4)", "for _ in range(2):\n    ONE(list(space))"),
]


def spelled(body: str) -> str:
    """`ONE(space)` is a search of that space."""
    lines = []
    for line in body.splitlines():
        before, one, rest = line.partition("ONE(")
        lines.append(before + SEARCH.format(rest.removesuffix(")")) if one else line)
    return "\n".join(lines)


@pytest.mark.parametrize(("space", "body"), [*USED_UP, *NOT_USED_UP])
def test_what_is_used_up(space: str, body: str, said) -> None:  # type: ignore[no-untyped-def]
    written = text(space, spelled(body))
    messages = said(written)
    assert messages
    is_used_up = (space, body) in USED_UP
    assert ("Search space is empty." in messages) is is_used_up
    assert found(written) == ({"CT413"} if is_used_up else set())


def test_a_generator_of_the_module_is_used_up_by_the_first_call(said) -> None:  # type: ignore[no-untyped-def]
    written = text("1", spelled("ONE(list(MADE))"))
    first, second = said(written, calls=2)
    assert first != second == "Search space is empty."
    (finding,) = (f for f in lint(Source(written)).findings if f.code == "CT413")
    assert finding.message == "the generator `MADE` is used up by the first call of tune"
    cached = written.replace("def tune(x)", "@functools.cache\ndef tune()")
    assert found(cached) == set()


OLD = """
@ct.kernel
def k(x):
    ct.bid(0)

def tune(x, stream):
    {}(stream, lambda n: (1,), k, lambda n: (), search_space=[1])
"""


@pytest.mark.parametrize(
    ("imported", "name", "is_old"),
    [
        ("import cuda.tile_experimental as old", "old.autotune_launch", True),
        ("import cuda.tile_experimental", "cuda.tile_experimental.autotune_launch", True),
        ("from cuda import tile_experimental as old", "old.autotune_launch", True),
        ("from cuda.tile_experimental import autotune_launch", "autotune_launch", True),
        ("try:\n    import cuda.tile_experimental as old\nexcept ImportError:\n    old = None",
         "old.autotune_launch", True),
        ("", "ct.autotune_launch", True),
        ("from cuda.tile_experimental import clear_autotune_cache", "clear_autotune_cache", False),
        ("from tilegym.backend.cutile_rs.autotuner import autotune_launch", "autotune_launch",
         False),
    ],
)  # fmt: skip
def test_the_search_that_is_deprecated(imported: str, name: str, is_old: bool) -> None:
    written = f"import cuda.tile as ct\n{imported}\n{OLD.format(name)}"
    messages = [f.message for f in lint(Source(written)).findings if f.code == "CT411"]
    stands = "`cuda.tile.tune.exhaustive_search` stands in its place"
    assert messages == ([f"`{name}` is deprecated: {stands}"] if is_old else [])


def test_the_installed_cuda_tile_lacks_it() -> None:
    ct = pytest.importorskip("cuda.tile")
    assert importlib.util.find_spec("cuda.tile_experimental") is None
    assert not hasattr(ct, "autotune_launch")
    assert not hasattr(ct.tune, "autotune_launch")


def test_it_took_generators_which_are_used_up_too() -> None:
    again = "    old.autotune_launch(stream, grid, k, lambda n: (), search_space=space)\n"
    written = (
        "import cuda.tile as ct\nimport cuda.tile_experimental as old\n\n"
        "def tune(x, stream, grid, k):\n    space = (n for n in (1, 2))\n" + 2 * again
    )
    lines = [f.line for f in lint(Source(written)).findings if f.code == "CT413"]
    assert lines == [len(written.splitlines())]
