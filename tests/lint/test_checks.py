"""Every check fires on its bad example, on the lines with an arrow, and not on its good one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from agent.lint import CHECKS, Check, Finding, Severity, lint
from agent.lint.base import ARROW
from agent.lint.reference import PITFALLS, RULES, rules_as_markdown
from agent.syntax import Source

ROOT = Path(__file__).resolve().parents[2]
HEAD = "import math\nimport os\n\nimport torch\n\nimport cuda.tile as ct\n\n"
EXAMPLES = sorted((ROOT / "examples").glob("cutile_*/*.py"))

each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.code)


def findings(text: str) -> tuple[Finding, ...]:
    return lint(Source(HEAD + text)).findings


def codes(text: str) -> list[str]:
    return [finding.code for finding in findings(text)]


@each_check
def test_it_fires_where_it_should(check: Check) -> None:
    lines = (HEAD + check.bad).splitlines()
    wanted = [number for number, line in enumerate(lines, 1) if line.endswith(ARROW)]
    assert wanted
    found = {f.line for f in findings(check.bad) if f.code == check.code}
    assert sorted(found) == wanted


@each_check
def test_it_is_silent_on_the_mended_example(check: Check) -> None:
    assert check.code not in codes(check.good)


@each_check
def test_nothing_serious_is_left_in_the_mended_example(check: Check) -> None:
    assert not [f for f in findings(check.good) if f.severity is not Severity.NOTE]


@each_check
def test_it_explains_itself(check: Check) -> None:
    ast.parse(check.bad)
    ast.parse(check.good)
    assert check.why.endswith(".")
    assert check.mend
    assert not check.mend.endswith(".")
    assert check.source
    (first, *_) = (f for f in findings(check.bad) if f.code == check.code)
    assert first.name == check.name
    assert "\n" not in first.message


def test_codes_and_names_are_unique() -> None:
    assert len({check.code for check in CHECKS}) == len(CHECKS)
    assert len({check.name for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_our_own_examples_are_clean(path: Path) -> None:
    report = lint(Source(path.read_text(encoding="utf-8"), str(path)))
    assert [f for f in report.findings if f.severity is not Severity.NOTE] == []


@pytest.mark.parametrize(
    ("default", "found"),
    [
        ("ct.Constant[int]", True),
        ("ct.Constant", True),
        ("Size", True),
        ("ct.IndexedWithInt64", True),
        ("Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(-1,))]", True),
        ("ct.ArrayAnnotation(static_shape_dims=(-1,))", True),
        ("128", False),
        ("ct.float32", False),
        ("None", False),
        ("Annotated[int, 3]", False),
    ],
)
def test_an_annotation_as_a_default_is_told(default: str, found: bool) -> None:
    text = f"""
from typing import Annotated

Size = ct.Constant[int]

@ct.kernel
def k(x, size={default}):
    ct.store(x, (0,), ct.full((128,), size, ct.float32))

def host(size={default}):
    return size
"""
    lines = [f.line for f in findings(text) if f.code == "CT303"]
    assert lines == [1 + text[: text.index("def k")].count("\n") + HEAD.count("\n")] * found


# --- the reference page -------------------------------------------------------------------------


def test_the_page_is_what_the_rules_make() -> None:
    page = ROOT / "docs" / "reference" / "cutile_rules.md"
    assert page.read_text(encoding="utf-8") == rules_as_markdown(), (
        "run `tile-agent lint --rules > docs/reference/cutile_rules.md`"
    )


def test_every_stated_rule_has_a_check_or_a_reason() -> None:
    known = {check.code for check in CHECKS}
    assert (len(RULES), len(PITFALLS)) == (18, 7)
    for rule in (*RULES, *PITFALLS):
        assert set(rule.codes) <= known
        assert rule.codes or rule.remark


# --- what a check must leave alone --------------------------------------------------------------

KERNEL = """
from contextlib import contextmanager

import cuda.tile.jax

@contextmanager
def held(x, i):
    ct.store(x, (i,), 1.0)
    yield i
    ct.store(x, (i,), 2.0)

@ct.kernel
def k(x, y, n, size: ct.Constant[int]):
    i = ct.bid(0)
"""


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("u = ct.load(x, (i * 2,), (size,))", "CT201"),  # not the tile's size: a stride of tiles
        ("u = ct.load(x, (i * size + 1,), (size,))", "CT201"),
        ("u = ct.load(x, (i, 0), (1, size)).astype(ct.float16)", "CT003"),
        ("u = torch.float32", "CT004"),
        ("u = ct.static_eval(math.ceil(size / 3))", "CT004"),
        ("u = ct.full((size * 2,), 0.0, ct.float32)", "CT008"),
        ("t = ct.load(x, (i,), (size,))\nu = ct.zeros(t.shape, ct.float32)", "CT008"),
        ("u = ct.reshape(ct.load(x, (i,), (64,)), (-1, 4))", "CT007"),
        ("u = ct.load(x, (i,), (64,))[:, None]", "CT006"),
        ("u = x.shape[0]", "CT006"),
        ("for j in ct.static_iter([1, 2]):\n    u = j", "CT005"),
        ("u = ct.load(*(x, (i,), (size,)))", "CT002"),
        ("with held(x, 1) as u:\n    ct.store(x, (u,), 0.0)", "CT005"),
        ("[a, [b, c]] = 1, (2, 3)", "CT005"),
        ("print(repr(x.dtype))", "CT004"),
    ],
)
def test_what_is_right_stays_unmentioned(body: str, code: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    assert code not in codes(KERNEL + lines)


UNKNOWN = """
from helpers import SHAPE, ConstInt, extent, extract, marked, tiles

