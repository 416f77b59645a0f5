"""Candidates compiled before they run: real compilers in workers forked from a warm server."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.errors import UnreadableCode
from agent.evidence.duplicates import CompiledCommit, DuplicateFilter
from agent.evidence.model import Artifact, NotCompiled
from agent.harness.compiling.artifacts import Wanted, read
from agent.harness.compiling.candidate_compiler import (
    AHEAD,
    BESIDE_NICE,
    LEAST_S,
    ForkedCompiler,
    end,
    fork,
)
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.kept_folders import KeptFolders
from agent.harness.processes.worker_session import Checkout
from tests.support.warm_python import run_python
from tests.support.workers import eventually, start_server

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def compiling_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """As on a machine with a GPU: Triton compiles, and keeps on disk what it chooses."""
    log = tmp_path_factory.mktemp("server") / "server.log"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRITON_INTERPRET", raising=False)
        with start_server(log, TRITON_CACHE_AUTOTUNING="1") as server:
            yield server


def checkout(tmp_path: Path, example: str, name: str, old: str = "", new: str = "") -> Checkout:
    root = tmp_path / name
    shutil.copytree(EXAMPLES / example, root)
    kernel = f"{example.partition('_')[2]}.py"
    text = (root / kernel).read_text()
    assert old in text
    (root / kernel).write_text(text.replace(old, new, 1) if old else text)
    return Checkout(root, (root,), kernel)


def compiled(
    server: ForkServer, tmp_path: Path, backend: str, *roots: Checkout
) -> list[CompiledCommit]:
    pytest.importorskip("cuda.tile" if backend == "cutile" else "triton")
    logs = tmp_path / "logs"
    logs.mkdir()
    wanted = Wanted(backend, (90,), python="unused", has_gpu=False)
    found = ForkedCompiler(server, wanted, logs).compile(roots, ("tests", "-kperf"))
    assert None not in found, [p.read_text() for p in logs.iterdir()]
    return [compiled for compiled in found if compiled]


@pytest.mark.full
def test_cutile_hints_and_comments(compiling_server: ForkServer, tmp_path: Path) -> None:
    example = "cutile_softmax"
    roots = [
        checkout(tmp_path, example, "origin"),
        checkout(tmp_path, example, "comment", "@ct.kernel", "# a remark\n@ct.kernel"),
        checkout(tmp_path, example, "hinted", "@ct.kernel", "@ct.kernel(occupancy=8)"),
        checkout(tmp_path, example, "again", "@ct.kernel", "@ct.kernel(occupancy=8)  # again"),
    ]
    found = compiled(compiling_server, tmp_path, "cutile", *roots)
    assert all(each.complete and each.problem is None for each in found)
    candidates = [(r.root.name, r.root.name, f) for r, f in zip(roots[1:], found[1:], strict=True)]
    assert DuplicateFilter().filter_out(found[0], candidates) == {
        "comment": "the compiler makes the incumbent's code of it",
        "again": "the compiler makes the same code of it as of hinted",
    }


@pytest.mark.full
def test_triton_that_asks_for_too_much(compiling_server: ForkServer, tmp_path: Path) -> None:
    example = "triton_matmul"
    text = (EXAMPLES / example / "matmul.py").read_text()
    assert "BLOCK_K=32" in text
    roots = [
        checkout(tmp_path, example, "origin"),
        checkout(tmp_path, example, "large", "BLOCK_K=32", "BLOCK_K=512"),
    ]
    origin, large = compiled(compiling_server, tmp_path, "triton", *roots)
    assert origin.problem is None
    assert large.problem is not None and "shared memory" in large.problem
    out = DuplicateFilter().filter_out(origin, [("sha", "BLOCK_K=512", large)])
    assert out == {"sha": large.problem}


def test_packages_that_make_a_cache_when_they_are_imported(
    compiling_server: ForkServer, tmp_path: Path
) -> None:
    """As TileGym does: a confined worker may not write to the user's."""
    caching = (
        "import os\nfrom pathlib import Path\n\n"
        "folder = os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'\n"
        "(Path(folder) / 'made-by-a-package').mkdir(parents=True)\n"
    )
    root = checkout(
        tmp_path, "triton_softmax", "caching", "import torch\n", f"{caching}import torch\n"
    )
    (found,) = compiled(compiling_server, tmp_path, "triton", root)
    assert found.complete


