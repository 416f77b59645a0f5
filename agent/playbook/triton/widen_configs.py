"""Give an autotuned kernel more configs to choose from.

When: a Triton kernel under `@triton.autotune` whose configs are listed in this file, one
    `triton.Config` each. Not a list that a function or a comprehension makes, nor the one config of
    a kernel that may work in place without `restore_value`: it was never tried.
Do: append about ten configs by formula for the architecture, behind those that are there. Constants
    that are no block sizes, such as a group of programs, stay what most configs set.
Risk: a block size that a loop adds up in changes the order of the sum. Tuning takes longer, in
    proportion to the configs.
Source: TileGym's cuTile playbook, item C, claims 10 to 20 % for a wider space. The configs follow
    Helion's seeds for H100: at most 32768 fp32 accumulators, 8 warps from 16384.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import libcst as cst

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.listed_configs import taken_by_number
from agent.analysis.common.needed_sizes import needed_size
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.size_changes import SizeChanges
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.configs import (
    CONFIG,
    DEFAULT_STAGES,
    Config,
    ConfigAxis,
    config_of,
    configs,
)
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.tuners import check_may_try, other_tuner
from agent.playbook.base import REORDERED, OfEachKernel
from agent.playbook.trial import TUNED, P, TritonTrial
from agent.rewriting.common.elements import with_elements
from agent.rewriting.triton.edits import Edit
from agent.syntax import Source, argument, descendants, keyword


class WidenConfigs(OfEachKernel):
    """`configs=[a, b]` -> `configs=[a, b, c, ...]`."""

    name = "widen-configs"
    title = "more configs"
    backend = "triton"
    family = "tuning"
    priority: ClassVar = {KernelClass.COMPUTE: 13, KernelClass.BALANCED: 13, KernelClass.MEMORY: 25}
    expected = "10 to 20 % (TileGym) where the author listed a few"
    hypothesis = "The best config for this GPU is one that the author did not list."
    changes_rounding = REORDERED
    idle_in_interpreter = "Triton's interpreter cannot time configs"
    example: ClassVar[Params] = {}
    before = TUNED
    after = before.replace(
        '        triton.Config({"BLOCK": 1024}, num_warps=4),\n',
        """\
        triton.Config({"BLOCK": 1024}, num_warps=4),
        triton.Config({"BLOCK": 2048}, num_warps=8),
        triton.Config({"BLOCK": 4096}, num_warps=8),
        triton.Config({"BLOCK": 2048}, num_warps=4),
        triton.Config({"BLOCK": 8192}, num_warps=16),
        triton.Config({"BLOCK": 8192}, num_warps=8),
        triton.Config({"BLOCK": 4096}, num_warps=4),
        triton.Config({"BLOCK": 16384}, num_warps=16),
        triton.Config({"BLOCK": 512}, num_warps=4),
        triton.Config({"BLOCK": 1024}, num_warps=8),
        triton.Config({"BLOCK": 4096}, num_warps=16),
