"""What a writer may answer, and what keeps its text from being tried."""

from __future__ import annotations

import pytest

from agent.playbook import PLAYBOOK
from agent.playbook.base import Optimization
from agent.proposers.answer import Answer, Edit, Unusable, apply, doubts, problems
from agent.syntax import Source
from tests.support.project import KERNEL

# --- text ---------------------------------------------------------------------------------------

BEFORE = "A = 1\nB = 2\nC = 1\n"


def edited(*edits: tuple[str, str], before: str = BEFORE) -> str:
    return apply(Answer("why", edits=tuple(Edit(*edit) for edit in edits)), before)


def refused(*edits: tuple[str, str]) -> tuple[str, ...]:
    with pytest.raises(Unusable) as refusal:
        edited(*edits)
    return refusal.value.problems


def test_edits_speak_of_the_text_before_any_of_them() -> None:
    assert edited(("A = 1", "B = 2"), ("B = 2", "A = 1")) == "B = 2\nA = 1\nC = 1\n"


def test_line_endings_stay() -> None:
    windows = BEFORE.replace("\n", "\r\n")
    assert edited(("A = 1\nB", "A = 3\nB"), before=windows) == "A = 3\r\nB = 2\r\nC = 1\r\n"
    assert apply(Answer("why", source="A = 3\nB = 4"), windows) == "A = 3\r\nB = 4\r\n"
    marked = apply(Answer("why", source="A = 3\n"), f"\ufeff{BEFORE}")
    assert marked == "\ufeffA = 3\n"


@pytest.mark.parametrize("fence", ["```", "```python", "~~~"])
def test_a_fence_around_the_whole_file_is_no_part_of_it(fence: str) -> None:
    fenced = f"{fence}\nA = 3\n{fence[:3]}\n"
    expected = "A = 3\n" if fence.startswith("`") else fenced
    assert apply(Answer("why", source=fenced), BEFORE) == expected


def test_an_edit_that_does_not_fit_says_how_it_was_meant() -> None:
    assert refused(("A = 1\n  B", "")) == (
        "edit 1: its search text does not occur; line 1 is `A = 1`",
    )
    assert refused(("A = 1", "A = 3"), (" = 1", "")) == (
        "edit 2: its search text occurs 2 times: add lines around it until it occurs once",
    )
    assert refused(("while True", "")) == (
        "edit 1: its search text does not occur, and no line resembles `while True`",
    )
    assert refused(("\n", "")) == ("edit 1: its search text is blank",)
    assert refused(("A = 1\nB", ""), ("B = 2", "")) == (
        "two edits overlap at line 2: make one of them",
    )


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Answer("why"), "neither a whole file nor an edit"),
        (Answer("why", source="A = 3", edits=(Edit("A", "B"),)), "both a whole file and edits"),
        (Answer("why", source="#" * 1_000_000), "more than 1000000 bytes"),
    ],
)
def test_an_answer_without_a_text(answer: Answer, problem: str) -> None:
    with pytest.raises(Unusable, match=problem):
        apply(answer, BEFORE)


# --- programs -----------------------------------------------------------------------------------

TRITON = """\
import functools
import os

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

VERBOSE = os.environ.get("VERBOSE")


@triton.jit
def _scaled(x, s):
    return x * s


@triton.jit
def scale_kernel(x, y, n, s, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, _scaled(tl.load(x + i, mask=i < n), s), mask=i < n)


@triton.jit
def shift_kernel(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, 1 + tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def only_tests_launch_it(x, n, B: tl.constexpr = 64):
    tl.store(x, 0.0)


def reference(x):
    return F.relu(x)


def _launch(x, y, s):
    scale_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), s, B=256)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, s=2.0):
        y = torch.empty_like(x)
        _launch(x, y, s)
        return y


scale = Scale.apply


def scale_and_shift(x, /, s, *, out=None):
    y = torch.empty_like(x) if out is None else out
    _launch(x, y, s)
    shift_kernel[(triton.cdiv(x.numel(), 256),)](y, y, x.numel(), B=256)
    return y
"""
SOURCE = Source(TRITON)
AUTOTUNE = "@triton.autotune([triton.Config({'B': 256})], key=['n'])\n"
SHIFT = "    shift_kernel[(triton.cdiv(x.numel(), 256),)](y, y, x.numel(), B=256)\n"
FUSED = SHIFT.replace("shift_kernel", "fused_kernel").replace("(y, y", "(x, y, s")
LAUNCH = "scale_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), s, B=256)"
START = "    y = torch.empty_like(x) if out is None else out\n"


