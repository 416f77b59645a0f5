"""What the table, the commits and the answers say of a run that an assistant led."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.proposers.base import LONGEST_TITLE, title_of
from tests.support.project import KERNEL, tile_agent
from tests.support.repo import git, isolate

IDEA = "read each row once and keep the sums of its halves by the column stride of the input"
TITLE = "read each row once and keep the sums of its halves by ..."


def test_a_title_ends_at_a_word() -> None:
    assert title_of(IDEA) == TITLE
    assert title_of(short := "halve the loads") == short
    assert title_of(whole := IDEA[:LONGEST_TITLE]) == whole
    assert title_of("x" * 80) == f"{'x' * 56} ..."
    assert title_of("halves, " * 10).endswith("halves ...")


@pytest.mark.full
def test_an_idea_is_named_in_whole_words_and_iterations_are_those_that_were(
    begun: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    isolate(monkeypatch, tmp_path)
    draft = tile_agent(begun, "next", "--choose", "own-idea", "--json").json["file"]
    Path(draft).write_text(KERNEL.replace("= 256", "= 1024"))
    tried = tile_agent(begun, "try", "-m", f"{IDEA}\n\nMore of it.", "--json").json
    assert tried["row"]["optimization"] == f"{TITLE} (assistant)"
    subject = git(begun, "log", "-1", "--format=%s", tried["branch"])
    assert f"{TITLE} (assistant)" in subject
    ended = tile_agent(begun, "finish", "--json").json
    (known,) = tile_agent(begun, "status", "--json").json["runs"]
    assert (ended["iteration"], known["iteration"], len(ended["rows"])) == (1, 1, 2)
    assert "iteration 1, 1 kept" in known["summary"]
