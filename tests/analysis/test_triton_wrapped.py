"""Kernels that a call makes of a function."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.analysis.triton import kinds
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.wrapped import decorated
from agent.backends import BACKENDS, detect
from agent.proposers.agenda import agenda
from agent.proposers.base import Proposal
from agent.proposers.playbook import PlaybookProposer
from agent.state import Run
from agent.syntax import Source

HEAD = "import triton\nimport triton.language as tl\nfrom triton import jit\n\n\n"
KERNEL = "def k(x, n, BLOCK: tl.constexpr):\n    tl.store(x, n)\n"


@pytest.mark.parametrize(
    ("behind", "above"),
    [
        ("k = triton.jit(k)\n", "@triton.jit\n"),
        ("k = jit(k)\n", "@jit\n"),
        ("pass\nk = triton.jit(k)\n", "@triton.jit\n"),
        ("k = triton.jit(k, noinline=True)\n", "@triton.jit(noinline=True)\n"),
        ("k = triton.jit(noinline=True)(k)\n", "@triton.jit(noinline=True)\n"),
        (
            "k = triton.jit(k)\n# of the values\n"
            'k = triton.heuristics(\n    {"A": lambda a: 1}\n)(k)\n',
            '# of the values\n@triton.heuristics(\n    {"A": lambda a: 1}\n)\n@triton.jit\n',
        ),
        (
            "k = triton.autotune(configs=CONFIGS, key=[])(triton.jit(k))\n",
            "@triton.autotune(configs=CONFIGS, key=[])\n@triton.jit\n",
        ),
    ],
)
def test_it_is_read_as_decorated(behind: str, above: str) -> None:
    rest = "\n\ndef run(x):\n    k[(1,)](x, 1, 16)\n"
    source = Source(HEAD + KERNEL + behind + rest)
    assert not TRITON.kernels(source)
    read = decorated(source)
    kept = "pass\n" if behind.startswith("pass") else ""
    assert read.text == HEAD + above + KERNEL + kept + rest
    (kernel,) = TRITON.kernels(read)
    assert len(kernel.launches) == 1
    assert decorated(read) is read


def test_lines_are_those_of_the_file() -> None:
    behind = 'k = triton.jit(k)\nk = triton.heuristics(\n    {"A": lambda a: 1}\n)(k)\n'
    again = KERNEL.replace("k(", "other(") + "other = triton.jit(other)\n"
    rest = "\n\n@named\ndef run(x):\n    k[(1,)](x, 1, 16)\n    other[(1,)](x, 1, 16)\n"
    text = HEAD + KERNEL + behind + again + rest
    read = decorated(Source(text))
    lines = text.splitlines()
    kernels = TRITON.kernels(read)
    assert [k.name for k in kernels] == ["k", "other"]
    for kernel in kernels:
        assert lines[read.line(kernel.function.node) - 1].startswith(f"def {kernel.name}(")
        assert lines[read.line(kernel.launches[0].node) - 1].lstrip().startswith(f"{kernel.name}[")
        told = [lines[read.line(d) - 1] for d in kernel.function.node.decorators]
        assert told[-1] == f"{kernel.name} = triton.jit({kernel.name})"
    assert kinds.classify(Source(text))[0].kernel == "k"
    assert read.with_text("").moved == ()


@pytest.mark.parametrize(
    "behind",
    [
        "other = triton.jit(k)\n",
        "k = wrapped(k)\n",
        "k = triton.jit(wrapped(k))\n",
        "k = triton.jit(other)\n",
        "k = j = triton.jit(k)\n",
        "k = triton.jit(k)  # as it is\n",
        "print(k)\nk = triton.jit(k)\n",
        "def f(x=k): ...\n\nk = triton.jit(k)\n",
        "@k\ndef f(): ...\n\nk = triton.jit(k)\n",
        'def f(a): ...\n\nk = triton.heuristics({"A": f})(triton.jit(k))\n',
        "k = triton.jit(fn=k)\n",
    ],
)
def test_anything_else_is_left_as_it_is(behind: str) -> None:
    source = Source(HEAD + KERNEL + behind)
    assert decorated(source) is source


def test_so_it_is_behind_other_functions_and_beside_decorated_helpers() -> None:
    """What the heuristics ask for in lambdas, they ask for when the kernel is launched."""
    helper = "@triton.jit\ndef twice(x):\n    return x + x\n\n\n"
    kernel = KERNEL.replace("(x, n)", "(x, twice(n))")
    between = "\n\ndef block_of(args):\n    return 16\n\n\n"
    behind = 'k = triton.jit(k)\nk = triton.heuristics({"A": lambda a: block_of(a)})(k)\n'
    rest = "\n\ndef run(x):\n    k[(1,)](x, 1, 16)\n"
    read = decorated(Source(HEAD + helper + kernel + between + behind + rest))
    above = '@triton.heuristics({"A": lambda a: block_of(a)})\n@triton.jit\n'
    assert read.text == HEAD + helper + above + kernel + between.rstrip() + "\n" + rest
    assert [k.name for k in TRITON.launched(read)] == ["k"]


def test_the_playbook_and_the_agenda_read_such_a_file() -> None:
    text = (
        f"{HEAD}def k(x, n, BLOCK: tl.constexpr):\n"
        "    cols = tl.arange(0, BLOCK)\n    tl.store(x + cols, tl.load(x + cols))\n"
        "k = triton.jit(k)\n\n\ndef run(x, n):\n    k[(1,)](x, n, 64)\n"
    )
    source = Source(text)
    assert detect(source) is BACKENDS["triton"]
    subject = Subject(source, KernelClass.MEMORY, Hardware())
    entry = playbook.get("warps-and-stages")
    proposal = PlaybookProposer([entry]).propose(Run(), subject)
    assert isinstance(proposal, Proposal)
    changed = text.replace("k = triton.jit(k)\n", "").replace("def k(", "@triton.jit\ndef k(")
    assert proposal.variants[0].source == changed.replace("64)", "64, num_warps=1)")
    (task, *_) = agenda(Run(), subject, [entry])
    assert task.fits
