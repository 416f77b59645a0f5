"""Whether repeated calls are faster because they repeat."""

from __future__ import annotations

import pytest

from agent.harness.measuring.timed_calls import (
    FEWEST_FRESH,
    FreshMs,
    WrongResult,
    check_fresh,
    check_results,
    unless_remembered,
)
from agent.harness.processes.results import ExaminedCall, read_call
from agent.measuring.measurement import Failure
from agent.measuring.statistics import Comparison, ConfigComparison, Effect


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


def test_what_looks_remembered_is_measured_once_more_and_that_counts() -> None:
    """Seen on an H200: an honest product's fresh calls took thrice as long once, not again."""
    gain = Effect(0.46, 0.46, 0.46)
    comparison = Comparison(compared(0.395, 0.211), gain, 0.395, 0.211, 0.01, pairs=3)
    busy = {("perf", True): [0.395] * FEWEST_FRESH, ("perf", False): [0.617] * FEWEST_FRESH}
    calm = busy | {("perf", False): [0.22] * FEWEST_FRESH}

    def judged(*fresh: FreshMs) -> Comparison | Failure:
        left = iter(fresh)
        outcome = unless_remembered(lambda: (comparison, next(left)))
        assert next(left, None) is None, "not more often than it takes"
        return outcome

    assert judged(calm) is comparison
    assert judged(busy, calm) is comparison
    refused = judged(busy, busy)
    assert isinstance(refused, Failure)
    assert "remembers earlier calls" in refused.reason


def test_what_nobody_could_look_at_is_no_wrong_result() -> None:
    """It is not kept either: that it lacks memory is the candidate's word."""
    ours = ExaminedCall(({"name": "result", "dtype": "float32", "shape": [4]},))
    unseen = read_call({"results": [], "lacks_memory": True})
    with pytest.raises(WrongResult, match="the memory of this GPU does not hold"):
        check_results("test_x", ours, unseen, [])
    with pytest.raises(WrongResult, match="gave other results: none"):
        check_results("test_x", ours, read_call({"results": []}), [])
    check_results("test_x", unseen, unseen, [])
