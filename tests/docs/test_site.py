"""The site builds without a warning, fetches nothing, and shows what a git host shows."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.support.pages import DOCS, ROOT, name

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None,
    reason="mkdocs-material is not installed: pip install '.[docs]'",
)
ELEMENTS = ("table", "tr", "ul", "ol", "li", "h2", "h3", "img", "strong", "em")
OF_THE_ROOT = {
    "index": "README",
    "architecture": "ARCHITECTURE",
    "contributing": "CONTRIBUTING",
    "changelog": "CHANGELOG",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.full
def test_every_page_is_on_the_site_and_reads_as_on_a_git_host(site: Path) -> None:
    """Markdown is not read alike everywhere: a list that is none here has fewer elements."""
    markdown = MarkdownIt("commonmark").enable("table")
    pages = {page.relative_to(DOCS).with_suffix(""): page for page in DOCS.rglob("*.md")}
    pages |= {Path(place): ROOT / f"{stem}.md" for place, stem in OF_THE_ROOT.items()}
    for place, page in pages.items():
        file = place.with_name("index") if place.name == "README" else place
        html = (site / file).with_suffix(".html").read_text(encoding="utf-8")
        article = html.partition("<article")[2].partition("</article>")[0]
        assert counts(article) == counts(markdown.render(page.read_text("utf-8"))), name(page)


def counts(html: str) -> dict[str, int]:
    return {element: len(re.findall(rf"<{element}[ >]", html)) for element in ELEMENTS}


@pytest.mark.full
def test_whoever_reads_the_site_fetches_it_from_nowhere_else(site: Path) -> None:
    fetched = re.compile(r"""<(?:script|img|link)[^>]+(?:src|href)=["']?(?:https?:)?//""")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert [page for page in pages if fetched.search(page.read_text("utf-8"))] == []
    styles = "".join(style.read_text("utf-8") for style in site.rglob("*.css"))
    assert "fonts.googleapis" not in styles
    assert not re.search(r"(?:@import|url\()\s*[\"']?https?:", styles)


@pytest.mark.full
def test_a_link_to_a_source_leads_to_a_page_that_shows_it(site: Path) -> None:
    page = (site / "contributing.html").read_text("utf-8")
    (link,) = set(re.findall(r'href="(source/[^"]*store_without_tma\.py\.html)"', page))
    assert "allow_tma" in (site / link).read_text("utf-8")
