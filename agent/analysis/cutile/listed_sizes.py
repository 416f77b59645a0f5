"""The sizes that a constant of a cuTile kernel may have, where a file lists all of them.

A tuner is given configs, `Config(TILE_M=64, ...)`, and a function that makes the arguments of the
kernel of one, `lambda cfg: (x, y, cfg.TILE_M)`. A benchmark is given its cases by
`triton.testing.Benchmark`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.hand_overs import hand_over
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.host import constant, parameter
from agent.syntax import Source, argument, descendants, keyword

BENCHMARK = "triton.testing.Benchmark"
REPORT = "triton.testing.perf_report"


def listed_sizes(source: Source, kernel: Kernel, name: str) -> tuple[int, ...]:
    """What a constant is in each launch and config; empty where one of them leaves it open."""
    found: dict[int, None] = {}
    given = _given(source, kernel, name)
    for value in given or ():
        sizes = _sizes(source, value)
        if not sizes:
            return ()
        found |= dict.fromkeys(sizes)
    return tuple(found)


def _given(source: Source, kernel: Kernel, name: str) -> list[cst.BaseExpression] | None:
    """What each launch gives for a parameter, and each tuner; None where one does not show it."""
    found = [launch.arguments.get(name) for launch in kernel.launches]
    launches = {launch.node for launch in kernel.launches}
    device = {each.function.node for each in CUTILE.kernels(source)}
    for mention in source.mentions(kernel.function):
        around = source.enclosing(mention)
        if around is not None and around.node in device:
            continue
        over = hand_over(source, mention)
        if over is None and not any(each in launches for each in source.ancestors(mention)):
            return None
        if over is not None and over.call not in launches:
            found.append(_of_arguments(over.call, kernel, name))
    return [each for each in found if each is not None] if all(found) else None


def _of_arguments(call: cst.Call, kernel: Kernel, name: str) -> cst.BaseExpression | None:
    """What a call that is handed a kernel gives for a parameter, in the tuple of its arguments."""
    names = [each.name.value for each in kernel.function.parameters]
    values = [a.value.body if isinstance(a.value, cst.Lambda) else a.value for a in call.args]
    tuples = [v for v in values if isinstance(v, cst.Tuple) and len(v.elements) == len(names)]
    if len(tuples) != 1 or any(isinstance(e, cst.StarredElement) for e in tuples[0].elements):
        return None
    return tuples[0].elements[names.index(name)].value


def _sizes(source: Source, value: cst.BaseExpression) -> Sequence[int]:
    known = constant(source, value)
    if known is not None:
        return [int(known.value)]
    value = _unpacked(source, source.resolve(value))
    known = constant(source, value)
    if known is not None:
        return [int(known.value)]
    match value:
        case cst.Attribute(value=cst.Name() as config, attr=cst.Name(value=field)):
            return _of_field(source, field) if parameter(source, config) is not None else ()
        case cst.Name():
            return _of_benchmark(source, value)
    return ()


def _unpacked(source: Source, value: cst.BaseExpression) -> cst.BaseExpression:
    """What a name is of `m, n = size, 64`, where nothing else assigns it."""
    assigned = source.assignments(value) if isinstance(value, cst.Name) else ()
    if len(assigned) != 1:
        return value
    for around in source.ancestors(assigned[0].node):
        match around:
            case cst.Assign(
                targets=[cst.AssignTarget(target=cst.Tuple() as names)], value=cst.Tuple() as values
            ) if len(names.elements) == len(values.elements):
                for name, each in zip(names.elements, values.elements, strict=True):
                    if name.value is assigned[0].node:
                        return source.resolve(each.value)
            case cst.BaseStatement():
                break
    return value


def _of_field(source: Source, field: str) -> Sequence[int]:
    """What the configs of the file give for a field, where all that give it are listed."""
    found = []
    for call in source.calls:
        given = keyword(call, field)
        if given is None:
            continue
        around = next(source.ancestors(call))
        listed = isinstance(around, cst.Element | cst.Yield | cst.Return)
        known = constant(source, given)
        if not listed or known is None or known.is_default:
            return ()
        found.append(int(known.value))
    return found


def _of_benchmark(source: Source, name: cst.Name) -> Sequence[int]:
    """What the cases of a benchmark give for a parameter of the function that it decorates."""
    given = parameter(source, name)
    around = source.enclosing(name)
    while around is not None and given is not None and given not in around.parameters:
        around = source.enclosing(around.node)
    report = source.decorator(around, REPORT) if around is not None and given is not None else None
    if report is None or not isinstance(report.decorator, cst.Call):
        return ()
    cases = argument(report.decorator, 0, "benchmarks")
    found: list[int] = []
    for case in _calls(source, source.resolve(cases) if cases is not None else None):
        values = _case_values(source, case, name.value)
        known = [constant(source, value) for value in values]
        if not known or not all(known):
            return ()
        found += [int(each.value) for each in known if each is not None]
    return found


def _calls(source: Source, cases: cst.BaseExpression | None) -> Iterator[cst.Call]:
    for call in descendants(cases, cst.Call) if cases is not None else ():
        if source.name(call.func) == BENCHMARK:
            yield call


def _case_values(source: Source, case: cst.Call, name: str) -> Sequence[cst.BaseExpression]:
    """The values along the axis, or among the lines, that have a parameter's name."""
    line, values = keyword(case, "line_arg"), keyword(case, "line_vals")
    names, along = keyword(case, "x_names"), keyword(case, "x_vals")
    if isinstance(line, cst.SimpleString) and line.evaluated_value == name:
        listed = source.resolve(values) if values is not None else None
    elif names is not None and source.code(source.resolve(names)) in (f"['{name}']", f'["{name}"]'):
        listed = source.resolve(along) if along is not None else None
    else:
        return ()
    return [e.value for e in listed.elements] if isinstance(listed, cst.List | cst.Tuple) else ()
