"""`report` on runs of a real repository: what is printed, what is written, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ExitCode
from agent.journal import Journal
from tests.support.finished_run import repo_with_run
from tests.support.history import HISTORY
from tests.support.html_page import Page
from tests.support.project import COUNTED, tile_agent
from tests.support.repo import isolate, make_repo, snapshot


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """With a run that met every verdict."""
    return repo_with_run(tmp_path)


def test_the_text_is_the_default_and_changes_nothing(repo: Path) -> None:
    before = snapshot(repo)
    end = tile_agent(repo, "report")
    assert end.code == ExitCode.DONE
    assert end.out.startswith("## kernel.py: 1.72x faster, 3 optimizations kept\n")
    assert "| 3 | `sweep (n=1)` | 0.800000 | 0.600000 | +25.0 %" in end.out
    assert tile_agent(repo, "report", "kernel-1", "--markdown").out == end.out
    assert snapshot(repo) == before


def test_the_page_goes_to_the_folder_of_the_run_or_where_it_is_wanted(repo: Path) -> None:
    end = tile_agent(repo, "report", "--html")
    path = Path(end.out.strip())
    assert path == repo / "sandbox/runs/kernel-1/report.html"
    page = Page(path.read_text())
    assert page.problems == []
    assert "-LATENCY_MS = 1.0" in page.named("iteration-1").text
    assert "killed by SIGSEGV" in page.named("iteration-6").text
    elsewhere = repo / "mine.html"
    tile_agent(repo, "report", "--html", "-o", "mine.html")
    assert elsewhere.read_text() == path.read_text()


def test_json_is_what_the_two_are_made_of(repo: Path) -> None:
    found = tile_agent(repo, "report", "--json").json
    assert [step["status"] for step in found["iterations"]] == [
        "keep", "revert", "keep", "revert", "keep", "crash", "crash", "revert", "revert",
    ]  # fmt: skip
    assert found["gains"][0]["after_ms"] == pytest.approx(0.58)
    assert found["iterations"][2]["variants"][3]["reason"] == "timed out"


def test_a_secret_is_in_none_of_them(repo: Path) -> None:
    secret = {"SOME_API_KEY": "LATENCY_MS = 1.0"}
    for form in ("--html", "--json", "--markdown"):
        target = repo / "out"
        assert tile_agent(repo, "report", form, "-o", str(target), env=secret).code == 0
        assert "LATENCY_MS = 1.0" not in target.read_text()
    assert "[secret removed]" in tile_agent(repo, "report", "--json", env=secret).out


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        (("nope",), "there is no run nope here; there are: kernel-1"),
        (("--html", "--json"), "choose one of --html, --markdown and --json"),
        (("--open", "--markdown"), "--open is for --html"),
        (("--html", "-o", "no/such/folder.html"), "no/such/folder.html cannot be written"),
    ],
)
def test_what_is_refused(repo: Path, arguments: tuple[str, ...], saying: str) -> None:
    end = tile_agent(repo, "report", *arguments)
    assert end.code == ExitCode.USAGE
    assert end.err.count("\n") == 1
    assert saying in end.err


def test_a_repository_without_runs_and_a_run_without_a_beginning(tmp_path: Path) -> None:
    bare = make_repo(tmp_path, COUNTED)
    end = tile_agent(bare, "report")
    assert (end.code, end.out) == (ExitCode.USAGE, "")
    assert "no runs here yet: tile-agent run --kernel PATH" in end.err
    folder = bare / "sandbox/runs/early"
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_text("")
    end = tile_agent(bare, "report")
    assert end.code == ExitCode.USAGE
    assert "run early had not begun when it ended" in end.err


def test_a_run_in_progress_and_a_damaged_one(tmp_path: Path) -> None:
    bare = make_repo(tmp_path, COUNTED)
    path = bare / "sandbox/runs/now/journal.jsonl"
    path.parent.mkdir(parents=True)
    journal = Journal(path)
    for event in HISTORY[:11]:
        journal.append(event)
    journal.close()
    end = tile_agent(bare, "report", "now")
    assert end.code == ExitCode.DONE
    assert "The run is under way, or was interrupted in screen" in end.out
    assert "multiplied from the comparisons that kept each step" in end.out
    path.write_bytes(path.read_bytes().replace(b"block_size", b"block-size"))
    end = tile_agent(bare, "report", "now")
    assert end.code == ExitCode.FAULT
    assert "is damaged at line" in end.err
    assert end.err.count("\n") == 1


@pytest.mark.full
def test_a_run_in_the_interpreter_has_its_report(tmp_path: Path) -> None:
    made = make_repo(tmp_path, COUNTED)
    run = tile_agent(made, "run", "--kernel", "double.py", "--max-iterations", "1", "--json")
    end = tile_agent(made, "report", "--html")
    page = Page(Path(end.out.strip()).read_text())
    assert page.problems == []
    assert "double_kernel" in page.named("iteration-1").text
    assert run.json["rows"][1]["optimization"] in page.named("iteration-1").text
    assert "Times of an interpreter" in page.root.text