LAST = SHAPE[-1]

def helper(x, tile, index, half):
    for j in range(half):
        ct.store(x, index, ct.load(x, index, (tile,)))

def same_shape(tile):
    return ct.zeros(tile.shape, tile.dtype)

@ct.kernel
def k(x, y, tile: ConstInt, text: "ct.Constant[int]", pair: tuple[ct.Constant[int], int], n):
    i = ct.bid(0)
    t = ct.load(x, (i,), (text,))
"""


@pytest.mark.parametrize(
    "body",
    [
        "u = ct.load(x, (i,), (tile,))",
        "u = ct.zeros((text,), ct.float32)",
        "u = ct.zeros((pair[0],), ct.float32)",
        "u = ct.zeros((extent(x),), ct.float32)",
        "u = ct.zeros(extent(x).shape, ct.float32)",
        "a, b = extent(x)\nu = ct.zeros((a, b), ct.float32)",
        "a, *b = x.shape\nu = ct.zeros((extent(a),), ct.float32)",
        "u = same_shape(extent(x))",
        "u = ct.zeros(tile.shape, ct.float32)",
        "u = extent(x).broadcast_to((4,))\nv = tile.T",
        "u = ct.load(x, SHAPE, (4,))",
        "u = ct.load(x, (i, 0), SHAPE)",
        "u = ct.load(x, (i, 0), extent(x))",
        "u = ct.load(x, (i, 0), tile)",
        "ct.store(x, (i, 0), extent(t))",
        "ct.store(x, (i, 0), t + extent(t))",
        "ct.store(x, (i, 0), ct.sum(extent(t), axis=0))",
        "u = ct.zeros((4,), ct.float32)\n"
        "for j in range(n):\n    u = extent(u)\nct.store(x, (i, 0), u)",
        "u = extract.extract(t, (0, 0), (4,))",
        "u = tiles.reshape(t, n)\nv = tiles.load((i, 0), n)",
        "for j in range(LAST):\n    u = j",
        "for j in range(extent(n / 2)):\n    u = j",
        "h = n / 2\nh = extent(h)\nfor j in range(h):\n    u = j",
        "for j in range(ct.static_eval(int(tile / 2))):\n    u = j",
        "helper(x, n, (i, 0), n / 2)",
    ],
)
def test_what_may_be_right_stays_unmentioned(body: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    assert not {"CT003", "CT008", "CT012", "CT013"} & {*codes(UNKNOWN + lines)}


@pytest.mark.parametrize(
    "circle",
    ["a = a + 1", "a = b + b\n    b = a + a", "a = -a", "a = ct.exp(b)\n    b = a.astype(n)",
     "a = a.reshape((n,))", "a = max(b, 1)\n    b = a if n else a"],
)  # fmt: skip
def test_names_that_name_each_other_have_an_end(circle: str) -> None:
    text = (
        f"@ct.kernel\ndef k(x, y, n):\n    {circle}\n    for j in range(a):\n"
        "        ct.store(y, (a, 0), a)\n        ct.store(y, a, a.reshape((a, 1)))\n"
        "        ct.load(x, a, a)\n"
    )
    assert "CT010" in codes(text)


def test_a_second_decorator_may_mark_the_parameters() -> None:
    kernel = "@ct.kernel\n@marked\ndef k(x, tile):\n    ct.load(x, (0,), (tile,))\n"
    assert codes(kernel) == []
    assert codes(kernel.replace("@marked\n", "")) == ["CT008"]


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            "u = T.load(x, (0,), (tile,))",
            "CT008",
            "`tile` in a tile's shape is a parameter of k that is not marked `ct.Constant`",
        ),
        (
            "u = T.load(x, index=(0, 0), shape=(4,))",
            "CT012",
            "the index `(0, 0)` has 2 dimensions, its tile 1",
        ),
        ("full(y, (0,), zeros((4, 4), T.float32))", "CT012",
         "the index `(0,)` has 1 dimension, its tile 2"),
        (
            "for j in range(x.shape[1] / 32):\n    u = j",
            "CT013",
            "`x.shape[1] / 32` in a range is a float",
        ),
    ],
)  # fmt: skip
def test_other_names_for_cuda_tile(body: str, code: str, message: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    head = "from cuda import tile as T\nfrom cuda.tile import store as full, zeros\n\n"
    errors = lint(Source(f"{head}@T.kernel\ndef k(x, y, tile):\n{lines}")).findings
    (found,) = (f for f in errors if f.severity is Severity.ERROR)
    assert (found.code, found.line, found.message) == (code, 6, message)


LAUNCH = """
@ct.kernel
def k(x, y, size: ct.Constant[int]):
    ct.store(y, (ct.bid(0),), ct.load(x, (ct.bid(0),), (size,)))

