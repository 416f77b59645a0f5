"""What a page of Markdown holds that can be checked: code, links and headings, with their lines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token


@dataclass(frozen=True)
class Code:
    """A fenced block or, of language None, inline code."""

    line: int
    language: str | None
    text: str


@dataclass(frozen=True)
class Page:
    """A page taken apart. Lines count from 1, front matter included."""

    code: list[Code] = field(default_factory=list)
    links: list[tuple[int, str]] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)


def parse(text: str) -> Page:
    """Take a page apart; front matter is passed over."""
    page = Page()
    body, above = _without_front_matter(text)
    line = 1
    heading = False
    for token in MarkdownIt("commonmark").enable("table").parse(body):
        line = above + token.map[0] + 1 if token.map else line
        if token.type == "fence":
            page.code.append(Code(line, token.info.strip().split(" ")[0], token.content))
        elif token.type == "heading_open":
            heading = True
        elif token.type == "inline":
            if heading:
                page.anchors.add(anchor(token.content))
            heading = False
            _add_inline(page, line, token.children or ())
    return page


def _without_front_matter(text: str) -> tuple[str, int]:
    """The body, and how many lines stand above it."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != "---":
        return text, 0
    ends = [n for n, line in enumerate(lines[1:], 2) if line.rstrip() == "---"]
    return ("".join(lines[ends[0] :]), ends[0]) if ends else (text, 0)


def anchor(heading: str) -> str:
    """What a heading is linked by, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


def _add_inline(page: Page, line: int, tokens: Iterable[Token]) -> None:
    for token in tokens:
        if token.type in ("softbreak", "hardbreak"):
            line += 1
        elif token.type == "code_inline":
            page.code.append(Code(line, None, token.content))
        elif token.type in ("link_open", "image"):
            name = "href" if token.type == "link_open" else "src"
            page.links.append((line, str(token.attrs[name])))
