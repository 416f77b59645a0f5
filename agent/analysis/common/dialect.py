"""The names of a kernel language, as data; how its kernels and launches are found.

A `Dialect` holds fully qualified names only. Whoever asks what a kernel does with a tile (the
classification here, the playbook's tile sizes) asks in these terms and works for both languages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelFunction
from agent.analysis.common.possible_functions import possible_functions
from agent.syntax import Function, Source, argument, descendants, positional

SHAPING = frozenset({"astype", "broadcast_to", "cast", "expand_dims", "reshape", "to", "view"})
"""Functions and methods of both languages that give the same numbers."""
MODULE = "<module>"
"""Where a launch stands that is in no function."""


@dataclass(frozen=True)
class ArgumentSlot:
    """Where a call takes one of its values."""

    position: int
    keyword: str

    def of(self, call: cst.Call) -> cst.BaseExpression | None:
        """The value that a call passes."""
        return argument(call, self.position, self.keyword)


@dataclass(frozen=True)
class Launch:
    """One place that launches a kernel."""

    node: cst.Call
    kernel: Function
    function: Function | None
    """The function it stands in; None at the level of the module."""
    grid: cst.BaseExpression
    arguments: Mapping[str, cst.BaseExpression]
    """Parameter of the kernel -> the value it is given, as far as the source shows."""
    hints: Mapping[str, cst.BaseExpression]
    """Compiler options given at the launch."""
    complete: bool
    """How many arguments a `*` stands for is known, and so what gives each parameter."""
    hidden: frozenset[str] = frozenset()
    """The parameters that a `*` gives, and those that a `**` may give, since nothing else does;
    what, the source does not show."""
    options_shown: bool = True
    """No `**` may give compiler options beside the hints."""
    shared_with: tuple[Function, ...] = ()
    """The other kernels of which it may be the launch: what changes here changes for them, too."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of the file with everything that launches it."""

    function: Function
    decorator: cst.Decorator
    constants: tuple[str, ...]
    launches: tuple[Launch, ...]

    @property
    def name(self) -> str:
        """The function's dotted name."""
        return self.function.name


