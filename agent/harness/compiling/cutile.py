"""Compiles the cuTile kernels of a file where nothing can run them.

In a process of the user's interpreter, with a deadline: a compile of a large tile takes minutes,
and the file is the user's code. `tile_agent_pytest.compile_cutile` is the other side.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tile_agent_pytest
from agent.analysis.cutile.signature import Signature, signatures
from agent.backends.cutile import CuTileBackend, lacks_gpu
from agent.environment import Environment
from agent.errors import UsageError
from agent.harness.compiling.assumed import in_words, is_unjudged
from agent.harness.compiling.missing import missing_in_words
from agent.harness.processes.collection_errors import with_remedy
from agent.harness.processes.script import ScriptEnd, run_script
from agent.syntax import Source

TARGETS = ("sm_80", "sm_90", "sm_100")
PROJECT_MARKS = (".git", "pyproject.toml", "setup.py")
"""What lies in the root of a project."""
"""Ampere, Hopper and Blackwell."""
CAVEAT = "compiled, not run: `pytest --tile-cpu` runs the tests on the CPU"
_TARGET = re.compile(r"sm_[0-9]{2,3}")


@dataclass(frozen=True)
class CompiledKernel:
    """What became of one kernel for one GPU."""

    kernel: str
    target: str
    ok: bool
    cubin_bytes: int | None = None
    sha256: str | None = None
    """Of the cubin."""
    seconds: float | None = None
    error: str | None = None
    """The compiler's first line."""
    unjudged: bool = False
    """It says nothing of the code: sizes do not fit of which some were assumed."""


@dataclass(frozen=True)
class Compilation:
    """What became of every kernel for every GPU, and what had to be assumed."""

    results: tuple[CompiledKernel, ...]
    assumptions: tuple[str, ...]
    refusal: str = ""
    """Why the file cannot be imported, and so no kernel of it be compiled; empty where it can."""
    unjudged: tuple[str, ...] = ()
    """Of kernels that cannot be judged with what had to be assumed, why, and how they can."""

    @property
    def failed(self) -> bool:
        """Whether one does not compile whatever is assumed."""
        return any(not result.ok and not result.unjudged for result in self.results)

    @property
    def ok(self) -> bool:
        """Whether all of them compile."""
        return all(result.ok for result in self.results)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "compiled": self.ok,
            "ran": False,
            "refusal": self.refusal,
            "unjudged": list(self.unjudged),
            "kernels": [asdict(result) for result in self.results],
            "assumptions": list(self.assumptions),
        }

    def lines(self) -> Iterator[str]:
        """The same for a person."""
        if self.refusal:  # it holds for all kernels alike, and nothing was assumed
            yield self.refusal
            return
        failed = [result for result in self.results if not result.ok and not result.unjudged]
        bad = f"{len(failed)} of {len(self.results)} do not compile, assuming what is below"
        if failed or self.ok:
            yield CAVEAT if self.ok else bad
        yield from self.unjudged
        width = max(len(result.kernel) for result in self.results)
        for r in self.results:
            head = f"  {r.kernel:<{width}}  {r.target:<7}"
            if r.ok:
                yield f"{head} {r.cubin_bytes:>8} bytes {r.seconds:6.2f} s  sha256 {r.sha256}"
            else:
                yield f"{head} {r.error}"
        if self.assumptions:
            yield "assumed:"
        yield from (f"  {line}" for line in self.assumptions)


def only_compiles(backend: str, environment: Environment) -> bool:
    """Whether this machine can compile kernels of a language but not run them."""
    return backend == CuTileBackend.name and lacks_gpu(environment) is not None


def compile_file(
    source: Source,
    file: Path,
    *,
    python: str,
    targets: Sequence[str] = (),
    timeout_s: float,
    pass_env: Collection[str] = (),
) -> Compilation:
    """Compile each kernel that the file launches, as it lies on disk.

    Args:
        source: the text of the file.
        file: where it is; imported from there.
        python: the interpreter that has cuda-tile and what the file imports.
        targets: GPU architectures such as 'sm_90'; `TARGETS` when empty.
        timeout_s: for all of it together; what is not done by then is killed, and is an error.
        pass_env: names of the variables that the file gets besides.

    Raises:
        UsageError: a target is no architecture, or the interpreter lacks what is needed.
    """
    targets = tuple(dict.fromkeys(targets)) or TARGETS
    if wrong := next((t for t in targets if not _TARGET.fullmatch(t)), None):
        raise UsageError(f"--target {wrong}: name an architecture such as sm_90")
    wanted = signatures(source)
    with tempfile.TemporaryDirectory(prefix="tile-agent-compile-") as scratch:
        ended = _run(wanted, file.resolve(), python, targets, timeout_s, Path(scratch), pass_env)
    return _read(wanted, file, python, targets, ended)


