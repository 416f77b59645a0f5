"""CT401 to CT405: the search of `ct.tune.exhaustive_search`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from agent.analysis.common.alternatives import are_alternatives
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.kernel_file import KernelFile
from agent.analysis.cutile.values import DEEP
from agent.lint import api
from agent.lint.base import Found, Severity, check
from agent.lint.space import SEARCH, at_least, hint_of_config, is_generator, values
from agent.syntax import Function, argument, keyword, positional

GUIDE = "TileGym's autotuning guide"
MOST_CONFIGS = 30
ALIASES = frozenset(
    {
        "contiguous", "detach", "expand", "expand_as", "flatten", "movedim", "permute",
        "requires_grad_", "reshape", "reshape_as", "squeeze", "swapaxes", "t", "transpose",
        "unflatten", "unsqueeze", "view", "view_as",
    }
)  # fmt: skip
"""Methods of a tensor that give all of the same memory: three of them a copy, where it is not
contiguous. A part of a tensor, such as `x[:n]`, may be apart from another."""
TURNED = frozenset({"H", "T", "data", "mH", "mT"})
"""Attributes that do."""
KERNEL = """
@ct.kernel
def scale(x, y):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (128,)) * 2)

"""


def searches(file: KernelFile) -> Iterator[tuple[cst.Call, Function | None]]:
    """The searches of a file, each with the function it stands in."""
    for call in file.calls(SEARCH):
        yield call, file.source.enclosing(call)


def searched_spaces(file: KernelFile) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
    """The searches of a file that name a space, each with it."""
    for call in file.calls(SEARCH):
        space = argument(call, 0, "search_space")
        if space is not None:
            yield call, space


@check(
    "CT401",
    "generator-as-space",
    Severity.ERROR,
    mend="make a list of it: `list(configs())`",
    source=f"{GUIDE}, pitfall 5; `exhaustive_search` of cuda-tile 1.7 takes `len` of it first",
    bad=KERNEL
    + """
def configs():
    yield 1
    yield 2

def run(x, y, stream):
    return ct.tune.exhaustive_search(
        configs(),  # <-
        stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
    )
""",
    good=KERNEL
    + """
def configs():
    yield 1
    yield 2

def run(x, y, stream):
    return ct.tune.exhaustive_search(
        list(configs()),
        stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
    )
""",
)
def generator_as_space(file: KernelFile) -> Iterator[Found]:
    """A search space has a length; a generator has none, and is used up after one pass."""
    for _, space in searched_spaces(file):
        if is_generator(file, space):
            yield space, f"the search space `{file.code(space)}` is a generator"


@check(
    "CT402",
    "many-configs",
    Severity.WARNING,
    mend="keep what the kernel's class needs: occupancy alone where memory is the limit; tiles "
    "filtered by architecture elsewhere",
    source=f"{GUIDE}, pitfall 2: a config takes 0.5 to 2 s to compile",
    bad=KERNEL
    + """
def run(x, y, stream):
    space = [(m, n, o) for m in (32, 64, 128, 256) for n in (32, 64, 128) for o in (1, 2, 4)]
    return ct.tune.exhaustive_search(
        space,  # <-
        stream, lambda c: (1,), scale, lambda c: (x, torch.empty_like(y)),
    )
""",
    good=KERNEL
    + """
def run(x, y, stream):
    space = [(m, n, o) for m in (64, 128) for n in (64, 128) for o in (1, 2)]
    return ct.tune.exhaustive_search(
        space, stream, lambda c: (1,), scale, lambda c: (x, torch.empty_like(y)),
    )
""",
)
def many_configs(file: KernelFile) -> Iterator[Found]:
    """The first call of the operation waits until every config is compiled and timed."""
    for _, space in searched_spaces(file):
        if (count := at_least(file, space)) > MOST_CONFIGS:
            yield space, f"the search space has {count} configs, more than {MOST_CONFIGS}"


@check(
    "CT403",
    "original-not-in-space",
    Severity.WARNING,
    mend="add the config that the kernel had before to the search space",
    source=f"{GUIDE}, 'search space must include the original fixed config'",
    bad="""
@ct.kernel(occupancy=6)
def scale(x, y):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (128,)) * 2)

def run(x, y, stream):
    return ct.tune.exhaustive_search(  # <-
        [1, 2, 4, 8], stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
        lambda n: {"occupancy": n},
    )
""",
    good="""
@ct.kernel(occupancy=6)
def scale(x, y):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (128,)) * 2)

def run(x, y, stream):
    return ct.tune.exhaustive_search(
        [1, 2, 4, 6, 8], stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
        lambda n: {"occupancy": n},
    )
""",
)
def original_not_in_space(file: KernelFile) -> Iterator[Found]:
    """Only a space with the original config cannot choose a slower one."""
    for call, space in searched_spaces(file):
        given = argument(call, 3, "kernel")
        function = file.source.function_of(given) if given is not None else None
        if function is None:
            continue
        decorator = file.source.decorator(function, CUTILE.decorator)
        if decorator is None or not isinstance(decorator.decorator, cst.Call):
            continue
        for hint in api.HINTS:
            fixed = keyword(decorator.decorator, hint)
            original = file.integer(fixed) if fixed is not None else None
            name = hint_of_config(file, call, hint)
            if original is None or name is None:
                continue
            tried = values(file, space, name)
            if tried is not None and original not in tried:
                yield call, f"the kernel has {hint}={original}; the search tries {sorted(tried)}"


@check(
    "CT404",
    "in-place-search",
    Severity.ERROR,
    mend="search on a scratch tensor: give `args_fn` one made with `torch.empty_like` for what the "
    "kernel writes, and launch in place only afterwards",
    source=f"{GUIDE}, pitfall 1; `exhaustive_search` of cuda-tile 1.7 runs each config at least 8 "
    "times on what `args_fn` gives",
    bad="""
