"""Changes a Triton kernel's parameters and its launches, in the formatting of the file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.heuristics import check_heuristics
from agent.analysis.triton.host import triton_module
from agent.analysis.triton.tables import HEURISTICS
from agent.rewriting.common.elements import uncommented, with_entries
from agent.rewriting.common.formatting import STEP, WIDTH, Place
from agent.rewriting.common.parameters import taking
from agent.syntax import Source, with_keyword

Edit = Callable[[Any], Any]


def with_parameters(
    source: Source,
    kernel: Kernel,
    added: Sequence[str],
    default: str | None = None,
    *,
    always: bool = False,
) -> dict[cst.CSTNode, Edit]:
    """The edits that append parameters to a kernel's own: `"EVEN: tl.constexpr"`.

    Args:
        source: the file.
        kernel: one of its kernels.
        added: the parameters.
        default: what they may be by default, where the kernel's last parameter has one.
        always: they have it in any case.

    Raises:
        NotApplicable: it has, and these may not.
    """
    parameters = kernel.function.parameters
    follows = bool(parameters) and parameters[-1].default is not None
    if follows and default is None:
        last = parameters[-1].name.value
        raise NotApplicable(f"{last} of {kernel.name} has a default; nothing can follow it")
    if follows or always:
        added = [f"{each}{' = ' if ':' in each else '='}{default}" for each in added]
    parsed = cst.parse_module(f"def f({', '.join(added)}): ...\n").body[0]
    params = cst.ensure_type(parsed, cst.FunctionDef).params.params
    return {kernel.function.node: taking(source, kernel.function.node, params)}


def giving(source: Source, node: cst.Call, keywords: Mapping[str, str]) -> Edit:
    """The edit of a call that sets keyword arguments; a line too long is broken."""

    def edit(call: cst.Call) -> cst.Call:
        for name, value in keywords.items():
            call = with_keyword(call, name, value)
        return fitted(source, node, call)

    return edit


def fitted(source: Source, node: cst.Call, updated: cst.Call) -> cst.Call:
    """A changed call, laid out anew as a formatter would where it no longer fits its line.

    A call that holds a comment stays as it is.
    """
    place = Place.of(source, node)
    text = source.module.code_for_node(updated)
    first, *rest = text.splitlines()
    *middle, last = [place.before + len(first), *(place.block + len(line) for line in rest)]
    if max([*middle, last + place.behind]) <= WIDTH or "#" in text:
        return updated
    inside = cst.ParenthesizedWhitespace(
        indent=True, last_line=cst.SimpleWhitespace(" " * (place.indent - place.block + STEP))
    )
    closing = inside.with_changes(last_line=cst.SimpleWhitespace(inside.last_line.value[STEP:]))
    texts = [source.module.code_for_node(arg.with_changes(comma=_NO_COMMA)) for arg in updated.args]
    joined = place.indent + STEP + len(", ".join(texts)) <= WIDTH
    between = cst.Comma(whitespace_after=cst.SimpleWhitespace(" ") if joined else inside)
    args = [
        arg.with_changes(comma=between, whitespace_after_arg=cst.SimpleWhitespace(""))
        for arg in updated.args
    ]
    end = {"comma": cst.Comma(whitespace_after=closing)}
    args[-1] = args[-1].with_changes(
        **({"comma": _NO_COMMA, "whitespace_after_arg": closing} if joined else end)
    )
    return updated.with_changes(whitespace_before_args=inside, args=args)


_NO_COMMA = cst.MaybeSentinel.DEFAULT


def without(launch: Launch, names: Collection[str]) -> Edit:
    """The edit of a launch that no longer gives some parameters or options.

    Positional arguments behind a dropped one are given by name from then on.

    Raises:
        NotApplicable: a `*` gives some of them.
    """
    starred = any(arg.star for arg in launch.node.args)
    if starred and not set(names) <= {a.keyword.value for a in launch.node.args if a.keyword}:
        raise NotApplicable(f"{launch.kernel.name} is given arguments by a `*`")
    parameters = [p.name.value for p in launch.kernel.parameters]

    def edit(call: cst.Call) -> cst.Call:
        kept: list[cst.Arg] = []
        by_name = False
        for place, arg in enumerate(call.args):
            name = arg.keyword.value if arg.keyword else "" if starred else parameters[place]
            if name in names:
                by_name |= arg.keyword is None
            elif arg.keyword is None and by_name:
                kept.append(_named(arg, name))
            else:
                kept.append(arg)
        if kept and kept[-1].value is not call.args[-1].value:
            last = call.args[-1]
            comma, tail = last.comma, last.whitespace_after_arg
            if isinstance(comma, cst.Comma):
                comma = comma.with_changes(whitespace_after=uncommented(comma.whitespace_after))
            kept[-1] = kept[-1].with_changes(comma=comma, whitespace_after_arg=uncommented(tail))
        return call.with_changes(args=kept)

    return edit


def decorated(kernel: Kernel, *decorators: str) -> dict[cst.CSTNode, Edit]:
    """The edits that write decorators right above the kernel's `@triton.jit`."""
    parsed = cst.parse_module("\n".join([*decorators, "def f(): ..."]))
    added = cst.ensure_type(parsed.body[0], cst.FunctionDef).decorators

    def edit(decorator: cst.Decorator) -> Any:
        head, *rest = added
        head = head.with_changes(leading_lines=decorator.leading_lines)
        return cst.FlattenSentinel([head, *rest, decorator.with_changes(leading_lines=())])

    return {kernel.decorator: edit}


