"""What `agent.ported` says of a port that differs from its origin, or only seems to.

The ports stand here as they are, so that each fault is the one that is meant.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.support.repo import write
from tests.support.warm_python import warm_interpreter

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("cuda.tile", reason="cuda.tile is not installed")

TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, o_ptr, s, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o_ptr + i, tl.load(x_ptr + i) * s)


@triton.jit
def total(x_ptr, o_ptr, N: tl.constexpr):
    tl.store(o_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, N)), axis=0))


def scaled(x, o, s):
    scale[(1,)](x, o, s, N=x.numel())


def summed(x, o):
    total[(1,)](x, o, N=x.numel())
"""
CUTILE = """
import cuda.tile as ct
import torch


@ct.kernel
def scale(x, o, s, N: ct.Constant[int]):
    i = ct.arange(N, dtype=ct.int32)
    value = ct.gather(x, i) * FACTOR
    ct.scatter(o, i, ct.astype(value, o.dtype))


@ct.kernel
def total(x, o, N: ct.Constant[int]):
    value = ct.sum(ct.gather(x, ct.arange(N, dtype=ct.int32)), axis=0)
    ct.scatter(o, 0, ct.astype(value, o.dtype))


def scaled(x, o, s):
    ct.launch(torch.cuda.current_stream(), (1,), scale, (x, o, s, x.numel()))


def summed(x, o):
    ct.launch(torch.cuda.current_stream(), (1,), total, (x, o, x.numel()))
"""
"""FACTOR is `s` in a port that is right."""
HOST = """
import random

import numpy as np

import shared

BUFFER = torch.zeros(8)
STATE = {"last": torch.zeros(8)}


class Holder:
    def __init__(self):
        self.out = torch.zeros(8)
        self.twin = self

    def run(self, x, s):
        scaled(x, self.out, s)


class Slotted:
    __slots__ = ("value",)


def number(x, s):
    o = torch.empty(8)
    scaled(x, o, s)
    return o[3].item()


def flag(x, s):
    o = torch.empty(8)
    scaled(x, o, s)
    return {"big": bool(o.sum() > 60), "n": 3}


def to_global(x, s):
    scaled(x, BUFFER, s)


def to_state(x, s):
    STATE["last"] = torch.empty(8)
    scaled(x, STATE["last"], s)


def to_attribute(x, weight, s):
    assert weight.count == 3
    scaled(x, weight.main_grad, s)


def to_shared(x, s):
    shared.BUFFER.mul_(1)
    scaled(shared.BUFFER, shared.BUFFER, s)


def held(holder, x, s):
    holder.out = torch.empty(8)
    scaled(x, holder.out, s)


def by_method(holder, x, s):
    holder.run(x, s)


def unknown(x, s):
    scaled(x, torch.empty(8), s)
    made = Slotted()
    made.value = x
    return made


def nothing(s):
    scaled(torch.ones(8), torch.empty(8), s)


def drawn(x, s):
    o = torch.empty(8)
    scaled(torch.rand(8) * random.random() * np.random.rand(), o, s)
    return o


def drawn_from(generator, x, s):
    o = torch.empty(8)
    scaled(torch.rand(8, generator=generator), o, s)
    return o


def halves(x, s):
    o = torch.empty(8)
    scaled(x.half(), o, s)
    return o


def half_sum(x):
    o = torch.empty(1)
    summed(x, o)
    return o


def wide_sum(x, wrong):
    o = torch.empty(1)
    summed(x, o)
    return o
"""
SHARED = """
import torch

BUFFER = torch.ones(8)
"""
TESTS = """
import torch

import kernel
import shared

X = torch.arange(8.0)


def test_values():
    torch.manual_seed(0)
    assert kernel.number(X, 2.0) == 6
    assert not kernel.flag(X, 2.0)["big"]
    kernel.to_global(X, 2.0)
    assert torch.equal(kernel.BUFFER, 2 * X)
    kernel.to_state(X, 2.0)
    assert torch.equal(kernel.STATE["last"], 2 * X)
    kernel.to_shared(X, 2.0)
    kernel.to_shared(X, 2.0)
    assert torch.equal(shared.BUFFER, torch.full((8,), 4.0))


def test_objects():
    holder = kernel.Holder()
    kernel.held(holder, X, 2.0)
    assert torch.equal(holder.out, 2 * X), holder.out
    kernel.by_method(holder, X, 3.0)
    assert torch.equal(holder.out, 3 * X), holder.out
    assert holder.twin is holder


    weight = torch.nn.Parameter(torch.ones(8))
    weight.main_grad, weight.count, weight.itself = torch.empty(8), 3, weight
    kernel.to_attribute(X, weight, 2.0)
    assert torch.equal(weight.main_grad, 2 * X)


def test_others():
    kernel.unknown(X, 2.0)
    kernel.nothing(2.0)


def test_random_numbers():
    torch.manual_seed(0)
    kernel.drawn(X, 2.0)
    after = torch.rand(1)
    torch.manual_seed(0)
    torch.rand(8)
    assert torch.rand(1) == after
    kernel.drawn_from(torch.Generator().manual_seed(1), X, 2.0)


def test_types():
    kernel.halves(X, 1.5)
    torch.manual_seed(0)
    for _ in range(5):
        kernel.half_sum(torch.randn(64).half())
    kernel.wide_sum(torch.randn(64), False)
"""


