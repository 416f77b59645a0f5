"""Sets `num_warps` and `num_stages` of Triton launches, which every launch has by default."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import libcst as cst

from agent.analysis.common.dialect import Launch
from agent.analysis.common.subject import NotApplicable
from agent.rewriting.triton.edits import Edit
from agent.syntax import Literal, Source, Untraceable, setting

DEFAULTS = {"num_warps": 4, "num_stages": 3}


def now(source: Source, launch: Launch, name: str) -> int:
    """What an option is at a launch. Raises `NotApplicable` when it is computed."""
    literal = given(source, launch, name)
    return literal.value if literal else DEFAULTS[name]


def given(source: Source, launch: Launch, name: str) -> Literal | None:
    """The integer a launch gives an option. Raises `NotApplicable` when it is computed.

    A kernel may take the option as a parameter of the same name as well.
    """
    expression = launch.hints.get(name) or launch.arguments.get(name)
    line = source.line(launch.node)
    if expression is None:
        check_shown(source, launch, name)
        return None
    try:
        literal = source.trace(expression)
    except Untraceable as reason:
        raise NotApplicable(f"{name} of the launch at line {line} {reason}") from None
    if literal.is_default:
        raise NotApplicable(f"a caller chooses {name} of the launch at line {line}")
    for assignment in literal.assignments:
        if len(source.uses(assignment)) > 1:
            raise NotApplicable(f"{name} of the launch at line {line} is used elsewhere too")
    return literal


def check_shown(source: Source, launch: Launch, *names: str) -> None:
    """Raise `NotApplicable` where a `**` may give one of these options, or any when none is
    named."""
    hidden = [name for name in names if name not in launch.hints]
    if not launch.options_shown and (hidden or not names):
        line, what = source.line(launch.node), " and ".join(hidden) or "options"
        raise NotApplicable(f"the launch at line {line} may give {what} behind a `**`")


MOST_WARPS = 32
"""1024 threads are what a block may have."""


def ramp(elements: str, elements_per_warp: int, least_warps: int = 1) -> str:
    """Warps by what a block holds: `min(max(BLOCK // 512, 1), 32)`."""
    return f"min(max({elements} // {elements_per_warp}, {least_warps}), {MOST_WARPS})"


def is_plain_or_ramp(source: Source, given: cst.BaseExpression | None) -> bool:
    """Whether warps are not given, a number, or what `ramp` writes."""
    if given is None or isinstance(source.resolve(given), cst.Integer):
        return True
    text = source.code(given)
    return text.startswith("min(max(") and text.endswith(f", {MOST_WARPS})")


def check(source: Source, launches: Iterable[Launch]) -> None:
    """Raise `NotApplicable` unless the options of every launch are to be seen, and may change."""
    for launch in launches:
        if not launch.complete:
            line = source.line(launch.node)
            raise NotApplicable(f"the launch at line {line} hides arguments behind a `*`")
        for name in DEFAULTS:
            given(source, launch, name)


def setting_options(
    source: Source, launches: Iterable[Launch], options: Mapping[str, int]
) -> dict[cst.CSTNode, Edit]:
    """The edits that give launches these options; none for what they are already."""
    edits: dict[cst.CSTNode, Edit] = {}
    for launch in launches:
        settings = []
        for name, value in options.items():
            literal = given(source, launch, name)
            if literal is not None and literal.names:
                if literal.value != value:
                    edits[literal.node] = _replacing(str(value))
            elif now(source, launch, name) != value:
                settings.append(setting(name, str(value)))
        if settings:
            edits[launch.node] = _all(settings)
    return edits


def _replacing(text: str) -> Callable[[cst.Integer], cst.Integer]:
    return lambda old: old.with_changes(value=text)


def _all(edits: Sequence[Edit]) -> Edit:
    def edit(call: cst.Call) -> cst.Call:
        for each in edits:
            call = each(call)
        return call

    return edit
