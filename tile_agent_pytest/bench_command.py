"""What `--bench` names: a benchmark script with its arguments, or a report in it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

OPTION = "--tile-bench-script"
_PYTHON = re.compile(r"python[\d.]*")
_NOT_A_SCRIPT = "is no Python script: give 'python FILE [ARGUMENTS]' or 'FILE::REPORT'"


@dataclass(frozen=True)
class BenchCommand:
    """What `--bench` names."""

    path: str
    """The script, relative to the root of the checkout."""
    arguments: tuple[str, ...] = ()
    report: str = ""
    """Name of a function under `perf_report`, which is run in place of the script's `__main__`."""

    @classmethod
    def parse(cls, text: str) -> BenchCommand:
        """From 'python FILE [ARGUMENTS]', 'FILE [ARGUMENTS]' or 'FILE::REPORT'.

        Raises:
            ValueError: it is something else; the message says so, without the text.
        """
        try:
            words = shlex.split(text)
        except ValueError as problem:
            raise ValueError(f"cannot be split into words ({problem})") from None
        if words and _PYTHON.fullmatch(PurePosixPath(words[0]).name):
            del words[0]
        if not words:
            raise ValueError(_NOT_A_SCRIPT)
        path, colons, report = words[0].partition("::")
        if not path.endswith(".py") or (colons and not report.isidentifier()):
            raise ValueError(_NOT_A_SCRIPT)
        if report and len(words) > 1:
            raise ValueError("names a report, which takes no arguments")
        return cls(path, tuple(words[1:]), report)

    def __str__(self) -> str:
        if self.report:
            return f"{self.path}::{self.report}"
        return shlex.join([self.path, *self.arguments])

    @property
    def name(self) -> str:
        """What its configs are called after."""
        file = PurePosixPath(self.path).name
        return self.report or shlex.join([file, *self.arguments])

    @property
    def nodeid(self) -> str:
        """Of its item."""
        return f"{self.path}::{self.name}"
