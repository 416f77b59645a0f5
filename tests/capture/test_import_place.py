"""By which name a captured test imports a file that a command has found."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from agent.capture.import_place import ImportPlace
from agent.captured_import import loaded_file, takes

ROOT = Path("/project")
OPS = ROOT / "shop/ops"
RELATIVE = "import torch\nfrom .helpers import rows\n"


@pytest.mark.parametrize(
    ("recorded", "file", "text", "place"),
    [
        ("shop.ops.scale", "scale.py", RELATIVE, ImportPlace("shop.ops.scale")),
        ("ops.scale", "scale.py", "", ImportPlace("ops.scale", ROOT / "shop")),
        ("made_up", "scale.py", "", ImportPlace("scale", OPS)),
        # its neighbours are found from where it lies in its package alone
        ("made_up", "scale.py", RELATIVE, ImportPlace("shop.ops.scale")),
        ("fake.scale", "scale.py", RELATIVE, ImportPlace("shop.ops.scale")),
        # no statement can name it, or one would name another file
        ("made_up", "01-scale.py", "", ImportPlace("made_up", file=OPS / "01-scale.py")),
        ("made_up", "random.py", "", ImportPlace("made_up", file=OPS / "random.py")),
        ("triton", "triton.py", "", ImportPlace("triton", file=OPS / "triton.py")),
        ("shop.ops.random", "random.py", "", ImportPlace("shop.ops.random")),
        ("shop.ops.01-scale", "01-scale.py", "", ImportPlace("shop.ops.01-scale")),
    ],
)
def test_how_a_file_is_imported(recorded: str, file: str, text: str, place: ImportPlace) -> None:
    assert ImportPlace.of(recorded, OPS / file, text, [ROOT]) == place


def test_a_file_in_a_folder_of_its_own_name_is_loaded_by_its_path() -> None:
    """pytest puts the folder on `sys.path`, and a module there goes before a namespace."""
    file = ROOT / "scale/scale.py"
    place = ImportPlace.of("scale.scale", file, "", [ROOT], is_shadowed=True)
    assert place == ImportPlace("scale.scale", file=file)
    assert ImportPlace.of("scale", file, "", [ROOT], is_shadowed=True) == ImportPlace(
        "scale", ROOT / "scale"
    )


def test_whose_tests_they_are_that_load_a_file_by_its_path() -> None:
    text = 'captured = load("made_up", "../ops/01-scale.py")\n'
    test = PurePosixPath("tests/test_01-scale_captured.py")
    kernel = PurePosixPath("ops/01-scale.py")
    assert loaded_file(text, test) == kernel
    assert takes(text, test, kernel)
    assert not takes(text, test, PurePosixPath("old/01-scale.py"))
