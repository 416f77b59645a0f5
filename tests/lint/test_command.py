"""`tile-agent lint`: its output and exit codes."""

from __future__ import annotations

from pathlib import Path

from agent.errors import ExitCode
from agent.lint import CHECKS
from agent.lint.reference import rules_as_markdown
from tests.support import project

BAD = """\
import cuda.tile as ct


@ct.kernel
def copy(x, y, unused, size: ct.Constant[int]):
    t = ct.load(x, (ct.bid(0) * size,), (size,))
    ct.store(y, (ct.bid(0),), t)
"""
CLEAN = BAD.replace(" unused,", "").replace(" * size", "")
ERRORS = 3


def write(folder: Path, text: str) -> str:
    (folder / "copy_kernel.py").write_text(text, encoding="utf-8")
    return "copy_kernel.py"


def test_errors_are_shown_with_their_lines(tmp_path: Path) -> None:
    end = project.tile_agent(tmp_path, "lint", "--kernel", write(tmp_path, BAD))
    assert end.code == ERRORS, end.err
    assert "copy_kernel.py:6: error CT201 element-offset: `ct.bid(0) * size`" in end.out
    assert "copy_kernel.py:5: note CT302 dead-parameter: copy does not use" in end.out
    assert end.out.endswith("copy_kernel.py: 1 error, 0 warnings, 1 note\n")


def test_json(tmp_path: Path) -> None:
    end = project.tile_agent(tmp_path, "lint", "--json", "--kernel", write(tmp_path, BAD))
    assert end.code == ERRORS
    assert end.json["kernels"] == ["copy"]
    assert end.json["counts"] == {"error": 1, "warning": 0, "note": 1}
    assert end.json["suppressed"] == 0
    assert [(f["code"], f["line"]) for f in end.json["findings"]] == [("CT302", 5), ("CT201", 6)]
    assert all(f["message"] and f["mend"] and f["name"] for f in end.json["findings"])


def test_a_clean_file(tmp_path: Path) -> None:
    end = project.tile_agent(tmp_path, "lint", "--kernel", write(tmp_path, CLEAN))
    assert (end.code, end.out) == (0, "copy_kernel.py: 0 errors, 0 warnings, 0 notes\n")


def test_a_silenced_file_says_so(tmp_path: Path) -> None:
    text = BAD.replace("(size,))\n", "(size,))  # noqa: CT201\n").replace(" unused,", "")
    end = project.tile_agent(tmp_path, "lint", "--kernel", write(tmp_path, text))
    assert (end.code, end.out) == (0, "copy_kernel.py: 0 errors, 0 warnings, 0 notes, 1 silenced\n")


def test_triton_is_refused(tmp_path: Path) -> None:
    name = write(tmp_path, project.KERNEL)
    end = project.tile_agent(tmp_path, "lint", "--kernel", name)
    said = f"lint checks cuTile kernels, and {name} holds triton's: name a file with @ct.kernel"
    assert (end.code, end.out, end.err) == (ExitCode.USAGE, "", f"tile-agent: {said}\n")
    end = project.tile_agent(tmp_path, "lint", "--json", "--kernel", name)
    assert end.json == {"error": said, "exit_code": 2}


def test_kernels_of_a_module_with_a_wrong_name(tmp_path: Path) -> None:
    """There are none, and that is what is to be said."""
    name = write(tmp_path, CLEAN.replace("import cuda.tile as ct", "import cutile as ct"))
    end = project.tile_agent(tmp_path, "lint", "--kernel", name)
    assert end.code == ERRORS, end.err
    assert f"{name}:1: error CT014 wrong-module: there is no module `cutile`" in end.out
    end = project.tile_agent(tmp_path, "lint", "--json", "--kernel", name)
    assert (end.json["backend"], end.json["kernels"]) == ("cutile", [])


def test_the_rules(tmp_path: Path) -> None:
    assert project.tile_agent(tmp_path, "lint", "--rules").out == rules_as_markdown()
    listed = project.tile_agent(tmp_path, "lint", "--rules", "--json").json["rules"]
    assert [rule["code"] for rule in listed] == [check.code for check in CHECKS]


def test_bad_input(tmp_path: Path) -> None:
    for arguments, saying in (
        ((), "give --kernel"),
        (("--kernel", "nothing.py"), "no such file"),
        (("--kernel", write(tmp_path, "def f(:\n")), "mend the syntax"),
    ):
        end = project.tile_agent(tmp_path, "lint", *arguments)
        assert end.code == ExitCode.USAGE
        assert saying in end.err
        assert end.out == ""
