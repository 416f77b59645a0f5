"""Compile evidence of a kernel: captured launches, compiled for GPUs that need not be there.

Everything of the user's happens in `tile_agent_pytest.artifacts`, in a process of the user's
interpreter with a deadline. What it compiled is then read with cuobjdump and nvdisasm.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tile_agent_pytest
from agent.analysis.cutile.signature import ParameterKind, Signature, signatures
from agent.errors import UnreadableCode, UsageError
from agent.evidence import advice, remarks, sass, tokens
from agent.evidence.cubin import digest, resources
from agent.evidence.model import (
    Artifact,
    CompiledLaunch,
    NotCompiled,
    Result,
    TensorArgument,
    TimedWork,
)
from agent.harness.compiling.cutile import module_name, to_compile
from agent.harness.compiling.missing import check_missing
from agent.harness.compiling.recorded_tests import (
    NothingLaunched,
    collection_errors,
    failures_of,
    why_not_imported,
    why_nothing,
)
from agent.harness.processes.collection_errors import importable
from agent.harness.processes.results import read_launch
from agent.harness.processes.script import NEWER, ScriptEnd, run_script, run_tool
from agent.harness.processes.worker_session import Checkout
from agent.launches import ObservedLaunch
from agent.syntax import Source

MOST_LAUNCHES = 8
"""Compiled of one file at most: one of each kernel first, and those of perf tests."""
COMPILE_S = 60.0
"""For one compile. A 512x512x64 tile of cuTile takes minutes."""
TOOL_S = 60.0
MOST_AT_ONCE = 4
"""Launches of one file."""
UNREAD = "compiled, and not read: the time for that is over"
PREFIX = "tile-agent-artifacts-"


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Wanted:
    """What to compile, and for what."""

    backend: str
    targets: tuple[int, ...]
    """Compute capabilities times ten; the first is the GPU that host code is shown without one."""
    python: str
    has_gpu: bool
    """Whether the tests can launch; otherwise they run on tensors without storage."""
    timed_only: bool = True
    """Leave out what only correctness tests launch, unless there is nothing else."""
    most: int = MOST_LAUNCHES
    compile_s: float = COMPILE_S
    most_at_once: int = MOST_AT_ONCE
    ahead: int = 0
    """How many launches more are compiled and not read, where what compiles them keeps them."""
    pass_env: tuple[str, ...] = ()
    """Variables that the tests get although they are not known to be needed."""

    @property
    def at_once(self) -> int:
        """How many launches are compiled, or read, at a time."""
        return max(1, min(self.most_at_once, processors()))


@dataclass(frozen=True)
class Evidence:
    """What became of every launch for every GPU."""

    results: tuple[Result, ...]
    launches: int
    """That the tests made, as far as they compile differently; 0: read from the source."""
    left_out: int
    """Of these, those that were not compiled."""
    failures: tuple[str, ...]
    """Tests that ended early, with the reason: launches after that are missing."""
    sequence: str = ""
    """A digest of all launches in order, with grids and values; empty where one is not known."""
    work: tuple[TimedWork, ...] = ()
    """Of each timing of the perf tests."""
    untimed: int = 0
    """Of the launches left out, those that only correctness tests make, where no such is wanted."""
    kernels: tuple[str, ...] = ()
    """That the tests launched."""
    notes: tuple[str, ...] = ()
    """On test files that are left out."""

    @property
    def kernels_left_out(self) -> tuple[str, ...]:
        """Those of which no launch was compiled."""
        shown = {result.launch.kernel for result in self.results}
        return tuple(kernel for kernel in self.kernels if kernel not in shown)

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """Those that compile."""
        return tuple(result for result in self.results if isinstance(result, Artifact))

    @property
    def observed(self) -> tuple[ObservedLaunch, ...]:
        """What tests were seen to launch, each launch once."""
        seen = {result.launch: result.launch.observed for result in self.results}
        return tuple(launch for launch in seen.values() if launch is not None)

    @property
    def digests(self) -> tuple[str, ...]:
        """Of the artifacts, in the order of the launches."""
        return tuple(artifact.digest for artifact in self.artifacts)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why a launch cannot be compiled, or its code cannot run; one line each."""
        found = []
        for result in self.results:
            reason = result.reason if isinstance(result, NotCompiled) else advice.problem(result)
            if reason is not None:
                found.append(f"{result.launch} for {result.target}: {reason}")
        return tuple(found)


