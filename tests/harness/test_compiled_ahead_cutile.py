"""Configs of cuTile's search are compiled side by side, into the cache where it looks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agent.environment import probe
from tests.support.warm_python import run_python

pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

KERNEL = """
    import cuda.tile as ct


    @ct.kernel
    def scale(x, y, TILE: ct.Constant[int]):
        block = ct.bid(0)
        ct.store(y, (block,), ct.load(x, (block,), (TILE,)) * 2)


    def tuned(compile, *args):
        compile(*args)
"""
PROGRAM = """
import json
import os
import sys

os.sched_getaffinity = lambda _: {0, 1}
sys.path.insert(0, sys.argv[1])
import cuda.tile as ct
from cuda.tile import _compile
from cuda.tile._cext import default_tile_context
from cuda.tile.compilation import KernelSignature
from tile_agent_pytest.compile_cutile import Compiler
from tile_agent_pytest.examining.programs import StartedPrograms
from tile_agent_pytest import compiled_ahead_cutile as ahead, forked_work
from tile_agent_pytest.compiled_ahead_cutile import PendingCompilation

forked_work.children = lambda _: []  # whatever else runs beside this

import kernel

compiler = Compiler.installed()
array = {"kind": "array", "dtype": "float32", "ndim": 1, "index_dtype": "int32"}
wanted = []
for tile in json.loads(sys.argv[2]):
    constraints = compiler.constraints(
        kernel.scale, [array, array, {"kind": "constant", "value": tile}]
    )
    signature = KernelSignature(constraints, compiler._convention)
    wanted.append(PendingCompilation(kernel.scale, signature, default_tile_context, (9, 0)))
programs = StartedPrograms("kernel.py")
ahead._compilations = lambda given: wanted  # a launch tells them, which needs a GPU
kernel.tuned(
    ahead.compile_search_first,
    ct.tune.exhaustive_search, range(len(wanted)), None, None, kernel.scale, None,
)

compiled = []
original = _compile.compile_cubin
_compile.compile_cubin = lambda *args, **kwargs: compiled.append(1) or original(*args, **kwargs)
failed = []
for each in wanted:
    try:
        each.into_cache()
    except Exception as problem:
        failed.append(type(problem).__name__)
started = programs.found()
kernel.tuned(ahead.compile_side_by_side, wanted[:2])
print(json.dumps({"compiled": len(compiled), "failed": failed, "started": started}))
assert (programs.found() == ["os.fork"]) == (sys.argv[3] != "0")  # not by way of a search
"""


def compiled_on(tmp_path: Path, tiles: list[int], cache: str) -> dict[str, Any]:
    (tmp_path / "kernel.py").write_text(textwrap.dedent(KERNEL))
    ended = run_python(
        PROGRAM,
        str(tmp_path),
        json.dumps(tiles),
        cache,
        environment={"CUDA_TILE_CACHE_DIR": cache},
        kind="compiler",
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_the_search_finds_all_of_them(tmp_path: Path) -> None:
    seen = compiled_on(tmp_path, [64, 128, 256], str(tmp_path / "cache"))
    assert seen == {"compiled": 0, "failed": [], "started": []}


def test_what_does_not_compile_is_left_to_the_search(tmp_path: Path) -> None:
    seen = compiled_on(tmp_path, [64, 100, 128], str(tmp_path / "cache"))
    assert seen["compiled"] == 0
    assert len(seen["failed"]) == 1  # no tile of 100


def test_without_a_cache_nothing_is_compiled_in_vain(tmp_path: Path) -> None:
    assert compiled_on(tmp_path, [64, 128], "0")["compiled"] == 2


TOO_LONG = """
import sys

sys.path.insert(0, sys.argv[1])
os.sched_getaffinity = lambda _: {0, 1}
import cuda.tile as ct
from cuda.tile import _compile
from cuda.tile._cext import default_tile_context
from cuda.tile.compilation import KernelSignature
from tile_agent_pytest.compile_cutile import Compiler
from tile_agent_pytest import compiled_ahead_cutile as ahead, forked_work

