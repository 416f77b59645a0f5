"""Folders in which workers find what earlier ones over the same text of a kernel have kept."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.environment import VISIBLE_GPUS

CACHES = {
    "TRITON_CACHE_DIR": "triton",
    "CUDA_TILE_CACHE_DIR": "cutile",
    "CUDA_CACHE_PATH": "cuda",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "CUPY_CACHE_DIR": "cupy",
    "FLAGGEMS_CACHE_DIR": "flaggems",
    "NUMBA_CACHE_DIR": "numba",
    "MPLCONFIGDIR": "matplotlib",
    "HYPOTHESIS_STORAGE_DIRECTORY": "hypothesis",
    "COVERAGE_FILE": "coverage",
    "XDG_CACHE_HOME": "others",
}
"""What packages keep from process to process: for each text of the kernel by itself, so that no
candidate fills what the incumbent reads."""


_TUNED = "tuned"


@dataclass(frozen=True)
class KeptFolders:
    """Those of one text of a kernel, compiled as one set of variables says."""

    tuned: Path
    """What its tuners chose."""
    caches: Path

    @classmethod
    def of(cls, logs: Path, kernel: Path, environment: Mapping[str, str]) -> KeptFolders:
        """Named by the text: a kept candidate is another commit, and the same code.

        Args:
            logs: folder of the workers' logs, below which they lie.
            kernel: the kernel's file.
            environment: what the workers were told; it may choose the compiler. Which GPU they see
                does not: all of a run are of one model.
        """
        chosen = {name: value for name, value in environment.items() if name != VISIBLE_GPUS}
        told = json.dumps(chosen, sort_keys=True).encode()
        digest = hashlib.sha256(told + kernel.read_bytes()).hexdigest()[:16]
        return cls(logs / _TUNED / digest, logs / "caches" / digest)

    @property
    def first_tuned(self) -> Path:
        """The same as `tuned` of the text that was asked about first: a run begins with its origin.

        Which one that is lies beside them, for a run that goes on.
        """
        note = self.tuned.parent.with_suffix(".first")
        if not note.exists():  # others may ask, too, and we may be killed here
            note.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=note.parent, encoding="utf-8") as file:
                file.write(self.tuned.name)
                file.flush()
                try:
                    os.link(file.name, note)
                except FileExistsError:
                    pass
                except OSError:  # a file system without such links
                    note.write_text(self.tuned.name, encoding="utf-8")
        return self.tuned.parent / note.read_text(encoding="utf-8")

    def variables(self) -> dict[str, str]:
        """What tells the packages where to keep theirs."""
        return {name: str(self.caches / below) for name, below in CACHES.items()}
