"""Writes configs for Triton's Tile IR backend into a file, behind a gate that others do not pass.

Stock Triton does not ignore the hint `occupancy`: `triton.Config(..., occupancy=2)` is a TypeError,
and as a launch option it is a KeyError that its autotuner does not catch. So the written function
adds its variants only where ENABLE_TILE is 1, the backend is installed and the GPU is a Blackwell;
everywhere else a kernel gets the configs that it had, or, where it had none, stays as it was.

The hints a kind of kernel is given are those of TensorRT-LLM's kernel-tileir-optimization skill,
less its warps, which Tile IR ignores. Its guard for persistent kernels is left out, and two CTAs
with it: the hook divides NUM_SMS in a copy of the arguments that the launch never sees (Triton
3.9's Autotuner.run).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.kinds import KernelKind, Kind
from agent.analysis.triton.operations import ATOMIC, LOADS, Operations, entry_kernels, operations_of
from agent.syntax import Source, argument, descendants, names_in
from agent.tileir.compatibility import Obstacle, stops

CONFIGS = "tile_ir_configs"
AUTOTUNE = "tile_ir_autotune"
AUTOTUNER = "triton.autotune"
HINTS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "dot-related": {"occupancy": (1, 2, 4), "num_stages": (4, 6), "num_ctas": (1, 2)},
    "norm-like": {"occupancy": (2, 4)},
    "reduction": {"occupancy": (2, 4)},
    "element-wise": {"occupancy": (1, 2, 4, 16), "num_stages": (2, 3, 4)},
}
LARGE_TILES = ((256, 256), (256, 128))
"""M and N that are tried for a dot, as far as its configs vary them already."""
LARGER = "and tiles of"
"""In what is told of a kernel that tries them."""

GATE = f'''\
def {CONFIGS}(configs, occupancy, num_stages=(None,), num_ctas=(1,), tiles=()):
    """The configs and, where Triton's Tile IR backend compiles, variants of them with its hints.

    Other backends know no `occupancy`: they get the configs as they are. Tile IR chooses the warps
    itself, so that configs which differ in nothing else count once.
    """
    import copy
    import itertools
    import os

    import torch
    from triton.backends import backends

    configs = list(configs)
    if os.environ.get("ENABLE_TILE") != "1" or "tileir" not in backends:
        return configs
    major = torch.cuda.get_device_capability()[0] if torch.cuda.is_available() else 0
    if major < 10:  # before Blackwell
        return configs
    variants = {{}}
    sizes = [(config, config.kwargs) for config in configs]
    sizes += [(configs[0], {{**configs[0].kwargs, **tile}}) for tile in tiles]
    for (config, kwargs), *hints in itertools.product(sizes, occupancy, num_stages, num_ctas):
        blocks, stages, ctas = hints
        if ctas > 1 and major != 10:  # only data-center Blackwell pairs its SMs
            continue
        variant = copy.copy(config)
        variant.kwargs = {{**kwargs, "occupancy": blocks}}
        variant.num_stages = stages or config.num_stages
        variant.num_ctas = ctas
        name = (tuple(sorted(variant.kwargs.items())), variant.num_stages, ctas)
        variants.setdefault(name, variant)
    return [*configs, *variants.values()]
'''
DECORATOR = f'''\
def {AUTOTUNE}(key, **hints):
    """Tune the hints of Triton's Tile IR backend; where another compiles, change nothing."""
    import triton

    launched = triton.Config({{}}, num_warps=None, num_stages=None)
    configs = {CONFIGS}([launched], **hints)
    if len(configs) == 1:
        return lambda kernel: kernel
    return triton.autotune(configs=configs, key=key)