forked_work.children = lambda _: []
import kernel

compiler = Compiler.installed()
array = {"kind": "array", "dtype": "float32", "ndim": 1, "index_dtype": "int32"}


def pending(tile, **hints):
    constraints = compiler.constraints(
        kernel.scale, [array, array, {"kind": "constant", "value": tile}]
    )
    signature = KernelSignature(constraints, compiler._convention)
    scale = kernel.scale.replace_hints(**hints)
    return ahead.PendingCompilation(scale, signature, default_tile_context, (9, 0))


with ct.compiler_timeout(0.001):
    found = ahead.compile_side_by_side([pending(64), pending(128)])
assert default_tile_context.config.compiler_timeout_sec != 0.001
assert len(found) == 2, found
asked = []
original = _compile.compile_cubin
_compile.compile_cubin = lambda *args, **kwargs: asked.append(1) or original(*args, **kwargs)
with ahead.ending_at_once(found):
    again = pending(64)  # another object of the same kernel
    try:
        ct.kernel._compile(again.kernel, again.signature, again.context, (9, 0))
        raise SystemExit("it was compiled")
    except ct.TileCompilerTimeoutError as problem:
        assert "exceeded timeout" in str(problem), problem
    assert not asked
    for other in (pending(256), pending(64, occupancy=2)):
        ct.kernel._compile(other.kernel, other.signature, other.context, (9, 0))
    assert len(asked) == 2
again.into_cache()
assert len(asked) == 3
print("[]")
"""


def test_what_took_too_long_ends_at_once_in_the_search(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(textwrap.dedent(KERNEL))
    ended = run_python(
        "import os\n" + TOO_LONG,
        str(tmp_path),
        environment={"CUDA_TILE_CACHE_DIR": str(tmp_path / "cache")},
        kind="compiler",
    )
    assert ended.returncode == 0, ended.stderr


ON_GPU = """
import json
import sys

sys.path.insert(0, sys.argv[1])
import cuda.tile as ct
import torch
from cuda.tile import _compile
from tile_agent_pytest.compiled_ahead_cutile import compile_search_first

import kernel

