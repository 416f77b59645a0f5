"""Writes a search into a file: imports, configs, cache and a function that launches.

The code written needs nothing but torch and cuda.tile. Each of its five rules comes from a mistake
that TileGym's autotuning recipes tell of: the search runs once for a key; config and kernel are
kept together, because `replace_hints` makes a kernel with an empty JIT cache; the fixed config is
one of those searched; `DISABLE_AUTOTUNE=1` is asked for before the cache; and trial runs write to
no array that anybody reads.

A sixth was measured. On an NVIDIA H200 a bf16 product of 512 x 4096 x 4096 takes 0.0282 ms. A
search that tried this config first, perhaps on an idle GPU, timed it at 0.0303 to 0.0331 ms in four
processes, and chose one of 0.0300 ms. So the fixed config, which comes first, is timed once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libcst as cst

from agent.analysis.common.builtin_names import hidden
from agent.syntax import Edits, Source
from agent.tuning.form import top_level
from agent.tuning.grid import grid_of, narrowed, removed
from agent.tuning.imports import imports_anywhere, imports_name, module_named, with_imports
from agent.tuning.launcher import Launcher
from agent.tuning.names import SearchNames, names_of
from agent.tuning.plan import SearchPlan
from agent.tuning.resident import resident_grid
from agent.tuning.staying import Staying
from agent.tuning.templates import NotTunable
from agent.tuning.text import INDENT, comment, enclosed, tupled

BUILTINS = ("all", "dict", "max", "min", "str", "sum", "zip")
"""What the written functions call."""
COMPILER_TIMEOUT_S = 30
"""For one config."""
IMPORTS = {
    "os": "import os",
    "types": "from types import SimpleNamespace",
    "torch": "import torch",
    "cuda.tile": "import cuda.tile as ct",
    "cuda.tile.tune": "from cuda.tile.tune import exhaustive_search",
}


def write(source: Source, plan: SearchPlan, staying: Staying | None = None) -> str:
    """The file with the search in it.

    Args:
        source: the file.
        plan: what is searched.
        staying: how the kernel is changed where its blocks are to go from tile to tile; where it
            is not given they are as many as the launch has.

    Raises:
        NotTunable: something else in the file needs what the search would change.
    """
    if not imports_anywhere(source, "torch"):
        raise NotTunable("the file does not import torch: what it launches with may be no tensor")
    form = plan.form
    sizes = {literal.node: constant for constant, literal in plan.literals.items()}
    grid = grid_of(form, sizes)
    if staying is None:
        grid = resident_grid(plan, grid)
    gone = removed(form, grid, set(sizes))
    names = names_of(source, plan)
    launcher = Launcher(plan, grid, names, staying)
    block = _configs(plan, names) + launcher.definition()
    called = [name for name in BUILTINS if f"{name}(" in block]
    if name := hidden(source, form.wrapper.node, *called):
        raise NotTunable(f"`{name}` is a name of the file's own, and the search calls Python's")
    edits: Edits = {
        **(staying.edits if staying is not None else {}),
        form.launch.node: lambda _: cst.parse_expression(launcher.call()),
        form.kernel.decorator: _without_hints(plan),
        **dict.fromkeys(gone, _removal),
        **{line: _constantly(rest) for line, rest in narrowed(form, sizes).items()},
    }
    return _assembled(source, plan, names, edits, block)


def _constantly(node: cst.CSTNode) -> Callable[[Any], cst.CSTNode]:
    return lambda _: node


def _removal(_: cst.CSTNode) -> Any:
    return cst.RemoveFromParent()


def _without_hints(plan: SearchPlan) -> Callable[[cst.Decorator], cst.Decorator]:
    """Take the searched hints out of the decorator: they come from the config alone."""

    def edit(decorator: cst.Decorator) -> cst.Decorator:
        call = decorator.decorator
        if not isinstance(call, cst.Call):
            return decorator
        kept = [a for a in call.args if not (a.keyword and a.keyword.value in plan.hints)]
        if not kept:
            return decorator.with_changes(decorator=call.func)
        if len(kept) < len(call.args):
            kept[-1] = kept[-1].with_changes(comma=call.args[-1].comma)
        return decorator.with_changes(decorator=call.with_changes(args=kept))

    return edit


def _configs(plan: SearchPlan, names: SearchNames) -> str:
    """The fixed config, the space, the cache, and the functions that list configs and hints."""
    fixed = [f"{c}={names.fixed[c]}" for c in plan.dimensions]
    hints = ", ".join(f'"{hint}": config.{hint}' for hint in plan.hints)
    return "".join(
        [
            f"# Tuning {plan.kernel}: {plan.template.kind}, at most {plan.configs} configs.\n",
            f"{names.kernel} = {plan.kernel}\n" if names.kernel != plan.kernel else "",
            enclosed(f"{names.fixed_config} = SimpleNamespace(", fixed, ")"),
            _space(plan, names),
            f"{names.cache} = {{}}  # what the best config depends on -> it, and its kernel\n\n\n",
            _tile_configs(plan, names) if plan.tiles else _hint_configs(plan, names),
            f"\n\ndef {names.hints}(config):\n{INDENT}return {{{hints}}}\n\n\n",
            f"{names.fixed_kernel} = {plan.kernel}.replace_hints(",
            f"**{names.hints}({names.fixed_config}))\n\n\n",
            _search(plan, names),
        ]
    )


def _space(plan: SearchPlan, names: SearchNames) -> str:
    """The table of configs by GPU; nothing where only the occupancy is searched."""
    if not plan.tiles:
        return ""
    quoted = [f'"{field}"' for field in plan.dimensions]
    lines = [enclosed(f"{names.fields} = (", quoted, ")"), f"{names.space} = {{\n"]
    lines.append(comment("compute capability times ten, from which on: what to try", INDENT))
    for sm, rows in plan.space.items():
        lines.append(f"{INDENT}{sm}: (\n")
        lines += [f"{INDENT * 2}{tupled([str(n) for n in row])},\n" for row in rows]
        lines.append(f"{INDENT}),\n")
    return "".join([*lines, "}\n"])


def _hint_configs(plan: SearchPlan, names: SearchNames) -> str:
    (rows,) = plan.space.values()
    tried = tupled([str(row[0]) for row in rows])
    configs = f"(SimpleNamespace(occupancy=n) for n in {tried})"
    return f"def {names.configs}():\n{INDENT}return [{names.fixed_config}, *{configs}]\n"


def _tile_configs(plan: SearchPlan, names: SearchNames) -> str:
    """The function that filters the table by GPU and by the arrays' extents."""
    sized, about, fits = "", "", ""
    if plan.extents:
        sized, about = ", extents", " whose tiles suit the extents"
        fits = "if all(tile < 2 * max(n, 64) for tile, n in zip(row, extents, strict=False))\n"
        fits = INDENT * 3 + fits
    return f"""\
def {names.configs}(device{sized}):
    \"\"\"The fixed config, and those for this GPU{about}.\"\"\"
    major, minor = {names.torch}.cuda.get_device_capability(device)
    sm = max((known for known in {names.space} if known <= 10 * major + minor), default=80)
    return [
        {names.fixed_config},
        *(
            SimpleNamespace(**dict(zip({names.fields}, row, strict=True)))
            for row in {names.space}[sm]
{fits}        ),
    ]
"""


