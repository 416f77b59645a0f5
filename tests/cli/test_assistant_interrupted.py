"""What an assistant finds, and may do, where a command of its run was killed."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from agent.errors import ExitCode
from tests.cli.conftest import BEGIN
from tests.cli.test_assistant import journal_of, killed, refused
from tests.support.project import COUNTED, KERNEL, command, tile_agent
from tests.support.repo import changed, git, isolate, make_repo, snapshot
from tests.support.warm_python import warm_interpreter

pytestmark = pytest.mark.full  # each needs a run that has begun


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


FASTER = KERNEL.replace("= 256", "= 1024")
OTHER = KERNEL.replace("= 256", "= 2048")
TRY = ("try", "-m", "larger blocks", "--json")

# --- before there is a baseline -----------------------------------------------------------------

ANOTHER_TEST = "tests/test_other.py"


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A repository with a run whose baseline was killed."""
    repo = make_repo(tmp_path, COUNTED | {ANOTHER_TEST: COUNTED["tests/test_double.py"]})
    options = ("--tests", "tests/test_double.py", "--branch", "mine")
    process = subprocess.Popen(command(*BEGIN, *options), cwd=repo, stdout=subprocess.PIPE)
    while not [path for path in repo.glob("sandbox/runs/*/journal.jsonl") if path.stat().st_size]:
        assert process.poll() is None, "it ended before it had begun"
        time.sleep(0.005)
    process.kill()
    process.communicate()
    (known,) = tile_agent(repo, "status", "--json").json["runs"]
    assert known["phase"] == "baseline"
    return repo


def test_a_begin_that_goes_on_says_so_and_refuses_other_options(interrupted: Path) -> None:
    (known,) = tile_agent(interrupted, "status", "--json").json["runs"]
    asked = tile_agent(interrupted, "next", "--json").json
    before, recorded = snapshot(interrupted), journal_of(interrupted)
    others = ("--tests", ANOTHER_TEST, "--branch", "yours", "--patience", "2")
    told = refused(tile_agent(interrupted, *BEGIN[:5], *others))
    assert f"run {known['run']} on double.py is not done (branch mine)" in told
    assert "--tests, --branch, --patience differ from what it began with" in told
    assert f"tile-agent finish --run {known['run']}" in told
    assert journal_of(interrupted) == recorded
    assert all(key.endswith("journal.jsonl") for key in changed(before, snapshot(interrupted)))
    same = ("--tests", "./tests/test_double.py", "--branch", "mine")
    end = tile_agent(interrupted, *BEGIN, *same)
    assert end.code == 0, end.err
    first, *_ = end.err.splitlines()
    assert first.startswith(f"goes on   with run {known['run']} on branch mine")
    assert (end.json["run"], end.json["do"]) == (known["run"], "next")
    assert end.json["left"]["iterations"] == asked["left"]["iterations"] == 25
    assert "--branch differs" in refused(tile_agent(interrupted, *BEGIN, "--branch", "yours"))


def test_a_run_without_a_baseline_is_taken_back_by_finish(interrupted: Path) -> None:
    (known,) = tile_agent(interrupted, "status", "--json").json["runs"]
    dropped = refused(tile_agent(interrupted, "next", "--drop", "not this one", "--json"))
    assert f"tile-agent finish --run {known['run']}" in dropped
    end = tile_agent(interrupted, "finish", "--json")
    assert end.code == ExitCode.DONE, end.err
    assert (end.json["run"], end.json["do"]) == (known["run"], "begin")
    assert "its folder and its branch mine are gone" in end.json["reason"]
    assert tile_agent(interrupted, "status", "--json").json["runs"] == []
    assert not (interrupted / "sandbox").exists()
    refs = [key for key in snapshot(interrupted) if "tile-agent" in key or key.endswith("/mine")]
    assert refs == []
    end = tile_agent(interrupted, *BEGIN, "--branch", "yours", "--tests", ANOTHER_TEST)
    assert (end.code, end.json["branch"]) == (0, "yours"), end.err


