"""`skill`: gives coding assistants the skills that drive tile-agent, and checks them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import output
from agent.cli.shared_options import Json

if TYPE_CHECKING:
    from agent.skillbook.install import Change

app = typer.Typer(
    name="skill",
    help="Skills that tell coding assistants how to drive tile-agent.",
    no_args_is_help=True,
)
_BadCommandLine: type[Exception] = typer.BadParameter.__mro__[2]
"""What click raises; see `agent.cli.main`."""
FAILED = 3
"""Exit code when a check found something: an answer, not a fault."""

Names = Annotated[list[str] | None, typer.Argument(help="Which skills; all when left out.")]
For = Annotated[
    list[str] | None,
    typer.Option(
        "--for",
        help="claude, codex, cursor, gemini, copilot, opencode or all; may be given several times.",
    ),
]
User = Annotated[
    bool,
    typer.Option("--user/--project", help="For all your projects, or in this repository alone."),
]
To = Annotated[
    Path | None, typer.Option(help="The skills folder of another assistant, instead of --for.")
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Take the place of a changed or foreign skill, and keep that."),
]


def register(parent: typer.Typer) -> None:
    """Add the commands, as a group."""
    parent.add_typer(app, name="skill")


@app.command()
def install(
    names: Names = None,
    assistants: For = None,
    user: User = True,
    to: To = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Install skills, or bring them up to date; files that are not ours are left alone."""
    output.use_json(as_json)
    from agent.errors import UsageError
    from agent.skillbook import install as skills
    from agent.skillbook import shipped

    homes = _homes(assistants, user, to)
    if not homes:
        raise UsageError("for whom? --for claude, for example, or --for all; see --help")
    places = [(source, home) for home in homes for source in shipped(tuple(names or ()))]
    if not force:  # look everywhere before anything is written anywhere
        for source, home in places:
            found = skills.standing(home, source.name, source)
            if found.closed:
                raise UsageError(skills.refusal(found))
    _finish([skills.install(source, home, force=force) for source, home in places], homes)


