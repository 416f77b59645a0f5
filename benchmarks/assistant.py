"""The assistant's protocol as a transcript: a script with no state of its own leads a run.

    python -m benchmarks.assistant OUT [EXAMPLE]

Copies an example (cutile_softmax) into a repository of its own. In each turn the script asks
`status` what comes next and does that; where a draft is to be edited it makes the edit that fits
the text it finds, a good one first and then one that is slower. One `try` is killed in the middle
and called again. Writes OUT/assistant.md: every call with its answer, shortened.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent.environment import describe, probe
from benchmarks.examples import prepared

Edit = tuple[str, str, str]
"""What to look for, what to put there, and why."""
EDITS: dict[str, tuple[Edit, ...]] = {
    "cutile_softmax": (
        ("@ct.kernel\n", "@ct.kernel(occupancy=8)\n", "more blocks hide the latency of loads"),
        ("occupancy=8", "occupancy=1", "one block has all registers to itself"),
    ),
    "triton_layer_norm": (
        ("BLOCK_SIZE = 1024", "BLOCK_SIZE = 8192", "a row in one trip"),
        ("BLOCK_SIZE = 8192", "BLOCK_SIZE = 512", "smaller blocks leave more registers"),
    ),
}
LONG = ("brief", "prose", "others", "why", "latency_meaning", "diagnosis", "rows", "final", "notes")
"""Fields that a reader of the transcript can do without, or sees elsewhere."""
KILLED_AT = "right"
MOST_TURNS = 20


class Script:
    """Does what `status` says."""

    def __init__(self, repository: Path, edits: tuple[Edit, ...]) -> None:
        self.repository = repository
        self.edits = edits
        self.lines: list[str] = []
        self.kill = True

    def lead(self) -> None:
        """Turn after turn, until the run is done."""
        for _ in range(MOST_TURNS):
            runs = self.call("status", "--json")["runs"]
            begin = f"tile-agent begin --kernel {self.kernel()} --yes --json --keep-going"
            words = shlex.split(runs[-1]["next"] if runs else begin)
            if words[0] == "git":
                return
            if words[1] == "next":
                over = len(runs[-1]["rows"]) > len(self.edits)
                words = ["", "finish", "--json"] if over else [*words, "--choose", "own-idea"]
            if self.call(*words[1:])["do"] == "edit":
                self.attempt(self.edit())
        raise RuntimeError(f"the run is not done after {MOST_TURNS} turns")

    def kernel(self) -> str:
        """The example's kernel file: the one beside its tests that holds what is edited."""
        found = [p for p in self.repository.glob("*.py") if self.edits[0][0] in p.read_text()]
        return found[0].name

    def edit(self) -> str:
        """Make the edit that fits the draft as it is, and say why."""
        (draft,) = self.repository.glob("sandbox/runs/*/draft/*.py")
        text = draft.read_text()
        for before, after, why in self.edits:
            if before in text:
                draft.write_text(text.replace(before, after))
                self.lines += [f"The draft: `{before.strip()}` becomes `{after.strip()}`.", ""]
                return why
        raise RuntimeError(f"no edit fits {draft}")

    def attempt(self, why: str) -> None:
        """Try the draft; the first time the process is killed, and called again."""
        words = ("try", "-m", why, "--json")
        if self.kill:
            self.kill = False
            process = subprocess.Popen(
                command(*words), cwd=self.repository, stderr=subprocess.PIPE, text=True
            )
            assert process.stderr is not None
            for line in process.stderr:
                if KILLED_AT in line:
                    break
            process.kill()
            process.communicate()
            self.show(words, f"[killed with SIGKILL after {line.strip()!r}]")
            words = tuple(shlex.split(self.call("status", "--json")["runs"][-1]["next"])[1:])
        self.call(*words)

    def call(self, *words: str) -> dict[str, Any]:
        """Run a command, and write it down with its answer."""
        end = subprocess.run(
            command(*words), cwd=self.repository, capture_output=True, text=True, check=False
        )
        if end.returncode not in (0, 3):
            raise RuntimeError(f"{words} ended with {end.returncode}: {end.stderr}")
        answer: dict[str, Any] = json.loads(end.stdout)
        self.show(words, json.dumps(shortened(answer), indent=1))
        return answer

    def show(self, words: tuple[str, ...], answer: str) -> None:
        """One call in the transcript."""
        answer = answer.replace(str(self.repository), "REPOSITORY")
        self.lines += ["```console", f"$ {shlex.join(['tile-agent', *words])}", answer, "```", ""]


def command(*words: str) -> list[str]:
    """The command line, as an installed `tile-agent` would run it."""
    return [sys.executable, "-c", "from agent.cli import main; main()", *words]


def shortened(answer: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that are long, and of runs only where they stand."""
    if "runs" in answer:
        kept = ("run", "standing", "summary", "next")
        return {"runs": [{key: run[key] for key in kept} for run in answer["runs"]]}
    return {k: "..." if k in LONG else v for k, v in answer.items() if k != "spent_by_phase_s"}


def main() -> int:
    """Lead a run and write the transcript."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("example", nargs="?", default="cutile_softmax", choices=sorted(EDITS))
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    script = Script(prepared(arguments.example, out), EDITS[arguments.example])
    script.lead()
    head = [
        f"# `{arguments.example}`, led by a script",
        "",
        f"Measured on: {describe(probe().to_json())}",
        "",
        f"```sh\npython -m benchmarks.assistant OUT {arguments.example}\n```",
        "",
        "Long fields of the answers are left out (`...`).",
        "",
    ]
    table = (script.repository / "sandbox" / "perf_results.md").read_text()
    (out / "assistant.md").write_text("\n".join([*head, *script.lines, table]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
