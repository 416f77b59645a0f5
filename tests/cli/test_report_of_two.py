"""`report` of two runs of a real repository on the same kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ExitCode
from agent.journal import Journal
from agent.loop import drive
from tests.support.history import HISTORY
from tests.support.html_page import Page
from tests.support.project import tile_agent
from tests.support.repo import git, isolate, make_repo, snapshot, write
from tests.support.scripted import KERNEL, ScriptedRun, Step, kernel

FIRST = (
    Step("shared", (kernel(0.8),)),
    Step("valued", (kernel(0.7), kernel(0.6))),
    Step("mine", (kernel(0.5),)),
    Step("slower", (kernel(0.9),)),
    Step("left", refusal="needs a loop, and there is none"),
)
SECOND = (
    Step("shared", (kernel(0.8),)),
    Step("valued", (kernel(0.6), kernel(0.7))),
    Step("left", (kernel(0.5),)),
    Step("mine", (kernel(0.45, "WRONG"),)),
)


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    made = make_repo(tmp_path, {KERNEL: kernel(1.0)})
    run_in(made, FIRST, "first")
    return made


def run_in(repo: Path, steps: tuple[Step, ...], name: str) -> None:
    """A scripted run to its end."""
    scripted = ScriptedRun(repo, steps, run_id=name, branch=f"tile-agent/{name}")
    run, journal = scripted.begin()
    drive(run, journal, scripted.effects().table(), lambda *_: None)
    journal.close()


def test_what_they_share_and_where_they_differ(repo: Path) -> None:
    run_in(repo, SECOND, "second")
    before = snapshot(repo)
    found = tile_agent(repo, "report", "first", "second", "--json").json
    assert snapshot(repo) == before
    assert (found["same_origin"], found["same_machine"]) == (True, True)
    assert [(step["title"], step["relation"]) for step in found["steps"]] == [
        ("shared (n=0)", "kept by both"),
        ("valued (n=1)", "kept by both, with other values"),
        ("mine (n=0)", "kept by the first only"),
        ("left (n=0)", "kept by the second only"),
        ("slower (n=0)", "kept by neither"),
    ]
    _, valued, mine, left, slower = found["steps"]
    assert valued["second"]["title"] == "valued (n=0)"
    assert mine["second"]["reason"] == "test_right: off by one"
    assert left["first"]["status"] == "did not apply"
    assert slower["second"]["status"] == "not tried"
    (config,) = found["configs"]
    assert config["first"]["after_ms"] == pytest.approx(0.5)
    assert config["second"]["before_ms"] == pytest.approx(1.0)
    assert found["best_diff"] == ""


def test_the_text_and_the_page_say_the_same(repo: Path) -> None:
    write(repo, {KERNEL: kernel(1.1)})
    git(repo, "commit", "--quiet", "--all", "--message", "Slower")
    run_in(repo, SECOND[:2], "second")
    text = tile_agent(repo, "report", "first", "second").out
    assert text.startswith("## kernel.py: two runs\n")
    path = Path(tile_agent(repo, "report", "first", "second", "--html").out.strip())
    assert path == repo / "sandbox/runs/first/report-second.html"
    page = Page(path.read_text())
    assert page.problems == []
    for said in (
        "They began with different texts of the kernel.",
        "They were not measured beside each other",
        "-LATENCY_MS = 0.5",
        "+LATENCY_MS = 0.6",
    ):
        assert said in text
        assert said in page.root.text
    assert "| `mine (n=0)` | keep, +16.7 % [" in text
    assert "not tried" in page.root.text


def test_a_run_that_kept_nothing_has_its_origin_alone(repo: Path) -> None:
    run_in(repo, (Step("slower", (kernel(2.0),)),), "second")
    (config,) = tile_agent(repo, "report", "first", "second", "--json").json["configs"]
    assert (config["second"]["before_ms"], config["second"]["after_ms"]) == (1.0, None)
    assert "| `c` | 1.000000 | 0.500000 |" in tile_agent(repo, "report", "first", "second").out


def test_runs_that_do_not_go_together_are_refused(repo: Path) -> None:
    other = repo / "sandbox/runs/other/journal.jsonl"
    other.parent.mkdir()
    journal = Journal(other)
    journal.append(HISTORY[0])
    journal.close()
    for arguments, saying in {
        ("first", "other"): "first is a run on kernel.py, other on kernels/softmax.py: compare",
        ("first", "first"): "first is one run: name another to compare it with",
        ("first", "nope"): "there is no run nope here; there are: first, other",
    }.items():
        end = tile_agent(repo, "report", *arguments)
        assert (end.code, end.out, end.err.count("\n")) == (ExitCode.USAGE, "", 1)
        assert saying in end.err
