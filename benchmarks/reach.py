"""What the playbook finds to do in kernels that other people wrote; without a GPU.

    python -m benchmarks.reach [PROJECT ...] [--files-per-project 60] [--json FILE] [--verbose]

The files are chosen by rule, before anything is asked: of each project of `benchmarks.corpus`,
those with a kernel that host code of the file launches or hands on, in the order of their paths,
evenly spaced where there are more than `--files-per-project`. Every entry is asked what it would
do, for sm_90 (Triton) or sm_100 (cuTile), and its first variant is written and parsed; nothing is
run.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import libcst as cst

from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.wrapped import decorated
from agent.backends import BACKENDS
from agent.playbook import for_backend
from agent.playbook.base import Optimization
from agent.syntax import Source, descendants
from benchmarks.corpus import MORE_PROJECTS, PROJECTS, VENDORS, cache, fetch

CAPABILITIES = {"triton": 90, "cutile": 100}
DECORATORS = {"triton": (b"triton.jit",), "cutile": (b"ct.kernel", b"cuda.tile")}
REFUSALS = 20
"""Reasons that are listed, the most frequent first."""

KNOBS = {
    "triton": {"warps": ("num_warps", "elements_per_warp"), "stages": ("num_stages",)},
    "cutile": {"occupancy": ("occupancy",)},
}
"""Knob -> parameters of variants that turn it."""
TUNERS = ("add-autotune", "widen-configs", "autotune")
"""Entries that turn every knob of a kernel."""
SMALL = frozenset(
    {
        "cache-modifiers", "eviction-policy", "load-latency", "load-without-tma",
        "config-options", "loop-stages", "num-ctas", "occupancy-hint", "opt-level", "static-ranges",
        "store-latency", "store-without-tma", "tuning-key", "unrolled-loops", "warps-and-stages",
        "warps-by-row", "worker-warps",
    }
)  # fmt: skip
"""Entries that set a hint or an option; the others change what a program does."""


@dataclass
class Reach:
    """What the entries said of one file."""

    project: str
    path: str
    backend: str
    kernels: int
    loops: bool = True
    """A launched Triton kernel has a loop, so that there is something to pipeline."""
    applies: dict[str, list[Params]] = field(default_factory=dict)
    """Entry -> its variants."""
    refused: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Entry -> how long it took to say what it would try."""

    def turns(self, knob: str) -> bool:
        """Whether any entry turns a knob."""
        keys = KNOBS[self.backend][knob]
        return any(
            entry in TUNERS or any(key in params for params in variants for key in keys)
            for entry, variants in self.applies.items()
        )

    @property
    def structural(self) -> bool:
        """Whether an entry would change what a program does."""
        return bool(self.applies.keys() - SMALL)


def candidates(project: str, version: str) -> list[tuple[str, str, str]]:
    """(project, path, backend) of the files that may hold a kernel, in the order of their paths."""
    folder = fetch(project, version, cache())
    found = []
    for path in sorted(folder.rglob("*.py")):
        data = path.read_bytes()
        for backend, decorators in DECORATORS.items():
            if VENDORS not in path.as_posix() and any(d in data for d in decorators):
                found.append((project, str(path), backend))
    return found


def launches(file: tuple[str, str, str]) -> bool:
    """Whether host code of the file launches a kernel of it, or hands one on."""
    _, path, backend = file
    try:
        source = Source(Path(path).read_text(encoding="utf-8"), path)
        return any(kernel.launched_from for kernel in BACKENDS[backend].kernels(source))
    except (cst.ParserSyntaxError, UnicodeDecodeError):
        return False


def ask(file: tuple[str, str, str]) -> Reach:
    """Ask all entries of the file's language."""
    project, path, backend = file
    source = decorated(Source(Path(path).read_text(encoding="utf-8"), path))
    found = Reach(project, path, backend, len(BACKENDS[backend].kernels(source)))
    kernel_class = BACKENDS[backend].classify(source).kernel_class
    subject = Subject(source, kernel_class, Hardware(sm=CAPABILITIES[backend]))
    if backend == "triton":
        launched = TRITON.launched(source)
        found.loops = any(any(descendants(k.function.node.body, cst.For)) for k in launched)
    for entry in for_backend(backend):
        if not entry.opt_in:
            _ask(entry, subject, found)
    return found


