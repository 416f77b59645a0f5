"""The options of a run on the command line, made of their declarations in `agent.options`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from agent.cli import completion, output
from agent.cli.shared_options import SEVERAL, DryRun, Json, Quiet, Yes, from_anywhere
from agent.errors import UsageError
from agent.options import ASSISTANT, KERNEL, PLAYBOOK, PROPOSERS, Request, ValueForm
from agent.settings import Setting, as_words, filled, settings, signed


def asking_which(command: Callable[[Request, bool, Collection[Setting]], None]) -> Any:
    """A command that takes the options of a run that an assistant leads.

    Args:
        command: called with what was asked for, whether to begin without asking, and the options
            that the command line itself names.
    """
    taken = settings(led=True)

    def run(*, context: typer.Context, as_json: bool, yes: bool, **given: Any) -> None:
        output.use_json(as_json)
        named = [s for s in taken if _is_named(context, s.name)]
        command(_request(taken, given), yes, named)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    asks = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return signed(run, [asks, *map(parameter, taken), *_ending({"yes": Yes, "as_json": Json})])


def _is_named(context: typer.Context, name: str) -> bool:
    """Whether the command line gives an option, and not a variable, a file or its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def asking(
    command: Callable[[Request, bool], None],
    *,
    begins: bool = True,
    instead: Callable[[Request, bool], None] | None = None,
) -> Callable[..., None]:
    """A command of typer that takes the options of a run.

    Args:
        command: called with what was asked for, and whether to begin without asking.
        begins: whether it begins a run, and may have to ask.
        instead: called in its place with --dry-run.
    """
    taken = settings(led=False)

    def run(
        *,
        as_json: bool,
        yes: bool = False,
        dry_run: bool = False,
        quiet: bool = False,
        **given: Any,
    ) -> None:
        output.use_json(as_json)
        output.be_quiet(quiet)
        does = instead if dry_run and instead else command
        does(_request(taken, given), yes)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    flags: dict[str, Any] = {"dry_run": DryRun} if instead else {}
    flags |= {"yes": Yes, "quiet": Quiet} if begins else {}
    return signed(run, [*map(parameter, taken), *_ending(flags | {"as_json": Json})])


def _request(taken: Iterable[Setting], given: Mapping[str, Any]) -> Request:
    return filled({each.path: value(each, given[each.name]) for each in taken})


def _ending(flags: Mapping[str, Any]) -> Iterator[Parameter]:
    """Flags, which come after the options."""
    for name, annotation in flags.items():
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=annotation)


def parameter(setting: Setting) -> Parameter:
    """An option as a parameter that typer reads."""
    option = setting.option
    asked = typer.Option(
        *((setting.flag,) if setting.default is False else ()),
        help=setting.help(SEVERAL),
        min=option.min,
        envvar=option.env or None,
        show_default=option.shown_default or True,
        rich_help_panel=setting.panel or None,
        autocompletion=_offered(setting),
    )
    kind, default = _typed(setting)
    return Parameter(
        setting.name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if default is MISSING else default,
        annotation=Annotated[kind, asked],
    )


def value(setting: Setting, given: Any) -> Any:
    """The value of the field, of what typer made of the command line.

    Raises:
        UsageError: it is none.
    """
    match setting.option.form:
        case ValueForm.SECONDS:
            return seconds(setting.flag, given)
        case ValueForm.ENTRIES:
            return entries(given)
        case ValueForm.CHAIN:
            return proposers(given)
        case ValueForm.WORDS:
            return words(setting.flag, given)
        case ValueForm.FOLDER:
            return str(given.absolute()) if given else ""
        case ValueForm.PROGRAM:
            return from_anywhere(given)
        case ValueForm.PLAYBOOK_FIRST:
            return (PLAYBOOK, ASSISTANT) if given else (ASSISTANT,)
        case ValueForm.AS_IT_IS:
            return tuple(given or ()) if setting.repeatable else given


def _offered(setting: Setting) -> Callable[[str], list[str]] | None:
    """Finds what a shell offers for the value; None where it knows nothing better than files."""
    if setting.option is KERNEL:
        return completion.kernels
    return completion.optimizations if setting.option.form is ValueForm.ENTRIES else None


def _typed(setting: Setting) -> tuple[Any, Any]:
    """What typer takes for the type of an option, and its default."""
    if setting.repeatable:
        return list[str] | None, None
    match setting.option.form:
        case ValueForm.CHAIN:
            return str, ",".join(setting.default)
        case ValueForm.WORDS:
            return str, shlex.join(setting.default)
        case ValueForm.FOLDER:
            return Path | None, None
    return setting.kind, setting.default


def words_of(taken: Iterable[Setting], given: Mapping[str, Any]) -> list[str]:
    """The options on a command line again, of what typer made of one; without the defaults."""
    found = []
    for setting in taken:
        raw = given[setting.name]
        if raw != _typed(setting)[1]:
            found += as_words(setting.flag, raw)
    return found


# --- values -------------------------------------------------------------------------------------


def seconds(flag: str, given: float | None) -> float | None:
    """A number of seconds that ends."""
    if given is not None and not math.isfinite(given):
        raise UsageError(f"{flag} {given} is no number of seconds: leave it out for no limit")
    return given


def entries(names: list[str] | None) -> tuple[str, ...]:
    """Names of the playbook that exist."""
    from agent.playbook import find

    return tuple(find(name).name for name in names or ())


def proposers(chain: str) -> tuple[str, ...]:
    """'playbook,model' as a tuple; each is known, comes once, and is for `run`."""
    names = tuple(name.strip() for name in chain.split(",") if name.strip())
    known = [name for name in PROPOSERS if name != ASSISTANT]
    if ASSISTANT in names:
        raise UsageError("an assistant leads its run itself: `tile-agent begin --kernel PATH`")
    for name in names:
        if name not in known:
            raise UsageError(f"--proposer {name} is not known: choose from {', '.join(known)}")
    if not names or len(set(names)) < len(names):
        raise UsageError(f"--proposer {chain!r}: name each of {', '.join(known)} at most once")
    return names


def words(flag: str, line: str) -> tuple[str, ...]:
    """A command line as its words; no shell is involved."""
    try:
        return tuple(shlex.split(line))
    except ValueError as problem:
        raise UsageError(f"{flag} {line!r} cannot be split into words: {problem}") from None


# --- the documentation --------------------------------------------------------------------------

COLUMNS = ("option", "default", "variable", "commands", "what it is for")


def rows() -> Iterator[tuple[str, ...]]:
    """The rows of a table of the options, as Markdown; what its columns are, `COLUMNS` says."""
    begins = {setting.name: setting for setting in settings(led=True)}
    runs = {setting.name: setting for setting in settings(led=False)}
    for name, setting in (runs | begins).items():
        commands = [c for c, known in (("run", runs), ("begin", begins)) if name in known]
        yield (
            f"`{setting.flag}`",
            _shown(setting),
            f"`{setting.option.env}`" if setting.option.env else "",
            ", ".join(f"`{command}`" for command in commands),
            setting.help(SEVERAL).replace("|", "\\|"),
        )


def _shown(setting: Setting) -> str:
    """The default for a person; empty where there is none to speak of."""
    _, default = _typed(setting)
    if setting.name == "python":
        return "the one that runs tile-agent"
    if isinstance(default, bool):
        return "on" if default else "off"
    return "" if default is MISSING or default in (None, "") else f"`{default}`"