class Dialect(ABC):
    """A kernel language."""

    decorator: ClassVar[str]
    constant: ClassVar[str]
    """The annotation of a parameter fixed at compile time."""
    loads: ClassVar[Collection[str]]
    stores: ClassVar[Mapping[str, ArgumentSlot]]
    """What writes memory -> the value it writes."""
    dots: ClassVar[Collection[str]]
    shapes: ClassVar[Mapping[str, ArgumentSlot]]
    shape_methods: ClassVar[Mapping[str, ArgumentSlot]] = {}
    """Methods of a tile that take a shape, beside the functions that `shapes` names."""
    """What takes a tile shape -> where."""
    shape_queries: ClassVar[Mapping[str, tuple[ArgumentSlot, ArgumentSlot]]]
    """What counts tiles along an axis -> its axis and its tile shape."""
    accumulators: ClassVar[Collection[str]]
    """What makes a tile out of nothing: the accumulator of a dot."""
    iotas: ClassVar[Collection[str]]
    """What counts 0, 1, 2, ... along a tile."""
    cdivs: ClassVar[Collection[str]]
    ranges: ClassVar[Collection[str]]
    reductions: ClassVar[Collection[str]]
    permutations: ClassVar[Mapping[str, ArgumentSlot]] = {}
    """What moves a tile's elements along an axis -> that axis; none, and it may be any."""
    random: ClassVar[Collection[str]] = ()
    """What makes a random number of a seed and a place."""
    program_counts: ClassVar[Collection[str]] = ()
    """What says how many programs there are along an axis of the grid."""
    choices: ClassVar[Collection[str]] = ("builtins.min", "builtins.max")
    """Functions that give one of their arguments."""
    arithmetic: ClassVar[Collection[str]]
    """Calls that count as one operation an element."""
    program_ids: ClassVar[Collection[str]]
    indexed_loads: ClassVar[Mapping[str, tuple[ArgumentSlot, ArgumentSlot]]] = {}
    """What loads a tile by its number along each axis -> those numbers and its shape."""
    indexed_stores: ClassVar[Collection[str]] = ()
    """What stores a tile so."""
    scatters: ClassVar[Collection[str]] = ()
    """What stores each element at a place of its own, and has no mask unless it is given one."""
    methods: ClassVar[Mapping[str, str]] = {}
    """Method of a descriptor -> the function it is the same as."""

    @abstractmethod
    def guarded(self, source: Source, access: cst.Call, *, in_loop: bool) -> bool:
        """Whether a load or store is right for a tile that reaches past the array's end.

        `in_loop`: the tile's extent is stepped over by a loop, which adds up what it loads.
        """

    @abstractmethod
    def padding(self, source: Source, load: cst.Call) -> cst.BaseExpression | float:
        """What a load has for elements past the array's end."""

    def unchecked(
        self,
        source: Source,  # noqa: ARG002
        body: cst.BaseSuite,  # noqa: ARG002
        access: cst.Call,  # noqa: ARG002
    ) -> tuple[cst.BaseExpression, ...]:
        """The sizes of a tile, along the axes whose end its access is told not to check."""
        return ()

    def mask(self, source: Source, access: cst.Call) -> cst.BaseExpression | None:  # noqa: ARG002
        """The condition under which a load or store touches each of its elements.

        None where it has none, or is told in another way where the array ends.
        """
        return None

    def reduces_elsewhere(
        self,
        source: Source,  # noqa: ARG002
        body: cst.BaseSuite,  # noqa: ARG002
        sizes: frozenset[str],  # noqa: ARG002
    ) -> bool:
        """Whether no reduction runs along tiles of these sizes, as how tiles are laid out tells."""
        return False

    def product_of_block(
        self,
        source: Source,  # noqa: ARG002
        body: cst.BaseSuite,  # noqa: ARG002
        sizes: frozenset[str],  # noqa: ARG002
    ) -> cst.Call | None:
        """A product of matrices that puts together elements of one tile of these sizes."""
        return None

    def autotuned(self, source: Source, function: Function) -> bool:  # noqa: ARG002
        """Whether a tuner above a kernel chooses constants that its launches do not give."""
        return False

    def needs_one(
        self,
        source: Source,  # noqa: ARG002
        kernel: Kernel,  # noqa: ARG002
        sizes: frozenset[str],  # noqa: ARG002
    ) -> tuple[cst.CSTNode, str] | None:
        """Where a tile of these sizes meets another size along one dimension, and which."""
        return None

    def masks_edges(self, source: Source, line: cst.If) -> bool:  # noqa: ARG002
        """Whether an `if` masks tiles that are whole where it does not hold, of whatever size."""
        return False

    @abstractmethod
    def named(self, source: Source, call: cst.Call) -> cst.BaseExpression | None:
        """What a call launches, as it is written there; None where it is no launch."""

    @abstractmethod
    def launch_of(self, source: Source, call: cst.Call, kernel: Function) -> Launch:
        """A call as the launch of a kernel of this file."""

    @abstractmethod
    def accepts(self, launch: Launch) -> bool:
        """Whether a kernel takes what a call gives it: one that does not is not launched there."""

    def launches(self, source: Source, call: cst.Call) -> tuple[Launch, ...]:
        """What a call launches, once for each kernel of this file that it may launch."""
        named = self.named(source, call)
        if named is None:
            return ()
        kernel = source.function_of(named)
        if kernel is not None or not source.follows:
            known = kernel is not None and source.decorator(kernel, self.decorator) is not None
            return (self.launch_of(source, call, kernel),) if kernel and known else ()
        found = possible_functions(source, named)
        launches = [self.launch_of(source, call, each) for each in found]
        if not all(source.decorator(f, self.decorator) for f in found) or not all(
            self.accepts(each) and {*each.hints} == {*launches[0].hints} for each in launches
        ):
            return ()
        return tuple(
            replace(launch, shared_with=tuple(f for f in found if f is not launch.kernel))
            for launch in launches
        )

    def kernels(self, source: Source) -> tuple[Kernel, ...]:
        """The kernels of the file, in its order."""
        return _kernels(self, source)

    def launched(self, source: Source) -> tuple[Kernel, ...]:
        """The kernels that this file runs: launched in plain sight, or handed on by host code.

        All of them when it runs none, but for those that are helpers of others.
        """
        kernels = self.kernels(source)
        run = tuple(k for k in kernels if k.launches or self.holders(source, k))
        return run or tuple(k for k in kernels if not self._helps(source, k)) or kernels

    def _helps(self, source: Source, kernel: Kernel) -> bool:
        """Whether another kernel mentions it: calls it, or hands it to a scan."""
        return bool(self._called_by(source, kernel))

    def _called_by(self, source: Source, kernel: Kernel) -> tuple[str, ...]:
        """The other kernels that mention it."""
        others = {k.function.node for k in self.kernels(source)} - {kernel.function.node}
        around = (source.enclosing(name) for name in source.mentions(kernel.function))
        names = (f.name for f in around if f is not None and f.node in others)
        return tuple(dict.fromkeys(names))

    def chosen(self, source: Source) -> tuple[Kernel, ...]:
        """The launched kernels that an optimization is to change.

        Those that perf tests were seen to launch, the most expensive first: what nobody times would
        be changed for nothing. All of them where that is not known.
        """
        launched = {kernel.name: kernel for kernel in self.launched(source)}
        timed = tuple(launched[name] for name in source.timed if name in launched)
        return timed or tuple(self.launched(source))

    def holders(self, source: Source, kernel: Kernel) -> tuple[str, ...]:
        """The functions that mention the kernel and are not kernels: a tuner's, a cache's."""
        device = {k.function.node for k in self.kernels(source)}
        found = []
        for name in source.mentions(kernel.function):
            around = source.enclosing(name)
            if around is None or around.node not in device:
                found.append(around.name if around else MODULE)
        return tuple(dict.fromkeys(found))

    def called(self, source: Source, call: cst.Call) -> str | None:
        """The dotted name of what a call calls; methods of descriptors by their function."""
        named = source.name(call.func)
        if isinstance(call.func, cst.Attribute) and not self.owns(named):
            return self.methods.get(call.func.attr.value, named)
        return named

    def stored(self, source: Source, call: cst.Call) -> cst.BaseExpression | None:
        """The value that a call writes to memory, if it writes."""
        called = self.called(source, call)
        if called is None or called not in self.stores:
            return None
        where = self.stores[called]
        is_method = not self.owns(source.name(call.func))
        return argument(call, where.position - is_method, where.keyword)

    def owns(self, name: str | None) -> bool:
        """Whether a dotted name belongs to the language."""
        return name is not None and name.startswith(self.decorator.rpartition(".")[0] + ".")

    def find(self, source: Source, node: cst.CSTNode, names: Collection[str]) -> Iterator[cst.Call]:
        """The calls below a node to any of those names, in the order of the file."""
        return (c for c in descendants(node, cst.Call) if self.called(source, c) in names)

    def has(self, source: Source, node: cst.CSTNode, names: Collection[str]) -> bool:
        """Whether there is such a call."""
        return any(True for _ in self.find(source, node, names))

    def reached(self, source: Source, kernel: Kernel) -> tuple[Function, ...]:
        """The kernel's function and the functions of the file that it calls, however deep."""
        called = (each for each in callees(source, kernel.function) if each is not kernel.function)
        return (kernel.function, *called)

    def has_dot(self, source: Source, kernel: Kernel) -> bool:
        """Whether the kernel multiplies tiles, itself or in a helper."""
        return any(True for f in self.reached(source, kernel) for _ in self.products(source, f))

    def products(
        self, source: Source, function: Function
    ) -> Iterator[cst.Call | cst.BinaryOperation]:
        """Where a function multiplies tiles: by a call, or as `a @ b`."""
        yield from self.find(source, function.node.body, self.dots)
        for operation in descendants(function.node.body, cst.BinaryOperation):
            if isinstance(operation.operator, cst.MatrixMultiply):
                yield operation

    def sums_products(self, source: Source, kernel: Kernel) -> bool:
        """Whether the kernel multiplies tiles in a loop, by itself or by helpers."""
        functions = self.reached(source, kernel)
        multiplying = {
            function.name
            for function in functions
            for each in (function, *callees(source, function))
            for _ in self.products(source, each)
        }
        for function in functions:
            found: list[cst.CSTNode] = [*self.products(source, function)]
            for call in descendants(function.node.body, cst.Call):
                helper = source.function_of(call.func)
                if helper is not None and helper.name in multiplying:
                    found.append(call)
            if any(isinstance(a, cst.For) for node in found for a in source.ancestors(node)):
                return True
        return False

    def functions(self, source: Source) -> tuple[KernelFunction, ...]:
        """The kernels as the loop knows them."""
        return tuple(
            KernelFunction(
                name=kernel.name,
                line=source.line(kernel.function.node),
                parameters=tuple(p.name.value for p in kernel.function.parameters),
                constants=kernel.constants,
                launched_from=tuple(dict.fromkeys(where(x) for x in kernel.launches))
                or self.holders(source, kernel),
                in_sight=bool(kernel.launches),
                called_by=self._called_by(source, kernel),
            )
            for kernel in self.kernels(source)
        )


