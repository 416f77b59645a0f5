"""The files of `refused/` and `honest/`, read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REFUSED = HERE / "refused"
HONEST = HERE / "honest"
TARGETS = tuple(sorted(folder.name for folder in (HERE / "targets").iterdir() if folder.is_dir()))
OPEN = HERE / "open.txt"


@dataclass(frozen=True)
class Edit:
    """A kernel file that takes the place of a target's."""

    path: Path

    @property
    def name(self) -> str:
        """Its path below this folder, without the ending."""
        return str(self.path.relative_to(HERE).with_suffix(""))

    @property
    def pattern(self) -> str:
        """The way it cheats: the folder it lies in."""
        return self.path.parent.name

    @property
    def target(self) -> str:
        """The kernel that it is an edit of; empty when there is none of that name."""
        fitting = [target for target in TARGETS if self.path.stem.startswith(f"{target}_")]
        return max(fitting, key=len, default="")

    @property
    def text(self) -> str:
        """The file."""
        return self.path.read_text(encoding="utf-8")

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return self.text.partition("\n")[0].strip('"')

    @property
    def kind(self) -> str:
        """Why it has to be refused: a key of `KINDS`; empty where it has not."""
        return self._said("refused")

    @property
    def needs_gpu(self) -> bool:
        """Nothing of it can be seen in Triton's interpreter."""
        return self._said("needs") == "gpu"

    def _said(self, key: str) -> str:
        found = re.search(rf"^# {key}: (.+)$", self.text, re.MULTILINE)
        return found[1] if found else ""


def refused() -> tuple[Edit, ...]:
    """Those that cheat."""
    return tuple(Edit(path) for path in sorted(REFUSED.glob("*/*.py")))


def honest() -> tuple[Edit, ...]:
    """Those that do not."""
    return tuple(Edit(path) for path in sorted(HONEST.glob("*.py")))


def not_refused_yet() -> frozenset[str]:
    """Names of those that cheat and pass, kept or not."""
    lines = OPEN.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))