def collect(checkout: Checkout, tests: Sequence[str], wanted: Wanted, timeout_s: float) -> Evidence:
    """Run the tests of a checkout, compile what they launch, and read what came out.

    A launch is captured afresh for each source: an edit of the wrapper changes what is launched.
    Where a cuTile kernel is launched by no test, its signature is read from the source instead.
    Test files that need what is not installed are left out where others are left, as in a run.

    Args:
        checkout: where the kernel and its tests lie.
        tests: files or node ids; none: the signatures are read from the source.
        wanted: what to compile.
        timeout_s: for all of it. What is not done by then is a `NotCompiled`.

    Raises:
        UsageError: a package or a tool is missing, or a cuTile kernel's file cannot be imported.
        NothingLaunched: no test launches a kernel.
    """
    deadline = time.monotonic() + timeout_s
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        scratch = Path(folder)
        job, variables = prepare(checkout, tests, wanted, timeout_s, scratch)
        ended = run_script(
            [wanted.python, str(Path(tile_agent_pytest.__file__).parent), "artifacts"],
            job,
            cwd=checkout.root,
            variables=variables,
            scratch=scratch,
            timeout_s=timeout_s,
            passed=wanted.pass_env,
        )
        kept, notes = importable(tuple(tests), collection_errors(ended), checkout)
        if not notes:
            return read(checkout, wanted, ended, deadline)
    try:
        found = collect(checkout, kept, wanted, max(1.0, deadline - time.monotonic()))
    except NothingLaunched as problem:
        raise NothingLaunched(f"{problem} ({'; '.join(notes)})") from problem
    return replace(found, notes=(*notes, *found.notes))


def read(checkout: Checkout, wanted: Wanted, ended: ScriptEnd, deadline: float) -> Evidence:
    """What a job's answers amount to, while its folder is still there. Raises as `collect`."""
    check_missing(ended, wanted.python, checkout.root)
    tested = next((a for a in ended.answers if a["event"] == "tested"), None)
    if tested is None:
        raise UsageError(f"the tests of {checkout.kernel} cannot be run: {ended.fate}")
    if unimportable := next((a for a in ended.answers if a["event"] == "not-importable"), None):
        raise UsageError(why_not_imported(checkout, unimportable["said"], wanted.pass_env))
    failures = failures_of(checkout, tested, ended, wanted.pass_env)
    if not any(answer["event"] == "launch" for answer in ended.answers):
        raise NothingLaunched(why_nothing(checkout, tested, failures, ended))
    results = tuple(_results(checkout, wanted, ended, deadline))
    unread = [r.reason for r in results if isinstance(r, NotCompiled) and r.inconclusive]
    if len(unread) == len(results) and unread[0].endswith(NEWER):
        raise UnreadableCode(unread[0])  # the tools fit none of what was compiled
    compiled = sum(answer["event"] == "launch" for answer in ended.answers)
    left_out = max(0, tested["launches"] - compiled)
    return Evidence(
        results,
        tested["launches"],
        left_out,
        failures,
        tested["sequence"],
        tuple(map(_work, tested["work"])),
        tested["untimed"],
        tuple(map(str, tested["kernels"])),
    )