def answers(folder: Path, factor: str) -> dict[str, list[dict[str, Any]]]:
    """What the plugin says of the calls of each function."""
    from agent.harness.processes.script import plugin_folder, run_script
    from agent.ported import VARIABLES

    names = [
        line.split("(")[0].removeprefix("def ")
        for line in HOST.splitlines()
        if line.startswith("def ")
    ]
    write(
        folder,
        {
            "kernel.py": TRITON + HOST,
            "port.py": CUTILE.replace("FACTOR", factor) + HOST,
            "shared.py": SHARED,
            "test_kernel.py": TESTS,
        },
    )
    job = {
        "origin": str(folder / "kernel.py"), "port": str(folder / "port.py"),
        "functions": names, "replace": False, "targets": [],
    }  # fmt: skip
    scratch = folder / "scratch"
    scratch.mkdir()
    end = run_script(
        [
            warm_interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "-p", "tile_agent_pytest.mending_plugin", "-p", "tile_agent_pytest.ported",
            "test_kernel.py",
        ],
        job,
        cwd=folder,
        variables={
            **VARIABLES,
            "TILE_AGENT_PORTED": str(scratch / "job"),
            "PYTHONPATH": os.pathsep.join([str(folder), str(plugin_folder(scratch))]),
        },
        scratch=scratch,
        timeout_s=300,
    )  # fmt: skip
    log = (scratch / "log").read_text()
    assert end.answers, log
    last = {"event": "end", "passed": 5, "failed": 0, "launching": 5, "failing": [], "skipped": []}
    last |= {"kernels": ["scale", "total"], "elsewhere": []}
    assert end.answers[-1] == last, log
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for answer in end.answers[:-1]:
        found[answer["function"]].append(answer)
    return found


def test_a_port_that_is_right_agrees_and_leaves_what_the_origin_made(tmp_path: Path) -> None:
    found = answers(tmp_path, "s")
    wrong = {name: calls for name, calls in found.items() if any(c["problem"] for c in calls)}
    assert not wrong, json.dumps(wrong, indent=1)
    assert found["nothing"][0]["values"] == 0
    assert found["nothing"][0]["silent"] == "return None and change nothing that they are given"
    assert found["nothing"][0]["kernels"] == ["scale"]
    assert found["unknown"][0]["uncompared"] == ["its result, of Slotted"]
    assert found["unknown"][0]["values"] == 0
    silent = ("nothing", "unknown")
    assert all(c["values"] for name, calls in found.items() for c in calls if name not in silent)


def test_what_is_wrong_is_seen_wherever_a_call_leaves_it(tmp_path: Path) -> None:
    found = answers(tmp_path, "(s + 1)")
    assert found["number"][0]["problem"] == "its result is 9.0, the origin's 6.0"
    blind = {"nothing", "unknown", "half_sum", "wide_sum"}
    agree = {name for name, calls in found.items() if not all(c["problem"] for c in calls)}
    assert agree == blind


def test_a_narrower_type_is_seen_though_the_numbers_agree(tmp_path: Path) -> None:
    found = answers(tmp_path, "ct.astype(s, x.dtype)")
    assert found.pop("halves")[0]["problem"] == (
        "multiplies in float16, where the origin multiplies in no less than float32"
    )
    assert not any(call["problem"] for calls in found.values() for call in calls)
