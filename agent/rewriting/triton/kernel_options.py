"""Where `num_warps` and `num_stages` of a Triton kernel are set: at its launches, or on the kernel.

A launch says them in plain sight, takes the defaults, or computes them from sizes in lines of its
function, for which a number can stand. Where one hides what it gives, is told an option by a caller
or a function, or stands in another file, a heuristic right above `@triton.jit` sets them for every
launch there is: of all that say something, Triton asks that one last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.purity import is_pure
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.heuristics import heuristics_of, unread_decorator, why_no_heuristics
from agent.analysis.triton.host import triton_module
from agent.analysis.triton.operations import for_kernels
from agent.analysis.triton.planned_options import why_planned
from agent.analysis.triton.tuners import why_tuned
from agent.rewriting.triton.edits import Edit, with_heuristics, without, writing
from agent.rewriting.triton.launch_options import (
    DEFAULTS,
    check,
    given,
    is_plain_or_ramp,
    now,
    setting_options,
)
from agent.rewriting.triton.overriding import KNOWN, computes_own, lines_of, overriding
from agent.syntax import Source, descendants


@dataclass(frozen=True)
class KernelOptions(ABC):
    """The options of one kernel."""

    source: Source
    kernel: Kernel

    @abstractmethod
    def values(self, name: str) -> Collection[int]:
        """What an option is now, launch by launch; empty where the source does not tell."""

    @abstractmethod
    def given(self, name: str) -> Collection[int]:
        """The same without the defaults: what the author chose."""

    @abstractmethod
    def setting(self, options: Mapping[str, int]) -> dict[cst.CSTNode, Edit]:
        """The edits that set options; none for what they are already."""

    def say(self, options: Mapping[str, int]) -> bool:
        """Whether the source says exactly this already."""
        return all(set(self.values(name)) == {value} for name, value in options.items())


class AtLaunches(KernelOptions):
    """Every launch is in plain sight."""

    def values(self, name: str) -> Collection[int]:
        """One a launch."""
        return [now(self.source, launch, name) for launch in self.kernel.launches]

    def given(self, name: str) -> Collection[int]:
        """Those of the launches that say something."""
        found = (given(self.source, launch, name) for launch in self.kernel.launches)
        return [literal.value for literal in found if literal is not None]

    def setting(self, options: Mapping[str, int]) -> dict[cst.CSTNode, Edit]:
        """Keywords of the launches."""
        return setting_options(self.source, self.kernel.launches, options)


class OverLaunches(AtLaunches):
    """Some launch computes an option itself, which another value then stands for."""

    def values(self, name: str) -> Collection[int]:
        """One a launch, where none computes it: the last of several numbers may stand there."""
        found: list[int] = []
        for launch in self.kernel.launches:
            if not computes_own(self.source, launch, name):
                found.append(now(self.source, launch, name))
                continue
            value = value_of(self.source, launch.hints[name])
            if not isinstance(value, cst.Integer):
                return []
            found.append(value.evaluated_value)
        return found

    def given(self, name: str) -> Collection[int]:
        """The same without the defaults."""
        if any(computes_own(self.source, launch, name) for launch in self.kernel.launches):
            return self.values(name)
        return super().given(name)

    def setting(self, options: Mapping[str, int]) -> dict[cst.CSTNode, Edit]:
        """Keywords of the launches that compute one; of the others what `AtLaunches` would do."""
        texts = {name: str(value) for name, value in options.items()}
        own = [x for x in self.kernel.launches if self._computes(x)]
        others = [x for x in self.kernel.launches if x not in own]
        edits = setting_options(self.source, others, options)
        return edits | overriding(self.source, [(launch, texts) for launch in own])

    def _computes(self, launch: Launch) -> bool:
        return any(computes_own(self.source, launch, name) for name in DEFAULTS)


class OnKernel(KernelOptions):
    """No matter what the launches say."""

    def values(self, name: str) -> Collection[int]:
        """What a heuristic that was written here says."""
        found = _own_heuristics(self.source, self.kernel).get(name)
        return [found.evaluated_value] if isinstance(found, cst.Integer) else []

    given = values

    def setting(self, options: Mapping[str, int]) -> dict[cst.CSTNode, Edit]:
        """Lambdas of a heuristic."""
        return self.computing({name: str(value) for name, value in options.items()})

    def computing(self, options: Mapping[str, str]) -> dict[cst.CSTNode, Edit]:
        """The edits that compute options from `args`, the launch's arguments by their names.

        Launches in sight no longer give them: a heuristic outranks a launch.

        Raises:
            NotApplicable: the file calls something else `min` or `max`, which they use.
        """
        called = [n for n in ("max", "min") if any(f"{n}(" in text for text in options.values())]
        check_builtins(self.source, self.kernel.function.node, *called)
        present = _own_heuristics(self.source, self.kernel)
        theirs = _their_heuristics(self.source, self.kernel)
        edits: dict[cst.CSTNode, Edit] = {
            present[name]: writing(text)
            for name, text in options.items()
            if name in present and self.source.code(present[name]) != text
        }
        added = {n: f"lambda args: {text}" for n, text in options.items() if n not in present}
        edits |= {theirs[name]: writing(added.pop(name)) for name in added.keys() & theirs.keys()}
        if added:
            edits |= with_heuristics(self.source, self.kernel, added)
        for launch in self.kernel.launches:
            told = {n for n in options if n in launch.hints and self._may_go(launch, n)}
            if told and not launch.shared_with:
                edits[launch.node] = without(launch, told)
        return edits

    def _may_go(self, launch: Launch, name: str) -> bool:
        """Whether what a launch gives for an option does nothing but compute it."""
        given = launch.hints[name]
        lines = lines_of(self.source, launch.function, given) if isinstance(given, cst.Name) else ()
        values = [each.value for line in lines for each in descendants(line, cst.Assign)]
        return all(is_pure(self.source, value, KNOWN) for value in (given, *values))


def options_of(source: Source, kernel: Kernel, names: Collection[str]) -> KernelOptions:
    """Where to set options of a kernel.

    Raises:
        NotApplicable: neither at its launches nor on it; the message says why, for both.
    """
    if made := unread_decorator(source, kernel):
        raise NotApplicable(f"{made}: what options that gives is not seen")
    check_not_planned(source, kernel, names)
    if _own_heuristics(source, kernel).keys() & set(names):
        return OnKernel(source, kernel)
    try:
        if not kernel.launches:
            raise NotApplicable(f"{kernel.name} is launched elsewhere")
        if theirs := sorted(_their_heuristics(source, kernel).keys() & set(names)):
            raise NotApplicable(f"a heuristic of {kernel.name} computes its {theirs[0]}")
        check(source, kernel.launches)
        _check_for_all(source, kernel, names)
        return AtLaunches(source, kernel)
    except NotApplicable as reason:
        computed = _their_heuristics(source, kernel).keys() & set(names)
        if (
            kernel.launches
            and not computed
            and not any(launch.shared_with for launch in kernel.launches)
            and all(_may_be_given(source, launch) for launch in kernel.launches)
        ):
            return OverLaunches(source, kernel)
        return on_kernel(source, kernel, names, reason)


def _check_for_all(source: Source, kernel: Kernel, names: Collection[str]) -> None:
    """Raise `NotApplicable` where a launch may be one of a kernel that has to stay as it is."""
    by_function = {each.function: each for each in TRITON.kernels(source)}
    chosen = {each.function for each in TRITON.chosen(source)}
    for launch in (each for each in kernel.launches if each.shared_with):
        for function in (*launch.shared_with, kernel.function):
            other = by_function[function]
            told = f"the launch at line {source.line(launch.node)} may be one of {other.name}"
            if other.function not in chosen:
                raise NotApplicable(f"{told}, which no test times")
            parameters = {each.name.value for each in other.function.parameters}
            if taken := sorted(parameters & set(names)):
                raise NotApplicable(f"{told}, which takes {taken[0]} as a parameter")
            heuristics = heuristics_of(source, other).keys()
            if computed := sorted(heuristics & set(names)):
                raise NotApplicable(f"{told}, of which a heuristic computes {computed[0]}")
            if reason := unread_decorator(source, other) or why_tuned(source, other, "options"):
                raise NotApplicable(f"{told}, and {reason}")
            check_not_planned(source, other, names)


def _may_be_given(source: Source, launch: Launch) -> bool:
    """Whether a launch computes options by itself, or shows them as plain numbers."""
    for name in DEFAULTS:
        if name in launch.arguments or not launch.complete:
            return False
        try:
            if not computes_own(source, launch, name):
                given(source, launch, name)
        except NotApplicable:
            return False
    return True


def on_kernel(
    source: Source, kernel: Kernel, names: Collection[str], reason: NotApplicable
) -> OnKernel:
    """A kernel that is to set options itself, because its launches cannot.

    Raises:
        NotApplicable: it cannot, either; `reason` is why the launches cannot.
    """
    if cannot := next(filter(None, _obstacles(source, kernel, names)), ""):
        raise NotApplicable(f"{reason}, and {cannot}") from None
    return OnKernel(source, kernel)


def check_not_planned(source: Source, kernel: Kernel, names: Collection[str]) -> None:
    """Raise `NotApplicable` where the host computes something of what it gives for an option."""
    if planned := why_planned(source, kernel, names):
        raise NotApplicable(planned)


def setting_own(source: Source, kernel: Kernel, name: str) -> bool:
    """Whether a heuristic that was written here sets an option, so that launches say nothing."""
    return name in _own_heuristics(source, kernel)


def _obstacles(source: Source, kernel: Kernel, names: Collection[str]) -> Iterator[str]:
    """Why no heuristic can be put on the kernel."""
    try:
        triton_module(source, kernel)
    except NotApplicable as reason:
        yield str(reason)
    for parameter in kernel.function.parameters:
        if parameter.name.value in names:
            yield f"{kernel.name} takes {parameter.name.value} as a parameter"
    yield why_no_heuristics(source, kernel)
    if kernel.function in for_kernels(source):
        yield f"only kernels can call {kernel.name}"


def _own_heuristics(source: Source, kernel: Kernel) -> dict[str, cst.BaseExpression]:
    """Option -> the number or ramp of `{"num_warps": lambda args: 8}`, if no other outranks it."""
    return {
        name: function.body
        for name, function in heuristics_of(source, kernel).items()
        if isinstance(function, cst.Lambda) and is_plain_or_ramp(source, function.body)
    }


def _their_heuristics(source: Source, kernel: Kernel) -> dict[str, cst.BaseExpression]:
    """Option -> the author's function that computes it, which outranks what a launch says."""
    own = _own_heuristics(source, kernel)
    return {
        name: function
        for name, function in heuristics_of(source, kernel).items()
        if name in DEFAULTS and name not in own
    }
