"""A card that attains less than others of its kind is named, and only that."""

from __future__ import annotations

from agent.fleet.home import KernelStanding
from agent.fleet.slow_cards import slow_cards

H200, H100 = "NVIDIA H200, driver 580.65.06", "NVIDIA H100, driver 580.65.06"


def ended(name: str, card: str, gb_s: float, machine: str = H200) -> KernelStanding:
    attained = {"GB/s": gb_s, "TFLOP/s": 700.0}
    return KernelStanding(
        name, f"{name}.py", host="node-1", machine=machine, card=card, attained=attained
    )


def test_a_card_far_below_its_kind_is_named() -> None:
    standings = [
        ended("a", "GPU-1", 4000.0),
        ended("b", "GPU-2", 4100.0),
        ended("c", "GPU-3", 3000.0),
        ended("d", "GPU-3", 3000.0),
        ended("e", "GPU-4", 3700.0),
        ended("f", "GPU-5", 3000.0, H100),
        KernelStanding("g", "g.py", machine=H200),
    ]
    found = slow_cards(standings)
    assert found.keys() == {"c", "d"}
    assert found["c"] == "a slow card: GPU-3 on node-1 attains 3000 GB/s, others like it 3850"


def test_two_cards_do_not_tell_which_is_slow() -> None:
    standings = [
        ended("a", "GPU-1", 4000.0),
        ended("b", "GPU-1", 4000.0),
        ended("c", "GPU-2", 3000.0),
    ]
    assert slow_cards(standings) == {}
