"""What commits compile to, kept for later runs: a second one compiles none of the same again.

It lies in the user's state folder, which no worker can write. It helps and never judges: what
cannot be read or written is compiled.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tempfile
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import cattrs

from agent import __version__
from agent.environment import VISIBLE_GPUS, Environment
from agent.evidence.duplicates import CompiledCommit
from agent.evidence.model import Artifact, Result
from agent.harness.compiling.artifacts import Wanted
from agent.harness.processes.kept_folders import CACHES

FOLDER = "compiled"
HOLDS_S = 24 * 3600.0
"""For so long nothing beside the versions and the variables is expected to change a compile."""
MOST_FILES = 4000
"""The oldest go. One has some 2 to 20 kB."""
_ELSEWHERE = frozenset({"PWD", "OLDPWD", "SHELL", "TERM", "TMPDIR", VISIBLE_GPUS, *CACHES})
"""Variables that say where something lies or is shown, or which GPU it runs on."""

_UNREADABLE = (
    OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, cattrs.BaseValidationError,
)  # fmt: skip
"""What a damaged file, or one of another layout, gives."""


@dataclass(frozen=True)
class KeptCompiles:
    """The files of one folder, as far as they were compiled under the same conditions."""

    folder: Path
    conditions: str
    """A digest of all that decides what a compile gives beside a commit's files and its tests."""

    @classmethod
    def of(
        cls,
        folder: Path,
        wanted: Wanted,
        machine: Environment,
        variables: Mapping[str, str],
        kernel: tuple[str, ...],
    ) -> KeptCompiles:
        """Those of one machine and one set of versions.

        Args:
            folder: need not exist.
            wanted: what is compiled, and for what.
            machine: as its interpreter told it.
            variables: those of the workers.
            kernel: its file, and the folders that Python finds modules in, from the root.
        """
        told = {
            "tile-agent": __version__,
            "kernel": kernel,
            "wanted": asdict(replace(wanted, most_at_once=1)),
            "versions": machine.versions,
            "tileiras": machine.tileiras,
            "tile_ir": dict(machine.tile_ir),
            "python": machine.python,
            "drivers": sorted({gpu.driver for gpu in machine.gpus}),
            "variables": {n: v for n, v in variables.items() if n not in _ELSEWHERE},
        }
        return cls(folder, _digest(told))

    def find(self, trees: Iterable[str], tests: Sequence[str]) -> dict[str, CompiledCommit]:
        """Tree -> what it compiles to, where that is known.

        Args:
            trees: of commits, as git names them: all of their files.
            tests: pytest arguments for the perf tests, which launch what is compiled.
        """
        found = {}
        for tree in trees:
            with suppress(*_UNREADABLE):
                file = self._file(tree, tests)
                if 0 <= time.time() - file.stat().st_mtime < HOLDS_S:
                    kept = json.loads(gzip.decompress(file.read_bytes()))
                    found[tree] = cattrs.structure(kept, CompiledCommit)
        return found

    def keep(self, compiled: Mapping[str, CompiledCommit], tests: Sequence[str]) -> None:
        """Write down what trees compile to, without the listings; the same of another run goes."""
        with suppress(OSError, TypeError, ValueError):
            self.folder.mkdir(parents=True, exist_ok=True)
            for tree, commit in compiled.items():
                short = replace(commit, results=tuple(map(_without_listing, commit.results)))
                text = json.dumps(cattrs.unstructure(short)).encode()
                _write(self._file(tree, tests), gzip.compress(text, compresslevel=4))
            self._prune()

    def _file(self, tree: str, tests: Sequence[str]) -> Path:
        return self.folder / f"{_digest([self.conditions, tree, list(tests)])}.json.gz"

    def _prune(self) -> None:
        """Remove what no longer holds, and the oldest of too many."""
        aged = sorted((-file.stat().st_mtime, file) for file in self.folder.glob("*.json.gz"))
        for number, (negative_s, file) in enumerate(aged):
            if number >= MOST_FILES or time.time() + negative_s >= HOLDS_S:
                file.unlink(missing_ok=True)


def _without_listing(result: Result) -> Result:
    return replace(result, listing="") if isinstance(result, Artifact) else result


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _write(file: Path, content: bytes) -> None:
    """Whole or not at all: other runs read it at any time."""
    handle, name = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
        Path(name).replace(file)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
