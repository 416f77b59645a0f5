"""`tile-agent tileir`: what it prints, what it writes, and the fields that the reference lists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ExitCode
from tests.support.pages import rows
from tests.support.project import Outcome, tile_agent
from tests.support.repo import changed, make_repo, snapshot
from tests.support.tiers import others_full
from tests.tileir import machines
from tests.tileir.kernels import ADD, IN_PLACE, MATMUL, SOFTMAX
from tests.tileir.machines import B200, H200, NO_GPU, PLACEHOLDER, TRITON

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "tile_ir.md"
TYPES: dict[str, type] = {
    "boolean": bool, "string": str, "number": float, "array": list, "object": dict,
    "null": type(None),
}  # fmt: skip
STATES: dict[str, tuple[dict[str, str], ...]] = {
    "stock": (NO_GPU,),
    "placeholder": (PLACEHOLDER, NO_GPU),
    "no GPU": (TRITON, NO_GPU),
    "Hopper": (TRITON, H200),
    "Blackwell": (TRITON, B200),
}
"""The states a machine can be in. `tests/tileir/test_machine.py` checks `check` in each."""
REAL = ("stock", "placeholder")
"""Those whose Triton is the one that is installed."""
VERIFY = ("--reference", "x + y", "--shapes", '{"x": ["N"], "y": ["N"]}', "--sizes", "130")


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILE_AGENT_STATE_DIR", str(tmp_path / "state"))


def tileir(
    folder: Path, command: str, text: str, *arguments: str, env: dict[str, str] | None = None
) -> Outcome:
    (folder / "kernel.py").write_bytes(text.encode())
    return tile_agent(folder, "tileir", command, "--kernel", "kernel.py", *arguments, env=env)


def of_blackwell(tmp_path: Path, **more: str) -> dict[str, str]:
    return machines.variables(tmp_path / "machine", TRITON, B200, **more)


def status(found: dict[str, Any], phase: str) -> str:
    (step,) = (s for s in found["steps"] if s["phase"] == phase)
    return str(step["status"])


def check_fields(found: dict[str, Any]) -> None:
    """Field for field what the reference's table says of the command."""
    listed = {
        row[1].strip("`"): row[2].split(", ")
        for row in rows(REFERENCE, "command")
        if found["command"] in row[0].split(", ") or row[0] == "all"
    }
    assert set(found) == set(listed)
    for name, value in found.items():
        allowed = tuple(TYPES[kind] for kind in listed[name])
        number = float in allowed and isinstance(value, int) and not isinstance(value, bool)
        assert isinstance(value, allowed) or number, (name, value)


# --- classify and apply -------------------------------------------------------------------------


def test_classify(tmp_path: Path) -> None:
    done = tileir(tmp_path, "classify", SOFTMAX)
    assert done.code == ExitCode.DONE
    assert done.out.startswith("## TileIR Optimization: softmax_kernel\n\n### Classification\n")
    assert "- Kernel type: norm-like" in done.out
    assert "- Strategy: High occupancy" in done.out
    found = tileir(tmp_path, "classify", SOFTMAX, "--json").json
    check_fields(found)
    assert found["classification"] == "norm-like"
    assert found["tileir_compatible"] is True
    assert any("tl.exp2" in line for line in found["recommendations"])
    assert any("--approx --ftz" in line for line in found["recommendations"])


def test_classify_tells_what_stops(tmp_path: Path) -> None:
    found = tileir(tmp_path, "classify", IN_PLACE, "--json").json
    assert found["tileir_compatible"] is False
    assert found["findings"][0]["kind"] == "memory model"
    assert found["recommendations"][0].startswith("double_kernel stays on PTX: line 10: writes")


def test_apply_prints_the_diff_and_changes_nothing(tmp_path: Path) -> None:
    done = tileir(tmp_path, "apply", SOFTMAX)
    assert done.code == ExitCode.DONE
    assert (tmp_path / "kernel.py").read_text() == SOFTMAX
    assert "line 7: softmax_kernel tunes occupancy 2, 4, where Tile IR compiles" in done.err
    assert "validate: not run" in done.err
    (tmp_path / "change.diff").write_text(done.out)
    subprocess.run(["git", "apply", "change.diff"], cwd=tmp_path, check=True)
    assert "@tile_ir_autotune(" in (tmp_path / "kernel.py").read_text()


