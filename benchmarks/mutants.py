"""Mutants: kernels with one small fault each, which ones are taken, and where they come from.

The benchmark's kernels and the examples are the origins. What is taken depends on the seed and on
the sources alone, so that a run that was cut off can go on.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from agent.syntax import Source
from benchmarks.mutation_code import KernelCode, kernel_codes
from benchmarks.mutators import MUTATORS
from benchmarks.spec import HERE, Spec, find

EXAMPLES = HERE.parent / "examples"
SMALL: Mapping[str, tuple[int, ...]] = {
    "triton/attention": (1, 2, 256, 128),
    "triton/bmm": (2, 128, 128, 128),
    "triton/cross_entropy": (4, 3328),
    "triton/embedding": (8, 64, 512),
    "triton/gelu_and_mul": (4, 2048),
    "triton/group_quant": (4, 512),
    "triton/layer_norm": (4, 4096),
    "triton/matmul": (128, 128, 128),
    "triton/qk_norm": (4, 4, 128),
    "triton/rms_norm": (4, 4096),
    "triton/softmax": (4, 4096),
    "triton/transpose": (128, 128),
}
"""For the interpreter, in place of the timed shapes: the same tails, or none, as those have."""


@dataclass(frozen=True)
class Origin:
    """A kernel that mutants are made of: a folder with the kernel, its wrapper and its tests."""

    spec: Spec
    test: str
    """The file of its tests, below the folder."""
    inputs: tuple[str, str]
    """The file below the folder, and in it the function, that makes the wrapper's arguments."""

    @property
    def key(self) -> str:
        """Names it in the results: 'triton/softmax', 'examples/triton_softmax'."""
        return self.spec.key

    @property
    def kernel(self) -> str:
        """Its file, below the folder."""
        return self._name + ".py"

    @property
    def wrapper(self) -> str:
        """The function that launches it."""
        return self._name

    @property
    def framework(self) -> str:
        """Its language."""
        return self.spec.name.split("_")[0] if self.is_example else self.spec.framework

    @property
    def is_example(self) -> bool:
        """Whether its folder is laid out as those of `examples`."""
        return self.spec.framework == EXAMPLES.name

    @property
    def small(self) -> tuple[int, ...] | None:
        """What stands for its timed shapes in the interpreter; None: its perf tests say so."""
        return SMALL.get(self.key)

    @property
    def text(self) -> str:
        """The kernel's file as it is."""
        return (self.spec.folder / self.kernel).read_text(encoding="utf-8")

    @property
    def _name(self) -> str:
        return self.spec.name.partition("_")[2] if self.is_example else self.spec.name


@dataclass(frozen=True)
class Mutant:
    """An origin with one fault."""

    origin: Origin
    mutator: str
    line: int
    """Of the origin's file."""
    text: str

    @cached_property
    def key(self) -> str:
        """Names it in the results: the same fault has the same one, whatever else is taken."""
        return hashlib.sha256(f"{self.origin.key}\n{self.text}".encode()).hexdigest()[:12]

    @property
    def diff(self) -> str:
        """The lines that differ."""
        before, after = (text.splitlines() for text in (self.origin.text, self.text))
        compared = difflib.unified_diff(before, after, n=0, lineterm="")
        return "\n".join(line for line in [*compared][2:] if not line.startswith("@@"))


def origins(wanted: Sequence[str] = ()) -> list[Origin]:
    """The kernels of these names: 'triton', 'triton/softmax', 'examples/triton_softmax', 'softmax'.

    The Triton kernels of the benchmark and of the examples where no name is given.

    Raises:
        ValueError: there is no such kernel; the message names those there are.
    """
    known = [_benchmark(spec) for spec in find([])]
    known += [
        _example(folder)
        for folder in sorted(EXAMPLES.iterdir())
        if (folder / "tests").is_dir() and "autotune" not in folder.name
    ]
    if not wanted:
        return [origin for origin in known if origin.framework == "triton"]
    names = {o.key: {o.key, o.wrapper, o.spec.framework} for o in known}
    for name in wanted:
        if not any(name in own for own in names.values()):
            raise ValueError(f"no kernel {name}; there are: {', '.join(names)}")
    return [origin for origin in known if names[origin.key] & set(wanted)]


def _benchmark(spec: Spec) -> Origin:
    return Origin(spec, f"test_{spec.name}.py", ("reference.py", "inputs"))


def _example(folder: Path) -> Origin:
    spec = Spec(EXAMPLES.name, folder.name, folder)
    test = f"tests/test_{folder.name.partition('_')[2]}.py"
    text = (folder / test).read_text(encoding="utf-8")
    maker = "make_inputs" if "def make_inputs(" in text else "make_input"
    return Origin(spec, test, (test, maker))


# --- making them --------------------------------------------------------------------------------


def mutate(text: str, framework: str, names: Sequence[str] = tuple(MUTATORS)) -> Iterator[Fault]:
    """Every fault of these mutators in the kernels of a file, each text once.

    Raises:
        ValueError: a mutator made what is not Python.
    """
    source = Source(text)
    seen = {text}
    for code in kernel_codes(source, framework):
        for name in names:
            for fault in _faults(code, name):
                if fault.text not in seen:
                    seen.add(fault.text)
                    yield fault


@dataclass(frozen=True)
class Fault:
    """What became of a file by one mutator."""

    mutator: str
    line: int
    text: str


def _faults(code: KernelCode, name: str) -> Iterator[Fault]:
    for place in MUTATORS[name](code):
        text = code.source.rewrite(place.edits)
        try:
            ast.parse(text)
        except SyntaxError as problem:
            raise ValueError(f"{name} made what is not Python: {problem}") from problem
        yield Fault(name, code.source.line(place.node), text)


@cache
def mutants_of(origin: Origin) -> tuple[Mutant, ...]:
    """Every mutant there is of a kernel, mutator by mutator."""
    found = mutate(origin.text, origin.framework)
    return tuple(Mutant(origin, fault.mutator, fault.line, fault.text) for fault in found)


def choose(wanted: Sequence[Origin], count: int, seed: int) -> list[Mutant]:
    """So many mutants, or all: a turn for each kernel, and within it for each mutator.

    The same seed gives the same ones; a larger count adds to those of a smaller one.
    """
    lines = [_in_turn(mutants_of(origin), random.Random(f"{seed}/{origin.key}"))
             for origin in wanted]  # fmt: skip
    taken: list[Mutant] = []
    while any(lines) and len(taken) < count:
        for line in lines:
            if line and len(taken) < count:
                taken.append(line.pop(0))
    return taken


def _in_turn(mutants: Sequence[Mutant], chance: random.Random) -> list[Mutant]:
    """In random order, but one of each mutator before the second of any."""
    by_mutator: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_mutator.setdefault(mutant.mutator, []).append(mutant)
    names = sorted(by_mutator)
    chance.shuffle(names)
    for name in names:
        chance.shuffle(by_mutator[name])
    longest = max((len(each) for each in by_mutator.values()), default=0)
    return [by_mutator[n][turn] for turn in range(longest) for n in names
            if turn < len(by_mutator[n])]  # fmt: skip
