"""Launches that name no kernel: what an entry changes there holds for each that they may launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.following import following
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source
from tests.support.triton_compiler import GENERATIONS, compiled
from tests.support.triton_numbers import disagreement

ONE_KERNEL = """\
@triton.jit
def {name}_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) {of_each}, mask=mask)


"""
HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
ADD = ONE_KERNEL.format(name="add", of_each="+ 2")
MUL = ONE_KERNEL.format(name="mul", of_each="* 3")
BOTH = "def both(x):\n    return {add} + 10 * {mul}\n"
GRID = 'grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)'
BODY = f"    y = torch.empty_like(x)\n    n = x.numel()\n    {GRID}\n"
LAUNCH = "[grid](x, y, n, BLOCK=1024)\n    return y\n\n\n"
HELPER = f"def _launch(kernel, x):\n{BODY}    kernel{LAUNCH}"
BY_HELPER = HELPER + BOTH.format(
    add="_launch(add_kernel, x)", mul="_launch(x=x, kernel=mul_kernel)"
)
TABLE = 'KERNELS = {"add": add_kernel, "mul": mul_kernel}\n\n\n'
BY_NAME = BOTH.format(add='run(x, "add")', mul='run(x, "mul")')
FORMS = {
    "helper": BY_HELPER,
    "two helpers": HELPER + "def _outer(x, which):\n    return _launch(which, x)\n\n\n"
    + BOTH.format(add="_outer(x, add_kernel)", mul="_outer(which=mul_kernel, x=x)"),
    "recursion": f"def _launch(kernel, x, times):\n    if times:\n"
    f"        return _launch(kernel, x, times - 1)\n{BODY}    kernel{LAUNCH}"
    + BOTH.format(add="_launch(add_kernel, x, 2)", mul="_launch(mul_kernel, x, 1)"),
    "table": f"{TABLE}def run(x, op):\n{BODY}    KERNELS[op]{LAUNCH}{BY_NAME}",
    "entry": f"{TABLE}def run(x, op):\n{BODY}    kernel = KERNELS[op]\n    kernel{LAUNCH}{BY_NAME}",
    "get": f"{TABLE}def run(x, op):\n{BODY}    KERNELS.get(op, add_kernel){LAUNCH}{BY_NAME}",
    "list": "KERNELS = [add_kernel, mul_kernel]\n\n\n"
    f'def run(x, op):\n{BODY}    KERNELS[op == "mul"]{LAUNCH}{BY_NAME}',
    "condition": f'def run(x, op):\n{BODY}    fn = add_kernel if op == "add" else mul_kernel\n'
    f"    fn{LAUNCH}{BY_NAME}",
    "branches": f'def run(x, op):\n{BODY}    if op == "add":\n        fn = add_kernel\n'
    f"    else:\n        fn = mul_kernel\n    fn{LAUNCH}{BY_NAME}",
    "table and helper": HELPER + TABLE
    + BOTH.format(add='_launch(KERNELS["add"], x)', mul='_launch(KERNELS["mul"], x)'),
}  # fmt: skip
forms = pytest.mark.parametrize("form", FORMS)


def subject(text: str, *timed: str, elsewhere: frozenset[str] = frozenset()) -> Subject:
    source = Source(text, "kernel.py", timed)
    return Subject(source, KernelClass.MEMORY, Hardware(sm=90), elsewhere=elsewhere)


def changed(name: str, asked: Subject, params: Params) -> str:
    entry = playbook.get(name)
    assert params in entry.variants(asked)
    new = entry.apply(asked, params)
    compile(new, "kernel.py", "exec")
    return new


def refused(name: str, asked: Subject) -> str:
    with pytest.raises(NotApplicable) as reason:
        playbook.get(name).variants(asked)
    return str(reason.value)


@forms
@pytest.mark.parametrize(
    ("name", "params", "given"),
    [
        ("block-size", {"BLOCK": 512}, "BLOCK=512"),
        ("blocks-and-warps", {"BLOCK": 2048, "num_warps": 8}, "BLOCK=2048, num_warps=8"),
        ("warps-and-stages", {"num_warps": 2}, "BLOCK=1024, num_warps=2"),
    ],
)
def test_the_launch_of_both_is_changed_and_nothing_else(
    form: str, name: str, params: Params, given: str
) -> None:
    text = HEAD + ADD + MUL + FORMS[form]
    assert changed(name, subject(text), params) == text.replace("BLOCK=1024", given)


def test_both_compute_what_they_did(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    for place, form in enumerate(FORMS.values()):
        text = HEAD + ADD + MUL + form
        asked = subject(text)
        texts = [
            changed("block-size", asked, {"BLOCK": 512}),
            changed("blocks-and-warps", asked, {"BLOCK": 2048, "num_warps": 8}),
        ]
        folder = tmp_path / str(place)
        folder.mkdir()
        assert not disagreement("both", [[[5000]], [[31, 7]]], text, texts, False, folder)


@GENERATIONS
@pytest.mark.usefixtures("compiler")
def test_both_compile_as_they_are_launched(sm: int, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    text = HEAD + ADD + MUL + BY_HELPER
    params = {"BLOCK": 2048, "num_warps": 8}
    path = tmp_path / "kernel.py"
    path.write_text(changed("blocks-and-warps", subject(text), params))
    for kernel in ("add_kernel", "mul_kernel"):
        assert compiled(path, kernel, ["*fp32", "*fp32", "i32", 2048], sm, {"num_warps": 8})


SUM = """\
@triton.jit
def mul_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x))


