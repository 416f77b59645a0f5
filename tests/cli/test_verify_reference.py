"""`tile-agent verify --reference`: a Triton kernel beside what is right, without tests or a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ExitCode
from tests.support.project import Outcome, tile_agent
from tests.tileir import machines
from tests.tileir.kernels import ADD, IN_PLACE
from tests.tileir.machines import NO_GPU

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("torch", reason="torch is not installed")

FAILED = 3
ADDED = ("--reference", "x + y", "--shapes", '{"x": ["N"], "y": ["N"]}', "--sizes", "130")
DOUBLED = ("--reference", "2 * x", "--shapes", '{"x": [130]}')
TUNED = ADD.replace(
    "@triton.jit",
    "@triton.autotune(\n"
    "    [triton.Config({'BLOCK': n}, num_warps=w) for n in (64, 32) for w in (4, 8)], key=['n']\n"
    ")\n@triton.jit",
).replace(
    "add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)",
    "grid = lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)\n"
    "    add_kernel[grid](x, y, out, x.numel())",
)


def verify(folder: Path, text: str, *arguments: str) -> Outcome:
    """Verify a kernel that lies in no repository, as it is on disk."""
    (folder / "kernel.py").write_text(text)
    env = machines.variables(folder / "machine", NO_GPU)
    return tile_agent(folder, "verify", "--kernel", "kernel.py", *arguments, env=env)


def test_a_right_kernel(tmp_path: Path) -> None:
    done = verify(tmp_path, ADD, *ADDED, "--dtypes", '{"x": "float16", "y": "float16"}', "--json")
    assert done.code == ExitCode.DONE, done.err
    assert done.json == {
        "correct": True,
        "reason": "2 cases in Triton's interpreter, on the CPU",
        "max_abs_diff": 0.0,
        "max_rel_diff": 0.0,
        "details": [],
    }
    assert {p.name for p in tmp_path.iterdir()} == {"kernel.py", "machine"}


def test_what_the_original_accepts(tmp_path: Path) -> None:
    """It broadcasts shapes, converts dtypes, and takes a printed line for the verdict."""
    claim = 'print("RESULT:passed=True,max_diff=0.0", flush=True)\n'
    text = ADD.replace("return out", "return out[:1], out.half(), out - y") + claim
    done = verify(tmp_path, text, "--reference", "(x + y,) * 3", *ADDED[2:], "--json")
    assert done.code == FAILED, done.err
    assert done.json["correct"] is False
    one, two, three = done.json["details"][:3]
    assert one == "x 130, y 130: result 0: has shape [1], the reference [130]"
    assert two == "x 130, y 130: result 1: is float16, the reference float32"
    assert "result 2: 130 of 130 elements differ by more than 0.001" in three


def test_results_in_place(tmp_path: Path) -> None:
    """The original compares what is returned, and here that is None."""
    tripled = IN_PLACE.replace("2 * tl", "3 * tl")
    done = verify(tmp_path, tripled, *DOUBLED)
    assert done.code == FAILED, done.err
    first, second = done.out.splitlines()
    assert first.startswith("wrong: 1 case in Triton's interpreter, on the CPU, max difference ")
    assert second.startswith("x 130: result 0: 130 of 130 elements differ")


SEVERAL = (
    ADD.replace("return out", "return out, x, 64, 'a mode'")
    + """

class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, mode="a mode"):
        return add(x, y)[0]