'''


@dataclass(frozen=True)
class PreparedConfigs:
    """A file with configs for Tile IR, as far as its kernels can have them."""

    text: str
    """The same as before where no kernel can."""
    changes: tuple[str, ...]
    refusals: Mapping[str, str]
    """Kernel -> why it got none."""
    changed: tuple[tuple[str, str], ...] = ()
    """Each kernel that got some, and which: what `changes` tells with its line."""


class NoConfigs(Exception):
    """A kernel gets no configs; the message says why in one line."""


def prepare(
    source: Source,
    kinds: tuple[KernelKind, ...],
    findings: tuple[Obstacle, ...],
    *,
    free: Collection[str] = (),
) -> PreparedConfigs:
    """Write the configs for every kernel that can have them.

    Args:
        source: the file.
        kinds: those of its kernels.
        findings: what is in their way.
        free: the kernels that were shown to take any tile, whatever their configs vary.
    """
    changed: list[tuple[Kernel, str]] = []
    refusals: dict[str, str] = {}
    edits: dict[Any, Callable[[Any], cst.CSTNode]] = {}
    by_name = {found.kernel: found.kind for found in kinds}
    for kernel in entry_kernels(source):
        kind = by_name[kernel.name]
        try:
            _refuse(source, kernel, kind, findings)
            hints = _hints(source, kernel, kind)
            tuned = source.decorator(kernel.function, AUTOTUNER)
            if tuned is not None:
                node, edit, change = _widened(
                    source, kernel, kind, tuned, hints, free=kernel.name in free
                )
            else:
                node, edit, change = _decorated(source, kernel, hints)
        except NoConfigs as reason:
            refusals[kernel.name] = str(reason)
            continue
        edits[node] = edit
        changed.append((kernel, change))
    if not changed:
        return PreparedConfigs(source.text, (), refusals)
    edits[source.module] = _with_functions(source, [kernel for kernel, _ in changed])
    return PreparedConfigs(
        source.rewrite(edits),
        tuple(f"line {source.line(k.function.node)}: {k.name} {text}" for k, text in changed),
        refusals,
        tuple((kernel.name, text) for kernel, text in changed),
    )


def _refuse(source: Source, kernel: Kernel, kind: Kind, findings: tuple[Obstacle, ...]) -> None:
    if in_the_way := stops(findings, kernel.name):
        first = in_the_way[0]
        raise NoConfigs(f"line {first.line}: {first.text}")
    if kind is Kind.UNKNOWN:
        raise NoConfigs(
            "what its stored values are computed from cannot be seen, so that no hint can be chosen"
        )
    for decorator in kernel.function.node.decorators:
        for name in descendants(decorator, cst.Name):
            if name.value in (CONFIGS, AUTOTUNE):
                raise NoConfigs(f"line {source.line(name)}: it has its Tile IR configs already")
        if "occupancy" in source.code(decorator):
            raise NoConfigs(f"line {source.line(decorator)}: its decorator sets occupancy already")
    if "occupancy" in {p.name.value for p in kernel.function.parameters}:
        raise NoConfigs("it takes occupancy as a parameter of its own")
    for launch in kernel.launches:
        if given := {"occupancy", "num_ctas"} & launch.hints.keys():
            line = source.line(launch.node)
            raise NoConfigs(f"the launch at line {line} sets {', '.join(sorted(given))} already")
    operations = operations_of(source, kernel)
    if any((operation or "").startswith(ATOMIC) for _, _, operation in operations.calls):
        raise NoConfigs("tuning runs it many times, and its atomics would add up")
    for function in source.functions:
        if function.name in (CONFIGS, AUTOTUNE) and not _is_ours(source, function.node):
            raise NoConfigs(f"the file has another function called {function.name}")


def _is_ours(source: Source, node: cst.FunctionDef) -> bool:
    code = source.module.code_for_node(node).replace("\r\n", "\n").strip()
    return code in (GATE.strip(), DECORATOR.strip())


def is_persistent(operations: Operations) -> bool:
    """Whether the grid counts on one thread block a multiprocessor, so that none may be paired."""
    parameters = operations.kernel.function.parameters
    return "NUM_SMS" in {p.name.value for p in parameters} or any(
        True for _ in operations.find(("num_programs",))
    )


def _hints(source: Source, kernel: Kernel, kind: Kind) -> dict[str, tuple[int, ...]]:
    """The hints of its family, less those that would do harm here."""
    hints = dict(HINTS[kind.family])
    if is_persistent(operations_of(source, kernel)):
        hints.pop("num_ctas", None)  # its grid counts on one CTA an SM
    if any("num_stages" in launch.hints for launch in kernel.launches):
        hints.pop("num_stages", None)  # a config would set it a second time
    return hints


Edit = tuple[cst.CSTNode, Callable[[Any], cst.CSTNode], str]


def _widened(
    source: Source,
    kernel: Kernel,
    kind: Kind,
    decorator: cst.Decorator,
    hints: Mapping[str, tuple[int, ...]],
    *,
    free: bool,
) -> Edit:
    """`configs=X` -> `configs=tile_ir_configs(X, ...)`."""
    call = cst.ensure_type(decorator.decorator, cst.Call)
    configs = argument(call, 0, "configs")
    if configs is None:
        raise NoConfigs(f"line {source.line(decorator)}: its configs are hidden behind a `*`")
    tiles = _large_tiles(source, kernel, configs, free=free) if kind is Kind.DOT else ()
    arguments = [*_written(hints), *([f"tiles={tiles!r}"] if tiles else [])]

    def edit(value: cst.BaseExpression) -> cst.CSTNode:
        template = cst.ensure_type(
            cst.parse_expression(f"{CONFIGS}(X, {', '.join(arguments)})"), cst.Call
        )
        return template.with_changes(
            args=[template.args[0].with_changes(value=value), *template.args[1:]]
        )

    more = f", {LARGER} {' and '.join(_sizes(tiles))}" if tiles else ""
    return configs, edit, f"also tunes {_told(hints)}{more}, where Tile IR compiles"


def _decorated(source: Source, kernel: Kernel, hints: Mapping[str, tuple[int, ...]]) -> Edit:
    """`@triton.jit` -> `@tile_ir_autotune(...)` above it."""
    launches = {launch.node for launch in kernel.launches}
    for name in source.mentions(kernel.function):
        if not launches & set(source.ancestors(name)):
            raise NoConfigs(f"line {source.line(name)} does more with it than launch it")
    for decorator in kernel.function.node.decorators:
        expression = decorator.decorator
        named = source.name(expression.func if isinstance(expression, cst.Call) else expression)
        if named not in (TRITON.decorator, "triton.heuristics"):
            raise NoConfigs(
                f"line {source.line(decorator)}: `{source.code(expression)}` is above it"
            )
    key = ", ".join(f'"{name}"' for name in _key(source, kernel))
    text = f"{AUTOTUNE}(key=[{key}], {', '.join(_written(hints))})"

    def edit(function: cst.FunctionDef) -> cst.CSTNode:
        first, *others = function.decorators
        added = cst.Decorator(cst.parse_expression(text), leading_lines=first.leading_lines)
        return function.with_changes(
            decorators=[added, first.with_changes(leading_lines=[]), *others]
        )

    return kernel.function.node, edit, f"tunes {_told(hints)}, where Tile IR compiles"


def _key(source: Source, kernel: Kernel) -> list[str]:
    """The parameters whose change asks for another config: bounds of masks and of loops."""
    operations = operations_of(source, kernel)
    pointers: set[str] = set()
    for function, call in operations.find(LOADS):
        pointers |= operations.roots(function, operations.address(call)[0])
    for store in operations.stores:
        pointers |= operations.roots(store.function, store.address[0])
    names = [p.name.value for p in kernel.function.parameters]
    bounds: set[str] = set()
    for node in descendants(kernel.function.node.body, cst.Comparison):
        bounds |= names_in(node)
    for loop in descendants(kernel.function.node.body, cst.For):
        bounds |= names_in(loop.iter)
    found = [n for n in names if n in bounds - pointers and n not in kernel.constants]
    return found or [n for n in names if n not in pointers and n not in kernel.constants]


def _large_tiles(
    source: Source, kernel: Kernel, configs: cst.BaseExpression, *, free: bool
) -> tuple[dict[str, int], ...]:
    """Larger M and N for a dot, each where the configs vary it, so that the kernel takes any."""
    edges: list[str] = []
    for call in TRITON.find(source, kernel.function.node.body, TRITON.accumulators):
        shape = TRITON.shapes[TRITON.called(source, call) or ""].of(call)
        if isinstance(shape, cst.Tuple | cst.List) and len(shape.elements) == 2:
            edges = [source.code(e.value) for e in shape.elements]
            break
    if len(set(edges)) != 2:
        return ()
    values: dict[str, set[str]] = {edge: set() for edge in edges if edge in kernel.constants}
    for config in descendants(source.resolve(configs), cst.Dict):
        for element in config.elements:
            if isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString):
                name = str(element.key.raw_value)
                if name in values:
                    values[name].add(source.code(element.value))
    varied = [edge for edge, found in values.items() if len(found) > 1 or (free and found)]
    tiles: list[dict[str, int]] = []
    for sizes in LARGE_TILES:
        tile = {e: size for e, size in zip(edges, sizes, strict=True) if e in varied}
        if any(str(size) not in values[e] for e, size in tile.items()) and tile not in tiles:
            tiles.append(tile)
    return tuple(tiles)


def _with_functions(source: Source, kernels: list[Kernel]) -> Callable[[cst.Module], cst.CSTNode]:
    """Write the functions that the decorators call above the first of the kernels."""
    nodes = {kernel.function.node for kernel in kernels}
    place = next(
        n
        for n, statement in enumerate(source.module.body)
        if any(node in nodes for node in descendants(statement, cst.FunctionDef))
    )
    there = {function.name for function in source.functions}
    plain = any(source.decorator(k.function, AUTOTUNER) is None for k in kernels)
    texts = [
        text.replace("\n", source.module.default_newline)
        for name, text, needed in ((CONFIGS, GATE, True), (AUTOTUNE, DECORATOR, plain))
        if needed and name not in there
    ]

    def edit(module: cst.Module) -> cst.CSTNode:
        empty = [cst.EmptyLine(indent=False)] * 2
        added = [cst.parse_statement(text).with_changes(leading_lines=empty) for text in texts]
        body = list(module.body)
        if added and place == 0:
            added[0] = added[0].with_changes(leading_lines=[])
        first = body[place]
        if not any(not line.comment for line in first.leading_lines[:2]):
            body[place] = first.with_changes(leading_lines=[*empty, *first.leading_lines])
        return module.with_changes(body=[*body[:place], *added, *body[place:]])

    return edit


def _written(hints: Mapping[str, tuple[int, ...]]) -> list[str]:
    return [f"{name}={values!r}" for name, values in hints.items()]


def _told(hints: Mapping[str, tuple[int, ...]]) -> str:
    return "; ".join(f"{name} {', '.join(map(str, v))}" for name, v in hints.items())


def _sizes(tiles: tuple[dict[str, int], ...]) -> list[str]:
    return [
        " x ".join(map(str, tile.values()))
        if len(tile) > 1
        else " ".join(f"{size} along {name}" for name, size in tile.items())
        for tile in tiles
    ]
