"""`tileir apply`: what it changes beside writing configs, and where it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cli.tileir_transforms import Moved
from agent.errors import ExitCode
from agent.syntax import Source
from tests.support.project import tile_agent
from tests.tileir.kernels import ADD, GROUPED_PRODUCT, IN_PLACE, KINDS, SOFTMAX
from tests.tileir.machines import NO_GPU, variables
from tests.tileir.movable import BLOCKS, PROJECTION, SHIFTED

SHAPES = ("--shapes", '{"x": ["N", 96], "w": [96, 40]}', "--sizes", "33")
TYPES = ("--dtypes", '{"x": "float16", "w": "float16"}')


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILE_AGENT_STATE_DIR", str(tmp_path / "state"))


def moved(text: str) -> tuple[str, Moved]:
    found = Moved.of(Source(text))
    return found.prepare().text, found


def verified(tmp_path: Path, text: str, reference: str) -> bool:
    """Whether a text is right in Triton's interpreter, through descriptors where it has them."""
    pytest.importorskip("triton")
    (tmp_path / "new.py").write_text(text)
    done = tile_agent(
        tmp_path, "tileir", "verify", "--kernel", "new.py", "--reference", reference, *SHAPES,
        *TYPES, "--json", env=variables(tmp_path / "machine", NO_GPU),
    )  # fmt: skip
    assert done.code == ExitCode.DONE, done.out
    correct = done.json["correct"]
    assert isinstance(correct, bool)
    return correct


def test_a_plain_product_gets_descriptors_larger_tiles_and_powers_of_two(tmp_path: Path) -> None:
    text, found = moved(PROJECTION)
    assert "x = inp_desc.load([tl.program_id(0) * TILE_R, start])" in text
    plain = "".join(text.split())  # lines are broken where the edits made them too long
    assert "result_desc.store([" in plain
    assert "tl.sigmoid" not in text
    assert "tiles=({'TILE_R': 256, 'TILE_F': 256}, {'TILE_R': 256, 'TILE_F': 128})" in text
    assert 'triton.Config({"TILE_R":64,"TILE_F":128,"TILE_D":32},num_warps=8' in plain
    assert not found.undescribed
    (told,) = found.prepare().changes
    assert told.startswith("line 12: projection_kernel also tunes")  # the line of the user's file
    assert verified(tmp_path, text, "torch.nn.functional.silu(x.float() @ w.float())")


def test_a_second_time_there_is_nothing_left() -> None:
    text, _ = moved(PROJECTION)
    again, found = moved(text)
    assert again == text
    assert not found.changes


def test_block_pointers_become_descriptors_and_no_longer_stop(tmp_path: Path) -> None:
    text, found = moved(BLOCKS)
    assert "make_block_ptr" not in text
    assert found.changes == ["mix_kernel: block pointers are tensor descriptors (TMA) now"]
    assert not found.prepare().refusals
    assert verified(tmp_path, text, "x.float() @ w.float()")


def test_a_tile_that_may_begin_anywhere_stays_with_pointers() -> None:
    text, found = moved(SHIFTED)
    assert ".load([" not in text
    assert (
        "`start`, not seen to be one of TILE_D, is rounded down"
        in (found.undescribed["projection_kernel"])
    )
    assert "occupancy=(1, 2, 4)" in text


@pytest.mark.parametrize("text", [IN_PLACE, GROUPED_PRODUCT])
def test_what_tile_ir_would_compute_wrongly_is_left_as_it_is(text: str) -> None:
    after, found = moved(text)
    assert after == text
    assert not found.changes


@pytest.mark.parametrize("text", [ADD, KINDS["reduction"], KINDS["data movement"]])
def test_no_descriptors_where_nothing_is_multiplied(text: str) -> None:
    _, found = moved(text)
    assert not found.changes
    assert not found.undescribed


def test_two_products_of_a_file_are_described_together() -> None:
    """The first one's import must not keep the second from it."""
    other = PROJECTION.removeprefix(PROJECTION[: PROJECTION.index("@triton.jit\ndef projection")])
    both = PROJECTION + "\n\n" + other.replace("projection", "second").replace("project", "again")
    text, found = moved(both)
    assert not found.undescribed
    assert text.count("TensorDescriptor(") == 6


def test_the_configs_alone(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(PROJECTION)
    done = tile_agent(tmp_path, "tileir", "apply", "--kernel", "k.py", "--configs-only", "--json")
    assert done.code == ExitCode.DONE
    code = done.json["optimized_code"]
    assert "tl.sigmoid(x)" in code
    assert ".load([" not in code
    assert len(done.json["changes_applied"]) == 1


def test_the_name_that_the_skill_gives(tmp_path: Path) -> None:
    (tmp_path / "soft.py").write_text(SOFTMAX)
    done = tile_agent(tmp_path, "tileir", "apply", "--kernel", "soft.py", "--write")
    assert done.code == ExitCode.DONE
    assert "### Output\nFile: soft_tileir.py" in done.out
    assert "tl.exp2(" in (tmp_path / "soft_tileir.py").read_text()
    assert (tmp_path / "soft.py").read_text() == SOFTMAX


def test_a_kernel_as_text(tmp_path: Path) -> None:
    kind = tile_agent(tmp_path, "tileir", "classify", "--code", SOFTMAX, "--json")
    assert kind.code == ExitCode.DONE
    assert kind.json["classification"] == "norm-like"
    assert kind.json["kernel"] is None
    done = tile_agent(tmp_path, "tileir", "apply", "--code", SOFTMAX, "--output", "s.py")
    assert done.code == ExitCode.DONE
    assert "@tile_ir_autotune(" in (tmp_path / "s.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name the kernel's file by --kernel, or give its text by --code"),
        (("--code", SOFTMAX, "--kernel", "k.py"), "name the kernel's file by --kernel, or"),
        (("--code", SOFTMAX, "--write"), "with --code, give --output"),
        (("--kernel", "k.py", "--write", "--output", "o.py"), "give one of them"),
        (("--code", "def f(: ..."), "kernel.py"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "k.py").write_text(SOFTMAX)
    done = tile_agent(tmp_path, "tileir", "apply", *arguments)
    assert done.code == ExitCode.USAGE
    assert said in done.err
    assert done.err.count("\n") == 1