def changed(*replacements: tuple[str, str], before: str = TRITON) -> tuple[str, ...]:
    """The problems of a text with some of it replaced, and the doubts about it."""
    after = before
    for old, new in replacements:
        assert before.count(old) == 1, old
        after = after.replace(old, new)
    source = SOURCE if before == TRITON else Source(before)
    found = (*problems(source, after), *doubts(source, after))
    assert not any("\n" in problem for problem in found)
    return found


def inserted(line: str) -> tuple[str, ...]:
    """The problems of one more line in the host's code."""
    return changed((START, f"{START}    {line}\n"))


HONEST = {
    "another block": (("s, B=256", "s, B=512"),),
    "a renamed parameter of a launched kernel": (
        ("def scale_kernel(x, y, n, s,", "def scale_kernel(x, y, count, s,"),
        (
            "tl.store(y + i, _scaled(tl.load(x + i, mask=i < n), s), mask=i < n)",
            "tl.store(y + i, _scaled(tl.load(x + i, mask=i < count), s), mask=i < count)",
        ),
    ),
    "an inlined helper": (
        ("@triton.jit\ndef _scaled(x, s):\n    return x * s\n", ""),
        ("_scaled(tl.load(x + i, mask=i < n), s)", "tl.load(x + i, mask=i < n) * s"),
    ),
    "two kernels made one": (
        (
            "def shift_kernel(x, y, n, B: tl.constexpr):\n",
            "def fused_kernel(x, y, s, n, B: tl.constexpr):\n",
        ),
        ("1 + tl.load(x + i, mask=i < n)", "1 + s * tl.load(x + i, mask=i < n)"),
        (SHIFT, ""),
        ("else out\n    _launch(x, y, s)\n", f"else out\n{FUSED}"),
    ),
    "an annotation": (("def reference(x):", "def reference(x: torch.Tensor):"),),
    "a check of alignment": ((START, f"{START}    assert x.data_ptr() % 16 == 0\n"),),
    "partial sums added up": ((START, f"{START}    y = y.view(-1, 1).sum(1)\n"),),
    "properties of the device": (
        (START, f"{START}    sms = torch.cuda.get_device_properties(0).multi_processor_count\n"),
    ),
    "a cached number": (
        (
            "def reference",
            "@functools.lru_cache\ndef _sms(device):\n    return 1\n\n\ndef reference",
        ),
    ),
    "an import of math": (("import functools\n", "import functools\nimport math\n"),),
    "autotuning": (
        ("@triton.jit\ndef scale_kernel", f"{AUTOTUNE}@triton.jit\ndef scale_kernel"),
        (", s, B=256)", ", s)"),
    ),
    "a variable named like a module": (
        (START, f"{START}    time = x.numel()\n    input = time.bit_length()\n"),
    ),
    "a lookup by shape": ((START, f"{START}    block = {{1: 2}}.get(x.shape[0], 4)\n"),),
}


@pytest.mark.parametrize("replacements", HONEST.values(), ids=HONEST)
def test_an_honest_change_may_be_tried(replacements: tuple[tuple[str, str], ...]) -> None:
    assert changed(*replacements) == ()


STRIDED = """
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, stride, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i * stride, mask=i < n)
    tl.store(x_ptr + i * stride, 2 * x, mask=i < n)


def double(x):
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, x.stride(-1), n=x.numel(), BLOCK=64)
"""


def test_a_stride_that_is_no_longer_read_is_a_doubt() -> None:
    before = Source(STRIDED)
    (doubt,) = doubts(before, STRIDED.replace("i * stride", "i"))
    assert doubt.startswith("`stride` of double_kernel is no longer read")
    assert doubts(before, STRIDED.replace("x_ptr + i * stride, 2", "x_ptr + i, 2")) == ()
    gone = STRIDED.replace(" stride, n", " n").replace(" x.stride(-1),", "")
    assert doubts(before, gone.replace("i * stride", "i")) == ()  # whoever reads it sees that


