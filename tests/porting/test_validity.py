"""What is written is Python, for those before 3.12 too."""

from __future__ import annotations

import ast

import pytest

from agent.porting import NotPortable, port
from agent.porting.validity import must_parse

FILE = """\
import torch
import triton
import triton.language as tl


def check():
    from triton import __version__ as triton_version

    if triton_version < "2.0":
        raise ImportError({said})


@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i))


def run(x, y):
    kernel[(1,)](x, y, BLOCK=8)
"""


@pytest.mark.parametrize(
    ("said", "written"),
    {
        'f"triton is {triton_version}"': "f\"triton is {'3.6.0'}\"",
        "f'triton is {triton_version}'": "f'triton is {\"3.6.0\"}'",
        'f"""triton is {triton_version!r}"""': 'f"""triton is {\'3.6.0\'!r}"""',
        "triton_version": '"3.6.0"',
    }.items(),
)
def test_a_string_within_an_f_string_has_other_quotes(said: str, written: str) -> None:
    made = port(FILE.replace("{said}", said), "k.py").text
    assert f"ImportError({written})" in made
    compile(made, "k.py", "exec")


def test_what_would_not_parse_is_refused_by_its_line() -> None:
    said = """f"a {f'triton is {triton_version}'}\""""
    try:
        ast.parse("""f"{f'{"a"}'}\"""")
    except SyntaxError:
        pass
    else:
        pytest.skip("this Python takes the same quotes within an f-string")
    with pytest.raises(NotPortable, match="no valid Python") as refused:
        port(FILE.replace("{said}", said), "k.py")
    assert refused.value.line == 10
    assert str(refused.value).startswith("k.py:10: ")


def test_a_line_is_that_of_the_origin() -> None:
    with pytest.raises(NotPortable, match="no valid Python") as refused:
        must_parse("import b\nx = (\n", "import a\nimport b\nx = 1\n", "k.py")
    assert refused.value.line == 3
    must_parse("x = (\n", "x = (\n", "k.py")  # which nobody could import before


def test_what_is_newer_in_the_origin_stays_so() -> None:
    new = "try:\n    pass\nexcept* ValueError:\n    pass\n"
    must_parse(new, new, "k.py")
    with pytest.raises(NotPortable, match="no valid Python"):
        must_parse(new, "x = 1\n", "k.py")
