"""The program behind `compiling.py`; it runs alone, with a project's package to import."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

SWITCHES = {"has", "use", "is", "store", "enable", "apply", "with", "return", "save", "causal"}
INTEGERS = ("idx", "index", "indices", "offset", "len", "label", "target", "ids", "mask", "table")
FRACTIONS = ("eps", "scale", "alpha", "beta", "gamma", "weight", "soft", "smooth", "temp", "prob")
TYPES = {4: "fp32", 2: "fp16", 0: "i32"}
"""Bytes of a number with a fraction -> how Triton names it; 0 for a whole one."""
SIZE = 64
"""Of every constant that nothing says otherwise about; a tile of it fits any kernel."""


class NoGuess(Exception):
    """The original does not compile with what was guessed."""


class Guess(NamedTuple):
    """How an original compiles."""

    module: str
    """The name that it is imported by."""
    element: str
    """The type of the elements behind its pointers."""


def main(jobs: list[dict[str, Any]], folder: Path, limit: int) -> None:
    """One line of JSON a job; an entry that compiled `limit` times is covered."""
    times = Counter[str]()
    guesses: dict[tuple[str, str], Guess | NoGuess] = {}
    for number, job in enumerate(jobs):
        if times[job["entry"]] == limit:
            answer("not needed")
            continue
        try:
            compile_both(job, folder / f"after_{number}", guesses)
        except NoGuess as problem:
            answer("no guess", problem)
        except Exception as problem:
            answer("broken", problem)
        else:
            times[job["entry"]] += 1
            answer("compiled")


def answer(outcome: str, problem: Exception | None = None) -> None:
    print(json.dumps({"outcome": outcome, "reason": one_line(problem) if problem else ""}))
    sys.stdout.flush()


def compile_both(
    job: dict[str, Any], folder: Path, guesses: dict[tuple[str, str], Guess | NoGuess]
) -> None:
    """The original, where no earlier job has, and then the changed kernel with the same types."""
    key = (job["file"], job["kernel"])
    if key not in guesses:
        guesses[key] = guess(job)
    found = guesses[key]
    if isinstance(found, NoGuess):
        raise found
    folder.mkdir()
    path = folder / Path(job["file"]).name
    path.write_text(job["after"], encoding="utf-8")
    after = loaded(found.module, path)
    compile_kernel(getattr(after, job["kernel"]), job, found.element)


def guess(job: dict[str, Any]) -> Guess | NoGuess:
    """The first element type with which the original compiles, or why there is none."""
    problems = []
    for element in ("fp32", "fp16"):
        try:
            before = imported(job["root"], Path(job["file"]))
            compile_kernel(getattr(before, job["kernel"]), job, element)
        except Exception as problem:
            problems.append(one_line(problem))
        else:
            return Guess(before.__name__, element)
    return NoGuess("; ".join(problems))


def imported(root: str, file: Path) -> ModuleType:
    if root not in sys.path:
        sys.path.insert(0, root)
    parts = file.relative_to(root).with_suffix("").parts
    return importlib.import_module(".".join(parts))


def loaded(name: str, path: Path) -> ModuleType:
    """A file in the place of a module: what it imports relative to itself is found."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_kernel(kernel: Any, job: dict[str, Any], element: str) -> None:
    """Compile for sm_90, with the last config of a kernel that tunes itself."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    given: dict[str, Any] = dict(job["constants"])
    options: dict[str, Any] = {}
    computed: dict[str, Any] = {}
    while not hasattr(kernel, "cache_key"):
        if type(kernel).__name__ == "Autotuner":
            config = kernel.configs[-1]
            given |= config.kwargs
            options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
        elif type(kernel).__name__ == "Heuristics":
            computed |= kernel.values
        kernel = kernel.fn
    defaults = inspect.signature(kernel.fn).parameters
    signature: dict[str, str] = {}
    values: dict[str, Any] = {}
    for parameter in kernel.params:
        name, default = parameter.name, defaults[parameter.name].default
        if parameter.is_constexpr:
            signature[name] = "constexpr"
            fallback = constant(name) if default is inspect.Parameter.empty else default
            values[name] = given.get(name, fallback)
        elif name in job["pointers"]:
            whole = any(part in name.lower() for part in INTEGERS)
            signature[name] = "*i32" if whole else f"*{element}"
        else:
            signature[name] = "fp32" if any(p in name.lower() for p in FRACTIONS) else "i32"
    given_types = dict(signature)
    for name, compute in computed.items():
        if name in values:
            values[name] = guessed(compute, given_types, values)
    for name, compute in computed.items():
        made = guessed(compute, given_types, values) if name not in values else None
        if hasattr(made, "block_shape"):
            element_type = TYPES[made.base.dtype.itemsize * made.base.dtype.is_floating_point]
            signature[name] = f"tensordesc<{element_type}{list(made.block_shape)}>"
    constants = {(i,): values[name] for i, name in enumerate(kernel.arg_names) if name in values}
    compile(
        ASTSource(kernel, signature, constants),
        target=GPUTarget("cuda", 90, 32),
        options=options,
    )


def constant(name: str) -> Any:
    """A value for a constant of which nothing but the name is known."""
    if "dtype" in name.lower():
        return importlib.import_module("triton.language").float32
    return False if SWITCHES & set(name.lower().split("_")) else SIZE


def guessed(compute: Any, signature: dict[str, str], values: dict[str, Any]) -> Any:
    """What a heuristic says of tensors that are there and aligned, and of lengths that are even."""
    torch = importlib.import_module("torch")
    types = {"*fp32": torch.float32, "*fp16": torch.float16, "*i32": torch.int32}
    arguments = {
        name: torch.empty(SIZE, SIZE, dtype=types[kind], device="meta")
        if kind in types
        else 16 * SIZE
        for name, kind in signature.items()
    }
    try:
        return compute(arguments | values)
    except Exception:
        return False


def one_line(problem: BaseException) -> str:
    return " ".join(f"{type(problem).__name__}: {problem}".split())[-300:]


if __name__ == "__main__":
    sys.path[:0] = sys.argv[2:]
    task = Path(sys.argv[1])
    main(**json.loads(task.read_text()), folder=task.parent)