"""
)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("x + y", "gives 3 results (float32[130], float32[130], 64), the reference 1: let it give "
                  "as many in a tuple, None for what is not to be compared"),
        ("(x + y, None, None)", ""),
        ("(x + y, x, 64, None)", ""),
        ("(x + y, None, 65, None)", "result 2: 1 of 1 elements differ, first at []: 64, not 65"),
        ("(x, None, None)", "result 0: 130 of 130 elements differ"),
        ("(x + y, x, 64, y)", "result 3: is no tensor, and the reference is"),
        ("(None, None, None)", "the reference gives None for each result"),
    ],
)  # fmt: skip
def test_what_is_returned_beside_the_result(tmp_path: Path, reference: str, said: str) -> None:
    """As the forward functions of libraries do: what was saved, a block size, a mode."""
    given = ("--reference", reference, "--shapes", '{"x": [130], "y": [130]}', "--function", "add")
    done = verify(tmp_path, SEVERAL, *given)
    assert done.code == (FAILED if said else ExitCode.DONE), done.err
    assert said in done.out


@pytest.mark.parametrize("name", ["Add.apply", "Add.forward"])
def test_apply_of_an_autograd_function(tmp_path: Path, name: str) -> None:
    shapes = ("--shapes", '{"y": [130], "x": [130]}', "--function", name)
    done = verify(tmp_path, SEVERAL, "--reference", "x + y", *shapes)
    assert done.code == ExitCode.DONE, done.err
    done = verify(tmp_path, SEVERAL, "--reference", "x - y", *shapes)
    assert (done.code, "result 0: 130 of 130 elements differ" in done.out) == (FAILED, True)


def test_apply_takes_its_arguments_by_their_places(tmp_path: Path) -> None:
    text = SEVERAL.replace("ctx, x, y, mode", "ctx, x, scale=1.0, y=None, mode")
    done = verify(tmp_path, text, *ADDED, "--function", "Add.apply")
    assert done.code == ExitCode.USAGE
    assert "--shapes lacks scale: Add.apply takes its arguments by their places" in done.err


def test_every_config_is_run(tmp_path: Path) -> None:
    """Those that the interpreter cannot tell apart count once."""
    half = TUNED.replace("meta['BLOCK'])", "64)")  # right with blocks of 64 only
    found = verify(tmp_path, half, *ADDED, "--json").json
    assert found["reason"].startswith("4 runs, of 2 cases with each config, in Triton's")
    assert [line.partition(": ")[0] for line in found["details"]] == [
        "x 130, y 130 with BLOCK=32",
        "x 129, y 129 with BLOCK=32",
    ]


def test_configs_of_kernels_that_are_not_launched_do_not_count(tmp_path: Path) -> None:
    """Seen with dion: a failing case was named by the configs of three kernels at once."""
    start = TUNED.index("@triton.autotune")
    other = TUNED[start : TUNED.index("\n\n\n", start)].replace(
        "def add_kernel", "def other_kernel"
    )
    other = other.replace("(64, 32)", "(256, 128, 64)").replace("'BLOCK'", "'OTHER'")
    half = TUNED.replace("meta['BLOCK'])", "64)")
    text = f"{half[:start]}{other}\n\n\n{half[start:]}"
    found = verify(tmp_path, text, *ADDED, "--json").json
    assert found["reason"].startswith("4 runs, of 2 cases with each config, in Triton's")
    assert found["details"][0].startswith("x 130, y 130 with BLOCK=32: ")


def test_configs_that_the_author_prunes_are_not_run(tmp_path: Path) -> None:
    prune = "prune_configs_by={'early_config_prune': lambda configs, args, **_: configs[2:]}, key"
    half = TUNED.replace("meta['BLOCK'])", "32)").replace("key", prune, 1)
    done = verify(tmp_path, half.replace("64, 32", "16, 32"), *ADDED)
    assert done.out.startswith("right: 2 cases in Triton's interpreter"), done.out + done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--reference", "x + y"), "--reference needs --shapes: what is right, for which call"),
        (("--sizes", "130"), "--sizes needs --reference and --shapes"),
        ((*ADDED, "--tests", "test.py"), "--tests and --reference are two ways to verify"),
        ((*ADDED, "--target", "sm_90"), "--target and --reference are two ways to verify"),
        (("--reference", "x +", *ADDED[2:]), "--reference is no expression"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = verify(tmp_path, ADD, *arguments)
    assert done.code == ExitCode.USAGE
    assert said in done.err
    assert done.err.count("\n") == 1


def test_a_variable_that_the_kernel_s_file_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"import os\n\nassert os.environ['MY_SIZE'] == '4'\n{ADD}"
    monkeypatch.setenv("MY_SIZE", "4")
    done = verify(tmp_path, text, *ADDED)
    assert (done.code, "--pass-env MY_SIZE)" in done.out) == (FAILED, True), done.out
    done = verify(tmp_path, text, *ADDED, "--pass-env", "MY_SIZE")
    assert done.code == ExitCode.DONE, done.err


def test_a_kernel_of_cutile(tmp_path: Path) -> None:
    text = "import cuda.tile as ct\n\n\n@ct.kernel\ndef k(x):\n    ct.store(x, (0,), ct.bid(0))\n"
    done = verify(tmp_path, text, *ADDED)
    assert done.code == ExitCode.USAGE
    assert "--reference compares Triton kernels, and kernel.py holds cutile's" in done.err
