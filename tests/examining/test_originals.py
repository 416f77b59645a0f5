"""What is looked at in the worker, whether the user's code has replaced it."""

from __future__ import annotations

import pytest

from tile_agent_pytest.examining.originals import WATCHED, Originals
from tile_agent_pytest.tuning_effort import TuningInLess

OURS = [(dotted, name) for dotted, names in WATCHED.items() for name in names.split()
        if dotted.startswith("tile_agent_pytest.")]  # fmt: skip


@pytest.mark.parametrize(("dotted", "name"), OURS, ids=str)
def test_each_of_our_own_names_is_there(dotted: str, name: str) -> None:
    """One that is not would be passed over without a word."""
    from tile_agent_pytest.examining.originals import _owner

    owner = _owner(dotted)
    assert hasattr(owner, name) or name in getattr(owner, "__annotations__", {})


def test_what_puts_a_choice_off_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    originals = Originals()
    monkeypatch.setattr(TuningInLess, "undecided", lambda _: None)
    assert [name.rpartition(".")[2] for name in originals.replaced()] == ["undecided"]
