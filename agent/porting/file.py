"""A whole file: what is read of it, in which order, and the text that comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.module_names import reached_as
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.operations import for_kernels
from agent.porting.assignments import Edit
from agent.porting.comments import dropped, with_comments
from agent.porting.config_values import CONFIG
from agent.porting.context import Context
from agent.porting.functions import Functions, Translated
from agent.porting.guarded_imports import imports_triton, is_triton, unguarded
from agent.porting.host import Host
from agent.porting.layout import laid_out
from agent.porting.leftovers import idle_configs, idle_imports, idle_options
from agent.porting.operators import with_names_of_its_own
from agent.porting.prelude import HELPERS, needed
from agent.porting.refusal import NotPortable, refusal
from agent.porting.tuning import JIT, Tuning, is_tuner, tuning_of
from agent.porting.validity import must_parse
from agent.syntax import Function, Source, descendants

ABOVE = "# Ported from Triton by `tile-agent port`: what the languages do differently"


@dataclass(frozen=True)
class Port:
    """The cuTile version of a file.

    Attributes:
        text: the new file.
        kernels: the kernels that were ported, by name.
        helpers: the functions that they call.
        functions: the functions of the module that launch kernels.
        notes: what its reader should know -> the lines of the origin that it is about.
        in_place: the file as it can stand in the origin's place, with the origin's operators; empty
            where that is the text.
    """

    text: str
    kernels: tuple[str, ...]
    helpers: tuple[str, ...]
    functions: tuple[str, ...]
    notes: Mapping[str, tuple[int, ...]]
    in_place: str = ""


def port(text: str, path: str) -> Port:
    """Write the cuTile version of a Triton kernel file.

    Args:
        text: the file, which parses and holds Triton kernels.
        path: where it is, for messages.

    Raises:
        NotPortable: something of it has no translation that is known to mean the same.
    """
    try:
        return _port(text, path)
    except RecursionError:
        raise NotPortable(
            path, 1, "an expression that is nested too deeply", "", "split it"
        ) from None


def _port(text: str, path: str) -> Port:
    source = Source(text, path)
    context = Context.of(source)
    kernels, helpers = _sorted(source)
    if not kernels:
        found, advice = "", "name one with some"
        if helpers:
            found = f"only functions that kernels call, such as {helpers[0].name}"
            advice = "put them into the file of a kernel that calls them"
        raise refusal(
            source, source.module, "a file without a `@triton.jit` kernel", advice, detail=found
        )
    tunings = {kernel.name: tuning_of(context, kernel.function) for kernel in kernels}
    for helper in helpers:
        tuning_of(context, helper)
    done = Functions(context).translate(kernels)
    by_name = {each.function.name: each for each in done}
    context.torch = reached_as(source, "torch", source.module) or "torch"
    host = Host(context, by_name)
    tuners = [d for k in kernels for d in k.function.node.decorators if is_tuner(source, d)]
    idle = idle_configs(source, tuners, CONFIG)
    device = idle.union(f.node for f in (*(k.function for k in kernels), *helpers))
    given = [node for kernel in kernels for node in _given(kernel, tunings[kernel.name])]
    host.functions(device, given)
    for kernel in kernels:
        if not kernel.launches:
            context.note(
                kernel.function.node,
                f"nothing in this file launches {kernel.name}: launch it by `ct.launch`, with each "
                "array flat",
            )
        host.launches(kernel, tunings[kernel.name])
    host.left_over(device, given)
    edits: dict[cst.CSTNode, Edit] = host.edits | dict.fromkeys(idle, dropped)
    names = {kernel.name for kernel in kernels}
    for each in done:
        edits |= each.body.edits
        edits |= _frame(context, each, kernel=each.function.name in names)
    reached = {each.function for each in done}
    for helper in helpers:
        if helper not in reached:
            edits[helper.node] = lambda _: cst.RemoveFromParent()
            context.note(helper.node, f"{helper.name} is left out: no kernel of the file calls it")
    edits |= idle_options(source, [launch for kernel in kernels for launch in kernel.launches])
    edits |= _imports(source, context.tile) | unguarded(source)
    changed = source.rewrite(with_comments(source, edits, host.unsaid))
    if unused := idle_imports(source, changed, context.torch):
        changed = source.rewrite(with_comments(source, unused | edits, host.unsaid))
    written = laid_out(_with_head(context, changed), text)
    renamed = with_names_of_its_own(context, written)
    must_parse(renamed, text, path)
    return Port(
        renamed,
        tuple(kernel.name for kernel in kernels),
        tuple(each.function.name for each in done if each.function.name not in names),
        _launching(kernels),
        {note: tuple(lines) for note, lines in context.notes.items()},
        written if written != renamed else "",
    )


def _given(kernel: Kernel, tuning: Tuning) -> Iterator[cst.BaseExpression]:
    """What decorators and defaults give to the launches of a kernel."""
    yield from (*tuning.values.values(), *tuning.computed.values())
    for parameter in kernel.function.parameters:
        if parameter.default is not None:
            yield parameter.default


def _launching(kernels: tuple[Kernel, ...]) -> tuple[str, ...]:
    """The functions of the module, no methods, that launch kernels."""
    found = [launch.function for kernel in kernels for launch in kernel.launches]
    names = (each.name for each in found if each is not None)
    return tuple(dict.fromkeys(name for name in names if "." not in name))


def _sorted(source: Source) -> tuple[tuple[Kernel, ...], tuple[Function, ...]]:
    """The kernels, and the functions that are none: kernels call them, here or in other files.

    Raises:
        NotPortable: a function is both, or the host names what only kernels can call.
    """
    found = TRITON.kernels(source)
    device = {kernel.function.node for kernel in found}
    helpers = for_kernels(source)
    defined = Counter(kernel.name for kernel in found)
    for kernel in found:
        if defined[kernel.name] > 1:
            raise refusal(
                source, kernel.function.node, "a function that is defined twice",
                "leave the definition that the newest Triton takes", detail=kernel.name,
            )  # fmt: skip
        around = [source.enclosing(name) for name in source.mentions(kernel.function)]
        if kernel.launches and any(each is not None and each.node in device for each in around):
            raise refusal(
                source, kernel.function.node, "a kernel that another one calls",
                "put what both do into a helper", detail=kernel.name,
            )  # fmt: skip
        if kernel.function in helpers and not all(each is not None and each.node in device
                                                  for each in around):  # fmt: skip
            raise refusal(
                source, kernel.function.node, "host code that names a function for kernels",
                "take its name out of the host's code", detail=kernel.name,
            )  # fmt: skip
    kernels = tuple(k for k in found if k.function not in helpers)
    return kernels, tuple(k.function for k in found if k.function in helpers)


# --- signatures and decorators ---------------------------------------------------------------


def _frame(context: Context, done: Translated, *, kernel: bool) -> dict[cst.CSTNode, Edit]:
    """The edits of a function around its body."""
    node = done.function.node
    edits: dict[cst.CSTNode, Edit] = {}
    for decorator in node.decorators:
        called = decorator.decorator
        named = context.source.name(called.func if isinstance(called, cst.Call) else called)
        if kernel and named == JIT:
            edits[decorator] = _decorated(f"{context.tile}.kernel")
        else:
            edits[decorator] = lambda _: cst.RemoveFromParent()
    if node.returns is not None:
        edits[node.returns] = lambda _: cst.RemoveFromParent()
    edits[node.params] = _parameters(done)
    if done.begun:
        edits[node.body] = _begun(done.begun)
    return edits


def _decorated(text: str) -> Callable[[Any], Any]:
    return lambda new: new.with_changes(decorator=cst.parse_expression(text))


def _parameters(done: Translated) -> Callable[[cst.Parameters], cst.Parameters]:
    """Every parameter by its place, without a default, and annotated as cuTile wants it."""

    def edit(new: cst.Parameters) -> cst.Parameters:
        listed: list[cst.Param] = []
        for param in (*new.posonly_params, *new.params, *new.kwonly_params):
            said = done.annotations[param.name.value]
            annotation = cst.Annotation(cst.parse_expression(said)) if said else None
            changed = param.with_changes(
                annotation=annotation, default=None, equal=cst.MaybeSentinel.DEFAULT
            )
            if param.name.value not in done.offsets:
                listed.append(changed)
                continue
            offset = cst.Param(cst.Name(f"{param.name.value}_offset"), comma=changed.comma)
            separator = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
            listed += [changed.with_changes(comma=separator), offset]
        return cst.Parameters(params=listed)

    return edit


def _begun(lines: tuple[str, ...]) -> Callable[[cst.IndentedBlock], cst.IndentedBlock]:
    """Statements at the beginning of a body, behind its docstring."""

    def edit(new: cst.IndentedBlock) -> cst.IndentedBlock:
        statements = list(new.body)
        first = statements[0]
        documented = (
            isinstance(first, cst.SimpleStatementLine)
            and isinstance(first.body[0], cst.Expr)
            and isinstance(first.body[0].value, cst.SimpleString | cst.ConcatenatedString)
        )
        added = [cst.parse_statement(line) for line in lines]
        return new.with_changes(body=[*statements[:documented], *added, *statements[documented:]])

    return edit


# --- the head --------------------------------------------------------------------------------


def _imports(source: Source, tile: str) -> dict[cst.CSTNode, Edit]:
    """The imports of Triton go; that of cuda.tile stands in the place of the first one."""
    edits: dict[cst.CSTNode, Edit] = {}
    instead = cst.ensure_type(cst.parse_statement(_imported(tile)), cst.SimpleStatementLine)
    is_first = True
    for node in descendants(source.module, cst.SimpleStatementLine):
        if len(node.body) != 1 or not imports_triton(node.body[0]):
            continue
        (only,) = node.body
        names = only.names if isinstance(only, cst.Import) else ()
        kept = [alias for alias in names if not is_triton(alias.evaluated_name)]
        if kept:
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            edits[only] = lambda new, names=tuple(kept): new.with_changes(names=names)  # type: ignore[misc]
        elif is_first and node in source.module.body:
            edits[node] = lambda new: new.with_changes(body=instead.body)
            is_first = False
        else:
            edits[node] = _without
    return edits


def _imported(tile: str) -> str:
    return f"import cuda.tile as {tile}"


def _without(_: cst.SimpleStatementLine) -> Any:
    """Nothing."""
    return cst.RemoveFromParent()


def _with_head(context: Context, text: str) -> str:
    """The text with the imports and the small functions that it needs."""
    lines: list[str] = []
    module = cst.parse_module(text)
    present = Source(text).module
    if reached_as(Source(text), "math", present) is None and context.uses_math:
        lines.append("import math")
    if not any(_is_tile(each, context.tile) for each in module.body):
        lines.append(_imported(context.tile))
    if reached_as(Source(text), "torch", present) is None:
        lines.append(f"import {context.torch}")
    helpers = "\n\n".join(_helper(context, name) for name in needed(context.helpers))
    added: list[Any] = list(cst.parse_module("".join(f"{each}\n" for each in lines)).body)
    place = _behind_imports(module)
    body: list[Any] = list(module.body)
    at = _first_import(module)
    if added and at < len(body):  # what stood above the first import stands above the new ones
        added[0] = added[0].with_changes(leading_lines=body[at].leading_lines)
        body[at] = body[at].with_changes(leading_lines=[])
    body[at:at] = added
    place += len(added)
    if helpers:
        parsed = cst.parse_module(f"\n{ABOVE}\n\n\n{helpers}")
        if place < len(body):
            blank = [cst.EmptyLine(indent=False), cst.EmptyLine(indent=False)]
            above = [line for line in body[place].leading_lines if line.comment is not None]
            body[place] = body[place].with_changes(leading_lines=[*blank, *above])
        body[place:place] = _spaced(parsed)
    return module.with_changes(body=body).code


def _is_tile(statement: cst.CSTNode, tile: str) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and any(
        isinstance(each, cst.Import)
        and [(a.evaluated_name, a.evaluated_alias) for a in each.names] == [("cuda.tile", tile)]
        for each in statement.body
    )


def _helper(context: Context, name: str) -> str:
    text = HELPERS[name].text.replace("{ct}", context.tile).replace("{torch}", context.torch)
    for each, written in context.helpers.items():
        if each != written:
            text = text.replace(f"{each}(", f"{written}(")
    return text


def _spaced(module: cst.Module) -> list[Any]:
    """The statements of a module, with its header above the first."""
    first, *rest = module.body
    above = [*module.header, *getattr(first, "leading_lines", ())]
    return [first.with_deep_changes(first, leading_lines=above), *rest]


def _first_import(module: cst.Module) -> int:
    """Where the first import that is no `from __future__` stands."""
    place = 0
    for number, statement in enumerate(module.body):
        if not isinstance(statement, cst.SimpleStatementLine):
            break
        only = statement.body[0]
        if isinstance(only, cst.Expr) and number == 0:
            place = 1
        elif (
            isinstance(only, cst.ImportFrom)
            and only.module is not None
            and (cst.helpers.get_full_name_for_node(only.module) == "__future__")
        ):
            place = number + 1
        else:
            break
    return place


def _behind_imports(module: cst.Module) -> int:
    """The number of the first statement below the imports at the top."""
    place = _first_import(module)
    for number, statement in enumerate(module.body[place:], place):
        if not isinstance(statement, cst.SimpleStatementLine) or not isinstance(
            statement.body[0], cst.Import | cst.ImportFrom
        ):
            return number
        place = number + 1
    return place
