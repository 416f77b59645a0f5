"""Both pages in a real browser: accessible by axe's rules, silent on the console, asking nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.loop import drive
from agent.report import page, two_runs
from agent.report.document import document
from agent.repository import Repository
from tests.support.browser import axe, browser, opened, violations
from tests.support.long_run import long_run
from tests.support.repo import isolate, make_repo
from tests.support.scenario import ORIGIN, STEPS
from tests.support.scripted import KERNEL, ScriptedRun

pytestmark = pytest.mark.full


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Of a run with every verdict, of one with configs and evidence, and of two side by side."""
    browser()
    isolate(monkeypatch, tmp_path)
    repo, events = long_run(tmp_path, iterations=2, count=3)
    repository = Repository.open(repo)
    whole, begun = document(events, repository), document(events[:6], repository)
    made = make_repo(tmp_path, {KERNEL: ORIGIN}, name="scripted")
    scripted = ScriptedRun(made, STEPS)
    run, journal = scripted.begin()
    drive(run, journal, scripted.effects().table(), lambda *_: None)
    journal.close()
    texts = {
        "long": page.html(whole),
        "verdicts": page.html(document(journal.events, scripted.repository)),
        "two": two_runs.html(two_runs.side_by_side(whole, begun, repository)),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
    return [tmp_path / f"{name}.html" for name in texts]


def test_it_is_silent_and_asks_nobody(pages: list[Path], tmp_path: Path) -> None:
    for path in pages:
        seen = opened(path)
        assert "</html>" in seen.dom
        assert (seen.console, seen.requested) == ([], [])
    noisy = tmp_path / "noisy.html"  # that both would be seen
    noisy.write_text('<script>console.error("here")</script><img src="http://127.0.0.1:9/a.png">')
    seen = opened(noisy)
    assert any("here" in line for line in seen.console)
    assert "http://127.0.0.1:9/a.png" in seen.requested


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (500, True)])
def test_axe_finds_nothing(pages: list[Path], tmp_path: Path, width: int, dark: bool) -> None:
    source = axe(tmp_path)
    for path in pages:
        assert violations(path, source, width=width, dark=dark) == []


def test_axe_finds_what_is_wrong(tmp_path: Path) -> None:
    browser()
    bad = tmp_path / "bad.html"
    bad.write_text("<html><body><img src='data:,'><p style='color:#eee'>Pale</p></body></html>")
    found = violations(bad, axe(tmp_path))
    assert any(each.startswith("image-alt") for each in found)
    assert any(each.startswith("color-contrast") for each in found)
