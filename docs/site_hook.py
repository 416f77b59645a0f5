"""Makes the site of the repository as it is: pages from outside of docs/, and links that fit both.

A page links as a git host wants it, by paths of the repository. On the site the pages of the root
stand beside those of docs/, and a source file that some page links to gets a page of its own below
source/. MkDocs calls the functions whose names begin with `on_`.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages of the root: path in the repository -> place on the site."""
SOURCE = "source"

_PIECE = re.compile(
    r"^ *(?P<fence>`{3,}).*?^ *(?P=fence)$"  # code stays as it is
    r"|`[^`\n]+`"
    r"|(?P<words>!?\[[^\]]*\]\()(?P<target>[^)\s]+)\)",
    re.MULTILINE | re.DOTALL,
)
_places: dict[str, str] = {}
"""Path in the repository -> place on the site, of all that the site holds."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, and one for each source that a page links to."""
    _places.clear()
    _places.update((f"docs/{file.src_uri}", file.src_uri) for file in files)
    for path, place in PAGES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
        _places[path] = place
    pages = [path for path in _places if path.endswith(".md")]
    targets = {
        target
        for path in pages
        for match in _PIECE.finditer((ROOT / path).read_text(encoding="utf-8"))
        if (target := _target(path, match)) and _place(target) is None
    }
    for path in sorted(target for target in targets if (ROOT / target).exists()):
        place = f"{SOURCE}/{path}.md"
        files.append(File.generated(config, place, content=_shown(path)))
        _places[path] = place
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead the links of a page to where their targets are on the site."""
    place = page.file.src_uri
    path = next(path for path, found in _places.items() if found == place)

    def led(match: re.Match[str]) -> str:
        target = _target(path, match)
        there = _place(target) if target else None
        if there is None:  # code, another site, or a link that mkdocs shall complain of
            return match[0]
        _, hash_, anchor = match["target"].partition("#")
        link = posixpath.relpath(there, posixpath.dirname(place) or ".")
        return f"{match['words']}{link}{hash_}{anchor})"

    return markdown if place.startswith(f"{SOURCE}/") else _PIECE.sub(led, markdown)


def _target(path: str, match: re.Match[str]) -> str | None:
    """The path in the repository that a link of a page leads to; None for any other piece."""
    link = (match["target"] or "").partition("#")[0]
    if not link or ":" in link:
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _place(path: str) -> str | None:
    """Where a file is on the site, or the page that speaks for a folder."""
    return _places.get(path) or _places.get(f"{path}/README.md")


def _shown(path: str) -> str:
    """A page that shows a source file, or what is in a folder."""
    head = f"---\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n"
    found = ROOT / path
    if found.is_dir():
        names = (p.relative_to(found).as_posix() for p in sorted(found.rglob("*")) if p.is_file())
        listed = "".join(f"- `{name}`\n" for name in names if "__pycache__" not in name)
        return head + listed
    language = {".py": "python"}.get(found.suffix, "text")
    return f"{head}`````{language}\n{found.read_text(encoding='utf-8')}`````\n"