""",
    )

    trial = TritonTrial(kernel="relu_kernel", types=(P, P, "i32", 1024), function="relu")

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> dict[cst.CSTNode, Edit]:
        """Widen the configs of an autotuned kernel."""
        return _widened(subject.source, kernel, subject.hardware.sm)


@dataclass(frozen=True)
class Listed:
    """The configs that a decorator lists."""

    node: cst.List
    calls: tuple[cst.Call, ...]
    configs: tuple[Config, ...]
    hook: cst.BaseExpression | None


def _widened(source: Source, kernel: Kernel, sm: int) -> dict[cst.CSTNode, Edit]:
    listed = _listed(source, kernel)
    check_may_try(source, kernel)
    axes, held = _axes(source, kernel, listed.configs)
    has_dot = TRITON.has_dot(source, kernel)
    present = {_key(config, has_dot) for config in listed.configs}
    found = [
        replace(config, constants=(*held.items(), *config.constants))
        for config in configs(source, kernel, axes, sm)
    ]
    more = [config for config in found if _key(config, has_dot) not in present]
    if not more:
        raise NotApplicable(f"{kernel.name} lists every config worth trying")
    spelled = source.code(listed.calls[0].func)
    by_call = isinstance(argument(listed.calls[0], 0, "kwargs"), cst.Call)
    texts = [config.code(spelled, by_call=by_call) for config in more]
    if listed.hook is not None:
        hook = source.code(listed.hook)
        texts = [f"{text[:-1]}, pre_hook={hook})" for text in texts]
    return {listed.node: with_elements(texts)}


def _listed(source: Source, kernel: Kernel) -> Listed:
    decorator = source.decorator(kernel.function, "triton.autotune")
    if decorator is None:
        raise NotApplicable(other_tuner(source, kernel) or f"{kernel.name} is not autotuned")
    call = cst.ensure_type(decorator.decorator, cst.Call)
    given = argument(call, 0, "configs")
    node = _list_of(source, given) if given is not None else None
    line = source.line(decorator)
    if isinstance(node, cst.ListComp):
        raise NotApplicable(
            f"a comprehension makes the configs at line {line}, which is added to by hand; "
            "config-options adds warps and stages"
        )
    if not isinstance(node, cst.List) or not node.elements:
        raise NotApplicable(f"the configs at line {line} are no list in this file")
    if given is not None and node is value_of(source, given):  # and of no function of its own
        taken_by_number(source, node, kernel.name, lambda tuner: tuner is call)
    found: list[Config] = []
    calls: list[cst.Call] = []
    hooks: set[str] = set()
    for element in node.elements:
        config = element.value
        if not isinstance(config, cst.Call) or source.name(config.func) != CONFIG:
            raise NotApplicable(f"line {source.line(element)} is no plain triton.Config")
        calls.append(config)
        found.append(config_of(source, config))
        hook = keyword(config, "pre_hook")
        hooks.add(source.code(hook) if hook is not None else "")
    if len(hooks) > 1:
        raise NotApplicable(f"the configs at line {line} have different hooks")
    return Listed(node, tuple(calls), tuple(found), keyword(calls[0], "pre_hook"))


def _list_of(source: Source, given: cst.BaseExpression) -> cst.BaseExpression:
    """The list behind what a tuner is given, where this tuner alone asks a function for it."""
    behind = value_of(source, given)
    function = source.function_of(behind.func) if isinstance(behind, cst.Call) else None
    if function is None or not isinstance(behind, cst.Call) or behind.args:
        return behind
    named = [n for n in descendants(source.module, cst.Name) if n.value == function.name]
    is_asked_once = len(named) == len(["def configs()", "configs()"])
    match function.node.body.body:
        case [cst.SimpleStatementLine(body=[cst.Return(value=cst.List() as made)])] if (
            is_asked_once
        ):
            return made
    return behind


def _axes(
    source: Source, kernel: Kernel, present: Sequence[Config]
) -> tuple[tuple[ConfigAxis, ...], dict[str, int]]:
    """The constants that may be chosen freely, each an axis, and what the others are held at.

    Raises:
        NotApplicable: none may, or the others are not seen to be independent of those.
    """
    names = [name for name, _ in present[0].constants]
    if any([name for name, _ in config.constants] != names for config in present):
        raise NotApplicable(f"the configs of {kernel.name} set different constants")
    if not names:
        raise NotApplicable(f"the configs of {kernel.name} set warps and stages only")
    axes: list[ConfigAxis] = []
    reasons: dict[str, str] = {}
    for name in names:
        flow = Flow(TRITON, source, kernel, name)
        shapes_tile = any(True for _ in flow.shapes)
        reason = needed_size(flow) if shapes_tile else "it shapes no tile"
        if reason is not None:
            reasons[name] = f"{name} of {kernel.name} is more than a block size: {reason}"
            continue
        sizes = [dict(config.constants)[name] for config in present]
        may = SizeChanges.of(flow)
        most = None if may.may_grow else max(sizes)
        axes.append(ConfigAxis((name,), sizes[0], most, 1 if may.may_shrink else min(sizes)))
    held = _held(present, [*reasons])
    if not axes or held is None:
        raise NotApplicable("; ".join(reasons.values()))
    return tuple(axes), held


def _held(present: Sequence[Config], names: Sequence[str]) -> dict[str, int] | None:
    """The values that most configs give constants, as the number of a group or of splits.

    None where every config that gives them gives some block the same size: the two may belong
    together then.
    """
    beside: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for config in present:
        values = dict(config.constants)
        sizes = tuple(size for name, size in config.constants if name not in names)
        beside.setdefault(tuple(values[name] for name in names), []).append(sizes)
    independent = [
        values
        for values, found in beside.items()
        if all(len({*sizes}) > 1 for sizes in zip(*found, strict=True))
    ]
    if names and not independent:
        return None
    most = max(independent, key=lambda values: len(beside[values]), default=())
    return dict(zip(names, most, strict=True)) if names else {}


def _key(config: Config, has_dot: bool) -> tuple[object, ...]:
    stages = (config.num_stages or DEFAULT_STAGES) if has_dot else None
    return (frozenset(config.constants), config.num_warps, stages)
