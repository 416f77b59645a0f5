"""`tile-agent verify` where no GPU is: cuTile kernels really compile, and nothing claims more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from agent.environment import probe
from agent.errors import ExitCode
from agent.harness.compiling.cutile import only_compiles
from agent.harness.compiling.needed import CUTILE
from tests.backends.test_machine import BARE, FULL
from tests.support.processes import alive, mark
from tests.support.project import PROJECT, Outcome, tile_agent
from tests.support.repo import isolate, write
from tests.support.tiers import others_full
from tests.support.workers import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
TARGETS = ["sm_80", "sm_90", "sm_100"]
FAILED = 3
KERNEL = """\
import cuda.tile as ct


@ct.kernel
def copy_kernel(x, y, N: ct.Constant[int]):
    tile = ct.load(x, index=(ct.bid(0),), shape=(N,))
    ct.store(y, index=(ct.bid(0),), tile=tile)
"""
BROKEN = KERNEL.replace("tile=tile)", "tile=tile.to(ct.float32))")
HUGE = """\
import cuda.tile as ct

M, N, K = 512, 512, 64


@ct.kernel
def matmul_kernel(a, b, c):
    sum = ct.full((M, N), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        sum = ct.mma(ct.load(a, (0, k), (M, K)), ct.load(b, (k, 0), (K, N)), sum)
    ct.store(c, index=(0, 0), tile=ct.astype(sum, c.dtype))
"""
ENVIRONMENT = probe()
MISSING = (
    "cuda-tile"
    if ENVIRONMENT.versions["cuda-tile"] is None
    else "tileiras"
    if ENVIRONMENT.tileiras is None
    else None
)

pytestmark = pytest.mark.skipif(MISSING is not None, reason=f"{MISSING} is not installed")


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    mark(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # where there is a GPU, it is not looked at


def verify(folder: Path, text: str, *arguments: str) -> Outcome:
    """Compile a kernel that lies in no repository."""
    write(folder, {"kernel.py": text})
    return tile_agent(folder, "verify", "--kernel", "kernel.py", *arguments)


def compiling(folder: Path) -> list[psutil.Process]:
    """The compilers that tile-agent has started in this test and that are alive."""
    return alive(folder, "tile-agent-compile-")


# --- it compiles --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", others_full(["softmax", "matmul", "rms_norm"]))
def test_the_examples_compile_for_three_gpus(name: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / f"cutile_{name}", tmp_path / "example")
    end = tile_agent(tmp_path / "example", "verify", "--kernel", f"{name}.py", "--json")
    assert end.code == ExitCode.DONE, end.err
    found = end.json
    assert (found["compiled"], found["ran"]) == (True, False)
    assert [k["target"] for k in found["kernels"]] == TARGETS
    assert {k["kernel"] for k in found["kernels"]} == {f"{name}_kernel"}
    for kernel in found["kernels"]:
        assert kernel["ok"]
        assert kernel["error"] is None
        assert kernel["cubin_bytes"] > 1000
        assert kernel["seconds"] > 0
    assert len({k["sha256"] for k in found["kernels"]}) == 3
    assert found["assumptions"]


def test_what_a_person_reads_claims_no_more_than_was_done(tmp_path: Path) -> None:
    end = verify(tmp_path, KERNEL)
    assert end.code == ExitCode.DONE, end.err
    first, *rest = end.out.splitlines()
    assert first == "compiled, not run: `pytest --tile-cpu` runs the tests on the CPU"
    assert [line.split()[1] for line in rest[:3]] == TARGETS
    assert rest[3] == "assumed:"
    assert "N = 1024 (assumed for a row" in end.out


def test_one_target_and_nothing_left_behind(tmp_path: Path) -> None:
    first = verify(tmp_path, KERNEL, "--json", "--target", "sm_90")
    again = verify(tmp_path, KERNEL, "--json", "--target", "sm_90")
    assert [k["target"] for k in first.json["kernels"]] == ["sm_90"]
    assert first.json["kernels"][0]["sha256"] == again.json["kernels"][0]["sha256"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kernel.py"]


def test_a_float32_result_is_no_type_error(tmp_path: Path) -> None:
    """Nothing tells the type of `y`; the one that fits is found, and told."""
    text = KERNEL.replace("tile=tile)", "tile=ct.astype(tile, ct.float32))")
    end = verify(tmp_path, text, "--target", "sm_90")
    assert end.code == ExitCode.DONE, end.out
    assert "y: 1-dimensional float32 (type assumed, since float16 does not compile)" in end.out


def test_a_kernel_in_a_package(tmp_path: Path) -> None:
    package = {
        "pyproject.toml": "",
        "src/ours/__init__.py": "",
        "src/ours/sizes.py": "TILE = 256\n",
        "src/ours/kernel.py": "from .sizes import TILE\n" + KERNEL.replace("(N,)", "(TILE,)"),
    }
    write(tmp_path, package)
    end = tile_agent(
        tmp_path, "verify", "--kernel", "src/ours/kernel.py", "--json", "--target", "sm_90"
    )
    assert end.json["compiled"], end.out


# --- it does not --------------------------------------------------------------------------------


def test_a_type_error(tmp_path: Path) -> None:
    end = verify(tmp_path, BROKEN, "--json")
    assert end.code == FAILED, end.err
    assert not end.json["compiled"]
    assert [k["ok"] for k in end.json["kernels"]] == [False] * 3
    (error,) = {k["error"] for k in end.json["kernels"]}
    assert error.startswith("kernel.py:7: TypeCheckingError: No such attribute 'to'")
    assert "\n" not in error
    text = verify(tmp_path, BROKEN).out
    assert "3 of 3 do not compile, assuming what is below" in text
    assert "kernel.py:7" in text


FACTORS = """\
import cuda.tile as ct
import torch


@ct.kernel
def rows_kernel(x, y, F: ct.Constant[int], G: ct.Constant[int], N: ct.Constant[int]):
    tile = ct.load(x, index=(ct.bid(0), 0), shape=(1, N))
    ct.store(y, index=(ct.bid(0), 0, 0), tile=ct.reshape(tile, (1, F, G)))


def rows(x, f, g):
    y = torch.empty((x.shape[0], f, g), device=x.device)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), rows_kernel, (x, y, f, g, x.shape[1]))
    return y