def test_code_that_no_tool_here_reads_says_nothing_of_the_rest(
    compiling_server: ForkServer, tmp_path: Path
) -> None:
    """As of TileGym's batched product, of whose configs an older nvdisasm reads all but one."""
    pytest.importorskip("triton")
    root = checkout(tmp_path, "triton_softmax", "some")
    wanted = Wanted("triton", (80, 90), python="unused", has_gpu=False)
    scratch, deadline = tmp_path / "scratch", time.monotonic() + 60
    scratch.mkdir()
    tests = ("tests", "-kperf")
    worker = fork(compiling_server, root, tests, wanted, 60.0, scratch, tmp_path / "log")
    ended = end(worker, scratch, deadline)
    done = [answer for answer in ended.answers if answer["event"] == "done"]
    done.sort(key=lambda answer: (answer["index"], wanted.targets.index(int(answer["target"][3:]))))
    cubins = [Path(answer["cubin"]) for answer in done]
    cubins[0].write_bytes(b"of a newer compiler")
    found = read(root, wanted, ended, deadline)
    unread, *others = found.results
    assert isinstance(unread, NotCompiled) and unread.inconclusive
    assert "failed (" in unread.reason and unread.reason.endswith(
        "another version of it may read this"
    )
    assert others and all(isinstance(other, Artifact) for other in others)
    assert CompiledCommit(found.results, found.sequence, complete=False).problem is None
    for cubin in cubins:
        cubin.write_bytes(b"of a newer compiler")
    with pytest.raises(UnreadableCode, match="another version of it may read this"):
        read(root, wanted, ended, deadline)


TUNED = """
import torch
import triton
import triton.language as tl


@triton.autotune(
    [triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 128) for w in (1, 4)], ["n"]
)
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n)
    tl.store(y_ptr + places, factor * x, mask=places < n)


def scale(x):
    y = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
    scale_kernel[grid](x, y, x.numel(), 0.5)
    return y
"""
TUNED_TEST = """
import pytest
import torch
from softmax import scale


@pytest.mark.parametrize("n", [1000, 4096])
def test_perf_scale(n, tile_bench):
    x = torch.zeros(n, device="cuda")
    tile_bench(lambda: scale(x))
"""
LAUNCHING = """
import sys
import torch
import triton

from tile_agent_pytest.stand_in_driver import StandInDriver

triton.runtime.driver.set_active(StandInDriver(90))
sys.path.insert(0, sys.argv[1])
from softmax import scale_kernel

factor = float(sys.argv[2]) if "." in sys.argv[2] else int(sys.argv[2])

for n in (1000, 4096):
    for config in scale_kernel.configs:
        x, y = torch.zeros(n), torch.zeros(n)
        scale_kernel.fn.run(x, y, n, factor, grid=(1,), warmup=True, **config.all_kwargs())
"""


def test_workers_find_what_triton_compiled(compiling_server: ForkServer, tmp_path: Path) -> None:
    """All configs of a tuner, of which one is read; what it would choose here is not kept."""
    pytest.importorskip("triton")
    root = checkout(tmp_path, "triton_softmax", "tuned")
    (root.root / root.kernel).write_text(TUNED)
    (root.root / "tests" / "test_softmax.py").write_text(TUNED_TEST)
    wanted = Wanted("triton", (90,), python="unused", has_gpu=False, most=1, ahead=AHEAD)
    (found,) = ForkedCompiler(compiling_server, wanted, tmp_path).compile([root], ("tests",))
    assert found is not None and len(found.results) == 1 and not found.complete
    kept = KeptFolders.of(tmp_path, root.root / root.kernel, compiling_server.environment)
    variables = kept.variables() | {"TRITON_INTERPRET": "0"}
    folder = Path(variables["TRITON_CACHE_DIR"])

    def codes() -> set[Path]:
        return set(folder.rglob("*.cubin"))

    compiled = codes()
    assert len(compiled) == 8
    assert not list(folder.rglob("*.autotune.json"))
    run_python(LAUNCHING, str(root.root), "0.5", environment=variables)
    assert codes() == compiled
    run_python(LAUNCHING, str(root.root), "1", environment=variables)
    assert len(codes()) == 16  # for another type, which shows that all was looked for here


RANKING = """
import sys
from pathlib import Path

import torch
import triton
import triton.runtime.autotuner

from tile_agent_pytest.observed_tunings import file_of, of_tuner, write
from tile_agent_pytest.stand_in_driver import StandInDriver

triton.runtime.driver.set_active(StandInDriver(90))
sys.path.insert(0, sys.argv[1])
from softmax import scale_kernel


def rank(tuner, key, configs, bench_fn):
    write(file_of(Path(sys.argv[2]) / "ranked", of_tuner(tuner, key, configs)), {"ranked": [2]})
    tuner.cache[key] = configs[0]
    return True


triton.runtime.autotuner.Autotuner.check_disk_cache = rank
scale_kernel.run(torch.zeros(1000), torch.zeros(1000), 1000, 0.5, grid=(1,), warmup=True)
"""


