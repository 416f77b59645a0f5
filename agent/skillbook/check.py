"""What is wrong with a skill: its format, its links, the commands and the code that it shows."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agent.skillbook import format as skill_format
from agent.skillbook.calls import COMMAND, SHELLS, calls
from agent.skillbook.format import FILE, Problem
from agent.skillbook.markdown import Code, Page, parse

Refusal = Callable[[tuple[str, ...], bool], str | None]
"""(arguments, whether they are a whole call) -> why tile-agent would not take them, or None.

Inline code may name a command without the options that it cannot do without.
"""

PARTS = ("references", "scripts", "assets")
"""The folders that the format names."""


def check(folder: Path, refusal: Refusal) -> tuple[Problem, ...]:
    """Everything that is wrong with the skill in a folder."""
    main = folder / FILE
    _, problems = skill_format.read(main)
    if not main.is_file():
        return problems
    found = list(problems)
    pages: dict[Path, Page] = {}
    for path in sorted(folder.rglob("*.md")):
        try:
            pages[path] = parse(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as problem:
            found.append(Problem(path, 1, f"not UTF-8: byte {problem.start}"))
    for path, page in pages.items():
        found += _broken_links(path, page, folder, pages)
        found += _broken_code(path, page, refusal)
    found += _unreachable(folder, pages)
    return tuple(dict.fromkeys(found))


def _targets(path: Path, page: Page, folder: Path) -> Iterator[tuple[int, Path, str]]:
    """Line, file and anchor of what a page leads to; paths in code count from the skill's root."""
    for line, link in page.links:
        parts = urlsplit(link)
        if not parts.scheme and not parts.netloc:
            target = path.parent / unquote(parts.path) if parts.path else path
            yield line, target, parts.fragment
    for code in page.code:
        part, slash, name = code.text.partition("/")
        if code.language is None and part in PARTS and slash and not set(name) & {"*", " "}:
            yield code.line, folder / code.text, ""


def _broken_links(
    path: Path, page: Page, folder: Path, pages: dict[Path, Page]
) -> Iterator[Problem]:
    root = folder.resolve()
    known = {file.resolve(): other for file, other in pages.items()}
    for line, target, anchor in _targets(path, page, folder):
        real = target.resolve()
        shown = target.relative_to(folder) if target.is_relative_to(folder) else target
        if not real.is_relative_to(root):
            yield Problem(path, line, f"{shown} is outside the skill, and stays behind")
        elif not real.exists():
            yield Problem(path, line, f"there is no {shown}")
        elif anchor and real in known and anchor not in known[real].anchors:
            yield Problem(path, line, f"{shown} has no heading #{anchor}")


def _broken_code(path: Path, page: Page, refusal: Refusal) -> Iterator[Problem]:
    for code in page.code:
        if code.language == "python":
            yield from _broken_python(path, code)
        elif code.language in SHELLS or (
            code.language is None and code.text.startswith(f"{COMMAND} ")
        ):
            whole = code.language is not None
            try:
                made = list(calls(code.text))
            except ValueError as problem:
                yield Problem(path, code.line, f"the shell would not take it: {problem}")
                continue
            for offset, words in made:
                if why := refusal(words, whole):
                    # The first line of a fenced block is that of its fence.
                    line = code.line + offset + whole
                    yield Problem(path, line, f"{shlex.join((COMMAND, *words))}: {why}")


def _broken_python(path: Path, code: Code) -> Iterator[Problem]:
    try:
        ast.parse(code.text)
    except SyntaxError as problem:
        yield Problem(path, code.line + (problem.lineno or 1), f"not Python: {problem.msg}")


def _unreachable(folder: Path, pages: dict[Path, Page]) -> Iterator[Problem]:
    """Files that no link leads to: no assistant would ever load them."""
    known = {file.resolve(): (file, page) for file, page in pages.items()}
    main = (folder / FILE).resolve()
    seen = {main}
    left = [main]
    while left:
        path, page = known[left.pop()]
        for _, target, _ in _targets(path, page, folder):
            real = target.resolve()
            if real not in seen:
                seen.add(real)
                left += [real] if real in known else []
    for part in PARTS:
        for file in sorted((folder / part).rglob("*")):
            if file.is_file() and file.resolve() not in seen:
                name = file.relative_to(folder)
                yield Problem(folder / FILE, 1, f"nothing leads to {name}")
