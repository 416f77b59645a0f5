"""The skills' references are those that the playbook and the documentation give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.errors import ExitCode, UsageError
from agent.playbook import ADVICE, PLAYBOOK
from agent.report.result import to_result
from agent.skillbook import SHIPPED, references, shipped
from agent.skillbook.markdown import parse
from agent.skillbook.references import CONTENTS, DOCS
from agent.state import Run
from tests.support.pages import rows

RUN_JSON = DOCS / "run_json.md"
_SPAN = re.compile(r"`([^`\n]+)`")


def test_the_files_are_those_that_would_be_made() -> None:
    """Else: `tile-agent skill references --write`."""
    assert references.stale() == {}


def test_every_skill_has_its_contents() -> None:
    assert {folder.name for folder in shipped()} == set(CONTENTS)


@pytest.mark.parametrize("skill", CONTENTS)
def test_a_skill_holds_the_entries_of_its_language(skill: str) -> None:
    """Under a heading of its name, in the file that the index leads to."""
    made = references.references(skill)
    backend = CONTENTS[skill].backend
    wanted = {e.name for e in (*PLAYBOOK, *ADVICE) if e.backend == backend}
    index = parse(made.get("playbook.md", ""))
    led = dict(reversed(link.split("#")) for _, link in index.links)
    assert set(led) == wanted
    for name, file in led.items():
        assert name in parse(made[file]).anchors


def test_links_of_a_page_lead_to_the_skill_or_are_words() -> None:
    knobs = references.references("optimize-cutile-kernel")["knobs.md"]
    assert "[occupancy-hint](family-occupancy.md#occupancy-hint)" in knobs
    assert "](../" not in knobs
    triton = references.references("optimize-triton-kernel")["knobs.md"]
    assert "| occupancy-hint |" in triton  # no entry of Triton's: its words stay
    assert "[playbook](playbook.md)" in triton


def test_update_makes_and_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "SHIPPED", tmp_path)
    lost = tmp_path / "add-cutile-autotuning" / "references" / "lost.md"
    lost.parent.mkdir(parents=True)
    lost.write_text("x")
    found = references.stale()
    assert found[lost] is None
    references.update(found)
    assert references.stale() == {}
    assert not lost.exists()
    made = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.md")}
    shipped_files = {p.relative_to(SHIPPED): p.read_bytes() for p in SHIPPED.rglob("references/*")}
    assert made == shipped_files


def test_an_installed_package_says_that_it_cannot_make_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "DOCS", tmp_path)
    with pytest.raises(UsageError, match="references are made in a checkout"):
        references.references("move-triton-to-tile-ir")


def test_the_fields_are_those_of_the_result() -> None:
    listed = [name for row in rows(RUN_JSON, "field") for name in _SPAN.findall(row[0])]
    assert sorted(listed) == sorted([*to_result(Run()), "table", "journal", "logs"])


def test_every_exit_code_is_explained() -> None:
    assert [int(row[0]) for row in rows(RUN_JSON, "exit code")] == sorted(ExitCode)
