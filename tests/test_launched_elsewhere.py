"""Kernels that other files launch: found by who launches them, and not taken from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.launched_elsewhere import broken_launches, launched_elsewhere
from agent.measuring.decision import Status
from agent.planning.entries import planned
from agent.playbook import get
from agent.playbook.base import Optimization
from agent.repository import Repository
from agent.syntax import Source
from tests.support.repo import KERNEL, isolate, make_repo
from tests.support.scripted import ScriptedRun, Step, kernel


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


LAUNCH = "softmax_kernel[(1,)](x, BLOCK=8)\n"
WRAPPED = "softmax_kernel)[(1,)](x, BLOCK=8)\n"
TILED = "m.softmax_kernel, (x, 8))\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"tests/test_it.py": f"from pkg.ops.softmax import softmax_kernel\n{LAUNCH}"}, True),
        ({"pkg/other.py": f"from .ops import softmax as ops\nops.{LAUNCH}"}, True),
        (
            {
                "pkg/ops/__init__.py": "from .softmax import softmax_kernel\n",
                "pkg/other.py": f"from pkg.ops import softmax_kernel\n{LAUNCH}",
            },
            True,
        ),
        (
            {
                "pkg/api/__init__.py": "from ..ops.softmax import softmax_kernel as run_softmax\n",
                "pkg/all.py": "from .api import *\n",
                "pkg/other.py": f"import pkg.all as every\nevery.run_{LAUNCH}".replace(
                    "_kernel", ""
                ),
            },
            True,
        ),
        (
            {
                "tests/test_it.py": "from pkg.ops.softmax import softmax_kernel as _kernel\n"
                f"{LAUNCH.replace('softmax', '')}"
            },
            True,
        ),
        ({"pkg/ops/__init__.py": "from .softmax import softmax_kernel\n"}, False),
        ({"tests/test_it.py": "from pkg.ops.softmax import softmax\nsoftmax(1)\n"}, False),
        ({"pkg/other.py": f"def softmax_kernel(): ...\n{LAUNCH}"}, False),
        ({"tests/test_it.py": f"from pkg.ops.softmax import *\nwrap_triton({WRAPPED}"}, True),
        ({"tests/test_it.py": f"import pkg.ops.softmax as m\nct.launch(s, (1,), {TILED}"}, True),
    ],
    ids=[
        "name",
        "attribute",
        "handed on",
        "handed on by others",
        "renamed",
        "not launched",
        "its function",
        "another",
        "wrapped",
        "cutile",
    ],
)
def test_who_launches_a_kernel_of_the_file(
    tmp_path: Path, files: dict[str, str], found: bool
) -> None:
    inits = {"pkg/__init__.py": "", "pkg/ops/__init__.py": ""}
    repo = make_repo(tmp_path, {"pkg/ops/softmax.py": KERNEL, **inits, **files})
    repository = Repository.open(repo)
    sha = repository.head()
    assert sha is not None
    there = launched_elsewhere(repository, sha, "pkg/ops/softmax.py")
    assert dict(there) == ({"softmax_kernel": list(files)[-1]} if found else {})


OF_A_CLASS = """\
import triton
import triton.language as tl


class Scale:
    @staticmethod
    @triton.jit
    def forward(x_ptr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(x_ptr + offsets, 2 * tl.load(x_ptr + offsets))

    @staticmethod
    def size(x):
        return x.numel()
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from pkg.kernels.scale import Scale\nScale.forward[(1,)](x, BLOCK=8)\n", True),
        ("from pkg import kernels\nkernels.Scale.forward[grid](x, BLOCK=8)\n", True),
        ("from pkg.kernels.scale import Scale\nScale.backward[(1,)](x, BLOCK=8)\n", False),
        (
            "from pkg.kernels.scale import Scale\nOther.forward[(1,)](Scale.size(x), BLOCK=8)\n",
            False,
        ),
        ("from pkg.kernels.scale import Scale\nScale.size(x)\n", False),
    ],
    ids=["class", "of a package", "another kernel", "another class", "its function"],
)
def test_who_launches_a_kernel_of_a_class(tmp_path: Path, text: str, found: bool) -> None:
    """As in trident, whose kernels stand in a class for each operator."""
    files = {
        "pkg/__init__.py": "",
        "pkg/kernels/scale.py": OF_A_CLASS,
        "pkg/kernels/__init__.py": "from .scale import *\n",
        "pkg/operator.py": text,
    }
    repository = Repository.open(make_repo(tmp_path, files))
    sha = repository.head()
    assert sha is not None
    there = launched_elsewhere(repository, sha, "pkg/kernels/scale.py")
    assert dict(there) == ({"Scale.forward": "pkg/operator.py"} if found else {})
    more = OF_A_CLASS.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, rows")
    why = "pkg/operator.py launches Scale.forward, which would need rows"
    assert broken_launches(OF_A_CLASS, more, there) == (why if found else "")