def _search(plan: SearchPlan, names: SearchNames) -> str:
    """The function that searches, with a second chance for the fixed config."""
    given = ["tried", "stream", "grid", names.kernel, "args", names.hints, "quiet=True"]
    head, inner = INDENT * 2, ""
    if plan.tiles:
        inner = comment("Too large a tile compiles for minutes, and never wins.", head)
        inner += f"{head}with {names.tile}.compiler_timeout({COMPILER_TIMEOUT_S}):\n"
        head += INDENT
    call = enclosed("found = exhaustive_search(", given, ")", head)
    return f"""\
def {names.search}(configs, stream, grid, args):
    def search(tried):
{inner}{call}        return found.best.config

    best = search(configs)
    # The fixed config was timed first, perhaps on an idle GPU: time it once more.
    return best if best is {names.fixed_config} else search([best, {names.fixed_config}])


"""


def _assembled(
    source: Source, plan: SearchPlan, names: SearchNames, edits: Edits, block: str
) -> str:
    """The file after the edits, with the block before the wrapper, or after what it needs."""
    newline = source.module.default_newline
    below = (plan.form.wrapper.node, plan.form.kernel.function.node, *names.needed)
    places = [top_level(source, node) for node in below]
    index = {id(statement): n for n, statement in enumerate(source.module.body)}
    wrapper, *others = [index[id(place)] for place in places]
    at = max(wrapper, *(other + 1 for other in others))
    marker = "\n" if "\r" not in newline else "\r\n"
    edited = cst.parse_module(source.rewrite(edits).removeprefix("\ufeff"))
    body = list(edited.body)
    inserted = list(cst.parse_module(block.replace("\n", marker)).body)
    header = cst.parse_module(block.replace("\n", marker)).header
    blank = cst.EmptyLine(indent=False)
    inserted[0] = inserted[0].with_changes(leading_lines=[blank, blank, *header])
    follower = body[at] if at < len(body) else None
    if follower is not None:
        above = [line for line in follower.leading_lines if line.comment]
        body[at] = follower.with_changes(leading_lines=[blank, blank, *above])
    body[at:at] = inserted
    imported = with_imports(body[:at], _imports(source, names, at), newline)
    text = edited.with_changes(body=[*imported, *body[at:]]).code
    return ("\ufeff" if source.text.startswith("\ufeff") else "") + text


def _imports(source: Source, names: SearchNames, at: int) -> list[str]:
    """The import lines that the file lacks above its statement of that number."""
    lacking = [m for m in ("os", "torch", "cuda.tile") if module_named(source, m) is None]
    lines = [IMPORTS[m] for m in lacking if m in names.modules]
    if not imports_name(source, "types", "SimpleNamespace", at):
        lines.append(IMPORTS["types"])
    if not imports_name(source, "cuda.tile.tune", "exhaustive_search"):
        lines.append(IMPORTS["cuda.tile.tune"])
    return lines