def test_of_a_tuner_that_was_at_work_the_best_configs_are_compiled(
    compiling_server: ForkServer, tmp_path: Path
) -> None:
    """By a worker's note on the run's first text, for one value of the key."""
    pytest.importorskip("triton")
    origin = checkout(tmp_path, "triton_softmax", "tuned")
    (origin.root / origin.kernel).write_text(TUNED)
    (origin.root / "tests" / "test_softmax.py").write_text(TUNED_TEST)
    first = KeptFolders.of(tmp_path, origin.root / origin.kernel, compiling_server.environment)
    variables = {"TRITON_INTERPRET": "0", "TRITON_CACHE_AUTOTUNING": "1"}
    run_python(RANKING, str(origin.root), str(first.first_tuned), environment=variables)
    edited = checkout(tmp_path, "triton_softmax", "edited")
    (edited.root / edited.kernel).write_text(TUNED.replace("factor * x", "x * factor + 1"))
    (edited.root / "tests" / "test_softmax.py").write_text(TUNED_TEST)
    wanted = Wanted("triton", (90,), python="unused", has_gpu=False, most=8)
    (found,) = ForkedCompiler(compiling_server, wanted, tmp_path).compile([edited], ("tests",))
    assert found is not None and len(found.results) == 1 + 4
    assert found.of_best and not found.complete  # the others may differ, or do where these fail


ASKING = """
from triton.language.target_info import cuda_capability_geq


@triton.constexpr_function
def is_there():
    import os

    return os.environ.get("CUDA_VISIBLE_DEVICES") != ""


@triton.jit(repr=lambda specialization: NAME)
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n)
    tl.store(y_ptr + places, x * 2 if CONDITION else x * 7777, mask=places < n)


def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), 0.5, BLOCK=128)
    return y
"""
READING = """
import sys
import torch
import triton

from tile_agent_pytest.stand_in_driver import StandInDriver

triton.runtime.driver.set_active(StandInDriver(90))
sys.path.insert(0, sys.argv[1])
from softmax import scale_kernel

x, y = torch.zeros(4096), torch.zeros(4096)
code = scale_kernel.run(x, y, 4096, 0.5, grid=(1,), warmup=True, BLOCK=128)
print("7.777" in code.asm["ttir"])
"""


@pytest.mark.parametrize(
    ("condition", "named", "kept"),
    [
        ("cuda_capability_geq(9, 0)", False, 1),
        ("is_there()", False, 0),  # may be another answer where it is launched
        ("True", True, 0),  # runs code of the user's
    ],
)
def test_what_is_kept_is_what_a_process_with_a_gpu_compiles(
    compiling_server: ForkServer, tmp_path: Path, condition: str, named: bool, kept: int
) -> None:
    pytest.importorskip("triton")
    root = checkout(tmp_path, "triton_softmax", "asking")
    head = TUNED.partition("@triton.autotune")[0]
    text = f"{head}{ASKING}".replace("CONDITION", condition)
    decorator = '@triton.jit(repr=lambda _: "own")' if named else "@triton.jit"
    text = text.replace("@triton.jit(repr=lambda specialization: NAME)", decorator)
    (root.root / root.kernel).write_text(text)
    (root.root / "tests" / "test_softmax.py").write_text(TUNED_TEST.replace("1000, ", ""))
    wanted = Wanted("triton", (90,), python="unused", has_gpu=False, ahead=AHEAD)
    (found,) = ForkedCompiler(compiling_server, wanted, tmp_path).compile([root], ("tests",))
    assert found is not None and found.complete
    folders = KeptFolders.of(tmp_path, root.root / root.kernel, compiling_server.environment)
    variables = folders.variables() | {"TRITON_INTERPRET": "0"}
    folder = Path(variables["TRITON_CACHE_DIR"])
    assert len(list(folder.rglob("*.cubin"))) == kept
    ended = run_python(READING, str(root.root), environment=variables)
    assert ended.stdout == "False\n", ended.stderr
    assert len(list(folder.rglob("*.cubin"))) == 1


def test_what_cannot_be_compiled_is_not_filtered_out(
    compiling_server: ForkServer, tmp_path: Path
) -> None:
    broken = checkout(tmp_path, "cutile_softmax", "broken")
    (broken.root / broken.kernel).write_text("raise ImportError('no')\n")
    wanted = Wanted("cutile", (90,), python="unused", has_gpu=False)
    assert ForkedCompiler(compiling_server, wanted, tmp_path).compile([broken], ("tests",)) == (
        None,
    )
    assert DuplicateFilter().filter_out(None, [("sha", "x", None)]) == {}


