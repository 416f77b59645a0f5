"""Comments inside of a launch: each goes with its argument, and goes where that is dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import libcst as cst
from libcst import matchers

from agent.analysis.common.dialect import Launch
from agent.porting.comments import FOR_TOOLS


class Remarks(NamedTuple):
    """The comments of one argument."""

    above: tuple[cst.Comment, ...]
    behind: tuple[cst.Comment, ...]


def remarks_of(launch: Launch) -> dict[str, Remarks]:
    """Parameter -> what is said of its argument; without those of which nothing is said."""
    names = {value: name for name, value in launch.arguments.items()}
    return {
        names[arg.value]: remarks
        for arg, remarks in _remarks(launch.node)
        if arg is not None and arg.value in names and any(remarks)
    }


def without_argument(launch: Launch) -> Iterator[cst.Comment]:
    """The comments of arguments that are none of the kernel's parameters."""
    names = set(launch.arguments.values())
    for arg, remarks in _remarks(launch.node):
        if arg is None or arg.value not in names:
            yield from (*remarks.above, *remarks.behind)


def with_remarks(
    head: Sequence[str], listed: Mapping[str, str], said: Mapping[str, Remarks]
) -> str:
    """The arguments of `ct.launch` a line each, in a block, with the comments of the kernel's.

    Args:
        head: the arguments before the tuple of those of the kernel.
        listed: parameter -> what is passed for it.
        said: parameter -> its comments.
    """
    lines = [f"        {each},\n" for each in head]
    lines.append("        (\n")
    for name, text in listed.items():
        remarks = said.get(name, Remarks((), ()))
        lines += [f"            {comment.value}\n" for comment in remarks.above]
        behind = "".join(f"  {comment.value}" for comment in remarks.behind)
        lines.append(f"            {text},{behind}\n")
    return f"(\n{''.join(lines)}        ),\n    )"


def _remarks(call: cst.Call) -> Iterator[tuple[cst.Arg | None, Remarks]]:
    """The arguments of a call with their comments, and those below the last one."""
    above = list(_lines_of(call.whitespace_before_args))
    for arg in call.args:
        gap = arg.comma.whitespace_after if isinstance(arg.comma, cst.Comma) else None
        gaps = [each for each in (arg.whitespace_after_arg, gap) if each is not None]
        behind = [c for each in gaps for c in _first_of(each)]
        yield arg, Remarks((*above, *_all_of(arg.value)), tuple(behind))
        above = [c for each in gaps for c in _below(each)]
    yield None, Remarks(tuple(above), ())


def _first_of(space: cst.CSTNode) -> Iterator[cst.Comment]:
    """What stands behind an argument on its line."""
    if isinstance(space, cst.ParenthesizedWhitespace):
        yield from _all_of(space.first_line)


def _below(space: cst.CSTNode) -> Iterator[cst.Comment]:
    """What stands on lines of its own."""
    if isinstance(space, cst.ParenthesizedWhitespace):
        for line in space.empty_lines:
            yield from _all_of(line)


def _lines_of(space: cst.CSTNode) -> Iterator[cst.Comment]:
    yield from _first_of(space)
    yield from _below(space)


def _all_of(node: cst.CSTNode) -> Iterator[cst.Comment]:
    """The comments in a node, but for those that tools read."""
    for each in matchers.findall(node, matchers.Comment()):
        if isinstance(each, cst.Comment) and not FOR_TOOLS.match(each.value):
            yield each
