"""What the playbook finds in files that nobody prepared for it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.reach import Reach, ask, generalised, launches, report, spread

ROOT = Path(__file__).parents[2]
SOFTMAX = ROOT / "examples" / "triton_softmax" / "softmax.py"
MATMUL = ROOT / "examples" / "cutile_matmul" / "matmul.py"


def test_every_entry_answers_for_a_file() -> None:
    found = [ask(("ours", str(SOFTMAX), "triton")), ask(("ours", str(MATMUL), "cutile"))]
    assert [reach.faults for reach in found] == [[], []]
    assert found[0].turns("warps") and found[1].turns("occupancy")
    assert "warps-and-stages" in {*found[0].applies, *found[0].refused}
    assert not found[0].applies.keys() & found[0].refused.keys()
    text = "\n".join(report(found))
    assert "warps is a knob: 1 of 1 files (100%)" in text
    assert "occupancy is a knob: 1 of 1 files (100%)" in text


def test_a_knob_that_no_variant_turns_is_none() -> None:
    reach = Reach("ours", "x.py", "triton", 1, applies={"even-blocks": [{}]})
    assert not reach.turns("warps")
    assert reach.structural
    assert not Reach("ours", "x.py", "triton", 1, applies={"warps-and-stages": [{}]}).structural


def test_files_without_a_launch_are_left_out(tmp_path: Path) -> None:
    assert launches(("ours", str(SOFTMAX), "triton"))
    kernel = "import triton\n\n@triton.jit\ndef k(x):\n    pass\n"
    (tmp_path / "kernel.py").write_text(kernel)
    assert not launches(("ours", str(tmp_path / "kernel.py"), "triton"))
    (tmp_path / "broken.py").write_text("@triton.jit\ndef k(:\n")
    assert not launches(("ours", str(tmp_path / "broken.py"), "triton"))


def test_files_are_chosen_by_rule() -> None:
    files = [("ours", str(number), "triton") for number in range(10)]
    assert spread(files, 20) == files
    assert [path for _, path, _ in spread(files, 4)] == ["0", "3", "6", "9"]


def test_reasons_of_different_files_are_counted_together() -> None:
    one = generalised("BLOCK of add_kernel: what the launch at line 7 gives `n` is a parameter")
    other = generalised("BN of k_2: what the launch at line 70 gives `m` is a parameter")
    assert one == other