@pytest.mark.full
def test_every_rewrite_of_the_playbook_may_be_tried() -> None:
    entries = [entry for entry in PLAYBOOK if isinstance(entry, Optimization)]
    assert len(entries) > 30
    found = {e.name: wrong for e in entries if (wrong := _wrong(e))}
    assert found == {}


def _wrong(entry: Optimization) -> tuple[str, ...]:
    before = Source(entry.before)
    return (*problems(before, entry.after), *doubts(before, entry.after))


BROKEN = {
    "a host function is gone": (
        (("def scale_and_shift(", "def _scale_and_shift("),),
        "`scale_and_shift` is gone",
    ),
    "another name of a class's function is gone": (
        (("scale = Scale.apply\n", ""),),
        "`scale` is gone",
    ),
    "a class is gone": (
        (("class Scale(", "class _Scale("), ("scale = Scale", "scale = _Scale")),
        "`Scale` is gone",
    ),
    "a kernel of the tests is gone": (
        (("def only_tests_launch_it(x", "def _nobody(x"),),
        "`only_tests_launch_it` is gone",
    ),
    "a kernel of the tests takes more": (
        (("def only_tests_launch_it(x, n,", "def only_tests_launch_it(x, n, m,"),),
        "`only_tests_launch_it` takes (x, n, m, B=64) instead of (x, n, B=64)",
    ),
    "a kernel of the tests is none any more": (
        (("@triton.jit\ndef only_tests_launch_it", "def only_tests_launch_it"),),
        "`only_tests_launch_it` is no kernel any more",
    ),
    "another default": ((("ctx, x, s=2.0", "ctx, x, s=3.0"),), "`Scale.forward` takes"),
    "another kind": (
        (("x, /, s, *, out=None", "x, s, *, out=None"),),
        "`scale_and_shift` takes (x, s, out=None (keyword only))",
    ),
    "another order": (
        (("x, /, s, *, out=None", "s, /, x, *, out=None"),),
        "`scale_and_shift` takes",
    ),
    "no launch": (
        ((LAUNCH, "y.copy_(x * s)"),),
        "`scale` launches no kernel any more",
    ),
    "a launch less": (((SHIFT, "    y += 1\n"),), "`shift_kernel` is not launched any more"),
    "no kernel at all": (
        ((TRITON, "import torch\n\n\ndef scale(x, s):\n    return x * s\n"),),
        "holds no kernel any more",
    ),
    "no Python": ((("return y\n\n\nscale", "return (y\n\n\nscale"),), "does not parse: line"),
    "Python that the compiler refuses": (
        (("VERBOSE =", "return 1\nVERBOSE ="),),
        "line 9: 'return' outside function",
    ),
    "a null byte": ((("VERBOSE =", "\0VERBOSE ="),), "does not parse"),
    "a comment": ((("VERBOSE =", "# faster\nVERBOSE ="),), "nothing but comments or layout"),
}


@pytest.mark.parametrize(("replacements", "problem"), BROKEN.values(), ids=BROKEN)
def test_what_callers_use_must_stay(
    replacements: tuple[tuple[str, str], ...], problem: str
) -> None:
    assert any(problem in found for found in changed(*replacements)), changed(*replacements)


