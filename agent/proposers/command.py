"""Has a program write the candidate: `claude -p`, `codex exec`, `aider`, a script of the user's.

It works in a copy of the incumbent that shares nothing with the user's repository, and only the
text of the kernel file comes back. What else it changes ends with the copy.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.errors import UsageError
from agent.harness.processes.program import ProgramEnd, run_program
from agent.harness.processes.variables import insist_set
from agent.options import COMMAND, CommandOptions
from agent.prompting import render
from agent.proposers.agenda import Task
from agent.proposers.answer import Answer, Unusable, apply, problems
from agent.proposers.brief import Brief
from agent.proposers.working_copy import TASK, WorkingCopy
from agent.proposers.writer import Chosen, Refused, Written
from agent.redaction import redact
from agent.repository import LOCAL_VARIABLES, Repository
from agent.state import Run
from agent.usage import Usage

PROMPT, KERNEL = "{prompt}", "{kernel}"
_LAST_LINES = 50
_LONGEST_LINE = 300


def check(options: CommandOptions) -> None:
    """Look whether the program can be run.

    Raises:
        UsageError: it cannot.
    """
    if not options.argv:
        raise UsageError("--proposer command needs a program: add --command 'PROGRAM ARGUMENTS'")
    program = options.argv[0]
    if "/" in program and not Path(program).is_absolute():
        raise UsageError(
            f"--command {program} is relative, and it is run in a copy of the repository: "
            f"give its full path, {Path(program).resolve()}"
        )
    if shutil.which(program) is None:
        raise UsageError(f"--command {program} cannot be found: install it, or give its full path")
    insist_set(options.pass_env)
    if not 0 < options.timeout_s < math.inf:
        raise UsageError(f"the program's time is {options.timeout_s} s: give a number of seconds")


class CommandWriter:
    """Runs the user's program on each task, afresh."""

    name = COMMAND

    def __init__(self, options: CommandOptions, repository: Repository, folder: Path) -> None:
        """Take the program, and the folder that keeps prompts and logs."""
        self._options = options
        self._repository = repository
        self._folder = folder

    def choose(self, run: Run, tasks: Sequence[Task]) -> Chosen | None:  # noqa: ARG002
        """The playbook's order holds: a program is run for one task at a time."""
        return None

    def write(self, brief: Brief, run: Run) -> Written | Refused:  # noqa: ARG002
        """Run the program in a copy, and take the kernel file as it leaves it."""
        prompt = render(
            "command.md.j2",
            brief=brief.text.rstrip(),
            kernel=brief.kernel,
            timeout_s=self._options.timeout_s,
        )
        prompt = redact(prompt, os.environ)
        prompt = prompt.encode(errors="replace").decode()  # a test's id may be no text
        with tempfile.TemporaryDirectory(
            prefix="tile-agent-", ignore_cleanup_errors=True
        ) as folder:
            scratch = Path(folder).resolve()
            copy = WorkingCopy.make(
                self._repository, brief.base_sha, brief.kernel, prompt, scratch / "copy"
            )
            try:
                ended, output = self._run(copy, prompt, scratch)
            except UsageError as problem:
                return Refused(str(problem), hopeless=True)
            changes = copy.other_changes()
            usage = Usage(took_s=ended.took_s)
            remark = f" It also {', '.join(changes)}; that was thrown away." if changes else ""
            try:
                text = self._taken(copy, brief, ended, output)
            except Unusable as reason:
                return Refused(f"{self._program}: {reason}.{remark}", usage)
        said = _said(output)
        hypothesis = _line(said.get("hypothesis")) or f"{brief.task.title}, by {self._program}"
        return Written(
            source=text,
            hypothesis=f"{hypothesis.rstrip('.')}.{remark}",
            title=_line(said.get("title")),
            expected_gain=_fraction(said.get("expected_gain")),
            risk=_line(said.get("risk")),
            usage=usage,
        )

    @property
    def _program(self) -> str:
        return Path(self._options.argv[0]).name

    def _run(self, copy: WorkingCopy, prompt: str, scratch: Path) -> tuple[ProgramEnd, str]:
        """Run it to its end. Its prompt and what it printed are kept, without secrets."""
        given = {PROMPT: str(copy.root / TASK), KERNEL: str(copy.root / copy.kernel)}
        argv = [_filled(word, given) for word in self._options.argv]
        reads_file = any(PROMPT in word for word in self._options.argv)
        temporary, log = scratch / "tmp", scratch / "log"
        temporary.mkdir()
        number = self._next_number()
        _keep(self._folder / f"{number}.md", prompt)
        try:
            ended = run_program(
                argv,
                copy.root,
                log=log,
                timeout_s=self._options.timeout_s,
                stdin="" if reads_file else prompt,
                pass_env=self._options.pass_env,
                drop_env=LOCAL_VARIABLES,
                variables={"TMPDIR": str(temporary)},
            )
        finally:
            output = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            output = _keep(self._folder / f"{number}.log", output)
        return ended, output

    def _next_number(self) -> str:
        """Goes on after a crash."""
        self._folder.mkdir(parents=True, exist_ok=True)
        taken = [int(path.stem) for path in self._folder.glob("*.md") if path.stem.isdigit()]
        return f"{max(taken, default=0) + 1:04d}"

    def _taken(self, copy: WorkingCopy, brief: Brief, ended: ProgramEnd, output: str) -> str:
        """The new text of the kernel.

        Raises:
            Unusable: the program failed, or what it left cannot be tried.
        """
        last = _last_line(output)
        words = f": {last}" if last else ""
        if ended.code != 0:  # whatever it wrote may be half of what it meant
            raise Unusable(f"{ended.fate}{words}")
        before = brief.source.text
        text = copy.text()
        if text == before:
            raise Unusable(f"left {brief.kernel} as it was{words}")
        text = apply(Answer(hypothesis="", source=text), before)
        if wrong := problems(brief.source, text):
            raise Unusable(*wrong)
        return text


def _filled(word: str, given: dict[str, str]) -> str:
    for name, value in given.items():
        word = word.replace(name, value)
    return word


def _keep(path: Path, text: str) -> str:
    """Write a text without the secrets in it, and give what was written."""
    text = redact(text, os.environ)
    path.write_text(text, encoding="utf-8")
    return text


# --- what it says -------------------------------------------------------------------------------


def _said(output: str) -> dict[str, Any]:
    """The last line of JSON among the last lines that has what the prompt asks for."""
    for line in reversed(output.splitlines()[-_LAST_LINES:]):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and "hypothesis" in value:
            return value
    return {}


def _last_line(output: str) -> str:
    lines = (_line(line) for line in reversed(output.splitlines()[-_LAST_LINES:]))
    return next(filter(None, lines), "")


def _line(value: object) -> str:
    """A text as one line of modest length that shows what it holds; nothing for other values."""
    if not isinstance(value, str):
        return ""
    line = " ".join("".join(c if c.isprintable() else " " for c in value).split())
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 3]}..."


def _fraction(value: object) -> float | None:
    """A part of the latency; None for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1 else None
