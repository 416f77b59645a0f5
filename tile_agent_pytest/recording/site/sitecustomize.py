"""Switches a recorder on, then does what the `sitecustomize` does that this one hides."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent
_PACKAGE = "tile_agent_pytest"


def _load_package() -> None:
    """From its folder: the interpreter of the command need not have tile-agent installed."""
    folder = _HERE.parents[1]
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} holds no package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = module
    spec.loader.exec_module(module)


class _Last(importlib.abc.MetaPathFinder):
    """Finds what nobody else does: modules of the project, for a script in one of its folders.

    No folder without a package in it but the kernel's: a script may ask whether `wandb` is there,
    and the project have a folder of that name.
    """

    def __init__(self, places: list[str], kernel: str) -> None:
        self._places = places
        self._above = {str(folder) for folder in Path(kernel).parents} if kernel else set[str]()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - asked of all finders
    ) -> importlib.machinery.ModuleSpec | None:
        """A module or package at the top; what is in a package, that says itself."""
        if path is not None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, self._places)
        if spec is None or spec.origin is not None:
            return spec
        return spec if self._above.intersection(spec.submodule_search_locations or ()) else None


def _go_on() -> None:
    """Run the next `sitecustomize` of the path, where there is one."""
    places = [place for place in sys.path if Path(place).resolve() != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("TILE_AGENT_RECORDER"):
    _load_package()
    _setting = json.loads(os.environ["TILE_AGENT_RECORDER"])
    sys.meta_path.append(_Last(_setting["also_on_path"], _setting.get("kernel", "")))
    importlib.import_module(_setting["module"]).install(_setting)
_go_on()
