"""Calls a kernel's function on made inputs and keeps what it did.

Triton's interpreter cannot time the configs of an autotuned kernel, so it runs every one.
"""

from __future__ import annotations

import importlib
import operator
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tile_agent_pytest.missing_gpu import stands_in
from tile_agent_pytest.tile_ir import WANTED_BACKEND
from tile_agent_pytest.tile_ir.inputs import broken_bands, flattened, make
from tile_agent_pytest.tile_ir.probe import in_one_line, target
from tile_agent_pytest.tuned import autotuners

Message = dict[str, Any]


def load(file: str, name: str) -> Any:
    """Import a file as the module it is in its project.

    Raises:
        ImportError: Python finds another file by that name.
    """
    module = importlib.import_module(name)
    found = os.path.realpath(str(module.__file__))
    if found != os.path.realpath(file):
        raise ImportError(f"{name} is {found} and not {file}")
    return module


def function_of(module: Any, name: str) -> Callable[[dict[str, Any]], Any]:
    """A function of a module, to be called with its arguments by name.

    `apply` of an autograd function takes them by their places.
    """
    import torch

    function = operator.attrgetter(name)(module)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return lambda made: function(*made.values())
    return lambda made: function(**made)


def insist_on_backend() -> None:
    """Fail where another backend compiles than the one wanted: it would be judged in its place."""
    wanted = os.environ.get(WANTED_BACKEND)
    found, said = target() if wanted else (None, None)
    if wanted and (found is None or found["backend"] != wanted):
        pytest.fail(said or f"the target is {found and found['backend']}", pytrace=False)


def device() -> str:
    """Where the arguments lie; "cuda" is the CPU where it stands in for a GPU."""
    import torch

    return "cuda" if torch.cuda.is_available() or stands_in() else "cpu"


def run(module: Any, job: Message, number: int, folder: Path) -> Iterator[Message]:
    """Call the function for one case; in the interpreter once for each config of what tunes.

    Args:
        module: the kernel's file.
        job: as `agent.harness.kernel_calls` writes it.
        number: of the case.
        folder: where what each call did is kept.

    Yields:
        The config of a call, and the error that ended it.
    """
    import torch

    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    configs = _each_config(module) if interpreted else [_unnamed]
    for index, named in enumerate(configs):
        error = None
        try:
            function = function_of(module, job["function"])
            did = _once(function, job["arguments"], job["cases"][number])
            torch.save(did, folder / f"{number}-{index}.pt")
        except Exception as failure:
            error = _with_its_line(failure, module)
        yield {"config": named(), "error": error}


def _with_its_line(failure: Exception, module: Any) -> str:
    """What was raised, and the last line of the kernel's file on the way there."""
    text = in_one_line(failure)
    frames = traceback.extract_tb(failure.__traceback__)
    own = [frame for frame in frames if frame.filename == module.__file__]
    return f"{text} (line {own[-1].lineno}: {own[-1].line})" if own else text


def _unnamed() -> str | None:
    """No config was held."""
    return None


def _each_config(module: Any) -> Iterator[Callable[[], str | None]]:
    """Hold the autotuned kernels of a module to one config after the other.

    Those that the first call launches count: others of the file have configs of their own. Configs
    that differ in warps or stages alone are one to the interpreter. Where a function of the
    author's prunes them for each call, any other may be wrong: the first that is left is run.

    Yields:
        What names the configs, once the call is made.
    """
    distinct = [
        (
            tuner,
            list({(str(c.kwargs), c.pre_hook): c for c in tuner.configs}.values()),
            tuner.configs,
        )
        for _, tuner in autotuners(module)
        if not getattr(tuner, "early_config_prune", None)
    ]
    launched: set[int] = set()

    def noting(tuner: Any) -> Callable[..., Any]:
        runs = tuner.run

        def noted(*args: Any, **kwargs: Any) -> Any:
            launched.add(id(tuner))
            return runs(*args, **kwargs)

        return noted

    def named() -> str | None:
        pairs = (
            f"{name}={value}"
            for tuner, _, _ in distinct
            if id(tuner) in launched
            for name, value in tuner.configs[0].kwargs.items()
        )
        return ", ".join(dict.fromkeys(pairs)) or None

    for tuner, _, _ in distinct:
        tuner.run = noting(tuner)
    index, most = 0, 1
    while index < most:
        for tuner, some, _ in distinct:
            tuner.configs = [some[min(index, len(some) - 1)]]
        yield named
        most = max((len(some) for tuner, some, _ in distinct if id(tuner) in launched), default=1)
        index += 1
    for tuner, _, configs in distinct:
        tuner.configs = configs
        del tuner.run


def _once(
    function: Callable[[dict[str, Any]], Any], arguments: list[Message], case: Message
) -> Message:
    """Tensors on the CPU, so that the judge's process can read them: results, and arguments after.

    Of results, None stands for what is no tensor. `changed` names the arguments that differ now,
    `aliases` those that are results, and `broken` those beside which something was written.
    """
    import torch

    made = make(arguments, case, device())
    before = {k: v.clone() for k, v in made.items() if isinstance(v, torch.Tensor)}
    with torch.no_grad():
        results = flattened(function(made))
    if device() == "cuda":
        torch.cuda.synchronize()
    pointers = {made[k].data_ptr(): k for k in before}
    return {
        "results": [None if r is None else r.cpu() for r in results],
        "after": {k: made[k].clone().cpu() for k in before},
        "changed": [k for k, v in before.items() if not _same(v, made[k])],
        "aliases": [None if r is None else pointers.get(r.data_ptr()) for r in results],
        "broken": list(broken_bands(made)),
    }


def _same(one: Any, other: Any) -> bool:
    """Bit for bit; a NaN equals itself."""
    import torch

    pair = (t.contiguous().view(torch.uint8) if t.dim() else t for t in (one, other))
    return bool(torch.equal(*pair))
