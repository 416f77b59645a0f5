"""The playbook alone, and what an assistant that has a skill adds to it, on any kernels.

    python -m benchmarks.skills CASES [NAME ...] [--limit-s 540]

CASES holds a folder a kernel: `case.json` with `kernel`, its path, `skill`, whose text the
assistant was given, `options` of `run` and `begin`, and `playbook` with those of `run` alone; and
`repository`, a git clone that has its tests. First the playbook runs alone there: `playbook.json`
is its result, `playbook.log` what it said, and its branch what goes on. From these an assistant,
wherever it is, makes moves: a folder each, in order, with a `draft.py`, other values of it as
`variant*.py`, `why.txt`, and `choose.txt` with the name of the optimization, or `mend` for a
candidate that failed. Called again, this leads a run through the moves that have no `answer.json`
yet, with `begin`, `next`, `try` and `finish`. Answers hold the brief and what the next move can
learn from.

Writes CASES/skills.md after every kernel. Nothing is begun that `--limit-s` leaves no time for.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.environment import describe, probe
from benchmarks.loop_run import environment
from benchmarks.tables import ratio, row

BRANCH = "playbook"
MEND, OWN_IDEA = "mend", "own-idea"
RUN_S, STEP_S = 150.0, 60.0
"""Less is not enough for a run of the playbook, or for a move."""
HEAD = ("kernel", "skill", "playbook alone", "s", "moves: kept of tried", "on top", "s", "together")


def main() -> int:
    """All cases, each as far as its moves go. Returns 1 where one did not get as far."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.skills", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("cases", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    asked = parser.parse_args()
    ends = time.monotonic() + asked.limit_s
    folders = sorted(file.parent for file in asked.cases.resolve().glob("*/case.json"))
    unknown = set(asked.names) - {folder.name for folder in folders}
    if unknown or not folders:
        known = ", ".join(folder.name for folder in folders) or "none"
        parser.error(f"no case {', '.join(sorted(unknown))}; there are: {known}")
    cases = [Case.of(folder) for folder in folders]
    failed = False
    for case in cases:
        if asked.names and case.name not in asked.names:
            continue
        problem = go_on(case, ends)
        failed |= bool(problem)
        print(f"{case.name}: {problem or 'done'}", flush=True)
        (asked.cases / "skills.md").write_text(table(cases))
    return int(failed)


@dataclass(frozen=True)
class Case:
    """One kernel, and where what happens on it lies."""

    folder: Path
    kernel: str
    skill: str
    options: tuple[str, ...]
    playbook: tuple[str, ...]
    """More options, of the playbook's run."""

    @classmethod
    def of(cls, folder: Path) -> Case:
        """Read its file."""
        read = json.loads((folder / "case.json").read_text())
        options, playbook = (tuple(read.get(name, ())) for name in ("options", "playbook"))
        return cls(folder, read["kernel"], read["skill"], options, playbook)

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.folder.name

    @property
    def moves(self) -> list[Path]:
        """In their order."""
        return sorted(draft.parent for draft in self.folder.glob("moves/*/draft.py"))

    def result(self, name: str) -> dict[str, Any] | None:
        """What a command answered; None where it has not run."""
        file = self.folder / f"{name}.json"
        found: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
        return found

    def call(self, *words: str, to: Path) -> dict[str, Any]:
        """Run a command of tile-agent in the repository; its answer goes into a file.

        Raises:
            RuntimeError: it gave none, or was wrong; with what it said.
        """
        log = to.with_suffix(".log")
        begun = time.monotonic()
        with log.open("w") as said:
            end = subprocess.run(
                [sys.executable, "-m", "agent", *words, "--json"],
                cwd=self.folder / "repository",
                env=environment() | {"TILE_AGENT_STATE_DIR": str(self.folder / "state")},
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                check=False,
            )
        try:
            answer: dict[str, Any] = json.loads(end.stdout)
        except json.JSONDecodeError:
            raise RuntimeError(f"{words[0]} ended with {end.returncode}: see {log}") from None
        took_s = round(time.monotonic() - begun, 1)
        to.write_text(
            json.dumps(answer | {"exit_code": end.returncode, "took_s": took_s}, indent=1)
        )
        if end.returncode in (1, 2):
            raise RuntimeError(f"{words[0]}: {answer.get('error', f'see {log}')}")
        return answer


def go_on(case: Case, ends: float) -> str:
    """The next steps of a case, as far as the time allows. Returns what is in the way, or ""."""
    try:
        if case.result("playbook") is None:
            if ends - time.monotonic() < RUN_S:
                return "no time left"
            kernel = ("--kernel", case.kernel, "--branch", BRANCH)
            options = (*case.options, *case.playbook)
            case.call("run", *kernel, "--yes", *options, to=case.folder / "playbook.json")
        left = [move for move in case.moves if not (move / "answer.json").exists()]
        if left and ends - time.monotonic() < 2 * STEP_S:
            return "no time left"
        return lead(case, left, ends) if left else ""
    except (RuntimeError, subprocess.CalledProcessError) as problem:
        return str(problem)


def lead(case: Case, moves: Sequence[Path], ends: float) -> str:
    """A run through moves, from where the last one ended. Returns what is in the way, or ""."""
    number = 1 + len(list(case.folder.glob("led-*-finish.json")))
    led = case.folder / f"led-{number}"
    before = BRANCH if number == 1 else f"led-{number - 1}"
    git = ["git", "-C", str(case.folder / "repository")]
    subprocess.run([*git, "switch", "--quiet", "--detach", before], check=True)
    kernel = ("--kernel", case.kernel, "--branch", f"led-{number}")
    case.call("begin", *kernel, "--yes", *case.options, to=led.with_name(f"{led.name}-begin.json"))
    try:
        for move in moves:
            if ends - time.monotonic() < STEP_S:
                return "no time left"
            if make(case, move)["do"] == "finish":
                break
    finally:
        case.call("finish", to=led.with_name(f"{led.name}-finish.json"))
    return ""


def make(case: Case, move: Path) -> dict[str, Any]:
    """One move: what is chosen, edited and tried."""
    chosen = (move / "choose.txt").read_text().strip()
    words = () if chosen == MEND else ("--choose", chosen)
    try:
        offered = case.call("next", *words, to=move / "next.json")
    except RuntimeError:  # it is not open any more, or was never; an assistant still has its idea
        if chosen in (MEND, OWN_IDEA):
            raise
        offered = case.call("next", "--choose", OWN_IDEA, to=move / "next.json")
    if offered["do"] != "edit":
        return offered
    Path(offered["file"]).write_bytes((move / "draft.py").read_bytes())
    variants = [
        word for file in sorted(move.glob("variant*.py")) for word in ("--variant", str(file))
    ]
    why = (move / "why.txt").read_text().strip()
    return case.call("try", "-m", why, *variants, to=move / "answer.json")


# --- the table ----------------------------------------------------------------------------------


def table(cases: Sequence[Case]) -> str:
    """The figures, as Markdown."""
    rows = [figures(case) for case in cases if case.result("playbook") is not None]
    lines = [
        "# The skills on public kernels",
        "",
        f"Measured on: {describe(probe().to_json())}",
        "",
    ]
    lines += [row(HEAD), row([":--", ":--", *["--:"] * 6]), *(row(cells) for cells, _ in rows)]
    alone, on_top = ([gains[at] for _, gains in rows] for at in (0, 1))
    means = [math.exp(sum(map(math.log, x)) / len(x)) if x else 1.0 for x in (alone, on_top)]
    cells = ("**geometric mean**", "", ratio(means[0]), "", "", ratio(means[1]), "")
    return "\n".join([*lines, row([*cells, ratio(means[0] * means[1])])]) + "\n"


def figures(case: Case) -> tuple[list[str], tuple[float, float]]:
    """The cells of a case, and how much faster the playbook and the moves have made it."""
    playbook = case.result("playbook") or {}
    finished = sorted(case.folder.glob("led-*-finish.json"))
    led = [json.loads(file.read_text()) for file in finished]
    answers = [json.loads(file.read_text()) for file in case.folder.glob("moves/*/answer.json")]
    verdicts = [answer["row"]["status"] for answer in answers if answer.get("row")]
    alone = playbook.get("speedup") or 1.0
    on_top = math.prod(each.get("speedup") or 1.0 for each in led)
    took_s = [json.loads(file.read_text())["took_s"] for file in _answers_of(case)]
    cells = [
        case.name, case.skill, ratio(alone), f"{playbook.get('took_s', 0):.0f}",
        f"{verdicts.count('keep')} of {len(answers)}", ratio(on_top), f"{sum(took_s):.0f}",
        ratio(alone * on_top),
    ]  # fmt: skip
    return cells, (alone, on_top)


def _answers_of(case: Case) -> list[Path]:
    """What the commands that an assistant leads by answered."""
    return [*case.folder.glob("led-*.json"), *case.folder.glob("moves/*/*.json")]


if __name__ == "__main__":
    os.environ.setdefault("GIT_TERMINAL_PROMPT", "0")
    sys.exit(main())
