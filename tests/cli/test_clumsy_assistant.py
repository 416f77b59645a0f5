"""An assistant that makes ten typical mistakes ends where a careful one ends."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ExitCode
from tests.support.project import COUNTED, KERNEL, command, tile_agent
from tests.support.repo import git, isolate, make_repo

pytestmark = pytest.mark.full  # each assistant leads a run of its own

BEGIN = ("begin", "--kernel", "double.py", "--yes", "--json")
NEXT = ("next", "--json")
CHOOSE = ("next", "--choose", "block-size", "--json")
TRY = ("try", "-m", "fewer and larger blocks", "--json")
FASTER = KERNEL.replace("= 256", "= 1024")


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


class Assistant:
    """Calls the commands as an assistant does, and follows what they answer."""

    def __init__(self, folder: Path, name: str) -> None:
        self.repo = make_repo(folder, COUNTED, name=name)

    def ask(self, *words: str) -> dict[str, Any]:
        """A command that has to work."""
        end = tile_agent(self.repo, *words)
        assert end.code == ExitCode.DONE, end.err
        return end.json

    def refused(self, *words: str) -> str:
        """A command that is a mistake: one line that says what is wrong."""
        end = tile_agent(self.repo, *words)
        assert end.code == ExitCode.USAGE, (end.out, end.err)
        told: str = end.json["error"]
        assert "\n" not in told
        return told

    def draft(self) -> Path:
        return Path(self.ask(*CHOOSE)["file"])

    def end(self) -> tuple[float, dict[str, Any]]:
        """How much faster the kernel is, and all else that two runs of one outcome share."""
        result = self.ask("finish", "--json")
        (known,) = self.ask("status", "--json")["runs"]
        return result["speedup"], {
            "kernel": git(self.repo, "show", f"{result['branch']}:double.py"),
            "rows": [(row["optimization"], row["status"]) for row in result["rows"]],
            "commits": git(self.repo, "log", "--format=%s", result["branch"]),
            "stop": result["stop"],
            "state": (known["phase"], known["standing"]),
            "checkout": git(self.repo, "status", "--porcelain"),
            "worktrees": len(git(self.repo, "worktree", "list").splitlines()),
        }


def careful(assistant: Assistant) -> None:
    """One edit, right at once."""
    assistant.ask(*BEGIN)
    assistant.draft().write_text(FASTER)
    assert assistant.ask(*TRY)["row"]["status"] == "keep"


def mistakes(assistant: Assistant) -> Iterator[str]:
    """Each with what it was, once it is told and mended."""
    assert "tile-agent begin" in assistant.refused(*TRY)
    yield "a try before a run has begun"
    begun = assistant.ask(*BEGIN)
    assert assistant.ask(*BEGIN)["run"] == begun["run"]
    yield "it begins again what waits for it"
    assert "tile-agent next" in assistant.refused(*TRY)
    yield "a try before anything was asked for"
    assert "block-size" in assistant.refused("next", "--choose", "block-sise", "--json")
    yield "a name that is none"
    draft, mine = assistant.draft(), assistant.repo / "double.py"
    mine.write_text(FASTER)
    assert str(draft) in assistant.refused(*TRY)
    mine.write_text(KERNEL)
    yield "the kernel is edited, and not its draft"
    draft.unlink()
    assistant.refused(*TRY)
    assert assistant.draft().read_text() == KERNEL
    yield "the draft is deleted"
    draft.unlink()
    draft.mkdir()
    assistant.refused(*TRY)
    assert assistant.draft().read_text() == KERNEL
    yield "a folder stands where the draft was"
    draft.write_text(FASTER.replace("mask = offsets < n", "mask = offsets < n - 1"))
    assert not assistant.ask(*TRY)["attempt"]["correct"]
    yield "the mask is broken"
    draft.write_text(KERNEL.replace("= 256", "= 32"))
    assert assistant.ask(*TRY)["attempt"]["status"] == "revert"
    yield "the value is a wrong one"
    draft.write_text(FASTER)
    first = subprocess.Popen(command(*TRY), cwd=assistant.repo, stderr=subprocess.PIPE, text=True)
    assert first.stderr is not None
    while "try" not in (line := first.stderr.readline()):
        assert line, "the try ended early"
    first.send_signal(signal.SIGSTOP)  # or it may be done before the other client has asked
    assistant.refused(*NEXT)
    first.kill()
    first.communicate()
    assert assistant.ask(*TRY)["row"]["status"] == "keep"
    yield "two clients at a time, of which one is killed"


def test_ten_mistakes_cost_nothing_but_attempts(tmp_path: Path) -> None:
    sure, clumsy = Assistant(tmp_path, "sure"), Assistant(tmp_path, "clumsy")
    careful(sure)
    assert len(list(mistakes(clumsy))) == 10
    (speedup, wanted), (as_fast, found) = sure.end(), clumsy.end()
    assert found == wanted
    assert as_fast == pytest.approx(speedup, rel=0.01)
    assert found["kernel"] == FASTER.strip()
    assert [status for _, status in found["rows"]] == ["keep", "keep"]
    assert (found["checkout"], found["worktrees"]) == ("", 1)
