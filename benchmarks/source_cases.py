"""What `benchmarks.sources` compares: kernels, and what entries of the playbook make of them.

The kernels are in benchmarks/source_kernels/, a file each, whose `run` is called. The first arm of
a case is what the others are measured against.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.syntax import Source

KERNELS = Path(__file__).resolve().parent / "source_kernels"
SM = 90


@dataclass(frozen=True)
class Arm:
    """A text of the kernel."""

    label: str
    text: str
    config: Mapping[str, int] | None = None
    """For a text that searches: the config that it is to take instead."""


@dataclass(frozen=True)
class Case:
    """A kernel, its arms and its inputs."""

    name: str
    question: str
    kernel: str
    arms: Callable[[Subject], Sequence[Arm]]
    inputs: Callable[..., tuple[Any, ...]]
    """Device, and the sizes -> the arguments of `run`."""
    expected: Callable[..., Any]
    """The same arguments, in fp64 -> what it has to give."""
    sizes: tuple[int, ...]
    small: tuple[int, ...]
    """For the CPU."""
    kernel_class: KernelClass = KernelClass.MEMORY

    def versions(self) -> list[Arm]:
        """The arms, as the real transforms make them.

        Raises:
            NotApplicable: an entry refuses the kernel.
        """
        text = (KERNELS / f"{self.kernel}.py").read_text(encoding="utf-8")
        hardware = Hardware(sm=SM)
        return list(self.arms(Subject(Source(text), self.kernel_class, hardware)))


def entry(name: str) -> Callable[[Subject], Sequence[Arm]]:
    """As it is, and with an entry applied."""

    def arms(subject: Subject) -> Sequence[Arm]:
        found = playbook.get(name)
        (params,) = found.variants(subject)
        return (
            Arm("as it is", subject.source.text),
            Arm(name, found.apply(subject, params)),
        )

    return arms


def by_hand(name: str) -> Callable[[Subject], Sequence[Arm]]:
    """As it is, and as another file has it: what no entry does."""

    def arms(subject: Subject) -> Sequence[Arm]:
        other = (KERNELS / f"{name}.py").read_text(encoding="utf-8")
        return Arm("as it is", subject.source.text), Arm(f"{name}, by hand", other)

    return arms


def occupancies(*values: int) -> Callable[[Subject], Sequence[Arm]]:
    """The occupancy hint."""

    def arms(subject: Subject) -> Sequence[Arm]:
        hint = playbook.get("occupancy-hint")
        return [Arm(f"occupancy {n}", hint.apply(subject, {"occupancy": n})) for n in values]

    return arms


def searched(*configs: Mapping[str, int]) -> Callable[[Subject], Sequence[Arm]]:
    """A search, made to take each of these configs."""

    def arms(subject: Subject) -> Sequence[Arm]:
        text = playbook.get("autotune").apply(subject, {})
        return [Arm(_named(config), text, config) for config in configs]

    return arms


def grids(config: Mapping[str, int]) -> Callable[[Subject], Sequence[Arm]]:
    """One config of a search: the grid as the author has it, and as it follows the config."""

    def arms(subject: Subject) -> Sequence[Arm]:
        text = playbook.get("autotune").apply(subject, {})
        fixed, count = re.subn(r" (?://|\*) \(config\.(?:num_ctas|occupancy) or 1\)", "", text)
        if count != 2:
            raise ValueError(f"the grid follows {count} hints instead of occupancy and num_ctas")
        return (
            Arm("min(sms, tiles)", fixed, config),
            Arm("min(sms // num_ctas, tiles) * occupancy", text, config),
        )

    return arms


def _named(config: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in config.items())


def _random(device: str, *shape: int, dtype: str = "bfloat16") -> Any:
    import torch

    generator = torch.Generator(device).manual_seed(len(shape))
    made = torch.randn(*shape, generator=generator, device=device)
    return made.to(getattr(torch, dtype))


def _product(device: str, m: int, n: int, k: int) -> tuple[Any, ...]:
    return _random(device, m, k), _random(device, k, n)


def _rows(device: str, m: int, n: int) -> tuple[Any, ...]:
    return (_random(device, m, n),)


def _paged(device: str, sequences: int, n_pages: int) -> tuple[Any, ...]:
    import torch

    generator = torch.Generator(device).manual_seed(7)
    order = torch.randperm(sequences * n_pages, generator=generator, device=device)
    cache = _random(device, sequences * n_pages, 64, 128)
    return _random(device, sequences, 16, 128), cache, order.int().reshape(sequences, n_pages)


def _scores(queries: Any, cache: Any, table: Any) -> Any:
    return queries @ cache[table.long()].flatten(1, 2).mT


def _several(device: str, count: int, length: int) -> tuple[Any, ...]:
    """Arrays of lengths that differ."""
    return ([_random(device, length - 100 * i, dtype="float32") for i in range(count)],)


def _packed(device: str, sequences: int, mean: int, depth: int) -> tuple[Any, ...]:
    """Sequences one behind the other, of lengths that differ."""
    import torch

    lengths = [mean + (mean // 2 if i % 2 else -(mean // 2)) for i in range(sequences)]
    ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    return _random(device, sequences * mean, depth), ends, _random(device, depth, 64)


def _padded(x: Any, ends: Any, w: Any) -> Any:
    import torch

    parts = (x @ w).split(ends.diff().tolist())
    longest = x.shape[0] // len(parts) * 2
    return torch.stack([torch.nn.functional.pad(p, (0, 0, 0, longest - len(p))) for p in parts])


def _bins(device: str, n: int) -> tuple[Any, ...]:
    import torch

    generator = torch.Generator(device).manual_seed(7)
    return (torch.randint(1024, (n,), generator=generator, device=device, dtype=torch.int32),)


def _counts(bins: Any) -> Any:
    return bins.long().bincount(minlength=1024)


def _summed(device: str, m: int, n: int) -> tuple[Any, ...]:
    return (_random(device, m, n, dtype="float32"),)


def _normed(x: Any) -> Any:
    return x * (x.square().mean(1, keepdim=True) + 1e-6).rsqrt()


def _matmul(a: Any, b: Any) -> Any:
    return a @ b


def _config(rows: int, columns: int, depth: int, occupancy: int, num_ctas: int) -> dict[str, int]:
    sizes = {"ROWS": rows, "COLUMNS": columns, "DEPTH": depth}
    return {**sizes, "occupancy": occupancy, "num_ctas": num_ctas}


GRID_CONFIGS = {
    "occupancy": _config(64, 128, 64, 2, 1),
    "num_ctas": _config(256, 128, 64, 1, 2),
    "both": _config(256, 128, 64, 2, 2),
}

CASES = (
    Case(
        "paged-loads", "pages gathered by rows, or loaded whole by `.item()`", "paged_scores",
        entry("paged-loads"), _paged, _scores, (64, 128), (2, 3),
    ),
    Case(
        "packed-slices", "rows of packed sequences, gathered by a mask or loaded from slices",
        "packed_rows", by_hand("packed_slices"), _packed, _padded, (64, 1024, 1024), (4, 70, 130),
    ),
    *(
        Case(
            f"grid-{name}", f"the grid of a persistent product whose config sets {name}",
            "resident_product", grids(config), _product, _matmul, (4096, 4096, 2048),
            (70, 90, 130), KernelClass.COMPUTE,
        )
        for name, config in GRID_CONFIGS.items()
    ),
    *(
        Case(
            f"swapped-operands-{n}", f"16 rows times {n} columns, operands exchanged", "few_rows",
            entry("swapped-operands"), _product, _matmul, (16, n, 4096), (16, 96, 200),
        )
        for n in (4096, 16384)
    ),
    Case(
        "occupancy-rows", "more than 8 blocks a multiprocessor, one row a block", "row_norm",
        occupancies(8, 16, 24, 32), _rows, _normed, (65536, 1024), (5, 300),
    ),
    Case(
        "occupancy-resident", "more than 8 blocks a multiprocessor, blocks that stay",
        "resident_centre", searched(*({"occupancy": n} for n in (8, 16, 24, 32))), _rows,
        lambda x: x - x.mean(1, keepdim=True), (65536, 1024), (5, 300),
    ),
    Case(
        "batched-launches", "one launch for each of several small arrays, or one for all",
        "small_arrays", entry("batched-launches"), _several,
        lambda xs: [x.double() * 0.5 for x in xs], (32, 16384), (3, 1500),
    ),
    Case(
        "relaxed-sums", "sums over rows by atomics", "column_sums", entry("relaxed-atomics"),
        _summed, lambda x: x.sum(0), (32768, 2048), (37, 1100),
    ),
    Case(
        "relaxed-histogram", "counts by atomics", "histogram", entry("relaxed-atomics"), _bins,
        _counts, (2**24,), (2500,),
    ),
)  # fmt: skip
"""All, in the order in which they are measured."""
