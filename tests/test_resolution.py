"""What a run says of the noise it works in."""

from __future__ import annotations

import pytest

from agent.measuring.decision import Rules
from agent.measuring.measurement import Calibration
from agent.measuring.resolution import describe_resolution

FORECAST = "; as a forecast, an improvement of"
OF_ONE = "in one config would be found"


@pytest.mark.parametrize(
    ("floor", "resolvable", "said"),
    [
        (0.001, {"a": 0.001}, f"{FORECAST} 0.1 % would be found"),
        (0.001, {"a": 0.01, "b": 0.003}, f"{FORECAST} 0.3 % to 1.0 % (a) {OF_ONE}"),
        (0.015, {"a": 0.01}, f"{FORECAST} 1.5 % would be found"),
        (0.001, {}, ""),
        (0.025, {"a": 0.01}, ": improvements under 2.5 % cannot be believed here; larger"),
        (0.025, {"a": 0.01, "b": 0.02}, ": improvements under 2.5 % cannot be believed"),
        (0.025, {"a": 0.05, "b": 0.01}, f"{FORECAST} 2.5 % to 5.0 % (a) {OF_ONE}: "),
        (0.025, {}, ": improvements under 2.5 % cannot be believed here; larger"),
    ],
)
def test_what_is_promised_is_also_believed(
    floor: float, resolvable: dict[str, float], said: str
) -> None:
    calibration = Calibration(floor, {}, 0.1, 10, resolvable)
    text = describe_resolution(calibration, Rules())
    _, _, rest = text.partition(f"differs by up to {floor * 100:.1f} %")
    assert rest.startswith(said)
    assert bool(said) == bool(rest)
