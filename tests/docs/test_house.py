"""ARCHITECTURE.md names the rooms and the layers that there are."""

from __future__ import annotations

from pathlib import Path

from tests.support.pages import ROOT, SPAN, blocks, rows

PAGE = ROOT / "ARCHITECTURE.md"


def test_the_house_has_these_rooms() -> None:
    listed = [path for row in rows(PAGE, "path") for path in SPAN.findall(row[0])]
    assert len(listed) > 20
    assert [path for path in listed if not (ROOT / path).exists()] == []
    modules = {p for p in (ROOT / "agent").glob("*") if p.suffix == ".py" or is_package(p)}
    shown = {ROOT / path for path in listed}
    assert {p.name for p in modules - shown} <= {"__init__.py", "__main__.py"}


def is_package(path: Path) -> bool:
    return (path / "__init__.py").exists()


def test_the_layers_are_those_that_hold() -> None:
    """`tests/test_architecture.py` holds the code to them."""
    from tests.test_architecture import TIERS

    (block,) = blocks(PAGE, "layers")
    layers = [line.split() for line in block.splitlines()]
    held = [line.split() for line in TIERS.strip().splitlines()]
    assert layers == [line for line in held if line != ["__main__"]]
