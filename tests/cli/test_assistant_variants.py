"""`try --variant`: several values of one optimization, ranked together and judged once."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ExitCode
from agent.proposers.agenda import AT_THE_END
from tests.support.project import KERNEL, command, tile_agent
from tests.support.repo import git, isolate

pytestmark = pytest.mark.full  # each needs a run that has been calibrated

CHOOSE = ("next", "--choose", "block-size", "--json")


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def sized(size: int) -> str:
    return KERNEL.replace("= 256", f"= {size}")


def written(folder: Path, *texts: str) -> list[str]:
    """The options that hand texts over as variants."""
    files = [folder / f"variant {number}.py" for number in range(1, len(texts) + 1)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return [word for file in files for word in ("--variant", str(file))]


def tried(repo: Path, *texts: str) -> dict[str, Any]:
    return tile_agent(repo, "try", "-m", "sizes", "--json", *written(repo.parent, *texts)).json


def refused(repo: Path, *texts: str) -> str:
    end = tile_agent(repo, "try", "--json", *written(repo.parent, *texts))
    assert end.code == ExitCode.USAGE, (end.out, end.err)
    error: str = end.json["error"]
    return error


def test_the_best_value_is_kept_and_one_at_the_edge_goes_on(begun: Path) -> None:
    draft = Path(tile_agent(begun, *CHOOSE).json["file"])
    draft.write_text(sized(64))
    answer = tried(begun, sized(512), sized(32))
    assert answer["row"]["status"] == "keep"
    assert answer["row"]["optimization"] == "block size (BLOCK_SIZE=512) (assistant)"
    assert git(begun, "show", f"{answer['branch']}:double.py") == sized(512).strip()
    assert draft.read_text() == sized(512), "it begins with the best so far"
    seen = {each["title"]: each["improvement"] for each in answer["attempt"]["variants"]}
    ranked = [f"block size (BLOCK_SIZE={size}) (assistant)" for size in (512, 64, 32)]
    assert list(seen) == ranked
    assert seen[ranked[0]] > 0 > seen[ranked[1]] > seen[ranked[2]]
    refs = git(begun, "for-each-ref", "--format=%(refname)", "refs/tile-agent/")
    assert refs.count("/01-block-size-") == 3

    offered = tile_agent(begun, "next", "--json").json
    known = {each["optimization"]: each for each in [offered, *offered["others"]]}
    assert known["block-size"]["why"].startswith(AT_THE_END)
    assert tile_agent(begun, *CHOOSE).json["edited"] is False
    answer = tried(begun, sized(1024), sized(4096))  # the draft as it stands is no candidate
    assert answer["row"]["optimization"] == "block size (BLOCK_SIZE=1024) (assistant)"
    known = tile_agent(begun, "status", "--json").json["runs"][-1]
    assert [row["status"] for row in known["rows"]] == ["keep", "keep", "keep"]


def test_a_sweep_that_lost_is_mended_by_another(begun: Path) -> None:
    draft = Path(tile_agent(begun, *CHOOSE).json["file"])
    answer = tried(begun, sized(32), sized(64))
    assert (answer["do"], answer["row"]) == ("edit", None)
    told = answer["attempt"]
    assert (told["number"], told["status"], len(told["variants"])) == (1, "revert", 2)
    assert draft.read_text() == sized(64), "the one that was judged is to be mended"
    again = tile_agent(begun, "next", "--json").json
    assert (again["optimization"], again["edited"], again["attempt"]) == ("block-size", False, told)
    assert "is attempt 1 as it was judged" in refused(begun, sized(32))
    assert "is attempt 1 as it was judged" in refused(begun)

    wrong = sized(2048).replace("mask = offsets < n", "mask = offsets < n - 1")
    answer = tried(begun, wrong, sized(128), sized(512))
    row = answer["row"]
    assert (row["status"], row["attempts"]) == ("keep", 2)
    assert row["optimization"] == "block size (variant=variant 3.py) (assistant)"
    assert draft.read_text() == sized(512)
    (rejected,) = (
        each for each in answer["attempt"]["variants"] if "variant=variant 1.py" in each["title"]
    )
    assert "test_double_triton" in rejected["reason"]
    assert row["wrong"] == [{"title": rejected["title"], "reason": rejected["reason"]}]
    refs = git(begun, "for-each-ref", "--format=%(refname)", "refs/tile-agent/")
    assert refs.count("/01-block-size-") == 5
    report = tile_agent(begun, "report", "--json").json["iterations"][0]
    assert [each["status"] for each in report["earlier_attempts"]] == ["revert"]
    assert len(report["variants"]) == 3


def test_variants_of_which_none_runs_may_be_mended(begun: Path) -> None:
    tile_agent(begun, *CHOOSE)
    broken = [sized(size).replace("tl.load(", "tl.loaded(") for size in (512, 1024)]
    answer = tried(begun, *broken)
    assert (answer["do"], answer["attempt"]["status"]) == ("edit", "crash")
    assert "none of 2 variants could be timed" in answer["attempt"]["reason"]
    assert "loaded" in answer["attempt"]["account"]
    draft = Path(answer["file"])
    draft.write_text(sized(1024))
    assert tried(begun)["row"]["status"] == "keep"


def test_what_cannot_be_ranked_is_refused_and_nothing_is_recorded(begun: Path) -> None:
    draft = Path(tile_agent(begun, *CHOOSE).json["file"])
    (journal,) = (begun / "sandbox" / "runs").glob("*/journal.jsonl")
    recorded = journal.read_bytes()
    assert "variant 1.py is the code as it stands" in refused(begun, KERNEL)
    assert "is the same as --variant" in refused(begun, sized(64), sized(64))
    assert "variant 2.py cannot be a candidate" in refused(begun, sized(64), "def f(:")
    draft.write_text(sized(64))
    assert "is the same as the draft" in refused(begun, sized(64))
    end = tile_agent(begun, "try", "--json", "--variant", "nothing.py")
    assert "--variant nothing.py: give a file of text" in end.json["error"]
    assert journal.read_bytes() == recorded


def test_a_ranking_that_is_killed_goes_on(begun: Path) -> None:
    draft = Path(tile_agent(begun, *CHOOSE).json["file"])
    draft.write_text(sized(64))
    words = ["try", "-m", "sizes", "--json", *written(begun.parent, sized(512), sized(128))]
    process = subprocess.Popen(command(*words), cwd=begun, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "3 variants" not in (line := process.stderr.readline()):
        assert line, "it ended before its variants were ranked"
    process.kill()
    process.communicate()
    known = tile_agent(begun, "status", "--json").json["runs"][-1]
    assert (known["phase"], shlex.split(known["next"])[1]) == ("screen", "try")
    answer = tile_agent(begun, *words).json
    assert (answer["resumed"], answer["row"]["status"]) == (True, "keep")
    assert draft.read_text() == sized(512)
