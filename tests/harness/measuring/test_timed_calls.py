"""Whether repeated calls are faster because they repeat."""

from __future__ import annotations

import pytest

from agent.harness.measuring.timed_calls import (
    FEWEST_FRESH,
    WrongResult,
    check_fresh,
    check_results,
)
from agent.harness.processes.results import ExaminedCall, read_call
from agent.measuring.statistics import ConfigComparison, Effect


def compared(incumbent_ms: float, candidate_ms: float) -> tuple[ConfigComparison]:
    gain = 1 - candidate_ms / incumbent_ms
    return (ConfigComparison("perf", incumbent_ms, candidate_ms, Effect(gain, gain, gain)),)


@pytest.mark.parametrize(
    ("incumbent_ms", "candidate_ms", "fresh_incumbent_ms", "fresh_candidate_ms", "found"),
    [
        # Seen on an H200: seven edits of a softmax; a call that nothing was queued before.
        pytest.param(0.52, 0.0708, 0.65, 0.161, False, id="much faster"),
        pytest.param(0.52, 0.0708, 0.65, 0.64, True, id="a memo"),
        pytest.param(0.02, 0.003, 0.11, 0.11, True, id="a memo of a short kernel"),
        pytest.param(0.02, 0.019, 0.11, 0.112, False, id="both wait for the host"),
    ],
)
def test_what_is_remembered_does_not_gain_on_fresh_inputs(
    incumbent_ms: float,
    candidate_ms: float,
    fresh_incumbent_ms: float,
    fresh_candidate_ms: float,
    found: bool,
) -> None:
    fresh_ms = {
        ("perf", True): [fresh_incumbent_ms] * FEWEST_FRESH,
        ("perf", False): [fresh_candidate_ms] * FEWEST_FRESH,
    }
    reason = check_fresh(fresh_ms, compared(incumbent_ms, candidate_ms))
    assert ("remembers" in (reason or "")) is found
    fewer = {arm: times[1:] for arm, times in fresh_ms.items()}
    assert check_fresh(fewer, compared(incumbent_ms, candidate_ms)) is None


def test_what_nobody_could_look_at_is_no_wrong_result() -> None:
    """It is not kept either: that it lacks memory is the candidate's word."""
    ours = ExaminedCall(({"name": "result", "dtype": "float32", "shape": [4]},))
    unseen = read_call({"results": [], "lacks_memory": True})
    with pytest.raises(WrongResult, match="the memory of this GPU does not hold"):
        check_results("test_x", ours, unseen, [])
    with pytest.raises(WrongResult, match="gave other results: none"):
        check_results("test_x", ours, read_call({"results": []}), [])
    check_results("test_x", unseen, unseen, [])
