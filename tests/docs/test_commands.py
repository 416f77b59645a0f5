"""The commands that pages name exist, and the pages made from the program are up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from typer.main import get_command

from agent.cli.main import app
from agent.errors import ExitCode
from tests.support.pages import DOCS, PAGES, ROOT, is_call, name, rows, shown, spans, words

_OPTION = re.compile(r"--?[a-z][a-z-]*")


@cache
def root() -> Any:
    return get_command(app)


@cache
def leaves() -> dict[str, Any]:
    """Every command that does something, by its whole name."""
    return dict(_leaves(root(), ""))


def _leaves(group: Any, before: str) -> Iterator[tuple[str, Any]]:
    for each, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, f"{before}{each} ")
        else:
            yield f"{before}{each}", command


def options(command: Any) -> set[str]:
    given = {opt for param in command.params for opt in (*param.opts, *param.secondary_opts)}
    return {opt for opt in given if opt.startswith("-")} | {"--help", "-h"}


def resolved(call: str) -> tuple[Any, list[str]]:
    """The command that a call names, and what it hands to it."""
    given = words(call)
    for length in (2, 1):
        if (command := leaves().get(" ".join(given[:length]))) is not None:
            return command, given[length:]
    raise KeyError(f"there is no command {call!r}")


def refusal(call: str) -> str | None:
    """Why the command line would not take a call; nothing is run."""
    try:
        command, given = resolved(call)
        if not {"--help", "-h"} & {*given}:
            with command.make_context(call, given):
                pass
    except Exception as problem:
        return str(problem) or type(problem).__name__
    return None


def test_every_call_in_a_code_block_is_one_that_the_program_takes() -> None:
    calls = [(path, call) for path in PAGES for call in shown(path) if is_call(call)]
    assert len(calls) > 40
    assert [f"{name(p)}: {c}: {why}" for p, c in calls if (why := refusal(c))] == []


def test_a_call_in_the_text_names_a_command_and_options_of_its() -> None:
    for path in PAGES:
        for call in filter(is_call, spans(path)):
            if words(call)[0] in root().commands:
                command, given = group_or_leaf(call)
                own = given[: given.index("--")] if "--" in given else given  # of the command
                named = {word for word in own if word.startswith("-")}
                assert named <= options(command), f"{name(path)}: {call}"
            else:
                assert words(call)[0] in options(root()), f"{name(path)}: {call}"


def group_or_leaf(call: str) -> tuple[Any, list[str]]:
    """As `resolved`; a group alone, such as `tile-agent tileir`, is named too."""
    if len(given := words(call)) == 1:
        return root().commands[given[0]], []
    return resolved(call)


def test_an_option_in_the_text_is_one_of_some_command() -> None:
    programs = (root(), *leaves().values())
    known = {"--tile-cpu", "--tile-cpu-seed"}.union(*map(options, programs))
    for path in PAGES:
        named = {
            found[0] for s in spans(path) if s.startswith("--") and (found := _OPTION.match(s))
        }
        assert named <= known, name(path)


def test_the_page_of_commands_has_every_command_option_and_exit_code() -> None:
    page = DOCS / "commands.md"
    listed = {
        row[0].partition("`tile-agent ")[2].partition("`")[0] for row in rows(page, "command")
    }
    assert listed == set(leaves())
    assert [int(row[0]) for row in rows(page, "exit code")] == sorted(ExitCode)
    given = {o for row in rows(page, "option") for o in re.findall(r"`(--?[a-z-]+)`", row[0])}
    assert given == set().union(*map(options, leaves().values())) - {"--help", "-h"}
    assert sys.prefix not in page.read_text(encoding="utf-8")


def test_no_generated_page_is_stale() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.pages", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), f"run `make generate`\n{done.stderr}"