def test_apply_writes_the_file_that_it_tells_of(tmp_path: Path) -> None:
    done = tileir(tmp_path, "apply", MATMUL, "--output", "matmul_tileir.py", "--json")
    found = done.json
    check_fields(found)
    assert found["file"] == "matmul_tileir.py"
    assert (tmp_path / "matmul_tileir.py").read_text() == found["optimized_code"]
    assert (tmp_path / "kernel.py").read_text() == MATMUL
    assert "tensor descriptors that the host makes" in found["changes_applied"][0]
    assert "also tunes occupancy" in found["changes_applied"][1]
    assert status(found, "transform") == "passed"
    assert status(found, "validate") == "not run"


def test_apply_refuses_what_tile_ir_would_compute_wrongly(tmp_path: Path) -> None:
    done = tileir(tmp_path, "apply", IN_PLACE, "--output", "out.py", "--json")
    assert done.code == ExitCode.NO_IMPROVEMENT
    check_fields(done.json)
    assert done.json["optimized_code"] is None
    assert "Tile IR does not order the two" in done.json["refusals"]["double_kernel"]
    assert not (tmp_path / "out.py").exists()


def test_apply_writes_the_same_file_twice(tmp_path: Path) -> None:
    for _ in range(2):
        done = tileir(tmp_path, "apply", MATMUL, "--output", "new.py", "--json")
        assert done.code == ExitCode.DONE, done.err
        assert (tmp_path / "new.py").read_text() == done.json["optimized_code"]


@pytest.mark.parametrize(
    ("to", "saying"),
    [
        ("nodir/x.py", "there is no folder nodir: make it"),
        ("notes.txt/x.py", "there is no folder notes.txt: make it"),
        ("folder", "is a folder: name a new file in it"),
        ("notes.txt", "exists already: name another file, or remove it first"),
        ("dangling.py", "exists already"),
        ("kernel.py", "is the kernel's own file"),
        ("link.py", "is the kernel's own file"),
        ("n" * 300, "cannot be written (File name too long): name another"),
    ],
)
def test_apply_replaces_nothing(tmp_path: Path, to: str, saying: str) -> None:
    repo = make_repo(tmp_path, {"notes.txt": "mine", "folder/a.txt": "a", "kernel.py": MATMUL})
    (repo / "dangling.py").symlink_to("nowhere.py")
    (repo / "link.py").symlink_to("kernel.py")
    before = snapshot(repo)
    done = tile_agent(repo, "tileir", "apply", "--kernel", "kernel.py", "--output", to)
    assert done.code == ExitCode.USAGE
    assert done.err.startswith(f"tile-agent: --output {to}")
    assert saying in done.err
    assert (done.out, done.err.count("\n")) == ("", 1)
    assert changed(before, snapshot(repo)) == set()


# --- verify and bench ---------------------------------------------------------------------------


@pytest.mark.full
def test_every_step_on_a_blackwell(tmp_path: Path) -> None:
    env = of_blackwell(tmp_path, TRITON_FAKE_TILE_IR="fast")
    found = tileir(tmp_path, "bench", ADD, *VERIFY, "--json", env=env)
    assert found.code == ExitCode.DONE, found.out
    value = found.json
    check_fields(value)
    assert [s["status"] for s in value["steps"]] == ["passed"] * 4
    assert value["correct"] is True
    assert value["max_abs_diff"] == 0.0
    assert value["speedup"] > 1.5
    assert value["speedup"] == pytest.approx(value["reference_time_ms"] / value["kernel_time_ms"])
    (row,) = value["rows"]
    assert row["low"] <= row["speedup"] <= row["high"]
    assert row["method"] == "CPU wall time"
    assert value["abort"] is None


@pytest.mark.full
def test_no_speedup_is_a_reason_to_stop(tmp_path: Path) -> None:
    env = of_blackwell(tmp_path, TRITON_FAKE_TILE_IR="slow")
    done = tileir(tmp_path, "bench", ADD, *VERIFY, env=env)
    assert done.code == ExitCode.NO_IMPROVEMENT
    headings = re.findall(r"^#+ (.*)$", done.out, re.MULTILINE)
    assert headings == [
        "TileIR Optimization: add_kernel",
        "Classification",
        "Compatibility Check (ENABLE_TILE=0)",
        "TileIR Validation (ENABLE_TILE=1)",
        "Benchmark Comparison",
        "Output",
    ]
    assert re.search(r"^\| x 130, y 130 \| PTX \(ENABLE_TILE=0\) \| \d", done.out, re.MULTILINE)
    assert done.out.splitlines()[-1].startswith("Stop: no speedup: Tile IR takes ")


