"""The front matter of a SKILL.md, held against https://agentskills.io/specification."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILE = "SKILL.md"
FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1024
LONGEST_COMPATIBILITY = 500
MOST_LINES = 500
"""Assistants load the whole file; the specification asks to keep it below this."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FENCE = "---"


@dataclass(frozen=True)
class Problem:
    """Something wrong with a skill, and where."""

    file: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


def read(file: Path) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """The fields of a SKILL.md as they were parsed, and what is wrong with the file."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}, (Problem(file, 1, f"there is no {FILE}"),)
    except UnicodeDecodeError as problem:
        return {}, (Problem(file, 1, f"not UTF-8: {problem.reason} at byte {problem.start}"),)
    lines = text.splitlines()
    if not lines or lines[0] != _FENCE or _FENCE not in lines[1:]:
        return {}, (Problem(file, 1, "no front matter: YAML between two lines of ---"),)
    end = lines.index(_FENCE, 1)
    try:
        fields = yaml.safe_load("\n".join(lines[1:end]))
    except yaml.MarkedYAMLError as problem:
        line = problem.problem_mark.line + 2 if problem.problem_mark else 1
        return {}, (Problem(file, line, f"not YAML: {problem.problem}; quote the value?"),)
    except yaml.YAMLError as problem:
        return {}, (Problem(file, 1, f"not YAML: {problem}"),)
    if not isinstance(fields, dict):
        return {}, (Problem(file, 2, "the front matter is not a mapping of fields"),)
    found = [Problem(file, 1, message) for message in _wrong(fields, file.parent.resolve().name)]
    if not any(line.strip() for line in lines[end + 1 :]):
        found.append(Problem(file, end + 1, "no instructions follow the front matter"))
    if len(lines) >= MOST_LINES:
        found.append(
            Problem(file, len(lines), f"{len(lines)} lines; keep it below {MOST_LINES}, and the "
                    "rest in references/")
        )  # fmt: skip
    return fields, tuple(found)


def _wrong(fields: dict[Any, Any], folder: str) -> Iterator[str]:
    """What the specification forbids, a line each."""
    for key in fields.keys() - set(FIELDS):
        yield f"{key!r} is no field of the format: {', '.join(FIELDS)}; put it under metadata"
    yield from _wrong_name(fields.get("name"), folder)
    yield from _wrong_text(fields, "description", LONGEST_DESCRIPTION, required=True)
    yield from _wrong_text(fields, "license", None)
    yield from _wrong_text(fields, "compatibility", LONGEST_COMPATIBILITY)
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(
        isinstance(part, str) for pair in metadata.items() for part in pair
    ):
        yield 'metadata must map strings to strings; quote numbers: version: "1.0"'
    tools = fields.get("allowed-tools", "")
    listed = tools if isinstance(tools, list) else [tools]
    if not all(isinstance(tool, str) for tool in listed):
        yield "allowed-tools must be a string of names with spaces between, or a list of strings"


def _wrong_name(name: Any, folder: str) -> Iterator[str]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield f"name is {name!r}: lower-case letters, digits and single hyphens between them"
        return
    if len(name) > LONGEST_NAME:
        yield f"name has {len(name)} characters, {LONGEST_NAME} at most"
    if name != folder:
        yield f"name is {name!r} and its folder {folder!r}: they must be the same"


def _wrong_text(
    fields: dict[Any, Any], key: str, longest: int | None, *, required: bool = False
) -> Iterator[str]:
    if key not in fields and not required:
        return
    value = fields.get(key)
    if not isinstance(value, str) or not value.strip():
        yield f"{key} must be a text that is not empty"
    elif longest is not None and len(value) > longest:
        yield f"{key} has {len(value)} characters, {longest} at most"
