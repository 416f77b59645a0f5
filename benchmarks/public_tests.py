"""A file of TritonBench's set G, run by the test below its kernels, in Triton's interpreter.

Each of these files holds kernels, the functions that launch them and, below a line of number signs,
a test that calls those functions. A process of its own runs one file; it gives what the functions
returned and what their arguments held afterwards, which many of these tests throw away.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import random
import re
import signal
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from agent.harness.processes.results import read_launch
from agent.launches import ObservedLaunch
from tile_agent_pytest import mended_interpreter, missing_gpu
from tile_agent_pytest.examining.tensors import within
from tile_agent_pytest.observed_launches import LaunchObserver
from tile_agent_pytest.observed_tunings import TuningLog

_TEST_BELOW = re.compile(r"^#{80,}$", re.MULTILINE)


def asked(about: str | None, limit_s: float) -> argparse.Namespace:
    """What the command line of a benchmark over these files asks for; its folder is made.

    Args:
        about: what the benchmark's own docstring says.
        limit_s: of each file, where the command line gives none.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("tritonbench", type=Path, help="a git clone of it")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--limit-s", type=float, default=limit_s, help="of each file")
    found = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET") != "1":
        parser.error("set TRITON_INTERPRET=1: nothing is launched on a GPU")
    found.out.mkdir(parents=True, exist_ok=True)
    return found


@dataclass
class Outcome:
    """What a file's test gave."""

    fault: str = ""
    """Why it did not come to its end."""
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    launches: tuple[ObservedLaunch, ...] = ()
    took_s: float = 0.0


def parts(text: str) -> tuple[str, str]:
    """The kernels with what launches them, and the test."""
    below = _TEST_BELOW.search(text)
    cut = below.start() if below else len(text)
    return text[:cut], text[cut:]


def run(text: str, name: str, folder: Path, limit_s: float) -> Outcome:
    """Run a file in a process that is forked from this one, which has imported torch and Triton.

    Args:
        text: of the file.
        name: of the file, which its launches are known by.
        folder: where it is written, with what it printed.
        limit_s: after that it is killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kernels, test = parts(text)
    path, answer = folder / name, folder / "answer.pt"
    path.write_text(kernels, encoding="utf-8")
    answer.unlink(missing_ok=True)
    begun = time.monotonic()
    if (child := os.fork()) == 0:
        try:
            _in_child(path, test, answer)
        finally:
            os._exit(1)
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() - begun > limit_s:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Outcome(f"takes longer than {limit_s:.0f} s", took_s=limit_s)
        time.sleep(0.02)
    took_s = time.monotonic() - begun
    if not answer.exists():
        return Outcome("its process ended, as of memory that is not its own", took_s=took_s)
    told = torch.load(answer, weights_only=False)
    answer.unlink()
    launches = tuple(map(read_launch, told["launches"]))
    return Outcome(told["fault"], told["values"], launches, took_s)


def _in_child(path: Path, test: str, answer: Path) -> None:
    with path.with_suffix(".log").open("w") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = True
        mended_interpreter.mend_all()
        missing_gpu.install()
        random.seed(0)
        torch.manual_seed(0)
        told: dict[str, Any] = {"fault": "", "values": {}, "launches": []}
        observer = LaunchObserver(path.name, TuningLog(path.parent))
        try:
            with observer.watching("its test"):
                told["values"] = _values(path, test)
        except BaseException as problem:
            traceback.print_exc()
            told["fault"] = f"{type(problem).__name__}: {str(problem).splitlines()[0][:160]}"
        told["launches"] = observer.launches
        torch.save(told, answer)
        sys.stderr.flush()
    os._exit(0)


def _values(path: Path, test: str) -> dict[str, torch.Tensor]:
    """All tensors of the calls that the test makes, and those that it keeps in the module."""
    spec = importlib.util.spec_from_file_location(f"public_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    calls: list[tuple[Any, ...]] = []
    namespace = vars(module)
    depth = [0]
    for name, value in list(namespace.items()):
        if _is_of_the_file(value, spec.name):
            namespace[name] = _recorded(value, calls, depth)
    exec(compile(test, f"{path}, its test", "exec"), namespace)
    kept = {
        name: value
        for name, value in namespace.items()
        if isinstance(value, torch.Tensor | dict | list | tuple) and not name.startswith("__")
    }
    return _copies({**kept, "calls": calls})


def _copies(value: Any) -> dict[str, torch.Tensor]:
    """The tensors in a value as they are now."""
    return {place: tensor.detach().clone() for place, tensor in within(value, "").items()}


def _is_of_the_file(value: Any, module: str) -> bool:
    """Whether it is a function of the module, or `apply` of an operator of it."""
    owner = getattr(value, "__self__", None)
    held = value if isinstance(value, types.FunctionType) else owner
    is_one = isinstance(held, types.FunctionType | type) and not isinstance(value, type)
    return is_one and held.__module__ == module


def _recorded(
    function: Callable[..., Any], calls: list[tuple[Any, ...]], depth: list[int]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        depth[0] += 1
        try:
            result = function(*args, **kwargs)
        finally:
            depth[0] -= 1
        if not depth[0]:
            calls.append((function.__name__, _copies([result, args, kwargs])))
        return result

    return call
