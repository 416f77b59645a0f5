"""CT411 to CT413: searches that are out of date, and search spaces that hold nothing."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst.metadata import GlobalScope

from agent.analysis.common.alternatives import are_alternatives
from agent.analysis.cutile.kernel_file import KernelFile
from agent.lint.base import Found, Severity, check
from agent.lint.checks.caching import GOOD, is_cached
from agent.lint.checks.searching import GUIDE, KERNEL, searched_spaces
from agent.lint.space import LAZY, LISTS, SEARCH, is_empty, is_generator
from agent.syntax import argument, descendants, keyword, positional

OLD_SEARCH = "autotune_launch"
PACKAGES = ("cuda.tile.", "cuda.tile_experimental.")
TAKERS = frozenset({*LISTS, *LAZY, SEARCH, "builtins.set", "builtins.sum", "builtins.max",
                    "builtins.min"})  # fmt: skip
"""They take all that a generator they are given has left."""
ENDS = (cst.Return, cst.Raise, cst.Continue, cst.Break)


def is_old_search(file: KernelFile, call: cst.Call) -> bool:
    """Whether a call is one of `cuda.tile_experimental.autotune_launch`."""
    called = file.called(call)
    return called.startswith(PACKAGES) and called.rpartition(".")[2] == OLD_SEARCH


@check(
    "CT411",
    "deprecated-search",
    Severity.WARNING,
    mend="search once with `cuda.tile.tune.exhaustive_search(configs, stream, grid_fn, kernel, "
    "args_fn, hints_fn)`, `configs` a list; keep the kernel that `replace_hints` gives for its "
    "`best.config`, and launch that with `ct.launch`",
    source=f"{GUIDE}, API reference; cuda-tile 1.7 as installed has no `cuda.tile_experimental`, "
    "whose `autotune_launch` searches at most 60 configs, taken at random",
    bad=KERNEL.replace("\n@ct", "\nimport cuda.tile_experimental as ct_experimental\n\n@ct", 1)
    + """
def run(x, y, stream):
    ct_experimental.autotune_launch(  # <-
        stream, grid_fn=lambda n: (1,), kernel=scale, args_fn=lambda n: (x, y),
        hints_fn=lambda n: {"occupancy": n}, search_space=[1, 2, 4, 8],
    )
""",
    good=GOOD,
)
def deprecated_search(file: KernelFile) -> Iterator[Found]:
    """`autotune_launch` is deprecated and stands in a package of its own that is not released.
    It searches and launches in one call; what stands in its place searches only."""
    for call in file.source.calls:
        if is_old_search(file, call):
            yield call, f"`{file.code(call.func)}` is deprecated: `{SEARCH}` stands in its place"


@check(
    "CT412",
    "empty-space",
    Severity.ERROR,
    mend="put at least the config that the kernel has without a search into the space, whatever "
    "filters by architecture or size leave of the others",
    source=f"{GUIDE}, pitfall 5; `exhaustive_search` of cuda-tile 1.7: 'Search space is empty'",
    bad=KERNEL
    + """
def configs():
    for size in ():
        yield size

def run(x, y, stream):
    return ct.tune.exhaustive_search(
        list(configs()),  # <-
        stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
    )
""",
    good=KERNEL
    + """
def configs():
    yield 1
    for size in ():
        yield size

def run(x, y, stream):
    return ct.tune.exhaustive_search(
        list(configs()), stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
    )
""",
)
def empty_space(file: KernelFile) -> Iterator[Found]:
    """A search of no configs raises an exception before it runs anything."""
    for _, space in searched_spaces(file):
        if is_empty(file, space):
            yield space, f"the search space `{file.code(space)}` is empty"


@check(
    "CT413",
    "used-up-space",
    Severity.ERROR,
    mend="make a list of the generator where it gets its name, or call the function that makes it "
    "at each search: `list(configs())`",
    source=f"{GUIDE}, pitfall 5; `exhaustive_search` of cuda-tile 1.7 then says 'Search space is "
    "empty'",
    bad=KERNEL
    + """
def configs():
    yield 1
    yield 2

def run(x, y, stream):
    space = configs()
    first = ct.tune.exhaustive_search(
        list(space), stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
    )
    second = ct.tune.exhaustive_search(
        list(space),  # <-
        stream, lambda n: (2,), scale, lambda n: (x, torch.empty_like(y)),
    )
    return first, second