@lru_cache(maxsize=64)
def _kernels(dialect: Dialect, source: Source) -> tuple[Kernel, ...]:
    decorated = [
        (function, decorator)
        for function in source.functions
        if function.node not in source.replaced
        and (decorator := source.decorator(function, dialect.decorator)) is not None
    ]
    if not decorated:  # as in a file of another language, whose calls need not be resolved
        return ()
    launches = [launch for call in source.calls for launch in dialect.launches(source, call)]
    return tuple(
        Kernel(
            function,
            decorator,
            tuple(
                p.name.value
                for p in function.parameters
                if p.annotation and source.name(p.annotation.annotation) == dialect.constant
            ),
            tuple(launch for launch in launches if launch.kernel is function),
        )
        for function, decorator in decorated
    )


def callees(source: Source, function: Function) -> tuple[Function, ...]:
    """The functions of the file that a function calls, however deep; itself where it does so."""
    found: list[Function] = []
    callers = [function]
    for caller in callers:
        for call in descendants(caller.node.body, cst.Call):
            helper = source.function_of(call.func)
            if helper is not None and helper not in found:
                found.append(helper)
                callers.append(helper)
    return tuple(found)


def given_to(helper: Function, call: cst.Call) -> dict[str, cst.BaseExpression]:
    """Parameter of a helper -> what a call gives it, by its place or its name."""
    names = [p.name.value for p in helper.parameters]
    by_name = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
    return dict(zip(names, positional(call), strict=False)) | by_name


def where(launch: Launch) -> str:
    """The function a launch stands in, as a name."""
    return launch.function.name if launch.function else MODULE
