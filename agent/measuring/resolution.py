"""What a run can tell apart, in words. Pure."""

from __future__ import annotations

from agent.measuring.decision import Rules, percent
from agent.measuring.measurement import Calibration


def describe_resolution(calibration: Calibration, rules: Rules) -> str:
    """What a run can tell apart here, for a person.

    The figure of each config is a forecast: a comparison has pairs of its own, and its verdict says
    what all configs together would have shown in those.
    """
    floor = calibration.noise_floor
    text = f"the same code against itself differs by up to {percent(floor)}"
    blurred = floor > rules.minor
    if calibration.resolvable:
        config, worst = max(calibration.resolvable.items(), key=lambda item: item[1])
        # What could be told apart is not believed below the floor.
        low, high = (max(floor, v) for v in (min(calibration.resolvable.values()), worst))
        span = percent(high) if low == high else f"{percent(low)} to {percent(high)} ({config})"
        if high > floor or not blurred:
            where = " in one config" if len(calibration.resolvable) > 1 else ""
            text += f"; as a forecast, an improvement of {span}{where} would be found"
    if blurred:
        text += (
            f": improvements under {percent(floor)} cannot be believed here; larger problem sizes,"
            " longer perf tests or a quieter machine would help"
        )
    return text
