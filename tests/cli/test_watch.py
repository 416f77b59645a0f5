"""A run on a terminal: the view below the log, another size, Ctrl-C, and a second terminal."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.errors import ExitCode
from tests.cli.test_run import finish, only_run, start
from tests.support.project import COUNTED, tile_agent
from tests.support.repo import isolate, make_repo
from tests.support.terminal import OnTerminal, lines_beginning
from tests.support.warm_python import warm_interpreter

VIEW = ("now", "trying", "time", "best", "GPU")
"""What its lines begin with."""
LOG = ("kernel", "branch", "baseline", "noise", "stop")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    return make_repo(tmp_path, COUNTED)


def run(repo: Path, *more: str, columns: int = 80) -> OnTerminal:
    words = ("run", "--yes", "--kernel", "double.py", "--python", warm_interpreter(), *more)
    return OnTerminal(repo, *words, columns=columns)


def ending(text: str) -> list[str]:
    """The summary's lines that are the same on a terminal as in a pipe, times aside."""
    lines = text[text.rindex("Stopped:") :].splitlines()
    return [re.sub(r"\d+", "N", line) for line in lines if not line.startswith("Time:")]


def fits(text: str, columns: int) -> bool:
    """Whether the view is there, once, and no line of it is too long."""
    lines = lines_beginning(text, VIEW)
    return [line.split()[0] for line in lines[:1]] == ["now"] and all(
        len(line) < columns for line in lines
    )


def test_a_run_to_its_end(repo: Path) -> None:
    with run(repo, columns=200) as terminal:
        shown = terminal.until(lambda text: "\ntrying " in text)
        assert "\nnow        iteration 1 of 25, " in shown
        assert "  why" in shown
        assert terminal.until_it_ends() == ExitCode.DONE
        text = terminal.screen.text
    assert terminal.screen.cursor_shown
    assert lines_beginning(text, VIEW) == []
    assert [line.split()[0] for line in lines_beginning(text, LOG)] == [*LOG]
    assert text.count("faster in the interpreter") == 1
    followed = tile_agent(repo, "status", "--follow", str(only_run(repo)["run"]))
    assert followed.code == ExitCode.DONE
    assert ending(text) == ending(followed.out)


def test_another_size_and_an_interruption(repo: Path) -> None:
    with run(repo) as terminal:
        terminal.until(lambda text: ", measurement against the best, " in text)
        for columns, rows in ((200, 50), (60, 12), (120, 5), (80, 24)):
            terminal.resize(columns, rows)
            terminal.until(lambda text, columns=columns: fits(text, columns))
        terminal.press(b"\x03")
        assert terminal.until_it_ends() == ExitCode.STOPPED
        screen = terminal.screen
    end = "\n".join(screen.lines).rstrip().splitlines()
    assert screen.cursor_shown
    name = only_run(repo)["run"]
    assert "".join(end[-2:]) == (
        f"interrupted; go on with: tile-agent resume {name}tile-agent: interrupted; nothing is lost"
    )
    assert lines_beginning("\n".join(screen.lines), VIEW) == []
    drawings = terminal.written.split("\x1b[?25l")[1:]
    assert len(drawings) > 5
    assert all("\x1b[?25h" in drawing for drawing in drawings)  # however it had ended


def test_a_run_is_followed_in_another_terminal_and_in_plain_lines_without_one(repo: Path) -> None:
    process = start(repo, until="noise")
    with ThreadPoolExecutor() as pool, OnTerminal(repo, "status", "--follow") as terminal:
        without = pool.submit(tile_agent, repo, "status", "--follow")
        terminal.until(lambda text: "\ntrying " in text)
        said = finish(process)
        assert terminal.until_it_ends() == process.returncode == ExitCode.DONE
        text = terminal.screen.text
        followed = without.result()
    assert lines_beginning(text, VIEW) == []
    assert lines_beginning(text, ("baseline", "noise"))
    assert text.count("faster in the interpreter") == 1

    assert followed.code == ExitCode.DONE
    assert "\x1b" not in followed.out + followed.err
    assert followed.err == ""
    tried = lines_beginning(said, ("", "["))
    assert tried
    assert all(line in followed.out for line in tried)
    as_json = tile_agent(repo, "status", "--follow", str(only_run(repo)["run"]), "--json")
    assert as_json.json["run"] == only_run(repo)["run"]
    assert as_json.err.splitlines()[0].startswith("baseline ")


@pytest.mark.full
def test_who_follows_is_told_of_an_interruption(repo: Path) -> None:
    process = start(repo, until="noise")
    with OnTerminal(repo, "status", "-f") as terminal:
        terminal.until(lambda text: "\nnow " in text)
        process.terminate()
        finish(process)
        assert terminal.until_it_ends() == ExitCode.STOPPED
        text = terminal.screen.text
    assert f"tile-agent resume {only_run(repo)['run']}" in text.replace("\n", "")
    assert lines_beginning(text, VIEW) == []


def test_nothing_is_followed_where_nothing_goes_on(repo: Path) -> None:
    end = tile_agent(repo, "status", "--follow")
    assert (end.code, end.err) == (
        ExitCode.USAGE,
        "tile-agent: no run is alive here: see `tile-agent status`\n",
    )


@pytest.mark.full
def test_a_quiet_run_prints_its_summary_alone(repo: Path) -> None:
    with run(repo, "--quiet", "--max-iterations", "1") as terminal:
        assert terminal.until_it_ends() == ExitCode.STOPPED
    first = terminal.screen.text.splitlines()[0]
    assert first.startswith("double.py: ")
    assert "\x1b[?25l" not in terminal.written


@pytest.mark.full
def test_without_colors_the_view_has_none(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with run(repo, "--max-iterations", "1") as terminal:
        terminal.until(lambda text: "\ntrying " in text)
        assert terminal.until_it_ends() == ExitCode.STOPPED
    assert not re.search(r"\x1b\[[\d;]*3\dm", terminal.written)
