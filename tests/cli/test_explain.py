"""`tile-agent explain`: real compilers over a small repository, which stays as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.environment import probe
from agent.errors import ExitCode
from tests.support.evidence import CUTILE, TEST, TRITON
from tests.support.project import COUNTED, Outcome, tile_agent
from tests.support.repo import git, isolate, make_repo, snapshot, write
from tests.support.warm_python import warm_interpreter

ENVIRONMENT = probe()
triton = pytest.mark.skipif(
    ENVIRONMENT.versions["triton"] is None, reason="triton is not installed"
)
cutile = pytest.mark.skipif(
    ENVIRONMENT.versions["cuda-tile"] is None or ENVIRONMENT.tileiras is None,
    reason="tileiras is not installed",
)


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # where there is a GPU, it is not looked at


def project(tmp_path: Path, text: str) -> Path:
    return make_repo(tmp_path, {"kernel.py": text, "tests/test_kernel.py": TEST})


def explain(folder: Path, *arguments: str) -> Outcome:
    return tile_agent(folder, "explain", "--kernel", "kernel.py", "--sm", "90", *arguments)


@pytest.mark.full
@triton
def test_the_difference_an_edit_makes(tmp_path: Path) -> None:
    repo = project(tmp_path, TRITON)
    write(repo, {"kernel.py": TRITON.replace("BLOCK=BLOCK)", "BLOCK=BLOCK, num_warps=8)")})
    before = snapshot(repo)
    end = explain(repo, "--against", "HEAD")
    assert end.code == ExitCode.DONE, end.err
    lines = end.out.splitlines()
    assert lines[0] == "scale_kernel(BLOCK=1024, num_warps=8), grid 1024"
    assert lines[1] == "  as tests/test_kernel.py::test_perf_run launches it"
    assert not any(line.startswith("  x_ptr, y_ptr: ") for line in lines)  # as given
    assert "  given x_ptr, y_ptr: float32[1048576], contiguous, 16-byte aligned" in lines
    assert "  given n=1048576" in lines
    assert any(line.startswith("  sm_90: ") and "256 threads" in line for line in lines)
    at = lines.index("against HEAD:")
    assert "threads a block 128 -> 256" in lines[at + 1]
    assert "128-bit loads 2 -> 1" in lines[at + 1]
    assert snapshot(repo) == before
    assert git(repo, "worktree", "list").count("\n") == 0


@pytest.mark.full
@triton
def test_against_the_same(tmp_path: Path) -> None:
    repo = project(tmp_path, TRITON)
    end = explain(repo, "--against", "HEAD")
    assert end.out.splitlines()[-1] == "  scale_kernel(BLOCK=1024) for sm_90: the same code"


@pytest.mark.full
@cutile
def test_json(tmp_path: Path) -> None:
    end = explain(project(tmp_path, CUTILE), "--json", "--sm", "80", "--listing")
    assert end.code == ExitCode.DONE, end.err
    value = json.loads(end.out)
    assert value["changes"] is None
    assert [result["sm"] for result in value["results"]] == [90, 80]
    first = value["results"][0]
    assert first["launch"]["captured"]
    assert first["occupancy"]["blocks"] > 0
    assert first["instructions"]["global_loads"] == {"128 bits": 2}
    assert "entry @scale_kernel" in first["listing"]
    assert first["launch"]["arguments"]["TILE"] == "= 1024" and "tensors" not in first["launch"]
    again = value["results"][1]["launch"]
    assert again["as_in_result"] == 0 and again["kernel"] == "scale_kernel"
    assert "arguments" not in again


@pytest.mark.full
@cutile
def test_a_kernel_in_no_repository(tmp_path: Path) -> None:
    write(tmp_path, {"kernel.py": CUTILE})
    end = explain(tmp_path)
    assert end.code == ExitCode.DONE, end.err
    assert "as its source suggests; no test was seen to launch it" in end.out
    assert "y: 1-dimensional float32 (type assumed, since float16 does not compile)" in end.out


@pytest.mark.full
@triton
def test_in_no_repository_the_test_beside_the_kernel_is_run(tmp_path: Path) -> None:
    write(tmp_path, {"kernel.py": TRITON, "test_kernel.py": TEST})
    end = explain(tmp_path)
    assert "as test_kernel.py::test_perf_run launches it" in end.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernel.py", "test_kernel.py"]


@triton
def test_what_is_left_out_is_told_with_its_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROJECT_FLAVOUR", "sweet")
    asks = "import os\n\nassert os.environ['PROJECT_FLAVOUR']\n"
    other = TRITON[TRITON.index("@triton.jit") :].replace("def run", "def run_other")
    text = TRITON + "\n\n" + other.replace("scale_kernel", "other_kernel")
    test = "\n\ndef test_right():\n    from kernel import run_other\n\n    run_other()\n"
    repo = make_repo(tmp_path, {"kernel.py": text, "tests/test_kernel.py": asks + TEST + test})
    assert explain(repo, "--pass-env", "PROJECT_FLAVOUR").out.splitlines()[:3] == [
        "1 other launch is left out, which no perf test makes: see --all",
        "no launch is shown of other_kernel",
        "scale_kernel(BLOCK=1024), grid 1024",
    ]


@triton
@pytest.mark.parametrize(
    ("command", "lack"), [("explain", False), ("diagnose", False), ("explain", True)]
)
def test_tests_that_are_not_committed_are_told_of(tmp_path: Path, command: str, lack: bool) -> None:
    """Who captured them is not sent to capture again, which would refuse."""
    lacking = {"tests/test_kernel.py": "import no_such\nimport kernel\n"} if lack else {}
    repo = make_repo(tmp_path, {"kernel.py": TRITON} | lacking)
    write(repo, {"tests/test_kernel_captured.py": TEST})
    end = tile_agent(repo, command, "--kernel", "kernel.py", "--sm", "90")
    assert end.code == ExitCode.USAGE
    assert "tests/test_kernel_captured.py has uncommitted changes" in end.err
    assert end.err.endswith(": commit it first\n")
    assert end.err.count("\n") == 1


@triton
def test_a_test_file_that_needs_what_is_not_installed_is_left_out(tmp_path: Path) -> None:
    """One of its tests is asked for: pytest then ends before it tells of the others."""
    other = "import no_such_reference\nimport kernel\n\n\ndef test_right():\n    pass\n"
    test = {"tests/test_kernel.py": TEST, "tests/test_kernel_other.py": other}
    repo = make_repo(tmp_path, {"kernel.py": TRITON} | test)
    chosen = (
        "--tests",
        "tests/test_kernel_other.py::test_right",
        "--tests",
        "tests/test_kernel.py",
    )
    end = explain(repo, *chosen)
    assert end.code == ExitCode.DONE, end.err
    assert end.out.splitlines()[:2] == [
        "note: tests/test_kernel_other.py is left out: it needs no_such_reference, which is not "
        "installed",
        "scale_kernel(BLOCK=1024), grid 1024",
    ]
    end = explain(repo, *chosen[:2])
    assert end.code == ExitCode.USAGE
    assert "test_kernel_other.py:1: ModuleNotFoundError" in end.err
    assert "choose other tests with --tests, or have some made of the calls" in end.err


@triton
def test_what_a_project_asks_of_pytest_benchmark_is_put_aside(tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    asking = "[pytest]\naddopts = --benchmark-only --benchmark-group-by=param:n\n"
    test = "import kernel\n\n\ndef test_perf_run(benchmark):\n    benchmark(kernel.run)\n"
    files = {"kernel.py": TRITON, "pytest.ini": asking, "tests/test_kernel.py": test}
    end = explain(make_repo(tmp_path, files))
    assert end.code == ExitCode.DONE, end.err
    assert "  as tests/test_kernel.py::test_perf_run launches it" in end.out.splitlines()


@cutile
def test_a_kernel_that_does_not_compile(tmp_path: Path) -> None:
    end = explain(project(tmp_path, CUTILE.replace("2 * tile", "tile.to(ct.float16)")))
    assert end.code == ExitCode.NO_IMPROVEMENT
    assert "sm_90: kernel.py:10" in end.out


@cutile
@pytest.mark.parametrize("tests", [False, True])
def test_a_file_that_cannot_be_imported(tests: bool, tmp_path: Path) -> None:
    """That no test launches it would be said of a file that is not looked at at all."""
    needs = "import ctypes\n\nctypes.CDLL('libno_such_driver.so.1')\n"
    files = {"kernel.py": f"import driver\n{CUTILE}", "driver.py": needs}
    repo = make_repo(tmp_path, files | ({"test_kernel.py": TEST} if tests else {}))
    for command in ("explain", "diagnose"):
        end = tile_agent(repo, command, "--kernel", "kernel.py", "--sm", "100")
        assert end.code == ExitCode.USAGE
        assert end.err == (
            "tile-agent: kernel.py cannot be imported here: driver.py:3: OSError: "
            "libno_such_driver.so.1: cannot open shared object file: No such file or directory: "
            "mend and commit it\n"
        )


@cutile
def test_a_package_of_the_repository_that_hides_the_installed_one_is_named(tmp_path: Path) -> None:
    """As in cuda-tile's own repository, where its extension is not built."""
    own = {"src/cuda/tile/__init__.py": "from cuda.tile._cext import launch\n"}
    repo = make_repo(tmp_path, own | {"src/kernel.py": CUTILE, "tests/test_kernel.py": TEST})
    end = tile_agent(repo, "explain", "--kernel", "src/kernel.py", "--sm", "90")
    assert end.code == ExitCode.USAGE
    assert "cannot import cuda-tile: No module named 'cuda.tile._cext'; src/cuda/tile of" in end.err
    assert "comes before the cuda-tile that is installed: name a copy of the kernel" in end.err
    assert end.err.count("\n") == 1


@triton
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--against", "nowhere"), "--against nowhere: no commit here that holds kernel.py"),
        (("--sm", "70"), "Invalid value for '--sm'"),
        (("--tests", "tests/test_other.py"), "tests/test_other.py is not in the repository"),
        (("--python", "/no/python"), "/no/python cannot be run"),
    ],
)
def test_bad_input(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    end = explain(project(tmp_path, TRITON), *arguments)
    assert end.code == ExitCode.USAGE
    assert said in end.err
    assert end.err.count("\n") == 1


@pytest.mark.full
def test_an_interpreter_is_found_from_where_the_command_is_given(tmp_path: Path) -> None:
    """The tests run in a worktree, from which another path would lead to it."""
    repo = make_repo(tmp_path, COUNTED | {"bin/notes.txt": ""})
    (repo / "bin" / "python").symlink_to(warm_interpreter())
    end = tile_agent(repo / "bin", "explain", "--kernel", "../double.py", "--python", "./python")
    assert end.code == 0, end.err
    assert "double_kernel(" in end.out
