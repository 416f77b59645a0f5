"""`tileir verify` in Triton's interpreter: it catches what a looser comparison lets pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.analysis.triton.kinds import classify
from agent.errors import ExitCode
from agent.syntax import Source
from agent.tileir.call import read_call
from agent.tileir.compatibility import check
from agent.tileir.configs import prepare
from tests.support.project import tile_agent
from tests.tileir import machines
from tests.tileir.kernels import ADD, HEAD, IN_PLACE, SOFTMAX
from tests.tileir.machines import NO_GPU
from tile_agent_pytest.sandbox import FILES, probe

pytest.importorskip("triton")
BOTH = {"x": [130], "y": [130]}
AFTER = "argument x after the call"
TWICE = "float32[130], float32[130]"


def verify(
    folder: Path,
    text: str,
    reference: str = "x + y",
    shapes: dict[str, Any] | None = None,
    *arguments: str,
) -> dict[str, Any]:
    """The result of a verification in the interpreter."""
    (folder / "kernel.py").write_text(text)
    done = tile_agent(
        folder,
        *("tileir", "verify", "--kernel", "kernel.py", "--json"),
        *("--reference", reference, "--shapes", json.dumps(BOTH if shapes is None else shapes)),
        *arguments,
        env=machines.variables(folder / "machine", NO_GPU),
    )
    assert done.code in (ExitCode.DONE, ExitCode.NO_IMPROVEMENT), done.err
    assert (done.code == ExitCode.DONE) is (done.json["correct"] is not False)
    return done.json


def wrong(found: dict[str, Any]) -> str:
    assert found["correct"] is False
    assert found["abort"]["reason"] == "compatibility"
    return str(found["abort"]["detail"])


def test_a_right_kernel_on_ragged_sizes(tmp_path: Path) -> None:
    found = verify(tmp_path, SOFTMAX, "torch.softmax(x, -1)", {"x": [3, "N"]}, "--sizes", "64,100")
    assert found["correct"] is True
    assert 0 <= found["max_abs_diff"] < 1e-6
    assert found["details"] == ["4 cases in Triton's interpreter, on the CPU"]


def test_sizes_where_none_are_given() -> None:
    call = read_call(
        Source(SOFTMAX), function=None, shapes='{"x": [3, "N"]}', dtypes=None, ragged=True
    )
    assert [case.size for case in call.cases] == [128, 127, 1024, 1023, 8192, 8191]


@pytest.mark.parametrize(
    ("edit", "to", "said"),
    [
        ("x + tl.load", "x + 1.01 * tl.load", "of 130 elements differ by more than 0.001 + 0.001"),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("return out", "return out[:1]", "has shape [1], the reference [130]"),
                ("return out", "return out[None]", "has shape [1, 130], the reference [130]"),
                ("return out", "return out.half()", "is float16, the reference float32"),
                (
                    "return out",
                    "return out, out",
                    f"gives 2 results ({TWICE}), the reference 1: let it",
                ),
                ("return out", "return None", "returns nothing and changes none of its arguments"),
                ("return out", "x += 1\n    return out", f"{AFTER}: 130 of 130 elements"),
                ("offsets < n", "offsets < n + 3", "writes outside"),
            )
        ),
    ],
)
def test_what_a_looser_comparison_lets_pass(tmp_path: Path, edit: str, to: str, said: str) -> None:
    text = ADD.replace(edit, to, 1)
    assert text != ADD
    if said == "writes outside":
        text = text.replace("out = torch.empty_like(x)", "out = x")
    assert said in wrong(verify(tmp_path, text))


@pytest.mark.full
def test_a_kernel_that_prints_its_own_verdict(tmp_path: Path) -> None:
    claim = 'print("RESULT:passed=True,max_diff=0.0", flush=True)\n'
    text = ADD.replace("x + tl.load", "x - tl.load")
    quits = text.replace("    return out", f"    {claim}    import os; os._exit(0)")
    assert "differ" in wrong(verify(tmp_path, text + claim))
    assert "exit code 0" in wrong(verify(tmp_path, quits))


def test_a_kernel_that_patches_the_comparison(tmp_path: Path) -> None:
    text = ADD.replace("x + tl.load", "x - tl.load")
    patch = "torch.allclose = torch.equal = torch.isclose = lambda *a, **k: True\n"
    assert "differ" in wrong(verify(tmp_path, text + patch))


@pytest.mark.full
def test_zeros_are_no_softmax_however_long_its_rows(tmp_path: Path) -> None:
    """Numbers near 0.0001 in float16, where a tolerance for numbers near one is 0.01."""
    given = ("torch.softmax(x, -1)", {"x": [2, 8192]}, "--dtypes", '{"x": "float16"}')
    right = SOFTMAX.replace('other=float("-inf"))', 'other=float("-inf")).to(tl.float32)')
    zeros = right.replace("e / tl.sum", "0.0 * e / tl.sum")
    assert verify(tmp_path, right, *given)["correct"] is True
    assert " of 16384 elements differ by more than" in wrong(verify(tmp_path, zeros, *given))


@pytest.mark.full
def test_a_float64_reference_in_place_and_an_argument_that_is_scaled_a_little(
    tmp_path: Path,
) -> None:
    given = ({"x": [130]}, "--dtypes", '{"x": "float64"}')
    assert verify(tmp_path, IN_PLACE, "x.mul_(2)", *given)["correct"] is True
    triple = IN_PLACE.replace("2 * tl", "4 * tl")
    assert "x" in wrong(verify(tmp_path, triple, "x.mul_(2)", *given))
    scaled = ADD.replace("return out", "x *= 1.0005\n    return out")
    said = wrong(verify(tmp_path, scaled))
    assert "argument x after the call: 130 of 130 elements are changed" in said


def test_a_wrapper_that_never_launches(tmp_path: Path) -> None:
    idle = ADD.replace("    add_kernel[", "    return x + y\n    add_kernel[")
    assert "add launches none of add_kernel" in wrong(verify(tmp_path, idle))


@pytest.mark.full
def test_in_place_results_are_compared(tmp_path: Path) -> None:
    shapes = {"x": [130]}
    assert verify(tmp_path, IN_PLACE, "x.mul_(2)", shapes)["correct"] is True
    assert verify(tmp_path, IN_PLACE, "2 * x", shapes)["correct"] is True
    triple = IN_PLACE.replace("2 * tl", "3 * tl")
    assert "result 0" in wrong(verify(tmp_path, triple, "2 * x", shapes))
    assert "x" in wrong(verify(tmp_path, triple, "x.mul_(2)", shapes))


@pytest.mark.full
def test_an_output_that_is_handed_in(tmp_path: Path) -> None:
    text = ADD.replace("def add(x, y):\n    out = torch.empty_like(x)", "def add(x, y, out):")
    text = text.replace("    return out\n", "")
    shapes = {**BOTH, "out": [130]}
    assert verify(tmp_path, text, "x + y", shapes)["correct"] is True
    assert "result 0" in wrong(verify(tmp_path, text, "x - y", shapes))


@pytest.mark.full
def test_a_reference_in_a_file_and_values_that_are_no_tensors(tmp_path: Path) -> None:
    scale = ADD.replace("def add(x, y):", "def add(x, y, alpha):")
    scale = scale.replace("    return out", "    return out * alpha")
    (tmp_path / "right.py").write_text("def right(x, y, alpha):\n    return (x + y) * alpha\n")
    shapes = {**BOTH, "alpha": 0.5}
    assert verify(tmp_path, scale, "right.py:right", shapes)["correct"] is True


@pytest.mark.full
@pytest.mark.parametrize(
    "parameters", ["x, y", "y, x", "first, second"], ids=["names", "swapped", "places"]
)
def test_the_order_of_the_shapes_is_not_that_of_the_arguments(
    tmp_path: Path, parameters: str
) -> None:
    minus = ADD.replace("x + tl.load", "x - tl.load")
    first, second = ("x", "y") if "x" in parameters else ("first", "second")
    right = f"def right({parameters}):\n    return {first} - {second}\n"
    (tmp_path / "right.py").write_text(right)
    for shapes in ({"x": [130], "y": [130]}, {"y": [130], "x": [130]}):
        assert verify(tmp_path, minus, "right.py:right", shapes)["correct"] is True


@pytest.mark.full
def test_dtypes(tmp_path: Path) -> None:
    halves = ("--dtypes", '{"x": "float16", "y": "float16"}')
    assert verify(tmp_path, ADD, "x + y", BOTH, *halves)["correct"] is True
    mixed = ("--dtypes", '{"x": "float16"}')
    assert "is float16, the reference float32" in wrong(
        verify(tmp_path, ADD, "x + y", BOTH, *mixed)
    )


def test_bfloat16_in_the_interpreter(tmp_path: Path) -> None:
    both = ("--dtypes", '{"x": "bfloat16", "y": "bfloat16"}')
    assert verify(tmp_path, ADD, "x + y", BOTH, *both)["correct"] is True
    assert wrong(verify(tmp_path, ADD, "x - y", BOTH, *both))


@pytest.mark.full
def test_tolerances_can_be_set(tmp_path: Path) -> None:
    near = ADD.replace("x + tl.load", "1.0001 * x + tl.load")
    assert verify(tmp_path, near)["correct"] is True
    assert "differ" in wrong(verify(tmp_path, near, "x + y", BOTH, "--rtol", "0", "--atol", "0"))


def test_a_kernel_that_raises(tmp_path: Path) -> None:
    text = ADD.replace("    out = torch", '    raise ValueError("no")\n    out = torch')
    found = verify(tmp_path, text)
    line = 1 + text.splitlines().index('    raise ValueError("no")')
    assert wrong(found) == f'x 130, y 130: ValueError: no (line {line}: raise ValueError("no"))'
    broken = HEAD.replace("import torch", "import torch, missing_package") + ADD.removeprefix(HEAD)
    assert "missing_package" in wrong(verify(tmp_path, broken))


def test_a_function_that_insists_on_a_gpu(tmp_path: Path) -> None:
    """Of a file that names no device: its arguments are where a GPU's would be."""
    text = ADD.replace("    out = torch", "    assert x.is_cuda and y.is_cuda\n    out = torch")
    assert "cuda" not in ADD
    assert verify(tmp_path, text)["correct"] is True


