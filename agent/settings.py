"""The declarations of `agent.options` as a list, and what a list of values makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from agent.options import Option, Panel, Request, ValueForm

T = TypeVar("T")
_UNTITLED = Panel()


@dataclass(frozen=True)
class Setting:
    """An option, and where its value belongs."""

    path: tuple[str, ...]
    """The fields that lead to it from a `Request`."""
    name: str
    kind: Any
    """The type of the field."""
    default: Any
    """`dataclasses.MISSING` where it has to be given."""
    option: Option
    panel: str = ""
    run_only: bool = False

    @property
    def flag(self) -> str:
        """As the command line has it."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def repeatable(self) -> bool:
        """Whether several values may be given, each by itself."""
        single = (ValueForm.CHAIN, ValueForm.WORDS, ValueForm.PLAYBOOK_FIRST)
        return self.kind == tuple[str, ...] and self.option.form not in single

    def help(self, several: str) -> str:
        """What it is for.

        Args:
            several: how more than one value is given, where that can be.
        """
        return self.option.told(several) if self.repeatable else self.option.help


_PLAYBOOK_FIRST = Setting(
    path=("options", "proposers"),
    name="playbook_first",
    kind=bool,
    default=False,
    option=Option(
        "Let the program go through the playbook before it is your turn, which may take an hour.",
        form=ValueForm.PLAYBOOK_FIRST,
    ),
)
"""All that is left of `proposers` where an assistant leads."""


def settings(*, led: bool) -> list[Setting]:
    """The options of a run, in the order in which they are shown.

    Args:
        led: of a run that an assistant leads, which is begun by `begin`.
    """
    found = list(_walk(Request))
    if not led:
        return sorted(found, key=lambda setting: setting.run_only)
    replaced = (_PLAYBOOK_FIRST if s.path == _PLAYBOOK_FIRST.path else s for s in found)
    return [setting for setting in replaced if not setting.run_only]


def _walk(kind: type, path: tuple[str, ...] = (), panel: Panel = _UNTITLED) -> Iterator[Setting]:
    hints = get_type_hints(kind, include_extras=True)
    for own in fields(kind):
        inner, said = _split(hints[own.name])
        here = (*path, own.name)
        if isinstance(said, Panel):
            yield from _walk(inner, here, said)
        elif isinstance(said, Option):
            run_only = (panel.run_only and not said.everywhere) or said.run_only
            name = said.name or own.name
            title = "" if said.everywhere else panel.title
            yield Setting(here, name, inner, own.default, said, title, run_only)


def _split(hint: Any) -> tuple[Any, Any]:
    """The type of a field, and what its annotation says beside it."""
    if get_origin(hint) is not Annotated:
        return hint, None
    inner, said = get_args(hint)
    return inner, said


def filled(values: Mapping[tuple[str, ...], Any]) -> Request:
    """What was asked for, of the values by the paths of their settings; the rest by default."""
    found: Request = _filled(Request, values)
    return found


def _filled(kind: Any, values: Mapping[tuple[str, ...], Any]) -> Any:
    hints = get_type_hints(kind)
    given = {}
    for own in fields(kind):
        inner = {path[1:]: value for path, value in values.items() if path[0] == own.name}
        if () in inner:
            given[own.name] = inner[()]
        elif inner:
            given[own.name] = _filled(hints[own.name], inner)
    return kind(**given)


def as_words(flag: str, value: Any) -> list[str]:
    """An option on a command line: none for None, one for each of several values.

    A value cannot be taken for another option.
    """
    if value is None:
        return []
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag.removeprefix('--')}"]
    several = value if isinstance(value, list | tuple) else [value]
    return [f"{flag}={each}" for each in several]


def signed(function: Callable[..., T], parameters: Iterable[Parameter]) -> Callable[..., T]:
    """The function with other parameters, for a library that makes something of a signature."""
    returns = get_type_hints(function, include_extras=True)["return"]
    signature = Signature(list(parameters), return_annotation=returns)
    vars(function)["__signature__"] = signature
    annotations = {p.name: p.annotation for p in signature.parameters.values()}
    function.__annotations__ = annotations | {"return": returns}
    return function
