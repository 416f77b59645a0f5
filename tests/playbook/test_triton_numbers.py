"""Every Triton entry keeps the numbers of its example, run in Triton's interpreter.

bfloat16 is left out: the interpreter multiplies the bit patterns of its tiles. Whatever an entry
tunes, each of its configs is run and compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.backends.base import KernelClass
from agent.playbook import for_backend
from agent.playbook.base import Hardware, Optimization, Subject
from agent.syntax import Source

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

ROWS: list[list[list[int]]] = [[[3, 1024]], [[5, 77]], [[1, 1]], [[4, 2500]]]
"""Shapes of the tensors of one call, several calls."""
PRODUCTS: list[list[list[int]]] = [
    [[64, 64], [64, 64]],
    [[70, 36], [36, 132]],
    [[70, 33], [33, 130]],
    [[1, 7], [7, 3]],
]
SHAPES: dict[str, tuple[str, list[list[list[int]]]]] = {
    "warps-and-stages": ("softmax", ROWS),
    "block-size": ("gelu", ROWS),
    "loop-stages": ("row_sum", ROWS),
    "eviction-policy": ("rms_norm", [[*shapes, shapes[0][1:]] for shapes in ROWS]),
    "reciprocal-square-root": ("layer_norm", ROWS),
    "warps-by-row": ("log_softmax", ROWS),
    "row-in-registers": ("l2_normalize", ROWS),
    "add-autotune": ("add", [[shapes[0], shapes[0]] for shapes in ROWS]),
    "widen-configs": ("relu", ROWS),
    "grouped-programs": ("matmul", PRODUCTS),
    "even-blocks": ("scale", ROWS),
    "folded-exp2": ("scaled_softmax", ROWS),
    "tile-descriptors": ("matmul", PRODUCTS),
    "persistent-programs": ("center", ROWS),
    "aligned-offsets": ("mix", [*ROWS[:2], [[4, 2448]]]),
    "unrolled-loops": ("row_max", ROWS),
    "static-ranges": ("powers", ROWS),
    "cache-modifiers": ("gate", [[shapes[0], shapes[0]] for shapes in ROWS]),
    "hoisted-reciprocal": ("share", ROWS),
    "block-descriptors": ("row_sum", [*ROWS, [[3, 77]], [[20, 132]]]),
    "epilogue-halves": ("matmul", PRODUCTS),
    "tf32-dots": ("gram", [[[16, 16]], [[37, 37]], [[1, 1]]]),
}
"""Host function of each example, and what to call it with."""

REFERENCES = {"block-descriptors": "def row_sum(x):\n    return x.sum(dim=1)\n"}
"""What to compare with where the example needs a Triton that still has block pointers."""

RUN = """
import importlib.util, json, sys
from types import SimpleNamespace
import torch

# What the host asks of a GPU: with one multiprocessor, every loop over programs has several rounds.
torch.cuda.current_device = lambda: 0
torch.cuda.get_device_properties = lambda _: SimpleNamespace(multi_processor_count=1)

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

wrapper, calls, before, others, rounding, whole_numbers = json.loads(sys.argv[1])
modules = [load(path) for path in others]
for shapes in calls:
    torch.manual_seed(0)
    if whole_numbers:
        args = [torch.randint(-3, 4, shape).float() for shape in shapes]
    else:
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


@pytest.mark.parametrize("entry", for_backend("triton"), ids=lambda entry: entry.name)
def test_numbers_are_kept(entry: Optimization, tmp_path: Path) -> None:
    subject = Subject(Source(entry.before), KernelClass.MEMORY, Hardware())
    texts = [entry.after, *(entry.apply(subject, params) for params in entry.variants(subject))]
    wrapper, calls = SHAPES[entry.name]
    before = REFERENCES.get(entry.name, entry.before)
    rounding = entry.changes_rounding or before is not entry.before
    assert agreed(wrapper, calls, before, texts, rounding, tmp_path) == ""


def agreed(
    wrapper: str,
    calls: list[Any],
    before: str,
    texts: list[str],
    rounding: bool,
    folder: Path,
    *,
    whole_numbers: bool = False,
) -> str:
    """What the interpreter says against the texts; nothing when all compute what `before` does."""
    paths = []
    for number, text in enumerate(dict.fromkeys([before, *texts])):
        paths.append(folder / f"kernel_{number}.py")
        paths[-1].write_text(text)
    first, *others = map(str, paths)
    task = json.dumps([wrapper, calls, first, others, rounding, whole_numbers])
    done = subprocess.run(
        [sys.executable, "-c", RUN, task],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    return "" if done.returncode == 0 else done.stderr
