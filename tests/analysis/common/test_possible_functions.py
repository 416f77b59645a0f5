"""Which functions a launched expression may stand for, and where that is not known."""

from __future__ import annotations

import libcst as cst
import pytest

from agent.analysis.common.possible_functions import possible_functions
from agent.syntax import Source

HEAD = """\
import triton
from elsewhere import theirs


@triton.jit
def one(x): ...


@triton.jit
def two(x): ...


"""
TABLE = 'TABLE = {"one": one, "two": two}\n'
HELPER = "def _launch(kernel, x, n=1):\n    kernel[1](x)\n"
BOTH, NONE = ("one", "two"), ()


def found(code: str) -> tuple[str, ...]:
    """What the first call of a subscript may launch."""
    source = Source(HEAD + code)
    call = next(call for call in source.calls if isinstance(call.func, cst.Subscript))
    expression = cst.ensure_type(call.func, cst.Subscript).value
    return tuple(function.name for function in possible_functions(source, expression))


@pytest.mark.parametrize(
    ("code", "names"),
    [
        # what a condition chooses
        ("def f(x, c):\n    (one if c else two)[1](x)\n", BOTH),
        ("def f(x, c):\n    k = one if c else two\n    k[1](x)\n", BOTH),
        ("def f(x, c):\n    if c:\n        k = two\n"
         "    else:\n        k = one\n    k[1](x)\n", BOTH),
        ("def f(x, c):\n    k = one\n    if c:\n        k = two\n    k[1](x)\n", BOTH),
        ("def f(x, c):\n    k, n = one if c else two, 1\n    k[1](x)\n", BOTH),
        ("def f(x, c):\n    (k := one if c else two)[1](x)\n", BOTH),
        ("def f(x, c):\n    k = None\n    if c:\n        k = two\n    k[1](x)\n", ("two",)),
        ("def f(x, c):\n    match c:\n"
         "        case 1:\n            k = one\n    k[1](x)\n", ("one",)),
        ("def f(x, c):\n    match c:\n        case 1:\n            k = one\n        case k:\n"
         "            pass\n    k[1](x)\n", NONE),
        ("def f(x, c):\n    k = one if c else theirs\n    k[1](x)\n", NONE),
        ("def f(x, c):\n    k = one\n    for k in c:\n        pass\n    k[1](x)\n", NONE),
        ("def f(x, c):\n    k = one\n    with c as k:\n        pass\n    k[1](x)\n", NONE),
        ("def f(x, c):\n    k = one\n    k += c\n    k[1](x)\n", NONE),
        ("def f(x, c):\n    k = one\n    import k\n    k[1](x)\n", NONE),
        ("def f(x, c):\n    k = one\n    g(k := c)\n    k[1](x)\n", NONE),
        ("def f(x, c):\n    k = one\n    def g():\n        nonlocal k\n        k = c\n"
         "    k[1](x)\n", NONE),
        ("K = one\ndef g(c):\n    global K\n    K = c\ndef f(x):\n    K[1](x)\n", NONE),
        ("K = one\ndef g(c):\n    global K\n    K = two\ndef f(x):\n    K[1](x)\n", BOTH),
        ("def f(x, c):\n    k = one\n    [k := t for t in c]\n    k[1](x)\n", NONE),
        ("K = one\ndef g(c):\n    global K\n    any(K := t for t in c)\n"
         "def f(x):\n    K[1](x)\n", NONE),
        ("K = [one]\nany(K := t for t in c)\ndef f(x):\n    K[0][1](x)\n", NONE),
        ("def f(x, c):\n    k = one\n    for a, k in c:\n        pass\n    k[1](x)\n", NONE),
        ("def f(x, c):\n    k = one\n    *k, = c\n    k[1](x)\n", NONE),
        ("def f(x, c):\n    k = one\n    (a, (k, b)) = c\n    k[1](x)\n", NONE),
        ("K = one\ndef g(c):\n    global K\n    import K\ndef f(x):\n    K[1](x)\n", NONE),
        ("one = triton.heuristics({})(one)\ndef f(x, c):\n    (one if c else two)[1](x)\n", NONE),
        ("def f(x, c):\n    k = make(one)\n    k[1](x)\n", NONE),
        ("def f(x, c):\n    self.k[1](x)\n", NONE),
        # tables
        (f"{TABLE}def f(x, op):\n    TABLE[op][1](x)\n", BOTH),
        (f"{TABLE}def f(x, op):\n    k = TABLE[op]\n    k[1](x)\n", BOTH),
        (f"{TABLE}def f(x, op):\n    TABLE.get(op)[1](x)\n", BOTH),
        ("T = {1: two}\ndef f(x, op):\n    T.get(op, one)[1](x)\n", BOTH),
        ("T = {1: two}\ndef f(x, op):\n    T.get(op, theirs)[1](x)\n", NONE),
        ("T = dict(a=one, b=two)\ndef f(x, op):\n    T[op][1](x)\n", BOTH),
        ("T = [one, two]\ndef f(x, op):\n    T[op][1](x)\n", BOTH),
        ("T: tuple = (one, two)\ndef f(x, op):\n    T[op][1](x)\n", BOTH),
        ("def f(x, op):\n    {1: one, 2: two}[op][1](x)\n", BOTH),
        ("def f(x):\n    for k in (one, two):\n        k[1](x)\n", BOTH),
        ("def f(x):\n    for n, k in ((1, one), (2, two)):\n        k[1](x)\n", BOTH),
        (f"{TABLE}def f(x):\n    for k in TABLE.values():\n        k[1](x)\n", BOTH),
        (f"{TABLE}def f(x):\n    for n, k in TABLE.items():\n        k[1](x)\n", BOTH),
        (f"{TABLE}def f(x):\n    [k[1](x) for k in TABLE.values()]\n", BOTH),
        (f"{TABLE}def f(x, op):\n    assert op in TABLE, sorted(TABLE)\n"
         "    TABLE[op][1](x)\n", BOTH),
        (f"{TABLE}def f(x):\n    for k in TABLE:\n        k[1](x)\n", NONE),
        (f"{TABLE}def f(x):\n    for k, n in TABLE.items():\n        k[1](x)\n", NONE),
        ("T = [one, two]\ndef f(x):\n    T[:1][1](x)\n", NONE),
        ("T = {1: one, **others}\ndef f(x, op):\n    T[op][1](x)\n", NONE),
        ("T = [one, *others]\ndef f(x, op):\n    T[op][1](x)\n", NONE),
        ("T = {1: one, 2: make()}\ndef f(x, op):\n    T[op][1](x)\n", NONE),
        ("T = {1: one, 2: theirs}\ndef f(x, op):\n    T[op][1](x)\n", NONE),
        ("T = {}\ndef f(x, op):\n    T[op][1](x)\n", NONE),
        ("T = S = {1: one}\ndef f(x, op):\n    T[op][1](x)\n", NONE),
        *(
            (f"{TABLE}def f(x, op):\n    TABLE[op][1](x)\ndef g(k):\n    {change}\n", NONE)
            for change in (
                'TABLE["three"] = k', "TABLE.update(k)", 'TABLE.setdefault("c", k)', "k(TABLE)",
                'del TABLE["one"]', 'TABLE["one"], n = k', 'TABLE["one"] += k', "other = TABLE",
                "return TABLE", "TABLE.__setitem__('c', k)", "setter = TABLE.update",
                'for TABLE["one"] in k: pass', "global TABLE\n    TABLE = k",
                "global TABLE\n    TABLE |= k", 'with k as TABLE["one"]: pass',
                '[0 for TABLE["one"] in k]',
            )
        ),
        # parameters
        (f"{HELPER}def f(x):\n    _launch(one, x)\ndef g(x):\n    _launch(two, x)\n", BOTH),
        (f"{HELPER}def f(x):\n    _launch(x=x, kernel=one)\n", ("one",)),
        (f"{HELPER}def f(x):\n    _launch(x, one)\n", NONE),
        (f"{HELPER}def f(x, a):\n    _launch(*a)\n", NONE),
        (f"{HELPER}def f(x, a):\n    _launch(one, **a)\n", NONE),
        (f"{HELPER}def f(x):\n    _launch(x=x)\n", NONE),
        (f"{HELPER}def f(x):\n    _launch(one, x)\n    _launch(theirs, x)\n", NONE),
        (f"{HELPER}def f(x, k):\n    _launch(one, x)\n    _launch(k, x)\n", NONE),
        (f"{HELPER}def f(x):\n    _launch(one, x)\n    run(_launch, two, x)\n", NONE),
        (f"{HELPER}def f(x):\n    _launch(one, x)\nlaunch = _launch\n", NONE),
        (f"{HELPER}def f(x):\n    _launch(one, x)\n_launch = wrapped(_launch)\n", NONE),
        (f'{HELPER}def f(x):\n    _launch(one, x)\n__all__ = ["_launch"]\n', NONE),
        (f'@lru_cache\n{HELPER}def f(x):\n    _launch(one, x)\n', NONE),
        (HELPER, NONE),
        ("def launch(k, x):\n    k[1](x)\ndef f(x):\n    launch(one, x)\n", NONE),
        ("def __launch(k, x):\n    k[1](x)\ndef f(x):\n    __launch(one, x)\n", NONE),
        ("class A:\n    def _launch(self, k, x):\n        k[1](x)\n"
         "    def f(self, x):\n        self._launch(one, x)\n", NONE),
        ("if FAST:\n    def _launch(k, x):\n"
         "        k[1](x)\ndef f(x):\n    _launch(one, x)\n", NONE),
        ("def f(x):\n    def launch(k):\n"
         "        k[1](x)\n    launch(one)\n    launch(two)\n", BOTH),
        ("def f(x):\n    def launch(k):\n"
         "        k[1](x)\n    launch(one)\n    return launch\n", NONE),
        ("def _launch(x, k=one):\n    k[1](x)\ndef f(x):\n    _launch(x)\n", ("one",)),
        ("def _launch(x, k=one):\n    k[1](x)\ndef f(x):\n    _launch(x, two)\n", ("two",)),
        ("def _launch(x, *, k):\n    k[1](x)\ndef f(x):\n    _launch(x, k=one)\n", ("one",)),
        ("def _launch(*k):\n    k[1](x)\ndef f(x):\n    _launch(one)\n", NONE),
        ("def _launch(x, *rest, k=one):\n    k[1](x)\ndef f(x):\n    _launch(x, two)\n", ("one",)),
        ("def _launch(x, k=None):\n    if k is None:\n        k = one\n    k[1](x)\n"
         "def f(x):\n    _launch(x)\n    _launch(x, two)\n", BOTH),
        ("def _launch(one, x):\n    one[1](x)\ndef f(x):\n    _launch(two, x)\n", ("two",)),
        # a kernel that goes by other names on its way
        (f"{HELPER}def _outer(x, which):\n    _launch(which, x)\n"
         "def f(x):\n    _outer(x, one)\n    _outer(x, which=two)\n", BOTH),
        (f"{HELPER}def outer(x, which):\n    _launch(which, x)\n"
         "def f(x):\n    outer(x, one)\n", NONE),
        (f"{HELPER}{TABLE}def f(x, op):\n    _launch(TABLE[op], x)\n", BOTH),
        (f"{HELPER}def f(x, c):\n    _launch(one if c else two, x)\n", BOTH),
        (f"{HELPER}def f(x, c):\n    k = one if c else two\n    _launch(k, x)\n", BOTH),
        # a function that calls itself
        ("def _launch(k, x, n):\n    k[1](x)\n    _launch(k, x, n - 1)\n"
         "def f(x):\n    _launch(one, x, 2)\n", ("one",)),
        ("def _launch(k, x, n):\n    k[1](x)\n    _launch(two, x, n - 1)\n"
         "def f(x):\n    _launch(one, x, 2)\n", BOTH),
        ("def _launch(k, o, x):\n    k[1](x)\n    _launch(o, k, x)\n"
         "def f(x):\n    _launch(one, two, x)\n", BOTH),
        ("def _launch(k, x):\n    k[1](x)\n    _launch(k, x)\n", NONE),
        ("def f(x):\n    k = k\n    k[1](x)\n", NONE),
    ],
)  # fmt: skip
def test_all_that_it_may_be_or_nothing(code: str, names: tuple[str, ...]) -> None:
    assert found(code) == names


def test_a_search_without_end_ends() -> None:
    steps = "".join(
        f"def _f{n}(k, x):\n    _f{n + 1}(k, x)\n    _f{n + 1}(k, x)\n" for n in range(12)
    )
    code = f"def _f12(k, x):\n    k[1](x)\n{steps}def f(x):\n    _f0(one, x)\n"
    assert found(code) == NONE
