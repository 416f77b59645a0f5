"""Reading a source file by what its names mean."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import libcst as cst
import pytest
from libcst.metadata import (
    Assignment,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    ScopeProvider,
)

from agent.syntax import Source, Untraceable, descendants


def source(text: str) -> Source:
    return Source(dedent(text))


@pytest.mark.parametrize(
    ("imports", "spelled"),
    [
        ("import triton.language as T", "T.load"),
        ("import triton.language", "triton.language.load"),
        ("from triton import language as tl", "tl.load"),
        ("from triton.language import load", "load"),
        ("from triton.language import load as fetch", "fetch"),
        ("import triton.language as tl\nfetch = tl.load", "fetch"),
        ("try:\n    import triton.language as tl\nexcept ImportError:\n    tl = None", "tl.load"),
        ("from vllm.triton_utils import tl, triton", "tl.load"),
        ("from vllm.triton_utils import tl as T", "T.load"),
        ("from vllm.triton_utils import triton", "triton.language.load"),
        ("from . import tl", "tl.load"),
        ("from ..utils import tl", "tl.load"),
    ],
)
def test_names_follow_the_imports(imports: str, spelled: str) -> None:
    found = source(f"{imports}\ndef f(p):\n    return {spelled}(p)\n")
    assert found.name(found.calls[-1].func) == "triton.language.load"


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("triton_jit", "triton.jit"),
        ("triton_autotune", "triton.autotune"),
        ("tl_constexpr", "triton.language.constexpr"),
    ],
)
def test_parts_of_triton_that_a_project_hands_on(spelled: str, meant: str) -> None:
    found = source(f"from project.utils import {spelled}\n{spelled}()\n")
    assert found.name(found.calls[0].func) == meant
    own = source(f"def {spelled}():\n    pass\n{spelled}()\n")
    assert own.name(own.calls[0].func) == spelled


def test_names_are_not_taken_by_their_text() -> None:
    found = source("import json as tl\ndef f(p):\n    return tl.load(p)\n")
    assert found.name(found.calls[0].func) == "json.load"
    found = source("import kernels.triton\ndef f(p):\n    return kernels.triton.jit(p)\n")
    assert found.name(found.calls[0].func) == "kernels.triton.jit"


@pytest.mark.parametrize(
    "annotation", ["ct.Constant", "ct.Constant[int]", "ConstInt", '"ct.Constant"']
)
def test_annotations(annotation: str) -> None:
    found = source(f"""
        import cuda.tile as ct
        ConstInt = ct.Constant[int]
        def f(n: {annotation}): ...
    """)
    (parameter,) = found.functions[0].parameters
    assert parameter.annotation is not None
    assert found.name(parameter.annotation.annotation) == "cuda.tile.Constant"


def test_a_method_of_what_a_call_returns_has_no_name() -> None:
    source = Source("import triton.language as tl\n\nrow = tl.program_id(0).to(tl.int64)\n")
    assert [source.name(call.func) for call in source.calls] == [None, "triton.language.program_id"]


def test_a_function_is_named_by_what_is_around_it() -> None:
    found = source("""\
        try:
            from fast import f
        except ImportError:
            def f(): ...
        f()
    """)
    assert [function.name for function in found.functions] == ["f"]


def test_functions_have_their_qualified_names_and_lines() -> None:
    found = source("""\
        import functools

        @functools.cache
        def f(a, /, b, *, c):
            def inner(): ...

        class Softmax:
            def forward(self): ...
    """)
    assert [(f.name, found.line(f.node)) for f in found.functions] == [
        ("f", 4),
        ("f.inner", 5),
        ("Softmax.forward", 8),
    ]
    assert [p.name.value for p in found.functions[0].parameters] == ["a", "b", "c"]
    assert found.decorator(found.functions[0], "functools.cache") is not None


def traced(text: str) -> int | str:
    found = source(text)
    try:
        return found.trace(found.calls[-1].args[0].value).value
    except Untraceable as reason:
        return str(reason)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("f(64)", 64),
        ("N = 64\nf(N)", 64),
        ("M, N = 32, 64\nf(N)", 64),
        ("M = 64\ndef g():\n    n = M\n    return f(n)", 64),
        ("N: int = 64\nf(N)", 64),
        ("def g(n=64):\n    return f(n)", 64),
        ("def g(n):\n    return f(n)", "is `n`, which is a parameter"),
        ("N = 1\nN = 2\nf(N)", "is `N`, which is assigned 2 times"),
        ("N = 1\nN += 2\nf(N)", "is `N`, which is assigned 2 times"),
        ("M = N = 64\nf(N)", "is `N`, which is not assigned a plain value"),
        ("for n in (1, 2):\n    f(n)", "is `n`, which is not assigned a plain value"),
        ("from sizes import N\nf(N)", "is `N`, which is imported"),
        ("f(N)", "is `N`, which is not assigned in this file"),
        ("f(2 * 32)", "is computed: `2 * 32`"),
        ("n = n\nf(n)", "is `n`, which is assigned to itself"),
    ],
)
def test_tracing_an_integer(text: str, answer: int | str) -> None:
    assert traced(text) == answer


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("2**4", 16),
        ("1 << 10", 1024),
        ("(4 * 32)", 128),
        ("2 * (65 - 1) // 4 >> 1", 16),
        ("2**4 * N", None),
        ("-16", None),
        ("8 / 2", None),
        ("8 // 0", None),
        ("2 ** -1", None),
        ("2 ** 2 ** 9", None),
        ("2.0 ** 4", None),
        ("True << 4", None),
    ],
)
def test_an_expression_of_integers_is_traced_where_one_is_asked_for(
    code: str, value: int | None
) -> None:
    found = source(f"def g(n={code}):\n    return f(n)")
    given = found.calls[-1].args[0].value
    with pytest.raises(Untraceable, match="is computed"):
        found.trace(given)
    if value is None:
        with pytest.raises(Untraceable, match="is computed"):
            found.trace(given, computed=True)
        return
    literal = found.trace(given, computed=True)
    assert literal.value == value
    assert (literal.is_default, len(literal.names)) == (True, 1)
    assert found.module.code_for_node(literal.node) == code


def test_a_traced_integer_tells_its_names() -> None:
    found = source("M = 64\ndef g(n=M):\n    return f(n)\n")
    literal = found.trace(found.calls[0].args[0].value)
    assert [name.value for name in literal.names] == ["n", "M"]
    assert literal.is_default
    assert [len(found.uses(a)) for a in literal.assignments] == [1, 1]


@pytest.mark.parametrize("text", ["", "a = 1", "a = 1\r\nb = 2", "\ufeffa = 1\n", "if a:\n\tb\n"])
def test_text_round_trips(text: str) -> None:
    assert Source(text).rewrite({}) == text


def test_only_the_edited_node_changes() -> None:
    text = "a  =  1 # one\r\nb = (  2,)"
    found = Source(text)
    (first, _) = descendants(found.module, cst.Integer)
    assert found.rewrite({first: lambda n: n.with_changes(value="3")}) == text.replace("1", "3")


def test_edits_may_nest() -> None:
    found = Source("f(g(1))")
    outer, inner = found.calls
    renamed = found.rewrite(
        {
            outer: lambda c: c.with_changes(func=cst.Name("F")),
            inner: lambda c: c.with_changes(func=cst.Name("G")),
        }
    )
    assert renamed == "F(G(1))"


def test_code_is_told_on_one_line() -> None:
    text = "x = [a  # one\n     for a in (1, 2)\\\n     for b in 'c\\\\n']\n"
    source = Source(text)
    (statement,) = source.module.body
    code = source.code(statement).strip()
    assert code == "x = [a for a in (1, 2) for b in 'c\\\\n']"
    cst.parse_module(code)


def test_a_text_is_parsed_once() -> None:
    assert Source("a = 1\n") is Source("a = 1\n")
    assert Source("a = 1\n", "other.py").module is not Source("a = 1\n").module


@pytest.mark.parametrize(
    ("branches", "expected"),
    [
        (("triton.language.extra.libdevice", "triton.language.math"), "triton.language.math.f"),
        (("triton.language.extra.cuda.libdevice", "triton.language.extra.libdevice"),
         "triton.language.extra.libdevice.f"),
        (("triton.language", "torch"), None),
        (("own", "other"), None),
    ],
)  # fmt: skip
def test_a_function_that_versions_of_triton_have_in_several_modules(
    branches: tuple[str, str], expected: str | None
) -> None:
    one, other = branches
    text = f"try:\n    from {one} import f\nexcept ImportError:\n    from {other} import f\nf(1)\n"
    found = Source(text)
    assert found.name(found.calls[0].func) == expected
    text = text.replace(" import f", " import f as g").replace("f(1)", "g(1)")
    found = Source(text)
    assert found.name(found.calls[0].func) == expected


KERNEL = Path(__file__).parents[2] / "benchmarks" / "triton" / "attention" / "attention.py"


@pytest.mark.parametrize("file", [KERNEL, Path(pytest.__file__)], ids=lambda p: p.stem)
def test_scopes_places_and_parents_are_those_of_libcst(file: Path) -> None:
    found = Source(file.read_text())
    known = MetadataWrapper(found.module, unsafe_skip_copy=True)
    places, around = known.resolve(PositionProvider), known.resolve(ParentNodeProvider)
    scopes = known.resolve(ScopeProvider)
    for node in descendants(found.module, cst.CSTNode):
        assert found.place(node) == places[node]
        assert next(found.ancestors(node), None) is around.get(node)
        if isinstance(node, cst.Name) and (scope := scopes.get(node)) is not None:
            expected = {a.node for a in scope[node.value] if isinstance(a, Assignment)}
            assert {a.node for a in found.assignments(node)} == expected


def test_cutile_outranks_what_it_was_called_before() -> None:
    source = Source(
        "try:\n    import cuda.tile as ct\nexcept ImportError:\n    import cutile as ct\n\n"
        "ct.load(x)\n"
    )
    assert [source.name(call.func) for call in source.calls] == ["cuda.tile.load"]
