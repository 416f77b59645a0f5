"""The configs that are written: what stays, what is gated, what is refused."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.analysis.triton.kinds import classify
from agent.syntax import Source
from agent.tileir.advice import recommend
from agent.tileir.compatibility import check
from agent.tileir.configs import AUTOTUNE, CONFIGS, PreparedConfigs, prepare
from tests.tileir import machines
from tests.tileir.kernels import ADD, HEAD, IN_PLACE, KINDS, MATMUL, SOFTMAX, rows


def prepared(text: str) -> PreparedConfigs:
    source = Source(text)
    return prepare(source, classify(source), check(source))


def recommended(text: str) -> tuple[str, ...]:
    source = Source(text)
    return recommend(source, classify(source), check(source))


def refusal(text: str) -> str:
    found = prepared(text)
    assert found.text == text
    assert not found.changes
    ((_, reason),) = found.refusals.items()
    return reason


@pytest.mark.parametrize("text", [ADD, SOFTMAX, MATMUL, KINDS["data movement"]])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_is_written_parses_and_a_second_time_refuses(text: str, newline: str) -> None:
    first = prepared(text.replace("\n", newline))
    ast.parse(first.text)
    assert len(first.changes) == 1
    assert first.text.count("\n") == first.text.count(newline)
    assert "has its Tile IR configs already" in refusal(first.text)


def test_everything_else_stays_as_it_was() -> None:
    added = set(prepared(SOFTMAX).text.splitlines()) - set(SOFTMAX.splitlines())
    assert '@tile_ir_autotune(key=["n_cols"], occupancy=(2, 4))' in added
    left = prepared(SOFTMAX).text
    for name in (CONFIGS, AUTOTUNE):
        begin = left.index(f"def {name}(")
        left = left[:begin] + left[left.index("\n\n\n", begin) + 3 :]
    assert left.replace('@tile_ir_autotune(key=["n_cols"], occupancy=(2, 4))\n', "") == SOFTMAX


def test_an_autotuned_kernel_keeps_its_configs_and_key() -> None:
    text = prepared(MATMUL).text
    assert f"def {AUTOTUNE}(" not in text
    assert (
        "@triton.autotune(configs=tile_ir_configs(CONFIGS, occupancy=(1, 2, 4), num_stages=(4, 6),"
        " num_ctas=(1, 2), tiles=({'M_TILE': 256, 'N_TILE': 256}, {'M_TILE': 256, 'N_TILE': 128}))"
        ', key=["m", "n", "k"])'
    ) in text


def test_tiles_grow_only_where_the_configs_vary_them() -> None:
    fixed = MATMUL.replace('"M_TILE": 128, "N_TILE": 128', '"M_TILE": 64, "N_TILE": 64')
    assert "tiles=(" not in prepared(fixed).text.rpartition("def ")[0].rpartition("@")[2]
    assert "256" not in prepared(fixed).changes[0]


def test_the_one_side_that_varies_grows() -> None:
    one = MATMUL.replace('"M_TILE": 128, "N_TILE": 128', '"M_TILE": 64, "N_TILE": 128')
    assert "tiles=({'N_TILE': 256},)" in prepared(one).text
    assert "and tiles of 256 along N_TILE, where" in prepared(one).changes[0]
    other = MATMUL.replace('"M_TILE": 128, "N_TILE": 128', '"M_TILE": 128, "N_TILE": 64')
    assert "tiles=({'M_TILE': 256},)" in prepared(other).text


def test_a_persistent_kernel_gets_no_two_ctas() -> None:
    persistent = MATMUL.replace("for start in", "stride = tl.num_programs(0)\n    for start in", 1)
    assert "num_ctas=(1, 2)" in prepared(MATMUL).text
    assert "num_ctas=(1, 2)" not in prepared(persistent).text
    assert any("num_ctas=2" in line for line in recommended(MATMUL))
    assert not any("num_ctas=2" in line for line in recommended(persistent))
    assert any("leave num_ctas at 1" in line for line in recommended(persistent))


def test_a_hint_that_the_launch_gives_is_not_given_twice() -> None:
    text = ADD.replace("BLOCK=64)", "BLOCK=64, num_stages=2)")
    assert "occupancy=(1, 2, 4, 16))" in prepared(text).text
    assert "num_stages=(2, 3, 4)" in prepared(ADD).text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (IN_PLACE, "line 10: writes x_ptr, which line 10 reads"),
        (ADD.replace("BLOCK=64)", "BLOCK=64, occupancy=2)"), "sets occupancy already"),
        (ADD.replace("BLOCK=64)", "BLOCK=64, num_ctas=2)"), "sets num_ctas already"),
        (ADD.replace("n, BLOCK:", "n, occupancy, BLOCK:"), "as a parameter of its own"),
        (ADD + "\n\nKERNEL = add_kernel\n", "does more with it than launch it"),
        (ADD.replace("@triton.jit", "@print\n@triton.jit"), "`print` is above it"),
        (rows("tl.atomic_add(y_ptr + row, tl.sum(x, axis=0))"), "its atomics would add up"),
        (rows("save(y_ptr, x)"), "cannot be seen"),
        (HEAD + f"def {CONFIGS}():\n    pass\n\n\n" + ADD.removeprefix(HEAD), "another function"),
        (
            MATMUL.replace('{"M_TILE": 64', '{"occupancy": 2, "M_TILE": 64').replace(
                "configs=CONFIGS", "configs=[triton.Config({'occupancy': 2})]"
            ),
            "sets occupancy already",
        ),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    assert reason in refusal(text)


def test_each_kernel_is_answered_for_itself() -> None:
    found = prepared(ADD + "\n\n" + IN_PLACE.removeprefix(HEAD))
    assert [change.split(" ")[2] for change in found.changes] == ["add_kernel"]
    assert set(found.refusals) == {"double_kernel"}
    assert found.text.count(f"def {CONFIGS}(") == 1


# --- the gate -----------------------------------------------------------------------------------


SHOW = """\
import importlib, json, sys
shown = []
for file, name in zip(sys.argv[1::2], sys.argv[2::2]):
    found = getattr(importlib.import_module(file), name)
    configs = getattr(found, "configs", None)
    shown.append({
        "type": type(found).__name__,
        "configs": configs and [
            {"kwargs": c.kwargs, "num_stages": c.num_stages, "num_ctas": c.num_ctas}
            for c in configs
        ],
    })
