"""What tunes a kernel, and how its `@triton.autotune` reads: what stands in it, and its key.

A tuner of a library's own is known by what it is given: `configs=`, or a list of `triton.Config`.
It decorates the kernel, or wraps it elsewhere: `tuned = triton.autotune(configs=...)(kernel)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import all_refuse
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.arguments import rewritten
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source, argument, descendants, keyword

NO_TUNERS = ("triton.jit", "triton.heuristics")


def check_untuned(source: Source, kernels: Sequence[Kernel], what: str) -> None:
    """Raise `NotApplicable` where tuners choose something of all these kernels, if there are any.

    Args:
        source: the file.
        kernels: some of its kernels.
        what: what they choose, as `the warps`.
    """
    found = [why_tuned(source, kernel, what) for kernel in kernels]
    if found and all(found):
        raise all_refuse(found, "")


def why_tuned(source: Source, kernel: Kernel, what: str) -> str:
    """That a kernel has a tuner, which may choose this, in words; empty where nothing tunes it."""
    if TRITON.autotuned(source, kernel.function):
        return f"{kernel.name} is autotuned: {what} stay as its tuner and its launches have them"
    tunes = other_tuner(source, kernel)
    return f"{tunes}: {what} stay as it chooses them" if tunes else ""


def other_tuner(source: Source, kernel: Kernel) -> str:
    """Which tuner other than a `@triton.autotune` above it a kernel has, in words; or nothing."""
    found = next(_others(source, kernel), None)
    if found is None:
        return ""
    called = found.func if isinstance(found, cst.Call) else found
    return f"`{source.code(called)}` at line {source.line(found)} tunes {kernel.name}"


def shown_of_tuned(source: Source, shown: Mapping[str, int]) -> Iterator[str]:
    """Of kernels that are tuned: how many of their configs are shown, in words, if not all are.

    Args:
        source: the kernel's file.
        shown: kernel -> how many of its configs were launched.
    """
    for kernel in TRITON.kernels(source):
        if kernel.name not in shown:
            continue
        above = source.decorator(kernel.function, "triton.autotune")
        tuner = above.decorator if above is not None else next(_others(source, kernel), None)
        if tuner is not None:
            count = config_count(source, source.resolve(tuner))
            among = f"{count} configs" if count else "the configs"
            line = source.line(tuner)
            some = shown[kernel.name]
            if not count or some < count:
                told = f"{kernel.name} is shown with {some} of {among}"
                yield f"{told} that the tuner at line {line} has"


def left_to_tuners(source: Source) -> dict[str, frozenset[str]]:
    """Kernel -> its constants that no launch gives, of those whose launches show what they give."""
    return {
        kernel.name: frozenset(kernel.constants).difference(*(x.arguments for x in kernel.launches))
        for kernel in TRITON.kernels(source)
        if kernel.launches and all(x.complete and not x.hidden for x in kernel.launches)
    }


def config_count(source: Source, tuner: cst.BaseExpression) -> int:
    """How many configs a tuner lists; 0 where that is not to be seen."""
    given = _configs(source, tuner) if isinstance(tuner, cst.Call) else None
    listed = source.resolve(given) if given is not None else None
    if isinstance(listed, cst.Call) and (made := source.function_of(listed.func)) is not None:
        returned = list(descendants(made.node.body, cst.Return))
        listed = returned[0].value if len(returned) == 1 else None
    if isinstance(listed, cst.List | cst.Tuple):
        return _length(listed)
    count, loop = 1, listed.for_in if isinstance(listed, cst.ListComp) else None
    if loop is None:
        return 0
    while loop is not None:
        tried = source.resolve(loop.iter)
        if loop.ifs or not isinstance(tried, cst.List | cst.Tuple):
            return 0
        count, loop = count * _length(tried), loop.inner_for_in
    return count


def _length(listed: cst.List | cst.Tuple) -> int:
    """How many elements stand there; 0 where a `*` hides some."""
    starred = any(isinstance(element, cst.StarredElement) for element in listed.elements)
    return 0 if starred else len(listed.elements)


def _others(source: Source, kernel: Kernel) -> Iterator[cst.BaseExpression]:
    for decorator in kernel.function.node.decorators:
        expression = decorator.decorator
        called = expression.func if isinstance(expression, cst.Call) else expression
        named = source.name(called) or ""
        if named == "triton.autotune" or named in NO_TUNERS:
            continue
        told = source.code(called).rpartition(".")[2]
        if "tune" in told.lower() or _is_tuner(source, expression):
            yield expression
    for call in _wrapping(source).get(kernel.function.node, ()):
        maker = source.resolve(call.func)
        if isinstance(maker, cst.Call) and (_is_tuner(source, maker) or _may_tune(source, maker)):
            yield maker
        elif _is_tuner(source, call):
            yield call


@lru_cache(maxsize=64)
def _wrapping(source: Source) -> Mapping[cst.FunctionDef, Sequence[cst.Call]]:
    """Function -> the calls that are given it, or what a call made of it, in the file's order."""
    found: dict[cst.FunctionDef, list[cst.Call]] = {}
    for call in source.calls:
        for function in {each for arg in call.args for each in _wrapped(source, arg.value)}:
            found.setdefault(function, []).append(call)
    return found


def _is_tuner(source: Source, expression: cst.BaseExpression) -> bool:
    """Whether a call is given configs; so may the one be that a name stands for."""
    call = source.resolve(expression)
    if not isinstance(call, cst.Call) or isinstance(call.func, cst.Subscript):
        return False
    values = [arg.value for arg in call.args]
    return keyword(call, "configs") is not None or any(_lists_configs(source, v) for v in values)


