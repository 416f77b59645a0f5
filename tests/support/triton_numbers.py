"""Runs the host functions of Triton files in Triton's interpreter and compares what they return."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.warm_python import run_python

RUN = """
import importlib.util, json, sys
from types import SimpleNamespace
import torch

# What the host asks of a GPU: with one multiprocessor, every loop over programs has several rounds.
torch.cuda.current_device = lambda: 0
torch.cuda.get_device_properties = lambda _: SimpleNamespace(multi_processor_count=1)
torch.cuda.get_device_capability = lambda: (10, 0)

def load(path):
    spec = importlib.util.spec_from_file_location("kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def tuners(module):
    return [v for v in vars(module).values() if type(v).__name__ == "Autotuner"]

def results(module, wrapper, args):
    tuned = tuners(module)
    configs = max((len(t.configs) for t in tuned), default=1)
    for number in range(configs):
        held = [t.configs for t in tuned]
        for tuner in tuned:  # with one config there is nothing to time
            tuner.configs = [tuner.configs[min(number, len(tuner.configs) - 1)]]
        yield getattr(module, wrapper)(*(a.clone() for a in args))
        for tuner, all_of_them in zip(tuned, held):
            tuner.configs = all_of_them

wrapper, calls, before, others, rounding = json.loads(sys.argv[1])
modules = [load(path) for path in others]
for shapes in calls:
    torch.manual_seed(0)
    args = [torch.randn(shape) for shape in shapes]
    old, = list(results(load(before), wrapper, args))[:1]
    assert torch.isfinite(old).all() and (old.abs().max() > 0 or old.numel() == 1)
    for path, module in zip(others, modules):
        for new in results(module, wrapper, args):
            assert new.shape == old.shape and new.dtype == old.dtype, path
            if rounding:
                torch.testing.assert_close(new, old, rtol=1e-5, atol=1e-5)
            else:
                assert torch.equal(new, old), path
"""


def disagreement(
    wrapper: str,
    calls: list[list[list[int]]],
    before: str,
    texts: list[str],
    rounding: bool,
    folder: Path,
) -> str:
    """What the interpreter says against the texts; nothing when all compute what `before` does.

    Args:
        wrapper: the host function that each text has.
        calls: shapes of its tensors, for each call.
        before: the text to compare with.
        texts: those to compare; each config of one that tunes.
        rounding: whether results may differ in their last digits.
        folder: for the files.
    """
    paths = []
    for number, text in enumerate(dict.fromkeys([before, *texts])):
        paths.append(folder / f"kernel_{number}.py")
        paths[-1].write_text(text)
    first, *others = map(str, paths)
    task = json.dumps([wrapper, calls, first, others, rounding])
    done = run_python(RUN, task, environment={"TRITON_INTERPRET": "1"})
    return "" if done.returncode == 0 else done.stderr