def test_a_wrong_result_of_tile_ir_is_a_reason_to_stop(tmp_path: Path) -> None:
    env = of_blackwell(tmp_path, TRITON_FAKE_TILE_IR="wrong")
    done = tileir(tmp_path, "bench", ADD, *VERIFY, "--json", env=env)
    assert done.code == ExitCode.NO_IMPROVEMENT
    found = done.json
    assert status(found, "compatibility") == "passed"
    assert status(found, "validate") == "failed"
    assert status(found, "benchmark") == "not run"
    assert found["abort"]["reason"] == "validation"
    assert found["correct"] is False


def test_a_kernel_that_is_wrong_before_is_a_reason_to_stop(tmp_path: Path) -> None:
    env = of_blackwell(tmp_path)
    wrong = ADD.replace("x + tl.load", "x - tl.load")
    done = tileir(tmp_path, "verify", wrong, *VERIFY, "--json", env=env)
    assert done.code == ExitCode.NO_IMPROVEMENT
    check_fields(done.json)
    assert done.json["abort"]["reason"] == "compatibility"
    assert status(done.json, "validate") == "not run"


def test_tile_ir_never_runs_what_its_memory_model_breaks(tmp_path: Path) -> None:
    arguments = ("--reference", "x.mul_(2)", "--shapes", '{"x": [70]}')
    done = tileir(tmp_path, "verify", IN_PLACE, *arguments, "--json", env=of_blackwell(tmp_path))
    assert done.code == ExitCode.DONE, done.out
    (step,) = (s for s in done.json["steps"] if s["phase"] == "validate")
    assert step["status"] == "not run"
    assert "Tile IR does not order the two" in step["reason"]


def test_a_backend_that_stays_inactive_is_not_validated(tmp_path: Path) -> None:
    """It was active when probed, as where a second Triton shadows the first."""
    path = 'import os\nos.environ["ENABLE_TILE"] = "0"\n'
    done = tileir(tmp_path, "verify", path + ADD, *VERIFY, "--json", env=of_blackwell(tmp_path))
    assert done.code == ExitCode.NO_IMPROVEMENT
    (step,) = (s for s in done.json["steps"] if s["phase"] == "validate")
    assert step["reason"] == "ENABLE_TILE=1 did not make Tile IR compile: the target is cuda"


def machine(tmp_path: Path, state: str) -> dict[str, str]:
    if state in REAL:
        pytest.importorskip("triton", reason="triton is not installed")
    return machines.variables(tmp_path / "machine", *STATES[state])


@pytest.mark.parametrize("state", others_full([*STATES]))
def test_classify_and_apply_in_every_state(tmp_path: Path, state: str) -> None:
    env = machine(tmp_path, state)
    kind = tileir(tmp_path, "classify", SOFTMAX, "--json", env=env)
    assert kind.code == ExitCode.DONE, kind.err
    check_fields(kind.json)
    done = tileir(tmp_path, "apply", SOFTMAX, "--output", "out.py", "--json", env=env)
    assert done.code == ExitCode.DONE, done.err
    check_fields(done.json)
    assert done.json["classification"] == kind.json["classification"] == "norm-like"
    assert done.json["optimized_code"] == (tmp_path / "out.py").read_text()
    assert status(done.json, "transform") == "passed"
    assert status(done.json, "validate") == ("ready" if state == "Blackwell" else "not run")


@pytest.mark.parametrize("state", others_full(["Hopper", "placeholder", "no GPU"]))
def test_verify_where_tile_ir_cannot_run(tmp_path: Path, state: str) -> None:
    """Stock Triton is verified in tests/tileir/test_verify.py, and a Blackwell above."""
    done = tileir(tmp_path, "verify", ADD, *VERIFY, "--json", env=machine(tmp_path, state))
    assert done.code == ExitCode.DONE, done.err
    found = done.json
    check_fields(found)
    assert found["correct"] is True
    assert status(found, "compatibility") == "passed"
    (step,) = (s for s in found["steps"] if s["phase"] == "validate")
    assert step["status"] == "not run"
    why = {"placeholder": "empty placeholder", "no GPU": "no GPU that NVML", "Hopper": "a Hopper"}
    assert why[state] in step["reason"]


