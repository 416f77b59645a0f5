"""A session has the same fixtures where most plugins are not looked through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.warm_python import run_python

SESSION = """
import sys
import pytest
from tile_agent_pytest import plugin_fixtures, preloading

fixtures = sys.modules["_pytest.fixtures"]
find, asked = fixtures.safe_getattr, []


def counted(holder, name, default):
    asked.append(name)
    return find(holder, name, default)


fixtures.safe_getattr = counted
plugins = (*preloading.EXTRAS, *preloading._plugins_of_pytest())
preloading._import(plugins)
if sys.argv[1] == "less":
    plugin_fixtures.ask_no_more(plugins)
pytest.main(["-p", "no:cacheprovider", "-p", "pytester", "--fixtures", "-v", "."])
print(len(asked), file=sys.stderr)
"""
TEST = """
import pytest


@pytest.fixture
def mine():
    return 1


def test_mine(mine): ...
"""


def test_every_fixture_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TEST)
    every, less = (run_python(SESSION, much, cwd=tmp_path) for much in ("all", "less"))
    listed, same = (_fixtures(done.stdout) for done in (every, less))
    assert listed == same
    assert {"mine", "tmp_path", "capsys", "doctest_namespace", "pytester"} < listed
    if tuple(map(int, pytest.__version__.split(".")[:2])) >= (8, 4):
        assert int(less.stderr.split()[-1]) < int(every.stderr.split()[-1])


def _fixtures(told: str) -> set[str]:
    """The names of what `--fixtures -v` lists, each with its place."""
    lines = (line for line in told.splitlines() if " -- " in line and not line.startswith(" "))
    return {line.split()[0] for line in lines}
