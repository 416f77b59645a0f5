"""Which Triton is installed, and what its Tile IR backend needs; nothing is imported for it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from importlib import metadata
from pathlib import Path

DISTRIBUTIONS = ("triton", "pytorch-triton", "nvtriton", "triton-tileir")
"""What brings `import triton`: PyPI's, that of PyTorch's own index, and two names of the backend's
wheels."""
PLACEHOLDER = ("nvtriton", "0.0.0a0")


def installed() -> dict[str, str | None]:
    """Triton's folder, its version, that of nvtriton, and the Tile IR backend with its tools.

    The distribution says little: `nvtriton` on PyPI is an empty placeholder, and the real wheel may
    be installed under no distribution of Triton's name. What counts is the backend's folder.
    """
    folder = _folder("triton")
    backend = _backend(folder)
    compiler = _compiler(backend)
    return {
        "triton": str(folder) if folder else None,
        "version": _version("triton") or _version("pytorch-triton"),
        "distributions": ", ".join(_distributions(folder)) or None,
        "nvtriton": _version("nvtriton"),
        "backend": str(backend) if backend else None,
        "compiler": str(compiler) if compiler else None,
        **{name: str(place) if place else None for name, place in _tools(compiler).items()},
    }


def _folder(package: str) -> Path | None:
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = list(found.submodule_search_locations or []) if found else []
    return Path(places[0]) if places else None


def _backend(triton: Path | None) -> Path | None:
    """In Triton's own folder, or where an entry point says."""
    if triton is not None and (triton / "backends" / "tileir" / "compiler.py").is_file():
        return triton / "backends" / "tileir"
    for entry in metadata.entry_points(group="triton.backends", name="tileir"):
        package, _, rest = entry.value.partition(".")
        parent = _folder(package)  # a subpackage could be found by importing its parents only
        place = parent.joinpath(*rest.split(".")) if parent and rest else parent
        if place is not None and (place / "compiler.py").is_file():
            return place
    return None


def _compiler(backend: Path | None) -> Path | None:
    """The tileiras that the backend would run: as told, its own, CUDA_HOME's, then PATH's."""
    folders = [os.environ.get("TRITON_TILEIRAS_PATH"), backend and backend / "bin"]
    folders.append(os.environ.get("CUDA_HOME") and Path(os.environ["CUDA_HOME"]) / "bin")
    places = [Path(folder) / "tileiras" for folder in folders if folder]
    if on_path := shutil.which("tileiras"):
        places.append(Path(on_path))
    return next((place for place in places if os.access(place, os.X_OK)), None)


def _tools(compiler: Path | None) -> dict[str, Path | None]:
    """What tileiras runs and loads: ptxas, and libnvvm where toolkits and wheels have it."""
    roots = [compiler.resolve().parent.parent] if compiler else []
    if home := os.environ.get("CUDA_HOME"):
        roots.append(Path(home))
    on_path = shutil.which("ptxas")
    assemblers = [
        *(root / "bin" / "ptxas" for root in roots),
        *([Path(on_path)] if on_path else []),
    ]
    libraries = [
        library
        for root in roots
        for folder in ("nvvm/lib64", "nvvm/lib", "lib64", "lib", "bin")
        for library in sorted((root / folder).glob("libnvvm.so*"))
    ]
    return {
        "ptxas": next((place for place in assemblers if os.access(place, os.X_OK)), None),
        "libnvvm": next(iter(libraries), None),
    }


def _distributions(triton: Path | None) -> list[str]:
    """Those beside Triton's folder that write into it; a `--target` folder has its own."""
    if triton is None:
        return []
    found = {
        name: each.version
        for name in DISTRIBUTIONS  # asked for by name: reading every METADATA takes 0.2 s
        for each in metadata.distributions(name=name, path=[str(triton.parent)])
    }
    return [
        f"{name} {found[name]}"
        for name in DISTRIBUTIONS
        if name in found and (name, found[name]) != PLACEHOLDER
    ]


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
