"""What a run can tell apart, in words. Pure."""

from __future__ import annotations

from agent.measuring.decision import Rules, percent
from agent.measuring.measurement import Calibration


def describe_resolution(calibration: Calibration, rules: Rules) -> str:
    """What a run can tell apart here, for a person."""
    floor = calibration.noise_floor
    text = f"the same code against itself differs by up to {percent(floor)}"
    blurred = floor > rules.minor
    if calibration.resolvable:
        config, worst = max(calibration.resolvable.items(), key=lambda item: item[1])
        # What could be told apart is not believed below the floor.
        low, high = (max(floor, v) for v in (min(calibration.resolvable.values()), worst))
        span = percent(high) if low == high else f"{percent(low)} to {percent(high)} ({config})"
        if high > floor or not blurred:
            text += f"; an improvement of {span} would be found"
    if blurred:
        text += (
            f": improvements under {percent(floor)} cannot be believed here; larger problem sizes,"
            " longer perf tests or a quieter machine would help"
        )
    return text
