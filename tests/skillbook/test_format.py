"""A SKILL.md against the format of https://agentskills.io/specification."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.skillbook.format import read

GOOD = """\
---
name: pdf-tables
description: "Reads tables: from PDF files."
license: Apache-2.0
compatibility: Needs poppler
metadata:
  version: "1.0"
allowed-tools:
  - Bash(git:*)
---

# Read
"""


def problems(folder: Path, text: str | bytes, name: str = "pdf-tables") -> list[str]:
    file = folder / name / "SKILL.md"
    file.parent.mkdir()
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return [f"{p.line}: {p.message}" for p in read(file)[1]]


def test_every_field_is_read(tmp_path: Path) -> None:
    assert problems(tmp_path, GOOD) == []
    fields, _ = read(tmp_path / "pdf-tables" / "SKILL.md")
    assert fields["description"] == "Reads tables: from PDF files."
    assert fields["metadata"] == {"version": "1.0"}
    assert fields["allowed-tools"] == ["Bash(git:*)"]


def test_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    assert problems(tmp_path, GOOD.replace("\n", "\r\n")) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: pdf-tables\n", "", "1: name is None"),
        ("name: pdf-tables", "name: PDF-tables", "1: name is 'PDF-tables'"),
        ("name: pdf-tables", "name: pdf--tables", "1: name is 'pdf--tables'"),
        ("name: pdf-tables", "name: -pdf", "1: name is '-pdf'"),
        ("name: pdf-tables", "name: 7", "1: name is 7"),
        ("name: pdf-tables", "name: pdf", "1: name is 'pdf' and its folder 'pdf-tables'"),
        ('"Reads tables: from PDF files."', '" "', "1: description must be a text"),
        ('"Reads tables: from PDF files."', "x" * 1025, "1: description has 1025 characters, 1024"),
        ('"Reads tables: from PDF files."', "Reads: tables", "3: not YAML: mapping values"),
        ("Needs poppler", "x" * 501, "1: compatibility has 501 characters, 500"),
        ("Apache-2.0", "", "1: license must be a text"),
        ('"1.0"', "1.0", "1: metadata must map strings to strings"),
        ("  - Bash(git:*)", "  - 3", "1: allowed-tools must be a string"),
        ("license:", "version:", "1: 'version' is no field of the format"),
        ("---\nname", "name", "1: no front matter"),
        ("# Read\n", "", "10: no instructions"),
        ("# Read\n", "x\n" * 490, "501: 501 lines; keep it below 500"),
    ],
)
def test_what_the_format_forbids(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    (found,) = problems(tmp_path, GOOD.replace(old, new, 1))
    assert found.startswith(message)


def test_the_longest_values_are_allowed(tmp_path: Path) -> None:
    name = "a" * 64
    text = GOOD.replace("pdf-tables", name).replace('"Reads tables: from PDF files."', "x" * 1024)
    assert problems(tmp_path, text.replace("Needs poppler", "x" * 500), name) == []
    (found,) = problems(tmp_path, GOOD.replace("pdf-tables", "a" * 65), "a" * 65)
    assert found == "1: name has 65 characters, 64 at most"


@pytest.mark.parametrize("text", ["---\n- a\n---\nx\n", "---\n---\nx\n", "---\nword\n---\nx\n"])
def test_front_matter_that_is_no_mapping(tmp_path: Path, text: str) -> None:
    (found,) = problems(tmp_path, text)
    assert found == "2: the front matter is not a mapping of fields"


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    (found,) = read(tmp_path / "SKILL.md")[1]
    assert found.message == "there is no SKILL.md"
    assert problems(tmp_path, b"---\nname: \xff\n---\nx\n") == [
        "1: not UTF-8: invalid start byte at byte 10"
    ]


def test_front_matter_cannot_run_code(tmp_path: Path) -> None:
    text = GOOD.replace("Apache-2.0", "!!python/object/apply:os.getcwd []")
    (found,) = problems(tmp_path, text)
    assert found.startswith("4: not YAML: could not determine a constructor")