def prepare(
    checkout: Checkout, tests: Sequence[str], wanted: Wanted, timeout_s: float, scratch: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """The job for `tile_agent_pytest.artifacts`, and the variables that it needs."""
    file = checkout.root / checkout.kernel
    places = {name: scratch / name for name in ("cache", "temporary", "bytecode", "artifacts")}
    for place in places.values():
        place.mkdir()
    job = {
        "language": wanted.backend,
        "kernel": str(file),
        "cwd": str(checkout.root),
        "sys_path": [str(path) for path in checkout.sys_path],
        "pytest": [f"--rootdir={checkout.root}", *tests] if tests else None,
        "sm": None if wanted.has_gpu else wanted.targets[0],
        "targets": [f"sm_{sm}" for sm in wanted.targets],
        "timed_only": wanted.timed_only,
        "most": wanted.most,
        "ahead": wanted.ahead,
        "timeout_s": timeout_s,
        "compile_s": min(wanted.compile_s, timeout_s),
        "at_once": wanted.at_once,
        "assumed": _assumed(file, checkout) if wanted.backend == "cutile" else None,
        "folder": str(places["artifacts"]),
    }
    variables = {
        "CUDA_TILE_CACHE_DIR": str(places["cache"]),  # empty: with it come the compiler's remarks
        "CUDA_TILE_TEMP_DIR": str(places["temporary"]),
        "CUDA_TILE_DUMP_BYTECODE": str(places["bytecode"]),
        "CUDA_TILE_COMPILER_TIMEOUT_SEC": str(timeout_s + 60),  # should the process be killed
        "TRITON_CACHE_DIR": str(places["cache"]),
        "TRITON_INTERPRET": "0",
    }
    if not wanted.has_gpu:
        variables["CUDA_VISIBLE_DEVICES"] = ""  # whatever the tests do, they reach no GPU
        # torch.compile would compile the project's PyTorch for a GPU; eagerly it launches the same
        variables["TORCHDYNAMO_DISABLE"] = os.environ.get("TORCHDYNAMO_DISABLE", "1")
    return job, variables


def _assumed(file: Path, checkout: Checkout) -> dict[str, Any]:
    """What the source alone tells of the kernels' signatures."""
    found = signatures(Source(file.read_text(encoding="utf-8"), str(file)))
    return {
        "module": module_name(file, checkout.sys_path),
        "kernels": [{**to_compile(s), "arguments": [_told(v) for v in s.variants]} for s in found],
    }


def _told(signature: Signature) -> dict[str, str]:
    """What the compiler is told of each parameter, and what that rests on."""
    texts = {}
    for p in signature.parameters:
        match p.kind:
            case ParameterKind.CONSTANT:
                told = f"= {p.value}"
            case ParameterKind.SCALAR:
                told = p.dtype
            case ParameterKind.ARRAY:
                told = f"{p.ndim}-dimensional {p.dtype}"
            case ParameterKind.LIST:
                told = f"list of {p.ndim}-dimensional {p.dtype}"
        texts[p.name] = f"{told} ({p.why})" if p.why else told
    return texts


# --- reading ------------------------------------------------------------------------------------


def _results(checkout: Checkout, wanted: Wanted, ended: ScriptEnd, deadline: float) -> list[Result]:
    """In the order of the launches and targets, whichever was compiled or read first."""
    launches = {a["index"]: _launch(a) for a in ended.answers if a["event"] == "launch"}
    done = {(a["index"], a["target"]): a for a in ended.answers if a["event"] == "done"}
    tools = next(a for a in ended.answers if a["event"] == "tools")

    def result(place: tuple[int, int]) -> Result:
        index, sm = place
        launch, answer = launches[index], done.get((index, f"sm_{sm}"))
        if answer is None:
            return NotCompiled(launch, sm, ended.fate, inconclusive=ended.code is None)
        if not answer["ok"]:
            timed_out = bool(answer.get("timed_out"))
            return NotCompiled(launch, sm, answer["error"], inconclusive=timed_out)
        if time.monotonic() > deadline:
            return NotCompiled(launch, sm, UNREAD, inconclusive=True)
        try:
            return _artifact(launch, sm, answer, tools, checkout.kernel, deadline)
        except UnreadableCode as problem:
            return NotCompiled(launch, sm, str(problem), inconclusive=True)

    places = [(index, sm) for index in sorted(launches) for sm in wanted.targets]
    with ThreadPoolExecutor(wanted.at_once) as pool:
        return list(pool.map(result, places))


def _launch(answer: Mapping[str, Any]) -> CompiledLaunch:
    seen = answer["observed"]
    return CompiledLaunch(
        kernel=answer["kernel"],
        arguments=tuple(answer["arguments"].items()),
        options=tuple((name, str(value)) for name, value in answer["options"].items()),
        grid=tuple(answer["grid"]),
        test=answer["test"],
        timed=answer["timed"],
        tensors=tuple(map(_tensor, answer["tensors"])),
        observed=read_launch({**seen, "test": answer["test"]}) if seen else None,
    )


def _work(told: Mapping[str, Any]) -> TimedWork:
    return TimedWork(
        told["test"],
        told["config"],
        tuple((kernel, tuple(grid)) for kernel, grid in told["launches"]),
        tuple(map(_tensor, told["tensors"])),
    )


def _tensor(told: Mapping[str, Any]) -> TensorArgument:
    return TensorArgument(told["name"], told["dtype"], tuple(told["shape"]), told["size_bytes"])


def _artifact(
    launch: CompiledLaunch,
    sm: int,
    answer: Mapping[str, Any],
    tools: Mapping[str, str],
    kernel: str,
    deadline: float,
) -> Artifact:
    if "arguments" in answer:  # of what was assumed, the variant that compiles
        launch = replace(launch, arguments=tuple(answer["arguments"].items()))
    path = answer["cubin"]
    limit_s = max(1.0, min(TOOL_S, deadline - time.monotonic()))
    needs = resources(
        run_tool([tools["cuobjdump"], "--dump-resource-usage", path], limit_s),
        run_tool([tools["cuobjdump"], "-elf", path], limit_s),
        sm,
    )
    text = run_tool([tools["nvdisasm"], "-g", "-c", path], limit_s)
    cubin = Path(path).read_bytes()
    shared = needs.shared_bytes + int(answer.get("shared_bytes", 0))
    tile_ir = _tile_ir(answer.get("bytecode"), tools["tileirdisasm"], limit_s)
    return Artifact(
        launch=launch,
        sm=sm,
        registers=needs.registers,
        stack_bytes=needs.stack_bytes,
        shared_bytes=shared,
        threads=needs.threads,
        instructions=sass.count(text, Path(kernel).name),
        digest=digest(cubin, needs.registers, needs.stack_bytes, shared, needs.threads),
        cubin_bytes=len(cubin),
        compile_s=answer["seconds"],
        remarks=remarks.read(_text(answer.get("remarks"))),
        waits=tokens.waits(tile_ir, Path(kernel).name),
        listing=tokens.without_places(tile_ir) or _text(answer.get("listing")),
    )


def _tile_ir(bytecode: str | None, tool: str | None, limit_s: float) -> str:
    """With its places in the source; empty where no tool here reads it: CUDA 13.4 has the first."""
    if bytecode is None or tool is None:
        return ""
    with contextlib.suppress(UnreadableCode):
        return run_tool([tool, "--print-debug-info", bytecode], limit_s)
    return ""


def _text(path: str | None) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace") if path else ""
    return ""