@pytest.mark.full
def test_a_kernel_that_hangs(tmp_path: Path) -> None:
    text = ADD.replace("    out = torch", "    import time; time.sleep(60)\n    out = torch")
    found = verify(tmp_path, text, "x + y", BOTH, "--timeout-s", "5")
    assert "not done after 5 s: killed" in wrong(found)


@pytest.mark.full
def test_a_wrong_reference_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(ADD)
    done = tile_agent(
        tmp_path,
        *("tileir", "verify", "--kernel", "kernel.py", "--reference", "x + z"),
        *("--shapes", json.dumps(BOTH)),
        env=machines.variables(tmp_path / "machine", NO_GPU),
    )
    assert done.code == ExitCode.USAGE
    assert "--reference fails (NameError: name 'z' is not defined)" in done.err


@pytest.mark.full
def test_a_prepared_kernel_computes_the_same_on_stock_triton(tmp_path: Path) -> None:
    source = Source(SOFTMAX)
    text = prepare(source, classify(source), check(source)).text
    assert text != SOFTMAX
    found = verify(tmp_path, text, "torch.softmax(x, -1)", {"x": [3, 100]})
    assert found["correct"] is True
    assert found == verify(tmp_path, SOFTMAX, "torch.softmax(x, -1)", {"x": [3, 100]})