@app.command()
def remove(
    names: Names = None,
    assistants: For = None,
    user: User = True,
    to: To = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Remove skills that were installed; files that are not ours stay."""
    output.use_json(as_json)
    from agent.errors import UsageError
    from agent.skillbook import install as skills

    homes = _homes(assistants or ["all"], user, to)
    wanted = set(names or ())
    places = [
        (home, name)
        for home in homes
        for name in skills.installed_in(home)
        if not wanted or name in wanted
    ]
    if missing := sorted(wanted - {name for _, name in places}):
        where = ", ".join(map(str, homes))
        raise UsageError(f"tile-agent has not installed {', '.join(missing)} in {where}")
    for home, name in places:
        found = skills.standing(home, name)
        if found.closed and not force:
            raise UsageError(skills.refusal(found))
    _finish([skills.remove(home, name, force=force) for home, name in places], homes)


@app.command("list")
def list_skills(
    user: Annotated[
        bool | None,
        typer.Option("--user/--project", help="Only yours, or only this repository's; else both."),
    ] = None,
    to: To = None,
    as_json: Json = False,
) -> None:
    """List the skills, what each is for, and where it is installed."""
    output.use_json(as_json)
    from agent.skillbook import install as skills
    from agent.skillbook import shipped
    from agent.skillbook.format import FILE, read

    homes = _everywhere() if user is None and to is None else _homes(["all"], user is True, to)
    listed = []
    lines = []
    for source in shipped():
        fields, _ = read(source / FILE)
        description = str(fields.get("description", ""))
        found = {str(home): skills.standing(home, source.name, source) for home in homes}
        listed.append(
            {
                "skill": source.name,
                "description": description,
                "folder": str(source),
                "installed": [
                    {"for": list(homes[Path(home)]), "folder": str(s.folder), "state": s.state}
                    | ({"reason": s.reason} if s.reason else {})
                    for home, s in found.items()
                ],
            }
        )
        lines.append(f"{source.name}: {description.partition('. ')[0]}.")
        lines += [f"  {s.state:<9} {s.folder}" for s in found.values()]
    output.result({"skills": listed}, "\n".join(lines))


@app.command()
def check(
    context: typer.Context,
    path: Annotated[Path | None, typer.Argument(help="A skill, or a folder of skills.")] = None,
    as_json: Json = False,
) -> None:
    """Hold skills against the format, and their commands and links against what exists.

    Those that ship with tile-agent when no PATH is given.
    """
    output.use_json(as_json)
    from agent.errors import UsageError
    from agent.skillbook import SHIPPED
    from agent.skillbook.check import check as checked
    from agent.skillbook.format import FILE

    root = path or SHIPPED
    folders = (
        [root] if (root / FILE).is_file() else [f.parent for f in sorted(root.glob(f"*/{FILE}"))]
    )
    if not folders:
        raise UsageError(f"there is no {FILE} in {root}, nor in a folder of it")
    refusal = _Help(context.find_root().command)
    problems = [problem for folder in folders for problem in checked(folder, refusal)]
    output.result(
        {
            "skills": [str(folder) for folder in folders],
            "problems": [
                {"file": str(p.file), "line": p.line, "message": p.message} for p in problems
            ],
        },
        "\n".join([*map(str, problems), f"{len(folders)} skills, {len(problems)} problems"]),
    )
    if problems:
        raise typer.Exit(FAILED)


@app.command()
def references(
    write: bool = typer.Option(False, "--write", help="Make them anew; else say which are stale."),
    as_json: Json = False,
) -> None:
    """Make the skills' references from the playbook and the documentation, in a checkout."""
    output.use_json(as_json)
    from agent.skillbook.references import stale, update

    found = stale()
    if write:
        update(found)
    lines = [f"{'made' if write else 'stale'}: {path}" for path in found]
    output.result(
        {"stale": [str(path) for path in found], "written": write},
        "\n".join(lines) or "the references are up to date",
    )
    if found and not write:
        raise typer.Exit(FAILED)


def _homes(
    assistants: Sequence[str] | None, user: bool, to: Path | None
) -> dict[Path, tuple[str, ...]]:
    """The skills folders that were asked for, each with who reads it."""
    from agent.repository import Repository
    from agent.skillbook.assistants import Scope, folders

    if to is not None:
        return {to.expanduser().absolute(): ()}
    if not assistants or user:
        return folders(assistants or (), Scope.USER, Path.home())
    return folders(assistants, Scope.PROJECT, Repository.open(Path.cwd()).root)


def _everywhere() -> dict[Path, tuple[str, ...]]:
    """The skills folders of the user and, inside a repository, those of the project."""
    from agent.errors import UsageError

    homes = _homes(["all"], user=True, to=None)
    try:
        return homes | _homes(["all"], user=False, to=None)
    except UsageError:  # not in a repository
        return homes


def _finish(changes: Sequence[Change], homes: dict[Path, tuple[str, ...]]) -> None:
    value: list[dict[str, Any]] = []
    lines = []
    for change in changes:
        readers = list(homes[change.folder.parent])
        value.append(
            {
                "skill": change.folder.name,
                "folder": str(change.folder),
                "for": readers,
                "action": change.action,
                "kept": str(change.kept) if change.kept else None,
                "left": list(change.left),
            }
        )
        lines.append(f"{change.action}: {change.folder}")
        if change.kept:
            lines.append(f"  what was there is in {change.kept}")
        if change.left:
            lines.append(f"  not ours, left there: {', '.join(change.left)}")
    output.result({"changes": value}, "\n".join(lines) or "nothing to do")


class _Help:
    """Asks the command line itself whether it would take a call; runs nothing but `--help`."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._shown: set[tuple[str, ...]] = set()

    def __call__(self, arguments: tuple[str, ...], whole: bool) -> str | None:
        command = self._root
        names: tuple[str, ...] = ()
        rest = list(arguments)
        while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            if rest[0] not in command.commands:
                return f"there is no command {' '.join((*names, rest[0]))}"
            names, command = (*names, rest[0]), command.commands[rest.pop(0)]
        try:
            self._show_help(names)
            if whole and not hasattr(command, "commands"):
                with command.make_context(" ".join(names), list(rest)):
                    pass
            else:
                context = command.context_class(command, info_name=" ".join(names))
                command.make_parser(context).parse_args(list(rest))
        except _BadCommandLine as problem:
            message = getattr(problem, "format_message", None)
            return str(message() if message else problem)
        return None

    def _show_help(self, names: tuple[str, ...]) -> None:
        if names not in self._shown:
            with redirect_stdout(io.StringIO()):
                self._root.main([*names, "--help"], prog_name="tile-agent", standalone_mode=False)
            self._shown.add(names)
