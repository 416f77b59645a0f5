"""The templates: every one renders, and a blank is an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest

from agent.environment import describe
from agent.events import Calibrated, Finished, Skipped, Started
from agent.journal import replay
from agent.measuring.subset import Subset
from agent.prompting import render
from agent.report.passed_over import WITHOUT_GPU
from agent.report.result import to_result
from agent.report.summary import summarize
from agent.report.table import render as render_table
from agent.state import Run
from tests.support.history import BASELINED, HISTORY, comparison

ROOT = Path(__file__).parent.parent
MACHINE = "NVIDIA H200, driver 580.1; torch 2.9.0; triton 3.5.0"
VARIABLES: dict[str, Any] = {
    "kernel": "softmax",
    "title": "block size (BLOCK=256)",
    "hypothesis": "fewer trips to memory",
    "doubts": (),
    "comparison": comparison(0.1, noise=0.0),
    "subset": None,
    "machine": MACHINE,
    "run_id": "softmax-1",
    "iteration": 3,
}
MESSAGE = """\
softmax: block size (BLOCK=256)

fewer trips to memory

+10.0 % [+10.0 %, +10.0 %] over 3 interleaved process pairs:
  c: 0.820000 ms -> 0.738000 ms (+10.0 %)

Measured on: NVIDIA H200, driver 580.1; torch 2.9.0; triton 3.5.0
Run: softmax-1, iteration 3
"""


def test_the_message_of_a_commit() -> None:
    assert render("commit_message.j2", **VARIABLES) == MESSAGE


def test_a_commit_says_which_configs_were_not_compared() -> None:
    text = render("commit_message.j2", **VARIABLES | {"subset": Subset(("t",), ("c",), ("d", "e"))})
    assert "(+10.0 %)\n  1 of 3 configs; not compared: d, e\n\nMeasured on" in text


def test_a_commit_says_what_is_doubted_in_it() -> None:
    text = render("commit_message.j2", **VARIABLES | {"doubts": ("`n` is not read", "os is new")})
    assert "memory\n\nDoubt: `n` is not read\nDoubt: os is new\n\n+10.0 %" in text


@pytest.mark.parametrize("missing", VARIABLES)
def test_a_missing_variable_is_an_error_and_never_a_blank(missing: str) -> None:
    variables = {name: value for name, value in VARIABLES.items() if name != missing}
    with pytest.raises(jinja2.UndefinedError, match=f"'{missing}' is undefined"):
        render("commit_message.j2", **variables)


def test_a_missing_part_of_a_variable_is_an_error_too() -> None:
    with pytest.raises(jinja2.UndefinedError, match="has no attribute 'overall'"):
        render("commit_message.j2", **VARIABLES | {"comparison": object()})


def test_a_template_that_is_not_there() -> None:
    with pytest.raises(jinja2.TemplateNotFound, match="no_such_template"):
        render("no_such_template.j2")


def test_text_is_for_people_and_never_escaped() -> None:
    text = render("commit_message.j2", **VARIABLES | {"title": "a < b & 'c' {{ d }}"})
    assert text.startswith("softmax: a < b & 'c' {{ d }}\n")


@pytest.mark.parametrize("path", sorted((ROOT / "prompts").rglob("*.j2")), ids=lambda p: p.name)
def test_a_template_is_well_formed(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    jinja2.Environment(autoescape=False).parse(text)
    assert text.endswith("\n")
    assert "\t" not in text


def run_with(*changes: Any) -> Run:
    events = list(HISTORY)
    for change in changes:
        events = [change if type(event) is type(change) else event for event in events]
    return replay(events)


def test_the_summary_of_a_finished_run() -> None:
    text = summarize(run_with(), MACHINE)
    assert text.splitlines()[1] == ""  # or no reader makes a table of what follows
    assert text.startswith("kernels/softmax.py: 1.11x faster (0.820000 ms -> 0.738000 ms)\n"), (
        text.splitlines()[0]
    )
    for line in (
        render_table(run_with().rows),
        "3. reciprocal (n=0): test_softmax: assert 1.0 == 2.0",
        "pipelining passed over: there is no loop: 0 found",
        "Stopped: no improvement in consecutive iterations (after 2 of them)",
        "Latency: GPU time of a launch",
        f"Measured on: {MACHINE}",
        "Note: 3 bfloat16 tests are left out",
        "Note: the branch is checked out",
        "git log -p 000000000000..tile-agent/softmax-20250102",
        "git merge --ff-only tile-agent/softmax-20250102",
        "refs/tile-agent/softmax-20250102-030405/",
    ):
        assert line in text


def test_a_run_that_tried_nothing_leaves_nothing_behind_to_speak_of() -> None:
    tried = summarize(run_with(), MACHINE)
    assert "What was tried and set aside stays under" in tried
    run = run_with()
    nothing = summarize(replace(run, rows=run.rows[:1], finished=None), MACHINE)
    assert "stays under" not in nothing
    assert nothing.rstrip().endswith("No optimization was tried.")


def test_the_summary_says_when_the_interpreter_was_measured() -> None:
    started = next(event for event in HISTORY if isinstance(event, Started))
    without = replace(started, environment={**started.environment, "gpus": []})
    first = summarize(run_with(without), "no GPU").splitlines()[0]
    assert "faster in the interpreter" in first


def test_what_takes_a_gpu_is_one_line_of_the_summary() -> None:
    reasons = ("knows no warps", "cannot time configs", "knows no warps")
    skipped = [
        Skipped(f"entry-{n}", f"Triton's interpreter {why}") for n, why in enumerate(reasons)
    ]
    text = summarize(replace(run_with(), skipped=tuple(skipped)), "no GPU")
    assert f"-  entry-0, entry-1, entry-2 passed over: {WITHOUT_GPU}\n" in text
    assert "knows no warps" not in text


def test_figures_of_some_configs_say_so_wherever_they_stand() -> None:
    calibrated = next(event for event in HISTORY if isinstance(event, Calibrated))
    finished = next(event for event in HISTORY if isinstance(event, Finished))
    few = replace(calibrated, subset=Subset(("t",), ("c",), ("d", "e")))
    last = replace(finished, left_out=("e",))
    changed = {id(calibrated): few, id(finished): last}
    run = replay([changed.get(id(event), event) for event in HISTORY])
    text = summarize(run, MACHINE)
    assert "ms), without 1 config\n" in text
    assert "\nLatencies and effects in the table are those of 1 of 3 configs.\n" in text
    assert "interleaved process pairs, without e:" in text
    assert "; on 1 of 3 configs" in next(row.reason for row in run.rows if row.reason)
    assert "Note: iterations compared 1 of 3 configs, and their figures speak of those: c;" in text
    assert "Note: the final comparison had no time for e: nothing is known of those" in text
    result = to_result(run)
    assert result["subset"]["left_out"] == ["d", "e"]
    assert result["final_left_out"] == ["e"]


def test_a_config_that_only_the_final_comparison_found_slower_is_named() -> None:
    calibrated = next(event for event in HISTORY if isinstance(event, Calibrated))
    finished = next(event for event in HISTORY if isinstance(event, Finished))
    without = replace(calibrated, subset=Subset(("t",), ("other",), ("c",)))
    both = (*BASELINED.records, replace(BASELINED.records[0], config="other"))
    baselined = replace(BASELINED, records=both)
    for improvement, told in ((-0.08, True), (-0.015, False), (0.08, False)):
        last = replace(finished, comparison=comparison(improvement))
        changed = {
            id(BASELINED): baselined,
            id(calibrated): without,
            id(finished): last,
        }
        text = summarize(replay([changed.get(id(event), event) for event in HISTORY]), MACHINE)
        said = "Note: c, which no iteration compared, takes 8.0 % more than at the origin: look"
        assert (said in text) is told


def test_the_summary_of_a_final_comparison_that_failed() -> None:
    text = summarize(run_with(Finished(None, "the final comparison failed: hung")), MACHINE)
    assert text.startswith("kernels/softmax.py: 1 optimization kept\n")
    assert "the final comparison failed: hung" in text


@pytest.mark.parametrize("length", range(2, len(HISTORY) + 1))
def test_a_run_can_be_summarized_at_any_time(length: int) -> None:
    text = summarize(replay(HISTORY[:length]), MACHINE)
    assert ("not yet; it can be resumed" in text) == (length < len(HISTORY) - 1)
    assert text.endswith("\n")


def test_a_machine_in_one_line() -> None:
    started = HISTORY[0]
    assert isinstance(started, Started)
    assert describe(started.environment) == MACHINE
    without = {"gpus": [], "versions": {"torch": None, "pytest": "9.0"}}
    assert describe(without) == "no GPU"
