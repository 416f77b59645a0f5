"""CT406 to CT410: what is done with the result of a search, and when one is made."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.cutile.kernel_file import KernelFile
from agent.lint import api
from agent.lint.base import Found, Severity, check
from agent.lint.checks.searching import GUIDE, KERNEL, searches
from agent.lint.space import SEARCH
from agent.syntax import Function, argument, descendants, names_in

CACHES = ("functools.cache", "functools.lru_cache")
DEVICE_WORDS = ("device", "gpu", "arch", "sm", "capability")

_SWITCHED_OFF = """\
    if os.environ.get("DISABLE_AUTOTUNE") == "1":
        ct.launch(stream, grid, scale, (x, y))
        return
"""
GOOD = (
    KERNEL
    + """
_tuned = {}

def run(x, y):
    stream = torch.cuda.current_stream()
    grid = (ct.cdiv(x.shape[0], 128),)
"""
    + _SWITCHED_OFF
    + """\
    key = (x.shape, x.dtype, str(x.device))
    if key not in _tuned:
        result = ct.tune.exhaustive_search(
            [1, 2, 4, 8], stream, lambda n: grid, scale, lambda n: (x, torch.empty_like(y)),
            lambda n: {"occupancy": n},
        )
        _tuned[key] = scale.replace_hints(occupancy=result.best.config)
    ct.launch(stream, grid, _tuned[key], (x, y))
"""
)


def _around(file: KernelFile, node: cst.CSTNode) -> tuple[Function, ...]:
    """The functions around a node, innermost first."""
    nodes = {f.node: f for f in file.source.functions}
    return tuple(
        nodes[above]
        for above in file.source.ancestors(node)
        if isinstance(above, cst.FunctionDef) and above in nodes
    )


def is_cached(file: KernelFile, function: Function) -> bool:
    return any(file.source.decorator(function, name) is not None for name in CACHES)


@check(
    "CT406",
    "hints-on-hot-path",
    Severity.WARNING,
    mend="call `replace_hints` once, and keep the kernel it gives in a cache or at module level",
    source=f"{GUIDE}, pitfall 7; cuda-tile 1.7's documentation of `replace_hints`: the returned "
    "kernel has its own JIT cache",
    bad=KERNEL
    + """
def run(x, y, stream, occupancy):
    tuned = scale.replace_hints(occupancy=occupancy)  # <-
    ct.launch(stream, (1,), tuned, (x, y))
""",
    good=KERNEL
    + """
_tuned = {}

def run(x, y, stream, occupancy):
    if occupancy not in _tuned:
        _tuned[occupancy] = scale.replace_hints(occupancy=occupancy)
    ct.launch(stream, (1,), _tuned[occupancy], (x, y))
""",
)
def hints_on_hot_path(file: KernelFile) -> Iterator[Found]:
    """Each call of `replace_hints` gives a new kernel that has to be compiled anew: tens of
    milliseconds where a launch takes microseconds."""
    for call in file.source.calls:
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "replace_hints":
            continue
        functions = _around(file, call)
        if not functions or any(is_cached(file, f) for f in functions):
            continue
        above = [*file.source.ancestors(call)]
        if any(isinstance(node, cst.For | cst.While | cst.Lambda) for node in above):
            continue
        if _only_launched(file, call, above):
            yield call, f"{functions[0].name} launches `{file.code(call)}` and does not keep it"


def _only_launched(file: KernelFile, call: cst.Call, above: list[cst.CSTNode]) -> bool:
    """Whether all that is done with the kernel is to launch it."""
    match above[0]:
        case cst.Arg():
            return _launches(file, call)
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as name)]):
            assignments = file.source.assignments(name)
            uses = [use for a in assignments for use in file.source.uses(a)]
            in_function = all(type(a.scope).__name__ == "FunctionScope" for a in assignments)
            return bool(uses) and in_function and all(_launches(file, use) for use in uses)
    return False


def _launches(file: KernelFile, kernel: cst.CSTNode) -> bool:
    around = next((n for n in file.source.ancestors(kernel) if isinstance(n, cst.Call)), None)
    return (
        around is not None
        and file.called(around) == "cuda.tile.launch"
        and argument(around, 2, "kernel") is kernel
    )


@check(
    "CT407",
    "unknown-result",
    Severity.ERROR,
    mend="`result.best.config` is the best config and `result.best.mean_us` its mean time in "
    "microseconds; `result.successes` and `result.failures` hold the rest",
    source=f"cuda-tile 1.7; {GUIDE} and TileGym's cuTile playbook, item C, use older names",
    bad=KERNEL
    + """
def run(x, y, stream):
    result = ct.tune.exhaustive_search(
        [1, 2], stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
    )
    return result.best_config  # <-
""",
    good=KERNEL
    + """
def run(x, y, stream):
    result = ct.tune.exhaustive_search(
        [1, 2], stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
    )
    return result.best.config
