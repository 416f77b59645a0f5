"""Runs a kernel's wrapper on made inputs, keeps what it did, and times it where asked.

Triton's interpreter cannot time the configs of an autotuned kernel, so it runs every one.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tile_agent_pytest.bench import count_for, open_sampler
from tile_agent_pytest.tile_ir.inputs import broken_bands, flattened, make
from tile_agent_pytest.tile_ir.probe import in_one_line, target
from tile_agent_pytest.tuned import autotuners, take_first_configs

Message = dict[str, Any]


def run(job: Message, answer: Callable[..., None]) -> None:
    """Call the wrapper once a case, or once a case and config.

    The job's keys are those of `agent.harness.tile_ir`.
    """
    try:
        import torch

        module = load(job["file"], job["module"], job["sys_path"])
        wrapper = getattr(module, job["function"])
    except BaseException as problem:
        answer("import-failed", text=in_one_line(problem))
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    compiler, said = (None, None) if interpreted else target()
    answer("ready", device=device, interpreted=interpreted, target=compiler, target_error=said)
    if interpreted:
        take_first_configs()
    launches = _counting([getattr(module, name, None) for name in job["kernels"]])
    out = Path(job["out"])
    run_number = 0
    for number, case in enumerate(job["cases"]):
        for config in _each_config(module) if interpreted else (None,):
            file = f"{run_number}.pt"
            told: Message = {"number": number, "config": config, "file": file}
            run_number += 1
            try:
                facts = _once(wrapper, job, case, device, out / file)
                facts["launches"], launches[0] = launches[0], 0
                if job["rep_ms"]:
                    facts["timing"] = _timed(wrapper, make(job["arguments"], case, device), job)
            except BaseException as failure:
                answer("case", **told, error=in_one_line(failure))
                if device == "cuda" and not isinstance(failure, Exception):
                    answer("ended")  # killed from within: nothing after it can be believed
                    return
            else:
                answer("case", **told, error=None, **facts)
    answer("ended")


def _each_config(module: Any) -> Iterator[str | None]:
    """Hold every autotuned kernel of a module to one config after the other, and name it.

    Configs that differ in warps or stages alone are one to the interpreter. Where a function of
    the author's prunes them for each call, any other may be wrong: the first that is left is run.
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
    for index in range(max((len(some) for _, some, _ in distinct), default=1)):
        named: dict[str, None] = {}
        for tuner, some, _ in distinct:
            config = some[min(index, len(some) - 1)]
            tuner.configs = [config]
            named |= dict.fromkeys(f"{name}={value}" for name, value in config.kwargs.items())
        yield ", ".join(named) or None
    for tuner, _, configs in distinct:
        tuner.configs = configs


def load(file: str, name: str, sys_path: list[str]) -> Any:
    """Import a file as the module it is in its project."""
    sys.path[:0] = sys_path
    module = importlib.import_module(name)
    found = os.path.realpath(str(module.__file__))
    if found != os.path.realpath(file):
        raise ImportError(f"{name} is {found} and not {file}")
    return module


def _once(
    wrapper: Callable[..., Any], job: Message, case: Message, device: str, out: Path
) -> Message:
    import torch

    made = make(job["arguments"], case, device)
    before = {k: v.clone() for k, v in made.items() if isinstance(v, torch.Tensor)}
    with torch.no_grad():
        results = flattened(wrapper(**made))
    if device == "cuda":
        torch.cuda.synchronize()
    changed = [k for k, v in before.items() if not _same(v, made[k])]
    pointers = {made[k].data_ptr(): k for k in before}
    torch.save(
        {
            "results": [r.cpu() for r in results],
            "after": {k: made[k].clone().cpu() for k in before},
        },
        out,
    )
    return {
        "changed": changed,
        "aliases": [pointers.get(r.data_ptr()) for r in results],
        "broken": list(broken_bands(made)),
    }


def _same(one: Any, other: Any) -> bool:
    """Bit for bit; a NaN equals itself."""
    import torch

    pair = (t.contiguous().view(torch.uint8) if t.dim() else t for t in (one, other))
    return bool(torch.equal(*pair))


def _timed(wrapper: Callable[..., Any], made: dict[str, Any], job: Message) -> Message:
    """The median of the samples of one process; compilation and tuning are over by then."""
    import statistics

    sampler, estimate_ms = open_sampler(lambda: wrapper(**made), job["method"])
    sampler.sample(count_for(job["rep_ms"] / 4, estimate_ms, at_least=1))
    samples = sampler.sample(count_for(job["rep_ms"], estimate_ms, at_least=5))
    return {
        "median_ms": statistics.median(samples),
        "samples": len(samples),
        "method": sampler.method,
        "sampler": type(sampler).__name__,
    }


def _counting(kernels: list[Any]) -> list[int]:
    """A count of the launches of these kernels, which goes up with each."""
    count = [0]
    for kernel in kernels:
        launch = getattr(kernel, "run", None)
        if launch is None:
            continue

        def run(*args: Any, _launch: Any = launch, **kwargs: Any) -> Any:
            count[0] += 1
            return _launch(*args, **kwargs)

        kernel.run = run
    return count