@pytest.mark.parametrize("state", others_full(["Hopper", "stock", "placeholder", "no GPU"]))
def test_bench_where_tile_ir_cannot_run(tmp_path: Path, state: str) -> None:
    done = tileir(tmp_path, "bench", ADD, *VERIFY, "--json", env=machine(tmp_path, state))
    assert done.code == ExitCode.DONE, done.out
    found = done.json
    check_fields(found)
    assert status(found, "compatibility") == "passed"
    assert status(found, "validate") == "not run"
    assert status(found, "benchmark") == "not run"
    assert len(found["rows"]) == (1 if state == "Hopper" else 0)
    assert found["speedup"] is None
    assert found["abort"] is None


def test_check_has_the_fields(tmp_path: Path) -> None:
    env = of_blackwell(tmp_path)
    check_fields(tile_agent(tmp_path, "tileir", "check", "--json", env=env).json)


def test_the_variables_reach_tile_ir_alone(tmp_path: Path) -> None:
    spy = (
        'import os\nif os.environ.get("TILEIR_ENABLE_APPROX") == "1":\n'
        '    assert os.environ["ENABLE_TILE"] == "1"\n    raise RuntimeError("approx is on")\n'
    )
    done = tileir(
        tmp_path, "verify", spy + ADD, *VERIFY, "--approx", "--json", env=of_blackwell(tmp_path)
    )
    assert status(done.json, "compatibility") == "passed"
    assert "approx is on" in done.json["abort"]["detail"]


@pytest.mark.parametrize(
    ("message", "is_fault"),
    [("out of resource: shared memory, Required: 300000", True), ("no such kernel", False)],
)
def test_running_out_of_memory_is_the_compilers_fault(
    tmp_path: Path, message: str, is_fault: bool
) -> None:
    fails = (
        '    import os\n    if os.environ["ENABLE_TILE"] == "1":\n'
        f'        raise OSError("{message}")\n'
    )
    text = ADD.replace("    out = torch.empty_like(x)\n", fails + "    out = torch.empty_like(x)\n")
    done = tileir(tmp_path, "verify", text, *VERIFY, "--json", env=of_blackwell(tmp_path))
    assert status(done.json, "validate") == "failed"
    assert message in done.json["steps"][1]["details"][0]
    assert ("report it to" in done.json["steps"][1]["details"][-1]) is is_fault


def test_what_is_told_of_products(tmp_path: Path) -> None:
    told = " ".join(tileir(tmp_path, "classify", MATMUL, "--json").json["recommendations"])
    assert "time small products apart" in told
    assert "none may run out of shared or tensor memory" in told
    assert "1 to 32 by the backend's README, 1 to 10 by its tuning tips" in told


def test_what_is_told_of_rows(tmp_path: Path) -> None:
    told = " ".join(tileir(tmp_path, "classify", SOFTMAX, "--json").json["recommendations"])
    assert "they may spill, and num_warps cannot help there" in told
    assert "call tl.exp2 of a multiple by log2(e)" in told
    assert "try `tileir bench --approx --ftz`" in told


@pytest.mark.parametrize(
    ("command", "text", "arguments", "said"),
    [
        ("classify", "x = 1\n", (), "holds no tile kernel"),
        ("classify", "import cuda.tile as ct\n\n@ct.kernel\ndef k(x): ...\n", (), "cutile's"),
        ("verify", ADD, ("--reference", "x +", "--shapes", "{}"), "--reference is no expression"),
        ("verify", ADD, ("--reference", "no.py:f", "--shapes", "{}"), "no.py is no file"),
        ("verify", ADD, ("--reference", "x", "--shapes", "[4]"), "--shapes has to be a JSON"),
        ("verify", ADD, ("--reference", "x", "--shapes", "{x}"), "--shapes is no JSON"),
        ("verify", ADD, ("--reference", "x", "--shapes", '{"x": [4]}'), "lacks y, which add needs"),
        ("verify", ADD, ("--reference", "x", "--shapes", '{"z": [4]}'), "names z; add takes x, y"),
        ("verify", ADD, (*VERIFY, "--dtypes", '{"x": "half"}'), "half is none of bool, int8"),
        ("verify", ADD, (*VERIFY, "--dtypes", '{"z": "int8"}'), "--dtypes names z"),
        ("verify", ADD, (*VERIFY, "--sizes", "1,x"), "'x' is no size"),
        ("verify", ADD, (*VERIFY, "--function", "sub"), "has no such function"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, command: str, text: str, arguments: tuple[str, ...], said: str
) -> None:
    done = tileir(tmp_path, command, text, *arguments)
    assert done.code == ExitCode.USAGE
    assert said in done.err
    assert done.err.count("\n") == 1
