"""All assignments that a name's value may come from."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from agent.analysis.common.possible_definitions import possible_definitions
from agent.analysis.common.reaching_definitions import Ambiguous
from agent.syntax import Source, descendants


def found(body: str) -> list[str]:
    """What may give the argument of `use(x)` its value, as code."""
    indented = textwrap.indent(textwrap.dedent(body), "    ")
    source = Source("x = 0\n\n\ndef kernel(n, x_given):\n" + indented)
    call = next(c for c in descendants(source.module, cst.Call) if source.code(c.func) == "use")
    binders = possible_definitions(source, cst.ensure_type(call.args[0].value, cst.Name))
    return sorted(source.code(b).split(":")[0].strip(" ,;") for b in binders)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("use(x)", []),
        ("use(n)", ["n"]),
        ("n = 1\nuse(n)", ["n = 1"]),
        ("if n:\n    n = 1\nuse(n)", ["n", "n = 1"]),
        ("x = 1\nx = 2\nuse(x)", ["x = 2"]),
        ("x = 1; x += 2; use(x)", ["x += 2"]),
        ("x = 1\nif n:\n    x = 2\nuse(x)", ["x = 1", "x = 2"]),
        ("x = 1\nif n:\n    x = 2\nelse:\n    x = 3\nuse(x)", ["x = 2", "x = 3"]),
        ("x = 1\nif n:\n    x = 2\nelif n > 1:\n    x = 3\nuse(x)", ["x = 1", "x = 2", "x = 3"]),
        ("x = 1\nif n:\n    use(x)\nelse:\n    x = 3", ["x = 1"]),
        ("x = 1\nfor i in range(n):\n    use(x)\n    x = 2", ["x = 1", "x = 2"]),
        ("x = 1\nfor i in range(n):\n    x = 2\n    use(x)\n    x = 3", ["x = 2"]),
        ("x = 1\nfor i in range(n):\n    x = 2\n    x = 3\nuse(x)", ["x = 1", "x = 3"]),
        ("x = 1\nfor i in range(n):\n    x = 2\n    if i:\n        break\n    x = 3\nuse(x)",
         ["x = 1", "x = 2", "x = 3"]),
        ("x = 1\nfor i in range(n):\n    use(x)\n    x = 2\n    if i:\n        continue\n    x = 3",
         ["x = 1", "x = 2", "x = 3"]),
        ("for r in range(n):\n    x = 1\n    for i in range(n):\n        use(x)\n        x = 2",
         ["x = 1", "x = 2"]),
        ("x = 1\nfor i in range(use(x)):\n    x = 2", ["x = 1"]),
        ("x = 1\nwhile use(x):\n    x = 2", ["x = 1", "x = 2"]),
        ("for x in range(n):\n    use(x)", ["for x in range(n)"]),
        ("x = 1\nfor x in range(n):\n    n += x\nuse(x)", ["for x in range(n)", "x = 1"]),
        ("y, x = n, n\nuse(x)", ["y, x = n, n"]),
        ("x = 1\nwith n:\n    use(x)", ["x = 1"]),
        ("x: int = n\nuse(x)", ["x"]),
    ],
)  # fmt: skip
def test_what_may_reach_a_place(body: str, expected: list[str]) -> None:
    assert found(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "if (x := n):\n    use(x)",
        "x = 1\nn(x := 2)\nuse(x)",
        "with n as x:\n    use(x)",
        "x = 1\nwith n:\n    x = 2\nuse(x)",
        "x = 1\ntry:\n    x = 2\nexcept OSError:\n    use(x)",
        "import x\nuse(x)",
        "x = 1\nfor i in range(n):\n    x = 2\nelse:\n    use(x)",
        "match n:\n    case [x]:\n        use(x)",
        "x = 1\ndef f():\n    nonlocal x\n    x = 2\nf()\nuse(x)",
        "global x\nx = 1\nuse(x)",
        "x = 1\nf = lambda: use(x)",
        "x = 1\ny = [use(x) for i in n]",
        "def x():\n    pass\nuse(x)",
        "x = 1\ndel x\nuse(x)",
    ],
)
def test_what_is_not_followed_is_not_left_out(body: str) -> None:
    with pytest.raises(Ambiguous):
        found(body)