""",
)
def unknown_result(file: KernelFile) -> Iterator[Found]:
    """A TuningResult has best, successes, failures and summary."""
    if not any(True for _ in file.calls(SEARCH)):
        return
    for node in descendants(file.source.module, cst.Attribute):
        attribute = node.attr.value
        if _is_result(file, node.value) and attribute not in api.RESULT:
            yield node, f"a TuningResult has no `{attribute}`"
        inner = node.value
        if (
            isinstance(inner, cst.Attribute)
            and inner.attr.value == "best"
            and _is_result(file, inner.value)
            and attribute not in api.MEASUREMENT
        ):
            yield node, f"a Measurement, such as `{file.code(inner)}`, has no `{attribute}`"


def _is_result(file: KernelFile, expression: cst.BaseExpression) -> bool:
    value = file.source.resolve(expression)
    return isinstance(value, cst.Call) and file.called(value) == SEARCH


@check(
    "CT408",
    "key-without-device",
    Severity.WARNING,
    mend="put `str(x.device)` into the key",
    source=f"{GUIDE}, cache keys",
    bad=GOOD.replace(", str(x.device))", ")  # <-"),
    good=GOOD,
)
def key_without_device(file: KernelFile) -> Iterator[Found]:
    """What was found on one GPU may be slow on another of the same machine."""
    for _, function in searches(file):
        for key in _keys(file, function) if function is not None else ():
            if not _names_device(file, key):
                yield (
                    key,
                    f"the cache key `{file.code(key)}` does not name the device",
                )


def _keys(file: KernelFile, function: Function) -> Iterator[cst.Tuple]:
    """The tuples by which a function that searches stores what it found."""
    found: dict[cst.Tuple, None] = {}
    for assign in descendants(function.node.body, cst.Assign):
        for target in assign.targets:
            if isinstance(target.target, cst.Subscript) and len(target.target.slice) == 1:
                inner = target.target.slice[0].slice
                key = file.source.resolve(inner.value) if isinstance(inner, cst.Index) else None
                if isinstance(key, cst.Tuple):
                    found[key] = None
    yield from found


def _names_device(file: KernelFile, key: cst.BaseExpression, depth: int = 0) -> bool:
    if depth > 4 or any(isinstance(e, cst.StarredElement) for e in getattr(key, "elements", ())):
        return True
    for name in descendants(key, cst.Name):
        if any(word in name.value.lower() for word in DEVICE_WORDS):
            return True
        value = file.source.resolve(name)
        if value is not name and _names_device(file, value, depth + 1):
            return True
    return False


@check(
    "CT409",
    "search-at-every-call",
    Severity.WARNING,
    mend="search once for each shape, element type and device, and keep the kernel that "
    "`replace_hints` gives: `if key not in cache:`",
    source=f"{GUIDE}, 'tune once, cache, launch'",
    bad=KERNEL
    + """
def run(x, y, stream):
    result = ct.tune.exhaustive_search(  # <-
        [1, 2], stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
    )
    ct.launch(stream, (1,), scale.replace_hints(occupancy=result.best.config), (x, y))
""",
    good=GOOD,
)
def search_at_every_call(file: KernelFile) -> Iterator[Found]:
    """A search takes seconds. A function that neither keeps nor returns what it found searches
    again when it is called again."""
    for call, function in searches(file):
        if function is not None and not any(
            is_cached(file, f) or _keeps(f) for f in _around(file, call)
        ):
            yield call, f"{function.name} searches whenever it is called"


def _keeps(function: Function) -> bool:
    """Whether a function stores something outside its own names, or returns something."""
    body = function.node.body
    if any(True for _ in descendants(body, cst.Global)):
        return True
    for assign in descendants(body, cst.Assign):
        if any(isinstance(t.target, cst.Subscript | cst.Attribute) for t in assign.targets):
            return True
    return any(back.value is not None for back in descendants(body, cst.Return))


@check(
    "CT410",
    "no-switch",
    Severity.NOTE,
    mend="read an environment variable such as DISABLE_AUTOTUNE before the cache, and launch a "
    "fixed config when it is set",
    source=f"{GUIDE}, pitfall 4",
    bad=GOOD.replace(_SWITCHED_OFF, "").replace("search(\n", "search(  # <-\n"),
    good=GOOD,
)
def no_switch(file: KernelFile) -> Iterator[Found]:
    """A profiler should see the kernel, not the trials of a search."""
    names = names_in(file.source.module)
    texts = {str(t.raw_value) for t in descendants(file.source.module, cst.SimpleString)}
    if any(_is_switch(text) for text in names | texts):
        return
    for call, function in searches(file):
        yield (
            call,
            f"{function.name if function else 'the module'} searches, and nothing turns it off",
        )


def _is_switch(text: str) -> bool:
    text = text.upper()
    return "AUTOTUNE" in text and any(word in text for word in ("DISABLE", "ENABLE"))