""",
    good=KERNEL
    + """
def configs():
    yield 1
    yield 2

def run(x, y, stream):
    space = list(configs())
    first = ct.tune.exhaustive_search(
        space, stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
    )
    second = ct.tune.exhaustive_search(
        space, stream, lambda n: (2,), scale, lambda n: (x, torch.empty_like(y)),
    )
    return first, second
""",
)
def used_up_space(file: KernelFile) -> Iterator[Found]:
    """A generator gives its configs once. What takes them a second time, in the same function, in
    the next round of a loop, or when the function is called again, finds none."""
    for call in file.source.calls:
        if file.called(call) == SEARCH:
            space = argument(call, 0, "search_space")
        else:
            space = keyword(call, "search_space") if is_old_search(file, call) else None
        taken = _taken(file, space) if space is not None else None
        why = _why_used_up(file, taken) if taken is not None else None
        if taken is not None and why is not None:
            yield taken, f"the generator `{taken.value}` {why}"


def _taken(file: KernelFile, space: cst.BaseExpression) -> cst.Name | None:
    """The name of the generator that a search space is made of, where it is read."""
    seen: set[cst.BaseExpression] = set()
    while space not in seen:
        seen.add(space)
        match space:
            case cst.Name() if is_generator(file, space):
                return space
            case cst.Name():
                space = file.source.resolve(space)
            case cst.Call() if file.called(space) in LISTS and positional(space):
                space = positional(space)[0]
            case cst.List(elements=[cst.StarredElement(value=inner)]):
                space = inner
            case cst.Tuple(elements=[cst.StarredElement(value=inner)]):
                space = inner
            case cst.ListComp(for_in=loop) | cst.GeneratorExp(for_in=loop):
                space = loop.iter
    return None


def _why_used_up(file: KernelFile, taken: cst.Name) -> str | None:
    """What has taken all of a generator before, if something surely has."""
    assignments = file.source.assignments(taken)
    if len(assignments) != 1:
        return None
    (assignment,) = assignments
    above = [*file.source.ancestors(taken)]
    function = file.source.enclosing(taken)
    made_in = file.source.enclosing(assignment.node)
    if isinstance(assignment.scope, GlobalScope) and function is not None:
        once = is_cached(file, function) and not function.parameters
        return None if once else f"is used up by the first call of {function.name}"
    if function is not made_in:
        return None
    before = {*file.source.ancestors(assignment.node)}
    for loop in above:
        if isinstance(loop, cst.For | cst.While) and loop not in before:
            taken_once = isinstance(loop, cst.For) and (loop.iter is taken or loop.iter in above)
            if not taken_once and not any(True for _ in descendants(loop, cst.Break)):
                return "is used up by the first round of the loop"
    for use in file.source.uses(assignment):
        if use is taken:
            break
        if _takes(file, use) and not _never_both(file, use, taken):
            return f"is used up in line {file.source.line(use)}"
    return None


def _takes(file: KernelFile, use: cst.Name) -> bool:
    """Whether something takes all that a generator has left."""
    parent, above, *_ = (*file.source.ancestors(use), None, None)
    match parent:
        case cst.Arg() if isinstance(above, cst.Call):
            return file.called(above) in TAKERS or is_old_search(file, above)
        case cst.For():
            cut = any(True for _ in descendants(parent, cst.Break))
            cut = cut or any(True for _ in descendants(parent, cst.Return))
            return parent.iter is use and not cut
        case cst.CompFor():
            return parent.iter is use
    return isinstance(parent, cst.StarredElement)


def _never_both(file: KernelFile, one: cst.Name, other: cst.Name) -> bool:
    """Whether a run that comes to the one does not come to the other.

    A lambda or a function that is only defined may never run.
    """
    if file.source.enclosing(one) is not file.source.enclosing(other):
        return True
    if are_alternatives(file.source, one, other):
        return True
    around = {*file.source.ancestors(other)}
    for node in file.source.ancestors(one):
        if isinstance(node, cst.Lambda):
            return True
        if isinstance(node, cst.IndentedBlock) and node not in around and node.body:
            last = node.body[-1]
            if isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], ENDS):
                return True
    return False
