"""Metadata that is kept is what would be read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repo import write
from tests.support.warm_python import run_python

USE = """
import importlib.metadata as metadata
import os
import sys
from pathlib import Path

from tile_agent_pytest import kept_metadata

kind = metadata.PathDistribution
read = {name: getattr(kind, name).fget for name in kept_metadata.READ if name not in vars(kind)}
kept_metadata.keep()
get = {name: vars(kind)[name] for name in kept_metadata.READ}
kept_metadata.keep()
assert get == {name: vars(kind)[name] for name in kept_metadata.READ}


def wrong():
    return [
        (name, str(found._path))
        for found in metadata.distributions()
        for name, original in read.items()
        if getattr(found, name) != original(found)
    ]


def plugins():
    return [e.name for e in metadata.entry_points(group="pytest11") if e.value.startswith("ours")]


again = [getattr(next(metadata.distributions(name="pytest-xdist")), name) for name in read]
same = [getattr(next(metadata.distributions(name="pytest-xdist")), name) for name in read]
assert all(one is other for one, other in zip(again, same)), "read again"
assert len(read) == 2 and wrong() == [] and plugins() == ["first"], (wrong(), plugins())
folder = Path("ours-1.dist-info")
text = folder.joinpath("entry_points.txt").read_text()
folder.joinpath("new").write_text(text.replace("first", "second"))
os.replace(folder / "new", folder / "entry_points.txt")  # as pip does
assert wrong() == [] and plugins() == ["second"], (wrong(), plugins())
sys.path.append("later")
assert plugins() == ["second", "third"], plugins()
"""
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
ENTRY = "[pytest11]\n{entry} = ours.{entry}\n"


def test_a_package_is_read_once_until_it_is_changed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "ours-1.dist-info/METADATA": METADATA.format(name="ours"),
            "ours-1.dist-info/RECORD": "ours/first.py,,\n",
            "ours-1.dist-info/entry_points.txt": ENTRY.format(entry="first"),
            "later/theirs-1.dist-info/METADATA": METADATA.format(name="theirs"),
            "later/theirs-1.dist-info/entry_points.txt": ENTRY.format(entry="third"),
        },
    )
    done = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


DIGEST = """
from triton.runtime import cache

from tile_agent_pytest.kept_metadata import keep_digest_of_triton

cache.triton_key.cache_clear()
keep_digest_of_triton()
print(cache.triton_key.cache_info().currsize)
"""


@pytest.mark.parametrize(("interpreted", "taken"), [("0", "1"), ("1", "0")])
def test_triton_takes_its_digest_where_it_compiles(interpreted: str, taken: str) -> None:
    pytest.importorskip("triton.runtime.cache", reason="Triton is not installed")
    done = run_python(DIGEST, environment={"TRITON_INTERPRET": interpreted})
    assert done.stdout.strip() == taken, done.stderr
