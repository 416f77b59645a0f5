"""Of two statements in different branches one is run."""

from __future__ import annotations

import itertools

from agent.analysis.common.alternatives import are_alternatives
from agent.syntax import Source

TEXT = """\
def f(x):
    a(x)
    if x:
        b(x)
        c(x)
    elif y:
        d(x)
    else:
        e(x)
    if z:
        g(x)
"""


def test_only_those_of_one_choice_are() -> None:
    source = Source(TEXT)
    calls = {source.code(call.func): call for call in source.calls}
    found = {
        "".join(pair)
        for pair in itertools.combinations(sorted(calls), 2)
        if are_alternatives(source, *(calls[name] for name in pair))
    }
    assert found == {"bd", "be", "cd", "ce", "de"}
