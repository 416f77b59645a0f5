"""Times versions of a kernel in one process, block by block in turn. Needs an NVIDIA GPU.

    python -m benchmarks.side_by_side KERNEL BEST_FILE ANSWER [--limit-s 60]

The versions are the kernel as it stands, BEST_FILE, PyTorch, torch.compile and those of experts.
Each has its own copy of the inputs, since some work in place; each has to agree with PyTorch in
fp64 before it is timed. A round is one block of samples of each version, in an order that rotates;
a version's latency is the median of its blocks' medians. When the time is nearly up, versions that
are not ready are left out. ANSWER is written as JSON.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.agreement import copied, error, right
from benchmarks.spec import Launch, Reference, Spec, describe, find
from tile_agent_pytest.bench import OnGpu, Sampler, count_for, open_sampler

ROUNDS = 30
BLOCK_MS = 20.0
AT_LEAST = 5
"""Samples of a block."""
WARMUP_MS = 50.0
PREPARE_S = 60.0
"""For one version to import, compile and tune itself."""
ROUNDS_S = 15.0
"""What is kept back for the rounds."""
EXPERT_PACKAGES = ("tilegym", "liger-kernel", "fla-core", "conch-triton-kernels", "flag-gems")


class TooSlow(Exception):
    """A version did not get ready in time."""


@dataclass(frozen=True)
class Ready:
    """A version that agrees, with what times it."""

    sampler: Sampler
    count: int
    error: float


def main() -> None:
    """Time one kernel and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel")
    parser.add_argument("best", type=Path)
    parser.add_argument("answer", type=Path)
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    options = parser.parse_args()
    (spec,) = find([options.kernel])
    reference = spec.reference()
    share_s = options.limit_s / len(reference.configs)
    configs = [time_config(spec, reference, options.best, c, share_s) for c in reference.configs]
    options.answer.write_text(json.dumps(configs))


def time_config(
    spec: Spec,
    reference: Reference,
    best: Path,
    config: tuple[Any, ...],
    limit_s: float,
    turns: int = ROUNDS,
) -> dict[str, Any]:
    """All versions on one config: latencies in ms, and why a version has none."""
    import torch

    prepared_by = time.monotonic() + limit_s - ROUNDS_S
    inputs = reference.inputs(config)
    expected = right(reference, inputs)
    versions: dict[str, dict[str, Any]] = {}
    ready: dict[str, Ready] = {}
    for label, make in makers(spec, reference, best).items():
        try:
            with limited(min(PREPARE_S, prepared_by - time.monotonic())):
                ready[label] = prepare(make(*map(copied, inputs)), expected)
            versions[label] = {"error": ready[label].error}
        except Exception as problem:  # whatever stops one version, the others are timed
            versions[label] = {"latency_ms": None, "why": one_line(problem)}
    for label, blocks in rounds(ready, turns).items():
        low, middle, high = statistics.quantiles(blocks, n=4)
        versions[label] |= {"latency_ms": middle, "quartiles_ms": [low, high]}
    amount, unit = reference.work(inputs)
    torch.cuda.empty_cache()
    return {
        "config": describe(config),
        "work": amount,
        "unit": unit,
        "method": " and ".join({version.sampler.label for version in ready.values()}),
        "rounds": turns,
        "experts": {name: version for name in EXPERT_PACKAGES if (version := installed(name))},
        "versions": versions,
    }


def makers(spec: Spec, reference: Reference, best: Path) -> dict[str, Callable[..., Launch]]:
    """Label -> a function of the inputs that gives what is to be timed."""

    def launching(wrapper: Callable[[], Callable[..., Any]]) -> Callable[..., Launch]:
        def make(*inputs: Any) -> Launch:
            call = wrapper()
            return lambda: call(*inputs)

        return make

    def compiled() -> Callable[..., Any]:
        import torch

        call: Callable[..., Any] = torch.compile(reference.torch_version, dynamic=False)
        return call

    return {
        "origin": launching(lambda: spec.wrapper(spec.kernel)),
        "best": launching(lambda: spec.wrapper(best)),
        "torch": launching(lambda: reference.torch_version),
        "torch.compile": launching(compiled),
        **reference.experts,
    }


def prepare(launch: Launch, expected: Sequence[Any]) -> Ready:
    """Run a version once, hold its result against the right one, and get ready to time it.

    Raises:
        ValueError: its result is wrong.
    """
    off = error(launch(), expected)
    sampler, estimate_ms = open_sampler(launch, OnGpu.__name__)
    sampler.sample(count_for(WARMUP_MS, estimate_ms, at_least=1))
    return Ready(sampler, count_for(BLOCK_MS, estimate_ms, at_least=AT_LEAST), off)


def rounds(ready: dict[str, Ready], turns: int) -> dict[str, list[float]]:
    """The medians of each version's blocks, in ms."""
    blocks: dict[str, list[float]] = {label: [] for label in ready}
    labels = list(ready)
    for turn in range(turns if labels else 0):
        first = turn % len(labels)
        for label in labels[first:] + labels[:first]:
            version = ready[label]
            blocks[label].append(statistics.median(version.sampler.sample(version.count)))
    return blocks


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TooSlow` when what is inside takes longer."""

    def ring(*_: object) -> None:
        raise TooSlow(f"not ready after {seconds:.0f} s")

    if seconds <= 0:
        raise TooSlow("no time was left for it")
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def installed(distribution: str) -> str | None:
    """Its version; None when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def one_line(problem: BaseException) -> str:
    """What went wrong, for a table."""
    text = next((line.strip() for line in str(problem).splitlines() if line.strip()), "")
    return f"{type(problem).__name__}: {text}"[:200]


if __name__ == "__main__":
    main()