"""
RELATED = FACTORS.replace("(x, y, f, g, x.shape[1])", "(x, y, f, n // f, n)").replace(
    "    y =", "    n = x.shape[1]\n    y ="
)
UNJUDGED = (
    "rows_kernel cannot be judged: the sizes of its tiles do not fit where F, G, N are assumed, "
    "and this file does not tell them. A test that calls it does: tile-agent explain --kernel "
    "kernel.py --tests FILE compiles what the test launches, pytest --tile-cpu FILE runs it"
)


@pytest.mark.parametrize("command", ["verify", "explain"])
def test_assumed_sizes_that_do_not_fit_say_nothing_of_the_code(
    command: str, tmp_path: Path
) -> None:
    write(tmp_path, {"kernel.py": FACTORS})
    end = tile_agent(tmp_path, command, "--kernel", "kernel.py")
    assert end.code == ExitCode.USAGE, end.err
    assert UNJUDGED in end.out.splitlines()
    assert "do not compile" not in end.out
    assert "TypeCheckingError: Cannot reshape" in end.out
    end = tile_agent(tmp_path, command, "--kernel", "kernel.py", "--json")
    assert end.json["unjudged"] == [UNJUDGED]


def test_sizes_that_the_launch_computes_of_others_fit(tmp_path: Path) -> None:
    end = verify(tmp_path, RELATED, "--target", "sm_90")
    assert end.code == ExitCode.DONE, end.out
    assert "G = 256 (assumed: `n // f` of the other values)" in end.out


def test_what_does_not_fit_beside_code_that_is_wrong_is_no_excuse(tmp_path: Path) -> None:
    wrong = BROKEN.partition("\n\n\n")[2].replace("copy_kernel", "bad_kernel")
    launch = "    ct.launch(None, (1,), bad_kernel, (x, y, f))\n    return y"
    both = FACTORS.replace("    return y", launch) + f"\n\n{wrong}"
    end = verify(tmp_path, both, "--target", "sm_90")
    assert end.code == FAILED
    assert "1 of 2 do not compile, assuming what is below" in end.out
    assert UNJUDGED in end.out


def test_one_bad_kernel_does_not_hide_a_good_one(tmp_path: Path) -> None:
    both = KERNEL + BROKEN.partition("\n\n\n")[2].replace("copy_kernel", "bad_kernel")
    end = verify(tmp_path, both, "--json", "--target", "sm_90")
    assert end.code == FAILED
    assert {k["kernel"]: k["ok"] for k in end.json["kernels"]} == {
        "copy_kernel": True,
        "bad_kernel": False,
    }


def test_a_target_that_the_compiler_does_not_know(tmp_path: Path) -> None:
    end = verify(tmp_path, KERNEL, "--json", "--target", "sm_75")
    assert end.code == FAILED
    assert "sm_75" in end.json["kernels"][0]["error"]


@pytest.mark.full
def test_a_compile_past_its_deadline_is_killed(tmp_path: Path) -> None:
    begin = time.monotonic()
    end = verify(tmp_path, HUGE, "--json", "--timeout-s", "6")
    assert time.monotonic() - begin < 60
    assert end.code == FAILED, end.err
    first, *others = end.json["kernels"]
    assert first["error"] == "not done after 6 s: killed"
    assert all(other["error"].endswith(first["error"]) for other in others)
    assert compiling(tmp_path) == []


@pytest.mark.full
def test_an_interrupted_compile_is_killed(tmp_path: Path) -> None:
    write(tmp_path, {"kernel.py": HUGE})
    command = [sys.executable, "-c", "from agent.cli import main; main()"]
    with subprocess.Popen(
        [*command, "verify", "--kernel", "kernel.py"], cwd=tmp_path, stderr=subprocess.PIPE
    ) as process:
        try:  # the compiler is asked for its version before, which is over at once
            assert eventually(lambda: bool(alive(tmp_path, "matmul_kernel")), timeout_s=60)
        finally:
            process.terminate()
        process.communicate()
    assert process.returncode == ExitCode.STOPPED
    assert compiling(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("raise RuntimeError('no GPU')", "kernel.py cannot be imported: RuntimeError: no GPU"),
        ("import os; os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
        ("import os; print('bye', flush=True); os._exit(7)", "ended with exit code 7: bye"),
    ],
)
def test_a_file_that_cannot_be_imported(line: str, told: str, tmp_path: Path) -> None:
    end = verify(tmp_path, f"{KERNEL}\n{line}\n", "--json", "--target", "sm_90")
    assert end.code == FAILED, end.err
    assert told in end.json["kernels"][0]["error"]


def test_a_file_that_asks_for_a_gpu_is_told_once_with_the_remedy(tmp_path: Path) -> None:
    asks = "raise AssertionError('Torch not compiled with CUDA enabled')"
    end = verify(tmp_path, f"{KERNEL}\n{asks}\n")
    assert end.code == FAILED, end.err
    assert end.out.splitlines() == [
        "kernel.py cannot be imported: AssertionError: Torch not compiled with CUDA enabled: it "
        "asks for a GPU when it is imported, and there is none: ask when a kernel is launched, or "
        "run where there is one"
    ]


def test_a_kernel_that_only_a_function_makes(tmp_path: Path) -> None:
    inside = "".join(f"    {line}\n" for line in KERNEL.partition("\n\n\n")[2].splitlines())
    text = f"import cuda.tile as ct\n\n\ndef make():\n{inside}    return copy_kernel\n"
    end = verify(tmp_path, text, "--json", "--target", "sm_90")
    assert end.code == FAILED
    assert "no cuTile kernel of that name" in end.json["kernels"][0]["error"]


# --- when ----------------------------------------------------------------------------------------


def test_it_only_compiles_where_no_kernel_could_run() -> None:
    old = replace(FULL, gpus=(replace(FULL.gpus[0], driver="570.10"),))
    assert only_compiles("cutile", BARE)
    assert only_compiles("cutile", old)
    assert not only_compiles("cutile", FULL)
    assert not only_compiles("cutile", replace(FULL, versions={}, tileiras=None))
    assert not only_compiles("triton", BARE)


# --- it cannot even be tried --------------------------------------------------------------------


def refused(end: Outcome, saying: str) -> None:
    assert end.code == ExitCode.USAGE, end.out
    assert saying in end.err, end.err
    assert "Traceback" not in end.err


def test_without_tileiras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package at another release than its siblings' is passed over, and PATH has no other."""
    if any(Path("/usr/local").glob("cuda*/bin/tileiras")) or Path("/usr/bin/tileiras").exists():
        pytest.skip("tileiras is installed where it cannot be hidden")
    site = tmp_path / "site"
    metadata = "Metadata-Version: 2.1\nName: nvidia-cuda-tileiras\nVersion: 1.0\n"
    write(site, {"nvidia_cuda_tileiras-1.0.dist-info/METADATA": metadata})
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    end = verify(tmp_path / "work", KERNEL)
    refused(end, "has no tileiras: ")
    assert f"-m pip install {CUTILE}" in end.err


