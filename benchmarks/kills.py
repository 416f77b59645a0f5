"""Kills runs on a real repository, resumes them, and looks at what is left.

    python -m benchmarks.kills REPOSITORY KERNEL [--tests FILE] [--kills 20] [-- OPTION ...]

A run of a clone is left alone, for comparison. Others, in clones that hold what a user may have
(edits, staged, untracked and ignored files, a stash), are killed with SIGKILL, process group and
all: once at each line of the journal, then at random moments; and resumed each time. Shown is, for
each run that came to its end, whether it ended as the one that was left alone: the same verdicts
and the same trees of the kept commits, which takes a perf test whose figures do not hang on the
clock. Every byte of the user's must be as it was, and no process may be left after a kill.
Options behind `--` go to `tile-agent run`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MARK = "TILE_AGENT_KILLS"
BRANCH = "tile-agent/kills"
OURS = (
    "sandbox/",
    ".git/objects/",
    ".git/tile-agent/",
    ".git/worktrees/",
    ".git/refs/tile-agent/",
    ".git/refs/heads/tile-agent/",
    ".git/logs/refs/heads/tile-agent/",
    ".git/info/exclude",
)
"""What a run may write."""
GONE_WITHIN_S = 10.0
"""A worker dies with its parent, but not in the same moment."""
POLL_S = 0.002


@dataclass(frozen=True)
class Outcome:
    """What a run came to, without figures."""

    rows: tuple[tuple[str, str], ...]
    """Optimization and status of each iteration."""
    trees: tuple[str, ...]
    """Of the kept commits, latest first."""


@dataclass
class Report:
    """What was done and seen."""

    kills: int = 0
    runs: int = 0
    in_setup: int = 0
    """Kills after which a run had to be begun anew: its journal held nothing yet."""
    faults: list[str] = field(default_factory=list)

    def fault(self, text: str) -> None:
        """Show it at once: whoever ends the trial early has seen it."""
        print(f"FAULT {text}", flush=True)
        self.faults.append(text)


@dataclass(frozen=True)
class Moment:
    """When to kill: once the journal has so many lines, or after so many seconds."""

    lines: int | None = None
    after_s: float = 0.0

    def __str__(self) -> str:
        return f"line {self.lines}" if self.lines else f"{self.after_s:.2f} s"


# --- what the user has --------------------------------------------------------------------------


def clone(repository: Path, folder: Path) -> Path:
    """A clone with work in progress in it."""
    git(folder.parent, "clone", "--quiet", "--no-hardlinks", str(repository), str(folder))
    git(folder, "config", "user.name", "Ada")
    git(folder, "config", "user.email", "ada@example.com")
    (folder / ".git" / "info" / "exclude").write_text("*.ours\n")
    (folder / "stashed.txt").write_text("stashed")
    git(folder, "stash", "push", "--quiet", "--include-untracked", "--", "stashed.txt")
    (folder / "staged.txt").write_text("staged")
    git(folder, "add", "staged.txt")
    (folder / "staged.txt").write_text("staged, and edited since")
    (folder / "untracked.txt").write_text("untracked")
    (folder / "ignored.ours").write_text("ignored")
    return folder


def bytes_of(folder: Path) -> dict[str, str]:
    """Path -> mode and digest of whatever is not the run's, git's own files included."""
    found = {}
    for top, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(top) / name
            key = str(path.relative_to(folder))
            info = path.lstat()
            if f"{key}/".startswith(OURS) or key in OURS:
                continue
            if stat.S_ISREG(info.st_mode):
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                found[key] = f"{info.st_mode:o} {info.st_mtime_ns} {digest}"
            elif stat.S_ISLNK(info.st_mode):
                found[key] = str(path.readlink())
    return found


# --- runs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """What is run on."""

    repository: Path
    kernel: str
    tests: Sequence[str]
    options: Sequence[str]

    def command(self, folder: Path) -> list[str]:
        """Begins the run in a clone, or goes on with it."""
        words = [sys.executable, "-m", "agent"]
        if started := [run for run in _journals(folder) if _lines(run)]:
            return [*words, "resume", started[-1].parent.name, "--json"]
        tests = [word for file in self.tests for word in ("--tests", file)]
        begin = ["run", "--kernel", self.kernel, "--branch", BRANCH, "--yes", "--json"]
        return [*words, *begin, *tests, *self.options]


def run_until(
    target: Target, folder: Path, log: Path, moment: Moment | None
) -> tuple[int | None, list[psutil.Process]]:
    """Begin or go on with a run until it ends, or is killed at the moment.

    Returns:
        Its exit code, None when it was killed; and the processes that were left then.
    """
    token = uuid.uuid4().hex
    with log.open("ab") as out:
        process = subprocess.Popen(
            target.command(folder),
            cwd=folder,
            stdout=out,
            stderr=out,
            env=os.environ | {MARK: token},
            start_new_session=True,
        )
    begin = time.monotonic()
    while process.poll() is None:
        if moment is not None and _has_come(moment, folder, begin):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None, _left(token)
        time.sleep(POLL_S)
    return process.returncode, _left(token)


def _has_come(moment: Moment, folder: Path, begin: float) -> bool:
    if moment.lines is None:
        return time.monotonic() - begin >= moment.after_s
    return any(_lines(journal) >= moment.lines for journal in _journals(folder))


def _left(token: str) -> list[psutil.Process]:
    """The processes of a run that are there after a while."""
    end = time.monotonic() + GONE_WITHIN_S
    while (found := list(_marked(token))) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def _marked(token: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == token and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except psutil.Error:
            continue


def _journals(folder: Path) -> list[Path]:
    return sorted((folder / "sandbox" / "runs").glob("*/journal.jsonl"))


def _lines(journal: Path) -> int:
    try:
        return journal.read_bytes().count(b"\n")
    except OSError:
        return 0


def outcome(folder: Path) -> Outcome:
    """What the run in a clone came to."""
    command = [sys.executable, "-m", "agent", "status", "--json"]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    rows = json.loads(said)["runs"][-1]["rows"]
    trees = git(folder, "log", "--format=%T", f"HEAD..{BRANCH}").splitlines()
    return Outcome(tuple((row["optimization"], row["status"]) for row in rows), tuple(trees))


# --- the trial ----------------------------------------------------------------------------------


def trial(target: Target, work: Path, kills: int, seed: int, *, lines: bool = True) -> Report:
    """Leave one run alone, then kill others: at each line of its journal, and at random moments."""
    calm = clone(target.repository, work / "calm")
    begin = time.monotonic()
    code, _ = run_until(target, calm, work / "calm.log", None)
    took_s = time.monotonic() - begin
    if code not in (0, 3, 5):
        raise SystemExit(f"the run that was left alone ended with {code}: see {work / 'calm.log'}")
    expected = outcome(calm)
    rng = random.Random(seed)
    count = _lines(_journals(calm)[-1]) if lines else 0
    moments = [Moment(lines=number) for number in range(1, count)]
    moments += [Moment(after_s=rng.uniform(0.0, took_s)) for _ in range(kills)]
    print(f"left alone: {took_s:.1f} s, {expected}", flush=True)
    report = Report()
    while moments:
        report.runs += 1
        folder = clone(target.repository, work / f"run-{report.runs}")
        killed(target, folder, moments, report)
        found = outcome(folder)
        if found != expected:
            report.fault(f"{folder.name} ended as {found}")
        print(f"{folder.name}: {report.kills} kills so far; {found}", flush=True)
    return report


def killed(target: Target, folder: Path, moments: list[Moment], report: Report) -> None:
    """Kill a run again and again until the moments are used up, or it has come to its end."""
    before = bytes_of(folder)
    log = folder.with_suffix(".log")
    while True:
        moment = moments[0] if moments else None
        code, left = run_until(target, folder, log, moment)
        here = f"{folder.name}, {moment or 'no kill'}"
        for process in left:
            report.fault(f"{here}: left is {process}")
        differing = {k for k, v in bytes_of(folder).items() if before.get(k) != v}
        differing |= before.keys() - bytes_of(folder).keys()
        if differing:
            report.fault(f"{here}: changed {', '.join(sorted(differing)[:5])}")
            before = bytes_of(folder)
        if code is None:
            moments.pop(0)
            report.kills += 1
            continue
        if code == 2 and not any(map(_lines, _journals(folder))):
            report.in_setup += 1  # the message says how: the branch of a run that never began
            git(folder, "branch", "-D", BRANCH)
            shutil.rmtree(folder / "sandbox", ignore_errors=True)
            continue
        if code == 2 and "is done: see" in log.read_text().splitlines()[-1]:
            code = 0  # it was killed behind its last line
        if code not in (0, 3, 5):
            report.fault(f"{here}: ended with {code}: see {log}")
        if moment is not None:  # it was over before that; earlier, next time
            moments[:1] = [] if moment.lines else [Moment(after_s=moment.after_s / 2)]
        return


def git(folder: Path, *args: str) -> str:
    """Run git as the user would."""
    command = ["git", "-C", str(folder), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """The trial on the repository that is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("repository", type=Path)
    parser.add_argument("kernel")
    parser.add_argument("--tests", action="append", default=[])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-lines", action="store_true", help="at random moments only")
    parser.add_argument("--work", type=Path, help="keep the clones there")
    here = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given, options = parser.parse_args(sys.argv[1:here]), sys.argv[here + 1 :]
    work = given.work or Path(tempfile.mkdtemp(prefix="tile-agent-kills-"))
    work.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TILE_AGENT_STATE_DIR", str(work / "state"))
    target = Target(given.repository.resolve(), given.kernel, given.tests, options)
    report = trial(target, work.resolve(), given.kills, given.seed, lines=not given.no_lines)
    print(
        f"{report.kills} kills in {report.runs} runs, {report.in_setup} before a run had begun; "
        f"{len(report.faults)} faults"
    )
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