def _ask(entry: Optimization, subject: Subject, found: Reach) -> None:
    begin = time.perf_counter()
    try:
        variants = list(entry.variants(subject))
        found.seconds[entry.name] = time.perf_counter() - begin
        ast.parse(entry.apply(subject, variants[0]))
        found.applies[entry.name] = variants
    except NotApplicable as refusal:
        found.seconds.setdefault(entry.name, time.perf_counter() - begin)
        found.refused[entry.name] = str(refusal)
    except Exception as problem:
        found.faults.append(f"{entry.name}: {type(problem).__name__}: {problem}")


def spread(files: Sequence[tuple[str, str, str]], most: int) -> list[tuple[str, str, str]]:
    """At most so many, evenly spaced."""
    step = max(1, -(-len(files) // most))
    return list(files[::step])


def generalised(reason: str) -> str:
    """A reason without the names and numbers of one file."""
    reason = re.sub(r"`[^`]*`", "`...`", reason)
    reason = re.sub(r"\b\w*_\w+\b|\b[A-Z][A-Z\d]*(?= of )", "NAME", reason)
    return re.sub(r"\d+", "N", reason)


def report(found: Sequence[Reach]) -> Iterator[str]:
    """The tables."""
    for backend in KNOBS:
        ours = [reach for reach in found if reach.backend == backend]
        if not ours:
            continue
        projects = Counter(reach.project for reach in ours)
        yield f"## {backend}: {len(ours)} files of {len(projects)} projects"
        yield ", ".join(f"{project} {count}" for project, count in projects.items())
        yield ""
        for knob in KNOBS[backend]:
            asked = [reach for reach in ours if reach.loops or knob != "stages"]
            among = " where a kernel has a loop" if knob == "stages" else ""
            yield _share(f"{knob} is a knob{among}", [reach.turns(knob) for reach in asked])
        yield _share("a structural entry applies", [reach.structural for reach in ours])
        per_file = [len(reach.applies) for reach in ours]
        yield f"entries that apply to a file: {statistics.median(per_file):g} (median)"
        asked_ms = [1e3 * s for reach in ours for s in reach.seconds.values()]
        yield f"an entry is asked in {statistics.median(asked_ms):.1f} ms (median)"
        yield ""
        yield "| entry | applies | refuses |\n|---|---:|---:|"
        applied = Counter(entry for reach in ours for entry in reach.applies)
        refused = Counter(entry for reach in ours for entry in reach.refused)
        for entry in sorted({*applied, *refused}, key=lambda name: (-applied[name], name)):
            yield f"| {entry} | {applied[entry]} | {refused[entry]} |"
        yield ""
        yield "| times | entries | refusal |\n|---:|---|---|"
        reasons: dict[str, list[str]] = defaultdict(list)
        for reach in ours:
            for entry, reason in reach.refused.items():
                for part in {generalised(part) for part in reason.split("; ")}:
                    reasons[part].append(entry)
        frequent = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
        for reason, entries in frequent[:REFUSALS]:
            yield f"| {len(entries)} | {', '.join(sorted(set(entries)))} | {reason} |"
        yield ""
    for reach in found:
        for fault in reach.faults:
            yield f"FAULT {reach.path}: {fault}"


def _share(what: str, holds: Sequence[bool]) -> str:
    share = sum(holds) / max(1, len(holds))
    return f"{what}: {sum(holds)} of {len(holds)} files ({share:.0%})"


def main() -> int:
    """Ask and print. Returns 1 where an entry failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reach", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("projects", nargs="*")
    parser.add_argument("--files-per-project", type=int, default=60)
    parser.add_argument("--json", type=Path, help="file for what each entry said of each file")
    parser.add_argument("--verbose", action="store_true", help="print that, too")
    options = parser.parse_args()
    found: list[Reach] = []
    with ProcessPoolExecutor() as pool:
        for project, version in (*PROJECTS, *MORE_PROJECTS):
            if options.projects and project not in options.projects:
                continue
            files = candidates(project, version)
            launching = [f for f, yes in zip(files, pool.map(launches, files), strict=True) if yes]
            chosen = spread(launching, options.files_per_project)
            found += pool.map(ask, chosen)
            print(f"{project} {version}: {len(chosen)} of {len(launching)} files", flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(reach) for reach in found], indent=1))
    if options.verbose:
        for reach in found:
            print(f"\n{reach.path} ({reach.kernels} kernels)")
            for entry in sorted({*reach.applies, *reach.refused}):
                variants = reach.applies.get(entry)
                said = f"{len(variants)} variants" if variants else reach.refused[entry]
                print(f"  {entry:24} {said}")
    print("\n" + "\n".join(report(found)))
    return any(reach.faults for reach in found)


if __name__ == "__main__":
    raise SystemExit(main())
