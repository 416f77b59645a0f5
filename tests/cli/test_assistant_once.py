"""What does not change is said once to an assistant, and again to one that has forgotten it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.assistant.told import FACTS, Told, without_what_was_told
from agent.proposers.brief import digest
from tests.cli.conftest import BEGIN
from tests.support.project import KERNEL, tile_agent
from tests.support.repo import isolate

OTHER = {"optimization": "loop-stages", "title": "stages", "fits": False, "why": "no loop"}
BEST = {"optimization": "own-idea", "title": "own idea", "fits": True, "why": "the evidence"}


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


# --- what is left out ---------------------------------------------------------------------------


def test_a_field_is_left_out_while_it_is_as_it_was_told() -> None:
    answer = {"run": "r", "noise_floor": 0.01, "forecast": {"iteration_s": 3.0}}
    first, said = without_what_was_told(answer, Told())
    assert first == answer | {"as_before": []}
    told = Told().and_also(said)
    answer["forecast"] = {"iteration_s": 4.0}
    second, _ = without_what_was_told(answer, told)
    assert second == {
        "run": "r",
        "forecast": {"iteration_s": 4.0},
        "as_before": ["noise_floor"],
    }


def test_others_are_told_again_when_there_is_something_new_to_say_of_them() -> None:
    first, said = without_what_was_told({"others": [BEST, OTHER]}, Told())
    assert (first["others"], first["others_as_before"]) == ([BEST, OTHER], [])
    told = Told().and_also(said)
    second, _ = without_what_was_told({"others": [BEST, OTHER]}, told)
    assert (second["others"], second["others_as_before"]) == ([], ["own-idea"])
    fitting = OTHER | {"fits": True, "why": "there is a loop now"}
    third, _ = without_what_was_told({"others": [fitting, BEST]}, told)
    assert (third["others"], third["others_as_before"]) == ([fitting], ["own-idea"])


def test_a_digest_takes_any_text() -> None:
    assert digest("\ud800") != digest("\ud801")


# --- in a run -----------------------------------------------------------------------------------


def ask(repo: Path, *arguments: str) -> dict[str, Any]:
    end = tile_agent(repo, *arguments, "--json")
    assert end.code == 0, end.err
    return end.json


@pytest.mark.full
def test_each_turn_says_what_changed_and_the_whole_to_who_asks(begun: Path) -> None:
    first = ask(begun, "next")
    assert first["as_before"] == list(FACTS)  # `begin` said them
    assert KERNEL in first["brief"] and "## The rules" in first["brief"]
    assert len(first["others"]) > 20

    second = ask(begun, "next", "--choose", "own-idea")
    assert len(json.dumps(second)) < len(json.dumps(first)) / 4
    assert KERNEL not in second["brief"] and "## The rules" not in second["brief"]
    assert "not said again: kernel, code, latencies" in second["brief"]
    assert "--full --json" in second["brief"]
    (offered_before,) = second["others"]  # it was offered, and said as no other
    assert offered_before["optimization"] == first["optimization"]

    # asked once more, and nothing happened: whoever asks has lost the answer
    again = ask(begun, "next")
    assert {"prose", *FACTS} <= again.keys() and "as_before" not in again
    assert KERNEL in again["brief"] and again["optimization"] == "own-idea"
    assert again == ask(begun, "next", "--full")
    (known,) = ask(begun, "status")["runs"]
    assert known["next"].endswith("--full --json")

    draft = Path(again["file"])
    draft.write_text(KERNEL.replace("= 256", "= 1024"))
    tried = ask(begun, "try", "-m", "larger blocks")
    assert tried["row"]["status"] == "keep"
    assert {"latency_meaning", "diagnosis"}.isdisjoint(tried)

    third = ask(begun, "next")
    assert "-BLOCK_SIZE = 256\n+BLOCK_SIZE = 1024\n" in third["brief"]
    assert "import torch" in third["brief"] and "def double(x):" not in third["brief"]
    assert "What was tried" not in third["brief"]  # `try` said it
    assert ask(begun, "next", "--decline", "no")["brief"].count("no candidate; no") == 1

    # another conversation goes on with the run: it knows nothing
    assert set(FACTS) <= ask(begun, *BEGIN).keys()
    fourth = ask(begun, "next")
    assert "BLOCK_SIZE = 1024" in fourth["brief"] and "def double(x):" in fourth["brief"]
    assert "1. larger blocks (assistant): keep" in fourth["brief"]


@pytest.mark.full
@pytest.mark.parametrize("text", ["", "[]", '{"digests": 3}', '{"code": "--output=x"}', "{\xff"])
def test_where_nothing_can_be_read_of_what_was_told_everything_is_told(
    begun: Path, text: str
) -> None:
    ask(begun, "next")
    (noted,) = (begun / "sandbox" / "runs").glob("*/told.json")
    noted.write_bytes(text.encode("latin-1"))
    answer = ask(begun, "next", "--choose", "own-idea")
    assert KERNEL in answer["brief"] and len(answer["others"]) > 20
    assert not (begun / "x").exists()


@pytest.mark.full
def test_what_a_person_reads_is_whole(begun: Path) -> None:
    ask(begun, "next")
    told = tile_agent(begun, "next", "--choose", "own-idea").out
    assert KERNEL in told and "## The rules" in told
