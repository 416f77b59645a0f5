"""Let Triton's tuner try each config with other warps or stages, too.

When: a Triton kernel under `@triton.autotune` or a tuner of a library's own that is given configs
    as that is, however they are made: a list, a comprehension, a function of the package. Not the
    one config of a kernel that may work in place without `restore_value`: it was never tried,
    where a tuner of several runs the kernel again and again as it is.
Do: `configs=MADE` -> each of them as it is and with one more number of warps, or of stages for a
    kernel with `tl.dot`; sweep that number. Nothing need be known of the constants. Where two of
    them may differ in that number alone, `dict.fromkeys` keeps each of what is made once.
Risk: none to results. Tuning takes up to twice as long, once for each key.
Source: of 312 public files with launched Triton kernels, 49 hold one that tunes itself, and in 6 of
    them `widen-configs` can add configs by formula (`python -m benchmarks.reach`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import all_refuse
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.config_numbers import added_to, adds_none, may_repeat
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.heuristics import stand_in
from agent.analysis.triton.tuners import check_may_try, config_lists, other_tuner, why_tuned
from agent.playbook.base import Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.common.formatting import STEP
from agent.rewriting.triton.edits import Edit, writing
from agent.syntax import Source, descendants, keyword
from agent.tuning.imports import imports_name, module_named

WARPS = (2, 4, 8, 16)
DOT_WARPS = (4, 8)
DOT_STAGES = (2, 3, 4, 5)
CHOICE = {"num_warps": "warps", "num_stages": "stages"}
"""Option -> what the configs' comprehension calls it."""
TEXT = """\
{opened}
        triton.Config(
            made.kwargs, {warps}, {stages}, made.num_ctas, made.maxnreg, made.pre_hook
        )
        for made in {configs}
        for {name} in sorted({{made.{option}, {value}}})
    {closed}"""
BRACKETS, EACH_ONCE = ("[", "]"), ("list(dict.fromkeys(", "))")
"""Around the comprehension: as it is, or where some of what it makes may be the same."""
INDENT = 8
"""Of the comprehension's lines."""