def run(x, y, flag, *more):
    stream = torch.cuda.current_stream()
"""


@pytest.mark.parametrize(
    "body",
    [
        "ct.launch(stream, (1,) + (2,), k, (x, y, 128))",
        "ct.launch(stream, tuple(more), k, (x, y, 128))",
        "ct.launch(stream, (1, *more), k, (x, y, 128))",
        "ct.launch(stream, (1,), k, (x, y, *more))",
        "ct.launch(stream, (1,), k, more)",
        "a = x if flag else None\n    b = a if flag else y\n"
        "    ct.launch(stream, (1,), k, (x, b, 128))",
        "s = more[0]\n    ct.launch(stream, (1,), k, (x, y, s))",
        "ct.launch(stream, (1,), k.replace_hints(occupancy=2) if flag else k, (x, y, 128))",
    ],
)
def test_a_launch_that_may_be_right_stays_unmentioned(body: str) -> None:
    assert codes(f"{LAUNCH}    {body}\n") == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("from cuda.tile import sigmoid\n", "CT001"),
        ("import cuda.tile.tune as tune\n\ntune.autotune\n", "CT001"),
        (
            "from cuda import tile as T\n\n@T.kernel(occupancy=64)\ndef k(x):\n    T.bid(0)\n",
            "CT011",
        ),
        (f"{LAUNCH}    ct.launch(stream, [1], k, (x, y, 128))\n", "CT101"),
        (f"{LAUNCH}    ct.launch(stream, (128 / 2,), k, (x, y, 128))\n", "CT101"),
        (f"{LAUNCH}    ct.launch(stream, lambda meta: (1,), k, (x, y, 128))\n", "CT101"),
        (f"{LAUNCH}    ct.launch(stream, (1,), k, [x, y, 128])\n", "CT102"),
        (f"{LAUNCH}    ct.launch(stream, (1,), k, (x, y if flag else None, 128))\n", "CT102"),
        (f"{LAUNCH}    ct.launch(stream, (1,), k, (x, y, torch.float16))\n", "CT102"),
        (f"{LAUNCH}    for n in more:\n        k(x, y, n)\n", "CT104"),
    ],
)
def test_other_ways_to_write_it(text: str, code: str) -> None:
    assert code in codes(text)


SEARCH = """
@ct.kernel
def k(x, y, size: ct.Constant[int]):
    t = ct.zeros((size,), ct.float32)
    if size > 64:
        ct.store(y, (0,), t)
    else:
        t = ct.load(y, (0,), (size,))
    ct.store(x, (0,), t)

def run(x, y, stream):
    def args(n):
        return (ARGUMENTS, 128)
    return ct.tune.exhaustive_search([1, 2], stream, lambda n: (1,), k, args)
"""


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("x, y", False),  # y is read or written, never both
        ("torch.empty_like(x), y", False),
        ("y, y", True),
        ("y.clone(), y.clone()", False),
    ],
)
def test_what_a_search_works_on_in_place(arguments: str, found: bool) -> None:
    assert ("CT404" in codes(SEARCH.replace("ARGUMENTS", arguments))) is found


# --- silencing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("# noqa: CT201", 0),
        ("# read far away  # noqa: E501, CT201", 0),
        ("# noqa: CT202", 1),
        ("# noqa", 1),
        ("# CT201", 1),
    ],
)
def test_a_comment_silences_its_line(comment: str, left: int) -> None:
    text = (
        "@ct.kernel\ndef k(x, y, size: ct.Constant[int]):\n"
        f"    t = ct.load(x, (ct.bid(0) * size,), (size,))  {comment}\n"
        "    ct.store(y, (0,), t)\n"
    )
    report = lint(Source(HEAD + text))
    assert (len(report.findings), report.suppressed) == (left, 1 - left)


DEPTH = """
@ct.kernel
def tiled(x, y, size: ct.Constant[int]):
    ct.store(y, (0,), ct.load(x, (0,), (size,)))

@ct.kernel
def counted(x, size: ct.Constant[int]):
    for j in range(size):
        ct.store(x, (j,), 0.0)

def run(x, y):
    ct.launch(torch.cuda.current_stream(), (1,), tiled, (x, y, {}))
    ct.launch(torch.cuda.current_stream(), (1,), counted, (x, {}))
"""


@pytest.mark.parametrize(("tile", "count", "found"), [(64, 109, 0), (109, 64, 1)])
def test_a_dimension_is_one_of_its_own_kernel(tile: int, count: int, found: int) -> None:
    """A number of another, of the same name, may be any."""
    assert codes(DEPTH.format(tile, count)).count("CT007") == found
