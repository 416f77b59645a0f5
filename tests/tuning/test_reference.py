"""The reference page tells what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from agent.tuning import TEMPLATES
from agent.tuning.templates import MOST_ACCUMULATED, MOST_CONFIGS, OCCUPANCIES
from agent.tuning.write import COMPILER_TIMEOUT_S
from tests.tuning.test_plan import KINDS, plan

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "autotuning.md"


def test_the_table_is_that_of_the_templates() -> None:
    rows = re.findall(r"^\| (T\d) \| (.+) \| (.+) \| (.+) \| (.+) \|$", PAGE.read_text(), re.M)
    assert {name for name, *_ in rows} == set(TEMPLATES)
    for name, kind, searched, counts, gain in rows:
        template = TEMPLATES[name]
        assert (kind, gain) == (template.kind, template.expected)
        assert searched.split(", ") == [*template.axes, *plan(KINDS[name]).hints]
        space = template.rows or {80: tuple((n,) for n in OCCUPANCIES)}
        families = (max(known for known in space if known <= sm) for sm in (80, 90, 100, 120))
        assert counts.split(" / ") == [str(1 + len(space[sm])) for sm in families]


def test_the_numbers_of_the_prose() -> None:
    text = PAGE.read_text()
    assert f"has {MOST_CONFIGS} at most" in text
    assert f"more than {MOST_ACCUMULATED} elements" in text
    assert f"ct.compiler_timeout({COMPILER_TIMEOUT_S})" in text
