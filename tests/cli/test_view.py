"""What is seen of a run at a moment, on a narrow terminal and on a wide one."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from agent.cli.live import LiveView, telemetry
from agent.cli.view import ROWS, view
from agent.events import Proposed
from agent.measuring.blocks import Telemetry
from agent.report.view import Moment, duration
from agent.runs import activity, note_activity
from agent.state import Phase, Run
from agent.transitions import advance
from tests.support.history import BASELINED, CALIBRATED, HISTORY, STARTED, run_in

GPU = Telemetry(sm_mhz=1980, power_w=412.4, temperature_c=64, event_reasons=0)
MOMENT = Moment(75.0)


def seen(
    run: Run,
    width: int = 80,
    moment: Moment = MOMENT,
    telemetry: Telemetry | None = None,
    rows: int = ROWS,
) -> str:
    console = Console(file=StringIO(), width=width, highlight=False)
    with console.capture() as captured:
        console.print(view(run, moment, telemetry, width, rows))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert max(map(len, lines)) <= width
    return "\n".join(lines)


def fact(text: str, name: str) -> str:
    (line,) = (line for line in text.splitlines() if line.startswith(f"{name} "))
    return line[len(name) :].strip()


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("phase", Phase)
def test_it_fits_in_every_phase(phase: Phase, width: int) -> None:
    text = seen(run_in(phase), width, Moment(1e5, "variant 2 of 3: " + "x" * 300), GPU)
    assert len(text.splitlines()) <= 6 + 1 + ROWS


@pytest.mark.parametrize("width", [80, 200])
def test_a_wide_terminal_adds_why_and_nothing_else(width: int) -> None:
    text = seen(run_in(Phase.FINISH), width, telemetry=GPU)
    assert fact(text, "now") == "the last comparison: best against origin, 1 min 15 s"
    assert (
        fact(text, "best") == "0.738000 ms, 1.11x the origin's speed, iteration 1: block_size (n=0)"
    )
    assert fact(text, "GPU") == "1980 MHz, 64 C, 412 W"
    rows = [line.split() for line in text.splitlines() if line.lstrip()[:1].isdigit()]
    assert [row[0] for row in rows] == [str(row.iteration) for row in run_in(Phase.FINISH).rows]
    assert {"keep", "revert", "0.738000", "nan"} <= {cell for row in rows for cell in row}
    assert ("c is 20.0 % slower (at least 19.6 %)" in text) == (width == 200)


def test_a_candidate_that_waits_to_be_mended_is_the_assistants_turn() -> None:
    told = fact(seen(run_in(Phase.REPAIR), 120), "now")
    assert "the assistant's turn to mend it, attempt 2 of 3" in told


def test_without_a_gpu_there_is_no_line_for_it() -> None:
    assert "GPU" not in seen(run_in(Phase.FINISH))


def test_the_variant_of_a_sweep_is_named() -> None:
    run = run_in(Phase.SCREEN)
    assert fact(seen(run), "now").startswith("iteration 2 of 7, ")
    assert fact(seen(run), "trying") == "occupancy: 3 variants"
    doing = Moment(1.0, "variant 2 of 3: occupancy (n=1)")
    assert fact(seen(run, moment=doing), "trying") == f"occupancy, {doing.doing}"


def test_what_is_measured_is_named() -> None:
    run = run_in(Phase.MEASURE)
    assert run.candidate is not None
    assert fact(seen(run), "trying") == f"block_size: {run.candidate.title}"


def test_time_counts_what_goes_on() -> None:
    run = run_in(Phase.PROPOSE)
    spent_s = run.spent_s
    expected = f"{duration(spent_s + 75)} elapsed, {duration(3600 - spent_s - 75)} left, "
    assert fact(seen(run), "time") == f"{expected}ends after 2 more without gain"
    assert "0 s left" in fact(seen(run, moment=Moment(1e6)), "time")
    free = replace(STARTED, options=replace(STARTED.options, time_budget_s=None))
    unlimited = reduce(advance, (free, BASELINED, CALIBRATED), Run())
    assert " left" not in fact(seen(unlimited), "time")


def test_of_a_long_table_the_first_and_the_last_are_seen() -> None:
    run = run_in(Phase.FINISH)
    long = replace(run, rows=tuple(replace(run.rows[1], iteration=n) for n in range(40)))
    numbers = [int(line.split()[0]) for line in seen(long).splitlines() if line.startswith("    ")]
    assert numbers == [0, *range(40 - ROWS + 1, 40)]
    assert "iteration" not in seen(run_in(Phase.CALIBRATE), rows=0).split()
    assert len(seen(long, rows=1).splitlines()) == len(seen(long, rows=0).splitlines()) + 2


def test_nothing_of_a_title_is_taken_for_markup() -> None:
    run = run_in(Phase.VERIFY)
    proposal = run.proposal
    assert isinstance(proposal, Proposed)
    title = "[bold]x[/] :fire: [/nothing]"
    one = replace(proposal.candidates[0], title=title)
    assert title in seen(replace(run, candidates=(one,)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0 s"), (59.9, "59 s"), (61, "1 min 01 s"), (3599, "59 min 59 s"), (7800, "2 h 10 min")],
)
def test_a_duration_is_for_a_person(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_every_history_can_be_seen_at_every_event() -> None:
    for count in range(len(HISTORY) + 1):
        assert seen(reduce(advance, HISTORY[:count], Run()))


def test_a_gpu_of_another_machine_is_not_looked_for(tmp_path: Path) -> None:
    """Its journal names one, as an older version did; and the terminal is one row high."""
    run = run_in(Phase.MEASURE)
    with telemetry(run) as look:
        seen = LiveView(run, tmp_path, look)
        assert "GPU" not in seen.draw(80, 24)
        assert "latency_ms" in seen.draw(80, 24)
        assert "latency_ms" not in seen.draw(80, 1)


def test_what_goes_on_is_of_its_phase(tmp_path: Path) -> None:
    run = run_in(Phase.SCREEN)
    note_activity(tmp_path, run, "variant 2 of 3: occupancy (n=1)")
    assert activity(tmp_path, run) == "variant 2 of 3: occupancy (n=1)"
    assert activity(tmp_path, run_in(Phase.MEASURE)) == ""
    note_activity(tmp_path / "gone", run, "nobody is told")
    assert activity(tmp_path / "gone", run) == ""