class ConfigOptions(Optimization):
    """`configs=MADE` -> `configs=[... for made in MADE for warps in (its own, 8)]`."""

    name = "config-options"
    title = "options of the configs"
    backend = "triton"
    family = "warps"
    priority: ClassVar = {KernelClass.COMPUTE: 32, KernelClass.BALANCED: 24, KernelClass.MEMORY: 22}
    expected = "what other warps give where the author tried a few: to be measured"
    hypothesis = "The best warps or stages for this GPU are ones that the author did not list."
    example: ClassVar[Params] = {"num_warps": 8}
    before = """\
import torch
import triton
import triton.language as tl


def configs():
    return [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.autotune(configs=configs(), key=["n"])
@triton.jit
def clip_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, tl.minimum(x, 1.0), mask=offsets < n)


def clip(x):
    y = torch.empty_like(x)
    grid = lambda META: (triton.cdiv(x.numel(), META["BLOCK"]),)
    clip_kernel[grid](x, y, x.numel())
    return y
"""
    after = before.replace(
        'configs=configs(), key=["n"]',
        """
    configs=[
        triton.Config(
            made.kwargs, warps, made.num_stages, made.num_ctas, made.maxnreg,
            made.pre_hook
        )
        for made in configs()
        for warps in sorted({made.num_warps, 8})
    ],
    key=["n"],
""",
    )

    trial = TritonTrial(kernel="clip_kernel", types=(P, P, "i32", 1024), function="clip")

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Warps, and stages where there is a dot; less what has been added already."""
        source = subject.source
        kernels = _tuned(subject)
        dot = any(TRITON.has_dot(source, kernel) for kernel, _ in kernels)
        sweep: list[Params] = [{"num_warps": n} for n in (DOT_WARPS if dot else WARPS)]
        sweep += [{"num_stages": n} for n in (DOT_STAGES if dot else ())]
        found = [params for params in sweep if _edits(subject, params)]
        if not found:
            raise NotApplicable("every number worth trying is among the configs")
        return found

    def apply(self, subject: Subject, params: Params) -> str:
        """Add one number to the configs of every autotuned kernel."""
        edits = _edits(subject, params)
        if not edits:
            raise NotApplicable("the configs have this number already")
        return subject.source.rewrite(edits)


_Listed = cst.Tuple | cst.List | cst.Set


def _tuned(subject: Subject) -> list[tuple[Kernel, tuple[cst.BaseExpression, ...]]]:
    """The kernels that tune themselves, with the configs of each tuner that they have."""
    if subject.hardware.interpreted:
        raise NotApplicable("Triton's interpreter cannot time configs")
    source = subject.source
    launched = TRITON.chosen(source)
    found = [(kernel, lists) for kernel in launched if (lists := config_lists(source, kernel))]
    if not found:
        tuned = [kernel for kernel in launched if why_tuned(source, kernel, "the options")]
        whose = (other_tuner(source, k) or f"a tuner tunes {k.name}" for k in tuned)
        reasons = [f"{tunes}, which does not show its configs" for tunes in whose]
        raise all_refuse(reasons, "no launched kernel is autotuned")
    refused: list[str] = []
    for each in tuple(found):
        try:
            check_may_try(source, each[0])
        except NotApplicable as reason:
            refused.append(str(reason))
            found.remove(each)
    if not found:
        raise all_refuse(refused, "")
    return found


def _edits(subject: Subject, params: Params) -> dict[cst.CSTNode, Edit]:
    ((option, value),) = params.items()
    source = subject.source
    edits: dict[cst.CSTNode, Edit] = {}
    for given in (each for _, lists in _tuned(subject) for each in lists):
        own = _own_choices(source, given).get(option) or _listed_choices(given, option)
        if own is None and adds_none(source, given, option, int(value)):
            continue
        if own is None:
            edits[given] = writing(_text(source, given, option, int(value)))
            edits |= _opened(source, given)
        elif all(source.code(element.value) != str(value) for element in own.elements):
            edits[own] = _with(int(value))
    return edits


def _opened(source: Source, given: cst.BaseExpression) -> dict[cst.CSTNode, Edit]:
    """The edit that gives each argument of a decorator on one line a line of its own."""
    arg, call, decorator = [*source.ancestors(given)][:3]
    if not isinstance(arg, cst.Arg) or not isinstance(call, cst.Call):
        return {}
    place = source.place(call)
    if not isinstance(decorator, cst.Decorator) or place.start.line != place.end.line:
        return {}
    below, closing = (
        cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(" " * n))
        for n in (STEP, 0)
    )

    def edit(updated: cst.Call) -> cst.Call:
        *others, last = updated.args
        args = [arg.with_changes(comma=cst.Comma(whitespace_after=below)) for arg in others]
        args.append(last.with_changes(comma=cst.Comma(whitespace_after=closing)))
        return updated.with_changes(whitespace_before_args=below, args=args)

    return {call: edit}


def _text(source: Source, given: cst.BaseExpression, option: str, value: int) -> str:
    if (line := stand_in(source).get("Config")) is not None:
        raise NotApplicable(f"line {line} stands in for `triton.Config` where it is not installed")
    triton = module_named(source, "triton")
    if triton is None and not imports_name(source, "triton", "Config"):
        raise NotApplicable("the file does not import triton, whose Config makes the configs")
    repeats = may_repeat(source, given, option)
    opened, closed = EACH_ONCE if repeats else BRACKETS
    check_builtins(source, given, "sorted", *(("list", "dict") if repeats else ()))
    configs = _as_laid_out(source, given)
    if isinstance(given, cst.IfExp | cst.Lambda) and not given.lpar:
        configs = f"({configs})"
    chosen = {other: f"made.{other}" for other in CHOICE} | {option: CHOICE[option]}
    text = TEXT.format(
        opened=opened,
        closed=closed,
        warps=chosen["num_warps"],
        stages=chosen["num_stages"],
        configs=configs,
        name=CHOICE[option],
        option=option,
        value=value,
    )
    return text.replace("triton.Config", f"{triton}.Config" if triton else "Config", 1)


def _as_laid_out(source: Source, given: cst.BaseExpression) -> str:
    """The configs as they stand, over as many lines, so that the last is level with the `for`s."""
    text = source.module.code_for_node(given)
    first, *rest = text.splitlines()
    if not rest or any(quotes in text for quotes in ('"""', "'''", "\\")):
        return source.code(given)
    shift = INDENT - (len(rest[-1]) - len(rest[-1].lstrip()))
    shifted = (" " * max(0, len(x) - len(x.lstrip()) + shift) + x.lstrip() for x in rest)
    return "\n".join([first, *map(str.rstrip, shifted)])


def _own_choices(source: Source, configs: cst.BaseExpression) -> dict[str, cst.Set]:
    """Option -> the set of what it is tried with, of each comprehension that was written here."""
    found: dict[str, cst.Set] = {}
    while (comprehension := added_to(configs)) is not None:
        match comprehension.for_in.inner_for_in:
            case cst.CompFor(target=cst.Name(value=name), iter=cst.Call(args=[cst.Arg(value=own)])):
                first = source.code(own.elements[0].value) if isinstance(own, cst.Set) else ""
                for option in CHOICE:
                    if (name, first) == (CHOICE[option], f"made.{option}"):
                        found[option] = cst.ensure_type(own, cst.Set)
        configs = comprehension.for_in.iter
    return found


def _listed_choices(configs: cst.BaseExpression, option: str) -> _Listed | None:
    """The numbers that an author's comprehension gives an option: of `for w in (2, 4)`."""
    if not isinstance(configs, cst.ListComp) or not isinstance(configs.elt, cst.Call):
        return None
    given = keyword(configs.elt, option)
    if not isinstance(given, cst.Name):
        return None
    named = [n for n in descendants(configs, cst.Name) if n.value == given.value]
    for each in descendants(configs, cst.CompFor):
        match each:
            case cst.CompFor(
                target=cst.Name(value=name), iter=cst.Tuple() | cst.List() | cst.Set() as listed
            ) if name == given.value and len(named) == len([each.target, given]):
                numbers = all(isinstance(e.value, cst.Integer) for e in listed.elements)
                return listed if listed.elements and numbers else None
    return None


def _with(value: int) -> Edit:
    def edit(chosen: _Listed) -> _Listed:
        last = chosen.elements[-1].with_changes(
            comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        )
        return chosen.with_changes(
            elements=[*chosen.elements[:-1], last, cst.Element(cst.Integer(str(value)))]
        )

    return edit