def _may_tune(source: Source, maker: cst.Call) -> bool:
    """Whether what a call makes is given a kernel to tune, as its name says: `autotuned()(f)`."""
    return source.name(maker.func) not in NO_TUNERS and "tune" in source.code(maker.func).lower()


def _lists_configs(source: Source, expression: cst.BaseExpression) -> bool:
    listed = source.resolve(expression)
    return isinstance(listed, cst.List | cst.Tuple | cst.ListComp | cst.BinaryOperation) and any(
        source.code(call.func).rpartition(".")[2] == "Config"
        for call in descendants(listed, cst.Call)
    )


def _wrapped(source: Source, expression: cst.BaseExpression) -> Iterator[cst.FunctionDef]:
    """The function that it is, and those that a call made it of: `triton.heuristics(...)(f)`."""
    if (function := source.function_of(value_of(source, expression))) is not None:
        yield function.node
    made = source.resolve(expression)
    if isinstance(made, cst.Call):
        for arg in made.args:
            yield from _wrapped(source, arg.value)


def tuner_of(source: Source, kernel: Kernel) -> cst.Call:
    """The call of `triton.autotune` above a kernel. Raises `NotApplicable` where there is none."""
    decorator = source.decorator(kernel.function, "triton.autotune")
    if decorator is None or not isinstance(decorator.decorator, cst.Call):
        raise NotApplicable(other_tuner(source, kernel) or f"{kernel.name} is not autotuned")
    return decorator.decorator


def config_lists(source: Source, kernel: Kernel) -> tuple[cst.BaseExpression, ...]:
    """What is given as configs to each tuner of a kernel, whoever wrote that tuner."""
    found = (_configs(source, call) for call in _tuners(source, kernel))
    return tuple(given for given in found if given is not None)


def _tuners(source: Source, kernel: Kernel) -> tuple[cst.Call, ...]:
    """The calls that tune a kernel, whoever wrote what they call."""
    above = source.decorator(kernel.function, "triton.autotune")
    tuners = ([above.decorator] if above is not None else []) + list(_others(source, kernel))
    return tuple(call for call in map(source.resolve, tuners) if isinstance(call, cst.Call))


def _configs(source: Source, tuner: cst.Call) -> cst.BaseExpression | None:
    """The argument that holds the configs of a tuner; None where it shows none."""
    if source.name(tuner.func) == "triton.autotune":
        return argument(tuner, 0, "configs")
    listed = (arg.value for arg in tuner.args if _lists_configs(source, arg.value))
    return keyword(tuner, "configs") or next(listed, None)


def check_any_will_do(source: Source, tuner: cst.Call) -> None:
    """Raise `NotApplicable` unless a tuner may choose any of its configs for any launch.

    Where `prune_configs_by` leaves some out by the sizes of a launch, which of them may run is more
    than a matter of speed.
    """
    line = source.line(tuner)
    if any(arg.star for arg in tuner.args):
        raise NotApplicable(f"the tuner at line {line} hides arguments behind a `*`")
    if keyword(tuner, "prune_configs_by") is not None:
        raise NotApplicable(f"the tuner at line {line} leaves out configs by the sizes of a launch")


def check_restored(
    source: Source, kernel: Kernel, tuner: cst.Call, *, possibly: bool = False
) -> None:
    """Raise `NotApplicable` where a launch that is tuned leaves other results than one that is not.

    `reset_to_zero` does not do: what was not zero before is then lost in such a launch.

    Args:
        source: the file.
        kernel: one of its kernels.
        tuner: the call that tunes it.
        possibly: so may tensors be that are not certainly apart.
    """
    listed = keyword(tuner, "restore_value")
    told = listed.elements if isinstance(listed, cst.List | cst.Tuple) else ()
    restored = {source.code(element.value)[1:-1] for element in told}
    for name in rewritten(source, kernel):
        if name not in restored:
            raise NotApplicable(f"{kernel.name} reads and writes {name}, which no tuner restores")
    for name in rewritten(source, kernel, possibly=True) if possibly else ():
        if name not in restored:
            raise NotApplicable(
                f"{kernel.name} writes {name}, which may be a tensor that it reads, and no tuner "
                "restores it"
            )


def check_may_try(source: Source, kernel: Kernel) -> None:
    """Raise `NotApplicable` where more configs make a tuner try any, which leaves other results.

    A tuner of one config runs none twice. One of several does already, at each launch that tunes,
    and does no more than that with others: where it restores nothing, its author knows the tensors
    to be apart or a second run to change nothing, or has a hook reset them.
    """
    for tuner in _tuners(source, kernel):
        if config_count(source, tuner) == 1:
            check_restored(source, kernel, tuner, possibly=True)


def key_of(source: Source, tuner: cst.Call) -> tuple[cst.List, tuple[str, ...]]:
    """The list that a tuner's key is, and the parameters that it names.

    Raises:
        NotApplicable: it is no list of names that stands there.
    """
    listed = argument(tuner, 1, "key")
    if isinstance(listed, cst.List):
        elements = [element.value for element in listed.elements]
        if all(isinstance(element, cst.SimpleString) for element in elements):
            return listed, tuple(str(ast.literal_eval(source.code(e))) for e in elements)
    raise NotApplicable(f"the key of the tuner at line {source.line(tuner)} is no list of names")
