"""A page of HTML as a strict reader sees it: what is not closed, not named, or loaded."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input", "col", "source", "wbr", "base"}
LOADING = ("src", "srcset", "poster", "data", "action", "background", "xlink:href")


@dataclass
class Element:
    """An element, with what stands directly and indirectly in it."""

    tag: str
    attributes: dict[str, str]
    parent: Element | None
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """Every element of that name inside."""
        found = [child for child in self.children if child.tag == tag]
        return [*found, *(each for child in self.children for each in child.all(tag))]


class Page(HTMLParser):
    """Reads a page; whatever is wrong with it stands in `problems`."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.root = Element("", {}, None)
        self._open = self.root
        self.elements: list[Element] = []
        self.feed(text)
        self.close()
        if self._open is not self.root:
            self.problems.append(f"<{self._open.tag}> is not closed")
        self._check_ids()
        self._check_tables()
        self._check_charts()
        self._check_headings()
        self._check_loads()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = self._add(tag, attrs)
        if tag not in VOID:
            self._open = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._open.tag != tag or self._open.parent is None:
            self.problems.append(f"</{tag}> closes <{self._open.tag}> at {self.getpos()}")
            return
        self._open = self._open.parent

    def handle_data(self, data: str) -> None:
        element: Element | None = self._open
        while element is not None:
            element.text += data
            element = element.parent

    def _add(self, tag: str, attrs: list[tuple[str, str | None]]) -> Element:
        if len({name for name, _ in attrs}) != len(attrs):
            self.problems.append(f"<{tag}> has an attribute twice at {self.getpos()}")
        element = Element(tag, {name: value or "" for name, value in attrs}, self._open)
        self._open.children.append(element)
        self.elements.append(element)
        return element

    def named(self, identifier: str) -> Element:
        """The element of that id."""
        return next(e for e in self.elements if e.attributes.get("id") == identifier)

    def _check_ids(self) -> None:
        ids = [e.attributes["id"] for e in self.elements if "id" in e.attributes]
        self.problems += [f"id {each} twice" for each in {i for i in ids if ids.count(i) > 1}]
        for element in self.elements:
            named = element.attributes.get("aria-labelledby", "").split()
            href = element.attributes.get("href", "")
            named += [href[1:]] if href.startswith("#") else []
            self.problems += [f"nothing has the id {name}" for name in named if name not in ids]

    def _check_tables(self) -> None:
        for table in self.root.all("table"):
            scopes = {th.attributes.get("scope") for th in table.all("th")}
            columns = len(table.all("thead")[0].all("th")) if table.all("thead") else 0
            widths = {len(row.children) for row in table.all("tr")}
            if not table.all("caption") or scopes != {"col", "row"} or widths != {columns}:
                self.problems.append(f"a table without headers or caption: {table.text[:60]!r}")

    def _check_charts(self) -> None:
        for chart in self.root.all("svg"):
            outer = chart.parent
            while outer is not None and outer.tag != "svg":
                outer = outer.parent
            hidden = chart.attributes.get("aria-hidden") == "true"
            told = chart.attributes.get("role") == "img" and chart.all("title")
            if outer is None and not hidden and not told:
                self.problems.append("a chart that says nothing to who cannot see it")

    def _check_headings(self) -> None:
        levels = [int(e.tag[1]) for e in self.elements if re.fullmatch("h[1-6]", e.tag)]
        if levels[:1] != [1] or levels.count(1) != 1:
            self.problems.append("not one h1, at the top")
        jumps = [(a, b) for a, b in itertools.pairwise(levels) if b > a + 1]
        self.problems += [f"h{a} before h{b}" for a, b in jumps]

    def _check_loads(self) -> None:
        for element in self.elements:
            if element.tag in ("script", "link", "iframe", "object", "embed", "base", "form"):
                self.problems.append(f"<{element.tag}>")
            for name, value in element.attributes.items():
                away = name == "href" and not value.startswith("#")
                if away or name in LOADING or name.startswith("on"):
                    self.problems.append(f"<{element.tag} {name}={value[:40]!r}>")
                if name == "style" and "url(" in value:
                    self.problems.append(f"<{element.tag} style={value!r}>")
        for style in self.root.all("style"):
            if re.search(r"url\(|@import", style.text):
                self.problems.append("a style sheet that loads something")
