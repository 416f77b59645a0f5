"""Sets options of the loops of Triton kernels that stream memory: stages, unrolling."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.triton.dialect import ATOMICS, TRITON
from agent.analysis.triton.pointers import root, spelling
from agent.analysis.triton.round_counts import most_rounds
from agent.syntax import Source, argument, descendants, keyword, with_keyword

RANGE = "triton.language.range"
PLAIN = ("builtins.range", RANGE)
LOAD = ("triton.language.load",)
STORE = ("triton.language.store",)
FORBIDDEN = (*TRITON.dots, *ATOMICS, "triton.language.debug_barrier")
OPTIONS = ("num_stages", "loop_unroll_factor")


def streaming_loops(subject: Subject) -> list[tuple[cst.Call, str]]:
    """The ranges of the loops that qualify, and how the file spells triton.language there."""
    return [loop for _, loop in _streaming(subject)]


def check_rounds(subject: Subject) -> None:
    """Raise `NotApplicable` where each of them took one round at most in every launch seen."""
    named: dict[str, None] = {}
    for kernel, (ranged, _) in _streaming(subject):
        most = most_rounds(subject.source, kernel, ranged, subject.launches)
        if most is None or most > 1:
            return
        named[kernel.name] = None
    raise NotApplicable(f"in every launch seen, the loops of {', '.join(named)} ran once at most")


def _streaming(subject: Subject) -> list[tuple[Kernel, tuple[cst.Call, str]]]:
    if subject.hardware.interpreted:
        raise NotApplicable("Triton's interpreter neither pipelines nor unrolls")
    source = subject.source
    found = [(k, item) for k in TRITON.chosen(source) for item in _loops_of(source, k)]
    if not found:
        raise NotApplicable("no innermost loop loads without a dot, an atomic or a helper")
    return found


def _loops_of(source: Source, kernel: Kernel) -> Iterator[tuple[cst.Call, str]]:
    for loop in descendants(kernel.function.node.body, cst.For):
        called = loop.iter
        if not isinstance(called, cst.Call) or source.name(called.func) not in PLAIN:
            continue
        inner = any(descendants(loop.body, cst.For)) or any(descendants(loop.body, cst.While))
        loads = list(TRITON.find(source, loop.body, LOAD))
        language = spelling(source, loads[0]) if loads else None
        if inner or language is None or not _is_plain(source, kernel, loop, loads):
            continue
        if _has_one_round(source, called):
            continue
        options = [keyword(called, option) for option in OPTIONS]
        if all(given is None or isinstance(given, cst.Integer) for given in options):
            yield called, language


def _has_one_round(source: Source, ranged: cst.Call) -> bool:
    """Whether it is `range(n, n + 1)`, which a kernel writes where it has the loop for another."""
    given = [source.code(each.value) for each in ranged.args if each.keyword is None]
    return len(given) == 2 and given[1] == f"{given[0]} + 1"


def _is_plain(source: Source, kernel: Kernel, loop: cst.For, loads: list[cst.Call]) -> bool:
    """Whether a loop calls nothing unknown and stores to nothing that it loads from."""
    for call in descendants(loop.body, cst.Call):
        if source.function_of(call.func) is not None:
            return False
        if TRITON.called(source, call) in FORBIDDEN:
            return False
    loaded = {_root(source, kernel, call) for call in loads}
    stored = {_root(source, kernel, call) for call in TRITON.find(source, loop.body, STORE)}
    return not loaded & stored and None not in loaded | stored


def _root(source: Source, kernel: Kernel, access: cst.Call) -> str | None:
    address = argument(access, 0, "pointer")
    return root(source, kernel, address) if address is not None else None


def ranging(language: str, option: str, value: str) -> Callable[[cst.Call], cst.Call]:
    """The edit of a loop's range that makes it Triton's own and sets an option."""

    def edit(call: cst.Call) -> cst.Call:
        if isinstance(call.func, cst.Name) and call.func.value == "range":
            call = call.with_changes(func=cst.parse_expression(f"{language}.range"))
        return with_keyword(call, option, value)

    return edit
