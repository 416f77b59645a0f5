"""A page in headless Chromium: what axe finds in it, what its console says, what it asks for.

Chromium writes what it logs and what it requested, and prints the document at its end, so that
nothing has to drive it. axe-core is fetched from npm, once a session, and is kept nowhere.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

AXE = "axe-core@4.10.3"
TIMEOUT_S = 180.0
BROWSERS_OWN = "not an origin"
_CSP = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_FOUND = re.compile(r'<pre id="axe-found">(.*?)</pre>', re.DOTALL)
_RUN = """
axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
  .then(found => ({violations: found.violations, passes: found.passes.length}),
        problem => ({error: String(problem)}))
  .then(found => {
    const pre = document.createElement("pre");
    pre.id = "axe-found";
    pre.textContent = JSON.stringify(found);
    document.body.append(pre);
  });
"""


def browser() -> str:
    """Chromium; the test is skipped where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("needs Chromium: Debian's package chromium")


def axe(folder: Path) -> str:
    """The source of axe-core; the test is skipped where npm cannot fetch it."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm, to fetch axe-core")
    command = ["npm", "pack", "--silent", AXE]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm's registry does not answer: axe-core cannot be fetched")
    if done.returncode:
        pytest.skip(f"npm cannot fetch axe-core: {done.stderr.strip()[-200:]}")
    with tarfile.open(folder / done.stdout.strip().splitlines()[-1]) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


@dataclass(frozen=True)
class Seen:
    """What came of opening a page."""

    dom: str
    console: list[str]
    requested: list[str]
    """URLs that the page asked for."""


def opened(page: Path, *, width: int = 1200, dark: bool = False) -> Seen:
    """Open a page, wait until it is at rest, and close it."""
    log = page.with_suffix(".netlog")
    profile = page.with_suffix(".profile")
    flags = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        *("--disable-sync", "--disable-default-apps", "--disable-extensions"),
        *(f"--user-data-dir={profile}", f"--window-size={width},900"),
        *(f"--log-net-log={log}", "--enable-logging=stderr", "--virtual-time-budget=20000"),
        *(["--force-dark-mode"] if dark else []),
    ]
    done = subprocess.run(
        [browser(), *flags, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Seen(done.stdout, console, sorted(_requested(log)))


def violations(page: Path, source: str, *, width: int = 1200, dark: bool = False) -> list[str]:
    """What axe finds wrong, each with where.

    It sees the page with all that can be folded unfolded, and without its own content policy.
    """
    text = _CSP.sub("", page.read_text(encoding="utf-8")).replace("<details", "<details open")
    script = f"<script>{source}</script><script>{_RUN}</script></body>"
    judged = page.with_name(f"{page.stem}-axe.html")
    judged.write_text(text.replace("</body>", script), encoding="utf-8")
    found = _FOUND.search(opened(judged, width=width, dark=dark).dom)
    assert found is not None, "axe did not come to an end"
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    assert "error" not in result, result
    return [
        f"{each['id']}: {each['help']}: {node['html'][:120]}"
        for each in result["violations"]
        for node in each["nodes"]
    ]


def _requested(log: Path) -> set[str]:
    """The URLs that a page asked for, by a log of Chromium's network.

    What Chromium asks for itself has no origin that began it, nor has the page.
    """
    events = json.loads(log.read_text(encoding="utf-8", errors="replace"))["events"]
    asked = [event["params"] for event in events if "initiator" in event.get("params", {})]
    return {each["url"] for each in asked if "url" in each and each["initiator"] != BROWSERS_OWN}
