"""The code that is written, as text."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.backends import detect
from agent.playbook.cutile.autotune import Autotune
from agent.syntax import Source
from tests.tuning import sources
from tests.tuning.test_plan import KINDS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WORKED = ("rms_norm", "matmul", "rope")


def subject(text: str) -> Subject:
    source = Source(text)
    backend = detect(source)
    assert backend is not None
    return Subject(source, backend.classify(source).kernel_class, Hardware())


def written(text: str) -> str:
    changed = Autotune().apply(subject(text), {})
    ast.parse(changed)
    return changed


def refusal(text: str) -> str:
    with pytest.raises(NotApplicable) as refused:
        Autotune().apply(subject(text), {})
    return str(refused.value)


def example(name: str, kind: str) -> Path:
    return EXAMPLES / f"cutile_autotune_{name}" / f"{name}_{kind}.py"


@pytest.mark.parametrize("name", WORKED)
def test_the_worked_examples_are_as_the_command_writes_them(name: str) -> None:
    assert written(example(name, "fixed").read_text()) == example(name, "tuned").read_text()


@pytest.mark.parametrize("name", KINDS)
def test_a_tuned_kernel_is_not_tuned_again(name: str) -> None:
    assert "is tuned at line" in refusal(written(KINDS[name]))


@pytest.mark.full
def test_the_code_is_as_a_formatter_and_a_linter_leave_it(tmp_path: Path) -> None:
    for name, text in KINDS.items():
        (tmp_path / f"{name}_before.py").write_text(text)
        (tmp_path / f"{name}_after.py").write_text(written(text))
    rules = ["--select", "E9,F,I,B", "--target-version", "py311"]
    for command in (["format", "--check"], ["check", *rules]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--line-length", "100", "."],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("text", [*KINDS.values()], ids=[*KINDS])
def test_line_endings_stay(text: str) -> None:
    assert written(text.replace("\n", "\r\n")) == written(text).replace("\n", "\r\n")


def test_other_names_of_the_imports() -> None:
    text = sources.ROWS.replace("import cuda.tile as ct", "import cuda.tile as T")
    text = text.replace("ct.", "T.").replace("import torch\n", "import torch as th\n")
    text = text.replace("torch.empty_like(x)", "x").replace("torch.cuda", "th.cuda")
    changed = written(text)
    assert "    T.launch(stream, grid, kernel, args)\n" in changed
    assert "th.empty_like(y)" in changed
    assert changed.count("import cuda.tile") == 1


def test_hints_leave_the_decorator_and_others_stay() -> None:
    text = sources.PERSISTENT.replace("num_ctas=1)", "num_ctas=1, opt_level=2)")
    changed = written(text)
    assert "@ct.kernel(opt_level=2)\n" in changed
    assert "occupancy=OCCUPANCY, num_ctas=1" in changed
    assert "\n@ct.kernel\n" in written(sources.PERSISTENT)


def test_a_hint_for_each_gpu_is_kept_as_it_is() -> None:
    by_target = "ct.ByTarget(sm_90=4, default=2)"
    changed = written(sources.IN_PLACE.replace("occupancy=4", f"occupancy={by_target}"))
    assert f"_SCALE_FIXED = SimpleNamespace(occupancy={by_target})" in changed
    assert "for n in (1, 2, 4, 8)" in changed


def test_locals_of_the_tile_sizes_go_and_the_grid_moves() -> None:
    changed = written(sources.MATMUL)
    assert "tile_m" not in changed
    grid = (
        "    def grid(config):\n"
        "        rows = ct.cdiv(m, config.M)\n"
        "        columns = ct.cdiv(n, config.N)\n"
        "        return (rows, columns)\n"
    )
    assert grid in changed
    assert "    _launch_matmul(torch.cuda.current_stream(), a, b, c, m, n)\n" in changed


def test_a_persistent_grid_follows_the_occupancy() -> None:
    assert "blocks = min(sms // config.num_ctas, tiles) * config.occupancy\n" in written(
        sources.PERSISTENT
    )


def test_a_grid_of_another_kernel_does_not_follow_the_occupancy() -> None:
    """It covers the rows only as it is: the kernel does not stride by the number of blocks."""
    text = sources.ROWS.replace("@ct.kernel", "ROWS = 4\n\n\n@ct.kernel(occupancy=ROWS)")
    text = text.replace("(x.shape[0],), scale", "(x.shape[0] * ROWS // 4,), scale")
    changed = written(text)
    assert "(x.shape[0] * ROWS // 4,)" in changed
    assert "config.occupancy" in changed
    assert "def grid" not in changed


def test_the_key_holds_what_a_call_can_change() -> None:
    assert "key = (x.shape, x.dtype, str(x.device))\n" in written(sources.ROWS)
    flagged = sources.ROWS.replace("y, factor, N:", "y, factor, FLAG: Const, N:")
    flagged = flagged.replace("factor: float)", "factor: float, flag=False)")
    flagged = flagged.replace("(x, y, factor, n)", "(x, y, factor, flag, n)")
    assert "key = (x.shape, FLAG, x.dtype, str(x.device))\n" in written(flagged)


def test_names_of_the_kernel_that_the_code_uses_itself() -> None:
    text = sources.ROWS.replace("factor, N: Const", "key, N: Const").replace("* factor)", "* key)")
    changed = written(text)
    assert "def _launch_scale(stream, grid, x, y, key_, N):\n" in changed
    assert "    args = (x, y, key_, N)\n" in changed


def test_a_size_with_another_use_stays() -> None:
    changed = written(sources.MATMUL.replace("    return c\n", "    print(rows)\n    return c\n"))
    assert "tile_m, tile_n, tile_k = 64, 64, 32\n" in changed
    assert "(SimpleNamespace(occupancy=n) for n in (1, 2, 4, 8))" in changed


def test_an_occupancy_with_another_use_stays_in_the_grid() -> None:
    text = sources.PERSISTENT.replace("    return c\n", "    print(blocks)\n    return c\n")
    changed = written(text)
    assert "    blocks = min(sms, tiles) * OCCUPANCY\n" in changed
    assert "def grid(config)" not in changed


def test_arguments_with_another_use_are_refused() -> None:
    text = sources.MATMUL.replace("    return c\n", "    print(args)\n    return c\n")
    assert "uses `args`, which the search sets, for more than the launch" in refusal(text)


def test_an_array_assigned_between_the_arguments_and_the_launch_is_refused() -> None:
    """The launch is given the first one, which the search would no longer see."""
    text = sources.MATMUL.replace("    ct.launch", "    a = a.contiguous()\n    ct.launch")
    assert "assigns `a`, which line" in refusal(text)


def test_keywords_of_the_launch_in_any_order() -> None:
    text = sources.ROWS.replace(
        "ct.launch(torch.cuda.current_stream(), (x.shape[0],), scale_kernel, (x, y, factor, n))",
        "ct.launch(\n        kernel_args=(x, y, factor, n),\n        kernel=scale_kernel,\n"
        "        grid=(x.shape[0],),\n        stream=torch.cuda.current_stream(),\n    )",
    )
    assert written(text) == written(sources.ROWS)


def test_sizes_that_are_not_searched_stay_where_they_are() -> None:
    changed = written(sources.EIGHT_BIT)
    assert "    tile_n, tile_k = 64, 32\n" in changed
    assert "M=64, occupancy=None" in changed


def test_a_name_that_is_taken_is_refused() -> None:
    assert "uses the name _SCALE_CACHE already" in refusal(sources.ROWS + "\n_SCALE_CACHE = 1\n")


def test_a_builtin_that_the_file_hides_is_refused() -> None:
    for name, text in (("str", sources.ROWS), ("zip", sources.MATMUL), ("max", sources.MATMUL)):
        assert f"`{name}` is a name of the file's own" in refusal(f"{text}\n\n{name} = None\n")
    assert "SimpleNamespace(occupancy" in written(f"{sources.ROWS}\n\nzip = None\n")


def test_the_code_stands_below_what_it_needs() -> None:
    head, _, tail = sources.PERSISTENT.partition("@ct.kernel")
    kernel, _, wrapper = tail.partition("\n\n\ndef ")
    moved = sources.HEAD + "def " + wrapper + "\n\n" + head.removeprefix(sources.HEAD)
    changed = written(moved + "@ct.kernel" + kernel + "\n")
    compile(changed, "kernel.py", "exec")
    assert changed.index("def matmul_kernel") < changed.index("_MATMUL_FIXED = ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (sources.MATMUL, [{}, {"persistent": True}]),
        (sources.PERSISTENT, [{}]),
        (sources.ATTENTION, [{}]),
        (sources.ROWS, [{}]),
        (sources.TWO_PRODUCTS, [{}, {"persistent": True}]),
        (sources.EIGHT_BIT, [{}]),
        (
            sources.MATMUL.replace("(rows, columns)", "shape_of(rows, columns)"),
            [{}],
        ),
    ],
    ids=["product", "persistent", "attention", "rows", "two products", "eight bits", "hidden grid"],
)
def test_a_product_is_tuned_also_with_blocks_that_stay(
    text: str, expected: list[dict[str, bool]]
) -> None:
    assert list(Autotune().variants(subject(text))) == expected
