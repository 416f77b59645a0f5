"""Which tests `-k` would choose, asked of a session that has collected all of them.

A session of its own for each expression would import all tests once more, and nothing else would
be different.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any


def chosen(config: Any, items: Sequence[Any], keywords: Iterable[str]) -> Mapping[str, list[int]]:
    """Expression -> the numbers of the items that it chooses, as pytest itself evaluates it.

    Left out is what a session of its own has to tell: an expression that pytest refuses; and all of
    them where the project's configuration has one of its own, whose place they would take.
    """
    choose = getattr(sys.modules.get("_pytest.mark"), "deselect_by_keyword", None)
    if choose is None or config.option.keyword:
        return {}
    found = {}
    for each in keywords:
        left = _left_by(choose, items, each)
        if left is not None:
            found[each] = left
    return found


def _left_by(choose: Callable[..., None], items: Sequence[Any], keyword: str) -> list[int] | None:
    left = [*items]
    quiet = SimpleNamespace(pytest_deselected=lambda **_: None)
    try:
        choose(left, SimpleNamespace(option=SimpleNamespace(keyword=keyword), hook=quiet))
    except Exception:
        return None
    kept = set(map(id, left))
    return [number for number, item in enumerate(items) if id(item) in kept]