print(json.dumps(shown))
"""


def shown(tmp_path: Path, text: str, name: str, env: dict[str, str]) -> Any:
    """What a kernel is after its decorators have run in a process of that machine."""
    (found,) = each_shown(tmp_path, [(text, name)], env)
    return found


def each_shown(tmp_path: Path, kernels: list[tuple[str, str]], env: dict[str, str]) -> list[Any]:
    """The same of several, in one process."""
    arguments = []
    for number, (text, name) in enumerate(kernels):
        (tmp_path / f"kernel{number}.py").write_text(text)
        arguments += [f"kernel{number}", name]
    path = os.pathsep.join([str(tmp_path), env.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", SHOW, *arguments],
        env={**os.environ, **env, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.full
@pytest.mark.parametrize("enabled", ["0", "1"])
def test_stock_triton_sees_what_it_saw(tmp_path: Path, enabled: str) -> None:
    pytest.importorskip("triton")
    env = {"ENABLE_TILE": enabled, "TRITON_INTERPRET": "0"}
    softmax, before, after = each_shown(
        tmp_path,
        [
            (prepared(SOFTMAX).text, "softmax_kernel"),
            (MATMUL, "matmul_kernel"),
            (prepared(MATMUL).text, "matmul_kernel"),
        ],
        env,
    )
    assert softmax == {"type": "JITFunction", "configs": None}
    assert after == before
    assert len(before["configs"]) == 3


@pytest.mark.parametrize(
    ("enabled", "capability", "count"),
    [("1", "100", 3 + 4 * 12), ("1", "120", 3 + 4 * 6), ("1", "90", 3), ("0", "100", 3)],
)
def test_tile_ir_on_blackwell_gets_more(
    tmp_path: Path, enabled: str, capability: str, count: int
) -> None:
    """Two tile sizes, though three configs, since they differ in warps; and two larger ones."""
    env = machines.variables(
        tmp_path / "machine", machines.TRITON, machines.TORCH, FAKE_CAPABILITY=capability
    )
    text = prepared(MATMUL).text
    found = shown(tmp_path, text, "matmul_kernel", env | {"ENABLE_TILE": enabled})["configs"]
    assert len(found) == count
    originals = [c["kwargs"] for c in found[:3]]
    assert all("occupancy" not in kwargs for kwargs in originals)
    assert all("occupancy" in c["kwargs"] for c in found[3:])
    sizes = {(c["kwargs"]["M_TILE"], c["kwargs"]["N_TILE"]) for c in found}
    assert ((256, 128) in sizes) == (count > 3)
    assert {c["num_ctas"] for c in found} == ({1, 2} if count == 51 else {1})


def test_tile_ir_tunes_a_kernel_that_had_no_configs(tmp_path: Path) -> None:
    env = machines.variables(
        tmp_path / "machine", machines.TRITON, machines.TORCH, FAKE_CAPABILITY="100"
    )
    text = prepared(SOFTMAX).text
    found = shown(tmp_path, text, "softmax_kernel", env | {"ENABLE_TILE": "1"})
    assert found["type"] == "Autotuner"
    assert [c["kwargs"] for c in found["configs"]] == [{}, {"occupancy": 2}, {"occupancy": 4}]
    assert shown(tmp_path, text, "softmax_kernel", env)["type"] == "Kernel"


def test_tile_ir_tries_an_elementwise_kernel_at_its_extremes(tmp_path: Path) -> None:
    env = machines.variables(
        tmp_path / "machine", machines.TRITON, machines.TORCH, FAKE_CAPABILITY="100"
    )
    found = shown(tmp_path, prepared(ADD).text, "add_kernel", env | {"ENABLE_TILE": "1"})
    (_, *tried) = found["configs"]
    hints = {(config["kwargs"]["occupancy"], config["num_stages"]) for config in tried}
    assert hints == {(blocks, stages) for blocks in (1, 2, 4, 16) for stages in (2, 3, 4)}
