"""What the packages import is what pyproject.toml declares: nothing more, and nothing less."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("agent", "tile_agent_pytest")
TOOLS = ("dev", "docs")
"""The extras that the packages do not import."""
PROGRAMS = {"nvidia-cuda-nvcc", "nvidia-cuda-tileiras", "nvidia-nvvm"}
"""What no Python imports: cuda.tile's compiler, and what that runs and loads."""
BY_NAME = ("import_module", "__import__")


def imported() -> set[str]:
    """The modules of others that the packages import, by any means, as their top-level names."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            found |= {name.partition(".")[0] for name in names_in(ast.parse(path.read_text()))}
    return found - set(sys.stdlib_module_names) - {*PACKAGES, ""}


def names_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield module
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called),
                args=[ast.Constant(value=str(name)), *_],
            ) if called in BY_NAME:
                yield name


def declared() -> set[str]:
    """The distributions that pyproject.toml names, but for those of the tools."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lists = [project["dependencies"], *(extras[name] for name in extras if name not in TOOLS)]
    lines = (line for requirements in lists for line in requirements)
    return {normal(re.split(r"[^\w.-]", line)[0]) for line in lines}


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_what_is_imported_is_what_is_declared() -> None:
    provided = importlib.metadata.packages_distributions()
    # A package that is not installed here, as Ray may be, is taken to be called like its module.
    origins = {name: {normal(each) for each in provided.get(name, [name])} for name in imported()}
    assert {name for name, by in origins.items() if not by & declared()} == set()
    used = set().union(*origins.values())
    assert declared() - used == PROGRAMS
