"""A session that begins with a configuration made before is the same as one that makes its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.repo import write
from tests.support.warm_python import run_python

SESSION = """
import sys

import _pytest.config
import pytest
from tile_agent_pytest import kept_config

made, make = [], _pytest.config.PytestPluginManager
_pytest.config.PytestPluginManager = lambda: made.append(1) or make()
if sys.argv[1] == "kept":
    kept_config.prepare()
before = len(made)


class Told:
    def pytest_configure(self, config):
        manager = config.pluginmanager
        print("plugins:", sorted(name for name, one in manager.list_name_plugin() if one))
        print("options:", sorted(map(str, vars(config.option).items())))
        print("hooks:", {
            name: [each.plugin_name for each in getattr(manager.hook, name).get_hookimpls()]
            for name in sorted(vars(manager.hook)) if name.startswith("pytest_")
        })
        given = config.invocation_params
        print("rewritten:", sorted(manager.rewrite_hook._must_rewrite))
        print("given:", given.args, given.dir, [type(each).__name__ for each in given.plugins])


for times in range(2):
    quiet = "-Wignore:Module already imported:pytest.PytestAssertRewriteWarning"
    code = pytest.main(["-ocache_dir=cache", quiet, *sys.argv[2:]], plugins=[Told()])
    print("code:", int(code))
print(len(made) - before, file=sys.stderr)
"""
TEST = """
import pytest


def test_mine(request, tmp_path, capsys):
    print("mine")
    assert capsys.readouterr().out == "mine\\n"
"""


@pytest.mark.parametrize(
    ("arguments", "begun_anew"),
    [
        (["-pno:tile_agent", "test_mine.py"], 1),
        (["-pno:tile_agent", "-pno:cacheprovider", "test_mine.py"], 2),
        (["-pno:tile_agent", "--unknown"], 1),
    ],
    ids=["as workers are", "without a plugin", "refused"],
)
def test_a_session_is_the_same(tmp_path: Path, arguments: list[str], begun_anew: int) -> None:
    write(tmp_path, {"test_mine.py": TEST, "pytest.ini": "[pytest]\naddopts = -q\n"})
    own, kept = (run_python(SESSION, kind, *arguments, cwd=tmp_path) for kind in ("own", "kept"))
    assert _lasting(kept.stdout) == _lasting(own.stdout)
    assert "code: " in own.stdout
    assert (own.stderr.split()[-1], kept.stderr.split()[-1]) == ("2", str(begun_anew))


def _lasting(said: str) -> list[str]:
    """What does not say how long something took."""
    lines = (re.sub(r" in \d+\.\d+s.*", "", line) for line in said.splitlines())
    return [line for line in lines if "tmp" not in line]