"""
UNMASKED = MUL.replace(", mask=mask", "").replace("    mask = offsets < n\n", "")
SCALED = MUL.replace("* 3", "* SCALE").replace("BLOCK: tl", "SCALE, BLOCK: tl")
PLAIN = MUL.replace("n, BLOCK: tl.constexpr", "n, BLOCK").replace("BLOCK", "16", 1).replace(
    "n, 16", "n, BLOCK"
)  # fmt: skip


@forms
@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (SUM, "mul_kernel shares it, and there line 17 reduces along it, block by block"),
        (
            MUL.replace("* 3", "* BLOCK"),
            "mul_kernel shares it, and there it is part of what line 17 stores",
        ),
        (
            MUL.replace("BLOCK: tl.constexpr", "BLOCK").replace("* BLOCK +", "* 64 +")
            .replace("arange(0, BLOCK)", "arange(0, 64)").replace("* 3", "* BLOCK"),
            "mul_kernel takes it as BLOCK, which is no constant",
        ),
        (
            MUL.replace("program_id(0) * BLOCK", "program_id(0) * 1024")
            .replace("arange(0, BLOCK)", "arange(0, 1024)"),
            None,
        ),
    ],
    ids=["sum", "value", "no constant", "unread"],
)  # fmt: skip
def test_no_block_changes_that_another_kernel_needs(
    form: str, other: str, reason: str | None
) -> None:
    """Also where tests launch the one kernel alone, and nobody would notice."""
    text = HEAD + ADD + other + FORMS[form]
    for timed in ((), ("add_kernel",)):
        for name in ("block-size", "blocks-and-warps"):
            told = refused(name, subject(text, *timed))
            assert reason is None or reason in told
            assert "mul_kernel" in told


def test_a_block_that_another_kernel_reads_without_a_mask_does_not_grow() -> None:
    asked = subject(HEAD + ADD + UNMASKED + BY_HELPER, "add_kernel")
    assert playbook.get("block-size").variants(asked) == [{"BLOCK": 512}]
    with pytest.raises(NotApplicable, match="cannot grow"):
        playbook.get("block-size").apply(asked, {"BLOCK": 2048})


PRODUCT = """\
@triton.jit
def mul_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    places = rows[:, None] * 16 + tl.arange(0, 16)[None, :]
    x = tl.load(x_ptr + places, mask=rows[:, None] < n, other=0.0)
    w = tl.load(x_ptr + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :])
    tl.store(y_ptr + places, tl.dot(x, w), mask=rows[:, None] < n)