def above(kernel: Kernel, decorator: str) -> dict[cst.CSTNode, Edit]:
    """The edits that write a decorator above all of the kernel's."""
    return decorated(replace(kernel, decorator=kernel.function.node.decorators[0]), decorator)


def with_heuristics(
    source: Source, kernel: Kernel, functions: Mapping[str, str]
) -> dict[cst.CSTNode, Edit]:
    """The edits that compute parameters from the arguments: name -> function of them.

    In the table right above `@triton.jit`, where there is one, on lines of their own.

    Raises:
        NotApplicable: the kernel is used as nothing with heuristics can be.
    """
    check_heuristics(source, kernel)
    if (table := _table_above(source, kernel)) is not None:
        return {table: with_entries({f'"{name}"': text for name, text in functions.items()})}
    return decorated(kernel, _heuristics(triton_module(source, kernel), functions))


def _table_above(source: Source, kernel: Kernel) -> cst.Dict | None:
    """The table of heuristics right above a kernel's `@triton.jit`, if it is one of several lines.

    What is on one line stays so, and others get a decorator of theirs.
    """
    decorators = list(kernel.function.node.decorators)
    place = decorators.index(kernel.decorator)
    call = decorators[place - 1].decorator if place else None
    match call:
        case cst.Call(func=function, args=[cst.Arg(value=cst.Dict() as table)]) if (
            source.name(function) == HEURISTICS
            and table.elements
            and isinstance(table.lbrace.whitespace_after, cst.ParenthesizedWhitespace)
        ):
            return table
    return None


def _heuristics(triton: str, functions: Mapping[str, str]) -> str:
    items = [f'"{name}": {function}' for name, function in functions.items()]
    line = f"@{triton}.heuristics({{{', '.join(items)}}})"
    if len(line) <= WIDTH and (len(items) == 1 or "lambda" not in line):
        return line
    inner = "".join(f"        {item},\n" for item in items)
    return f"@{triton}.heuristics(\n    {{\n{inner}    }}\n)"


def writing(node: cst.BaseExpression | str) -> Edit:
    """The edit that puts an expression in place of another one."""
    written = cst.parse_expression(node) if isinstance(node, str) else node
    return lambda _: written


def removing(_: cst.CSTNode) -> Any:
    """The edit that removes a statement."""
    return cst.RemoveFromParent()


def statement_of(source: Source, launch: Launch) -> cst.SimpleStatementLine:
    """The statement that a launch is part of, above which others can be written.

    Raises:
        NotApplicable: it is inside a lambda or a comprehension, or follows a colon on its line.
    """
    for around in source.ancestors(launch.node):
        if isinstance(around, cst.SimpleStatementLine):
            return around
        if isinstance(around, cst.Lambda | cst.BaseComp | cst.SimpleStatementSuite):
            break
    raise NotApplicable(f"the launch at line {source.line(launch.node)} is no statement of its own")


def followed(text: str) -> Edit:
    """The edit of a statement that writes another one below it."""
    written = cst.parse_statement(text)
    return lambda updated: cst.FlattenSentinel([updated, written])


def begun(kernel: Kernel, texts: Sequence[str]) -> Edit:
    """The edit of a kernel's body that writes statements above it, below the docstring."""
    written = [cst.parse_statement(text) for text in texts]
    described = int(kernel.function.node.get_docstring() is not None)

    def edit(body: cst.IndentedBlock) -> cst.IndentedBlock:
        lines = [*body.body[:described], *written, *body.body[described:]]
        return body.with_changes(body=lines)

    return edit


def parenthesized(source: Source, node: cst.BaseExpression, text: str) -> cst.BaseExpression:
    """An expression in place of another one, in parentheses where it is an operand."""
    around = next(source.ancestors(node))
    operand = isinstance(
        around,
        cst.BinaryOperation | cst.UnaryOperation | cst.Attribute | cst.Comparison
        | cst.ComparisonTarget | cst.Subscript | cst.BooleanOperation,
    )  # fmt: skip
    simple = isinstance(cst.parse_expression(text), cst.Name | cst.Call | cst.Attribute)
    return cst.parse_expression(f"({text})" if operand and not simple else text)


def _named(arg: cst.Arg, name: str) -> cst.Arg:
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return arg.with_changes(keyword=cst.Name(name), equal=equal)