HANDED = """

def _launch(kernel, x):
    kernel[(1,)](x, BLOCK=8)


def _outer(x, which):
    _launch(which, x=x)


def _other(kernel, x):
    print(kernel, x)


def launch(kernel, x):
    kernel[(1,)](x, BLOCK=8)


KERNELS = {"softmax": softmax_kernel}
OTHERS = {"other": 1}
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from pkg.softmax import _launch\n_launch(mine, x)\n", {"_launch"}),
        ("from pkg.softmax import _launch as run\n", {"_launch"}),
        ("import pkg.softmax as m\nm._outer(x, mine)\n", {"_outer"}),
        ("from pkg.softmax import _other\n_other(mine, x)\n", set()),
        ("from pkg.softmax import launch\nlaunch(mine, x)\n", set()),
        ("from pkg.softmax import KERNELS\nKERNELS['mine'] = mine\n", {"KERNELS"}),
        ("from pkg.softmax import KERNELS\nKERNELS.update(mine=mine)\n", {"KERNELS"}),
        ("from pkg.softmax import KERNELS\nKERNELS |= {'mine': mine}\n", {"KERNELS"}),
        ("from pkg.softmax import KERNELS\ndel KERNELS['softmax']\n", {"KERNELS"}),
        ("from pkg import softmax as m\nm.KERNELS = {}\n", {"KERNELS"}),
        ("from pkg import softmax as m\nm.KERNELS['mine'] = mine\n", {"KERNELS"}),
        ("from pkg.softmax import KERNELS\nfor name in sorted(KERNELS):\n    pass\n", set()),
        ("from pkg.softmax import OTHERS\nOTHERS['mine'] = 2\n", set()),
    ],
)
def test_who_has_to_do_with_what_launches_them(tmp_path: Path, text: str, found: set[str]) -> None:
    files = {"pkg/__init__.py": "", "pkg/softmax.py": KERNEL + HANDED, "pkg/other.py": text}
    repository = Repository.open(make_repo(tmp_path, files))
    sha = repository.head()
    assert sha is not None
    there = launched_elsewhere(repository, sha, "pkg/softmax.py")
    assert there == dict.fromkeys(found, "pkg/other.py")


HEAD = "def softmax_kernel(x_ptr, BLOCK: tl.constexpr"
NONE = "    if rows is None:\n        rows = 1\n"


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (KERNEL, ""),
        (KERNEL.replace("arange(0,", "arange(0, 1 *"), ""),
        (KERNEL.replace(HEAD, f"{HEAD}, rows"), "need rows"),
        (KERNEL.replace(HEAD, f"{HEAD}, rows=None"), "need rows"),
        (KERNEL.replace(HEAD, f"{HEAD}, *, rows"), "need rows"),
        (KERNEL.replace(f"{HEAD}):\n", f"{HEAD}, rows=None):\n{NONE}"), ""),
        (KERNEL.replace(HEAD, f"{HEAD}, rows=1"), ""),
        (KERNEL.replace(HEAD, "def softmax_kernel(x_ptr, y_ptr"), "no longer take BLOCK"),
        (
            KERNEL.replace(HEAD, "def softmax_kernel(BLOCK: tl.constexpr, x_ptr"),
            "take its parameters in another order",
        ),
        (
            KERNEL.replace(HEAD, "def softmax_kernel(x_ptr, rows=1, BLOCK: tl.constexpr = 8"),
            "take its parameters in another order",
        ),
        (KERNEL.replace(HEAD, f"{HEAD} = 64"), "have another BLOCK by default"),
        (
            KERNEL.replace("@triton.jit", "@triton.heuristics({'rows': f})\n@triton.jit").replace(
                HEAD, f"{HEAD}, rows"
            ),
            "",
        ),
        (
            KERNEL.replace("@triton.jit", "@triton.heuristics(dict(rows=f))\n@triton.jit").replace(
                HEAD, f"{HEAD}, rows"
            ),
            "",
        ),
        (
            KERNEL.replace("@triton.jit", "@triton.autotune(CONFIGS, [])\n@triton.jit"),
            "tune what is handed to it",
        ),
    ],
)
def test_what_a_launch_of_another_file_can_bear(after: str, why: str) -> None:
    found = broken_launches(KERNEL, after, {"softmax_kernel": "tests/test_it.py"})
    assert found == (f"tests/test_it.py launches softmax_kernel, which would {why}" if why else "")
    assert broken_launches(KERNEL, after, {}) == ""


def test_a_kernel_that_is_gone() -> None:
    after = KERNEL.replace("softmax_kernel", "kernel")
    found = broken_launches(KERNEL, after, {"softmax_kernel": "other.py"})
    assert found == "other.py launches softmax_kernel, which would be gone"


def test_a_run_does_not_try_what_would_break_a_launch_elsewhere(tmp_path: Path) -> None:
    """However fast it is; a variant of it that breaks none is tried."""

    def taking(latency_ms: float, parameters: str) -> str:
        return f"{kernel(latency_ms)}\n\n@jit\ndef scale({parameters}): ...\n"

    repo = make_repo(
        tmp_path,
        {
            "kernel.py": taking(1.0, "x"),
            "other.py": "from kernel import scale\nscale[(1,)](2)\n",
        },
    )
    steps = (
        Step("broken", (taking(0.1, "x, y"),)),
        Step("sweep", (taking(0.1, "x, y"), taking(0.5, "x, y=1"))),
    )
    run = ScriptedRun(repo, steps).finish()
    assert [row.optimization for row in run.rows] == ["baseline", "sweep (n=1)"]
    assert run.rows[1].status is Status.KEEP
    (skipped,) = run.skipped
    assert skipped.reason == "other.py launches scale, which would need y"


def test_a_plan_passes_over_what_would_break_a_launch_elsewhere() -> None:
    entry = get("add-autotune")
    assert isinstance(entry, Optimization)
    source = Source(entry.before, "kernel.py")
    subject = Subject(source, KernelClass.MEMORY, Hardware(sm=90))
    (tried,), nothing = planned([entry], subject)
    assert (tried.optimization, nothing) == ("add-autotune", ())
    tried_too, (over,) = planned([entry], subject, {"add_kernel": "other.py"})
    assert (tried_too, over.optimizations) == ((), ("add-autotune",))
    assert over.reason == "other.py launches add_kernel, which would tune what is handed to it"