@ct.kernel
def double(x):
    i = ct.bid(0)
    ct.store(x, (i,), ct.load(x, (i,), (128,)) * 2)

def run(x, stream):
    return ct.tune.exhaustive_search(
        [1, 2], stream, lambda n: (1,), double,
        lambda n: (x,),  # <-
    )

@ct.kernel
def scale(x, y):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (128,)) * 2)

def scaled(x, stream):
    return ct.tune.exhaustive_search(
        [1, 2], stream, lambda n: (1,), scale,
        lambda n: (x.view(-1), x),  # <-
    )
""",
    good=KERNEL
    + """
def run(x, stream):
    scratch = torch.empty_like(x)
    return ct.tune.exhaustive_search(
        [1, 2], stream, lambda n: (1,), scale, lambda n: (x, scratch),
    )
""",
)
def in_place_search(file: KernelFile) -> Iterator[Found]:
    """A search runs the kernel many times. One that reads what it has written is then given its
    own output, and leaves the caller's tensor changed more than once. A view of a tensor, such as
    `x.view(-1)`, is that tensor."""
    for call, _ in searches(file):
        given = argument(call, 3, "kernel")
        function = file.source.function_of(given) if given is not None else None
        kernel = next((k for k in file.kernels if k.function is function), None)
        made = file.result_of(argument(call, 4, "args_fn"))
        if function is None or kernel is None or not isinstance(made, cst.Tuple):
            continue
        names = [p.name.value for p in kernel.function.parameters]
        if len(names) != len(made.elements):
            continue
        given_as: dict[str, list[str]] = {}
        for name, element in zip(names, made.elements, strict=True):
            tensor = _tensor(file, element.value)
            if tensor is None:
                continue
            given_as.setdefault(tensor, []).append(name)
            if _in_place(file, function, given_as[tensor]):
                yield element.value, f"each trial of {kernel.name} reads and writes `{tensor}`"


def _in_place(file: KernelFile, function: Function, names: list[str]) -> bool:
    """Whether a kernel loads from one of its parameters what it may later store to one."""
    loads = _accesses(file, function, CUTILE.loads, names)
    stores = _accesses(file, function, (f"{CT}store", f"{CT}scatter"), names)
    return any(
        file.source.line(load) <= file.source.line(store)
        and not are_alternatives(file.source, load, store)
        for load in loads
        for store in stores
    )


def _accesses(
    file: KernelFile, function: Function, called: Collection[str], names: list[str]
) -> list[cst.Call]:
    """The calls of some functions of cuda.tile, or of the same methods of a view, on arrays."""
    methods = {name.removeprefix(CT) for name in called}
    found = []
    for call in file.inside(function, cst.Call):
        array: cst.BaseExpression | None = None
        if file.called(call) in called:
            array = call.args[0].value if call.args else None
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value in methods:
            array = viewed(file, call.func.value)
        if isinstance(array, cst.Name) and array.value in names:
            found.append(call)
    return found


def viewed(file: KernelFile, expression: cst.BaseExpression) -> cst.BaseExpression | None:
    """The array of which an expression is a tiled view."""
    match file.source.resolve(expression):
        case cst.Call(func=cst.Attribute(value=array, attr=cst.Name(value="tiled_view"))):
            return array
    return None


def _tensor(file: KernelFile, expression: cst.BaseExpression, deep: int = 0) -> str | None:
    """The caller's tensor that an argument is, or is all of in another shape: a parameter of a
    function that Python runs."""
    value = file.source.resolve(expression)
    if deep > DEEP:
        return None
    match value:
        case cst.Call(func=cst.Attribute(attr=cst.Name(value=method))) if method in ALIASES:
            owner = value.func.value if isinstance(value.func, cst.Attribute) else None
            if file.called(value).startswith("torch."):
                owner = next(iter(positional(value)), None)
            return _tensor(file, owner, deep + 1) if owner is not None else None
        case cst.Attribute(value=owner, attr=cst.Name(value=attribute)) if attribute in TURNED:
            return _tensor(file, owner, deep + 1)
        case cst.Name():
            assignments = file.source.assignments(value)
            is_parameter = len(assignments) == 1 and isinstance(assignments[0].node, cst.Param)
            return value.value if is_parameter else None
    return None


@check(
    "CT405",
    "warm-l2",
    Severity.NOTE,
    mend="leave `flush_l2` at its default, unless the operation always follows one that has just "
    "written its input",
    source=f"{GUIDE}, pitfall 3. `exhaustive_search` of cuda-tile 1.7 runs each config three times "
    "before it measures, so nothing else of that pitfall is left to the user",
    bad=KERNEL
    + """
def run(x, y, stream):
    return ct.tune.exhaustive_search(
        [1, 2], stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
        flush_l2=False,  # <-
    )
""",
    good=KERNEL
    + """
def run(x, y, stream):
    return ct.tune.exhaustive_search(
        [1, 2], stream, lambda n: (1,), scale, lambda n: (x, torch.empty_like(y)),
    )
""",
)
def warm_l2(file: KernelFile) -> Iterator[Found]:
    """With its input in the L2 cache a kernel looks faster than in use, and another config may be
    the best."""
    for call, _ in searches(file):
        flushed = keyword(call, "flush_l2")
        if isinstance(flushed, cst.Name) and flushed.value == "False":
            yield flushed, "the search times every config with its input in the L2 cache"