def _run(
    wanted: Iterable[Signature],
    file: Path,
    python: str,
    targets: Sequence[str],
    timeout_s: float,
    scratch: Path,
    pass_env: Collection[str],
) -> ScriptEnd:
    roots = import_roots(file)
    job = {
        "module": module_name(file, roots),
        "file": str(file),
        "sys_path": [str(root) for root in roots],
        "targets": list(targets),
        "kernels": [to_compile(signature) for signature in wanted],
    }
    variables = {
        "CUDA_TILE_CACHE_DIR": "0",  # a compile that was looked up proves nothing
        "CUDA_TILE_TEMP_DIR": str(scratch),
        "CUDA_TILE_COMPILER_TIMEOUT_SEC": str(timeout_s + 60),  # should this process be killed
    }
    script = Path(tile_agent_pytest.__file__).parent / "compile_cutile.py"
    return run_script(
        [python, str(script)],
        job,
        cwd=roots[-1],
        variables=variables,
        scratch=scratch,
        timeout_s=timeout_s,
        passed=pass_env,
    )


def to_compile(signature: Signature) -> dict[str, Any]:
    """A kernel's signature as `tile_agent_pytest.compile_cutile` takes it."""
    return {
        "name": signature.kernel,
        "hints": dict(signature.hints),
        "variants": [[p.to_json() for p in v.parameters] for v in signature.variants],
    }


def module_name(file: Path, roots: Sequence[Path]) -> str:
    """What Python calls the file when it is imported from the first root that holds it."""
    root = next((root for root in roots if file.is_relative_to(root)), file.parent)
    return ".".join(file.relative_to(root).with_suffix("").parts)


def _read(
    wanted: Sequence[Signature],
    file: Path,
    python: str,
    targets: Sequence[str],
    ended: ScriptEnd,
) -> Compilation:
    answers, fate, refusal = ended.answers, ended.fate, ""
    for answer in answers:
        if answer["event"] == "missing":
            raise UsageError(missing_in_words(python, answer))
        if answer["event"] == "import-failed" and answer["type"] == "ModuleNotFoundError":
            raise UsageError(
                f"{python} cannot import {file.name}: {answer['text']}; install it there, or name "
                "another interpreter with --python"
            )
        if answer["event"] == "import-failed":
            fate = f"{file.name} cannot be imported: {answer['type']}: {answer['text']}"
            refusal = with_remedy(fate, None)
    done = {(a["kernel"], a["target"]): a for a in answers if a["event"] == "done"}
    begun = [(a["kernel"], a["target"]) for a in answers if a["event"] == "begun"]
    results: list[CompiledKernel] = []
    assumptions: list[str] = []
    unjudged: list[str] = []
    for signature in wanted:
        variant, assumed = 0, signature.assumed
        for target in targets:
            if (signature.kernel, target) in done:
                end = done[signature.kernel, target]
                variant = end["variant"] if end["ok"] else variant
                results.append(_compiled(end, assumed))
            else:
                is_next = not begun or (signature.kernel, target) == begun[-1]
                error = fate if is_next else f"not begun; before it: {fate}"
                results.append(CompiledKernel(signature.kernel, target, ok=False, error=error))
        if any(r.unjudged for r in results if r.kernel == signature.kernel):
            unjudged.append(in_words(signature.kernel, assumed, file.name))
        if not refusal:
            assumptions += signature.variants[variant].assumptions
    return Compilation(tuple(results), tuple(assumptions), refusal, tuple(unjudged))


def _compiled(answer: dict[str, Any], assumed: Sequence[str]) -> CompiledKernel:
    return CompiledKernel(
        kernel=answer["kernel"],
        target=answer["target"],
        ok=answer["ok"],
        cubin_bytes=answer.get("cubin_bytes"),
        sha256=answer.get("sha256"),
        seconds=answer["seconds"],
        error=answer.get("error"),
        unjudged=not answer["ok"] and is_unjudged(answer.get("error"), assumed),
    )


def import_roots(file: Path) -> tuple[Path, ...]:
    """Folders for `sys.path`: the one above the file's outermost package, then the project's.

    The same that a run uses, but found on disk: a file need not be in a repository to be compiled.
    """

    def above(folder: Path) -> Path:
        while (folder / "__init__.py").exists() and folder != folder.parent:
            folder = folder.parent
        return folder

    folder = above(file.parent)
    project = next(
        (p for p in (folder, *folder.parents) if any((p / m).exists() for m in PROJECT_MARKS)),
        folder,
    )
    inner = (p for p in folder.parents if p.is_relative_to(project) and p != project)
    packages = [above(p) for p in inner if (p / "__init__.py").exists()]
    source = [project / "src"] if (project / "src").is_dir() else []
    roots = [folder, *packages, *source, project]
    return tuple(dict.fromkeys(roots))
