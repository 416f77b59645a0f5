"""Where Python's builtins go by their names, and that no entry calls what hides one."""

from __future__ import annotations

import ast
import builtins
from collections import Counter

import pytest

from agent.analysis.common.builtin_names import hidden
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.playbook import PLAYBOOK
from agent.playbook.base import Optimization
from agent.syntax import Source


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def f(x):\n    return x", ""),
        ("def f(min):\n    return x", "min"),
        ("def f(*, len):\n    return x", "len"),
        ("def f(x):\n    max = x", "max"),
        ("def f(x):\n    def len(): return x", "len"),
        ("def f(x):\n    for max in x: pass", "max"),
        ("def f(x):\n    with x as max: pass", "max"),
        ("from numpy import min\ndef f(x):\n    return x", "min"),
        ("from torch import *\ndef f(x):\n    return x", "len"),  # any of them, for all it shows
        ("def f(x):\n    return x\ndef len(x): return x", "len"),
        # Names of other scopes hide nothing.
        ("def g(min):\n    return min\ndef f(x):\n    return [len for len in x]", ""),
        ("class C:\n    max = 1\ndef f(x):\n    return x.min", ""),
    ],
)
def test_what_hides_a_builtin(text: str, name: str) -> None:
    source = Source(text + "\n")
    (function,) = (f for f in source.functions if f.name == "f")
    assert hidden(source, function.node.body, "len", "max", "min") == name


def called(text: str) -> Counter[str]:
    names = (node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name))
    return Counter(name for name in names if callable(getattr(builtins, name, None)))


CALLING = [
    (entry, name)
    for entry in PLAYBOOK
    for name in sorted(called(entry.after) - called(entry.before))
    if (entry.name, name) != ("row-in-one-tile", "int")  # of the kernel's own annotation, copied
]


@pytest.mark.parametrize(("entry", "name"), CALLING, ids=lambda case: getattr(case, "name", case))
def test_no_entry_writes_a_builtin_that_the_file_hides(entry: Optimization, name: str) -> None:
    """It says that it does not apply, or spells it otherwise."""
    text = f"{entry.before}\n\n{name} = None\n"
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware(sm=90), entry.observed)
    try:
        tried = [entry.apply(subject, params) for params in entry.variants(subject)]
    except NotApplicable as refusal:
        assert f"`{name}` is a name of the file's own" in str(refusal)
        return
    for new in tried:
        assert called(new)[name] <= called(text)[name]
