"""`begin`, `next`, `try`, `finish` on a real project, by an assistant that remembers nothing."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ExitCode
from tests.cli.conftest import BEGIN
from tests.support.project import COUNTED, KERNEL, Outcome, command, tile_agent
from tests.support.repo import changed, git, isolate, make_repo, snapshot, write
from tests.support.warm_python import warm_interpreter

pytestmark = pytest.mark.full  # each needs a run that has been calibrated


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, COUNTED)


def draft_of(repo: Path) -> Path:
    (found,) = (repo / "sandbox" / "runs").glob("*/draft/double.py")
    return found


def journal_of(repo: Path) -> bytes:
    (found,) = (repo / "sandbox" / "runs").glob("*/journal.jsonl")
    return found.read_bytes()


def killed(repo: Path, until: str, arguments: list[str]) -> None:
    """Start a command, and kill it when its progress says `until`."""
    if arguments[0] == "begin":
        arguments = [*arguments, "--python", warm_interpreter()]
    process = subprocess.Popen(command(*arguments), cwd=repo, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while until not in (line := process.stderr.readline()):
        assert line, f"{arguments} ended before {until!r}"
    process.kill()
    process.communicate()
    assert process.returncode == -9


# --- a whole run --------------------------------------------------------------------------------

EDITS = {
    "BLOCK_SIZE = 256": "BLOCK_SIZE = 1024",
    "BLOCK_SIZE = 1024": "BLOCK_SIZE = 32  # smaller",
}
"""What the scripted assistant makes of the code as it finds it: one good idea, then a bad one."""
DEATHS = {"begin": ["baseline"], "try": ["right"], "finish": []}
"""Progress lines upon which a verb is killed, before it is called once more."""


class Assistant:
    """Knows the first command, and does what `status` and the last answer say."""

    def __init__(self, repo: Path) -> None:
        self.repo = repo
        self.deaths = {verb: list(moments) for verb, moments in DEATHS.items()}
        self.verdicts: list[tuple[str, bool]] = []
        self.transcript: list[str] = []

    def turn(self) -> bool:
        """One conversation, from nothing. Returns whether the run is over."""
        arguments = self.what_next()
        if arguments[0] == "git":
            return True
        if moments := self.deaths.get(arguments[0]):
            killed(self.repo, moments.pop(0), arguments)
            return False
        answer = self.call(arguments)
        if answer["do"] == "edit" and arguments[0] == "next" and "attempt" not in answer:
            self.edit(Path(answer["file"]))
        elif answer["do"] == "edit":  # it is no good idea, and cannot be mended
            self.verdicts.append((answer["attempt"]["status"], answer.get("resumed", False)))
            assert self.call(["finish", "--json"])["rows"][-1]["attempts"] == 1
        elif answer.get("row"):
            self.verdicts.append((answer["row"]["status"], answer["resumed"]))
        return False

    def what_next(self) -> list[str]:
        runs = tile_agent(self.repo, "status", "--json").json["runs"]
        if not runs:
            return list(BEGIN)
        words = shlex.split(runs[-1]["next"])
        assert words[0] in ("tile-agent", "git")
        if words[:2] == ["tile-agent", "next"] and len(self.verdicts) >= 2:
            return ["finish", "--json"]
        return words if words[0] == "git" else words[1:]

    def call(self, arguments: list[str]) -> dict[str, Any]:
        end = tile_agent(self.repo, *arguments)
        assert end.code in (0, ExitCode.NO_IMPROVEMENT), end.err
        return end.json

    def edit(self, file: Path) -> None:
        text = file.read_text()
        for before, after in EDITS.items():
            if before in text:
                file.write_text(text.replace(before, after))
                answer = self.call(["next", "--json"])  # asked again, it says the same
                assert answer["edited"] and file.read_text() != text
                return self.submit()
        raise AssertionError(f"nothing to edit in {file}")

    def submit(self) -> None:
        arguments = ["try", "-m", "another block size", "--json"]
        while self.deaths["try"]:
            killed(self.repo, self.deaths["try"].pop(0), arguments)
        answer = self.call(arguments)
        if answer["row"]:
            self.verdicts.append((answer["row"]["status"], answer["resumed"]))


def test_an_assistant_that_forgets_everything_and_is_killed_leads_a_run_to_its_end(
    repo: Path,
) -> None:
    before = snapshot(repo)
    assistant = Assistant(repo)
    for _ in range(20):
        if assistant.turn():
            break
    else:
        raise AssertionError("the run did not end")
    assert assistant.verdicts == [("keep", True), ("revert", False)]
    end = tile_agent(repo, "finish", "--json")  # once more: the same answer
    assert end.code == ExitCode.DONE
    result = end.json
    assert [row["status"] for row in result["rows"]] == ["keep", "keep", "revert"]
    assert result["speedup"] > 1.5
    assert result["stop"]["reason"] == "the assistant ended it"
    assert "(assistant)" in (repo / "sandbox" / "perf_results.md").read_text()
    differing = changed(before, snapshot(repo))
    ours = {key for key in differing if key.startswith(("sandbox", "refs/tile-agent/"))}
    assert differing - ours == {f"refs/heads/{result['branch']}", "git info/exclude"}
    kept = git(repo, "show", f"{result['branch']}:double.py")
    assert kept == KERNEL.replace("= 256", "= 1024").strip()
    message = git(repo, "log", "-1", "--format=%B", result["branch"])
    assert "another block size" in message


def test_the_playbook_goes_first_where_that_is_asked_for(repo: Path) -> None:
    end = tile_agent(repo, *BEGIN, "--playbook-first", "--only", "block-size", "--patience", "1")
    assert end.code == 0, end.err
    assert (end.json["kept"], end.json["do"]) == (1, "next")
    assert "hand over  to the assistant" in end.err
    end = tile_agent(repo, "next", "--json")
    assert (end.json["do"], end.json["reason"]) == (
        "finish",
        "every optimization has been tried or declined",
    )


# --- what is refused ----------------------------------------------------------------------------


def refused(end: Outcome) -> str:
    """The one line of a refusal."""
    assert end.code == ExitCode.USAGE, (end.out, end.err)
    assert end.json["exit_code"] == ExitCode.USAGE
    error: str = end.json["error"]
    assert "\n" not in error
    return error


def test_a_draft_that_cannot_be_a_candidate_is_refused_and_nothing_is_recorded(
    begun: Path,
) -> None:
    assert "tile-agent next" in refused(tile_agent(begun, "try", "--json"))
    offered = tile_agent(begun, "next", "--json").json
    whole = tile_agent(begun, "next", "--json").json
    assert whole == tile_agent(begun, "next", "--full", "--json").json
    assert (whole["optimization"], whole["brief"]) == (offered["optimization"], offered["brief"])
    assert "edit" in refused(tile_agent(begun, "try", "--json"))
    draft, recorded = draft_of(begun), journal_of(begun)
    assert str(draft) == offered["file"]
    for text, told in {
        KERNEL + "def broken(:\n": "parse",
        KERNEL.replace("def double(x):", "def double(x, twice=True):"): "double",
    }.items():
        draft.write_text(text)
        assert told in refused(tile_agent(begun, "try", "-m", "sly", "--json"))
    draft.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refused(tile_agent(begun, "try", "--json"))
    draft.unlink()
    assert "tile-agent next" in refused(tile_agent(begun, "try", "--json"))
    draft.symlink_to(begun / "double.py")
    assert "no plain file" in refused(tile_agent(begun, "try", "--json"))
    assert tile_agent(begun, "next", "--json").code == 0
    assert not draft.is_symlink() and draft.read_text() == KERNEL
    assert (begun / "double.py").read_text() == KERNEL
    assert journal_of(begun) == recorded


def test_what_is_offered_can_be_declined_and_another_chosen(begun: Path) -> None:
    assert "nothing is offered" in refused(tile_agent(begun, "next", "--decline", "no", "--json"))
    first = tile_agent(begun, "next", "--json").json
    draft = Path(first["file"])
    draft.write_text(KERNEL.replace("= 256", "= 512"))
    second = tile_agent(begun, "next", "--decline", "half done", "--json").json
    assert second["optimization"] != first["optimization"] and not second["edited"]
    status = tile_agent(begun, "status", "--json").json["runs"][-1]
    assert {"optimization": first["optimization"], "reason": "half done"} in status["skipped"]
    kept = draft.with_name(f"double.01-{first['optimization']}.py")
    assert (draft.read_text(), kept.read_text()) == (KERNEL, KERNEL.replace("= 256", "= 512"))
    own = tile_agent(begun, "next", "--choose", "own-idea", "--json").json
    assert own["optimization"] == "own-idea"
    assert tile_agent(begun, "next", "--json").json["optimization"] == "own-idea"
    assert "not left to try" in refused(tile_agent(begun, "next", "--choose", "magic", "--json"))


def left(**known: float | None) -> dict[str, float | None]:
    """What an answer says is left, in a run without a budget of time."""
    return {"time_s": None} | known


def test_what_was_reverted_can_be_chosen_again_with_another_value(begun: Path) -> None:
    def tried(size: int) -> dict[str, Any]:
        """Each value an iteration of its own: what came of the one before is given up."""
        offered = tile_agent(begun, "next", "--choose", "block-size", "--json").json
        assert (offered["optimization"], offered["edited"]) == ("block-size", False)
        assert tile_agent(begun, "next", "--json").json["optimization"] == "block-size"
        Path(offered["file"]).write_text(KERNEL.replace("= 256", f"= {size}"))
        return tile_agent(begun, "try", "-m", f"blocks of {size}", "--json").json

    worse = tried(128)
    assert (worse["row"], worse["attempt"]["status"]) == (None, "revert")
    assert worse["left"] == left(iterations=25, without_improvement=4, attempts=2)
    better = tried(512)
    assert (better["row"]["status"], better["row"]["iteration"]) == ("keep", 2)
    assert better["left"] == left(iterations=23, without_improvement=4, attempts=3)
    (_, given_up, _) = tile_agent(begun, "status", "--json").json["runs"][-1]["rows"]
    assert (given_up["status"], given_up["attempts"]) == ("revert", 1)
    assert given_up["reason"].endswith("given up: block-size was chosen")
    others = tile_agent(begun, "next", "--json").json
    assert "block-size" not in [
        others["optimization"],
        *(o["optimization"] for o in others["others"]),
    ]
    assert others["again"] == ["block-size"]


def test_what_is_offered_can_be_dropped_and_every_draft_is_kept(begun: Path) -> None:
    assert "nothing is offered or tried" in refused(
        tile_agent(begun, "next", "--drop", "a", "--json")
    )
    first = tile_agent(begun, "next", "--json").json
    both = tile_agent(begun, "next", "--drop", "a", "--decline", "b", "--json")
    assert "give one" in refused(both)
    second = tile_agent(begun, "next", "--drop", "no idea", "--json").json
    assert second["do"] == "edit" and second["optimization"] != first["optimization"]
    draft = Path(second["file"])
    for text in ("# one\n", "# two\n"):  # an own idea may be dropped more than once
        own = tile_agent(begun, "next", "--choose", "own-idea", "--json").json
        assert (own["optimization"], own["edited"]) == ("own-idea", False)
        draft.write_text(text)
        answer = tile_agent(begun, "next", "--drop", "no good", "--json").json
        assert (answer["do"], answer["iteration"]) == ("edit", 1)
        assert answer["optimization"] == second["optimization"] and draft.read_text() == KERNEL
    aside = {path.name: path.read_text() for path in draft.parent.glob("double.*.py")}
    assert aside == {"double.01-own-idea.py": "# one\n", "double.01-own-idea-2.py": "# two\n"}
    status = tile_agent(begun, "status", "--json").json["runs"][-1]
    assert {"optimization": first["optimization"], "reason": "dropped: no idea"} in status[
        "skipped"
    ]
    assert [row["status"] for row in status["rows"]] == ["keep"]  # the baseline


FASTER = KERNEL.replace("= 256", "= 1024")
TRY = ["try", "-m", "another block size", "--json"]


def test_an_iteration_that_was_killed_can_be_dropped_and_the_run_goes_on(
    begun: Path, tmp_path: Path
) -> None:
    """Killed between two phases, as when its `try` never comes to an end."""
    before = snapshot(begun)
    offered = tile_agent(begun, "next", "--json").json
    draft = Path(offered["file"])
    draft.write_text(FASTER)
    killed(begun, "[ 1] try", TRY)
    assert list((tmp_path / "state" / "worktrees").rglob("double.py"))
    known = tile_agent(begun, "status", "--json").json["runs"][-1]
    assert shlex.split(known["next"])[1] == "try"
    declined = tile_agent(begun, "next", "--decline", "it hangs", "--json").json
    assert declined["do"] == "try" and "next --drop WHY" in declined["reason"]
    answer = tile_agent(begun, "next", "--drop", "it hangs", "--json").json
    assert (answer["do"], answer["iteration"], answer["edited"]) == ("edit", 2, False)
    assert answer["optimization"] != offered["optimization"] and draft.read_text() == KERNEL
    assert not list((tmp_path / "state" / "worktrees").rglob("double.py"))
    assert " crash |" in (begun / "sandbox" / "perf_results.md").read_text()
    row = tile_agent(begun, "status", "--json").json["runs"][-1]["rows"][-1]
    assert (row["status"], row["reason"]) == ("crash", "dropped: it hangs")
    assert git(begun, "show", f"{row['sha']}:double.py") == FASTER.strip()
    differing = {key for key in changed(before, snapshot(begun)) if "sandbox" not in key}
    assert {key.split("/")[1] for key in differing} == {"tile-agent"}  # refs of the run
    draft.write_text(FASTER)
    assert tile_agent(begun, *TRY).json["row"]["status"] == "keep"


def test_an_iteration_whose_try_fails_each_time_can_be_dropped(begun: Path) -> None:
    """Git refuses to follow the verdict: there is a ref below the one that it is to write."""
    offered = tile_agent(begun, "next", "--json").json
    Path(offered["file"]).write_text(FASTER)
    (refs,) = (begun / ".git" / "refs" / "tile-agent").iterdir()
    below = f"refs/tile-agent/{refs.name}/best/below"
    git(begun, "update-ref", below, "HEAD")
    for _ in range(2):
        end = tile_agent(begun, *TRY)
        assert end.code == ExitCode.FAULT and f"'{below}' exists" in end.json["error"]
    branch = git(begun, "rev-parse", offered["branch"])
    answer = tile_agent(begun, "next", "--drop", "git refuses it", "--json").json
    assert (answer["do"], answer["kept"], answer["iteration"]) == ("edit", 0, 2)
    assert git(begun, "rev-parse", offered["branch"]) == branch


def test_what_a_candidate_says_may_be_no_text(begun: Path) -> None:
    tile_agent(begun, "next", "--choose", "own-idea", "--json")
    says = 'raise RuntimeError("\\ud800 \\x1b[2J")'
    draft_of(begun).write_text(KERNEL.replace("    y = torch", f"    {says}\n    y = torch"))
    answer = tile_agent(begun, "try", "-m", "odd \udcff\x1b title", "--json").json
    assert answer["attempt"]["status"] == "crash" and "\ud800" in answer["attempt"]["reason"]
    answer = tile_agent(begun, "next", "--decline", "odd \udcff too", "--json").json
    row = tile_agent(begun, "status", "--json").json["runs"][-1]["rows"][-1]
    assert row["optimization"] == "odd title (assistant)"
    for arguments in (["status"], ["next"], ["finish"]):
        end = tile_agent(begun, *arguments)
        assert end.code in (0, ExitCode.NO_IMPROVEMENT), end.err


# --- repair -------------------------------------------------------------------------------------

OFF_BY_ONE = KERNEL.replace("mask = offsets < n", "mask = offsets < n - 1")
MENDED = FASTER
MEND = ["try", "-m", "fewer blocks, and the mask holds the last element", "--json"]


def test_a_broken_mask_is_mended_by_what_the_answer_says(begun: Path) -> None:
    """Handed in wrong, read, handed in slower, read, handed in right, and kept."""
    offered = tile_agent(begun, "next", "--choose", "block-size", "--json").json
    draft = Path(offered["file"])
    draft.write_text(OFF_BY_ONE.replace("= 256", "= 1024"))
    wrong = tile_agent(begun, *TRY).json
    assert (wrong["do"], wrong["row"], wrong["file"]) == ("edit", None, str(draft))
    told = wrong["attempt"]
    assert (told["number"], told["of"], told["correct"]) == (1, 3, False)
    assert told["mismatch"]["test"] == "tests/test_double.py::test_double_triton"
    assert (told["mismatch"]["mismatched"], told["mismatch"]["elements"]) == (1, 700)
    assert told["mismatch"]["largest_error"]["at"] == "(699,)"
    assert "torch.testing.assert_close(double(x), 2 * x)" in told["account"]
    assert wrong["left"] == left(iterations=25, without_improvement=4, attempts=2)
    assert draft.read_text() == OFF_BY_ONE.replace("= 256", "= 1024"), "it is to be mended"

    recorded = journal_of(begun)
    assert "is attempt 1 as it was judged" in refused(tile_agent(begun, *TRY))
    asked = tile_agent(begun, "next", "--json").json  # by somebody who knows nothing of it
    assert (asked["do"], asked["optimization"], asked["edited"]) == ("edit", "block-size", False)
    assert (asked["attempt"], asked["brief"]) == (told, offered["brief"])
    known = tile_agent(begun, "status", "--json").json["runs"][-1]
    assert (known["phase"], shlex.split(known["next"])[1]) == ("repair", "next")
    assert journal_of(begun) == recorded

    draft.write_text(KERNEL.replace("= 256", "= 64"))
    slower = tile_agent(begun, *TRY)
    told = slower.json["attempt"]
    assert (told["number"], told["status"], told["correct"]) == (2, "revert", True)
    (config,) = told["configs"]
    assert config["effect"]["low"] < config["effect"]["improvement"] < config["effect"]["high"] < 0
    assert [each["reason"] for each in told["earlier"]] == [wrong["attempt"]["reason"]]

    draft.write_text(MENDED)
    killed(begun, "[ 1] try", MEND)
    right = tile_agent(begun, *MEND).json
    assert (right["resumed"], right["do"]) == (True, "next")
    row = right["row"]
    assert (row["iteration"], row["status"], row["attempts"]) == (1, "keep", 3)
    assert right["left"] == left(iterations=24, without_improvement=4, attempts=3)
    assert git(begun, "show", f"{right['branch']}:double.py") == MENDED.strip()
    table = (begun / "sandbox" / "perf_results.md").read_text()
    assert table.count("(assistant), 3 attempts") == 1
    assert len(table.splitlines()) == 4, "the head, the baseline, and one row for all attempts"
    refs = git(begun, "for-each-ref", "--format=%(refname)", "refs/tile-agent/")
    assert refs.count("/01-block-size-") == 3
    end = tile_agent(begun, "finish")
    assert "iteration 1 took 3 attempts" in end.out


def test_an_idea_of_its_own_that_is_mended_is_told_anew(begun: Path) -> None:
    """What it was before is not what it is; and a doubt about it is told where it is read."""
    offered = tile_agent(begun, "next", "--choose", "own-idea", "--json").json
    draft = Path(offered["file"])
    draft.write_text(KERNEL.replace("= 256", "= 64"))
    assert tile_agent(begun, "try", "-m", "more blocks", "--json").json["do"] == "edit"
    draft.write_text(MENDED.replace("import torch\n", "import copy\n\nimport torch\n"))
    assert "say what this one does" in refused(tile_agent(begun, "try", "--json"))
    kept = tile_agent(begun, "try", "-m", "fewer blocks", "--json").json
    assert (kept["row"]["status"], kept["row"]["optimization"]) == (
        "keep",
        "fewer blocks (assistant)",
    )
    (doubt,) = kept["attempt"]["doubts"]
    assert "copy" in doubt and kept["row"]["doubts"] == [doubt]
    message = git(begun, "log", "-1", "--format=%B", kept["branch"])
    assert f"fewer blocks\n\nDoubt: {doubt}\n\n+" in message and "more blocks" not in message
    told = f"iteration 1 was kept with a doubt: {doubt}"
    assert told in tile_agent(begun, "status", "--json").json["runs"][-1]["notes"]
    assert "was kept with a doubt" in tile_agent(begun, "report", "--markdown").out


def test_what_does_not_compile_comes_back_with_the_whole_message(begun: Path) -> None:
    """And may be given up: then it ends as it was judged, at no patience."""
    offered = tile_agent(begun, "next", "--json").json
    draft = Path(offered["file"])
    broken = KERNEL.replace("2 * tl.load(x_ptr + offsets, mask=mask)", "tl.loaded(x_ptr + offsets)")
    draft.write_text(broken)
    told = tile_agent(begun, *TRY).json["attempt"]
    assert told["status"] == "crash"
    assert "loaded" in told["account"] and "\n" in told["account"]
    draft.write_text(f"{broken}# half mended\n")
    answer = tile_agent(begun, "next", "--decline", "there is no such load", "--json").json
    assert (answer["do"], answer["edited"], draft.read_text()) == ("edit", False, KERNEL)
    assert answer["left"] == left(iterations=24, without_improvement=4, attempts=3)
    (aside,) = draft.parent.glob("double.01-*.py")
    assert aside.read_text() == f"{broken}# half mended\n"
    row = tile_agent(begun, "status", "--json").json["runs"][-1]["rows"][-1]
    assert (row["status"], row["attempts"]) == ("crash", 1)
    assert row["reason"].endswith("given up: there is no such load")


def writing(path: Path | str) -> str:
    """A kernel whose launcher writes a file, as a cheat without an import would."""
    cheat = f"torch.zeros(4).numpy().tofile({str(path)!r})"
    return KERNEL.replace("    y = torch", f"    {cheat}\n    y = torch")


def test_a_candidate_that_writes_where_it_should_not_is_tampered(tmp_path: Path) -> None:
    """Without the sandbox, which lets it write nowhere."""
    begun = make_repo(tmp_path, COUNTED)
    end = tile_agent(begun, *BEGIN, "--sandbox", "off")
    assert end.code == 0, end.err
    write(begun, {"notes.txt": "mine"})
    hook = begun / ".git" / "hooks" / "post-commit"
    found = {}
    for path in ("tests/conftest.py", hook, begun / "notes.txt"):
        hook.unlink(missing_ok=True)
        offered = tile_agent(begun, "next", "--choose", "own-idea", "--json").json
        Path(offered["file"]).write_text(writing(path))
        answer = tile_agent(begun, *TRY)
        told = answer.json["attempt"]
        found[path] = (told["status"], told["reason"])
    assert found["tests/conftest.py"] == ("tampered", "it added tests/conftest.py")
    assert found[hook] == ("tampered", "it changed git's hook post-commit")
    assert found[begun / "notes.txt"][0] not in ("tampered", "crash")  # it may have been the user
    assert "note       changed notes.txt in your repository meanwhile" in answer.err
    status = tile_agent(begun, "status", "--json").json["runs"][-1]
    assert any("changed notes.txt in your repository" in note for note in status["notes"])


def test_other_commands_leave_the_run_to_its_assistant(begun: Path) -> None:
    run = tile_agent(begun, "status", "--json").json["runs"][-1]
    assert run["standing"] == "waiting for the assistant"
    assert "an assistant leads this run" in refused(
        tile_agent(begun, "resume", run["run"], "--json")
    )
    again = tile_agent(begun, *BEGIN)
    assert (again.code, again.json["run"]) == (0, run["run"])
    assert "no assistant leads a run nobody" in refused(
        tile_agent(begun, "next", "--run", "nobody", "--json")
    )


def test_without_a_run_each_verb_says_how_to_begin_one(repo: Path) -> None:
    for verb in ("next", "try", "finish"):
        assert "tile-agent begin --kernel" in refused(tile_agent(repo, verb, "--json"))
    assert not (repo / "sandbox").exists()


def test_an_assistant_is_no_proposer_of_run(repo: Path) -> None:
    end = tile_agent(repo, "run", "--kernel", "double.py", "--proposer", "assistant", "--json")
    assert "tile-agent begin" in refused(end)
    end = tile_agent(repo, "run", "--kernel", "double.py", "--proposer", "oracle", "--json")
    assert "choose from playbook, model, command" in refused(end)


def test_a_text_that_is_handed_over_takes_the_place_of_the_draft(begun: Path) -> None:
    handed = begun.parent / "handed over.py"
    handed.write_text(KERNEL.replace("= 256", "= 512").replace("def double(", "def twice("))
    hand_over = ("try", "--json", "--draft", str(handed))
    before = journal_of(begun)
    early = tile_agent(begun, *hand_over)
    assert early.code == ExitCode.USAGE
    assert "no optimization has been asked for" in early.json["error"]
    assert tile_agent(begun, "next", "--json").json["do"] == "edit"
    draft_of(begun).write_text("# nobody has judged this\n")
    missing = tile_agent(begun, "try", "--json", "--draft", "nothing.py")
    assert "--draft nothing.py: give a file of text" in missing.json["error"]
    assert draft_of(begun).read_text() == "# nobody has judged this\n"
    unfit = tile_agent(begun, *hand_over)
    assert "the draft cannot be a candidate" in unfit.json["error"]
    assert draft_of(begun).read_text() == handed.read_text()
    (aside,) = draft_of(begun).parent.glob("double.01-*.py")
    assert aside.read_text() == "# nobody has judged this\n"
    assert len(journal_of(begun).splitlines()) == len(before.splitlines()) + 1, "the offer alone"
