"""Take the configs out of a tuner that win at no size that the tests launch.

When: a Triton kernel under `@triton.autotune` that the perf tests had tuned. Not one whose configs
    are left out by the sizes of a launch (`prune_configs_by`), nor one that nobody saw tuned.
Do: keep, for every key that was tuned, the config that won and those within 5 % of it; and for
    sizes that no test launches the smallest config that ran for all keys. What a list holds is
    taken out of it; what a function or a comprehension makes is filtered, and is taken whole where
    nothing of it would be left, as on another GPU.
Risk: none to results: the author's tuner may choose any of its configs for any size. A size that no
    test launches may lose its best config.
Source: the tuner's own timings, in the worker that timed the baseline or examined the last keep.
    Tuning takes the time to compile and time one config, times their number, for each key anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import edits_of_each, of_each
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.configs import CONFIG, DEFAULT_STAGES, DEFAULT_WARPS, config_of
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.tuners import check_any_will_do, tuner_of
from agent.launches import ObservedLaunch, ObservedTuning, TunedConfig, tunings_of
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import TUNED, P, TritonTrial
from agent.rewriting.common.elements import with_only
from agent.rewriting.triton.edits import Edit, writing
from agent.syntax import Source, argument, keyword

NEAR = 0.05
"""A config that is slower than the best one by no more may win the next time."""
WHILE_TUNING = ("reset_to_zero", "pre_hook", "post_hook")
"""What a tuner does when it times configs, and only then: with one config it never does."""
Kept = Mapping[str, Any]
"""A config as JSON: `constants`, `num_warps`, `num_stages`."""
ELEMENT = "made"
"""What the filter calls a config."""


class PruneConfigs(Optimization):
    """`configs=[a, b, c]` -> `configs=[b]`."""

    name = "prune-configs"
    title = "pruned configs"
    backend = "triton"
    family = "tuning"
    priority: ClassVar = {
        KernelClass.COMPUTE: 125,
        KernelClass.BALANCED: 125,
        KernelClass.MEMORY: 125,
    }
    expected = "no latency; tuning takes the less time, the fewer configs are left"
    hypothesis = "What wins at no size that is launched need not be compiled and timed."
    saves = "the time to tune configs that do not win"
    opt_in = "it saves the time of tuning and no latency"
    changes_rounding = REORDERED
    example: ClassVar[Params] = {
        "kept": {
            "relu_kernel": [
                {"constants": {"BLOCK": 512}, "num_warps": 2, "num_stages": 3},
                {"constants": {"BLOCK": 2048}, "num_warps": 8, "num_stages": 3},
            ]
        }
    }
    before = TUNED.replace("num_warps=2),", "num_warps=2),  # few elements").replace(
        "num_warps=4),\n",
        """num_warps=4),
        triton.Config({"BLOCK": 2048}, num_warps=8),
        triton.Config({"BLOCK": 4096}, num_warps=8),
