"""Launches of both arms by the parent's own clock, which shows what a worker does not report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.harness.processes.call_orders import WarmLaunch
from agent.measuring.disturbance import clock_problem

ROUNDS = 3
"""Before a worker is said to report too little: a slow kernel's burst is one launch, whose time
scatters."""
ROUNDS_OF_HOST = 6
"""The same where calls keep the host, whose time scatters more: three looks of each arm, one arm
after the other, ended a calibration of four backward passes through autograd on an H100."""


@dataclass(frozen=True)
class WarmLaunches:
    """What the parent's clock shows, in ms a launch; nothing where it has not looked."""

    ms: Mapping[bool, float] = field(default_factory=dict)
    """Incumbent? -> a launch behind others."""
    keeps_host: bool = False
    """By the incumbent's word a call keeps the host, so that the host's time is in it."""


def warm_launches(
    look: Callable[[bool], WarmLaunch], reported_ms: Mapping[bool, float]
) -> WarmLaunches:
    """Look at both arms in turn, in rounds, until neither seems to report too little.

    What holds up a burst is no work of its own, so that the least of an arm's looks counts. Where
    calls keep the host, a round stands for itself: what else the machine does slows both of its
    looks, and a candidate that hides work takes longer than the incumbent in each.

    Args:
        look: times a launch of the incumbent, or of the candidate.
        reported_ms: incumbent? -> a launch, by its worker.
    """
    least_ms = {True: math.inf, False: math.inf}
    done = 0
    while True:
        order = (False, True) if done % 2 else (True, False)
        looks = {whose: look(whose) for whose in order}
        keeps_host = looks[True].keeps_host
        least_ms = {whose: min(least_ms[whose], looks[whose].ms) for whose in order}
        seen_ms = {whose: looks[whose].ms for whose in order} if keeps_host else least_ms
        done += 1
        enough = done >= (ROUNDS_OF_HOST if keeps_host else ROUNDS)
        if enough or clock_problem(reported_ms, seen_ms, keeps_host=keeps_host) is None:
            return WarmLaunches(seen_ms, keeps_host)
