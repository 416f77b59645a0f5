"""Where captured tests go, and which kernel they are of."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from agent.capture.files import CaptureFiles
from agent.captured_import import takes

ADDED = 'sys.path.insert(0, str((Path(__file__).parent / "../models/llama").resolve()))\n'
LLAMA, BLOOM = PurePosixPath("models/llama/rotary.py"), PurePosixPath("models/bloom/rotary.py")


@pytest.mark.parametrize(
    ("text", "llama", "bloom"),
    [
        ("from models.llama.rotary import rotate", True, False),
        ("from llama.rotary import rotate", True, False),
        (f"{ADDED}from rotary import rotate", True, False),
        ("from rotary import rotate", True, True),  # either
        ("import pytest", True, True),
    ],
)
def test_whose_tests_they_are(text: str, llama: bool, bloom: bool) -> None:
    test = PurePosixPath("tests/test_rotary_captured.py")
    below = PurePosixPath("models/llama/old/rotary.py")
    assert takes(text, test, below) == (llama and bloom)
    assert (takes(text, test, LLAMA), takes(text, test, BLOOM)) == (llama, bloom)


def test_kernels_of_one_name_have_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "tests").mkdir()
    llama, bloom = (tmp_path / path for path in (LLAMA, BLOOM))
    for kernel in (llama, bloom):
        kernel.parent.mkdir(parents=True)
        kernel.touch()
    first = CaptureFiles.of(llama)
    assert first.test == tmp_path / "tests/test_rotary_captured.py"
    first.test.write_text("from models.llama.rotary import rotate\n")
    assert CaptureFiles.of(llama) == first
    second = CaptureFiles.of(bloom)
    assert second.test == tmp_path / "tests/test_bloom_rotary_captured.py"
    assert second.origin == tmp_path / "tests/bloom_rotary_origin.py"
    second.test.write_text("from another.bloom.rotary import rotate\n")
    assert CaptureFiles.of(bloom).test == tmp_path / "tests/test_models_bloom_rotary_captured.py"
    assert CaptureFiles.of(bloom, tmp_path / "test_x.py").test == tmp_path / "test_x.py"


def test_they_lie_among_the_tests_of_the_project_or_of_the_repository(tmp_path: Path) -> None:
    """flash-attention's package has a pyproject.toml of its own, and its tests lie beside it."""
    package = tmp_path / "repo" / "package"
    (package / "ops").mkdir(parents=True)
    (package / "pyproject.toml").touch()
    (kernel := package / "ops" / "rotary.py").write_text("")
    (tmp_path / "tests").mkdir()  # of another project, around the repository
    (tmp_path / "repo" / ".git").mkdir()
    assert CaptureFiles.of(kernel).test.parent == package / "ops"
    (tmp_path / "repo" / "tests").mkdir()
    assert CaptureFiles.of(kernel).test.parent == tmp_path / "repo" / "tests"
    (package / "test").mkdir()
    assert CaptureFiles.of(kernel).test.parent == package / "test"


def test_without_a_repository_no_project_around_this_one_is_asked(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").touch()
    project = tmp_path / "project"
    (project / "ops").mkdir(parents=True)
    (project / "pyproject.toml").touch()
    (kernel := project / "ops" / "rotary.py").write_text("")
    assert CaptureFiles.of(kernel).test.parent == project / "ops"
    (project / "tests").mkdir()
    assert CaptureFiles.of(kernel).test.parent == project / "tests"


def test_beside_the_kernel_they_leave_a_conftest_behind(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ops").mkdir()
    (tmp_path / "tests").mkdir()
    (kernel := tmp_path / "ops" / "rotary.py").write_text("")
    places = CaptureFiles.of(kernel)
    assert CaptureFiles.beside(kernel, places) is None
    (tmp_path / "conftest.py").touch()  # of both
    assert CaptureFiles.beside(kernel, places) is None
    (tmp_path / "tests" / "conftest.py").touch()
    found = CaptureFiles.beside(kernel, places)
    assert found is not None and found.test == tmp_path / "ops" / places.test.name
    found.origin.touch()
    assert CaptureFiles.beside(kernel, places) is None