def test_without_cuda_tile(tmp_path: Path) -> None:
    bare = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    python = str(bare / "bin" / "python")
    refused(verify(tmp_path, KERNEL, "--python", python), f"{python} has no cuda-tile: {python} -m")


def test_a_cuda_tile_that_cannot_be_imported_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "libcudart.so.13: cannot open shared object file"
    write(tmp_path / "broken", {"cuda/tile/__init__.py": f"raise ImportError({why!r})\n"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    folder = tmp_path / "work"
    python = ("--python", sys.executable)  # one that has made no imports
    told = f"cannot import cuda-tile: {why} (in {tmp_path}/broken/cuda/tile/__init__.py): "
    refused(verify(folder, KERNEL, *python), told)
    shutil.copy(EXAMPLES / "cutile_autotune_rope" / "rope_fixed.py", folder)
    tuned = ("autotune", "--kernel", "rope_fixed.py", "--compile", "sm_90", *python)
    refused(tile_agent(folder, *tuned), told)


def test_without_a_package_that_the_file_imports(tmp_path: Path) -> None:
    end = verify(tmp_path, f"import no_such_package\n{KERNEL}")
    refused(end, "No module named 'no_such_package'; install it there, or name another")


def test_no_such_interpreter(tmp_path: Path) -> None:
    refused(verify(tmp_path, KERNEL, "--python", "/no/python"), "--python")


def test_a_target_that_is_none(tmp_path: Path) -> None:
    refused(verify(tmp_path, KERNEL, "--target", "hopper"), "name an architecture such as sm_90")


def test_a_target_for_triton(tmp_path: Path) -> None:
    write(tmp_path, PROJECT)
    end = tile_agent(tmp_path, "verify", "--kernel", "double.py", "--target", "sm_90")
    refused(end, "--target compiles cuTile kernels")


def test_a_file_that_is_no_kernel(tmp_path: Path) -> None:
    refused(verify(tmp_path, "print('hello')\n"), "no tile kernel")


def test_secrets_do_not_reach_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "secret")
    text = f"{KERNEL}\nimport os\nassert 'MY_API_KEY' not in os.environ\n"
    assert verify(tmp_path, text, "--target", "sm_90").code == ExitCode.DONE
    assert os.environ["MY_API_KEY"] == "secret"
