"""The page: it is sound HTML, loads nothing, shows what it was given, and stays small."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.events import Calibrated, Event, Failed, Finished, Gathered, Proposed, Skipped
from agent.measuring.decision import Status
from agent.report.document import document
from agent.report.page import html, markdown
from agent.repository import Repository
from tests.support.history import HISTORY, comparison
from tests.support.html_page import Page
from tests.support.long_run import KERNEL, long_run
from tests.support.repo import git, isolate, make_repo, write

LARGEST_BYTES = 3_000_000
HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'><svg onload=alert(3)> "
    "</details></table>{{ 7*7 }} {% raw %} & &amp; http://evil.example/ \x00\x1b[31m | ` ``` \ud800"
)


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.open(make_repo(tmp_path))


def page_of(report: dict[str, Any]) -> Page:
    page = Page(html(report))
    assert page.problems == []
    return page


@pytest.mark.parametrize("length", range(1, len(HISTORY) + 1))
def test_a_run_has_a_sound_page_at_any_time(repository: Repository, length: int) -> None:
    report = document(HISTORY[:length], repository)
    page = page_of(report)
    done = length == len(HISTORY)
    assert ("Under way" in page.root.text) is (report["stop"] is None)
    assert (": under way" in page.root.all("h1")[0].text) is not done
    assert markdown(report).startswith("## kernels/softmax.py: ")
    json.dumps(report, allow_nan=False)


def test_a_long_run_is_small_and_soon_there(tmp_path: Path) -> None:
    repo, events = long_run(tmp_path, iterations=25, count=50)
    report = document(events, Repository.open(repo))
    began = time.process_time()
    text = html(report)
    took_s = time.process_time() - began
    assert len(text.encode()) < LARGEST_BYTES
    assert took_s < 10  # 1.5 s on two shared processors
    page = Page(text)
    assert page.problems == []
    statuses = [step["status"] for step in report["iterations"]]
    assert [statuses.count(s) for s in ("keep", "revert", "crash")] == [5, 15, 5]
    assert len(page.root.all("details")) > 50
    points = [e for e in page.elements if e.attributes.get("class") == "point"]
    assert len(points) == 26
    assert len([e for e in page.elements if e.attributes.get("class") == "bar-best"]) > 50
    assert page.named("iteration-1").text.count("fewer trips") == 0
    assert "Fewer trips to memory." in page.named("iteration-25").text


def test_keeps_and_reverts_differ_in_shape_and_in_words(tmp_path: Path) -> None:
    repo, events = long_run(tmp_path, iterations=5, count=2)
    page = page_of(document(events, Repository.open(repo)))
    marks = [e for e in page.elements if e.attributes.get("class") == "point"]
    shapes = [[e.tag for e in mark.all("g")[0].children if e.tag != "title"] for mark in marks]
    assert shapes == [["circle"], ["circle"], ["rect"], ["rect"], ["path"], ["rect"]]
    words = [mark.all("title")[0].text for mark in marks]
    assert [word.split(": ")[1].split(",")[0] for word in words] == [
        "keep", "keep", "revert", "revert", "crash", "revert",
    ]  # fmt: skip
    intervals = [mark for mark in marks if "interval" in str([p.attributes for p in mark.children])]
    assert len(intervals) == 3


def test_each_config_stands_under_its_roof(tmp_path: Path) -> None:
    repo, events = long_run(tmp_path, iterations=6, count=2)
    report = document(events, Repository.open(repo))
    roofs = report["roofline"]
    first, second = roofs["configs"]
    assert (first["origin"], second["origin"]) == pytest.approx((0.5 / 1.0, 0.9 / 2.0), rel=0.01)
    assert first["best"] > first["origin"]
    assert [kept["iteration"] for kept in first["kept"]] == [1, 6]
    assert first["kept"][0]["share"] == pytest.approx(0.5 / 0.9, rel=0.05)
    page = page_of(report)
    told = page.named("roof-text").text
    assert f"{first['config']}, bound by its bytes: 50.0 %" in told
    assert "after iteration 6" in told
    assert "4200 GB/s" in page.root.text
    assert "Of its roof: " in markdown(report)
    # it is not drawn where no roof is known
    unknown = [replace(e, least_times=None) if isinstance(e, Calibrated) else e for e in events]
    assert "Roofline" not in page_of(document(unknown, Repository.open(repo))).root.text


def test_the_change_of_each_iteration_is_that_of_git(tmp_path: Path) -> None:
    repo, events = long_run(tmp_path, iterations=2, count=1)
    report = document(events, Repository.open(repo))
    for step in report["iterations"]:
        theirs = git(repo, "diff", step["base_sha"], step["sha"]).splitlines()[2:]
        ours = step["diff"].splitlines()
        assert {*ours} >= {line for line in theirs if line.startswith(("+B", "-B"))}
        page = page_of(report)
        shown = page.named(f"iteration-{step['iteration']}").all("code")[-1]
        assert [line.text for line in shown.children] == ours


def test_a_best_commit_that_lost_at_the_end_is_not_called_faster(repository: Repository) -> None:
    events = [*HISTORY[:-1], Finished(comparison(-0.25))]
    assert document(events, repository)["headline"].endswith(": 0.80x as fast, 1 optimization kept")


def test_a_change_whose_commits_are_gone_is_said_to_be(repository: Repository) -> None:
    report = document(HISTORY, repository)
    assert report["iterations"][0]["diff"] is None
    assert "Git no longer has its commits" in page_of(report).named("iteration-1").text


def hostile_events(repo: Path) -> list[Event]:
    """A run in which whatever somebody else wrote is hostile."""
    write(repo, {KERNEL: f"x = 1  # {HOSTILE}\n".encode(errors="surrogatepass")})
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "hostile")
    sha = git(repo, "rev-parse", "HEAD")
    found: list[Event] = []
    for event in HISTORY:
        if isinstance(event, Proposed):
            candidates = tuple(replace(c, title=HOSTILE) for c in event.candidates)
            if event is HISTORY[15]:
                candidates = (replace(candidates[0], sha=sha),)
            found.append(
                replace(
                    event,
                    optimization=HOSTILE,
                    hypothesis=HOSTILE,
                    risk=HOSTILE,
                    candidates=candidates,
                    doubts=(HOSTILE,),
                )
            )
        elif isinstance(event, Gathered):
            named = enumerate(event.proposals)
            proposals = tuple(replace(p, optimization=f"{HOSTILE}{n}") for n, p in named)
            found.append(replace(event, proposals=proposals))
        elif isinstance(event, (Skipped, Failed)):
            found.append(replace(event, reason=HOSTILE))
        elif isinstance(event, Finished):
            final = event.comparison
            assert final is not None
            configs = tuple(replace(c, config=HOSTILE) for c in final.configs)
            found.append(replace(event, comparison=replace(final, configs=configs), note=HOSTILE))
        else:
            found.append(event)
    return found


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    report = document(hostile_events(repo), Repository.open(repo))
    text = html(report)
    page = Page(text)
    assert page.problems == []
    assert "<script" not in text
    assert not page.root.all("img")
    assert "\x00" not in text
    assert "49" not in page.named("iteration-1").text
    assert page.named("iteration-1").text.count("</script><script>alert(1)") >= 3
    text.encode()


def test_hostile_text_does_not_break_the_text_of_a_pull_request(tmp_path: Path) -> None:
    from markdown_it import MarkdownIt

    repo = make_repo(tmp_path)
    report = document(hostile_events(repo), Repository.open(repo))
    text = markdown(report)
    rendered = MarkdownIt("commonmark").enable("table").render(text)
    assert "<script" not in rendered
    assert "<img" not in rendered
    assert rendered.count("<details>") == rendered.count("</details>") == 3
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {row.replace("\\|", "").count("|") for row in rows} == {5, 6, 8}


def test_what_was_kept_and_set_aside_is_in_the_text(tmp_path: Path) -> None:
    repo, events = long_run(tmp_path, iterations=6, count=3)
    report = document(events, Repository.open(repo))
    text = markdown(report)
    assert text.startswith("## kernels/softmax.py: 1.13x faster, 2 optimizations kept\n")
    gained = text.index("Origin against best, measured afresh in 4")
    kept, aside = text.index("### What was kept"), text.index("What was set aside: 4 tried")
    assert gained < kept < aside < text.index("Environment, and how to reproduce it")
    assert text.count("| `test_perf_matmul_triton[") == 3
    assert "(iteration 4, crash): AssertionError: 3 of 4096 elements differ" in text
    assert f"git checkout --detach {report['origin_sha'][:12]}" in text
    assert Status.KEEP.value not in text[aside:].split("</details>", maxsplit=1)[0]


def test_the_variants_of_a_sweep_that_were_wrong_are_in_both(repository: Repository) -> None:
    report = document(HISTORY, repository)
    swept = report["iterations"][1]["variants"]
    assert [(one["latency_ms"], one["wrong"]) for one in swept] == [
        (0.7, False),
        (None, False),
        (0.5, True),
    ]
    text = markdown(report)
    assert "What was set aside: 3 tried in 5 variants, " in text
    assert "  - wrong: occupancy (n=2): test_softmax: off by one\n" in text
    page = page_of(report).root.text
    assert "Variants: 3 looked at, 1 of them wrong, 1 ended" in page
    assert "wrong: test_softmax: off by one" in page


def test_entries_that_lack_the_same_share_a_line(repository: Repository) -> None:
    why = "the interpreter cannot time configs"
    passed = [Skipped(name, why, took_s=0.1) for name in ("add-autotune", "tuning-key")]
    report = document([*HISTORY[:3], *passed], repository)
    assert markdown(report).count(why) == 1
    assert f"- add-autotune, tuning-key passed over: {why}" in markdown(report)
    assert page_of(report).root.text.count(why) == 1


def test_what_short_looks_promised_is_in_order(repository: Repository) -> None:
    report = document(HISTORY, repository)
    assert [look["optimization"] for look in report["promised"]] == ["block_size"]
    row = "| `block_size` | +10.0 % | 1.0 % | 1 |"
    assert row in markdown(report)
    assert '<h2 id="looks">' in html(report)
    assert "What short looks promised" not in markdown(report | {"promised": []})
