"""The time that tests are given together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from tests.support.tiers import LEFT, turned

ROOT = Path(__file__).parents[1]


def test_what_has_not_begun_in_time_is_skipped_and_said() -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-rs", "--until", "1"]
    done = subprocess.run(
        [*command, "tests/syntax/test_replaced.py"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert LEFT in done.stdout and " passed" not in done.stdout


def test_another_order_holds_the_same_tests() -> None:
    items = cast(Any, [*range(97)])
    found = turned(items)
    assert sorted(cast(Any, found)) == items
    assert found == items[(first := items.index(found[0])) :] + items[:first]
    assert turned([]) == []
