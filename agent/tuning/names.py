"""The names that a written search uses, and those of the file that it refers to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from agent.syntax import Literal, Source, names_in
from agent.tuning.form import top_level
from agent.tuning.imports import module_named
from agent.tuning.plan import SearchPlan, hint_of
from agent.tuning.templates import NotTunable

LOCALS = (
    "args", "best", "config", "configs", "found", "grid", "held", "kernel", "key", "major", "minor",
    "n_sms", "row", "scratch", "search", "sm", "stream", "tile", "tiles", "tried", "trial",
)  # fmt: skip
"""Names that the written functions use themselves."""
IMPORTED = ("SimpleNamespace", "exhaustive_search", "os")


@dataclass(frozen=True)
class SearchNames:
    """Names of the module's level, made from the kernel's: `_MATMUL_CACHE` of `matmul_kernel`."""

    fixed_config: str
    fixed_kernel: str
    cache: str
    fields: str
    space: str
    configs: str
    hints: str
    search: str
    launch: str
    kernel: str
    """What functions call the kernel: by another name where a name of theirs hides its own."""
    torch: str
    """How the file spells it, here and below."""
    tile: str
    os: str
    modules: frozenset[str]
    """Those of them that the written code needs."""
    fixed: Mapping[str, str]
    """Dimension -> its value before tuning, as an expression of the module's level."""
    needed: tuple[cst.CSTNode, ...]
    """What those expressions refer to: the code has to stand below it."""


def names_of(source: Source, plan: SearchPlan) -> SearchNames:
    """The names for a plan.

    Raises:
        NotTunable: the file has one of them already.
    """
    stem = plan.kernel.strip("_").removesuffix("_kernel").removeprefix("kernel_")
    constant = stem.upper()
    fixed: dict[str, str] = {}
    needed: list[cst.CSTNode] = []
    for tile, literal in plan.literals.items():
        fixed[tile], defined = _value(source, literal)
        needed += defined
    for hint in plan.hints:
        given = hint_of(plan.form, hint)
        fixed[hint] = source.code(given) if given is not None else "None"
    scratch = bool(plan.form.scratch)
    names = SearchNames(
        fixed_config=f"_{constant}_FIXED",
        fixed_kernel=f"_{constant}_FIXED_KERNEL",
        cache=f"_{constant}_CACHE",
        fields=f"_{constant}_FIELDS",
        space=f"_{constant}_SPACE",
        configs=f"_{stem}_configs",
        hints=f"_{stem}_hints",
        search=f"_best_{stem}_config",
        launch=f"_launch_{stem}",
        kernel=f"_{constant}_ITSELF" if plan.kernel in LOCALS else plan.kernel,
        torch=module_named(source, "torch") or "torch",
        tile=module_named(source, "cuda.tile") or "ct",
        os=module_named(source, "os") or "os",
        modules=frozenset({"os", "cuda.tile", *(["torch"] if plan.tiles or scratch else [])}),
        fixed=fixed,
        needed=tuple(needed),
    )
    if plan.kernel in IMPORTED:
        raise NotTunable(f"the kernel has the name {plan.kernel}, which the search would import")
    taken = names_in(source.module)
    ours = {names.fixed_config, names.fixed_kernel, names.cache, names.fields, names.space,
            names.configs, names.hints, names.search, names.launch,
            *({names.kernel} - {plan.kernel})}  # fmt: skip
    if clash := sorted(ours & taken):
        raise NotTunable(f"the file uses the name {clash[0]} already, which the search would take")
    return names


def _value(source: Source, literal: Literal) -> tuple[str, list[cst.CSTNode]]:
    """What sets a tile size: the module's name for it, or the number."""
    if literal.assignments:
        defined = literal.assignments[-1].node
        if not isinstance(top_level(source, defined), cst.FunctionDef | cst.ClassDef):
            return literal.names[-1].value, [defined]
    return str(literal.value), []
