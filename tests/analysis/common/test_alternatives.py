"""Of two statements one is run, or both are."""

from __future__ import annotations

import pytest

from agent.analysis.common.alternatives import are_alternatives
from agent.syntax import Source


def alternatives(text: str) -> bool:
    source = Source(text)
    calls = {source.code(call.func): call for call in source.calls}
    return are_alternatives(source, calls["one"], calls["other"])


@pytest.mark.parametrize(
    "text",
    [
        "if x:\n    one()\nelse:\n    other()\n",
        "if x:\n    other()\nelif y:\n    one()\n",
        "if x:\n    if y:\n        one()\nelse:\n    other()\n",
        "try:\n    one()\nexcept ValueError:\n    other()\n",
        "try:\n    pass\nexcept ValueError:\n    one()\nexcept TypeError:\n    other()\n",
    ],
)
def test_branches_are(text: str) -> None:
    assert alternatives(text)


@pytest.mark.parametrize(
    "text",
    [
        "one()\nother()\n",
        "if x:\n    one()\nother()\n",
        "if x:\n    one()\nif y:\n    other()\n",
        "if x:\n    one()\n    other()\nelse:\n    pass\n",
        "if one():\n    other()\nelse:\n    pass\n",
        "if one():\n    pass\nelse:\n    other()\n",
        "try:\n    one()\nexcept ValueError:\n    pass\nelse:\n    other()\n",
    ],
)
def test_what_both_may_be_run_is_not(text: str) -> None:
    assert not alternatives(text)