def test_a_compile_is_held_to_the_time_that_is_left(
    compiling_server: ForkServer, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    slow = checkout(tmp_path, "triton_softmax", "slow", "import torch", "import time, torch")
    kernel = slow.root / slow.kernel
    kernel.write_text(kernel.read_text() + "\n\ntime.sleep(300)\n")
    wanted = Wanted("triton", (90,), python="unused", has_gpu=False)
    compiler, begin = ForkedCompiler(compiling_server, wanted, tmp_path), time.monotonic()
    assert compiler.compile([slow], ("tests",), begin + LEAST_S + 1.0) == (None,)
    assert time.monotonic() - begin < compiler.timeout_s / 2
    logs = set(tmp_path.glob("compile-*.log"))
    assert logs
    assert compiler.compile([slow], ("tests",), begin) == (None,)  # nothing is begun
    assert set(tmp_path.glob("compile-*.log")) == logs


def test_one_that_takes_long_holds_up_no_other(
    compiling_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at a time: while the first sleeps, the others are compiled one after the other."""
    pytest.importorskip("triton")
    for name in ("FEWEST_AT_ONCE", "MOST_AT_ONCE"):
        monkeypatch.setattr(f"agent.harness.compiling.candidate_compiler.{name}", 2)
    roots = [checkout(tmp_path, "triton_softmax", f"root{n}") for n in range(4)]
    slow = roots[0].root / roots[0].kernel
    done = tmp_path / "others"
    slow.write_text(
        f"import pathlib, time\n{slow.read_text()}\n"
        f"while len(list(pathlib.Path({str(done)!r}).iterdir())) < 3:\n    time.sleep(0.1)\n"
    )
    done.mkdir()
    wanted = Wanted("triton", (90,), python="unused", has_gpu=False)
    compiler = ForkedCompiler(compiling_server, wanted, tmp_path)
    real = compiler._read
    monkeypatch.setattr(
        compiler,
        "_read",
        lambda wanted, until, each, ended: (
            (done / str(each.place)).touch(),
            real(wanted, until, each, ended),
        )[1],
    )
    found = compiler.compile(roots, ("tests", "-kperf"))
    assert [each is not None and each.conclusive for each in found] == [True] * 4
    assert sorted(path.name for path in done.iterdir()) == ["0", "1", "2", "3"]


def test_beside_a_measurement_compilers_give_way(
    compiling_server: ForkServer, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    root = checkout(tmp_path, "triton_softmax", "root")
    kernel = root.root / root.kernel
    kernel.write_text(
        f"import os\n{kernel.read_text()}\nraise ValueError(f'nice {{os.nice(0)}}')\n"
    )
    wanted = Wanted("triton", (90,), python="unused", has_gpu=False)
    compiler = ForkedCompiler(compiling_server, wanted, tmp_path)
    for given_up, nice in ((None, os.nice(0)), (threading.Event(), os.nice(0) + BESIDE_NICE)):
        assert compiler.compile([root], ("tests", "-kperf"), given_up=given_up) == (None,)
        assert f"ValueError: nice {nice}" in (tmp_path / "compile.log").read_text()


def test_compilers_that_nobody_waits_for_end(compiling_server: ForkServer, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    roots = [checkout(tmp_path, "triton_softmax", f"root{n}") for n in range(3)]
    for root in roots:
        kernel = root.root / root.kernel
        kernel.write_text(f"{kernel.read_text()}\nimport time\ntime.sleep(600)\n")
    wanted = Wanted("triton", (90,), python="unused", has_gpu=False)
    compiler, given_up = ForkedCompiler(compiling_server, wanted, tmp_path), threading.Event()
    begin = time.monotonic()
    with ThreadPoolExecutor(1) as thread:
        compiling = thread.submit(compiler.compile, roots, ("tests", "-kperf"), given_up=given_up)
        assert eventually(lambda: any(tmp_path.glob("compile-*.log")))
        given_up.set()
        assert compiling.result() == (None, None, None)
    assert time.monotonic() - begin < compiler.timeout_s / 2
    assert not (tmp_path / "compile.log").exists()  # nothing went wrong


def test_what_gives_way_is_compiled_all_the_same(
    compiling_server: ForkServer, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    root = checkout(tmp_path, "triton_softmax", "root")
    wanted = Wanted("triton", (90,), python="unused", has_gpu=False)
    compiler = ForkedCompiler(compiling_server, wanted, tmp_path)
    (found,) = compiler.compile([root], ("tests", "-kperf"), given_up=threading.Event())
    assert found is not None and found.conclusive and found.results
