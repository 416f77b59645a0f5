"""Makes the pages that are made from the program: `make generate`.

    python -m tools.pages            write those that are stale
    python -m tools.pages --check    only name them; exit code 1 where there are any

They are what the entries were measured to gain, the commands, the playbook, the rules for cuTile,
what the sources ask, and the references of the skills.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from typer.main import get_command
from typer.testing import CliRunner

from agent.cli.main import app
from agent.errors import ExitCode
from tools import measured, sources

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PROGRAM = "tile-agent"
PRINTED = {
    DOCS / "reference" / "playbook.md": ("playbook", "reference"),
    DOCS / "reference" / "cutile_rules.md": ("lint", "--rules"),
}
"""Pages that a command prints whole."""
SKILLS = ("skill", "references")

_INTRODUCTION = """\
# Commands

Made from the program by `make generate`; not edited by hand. What the commands are for, and in
which order, the guide tells: [getting started](getting_started.md),
[tools beside a run](tools.md), [who writes the candidates](assistants.md).

Results go to stdout, progress to stderr. `--help` (or `-h`) explains a command; `--json` prints the
result as JSON, of `run` [these fields](reference/run_json.md). An option counts before its
environment variable, and that before `[tool.tile-agent]` of `pyproject.toml`, where `run`, `plan`
and `begin` look for defaults of all their options that have a value.
"""
_EXIT_CODES = {
    ExitCode.DONE: "done; of a run: at least one optimization was kept",
    ExitCode.FAULT: "a fault of tile-agent",
    ExitCode.USAGE: "bad usage or input; nothing was changed, and the message says how to mend it",
    ExitCode.NO_IMPROVEMENT: "of a run: no improvement found; of `verify` and `bench`: the tests "
    "fail; of `lint`: an error was found; of `plan`: a run would try nothing or cannot begin here; "
    "of `capture`: the command failed, and made no call",
    ExitCode.ESCALATED: "escalated: the incumbent failed its own perf tests, nothing could be "
    "measured, or nothing was gained and the cause needs a person; of `capture`: no call launched "
    "a kernel of the file",
    ExitCode.STOPPED: "stopped at the iteration limit or the time budget, or interrupted; earlier "
    "keeps are on the branch; where the time budget ended the baseline, nothing was changed",
}
_WORDS = {int: "integer", float: "number", Path: "path", str: "text"}


def leaves(group: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its names."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from leaves(command, (*names, name))
        else:
            yield (*names, name), command


def commands_page() -> str:
    """Every command with its options, as Markdown."""
    found = [(" ".join((PROGRAM, *names)), command) for names, command in leaves(get_command(app))]
    rows = [
        f"| [`{name}`](#{name.replace(' ', '-')}) | {_paragraphs(command)[0]} |\n"
        for name, command in found
    ]
    codes = [f"| {code} | {_EXIT_CODES[code]} |\n" for code in ExitCode]
    return "".join(
        [
            _INTRODUCTION,
            "\n| exit code | meaning |\n|---:|---|\n",
            *codes,
            "\n| command | what it does |\n|---|---|\n",
            *rows,
            *(_section(*each) for each in found),
        ]
    )


def _section(name: str, command: Any) -> str:
    usage, last = [name], ["[OPTIONS]"]
    for param in command.params:
        if param.param_type_name == "argument" and param.nargs == -1 and param.required:
            last += ["--", f"{_metavar(param)}..."]  # a command has options of its own
        elif param.param_type_name == "argument":
            usage.append(_metavar(param))
        elif param.required:
            usage.append(f"{param.opts[0]} {param.name.upper()}")
    lines = [f"## {name}", *_paragraphs(command), f"```text\n{' '.join(usage + last)}\n```"]
    arguments = [
        f"- `{_metavar(param)}`: {param.help}"
        for param in command.params
        if param.param_type_name == "argument" and param.help
    ]
    if arguments:
        lines.append("\n".join(arguments))
    lines += _tables(command)
    if command.epilog:
        _, *calls = command.epilog.split("\n\n")
        lines.append("\n".join(["```sh", *calls, "```"]))
    return "\n" + "\n\n".join(lines) + "\n"


def _metavar(param: Any) -> str:
    """An argument as a usage line names it."""
    name = param.metavar or param.name.upper()
    return name if param.required or name.startswith("[") else f"[{name}]"


def _tables(command: Any) -> Iterator[str]:
    """A table of the options for each of their panels."""
    panels: dict[str, list[Any]] = {}
    for param in command.params:
        if param.param_type_name == "option" and not param.hidden:
            panels.setdefault(param.rich_help_panel or "", []).append(param)
    signature = inspect.signature(command.callback, eval_str=True)
    for panel, options in panels.items():
        wide = any(option.envvar for option in options)
        head = ["option", "value", "default", *(["variable"] if wide else []), "meaning"]
        rows = [head, ["---"] * len(head)]
        for option in options:
            value = "" if option.is_flag else _word(signature.parameters[option.name].annotation)
            variable = [f"`{option.envvar}`" if option.envvar else ""] if wide else []
            rows.append([_names(option), value, _default(option), *variable, _cell(option.help)])
        table = "\n".join(f"| {' | '.join(row)} |".replace("  |", " |") for row in rows)
        yield f"{panel}:\n\n{table}" if panel else table


def _names(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _default(option: Any) -> str:
    """What holds when an option is left out; empty where its help says so."""
    default = option.default
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        return option.show_default
    if option.is_flag:
        names = option.opts if default else option.secondary_opts
        return f"`{names[0]}`" if option.secondary_opts and default is not None else ""
    if default is None or default == "" or callable(default):
        return ""
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _word(annotation: Any) -> str:
    """The kind of an option's value."""
    parts = [annotation]
    while parts:
        part = parts.pop(0)
        if part in _WORDS:
            return _WORDS[part]
        parts = [*get_args(part), *parts]
    return "text"


def _cell(text: str | None) -> str:
    """A help text in a cell of a table; what looks like HTML is code."""
    words = " ".join((text or "").split()).replace("|", "\\|")
    return words.replace("<", "&lt;")


def _paragraphs(command: Any) -> list[str]:
    text = inspect.cleandoc(command.help or "")
    return [_cell(part) for part in text.split("\n\n")]


def called(*arguments: str) -> str:
    """What tile-agent prints."""
    done = CliRunner().invoke(app, list(arguments))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def stale() -> dict[Path, str]:
    """The pages that are not what the program makes now: path -> text."""
    made = {DOCS / "commands.md": commands_page()}
    made |= {path: called(*arguments) for path, arguments in PRINTED.items()}
    return {
        path: text
        for path, text in made.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main() -> int:
    """Write or name what is stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only name what is stale")
    check = parser.parse_args().check
    found: dict[Path, str] = {}
    for kind in (measured.stale, stale, sources.stale):  # the pages tell what was measured
        found |= (some := kind())
        for path, text in () if check else some.items():
            path.write_text(text, encoding="utf-8")
    # The references hold pages of docs/reference/, so they come last.
    skills = json.loads(called(*SKILLS, "--json", *([] if check else ["--write"])))["stale"]
    for path in [*found, *map(Path, skills)]:
        print(f"{'stale' if check else 'made'}: {path.relative_to(ROOT)}")
    return 1 if check and (found or skills) else 0


if __name__ == "__main__":
    sys.exit(main())
