"""Inserts a constant, a helper or a name into a file of cuTile kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from agent.analysis.common.module_names import bound_at
from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.dialect import CUTILE
from agent.rewriting.common.insertion import first_kernel, imports_above
from agent.syntax import Source
from agent.tuning.imports import with_imports

Edit = Callable[[cst.Module], cst.Module]


def after_imports(source: Source, *lines: str, module: str = "") -> Edit:
    """The edit that writes statements of one line below the imports, after an empty line.

    They stand above the first kernel, since its signature may name what they define.

    Args:
        source: the file.
        lines: the statements.
        module: how the file spells the module that they need.

    Raises:
        NotApplicable: nothing gives that module its name above the first kernel.
    """
    kernel = first_kernel(CUTILE, source)
    below = [
        *imports_above(source, kernel),
        *([_bound_at(source, module, kernel)] if module else []),
    ]
    statements = [cst.parse_statement(line) for line in lines]
    statements[0] = statements[0].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    return _inserting(max(below) + 1 if below else kernel, statements)


def with_import(source: Source, line: str) -> Edit:
    """The edit that writes an import where it belongs among those above the first kernel."""
    kernel = first_kernel(CUTILE, source)

    def edit(module: cst.Module) -> cst.Module:
        above = with_imports(module.body[:kernel], [line], module.default_newline)
        return module.with_changes(body=[*above, *module.body[kernel:]])

    return edit


def before_kernels(source: Source, *functions: str, module: str) -> Edit:
    """The edit that writes functions above the first kernel, two empty lines around each.

    Args:
        source: the file.
        functions: their texts.
        module: how the file spells the module that they call.

    Raises:
        NotApplicable: that is no name of the file's level.
    """
    _bound_at(source, module, None)
    empty = [cst.EmptyLine(indent=False)] * 2
    written = [cst.parse_statement(f).with_changes(leading_lines=empty) for f in functions]
    return _inserting(first_kernel(CUTILE, source), written)


def _bound_at(source: Source, module: str, last: int | None) -> int:
    place = bound_at(source, module.partition(".")[0], last)
    if place is None:
        where = "above the kernels" if last is not None else "at the file's level"
        raise NotApplicable(f"`{module}` is not imported {where}, where it would be needed")
    return place


def _inserting(place: int, statements: Sequence[cst.CSTNode]) -> Edit:
    def edit(module: cst.Module) -> cst.Module:
        body = [*module.body[:place], *statements, *module.body[place:]]
        return module.with_changes(body=body)

    return edit
