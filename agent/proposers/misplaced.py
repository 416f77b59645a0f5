"""What a change brings into a kernel file and what has no place there.

Only what is new counts: `before` may have had its reasons. Nothing is refused for it: a list of
names is never complete, and has honest exceptions. It tells a person where to look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from agent.proposers.interface import Outline
from agent.syntax import Source, assigned, descendants, positional


def _table(reason: str, names: str, under: str = "") -> dict[str, str]:
    return {f"{under}{name}": reason for name in names.split()}


IMPORTABLE = frozenset(
    {
        "__future__", "abc", "collections", "cuda.tile", "dataclasses", "enum", "functools",
        "itertools", "math", "numbers", "operator", "os", "torch", "triton", "types", "typing",
        "typing_extensions",
    }
)  # fmt: skip
"""What a kernel file may begin to import, and everything below it. Of `os` it may use one thing."""

_LIBRARY = "computes outside the kernel: the kernel has to do the work"
_STREAM = "has no place beside a launch: the tests order and time their own stream"
_PROCESS = "reaches outside the kernel's own work"
_GLOBAL = "changes what other code of the process sees"

FORBIDDEN = {
    **_table(
        _LIBRARY,
        "_C _dynamo _inductor addbmm addmm addmv baddbmm bmm celu chain_matmul compile conv1d "
        "conv2d conv3d dot einsum elu embedding fft gelu group_norm inner jit kron layer_norm "
        "leaky_relu linalg log_softmax logsumexp matmul mm mv nn ops prelu relu relu_ rms_norm "
        "selu sigmoid sigmoid_ silu softmax sparse special tanh tanh_ tensordot vdot",
        "torch.",
    ),
    **_table(
        _STREAM,
        "CUDAGraph Event ExternalStream MemPool Stream default_stream graph graphs "
        "make_graphed_callables set_stream stream streams synchronize",
        "torch.cuda.",
    ),
    **_table(
        _GLOBAL,
        "Tensor._make_subclass cuda.manual_seed cuda.memory cuda.set_device manual_seed overrides "
        "seed set_default_device set_default_dtype set_float32_matmul_precision set_grad_enabled "
        "set_num_threads set_rng_state use_deterministic_algorithms utils._python_dispatch",
        "torch.",
    ),
    **_table(
        _PROCESS,
        "distributed load multiprocessing profiler save testing utils.cpp_extension",
        "torch.",
    ),
    **_table(_PROCESS, "triton.testing"),
    **_table(
        _PROCESS,
        "__import__ breakpoint compile delattr eval exec exit globals id input open quit setattr "
        "vars",
        "builtins.",
    ),
    **_table(
        _PROCESS,
        "_pytest atexit ctypes gc importlib inspect io marshal multiprocessing os pathlib "
        "pickle pytest random shutil signal socket subprocess sys tempfile threading time "
        "traceback unittest weakref",
    ),
}
"""Dotted name, or the beginning of one -> why it has no place in a kernel file."""

ATTRIBUTES = {
    **_table(_STREAM, "elapsed_time record_stream synchronize wait_event wait_stream"),
    **_table(
        _PROCESS,
        "__builtins__ __closure__ __code__ __defaults__ __globals__ __kwdefaults__ __subclasses__ "
        "f_back f_globals f_locals gi_frame tb_frame",
    ),
    **_table(
        _LIBRARY,
        "addmm baddbmm bmm log_softmax logsumexp matmul mm relu relu_ sigmoid softmax tanh",
    ),
}
"""Attribute of any value in host code -> why."""


IMPORT = "import"


@dataclass(frozen=True)
class Use:
    """Something that may be out of place. Two uses with one key are the same use."""

    key: tuple[str, str]
    line: int
    what: str

    @property
    def problem(self) -> str:
        """The line that says so."""
        return f"line {self.line}: {self.what}"


def misplaced(before: Source, after: Source) -> tuple[str, ...]:
    """What `after` does that `before` did not and that has no place in a kernel file."""
    known = {use.key for use in _uses(before)}
    new = [use for use in _uses(after) if use.key not in known]
    imported = {name for kind, name in (use.key for use in new) if kind == IMPORT}
    found: dict[tuple[str, str], str] = {}
    for use in new:
        kind, name = use.key
        if kind == IMPORT or name not in imported:  # one line for an import and all its uses
            found.setdefault(use.key, use.problem)
    return tuple(found.values())


def _uses(source: Source) -> Iterator[Use]:
    outline = Outline(source)
    yield from _imports(source)
    yield from _names(source, outline)
    yield from _patches(source)
    yield from _subclasses(source)
    yield from _pointer_keys(source)
    yield from _memory(source, outline)
    yield from _fallbacks(source, outline)


def _imports(source: Source) -> Iterator[Use]:
    for statement in descendants(source.module, cst.Import):
        for alias in statement.names:
            yield from _imported(source, statement, alias.evaluated_name)
    for origin in descendants(source.module, cst.ImportFrom):
        module = source.code(origin.module) if origin.module is not None else ""
        yield from _imported(source, origin, "." * len(origin.relative) + module)


def _imported(source: Source, node: cst.CSTNode, module: str) -> Iterator[Use]:
    if not any(prefix in IMPORTABLE for prefix in _prefixes(module)):
        what = f"imports `{module}`: a kernel file needs its kernel language, torch and math only"
        yield Use((IMPORT, module.partition(".")[0] or module), source.line(node), what)


def _names(source: Source, outline: Outline) -> Iterator[Use]:
    """Names that stand for something outside the file, and telling attributes of any value."""
    attributes = descendants(source.module, cst.Attribute)  # before the names in them
    for node in (*attributes, *descendants(source.module, cst.Name)):
        place = _place(source, node)
        named = imported_name(source, node)
        if named is not None:
            prefix = next((p for p in _prefixes(named) if p in FORBIDDEN), None)
            if prefix is not None and not _is_tuning_switch(source, node):
                what = f"`{named.removeprefix('builtins.')}` {FORBIDDEN[prefix]}"
                yield Use((place, prefix), source.line(node), what)
        elif isinstance(node, cst.Attribute) and place not in outline.device:
            attribute = node.attr.value
            if attribute in ATTRIBUTES:
                what = f"`.{attribute}` {ATTRIBUTES[attribute]}"
                yield Use((place, f".{attribute}"), source.line(node), what)
    for product in descendants(source.module, cst.BinaryOperation):
        place = _place(source, product)
        if isinstance(product.operator, cst.MatrixMultiply) and place not in outline.device:
            yield Use((place, "@"), source.line(product), f"`@` {_LIBRARY}")


def _is_tuning_switch(source: Source, node: cst.CSTNode) -> bool:
    """A part of `os.environ.get("DISABLE_AUTOTUNE", ...)`, by which TileGym turns tuning off."""
    call = next((a for a in source.ancestors(node) if isinstance(a, cst.Call)), None)
    if call is None or source.name(call.func) != "os.environ.get":
        return False
    match positional(call):
        case (cst.SimpleString() as variable, *_):
            return variable.raw_value == "DISABLE_AUTOTUNE"
    return False


def imported_name(source: Source, node: cst.CSTNode) -> str | None:
    """The dotted name of something imported or built in; None for what the file defines."""
    if isinstance(node, cst.Attribute):
        owner = imported_name(source, node.value)
        return None if owner is None else f"{owner}.{node.attr.value}"
    if not isinstance(node, cst.Name):
        return None
    behind = source.resolve(node)
    if behind is not node:
        return imported_name(source, behind)
    named = source.name(node)
    if named is None or _is_local(source, node):
        return None
    return named


def _is_local(source: Source, name: cst.Name) -> bool:
    """Whether the file gives the name its value; an import beside a fallback counts as import."""
    assignments = source.assignments(name)
    imports = (cst.Import, cst.ImportFrom)
    return bool(assignments) and not any(isinstance(a.node, imports) for a in assignments)


def _patches(source: Source) -> Iterator[Use]:
    """Assignments to attributes of what is imported, and attributes of it that are computed."""
    targets = [target for target, _ in assigned(source.module)]
    targets += [node.target for node in descendants(source.module, cst.Del)]
    for target in targets:
        if isinstance(target, cst.Attribute) and (named := imported_name(source, target)):
            what = f"sets `{named}`, which {_GLOBAL}"
            yield Use((_place(source, target), f"set {named}"), source.line(target), what)
    for call in source.calls:
        values = positional(call)
        if values and source.name(call.func) == "builtins.getattr":
            owner = imported_name(source, values[0])
            if owner is not None:
                what = f"`getattr` of `{owner}`: write the attribute out"
                yield Use((_place(source, call), f"getattr {owner}"), source.line(call), what)


def _subclasses(source: Source) -> Iterator[Use]:
    for node in descendants(source.module, cst.ClassDef):
        if any(imported_name(source, base.value) == "torch.Tensor" for base in node.bases):
            name = node.name.value
            what = f"`{name}` derives from torch.Tensor: results have to be plain tensors"
            yield Use(("tensor", name), source.line(node), what)


def _pointer_keys(source: Source) -> Iterator[Use]:
    """Lookups by the address of a tensor: the allocator gives the same address to other values."""
    for call in source.calls:
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "data_ptr":
            continue
        if any(_is_key(source, node) for node in _carriers(source, call)):
            what = "keys a lookup by `data_ptr()`: another tensor may have that address"
            yield Use((_place(source, call), "data_ptr key"), source.line(call), what)


def _carriers(source: Source, call: cst.Call) -> Iterator[cst.CSTNode]:
    """A call, and where the one name that its value is assigned to is read."""
    yield call
    for around in source.ancestors(call):
        if isinstance(around, cst.Assign):
            for target in (t.target for t in around.targets):
                if isinstance(target, cst.Name):
                    for assignment in source.assignments(target):
                        yield from source.uses(assignment)
        if isinstance(around, cst.BaseStatement):
            return


def _is_key(source: Source, node: cst.CSTNode) -> bool:
    child = node
    for around in source.ancestors(node):
        if isinstance(around, cst.SubscriptElement):
            return True
        if isinstance(around, cst.Comparison):
            return any(isinstance(c.operator, cst.In | cst.NotIn) for c in around.comparisons)
        if isinstance(around, cst.DictElement):
            return child is around.key
        if isinstance(around, cst.Call) and isinstance(around.func, cst.Attribute):
            return around.func.attr.value in ("get", "setdefault", "pop", "add")
        if isinstance(around, cst.BaseStatement):
            return False
        child = around
    return False


def _memory(source: Source, outline: Outline) -> Iterator[Use]:
    """Functions that launch and remember what they returned: tensors hash by their identity."""
    for function in source.functions:
        if function.name.partition(".")[0] not in outline.launchers:
            continue
        for name in ("functools.cache", "functools.lru_cache"):
            if source.decorator(function, name) is not None:
                what = f"`{function.name}` remembers results by the identity of its tensors"
                yield Use((function.name, "cache"), source.line(function.node), what)


def _fallbacks(source: Source, outline: Outline) -> Iterator[Use]:
    """`try` around a launch: what is wrong with the kernel has to show."""
    launching = outline.kernels.keys() | outline.launchers.keys()
    for node in descendants(source.module, cst.Try):
        names = descendants(node.body, cst.Name)
        if node.handlers and any((source.name(n) or "") in launching for n in names):
            what = "`try` around a launch: a launch that fails has to fail"
            yield Use((_place(source, node), "try"), source.line(node), what)


def _place(source: Source, node: cst.CSTNode) -> str:
    """The function at the top of the file in which a node stands; empty outside of any."""
    function = source.enclosing(node)
    return function.name.partition(".")[0] if function else ""


def _prefixes(dotted: str) -> Iterator[str]:
    """'a', 'a.b' and 'a.b.c' of 'a.b.c'."""
    parts = dotted.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))
