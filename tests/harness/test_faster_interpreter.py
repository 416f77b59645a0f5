"""What is kept of Triton's interpreter is what it would make anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.warm_python import run_python

pytest.importorskip("triton", reason="triton is not installed")

USE_SHAPES = """
import itertools
import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from tile_agent_pytest import faster_interpreter

core, of_triton = tl.core, (tl.block_type.__init__, tl.tensor.__init__)
faster_interpreter.keep(interpreter)
kept = (tl.block_type.__init__, tl.tensor.__init__)
faster_interpreter.keep(interpreter)
assert all(new is not old for new, old in zip(kept, of_triton))
assert kept == (tl.block_type.__init__, tl.tensor.__init__)


def told(make, kind, shape):
    tl.block_type.__init__, tl.tensor.__init__ = make
    try:
        block = tl.block_type(kind, shape)
    except Exception as problem:
        return repr(problem)
    tensor = tl.tensor("handle", block)
    scalar = tl.tensor("handle", kind)
    return [
        (type(v), str(v)) for each in (block, tensor, scalar) for n, v in sorted(vars(each).items())
        if n != faster_interpreter.KEPT
    ] + [(type(n), n) for n in block.shape] + [(type(n), n.value, n.type) for n in tensor.shape]


kinds = [tl.float32, tl.int1, tl.pointer_type(tl.float16)]
one, two, four = (tl.constexpr(n) for n in (1, 2, 4))
shapes = [
    [4], (4,), [2, 4], [four], [2, four], (two, four), tl.tuple([2, 4]), core.tuple([two]), [1],
    [one, 4], [True], [2, 1, 4], [], [3], [0], [4.0], ["4"], [np.int64(4)], [2**21], 4, [None],
    [tl.constexpr(3)], [tl.constexpr(4.0)],
]
wrong = [
    (kind, shape)
    for kind, shape, _ in itertools.product(kinds, shapes, range(2))
    if told(kept, kind, shape) != told(of_triton, kind, shape)
]
print(wrong)
"""
USE_BUILTINS = """
import triton.language as tl
from triton.runtime import interpreter
from tile_agent_pytest import faster_interpreter

of_triton = interpreter._patch_builtin
faster_interpreter.keep(interpreter)
kept = interpreter._patch_builtin
faster_interpreter.keep(interpreter)
assert kept is interpreter._patch_builtin is not of_triton
owners = (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base)


def replaced(patch):
    launch, call, again = (interpreter._LangPatchScope() for _ in range(3))
    for scope in (launch, call, again):
        if scope is again:
            launch.restore()
        for owner in owners:
            patch(owner, None, scope)
    seen = [[change[:2] for change in scope._changes] for scope in (launch, call, again)]
    again.restore()
    return [len(launch._changes), *seen]


def compare():
    for _ in range(2):
        assert replaced(kept) == (expected := replaced(of_triton))
    return {name for _, name in expected[3]}


scope = interpreter._LangPatchScope()
of_triton(tl.math, None, scope)
kept(tl.math, None, scope)  # for the first time, and replaced already
scope.restore()
before = compare()
tl.another = tl.core.builtin(lambda x, _semantic=None: x)
print(sorted(before & {"load", "exp", "__add__", "another"}), compare() - before)
"""


def result(program: str, folder: Path) -> str:
    """What a program prints where Triton interprets."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(folder)}
    done = run_python(program, environment=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_types_and_tensors_are_what_triton_makes_and_refuses(tmp_path: Path) -> None:
    assert result(USE_SHAPES, tmp_path) == "[]\n"


def test_a_launch_replaces_what_it_always_does(tmp_path: Path) -> None:
    assert result(USE_BUILTINS, tmp_path) == "['__add__', 'exp', 'load'] {'another'}\n"
