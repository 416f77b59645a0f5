"""What the documentation names exists: commands, options, links, layers, entries, exit codes."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agent.errors import ExitCode
from agent.playbook import PLAYBOOK

ROOT = Path(__file__).resolve().parents[1]
SKILLS = ROOT / "agent" / "skills"
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES = [
    *GUIDES,
    ROOT / "ARCHITECTURE.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
GROUPS = ("playbook", "skill", "tileir")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ROW = re.compile(r"^\| *(.+?) *\|$", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, *languages: str) -> list[str]:
    """The fenced code blocks of a page in some languages."""
    found = _FENCE.findall(path.read_text(encoding="utf-8"))
    return [body for language, body in found if language in languages]


def prose(path: Path) -> str:
    """A page without its fenced code."""
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def rows(path: Path, first: str) -> list[list[str]]:
    """The rows of every table whose first column is called so."""
    found: list[list[str]] = []
    for table in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
        cells = [re.split(r" *(?<!\\)\| *", row) for row in _ROW.findall(table)]
        if cells and cells[0][0] == first:
            found += cells[2:]
    return found


# --- commands -----------------------------------------------------------------------------------


def commands(path: Path) -> list[str]:
    """Every call of tile-agent on a page: a line of a shell block, or inline code."""
    lines = [
        line.removeprefix("$ ")
        for block in blocks(path, "sh", "console")
        for line in block.splitlines()
    ]
    calls = [*lines, *_SPAN.findall(prose(path))]
    found = [re.sub(r"^(\S*/)?tile-agent ", "", call) for call in calls if is_call(call)]
    return list(dict.fromkeys(found))


def is_call(line: str) -> bool:
    return re.match(r"(\S*/)?tile-agent \S", line) is not None


def words(call: str) -> tuple[str, list[str]]:
    """The command of a call and its options."""
    given = shlex.split(call.split(" > ")[0].split(" 2> ")[0], comments=True)
    length = 2 if given[0] in GROUPS else 1
    return " ".join(given[:length]), [word for word in given[length:] if word.startswith("-")]


@cache
def options(command: str) -> frozenset[str]:
    """The options that a command's own help lists."""
    done = subprocess.run(
        [sys.executable, "-m", "agent", *command.split(), "--help"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "300", "TERMINAL_WIDTH": "300", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"tile-agent {command}: {done.stderr}"
    return frozenset(_OPTION.findall(done.stdout))


@cache
def names_of_commands(group: str = "") -> frozenset[str]:
    """The commands that the help of tile-agent, or of a group, lists."""
    from typer.main import get_command

    from agent.cli.main import app

    command = get_command(app)
    for part in group.split():
        command = command.commands[part]  # type: ignore[attr-defined]
    return frozenset(command.commands)  # type: ignore[attr-defined]


CALLS = [pytest.param(c, id=f"{name(p)}: {c}") for p in GUIDES for c in commands(p)]


def test_the_guides_call_tile_agent() -> None:
    assert all(commands(path) for path in GUIDES)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_exists(call: str) -> None:
    command, given = words(call)
    assert set(given) <= options(command)


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_an_option_in_the_text_is_one_of_some_command(path: Path) -> None:
    known = frozenset[str]().union(*(options(c) for c in leaf_commands()))
    named = {_OPTION.match(s) for s in _SPAN.findall(prose(path)) if s.startswith("--")}
    assert {found.group() for found in named if found} <= known


def leaf_commands() -> Iterator[str]:
    for command in names_of_commands():
        if command in GROUPS:
            yield from (f"{command} {leaf}" for leaf in names_of_commands(command))
        else:
            yield command


def test_the_readme_lists_every_command() -> None:
    listed = {words(row[0].strip("`").removeprefix("tile-agent "))[0] for row in command_rows()}
    assert listed == set(leaf_commands())


def command_rows() -> list[list[str]]:
    return rows(ROOT / "README.md", "command")


@pytest.mark.parametrize("path", GUIDES, ids=name)
def test_the_targets_of_make_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = "\n".join([*blocks(path, "sh"), *_SPAN.findall(prose(path))])
    for target in re.findall(r"^make ([\w-]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("path", [ROOT / "README.md"], ids=name)
def test_python_parses(path: Path) -> None:
    for block in blocks(path, "python"):
        ast.parse(block)


# --- pages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_relative_links_resolve(path: Path) -> None:
    for link in _LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        if anchor:
            headings = _HEADING.findall(prose(target))
            assert anchor in [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings]


def test_the_picture_is_well_formed() -> None:
    picture = ElementTree.parse(ROOT / "docs" / "loop.svg").getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert picture.get("viewBox")


def test_the_readme_leads_to_every_optimization() -> None:
    assert "(docs/reference/playbook.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    reference = (ROOT / "docs/reference/playbook.md").read_text(encoding="utf-8")
    assert [entry.name for entry in PLAYBOOK if entry.name not in reference] == []


@pytest.mark.parametrize("path", [ROOT / "README.md"], ids=name)
def test_every_exit_code_is_explained(path: Path) -> None:
    assert [int(row[0]) for row in rows(path, "exit code")] == sorted(ExitCode)


def test_the_walk_through_quotes_the_file_it_walks_through() -> None:
    entry = (ROOT / "agent/playbook/cutile/store_without_tma.py").read_text(encoding="utf-8")
    quoted = blocks(ROOT / "CONTRIBUTING.md", "python")
    assert len(quoted) >= 4
    for block in quoted:
        assert block in entry


# --- the architecture ---------------------------------------------------------------------------


def test_the_house_has_these_rooms() -> None:
    listed = [path for row in rows(ROOT / "ARCHITECTURE.md", "path") for path in paths_of(row[0])]
    assert len(listed) > 20
    assert [path for path in listed if not (ROOT / path).exists()] == []
    modules = {p for p in (ROOT / "agent").glob("*") if p.suffix == ".py" or is_package(p)}
    shown = {ROOT / path for path in listed}
    assert {p.name for p in modules - shown} <= {"__init__.py", "__main__.py"}


def paths_of(cell: str) -> list[str]:
    return _SPAN.findall(cell)


def is_package(path: Path) -> bool:
    return (path / "__init__.py").exists()


def layers() -> list[list[str]]:
    """The lines of the layers' block, top first."""
    (block,) = blocks(ROOT / "ARCHITECTURE.md", "layers")
    return [line.split() for line in block.splitlines()]


def test_the_layers_are_those_that_hold() -> None:
    """`tests/test_architecture.py` holds the code to them."""
    from tests.test_architecture import TIERS

    held = [line.split() for line in TIERS.strip().splitlines()]
    assert layers() == [line for line in held if line != ["__main__"]]


def test_the_readme_gives_the_numbers_of_the_code() -> None:
    from agent.harness.measuring.pairs import BlockTiming
    from agent.measuring.decision import Rules
    from agent.measuring.measurement import ComparisonPlan
    from agent.options import Options
    from tile_agent_pytest.bench import GRAPH_LAUNCHES, SHORT_MS

    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    rules, defaults, plan = Rules(), Options(), ComparisonPlan()
    for phrase in (
        f"*process pairs*: {plan.looks[0]}, and {plan.looks[1]} where {plan.looks[0]} do not",
        f"settle it; {plan.sure_after} where every config",
        f"error rate of {100 * plan.sure_alpha:.3g} %",
        f"({plan.least} at least",
        f"blocks of {BlockTiming().block_ms:.0f} ms",
        f"taken again every {defaults.recalibrate_every} iterations",
        f"{100 * plan.alpha:.3g} % on each side",
        f"slower by more than {100 * rules.regression:.0f} %",
        f"{100 * rules.minor:.0f} to {100 * rules.major:.0f} %",
        f"after {defaults.patience} iterations in a row",
        f"after {defaults.max_iterations} iterations",
        f"has {defaults.iteration_timeout_s:.0f} s",
        f"under {SHORT_MS} ms is timed as a CUDA graph of {GRAPH_LAUNCHES} launches",
    ):
        assert phrase in text


# --- skills -------------------------------------------------------------------------------------


def test_the_skills_ship_in_the_package() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    assert "agent" in wheel["packages"]
    assert not {"exclude", "only-include"} & {*wheel, *build}
    assert "/agent" in build["targets"]["sdist"]["include"]
    ignored = subprocess.run(  # hatch leaves out what git ignores
        ["git", "check-ignore", "--quiet", "--no-index", *map(str, SKILLS.rglob("*.md"))],
        cwd=ROOT,
        check=False,
    )
    assert ignored.returncode != 0
