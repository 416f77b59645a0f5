"""Where captured tests of a kernel go."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agent.captured_import import takes
from agent.importers import module_of
from agent.target import CAPTURED


@dataclass(frozen=True)
class CaptureFiles:
    """The files of a kernel's captured tests."""

    test: Path
    origin: Path
    """The kernel's file as it is, to compare with."""
    values: Path
    """Integer tensors, as safetensors; not always there."""

    @classmethod
    def of(cls, kernel: Path, test: Path | None = None) -> CaptureFiles:
        """The test file, or test_<kernel>_captured.py among the tests or beside the kernel.

        Where that is another kernel's of the same name, as `rotary_emb.py` of a second model, the
        folders above it tell them apart.
        """
        if test is not None:
            return cls._called(module_of(str(kernel)).name, test)
        folder = _folder(kernel)
        for stem in _stems(kernel):
            found = cls._called(stem, folder / f"test_{stem}{CAPTURED}")
            if not found.test.is_file():
                break
            text = found.test.read_text(encoding="utf-8", errors="replace")
            if takes(text, PurePosixPath(found.test.resolve()), PurePosixPath(kernel.resolve())):
                break
        return found

    @classmethod
    def beside(cls, kernel: Path, places: CaptureFiles) -> CaptureFiles | None:
        """Beside the kernel in place of `places`; None where no `conftest.py` is left behind so."""
        here = kernel.resolve().parent
        moved = cls(*(here / path.name for path in (places.test, places.origin, places.values)))
        return moved if moved.left_behind(places) and moved.existing() is None else None

    def left_behind(self, others: CaptureFiles) -> set[Path]:
        """The folders of each `conftest.py` that is for the other test file, and not for this."""
        mine, theirs = (set(_conftests(each.test.resolve().parent)) for each in (self, others))
        return {path.parent for path in theirs - mine}

    @classmethod
    def _called(cls, stem: str, test: Path) -> CaptureFiles:
        return cls(test, test.with_name(f"{stem}_origin.py"), test.with_suffix(".safetensors"))

    def existing(self) -> Path | None:
        """The first of them that is there already."""
        every = (self.test, self.origin, self.values)
        return next((path for path in every if os.path.lexists(path)), None)


def _conftests(folder: Path) -> Iterator[Path]:
    """Those that pytest imports for tests of a folder, up to the repository's root."""
    for place in (folder, *folder.parents):
        if (found := place / "conftest.py").is_file():
            yield found
        if (place / ".git").exists():
            return


def _stems(kernel: Path) -> Iterator[str]:
    """The file's name, then with those of more and more folders before it."""
    stem = module_of(str(kernel)).name
    yield stem
    place = kernel.resolve().parent
    for folder in (place, *place.parents):
        if not folder.name or (folder / ".git").exists():
            return
        stem = f"{re.sub(r'[^0-9A-Za-z]', '_', folder.name)}_{stem}"
        yield stem


def _folder(kernel: Path) -> Path:
    """The folder `tests` or `test` of the project, or of those around it in the same repository,
    where there is one, or that of the kernel."""
    parents = kernel.resolve().parents
    root = next((folder for folder in parents if (folder / ".git").exists()), None)
    for folder in parents:
        is_root = folder == root
        if is_root or (folder / "pyproject.toml").exists():
            is_root |= root is None
            for tests in (folder / "tests", folder / "test"):
                if tests.is_dir() and not tests.is_symlink():
                    return tests
        if is_root:
            break
    return kernel.parent
