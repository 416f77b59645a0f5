"""What a worker says that pytest has collected, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tile_agent_pytest.wire import Message


@dataclass(frozen=True)
class Item:
    """A test as collected."""

    nodeid: str
    name: str
    fixtures: tuple[str, ...]
    through: tuple[str, ...] = ()
    """What times, of the names in its code."""
    lacking: tuple[str, ...] = ()
    """What it takes that is no fixture: pytest cannot call it."""


@dataclass(frozen=True)
class Collection:
    """What pytest found, and what it could not import."""

    items: tuple[Item, ...]
    errors: tuple[tuple[str, str], ...]
    """(node id, pytest's account)."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(node id, why) of the files that skip all of their tests."""
    installed: Mapping[str, Any] = field(default_factory=dict)
    """What was imported of what is installed, as the fork server takes it."""
    by_keyword: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    """What expressions would choose, of those that were asked for and need no other session."""


def read_collection(message: Message) -> Collection:
    """From a worker's 'ready' message. Raises as `understood` expects."""
    items = tuple(
        Item(
            str(item["nodeid"]),
            str(item["name"]),
            tuple(map(str, item["fixtures"])),
            tuple(map(str, item["through"])),
            tuple(map(str, item["lacking"])),
        )
        for item in message["items"]
    )
    return Collection(
        items=items,
        errors=_accounts(message["errors"]),
        skipped=_accounts(message["skipped"]),
        installed=dict(message["installed"]),
        by_keyword={
            str(keyword): tuple(items[number] for number in numbers)
            for keyword, numbers in dict(message["by_keyword"]).items()
        },
    )


def _accounts(told: Any) -> tuple[tuple[str, str], ...]:
    return tuple((str(each["nodeid"]), str(each["text"])) for each in told)