def test_a_begin_that_captured_is_known_by_its_command(tmp_path: Path) -> None:
    use = "import torch\nfrom double import double\ndouble(torch.ones(1000))\n"
    repo = make_repo(tmp_path, {"double.py": KERNEL, "use.py": use})
    command = shlex.join([warm_interpreter(), "use.py"])
    begun = tile_agent(repo, *BEGIN, "--capture", command)
    assert begun.code == 0, begun.err
    assert "--capture differs" in refused(tile_agent(repo, *BEGIN, "--capture", "python other.py"))
    again = tile_agent(repo, *BEGIN, "--capture", command)
    assert (again.code, again.json["run"]) == (0, begun.json["run"]), again.err


def test_a_run_that_the_playbook_leads_when_it_is_interrupted_can_be_ended(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, COUNTED)
    killed(repo, "[ 1] try", [*BEGIN, "--playbook-first"])
    end = tile_agent(repo, "finish", "--json")
    assert end.code in (ExitCode.DONE, ExitCode.NO_IMPROVEMENT), end.err
    assert end.json["do"] == "done"


# --- while a candidate is judged ----------------------------------------------------------------


def test_the_draft_is_not_taken_for_the_candidate_that_was_handed_in(begun: Path) -> None:
    draft = Path(tile_agent(begun, "next", "--choose", "block-size", "--json").json["file"])
    draft.write_text(FASTER)
    killed(begun, "[ 1] try", list(TRY))
    draft.write_text(OTHER)
    known = tile_agent(begun, "status", "--json").json["runs"][-1]
    assert "-m" not in shlex.split(known["next"]), "a message of what is handed in already"
    assert "candidate of iteration 1 is handed in" in known["reason"]
    assert "`try` goes on with that, and does not look at the draft" in known["summary"]
    end = tile_agent(begun, "try", "-m", "still larger blocks", "--json")
    assert "candidate of iteration 1 is handed in" in end.err
    assert (end.json["resumed"], end.json["row"]["status"]) == (True, "keep")
    assert end.json["unjudged"].startswith("the draft as it stands was not judged")
    message = git(begun, "log", "-1", "--format=%B", end.json["branch"])
    assert TRY[2] in message and "still" not in message
    assert draft.read_text() == OTHER
    assert tile_agent(begun, "next", "--json").json["edited"]


def test_a_try_that_hands_over_the_same_once_more_has_left_nothing_out(
    begun: Path, tmp_path: Path
) -> None:
    handed, other = tmp_path / "faster.py", tmp_path / "other.py"
    handed.write_text(FASTER)
    other.write_text(OTHER)
    tile_agent(begun, "next", "--choose", "block-size", "--json")
    killed(begun, "[ 1] try", [*TRY, "--draft", str(handed)])
    aside = shutil.copytree(begun, tmp_path / "aside")
    again = tile_agent(begun, *TRY, "--draft", str(handed)).json
    assert (again["resumed"], again["unjudged"]) == (True, None)
    end = tile_agent(aside, *TRY[:-1], "--draft", str(other))
    assert "what is handed over now was not judged" in end.out


def test_what_is_interrupted_says_how_to_go_on(begun: Path) -> None:
    """An assistant may know nothing of the run any more."""
    draft = Path(tile_agent(begun, "next", "--choose", "block-size", "--json").json["file"])
    draft.write_text(FASTER)
    with subprocess.Popen(
        command(*TRY), cwd=begun, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        while "[ 1] try" not in (line := process.stderr.readline()):
            assert line
        process.terminate()
        said, _ = process.communicate()
    assert process.returncode == ExitCode.STOPPED
    error = json.loads(said)["error"]
    assert error == "interrupted; nothing is lost: `tile-agent status --json` says how to go on"
    (known,) = tile_agent(begun, "status", "--json").json["runs"]
    assert shlex.split(known["next"])[:2] == ["tile-agent", "try"]