MISPLACED = {
    "import threading": "imports `threading`",
    "from subprocess import run": "imports `subprocess`",
    "from tests import test_scale": "imports `tests`",
    "from . import other": "imports `.`",
    "import cuda.bindings.driver": "imports `cuda.bindings.driver`",
    "y = F.softmax(x, 0)": "`torch.nn.functional.softmax` computes outside the kernel",
    "y = torch.matmul(x, x)": "`torch.matmul` computes outside the kernel",
    "y = x @ x": "`@` computes outside the kernel",
    "y = x.softmax(0)": "`.softmax` computes outside the kernel",
    "y = F.relu(x)": "`torch.nn.functional.relu` computes outside",
    "torch.cuda.synchronize()": "`torch.cuda.synchronize` has no place beside a launch",
    "c = torch.cuda; c.Event()": "`torch.cuda.Event` has no place beside a launch",
    "s = getattr(torch.cuda, 'Str' + 'eam')": "`getattr` of `torch.cuda`",
    "torch.cuda.current_stream().synchronize()": "`.synchronize` has no place beside a launch",
    "torch.zeros = torch.empty": "sets `torch.zeros`, which changes what other code",
    "torch.backends.cuda.matmul.allow_tf32 = True": "sets `torch.backends.cuda.matmul.allow_tf32`",
    "setattr(torch, 'empty', None)": "`setattr` reaches outside",
    "torch.set_float32_matmul_precision('high')": "changes what other code of the process sees",
    "quick = os.environ.get('PYTEST_CURRENT_TEST')": "`os.environ.get` reaches outside",
    "os.system('true')": "`os.system` reaches outside",
    "exec('1')": "`exec` reaches outside",
    "open('tests/test_scale.py', 'w')": "`open` reaches outside",
    "frame = _launch.__globals__": "`.__globals__` reaches outside",
    "seen = {}; seen[x.data_ptr()] = y": "keys a lookup by `data_ptr()`",
    "key = (x.data_ptr(), s); y = {}.get(key, y)": "keys a lookup by `data_ptr()`",
    "known = id(x)": "`id` reaches outside",
}


@pytest.mark.parametrize(("line", "problem"), MISPLACED.items(), ids=MISPLACED)
def test_what_has_no_place_in_a_kernel_file(line: str, problem: str) -> None:
    found = inserted(line)
    assert [problem in line for line in found] == [True], found
    assert found[0].startswith("line ")


def test_definitions_that_have_no_place() -> None:
    late = "class Late(torch.Tensor):\n    pass\n\n\ndef reference"
    assert "derives from torch.Tensor" in changed(("def reference", late))[0]
    cached = "@functools.lru_cache\ndef scale_and_shift"
    assert "remembers results" in changed(("def scale_and_shift", cached))[0]
    rescued = "    try:\n        _launch(x, y, s)\n    except Exception:\n        y = x * s\n"
    (problem,) = changed(("else out\n    _launch(x, y, s)\n", f"else out\n{rescued}"))
    assert problem.endswith("`try` around a launch: a launch that fails has to fail")


def test_what_was_there_before_may_stay() -> None:
    before = TRITON.replace(START, f"{START}    torch.cuda.synchronize()\n    y = F.relu(x)\n")
    assert changed(("s, B=256", "s, B=512"), before=before) == ()


def test_one_line_for_an_import_and_its_uses() -> None:
    use = f"{START}    time.sleep(1)\n    time.time()\n"
    assert changed(("import functools\n", "import functools\nimport time\n"), (START, use)) == (
        "line 2: imports `time`: a kernel file needs its kernel language, torch and math only",
    )


def test_the_switch_of_autotuning_may_be_read() -> None:
    assert inserted('off = os.environ.get("DISABLE_AUTOTUNE", "0") == "1"') == ()


def test_a_long_list_is_cut() -> None:
    calls = "; ".join(f"torch.{name}(x, x)" for name in ("mm", "mv", "dot", "bmm", "inner", "vdot"))
    more = "; ".join(f"x.{name}()" for name in ("mm", "bmm", "relu", "tanh", "sigmoid", "addmm"))
    found = inserted(f"{calls}; {more}; open('a'); eval('1')")
    assert len(found) == 13
    assert found[-1] == "and 2 more"


def test_small_kernels_launched_by_their_tests_only() -> None:
    before = KERNEL.partition("\n\ndef double(")[0] + "\n"
    widened = before.replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 512")
    assert problems(Source(before), widened) == ()
    (problem,) = problems(Source(before), before.replace("x_ptr, y_ptr, n,", "y_ptr, x_ptr, n,"))
    assert problem.startswith("`double_kernel` takes (y_ptr, x_ptr, n, BLOCK_SIZE) instead of")
