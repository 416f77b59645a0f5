"""Tests that reach a kernel through other modules, and files that do, in real repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.preflight import preflight
from agent.target import find_target
from tests.support.repo import KERNEL, isolate, make_repo, write
from tests.test_target import OTHER, refusal, target_of


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


OPS = "from pkg.kernels.softmax import softmax as launch\n\n\ndef fast(x):\n    return launch(x)\n"
THROUGH = {"pkg/ops/__init__.py": "", "pkg/ops/fast.py": OPS}
TAKEN = "no test imports pkg/kernels/softmax.py: taken are those that import {}"


def indirect(tmp_path: Path, files: dict[str, str]) -> tuple[str, str]:
    """The tests that are found for pkg/kernels/softmax.py, and what is said of that."""
    repo = make_repo(tmp_path, {"pkg/kernels/softmax.py": KERNEL, **files})
    found = find_target(preflight(repo / "pkg/kernels/softmax.py").tree, "pkg/kernels/softmax.py")
    return " ".join(found.tests), " ".join(found.notes)


@pytest.mark.parametrize("init", [True, False])
@pytest.mark.parametrize(
    ("statement", "test"),
    [
        ("from pkg.kernels.softmax import softmax", "from pkg.ops.fast import fast"),
        ("from ..kernels.softmax import (\n    # (a)\n    softmax,\n)", "import pkg.ops.fast as f"),
        ("from ..kernels import softmax", "from pkg.ops import fast"),
        ("from pkg.kernels \\\n    import softmax as s", "def test_it():\n    import pkg.ops.fast"),
        ("def f():\n    import pkg.kernels.softmax as s", "from pkg.ops.fast import *"),
        ("if f: from pkg.kernels import softmax", "x = pytest.importorskip('pkg.ops.fast')"),
        ("s = importlib.import_module('pkg.kernels.softmax')", "from pkg.ops.fast import fast"),
    ],
)
def test_through_a_module(tmp_path: Path, *, statement: str, test: str, init: bool) -> None:
    packages = ("pkg/__init__.py", "pkg/kernels/__init__.py", "pkg/ops/__init__.py")
    files = dict.fromkeys(packages if init else packages[1:], "")
    tests = {"tests/all_test.py": test, "tests/test_gelu.py": "from pkg.ops import gelu, softmax"}
    found, said = indirect(tmp_path, {**files, "pkg/ops/fast.py": statement, **tests})
    assert found == "tests/all_test.py"
    assert said == TAKEN.format("pkg/ops/fast.py, which does")


@pytest.mark.parametrize(
    ("init", "test", "found"),
    [
        ("from ..kernels.softmax import softmax", "from pkg.ops import softmax", True),
        ("from pkg.kernels import softmax as s", "import pkg.ops\npkg.ops.s.softmax(1)", True),
        (OPS, "from pkg import ops\nops.fast(1)", True),
        (OPS, "from pkg.ops import *", True),
        (OPS, "import pkg.ops\ndef test(name='fast'):\n    getattr(pkg.ops, name)(1)", True),
        (OPS, "import pkg.ops\ndef test(name='slow'):\n    getattr(pkg.ops, name)(1)", False),
        (OPS, "import pkg.ops\nname = 'fast'", False),
        (OPS, "from pkg.ops import gelu", False),
        (OPS, "from pkg.ops.gelu import gelu", False),
        ("# from ..kernels.softmax import softmax", "from pkg.ops import softmax", False),
        ("from ..other.softmax import softmax", "from pkg.ops import softmax", False),
        ("import pkg.kernels.softmax", "from pkg.ops import *", False),
    ],
)
def test_through_a_package(tmp_path: Path, init: str, test: str, *, found: bool) -> None:
    repo = make_repo(
        tmp_path,
        {"pkg/kernels/softmax.py": KERNEL, "pkg/ops/__init__.py": init, "tests/test_all.py": test},
    )
    if found:
        target = target_of(repo, "pkg/kernels/softmax.py")
        assert target.tests == ("tests/test_all.py",)
        assert target.notes == (TAKEN.format("pkg/ops/__init__.py, which does"),)
    else:
        assert "or a module that does, or is called" in refusal(repo, "pkg/kernels/softmax.py")


def test_a_package_that_hands_on_the_module_in_between(tmp_path: Path) -> None:
    files = {**THROUGH, "pkg/__init__.py": "from .ops.fast import fast as quick\n"}
    tests = {"test_a.py": "from pkg import quick", "test_b.py": "from pkg import slow"}
    found = indirect(tmp_path, {**files, **tests})
    assert found == ("test_a.py", TAKEN.format("pkg/ops/fast.py, which does"))


@pytest.mark.parametrize(
    ("above", "used", "found"),
    [
        ("import pkg.ops", "pkg.ops.fast(1)", True),
        ("from . import ops", "pkg.ops.fast(1)", True),
        ("import pkg.ops", "pkg.ops.slow(1)", False),
        ("", "pkg.ops.fast(1)", False),  # nothing has imported it
    ],
)
def test_a_package_has_what_the_one_below_it_hands_on(
    tmp_path: Path, above: str, used: str, *, found: bool
) -> None:
    files = {
        "pkg/kernels/softmax.py": KERNEL,
        "pkg/kernels/launch.py": "from .softmax import softmax\n",
        "pkg/ops/fast.py": "from pkg.kernels import launch\ndef fast(x):\n    pass\n",
        "pkg/ops/slow.py": "def slow(x):\n    pass\n",
        "pkg/ops/__init__.py": "from .fast import fast\nfrom .slow import slow\n",
        "pkg/__init__.py": f"{above}\n",
        "test_a.py": f"import pkg\n\n\ndef test_it():\n    {used}\n",
    }
    repo = make_repo(tmp_path, files)
    if found:
        assert target_of(repo, "pkg/kernels/softmax.py").tests == ("test_a.py",)
    else:
        assert "or a module that does, or is called" in refusal(repo, "pkg/kernels/softmax.py")


def test_several_modules_are_named_in_a_line(tmp_path: Path) -> None:
    files = {f"pkg/ops/{name}.py": OPS for name in "abcd"}
    two = {f"test_{name}.py": f"import pkg.ops.{name}\n" for name in "ab"}
    said = TAKEN.format("pkg/ops/a.py and pkg/ops/b.py, which do")
    assert indirect(tmp_path / "two", {**files, **two}) == ("test_a.py test_b.py", said)
    four = {"tests/test_all.py": "import x\n", **two, "test_e.py": "from pkg.ops import c, d\n"}
    said = TAKEN.format("pkg/ops/a.py, pkg/ops/b.py and 1 more, which do")
    assert indirect(tmp_path / "four", {**files, **four})[1] == said


def test_a_module_in_between_counts_only_where_no_other_test_is_found(tmp_path: Path) -> None:
    through = {**THROUGH, "tests/test_ops.py": "from pkg.ops.fast import fast\n"}
    assert indirect(tmp_path / "alone", through)[0] == "tests/test_ops.py"
    assert indirect(tmp_path / "named", {**through, **OTHER}) == ("tests/test_softmax.py", "")
    direct = {"tests/test_it.py": "from pkg.kernels import softmax\n"}
    assert indirect(tmp_path / "direct", {**through, **direct}) == ("tests/test_it.py", "")
    loose = {"test.py": "from pkg.kernels import softmax\n\n\ndef test_it(): pass\n"}
    assert indirect(tmp_path / "loose", {**through, **loose}) == ("test.py", "")
    captured = {"tests/test_softmax_captured.py": "import pkg.kernels.softmax\n"}
    both = "tests/test_ops.py tests/test_softmax_captured.py"
    found, said = indirect(tmp_path / "captured", {**through, **captured})
    assert found == both
    assert said.startswith("no test but captured ones imports pkg/kernels/softmax.py: taken are")


def test_the_nearest_tests_are_taken_however_many_modules_lie_between(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "from . import experts, kernels",
        "pkg/kernels/__init__.py": "from . import softmax",
        "pkg/experts.py": "from . import kernels\n\n\ndef f(x):\n    kernels.softmax.softmax(x)\n",
        "pkg/mlp.py": "from .experts import f\n",
        "pkg/unused.py": "import pkg.mlp\n",
    }
    tests = {"tests/test_mlp.py": "from pkg.mlp import f", "tests/test_far.py": "import pkg.unused"}
    found, said = indirect(tmp_path, {**files, **tests})
    assert found == "tests/test_mlp.py"
    leads = "import pkg/mlp.py, which leads to it"
    assert said == f"no test imports pkg/kernels/softmax.py: taken are those that {leads}"


def test_what_is_no_python_in_between_is_passed_over(tmp_path: Path) -> None:
    broken = {"pkg/ops/old.py": "from pkg.kernels.softmax import softmax\nprint softmax\n"}
    tests = {"test_a.py": "import pkg.ops.fast\n", "test_b.py": "import pkg.ops.old\n"}
    assert indirect(tmp_path, {**THROUGH, **broken, **tests})[0] == "test_a.py"


def test_uncommitted_tests_of_a_module_in_between(tmp_path: Path) -> None:
    through = {**THROUGH, "tests/test_ops.py": "from pkg.ops.fast import fast\n"}
    repo = make_repo(tmp_path, {"pkg/kernels/softmax.py": KERNEL, **through})
    write(repo, {"tests/test_ops.py": "from pkg.ops.fast import fast as f\n"})
    said = refusal(repo, "pkg/kernels/softmax.py")
    assert said.startswith("tests/test_ops.py has uncommitted changes")


# --- from where a file without a kernel has one ---------------------------------------------------

WRAPPER = "def softmax(x):\n    return launch(x)\n"


@pytest.mark.parametrize(
    ("imports", "said"),
    [
        ("from pkg.kernels.softmax import softmax as launch", "pkg/kernels/softmax.py, {}, does"),
        ("from ..kernels import softmax as k", "pkg/kernels/softmax.py, {}, does"),
        ("from pkg.kernels import gelu", "pkg/kernels/gelu.py, {}, does"),
        ("from pkg.kernels import *", "pkg/kernels/gelu.py, {}, does"),
        (
            "from pkg.kernels import gelu, softmax, add",
            "pkg/kernels/add.py, pkg/kernels/gelu.py and 1 more, {}, do",
        ),
        ("from pkg.kernels import softmax, add", "add.py and pkg/kernels/softmax.py, {}, do"),
    ],
)
def test_a_file_without_a_kernel_names_what_it_imports_one_from(
    tmp_path: Path, imports: str, said: str
) -> None:
    files = dict.fromkeys([f"pkg/kernels/{n}.py" for n in ("softmax", "gelu", "add")], KERNEL)
    init = {"pkg/kernels/__init__.py": "from .gelu import gelu\nfrom . import util\n"}
    others = {"pkg/kernels/util.py": "@jit.kernel\ndef f(): pass\n"}
    wrapper = {"pkg/ops/softmax.py": f"{imports}\nfrom pkg.kernels import util\n{WRAPPER}"}
    repo = make_repo(tmp_path, {**files, **init, **others, **wrapper})
    message = refusal(repo, "pkg/ops/softmax.py")
    assert message.startswith("pkg/ops/softmax.py holds no tile kernel; ")
    assert message.endswith(said.format("which it imports from"))


def test_a_file_without_a_kernel_that_imports_from_no_such_file(tmp_path: Path) -> None:
    wrapper = {"ops.py": f"import torch\nfrom util import launch\n{WRAPPER}", "util.py": "x = 1\n"}
    assert "it needs a function decorated with" in refusal(make_repo(tmp_path, wrapper), "ops.py")


def test_a_test_that_begins_with_a_byte_order_mark(tmp_path: Path) -> None:
    text = "\ufefffrom pkg.kernels.softmax import softmax\n\n\ndef test_it(): pass\n"
    found, _ = indirect(tmp_path, {"pkg/__init__.py": "", "tests/test_all.py": text})
    assert found == "tests/test_all.py"


def test_a_folder_of_a_package_without_a_file_of_its_own(tmp_path: Path) -> None:
    """Python imports it as a part of the package, and so do the package's own modules."""
    files = {
        "lib/pkg/__init__.py": "",
        "lib/pkg/ops/softmax.py": KERNEL,
        "lib/pkg/fast.py": "def fast(x):\n    from pkg.ops.softmax import softmax\n",
        "lib/tests/test_fast.py": "from pkg.fast import fast\n",
    }
    repo = make_repo(tmp_path, files)
    path = "lib/pkg/ops/softmax.py"
    found = find_target(preflight(repo / path).tree, path)
    assert found.tests == ("lib/tests/test_fast.py",)
    assert "lib" in found.import_roots