def test_the_users_own_setting_of_the_interpreter_is_overruled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert verify(tmp_path, ADD)["correct"] is True


@pytest.mark.skipif(probe()["tier"] < FILES, reason=f"no sandbox here: {probe()['why']}")
def test_a_kernel_that_writes_beside_itself(tmp_path: Path) -> None:
    """It runs as the kernels of a run do: confined, unless it is said otherwise."""
    text = f"from pathlib import Path\n\nPath({str(tmp_path / 'mine')!r}).touch()\n{ADD}"
    refused = wrong(verify(tmp_path, text))
    assert "kernel.py cannot be imported: kernel.py:3: PermissionError" in refused
    assert "give --sandbox off" in refused
    assert not (tmp_path / "mine").exists()
    assert verify(tmp_path, text, "x + y", BOTH, "--sandbox", "off")["correct"] is True
    assert (tmp_path / "mine").exists()


@pytest.mark.full
def test_a_store_outside_of_a_result(tmp_path: Path) -> None:
    """Nothing lies behind a tensor that the kernel's file has made, and nobody would see it."""
    beyond = ADD.replace("mask=mask)\n\n\ndef", "mask=offsets < n + 3)\n\n\ndef")
    assert beyond != ADD
    assert "OutOfBounds: add_kernel stores" in wrong(verify(tmp_path, beyond))