""",
    )
    after = before.replace('        triton.Config({"BLOCK": 1024}, num_warps=4),\n', "").replace(
        '        triton.Config({"BLOCK": 4096}, num_warps=8),\n', ""
    )
    observed: ClassVar[tuple[ObservedLaunch, ...]] = (
        ObservedLaunch(
            kernel="relu_kernel",
            test="test_relu.py::test_perf_relu",
            grid=(8192,),
            integers={"n": 2**24, "BLOCK": 2048},
            tensors={},
            options={"num_warps": 8, "num_stages": 3},
            tuning=ObservedTuning(
                key={"n": str(2**24)},
                tried=4,
                took_s=2.8,
                configs=tuple(
                    TunedConfig({"BLOCK": block}, {"num_warps": warps, "num_stages": 3}, ms)
                    for block, warps, ms in (
                        (512, 2, 0.041),
                        (1024, 4, 0.037),
                        (2048, 8, 0.034),
                        (4096, 8, 0.036),
                    )
                ),
            ),
        ),
    )

    trial = TritonTrial(kernel="relu_kernel", types=(P, P, "i32", 1024), function="relu")

    def variants(self, subject: Subject) -> Sequence[Params]:
        """One: what won, what came near it, and the smallest."""
        source = subject.source
        found = of_each(
            TRITON.chosen(source),
            lambda kernel: [(kernel.name, _kept(subject, kernel))],
            "no kernel is launched here",
        )
        params = {"kept": {name: kept for ((name, kept),) in found}}
        self.apply(subject, params)
        return [params]

    def apply(self, subject: Subject, params: Params) -> str:
        """Leave the tuners these configs."""
        source = subject.source
        kernels = [k for k in TRITON.chosen(source) if k.name in params["kept"]]
        edits = edits_of_each(
            kernels,
            lambda kernel: _edits(source, kernel, params["kept"][kernel.name]),
            "no kernel of that name is launched here",
        )
        return source.rewrite(edits)

    def describe(self, params: Params) -> str:
        """How many configs are left to each kernel."""
        left = (f"{name}={len(kept)}" for name, kept in params["kept"].items())
        return f"{self.title} ({', '.join(left)})"


def _kept(subject: Subject, kernel: Kernel) -> list[Kept]:
    tuner = tuner_of(subject.source, kernel)
    check_any_will_do(subject.source, tuner)
    tunings = tunings_of(subject.launches, kernel.name)
    if not tunings:
        raise NotApplicable(f"nobody saw what the tuner of {kernel.name} tried")
    if not all(tuning.configs for tuning in tunings):
        raise NotApplicable(f"the tuner of {kernel.name} gives it more than integers")
    parameters = {parameter.name.value for parameter in kernel.function.parameters}
    if not all(parameters.issuperset(c.constants) for t in tunings for c in t.configs):
        raise NotApplicable(f"the tuner of {kernel.name} gives it what is no parameter")
    wanted = [c for tuning in tunings for c in tuning.near_best(NEAR)] + _smallest(tunings)
    kept_somewhere = [_told(config) for config in wanted]
    timed = [_told(config) for config in tunings[0].configs]
    kept = [told for told in timed if told in kept_somewhere]
    if len(kept) == len(timed):
        raise NotApplicable(
            f"each of the {len(timed)} configs of {kernel.name} wins somewhere, or comes near it"
        )
    for option in WHILE_TUNING:
        if len(kept) == 1 and keyword(tuner, option) is not None:
            raise NotApplicable(f"one config is left to {kernel.name}, which then gets no {option}")
    return kept


def _smallest(tunings: Sequence[ObservedTuning]) -> list[TunedConfig]:
    """The config that asks least of a GPU, of those that ran for every key; none if none did."""
    failed = [_told(c) for t in tunings for c in t.configs if c.latency_ms is None]
    ran = [c for t in tunings for c in t.configs if _told(c) not in failed]
    return sorted(ran, key=_footprint)[:1]


def _footprint(config: TunedConfig) -> tuple[int, int]:
    stages = config.options.get("num_stages", DEFAULT_STAGES)
    size = prod(max(value, 1) for value in config.constants.values()) * max(stages, 1)
    return size, config.options.get("num_warps", DEFAULT_WARPS)


def _told(config: TunedConfig) -> Kept:
    return {
        "constants": dict(config.constants),
        "num_warps": config.options.get("num_warps", DEFAULT_WARPS),
        "num_stages": config.options.get("num_stages", DEFAULT_STAGES),
    }


def _edits(source: Source, kernel: Kernel, kept: Sequence[Kept]) -> dict[cst.CSTNode, Edit]:
    tuner = tuner_of(source, kernel)
    check_any_will_do(source, tuner)
    given = argument(tuner, 0, "configs")
    if given is None:
        raise NotApplicable(f"`@{source.code(tuner)}` does not show its configs")
    if isinstance(given, cst.List):
        left = [e for e in given.elements if not _is_other(source, e.value, kept)]
        if not left or len(left) == len(given.elements):
            raise NotApplicable(f"{kernel.name} tries nothing else")
        return {given: with_only(given, left)}
    behind = _unfiltered(given)
    made = source.module.code_for_node(behind)
    if not isinstance(behind, cst.Name | cst.Attribute | cst.Call | cst.ListComp) and not (
        behind.lpar
    ):
        made = f"({made})"
    text = _filtered(made, kept)
    if text.split() == source.module.code_for_node(given).split():
        raise NotApplicable(f"{kernel.name} tries nothing else")
    return {given: writing(text)}


def _is_other(source: Source, element: cst.BaseExpression, kept: Sequence[Kept]) -> bool:
    """Whether an element of a list is a config that is not kept; what cannot be read stays."""
    if not isinstance(element, cst.Call) or source.name(element.func) != CONFIG:
        return False
    try:
        config = config_of(source, element)
    except NotApplicable:
        return False
    stages = config.num_stages or DEFAULT_STAGES
    told = {
        "constants": dict(config.constants),
        "num_warps": config.num_warps,
        "num_stages": stages,
    }
    return told not in kept


def _unfiltered(configs: cst.BaseExpression) -> cst.BaseExpression:
    """What a filter that was written here filters."""
    match configs:
        case cst.BooleanOperation(
            left=cst.ListComp(elt=cst.Name(value=name)), operator=cst.Or(), right=made
        ) if name == ELEMENT:
            return made
    return configs


def _filtered(made: str, kept: Sequence[Kept]) -> str:
    """Falls back on all configs: on another GPU the file may make others."""
    rows = "".join(
        f"            ({k['constants']!r}, {k['num_warps']}, {k['num_stages']}),\n".replace(
            "'", '"'
        )
        for k in kept
    )
    return f"""\
[
        {ELEMENT}
        for {ELEMENT} in {made}
        if ({ELEMENT}.kwargs, {ELEMENT}.num_warps, {ELEMENT}.num_stages)
        in [
{rows}        ]
    ] or {made}"""