x = torch.ones(4096, device="cuda")
y = torch.zeros(4096, device="cuda")
given = (
    json.loads(sys.argv[2]),
    torch.cuda.current_stream(),
    lambda tile: (4096 // tile,),
    kernel.scale,
    lambda tile: (x, y, tile),
    lambda tile: {"occupancy": 2},
)
compile_search_first(ct.tune.exhaustive_search, *given)
nothing_was_launched = int((y == 0).all())
compiled = []
original = _compile.compile_cubin
_compile.compile_cubin = lambda *args, **kwargs: compiled.append(1) or original(*args, **kwargs)
found = ct.tune.exhaustive_search(*given, quiet=True)
right = int((y == 2).all())
print(json.dumps([len(compiled), len(found.successes), nothing_was_launched, right]))
"""


@pytest.mark.gpu
@pytest.mark.skipif(probe().gpu is None, reason="needs an NVIDIA GPU, and NVML sees none")
def test_a_search_on_a_gpu_compiles_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(textwrap.dedent(KERNEL))
    environment = {**os.environ, "CUDA_TILE_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", ON_GPU, str(tmp_path), "[64, 128, 256]"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == [0, 3, 1, 1]


CALLS = """
import json
import os
import sys

os.sched_getaffinity = lambda _: {0, 1}
sys.path.insert(0, sys.argv[1])
import cuda.tile as ct
from cuda.tile import _compile
from cuda.tile._cext import default_tile_context
from cuda.tile.compilation import KernelSignature
from tile_agent_pytest import compiled_ahead_cutile as ahead, forked_work
from tile_agent_pytest.compile_cutile import Compiler

forked_work.children = lambda _: []
ct._cext.get_compute_capability = lambda: (9, 0)
import kernel

compiler = Compiler.installed()
array = {"kind": "array", "dtype": "float32", "ndim": 1, "index_dtype": "int32"}
reached = []


def call(tile):  # compiles as a launch does, which needs a GPU
    constraints = compiler.constraints(
        kernel.scale, [array, array, {"kind": "constant", "value": tile}]
    )
    signature = KernelSignature(constraints, compiler._convention)
    ct.kernel._compile(kernel.scale, signature, default_tile_context, (9, 0))
    reached.append(tile)


def fails():
    raise ValueError("refused by the host")


calls = [lambda tile=tile: call(tile) for tile in (64, 128, 256)]
count = ahead.compile_calls_first([*calls, fails])
before = list(reached)
compiled = []
original = _compile.compile_cubin
_compile.compile_cubin = lambda *args, **kwargs: compiled.append(1) or original(*args, **kwargs)
for each in calls:
    each()
print(json.dumps([count, before, reached, len(compiled)]))
"""


def test_calls_find_what_they_launch_compiled(tmp_path: Path) -> None:
    """They end at what is to be compiled, before anything is launched, and go on when made."""
    (tmp_path / "kernel.py").write_text(textwrap.dedent(KERNEL))
    ended = run_python(
        CALLS,
        str(tmp_path),
        environment={"CUDA_TILE_CACHE_DIR": str(tmp_path / "cache")},
        kind="compiler",
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == [3, [], [64, 128, 256], 0]


CALLS_ON_GPU = """
import json
import sys

sys.path.insert(0, sys.argv[1])
import cuda.tile as ct
import torch
from cuda.tile import _compile
from tile_agent_pytest.compiled_ahead_cutile import compile_calls_first

import kernel


def scaled(size):
    x, y = torch.ones(size, device="cuda"), torch.zeros(size, device="cuda")
    ct.launch(torch.cuda.current_stream(), (size // 64,), kernel.scale, (x, y, 64))
    return y


sizes = (4096, 4097 // 64 * 64 + 1, 8192 + 8)
count = compile_calls_first([lambda size=size: scaled(size) for size in sizes])
compiled = []
original = _compile.compile_cubin
_compile.compile_cubin = lambda *args, **kwargs: compiled.append(1) or original(*args, **kwargs)
right = [bool((scaled(size)[: size // 64 * 64] == 2).all()) for size in sizes]
print(json.dumps([count > 0, len(compiled), all(right)]))
"""


@pytest.mark.gpu
@pytest.mark.skipif(probe().gpu is None, reason="needs an NVIDIA GPU, and NVML sees none")
def test_calls_on_a_gpu_compile_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(textwrap.dedent(KERNEL))
    environment = {**os.environ, "CUDA_TILE_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", CALLS_ON_GPU, str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == [True, 0, True]


LEFT = """
import os
import subprocess
import sys
import time
from pathlib import Path

from tile_agent_pytest.compiled_ahead_cutile import without_compilers_left
from tile_agent_pytest.process_tree import become_subreaper, running_children

become_subreaper()  # as a worker is
assembler = Path(sys.argv[1], "ptxas")
assembler.write_text("#!/bin/sh\\nsleep 300\\n")
assembler.chmod(0o755)
other = subprocess.Popen(["sleep", "300"])
with without_compilers_left():
    subprocess.run(["sh", "-c", f"{assembler} 300 > /dev/null 2>&1 &"], check=True)
    left, = {*running_children(os.getpid())} - {other.pid}
    while Path(f"/proc/{left}/comm").read_text() != "ptxas\\n":  # a shell until it becomes that
        time.sleep(0.01)
print(running_children(os.getpid()) == [other.pid])
other.kill()
"""


def test_the_assembler_of_a_compiler_that_was_given_up_ends(tmp_path: Path) -> None:
    ended = run_python(LEFT, str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["True"]
