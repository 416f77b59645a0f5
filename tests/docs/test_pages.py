"""The pages: their links lead somewhere, their figures are those of the code and of the results."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from xml.etree import ElementTree

from agent.playbook import PLAYBOOK
from tests.support.pages import (
    DOCS,
    GUIDES,
    HEADING,
    LINK,
    PAGES,
    README,
    ROOT,
    blocks,
    name,
    prose,
    rows,
    shown,
    spans,
    tables,
    text,
)

MOST_LINES = 150
"""Of the README, so that people finish it."""


def test_relative_links_resolve() -> None:
    """As a git host resolves them; `tests/docs/test_site.py` has the site's looked at."""
    broken = []
    for path in PAGES:
        for link in LINK.findall(prose(path)):
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (anchor and anchor not in anchors(prose(target))):
                broken.append(f"{name(path)}: {link}")
    assert broken == []


def anchors(page: str) -> list[str]:
    return [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in HEADING.findall(page)]


def test_the_rows_of_a_table_have_the_cells_of_its_head() -> None:
    for path in PAGES:
        for head, *rest in tables(path):
            assert [row for row in rest if len(row) != len(head)] == [], name(path)


def test_code_blocks_parse() -> None:
    parsers = {"python": ast.parse, "json": json.loads, "toml": tomllib.loads}
    for path in GUIDES:
        for language, parse in parsers.items():
            for block in blocks(path, language):
                parse(block)


def test_the_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", text(ROOT / "Makefile"), re.MULTILINE))
    for path in PAGES:
        named = {word for line in (*shown(path), *spans(path))
                 for word in re.findall(r"^make ([a-z][\w-]*)", line)}  # fmt: skip
        assert named <= targets, name(path)


def test_the_picture_is_well_formed() -> None:
    picture = ElementTree.parse(DOCS / "loop.svg").getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert picture.get("viewBox")


def test_the_readme_is_short_and_leads_to_every_guide() -> None:
    assert len(text(README).splitlines()) < MOST_LINES
    reached = {README}
    while (
        new := {
            target
            for page in reached
            for link in LINK.findall(prose(page))
            if (target := (page.parent / link.partition("#")[0]).resolve()).suffix == ".md"
        }
        - reached
    ):
        reached |= new
    assert [name(page) for page in PAGES if page.is_relative_to(DOCS) and page not in reached] == []


def test_the_reference_holds_every_optimization() -> None:
    reference = text(DOCS / "reference" / "playbook.md")
    assert [entry.name for entry in PLAYBOOK if entry.name not in reference] == []


def test_the_figures_of_the_readme_are_those_of_the_results() -> None:
    """Each kernel's row is that of the page on runs with the defaults, and so are the means."""
    columns = ("kernel", "config", "origin, ms", "best, ms", "origin / best", "torch.compile, ms")
    columns += ("expert, ms",)
    languages = {}
    for section in text(DOCS / "results" / "h200-defaults.md").split("\n## ")[1:]:
        language, _, rest = section.partition("\n")
        table, _, _ = rest.strip().partition("\n\n")
        titles, _, *found = (
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        )
        languages[language.lower()] = [dict(zip(titles, row, strict=True)) for row in found]
    assert set(languages) == {"cutile", "triton"}
    known = {row["kernel"]: row for found in languages.values() for row in found}
    means = [found[-1]["origin / best"] for found in languages.values()]
    kernels = [row for row in rows(README, "kernel") if not row[0].startswith("**")]
    assert len(kernels) > 5
    for row in kernels:
        assert row == [known[row[0]][column] for column in columns]
    gains = {row[0]: float(row[4].rstrip("x")) for row in kernels}
    for language, found in languages.items():  # the most and the least gained are not left out
        told = [gain for kernel, gain in gains.items() if kernel.startswith(language)]
        held = [float(row["origin / best"].rstrip("x")) for row in found[:-1]]
        assert (max(told), min(told)) == (max(held), min(held))
    assert [row[4] for row in rows(README, "kernel") if row[0].startswith("**")] == means


def test_the_guides_give_the_numbers_of_the_code() -> None:
    from agent.harness.measuring.block_timing import BlockTiming
    from agent.measuring.decision import Rules
    from agent.measuring.looks import ComparisonPlan
    from agent.options import Options
    from tile_agent_pytest.bench import SHORT_MS
    from tile_agent_pytest.graphs import GRAPH_LAUNCHES

    told = " ".join(" ".join(map(text, GUIDES)).split())
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
        assert phrase in told


def test_the_walk_through_quotes_the_file_it_walks_through() -> None:
    """CONTRIBUTING.md links to the file by the name that its text begins with."""
    guide = ROOT / "CONTRIBUTING.md"
    (path,) = {link for link in LINK.findall(prose(guide)) if link.endswith("store_without_tma.py")}
    quoted = blocks(guide, "python")
    assert len(quoted) >= 4
    assert [block for block in quoted if block not in text(ROOT / path)] == []