"""


def test_a_block_that_another_kernel_multiplies_stays_large_enough() -> None:
    text = (HEAD + ADD + PRODUCT + BY_HELPER).replace("BLOCK=1024", "BLOCK=16")
    found = playbook.get("block-size").variants(subject(text, "add_kernel"))
    assert found == [{"BLOCK": 32}, {"BLOCK": 64}]
    with pytest.raises(NotApplicable):
        playbook.get("block-size").apply(subject(text, "add_kernel"), {"BLOCK": 8})


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (
            BY_HELPER.replace("_launch", "launch"),
            "line 29 hands add_kernel to `launch`, whose launches are not followed",
        ),
        (
            BY_HELPER + "\n\nrun = _launch\n",
            "line 29 hands add_kernel to `_launch`, whose launches are not followed",
        ),
        (
            BY_HELPER + "\n\ndef other(x, kernel):\n    return _launch(kernel, x)\n",
            "line 29 hands add_kernel to `_launch`, whose launches are not followed",
        ),
        (
            FORMS["table"] + "\n\ndef add(name, kernel):\n    KERNELS[name] = kernel\n",
            "line 27 launches add_kernel as `KERNELS[op]`, which is not followed: give each of its "
            "kernels a launch by its name",
        ),
        (
            FORMS["condition"].replace("else mul_kernel", "else made(mul_kernel)"),
            "line 25 launches add_kernel as `fn`, which is not followed: give each of its kernels "
            "a launch by its name",
        ),
    ],
    ids=["public", "handed on", "unknown kernel", "changed table", "made"],
)
def test_where_it_may_launch_others_it_stays_and_the_kernel_alone_changes(
    host: str, reason: str
) -> None:
    text = HEAD + ADD + MUL + host
    assert reason in refused("block-size", subject(text))
    assert reason in refused("blocks-and-warps", subject(text))
    new = changed("warps-and-stages", subject(text), {"num_warps": 2})
    heuristic = '@triton.heuristics({"num_warps": lambda args: 2})\n@triton.jit\n'
    assert new == text.replace("@triton.jit\n", heuristic)


@pytest.mark.parametrize("taken", ["_launch", "KERNELS"])
def test_where_other_files_have_to_do_with_it_it_stays(taken: str) -> None:
    text = HEAD + ADD + MUL + FORMS["table and helper"]
    asked = subject(text, elsewhere=frozenset({taken}))
    assert "not followed" in refused("block-size", asked)
    assert "heuristics" in changed("warps-and-stages", asked, {"num_warps": 2})
    known = subject(text, elsewhere=frozenset({"add_kernel"}))
    assert "BLOCK=512" in changed("block-size", known, {"BLOCK": 512})


@pytest.mark.parametrize(
    "host",
    [
        BY_HELPER.replace("(kernel, x)", "(kernel, x, grid)").replace(f"    {GRID}\n", "")
        .replace("add_kernel, x)", "add_kernel, x, (8,))")
        .replace("=mul_kernel)", "=mul_kernel, grid=(8,))"),
        BY_HELPER.replace(GRID, "grid = (triton.cdiv(n, 1024),)"),
    ],
    ids=["handed over", "of another number"],
)  # fmt: skip
def test_a_grid_that_does_not_go_with_the_block_keeps_it(host: str) -> None:
    text = HEAD + ADD + MUL + host
    told = refused("block-size", subject(text))
    assert "neither the grid nor a loop is computed from it" in told


@pytest.mark.parametrize(
    ("other", "timed"),
    [
        (MUL, ("add_kernel",)),
        ("@triton.autotune([triton.Config({})], key=[])\n" + MUL, ()),
        (MUL.replace("tl.constexpr", "tl.constexpr, num_warps: tl.constexpr = 4"), ()),
        ('@triton.heuristics({"num_warps": lambda args: pick()})\n' + MUL, ()),
    ],
    ids=["not timed", "tuned", "parameter", "heuristic"],
)  # fmt: skip
@forms
def test_warps_that_are_not_for_all_are_those_of_one_kernel(
    form: str, other: str, timed: tuple[str, ...]
) -> None:
    text = HEAD + ADD + other + FORMS[form]
    new = changed("warps-and-stages", subject(text, *timed), {"num_warps": 2})
    heuristic = '@triton.heuristics({"num_warps": lambda args: 2})\n'
    assert new == text.replace(ADD, heuristic + ADD).replace("pick()", "2")


def test_what_the_launch_gives_the_other_kernel_stays() -> None:
    text = (HEAD + ADD + MUL + BY_HELPER).replace("BLOCK=1024", "BLOCK=1024, num_warps=8")
    new = changed("warps-and-stages", subject(text, "add_kernel"), {"num_warps": 2})
    assert "BLOCK=1024, num_warps=8" in new
    assert new.count("heuristics") == 1
    both = changed("warps-and-stages", subject(text), {"num_warps": 2})
    assert both == text.replace("num_warps=8", "num_warps=2")


def test_warps_that_a_helper_plans_by_stay() -> None:
    planned = "    kernel.warmup(x, y, n, BLOCK=1024, num_warps=8, grid=(1,))\n    kernel[grid]"
    text = (HEAD + ADD + MUL + BY_HELPER).replace("    kernel[grid]", planned)
    told = refused("warps-and-stages", subject(text))
    assert "line 24 compiles add_kernel with num_warps of its own" in told


@pytest.mark.parametrize(
    "other",
    [
        MUL.replace("x_ptr, y_ptr, n", "x_ptr, y_ptr"),
        MUL.replace("BLOCK", "SIZE"),
        "def mul_kernel(x, y, n, BLOCK):\n    pass\n\n\n",
    ],
    ids=["fewer parameters", "another keyword", "no kernel"],
)
def test_what_cannot_launch_all_is_not_followed(other: str) -> None:
    asked = subject(HEAD + ADD + other + BY_HELPER)
    assert "not followed" in refused("block-size", asked)


def test_what_a_launch_hides_may_be_for_another_parameter_of_another_kernel() -> None:
    host = BY_HELPER.replace("(kernel, x)", "(kernel, x, *more)").replace(
        "n, BLOCK", "*more, BLOCK"
    )
    text = HEAD + ADD + MUL + host.replace("add_kernel, x)", "add_kernel, x, 8)")
    assert "not followed" in refused("block-size", subject(text))


def test_two_launches_of_different_blocks() -> None:
    direct = f"def add(x):\n{BODY}    add_kernel{LAUNCH}".replace("1024", "512")
    told = refused("block-size", subject(HEAD + ADD + MUL + direct + BY_HELPER, "add_kernel"))
    assert "its launches give it different values: [512, 1024]" in told


def test_a_helper_of_one_kernel_is_its_launch() -> None:
    host = HELPER + "def both(x):\n    return _launch(add_kernel, x)\n"
    asked = following(TRITON, subject(HEAD + ADD + host))
    (kernel,) = TRITON.kernels(asked.source)
    (launch,) = kernel.launches
    assert launch.shared_with == ()
    assert asked.source.line(launch.node) == 17


def test_entries_that_do_not_ask_see_no_such_launch() -> None:
    asked = subject(HEAD + ADD + MUL + BY_HELPER)
    assert not any(kernel.launches for kernel in TRITON.kernels(asked.source))
    followed = following(TRITON, asked)
    add, mul = TRITON.kernels(followed.source)
    assert add.launches[0].node is mul.launches[0].node
    assert add.launches[0].shared_with == (mul.function,)
    assert followed.source.with_text(asked.source.text).follows
    assert following(TRITON, followed) is followed
    assert "hands add_kernel to `_launch`" in refused("add-autotune", asked)
    direct = subject(HEAD + ADD + f"def add(x):\n{BODY}    add_kernel{LAUNCH}")
    assert following(TRITON, direct) is direct


COMPUTED = "    BLOCK = min(1024, triton.next_power_of_2(n))\n    grid = (triton.cdiv(n, BLOCK),)\n"


def computed(form: str) -> str:
    return FORMS[form].replace(f"    {GRID}\n", COMPUTED).replace("BLOCK=1024", "BLOCK=BLOCK")


@forms
def test_a_block_that_the_host_computes_is_scaled_for_both(form: str) -> None:
    text = HEAD + ADD + MUL + computed(form)
    new = changed("scaled-blocks", subject(text), {"block": "BLOCK", "factor": 2})
    line = "    BLOCK = min(2 * BLOCK, 65536)\n"
    assert new == text.replace("    grid = ", f"{line}    grid = ")


@forms
@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (SUM, "BLOCK of add_kernel: line 17 reduces along it, block by block"),
        (
            MUL.replace("BLOCK: tl.constexpr", "BLOCK").replace("* BLOCK +", "* 64 +")
            .replace("arange(0, BLOCK)", "arange(0, 64)"),
            "BLOCK of add_kernel: mul_kernel takes it as BLOCK, which is no constant",
        ),
        (
            MUL.replace("program_id(0) * BLOCK", "program_id(0) * 1024")
            .replace("arange(0, BLOCK)", "arange(0, 1024)"),
            "BLOCK of add_kernel: no tile of mul_kernel goes by it",
        ),
    ],
    ids=["sum", "no constant", "unread"],
)  # fmt: skip
def test_no_block_is_scaled_that_another_kernel_needs(form: str, other: str, reason: str) -> None:
    text = HEAD + ADD + other + computed(form)
    assert reason in refused("scaled-blocks", subject(text, "add_kernel"))


def test_both_compute_what_they_did_with_a_scaled_block(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    text = HEAD + ADD + MUL + computed("two helpers")
    asked = subject(text)
    entry = playbook.get("scaled-blocks")
    texts = [entry.apply(asked, params) for params in entry.variants(asked)]
    assert len(texts) == 4
    assert not disagreement("both", [[[5000]], [[31, 7]]], text, texts, False, tmp_path)
