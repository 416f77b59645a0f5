"""Finding the kernel, its tests and its import roots in real repositories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.preflight import preflight, tree_of
from agent.repository import Repository
from agent.target import Target, find_target
from tests.support.repo import FILES, KERNEL, git, isolate, make_repo, write

CUTILE = """\
import cuda.tile as ct


@ct.kernel
def add_kernel(a, b, c, n: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(c, index=(i,), tile=ct.load(a, index=(i,), shape=(n,)))


def add(a, b, c):
    ct.launch(None, (1,), add_kernel, (a, b, c, 16))
"""


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def target_of(repo: Path, kernel: str, *tests: str) -> Target:
    found = preflight(repo / kernel)
    return find_target(found.tree, found.kernel, tests)


def found_tests(
    tmp_path: Path, files: dict[str, str], kernel: str = "pkg/kernels/softmax.py"
) -> str:
    """The tests found for a kernel in a repository of those files, in one string."""
    packages = {"pkg/__init__.py": "", "pkg/kernels/__init__.py": ""}
    repo = make_repo(tmp_path, {**packages, kernel: KERNEL, **files})
    return " ".join(target_of(repo, kernel).tests)


def refusal(repo: Path, kernel: str, *tests: str) -> str:
    with pytest.raises(UsageError) as caught:
        target_of(repo, kernel, *tests)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- the kernel ---------------------------------------------------------------------------------


def test_a_triton_kernel(tmp_path: Path) -> None:
    target = target_of(make_repo(tmp_path), "kernels/softmax.py")
    assert target.backend == "triton"
    assert [kernel.name for kernel in target.kernels] == ["softmax_kernel"]
    assert target.wrappers == ("softmax",)
    assert target.tests == ("tests/test_softmax.py",)
    assert target.import_roots == (".",)


def test_a_cutile_kernel(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"add.py": CUTILE, "test_add.py": "import add\n"})
    target = target_of(repo, "add.py")
    assert (target.backend, target.wrappers) == ("cutile", ("add",))


def test_the_commit_counts_and_not_the_checkout(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    repository = Repository.open(repo)
    tree = tree_of(repository, git(repo, "rev-parse", "HEAD"))
    write(repo, {"kernels/softmax.py": "not even python"})
    assert find_target(tree, "kernels/softmax.py").backend == "triton"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:\n", "k.py:1: invalid syntax"),
        ("x = 1\n\n  y = 2\n", "k.py:3: unexpected indent"),
        ("x = '\0'\n", "source code string cannot contain null bytes: mend the syntax"),
        ("", "holds no tile kernel"),
        ("def softmax(x):\n    return x\n", "@ct.kernel or Triton's @triton.jit"),
    ],
)
def test_no_kernel(tmp_path: Path, source: str, message: str) -> None:
    assert message in refusal(make_repo(tmp_path, {"k.py": source}), "k.py")


# --- tests that import the kernel ---------------------------------------------------------------


def test_captured_tests_stand_beside_those_of_the_kernels_name(tmp_path: Path) -> None:
    """Liger's tests reach a kernel through other modules: the captured ones alone import it."""
    named = {"tests/test_add.py": "def test_add(): pass\n"}
    captured = {"tests/test_add_captured.py": "import add\n"}
    repo = make_repo(tmp_path / "one", {"add.py": CUTILE, **named, **captured})
    assert target_of(repo, "add.py").tests == ("tests/test_add.py", "tests/test_add_captured.py")
    importing = {"tests/test_more.py": "import add\n"}
    repo = make_repo(tmp_path / "two", {"add.py": CUTILE, **named, **captured, **importing})
    assert set(target_of(repo, "add.py").tests) == {*captured, *importing}


def test_tests_of_another_module_of_that_name(tmp_path: Path) -> None:
    """As torchao has a `kernels.py` in each of a dozen packages."""
    files = {
        "pkg/__init__.py": "",
        "pkg/one/__init__.py": "",
        "pkg/one/kernels.py": CUTILE,
        "pkg/one/mm.py": "from .kernels import add\n",
        "pkg/two/__init__.py": "",
        "pkg/two/kernels.py": CUTILE,
        "test/one/test_mm.py": "from pkg.one.mm import add\n",
        "test/two/test_kernels.py": "from pkg.two.kernels import add\n",
    }
    repo = make_repo(tmp_path / "one", files)
    assert target_of(repo, "pkg/one/kernels.py").tests == ("test/one/test_mm.py",)
    assert target_of(repo, "pkg/two/kernels.py").tests == ("test/two/test_kernels.py",)
    none = {path: text for path, text in files.items() if path != "test/one/test_mm.py"}
    repo = make_repo(tmp_path / "none", none)
    assert "no committed test imports pkg/one/kernels.py" in refusal(repo, "pkg/one/kernels.py")
    loose = {"test/one/test_kernels.py": "from pkg import ops\n", "pkg/ops.py": ""}
    repo = make_repo(tmp_path / "two", {**files, **loose})
    assert target_of(repo, "pkg/one/kernels.py").tests == ("test/one/test_kernels.py",)


def test_tests_of_a_copy_of_the_package_are_the_copys(tmp_path: Path) -> None:
    """Two of one name cannot even be collected together. Beside both they are of both."""
    test = "from pkg.softmax import softmax\n"
    files = {
        "new/pkg/tests/test_it.py": test,
        "old/pkg/softmax.py": KERNEL,
        "old/pkg/tests/test_it.py": test,
        "tests/test_both.py": test,
    }
    packages = {f"{where}/pkg/__init__.py": "" for where in ("new", "old")}
    found = found_tests(tmp_path, files | packages, "new/pkg/softmax.py")
    assert found == "new/pkg/tests/test_it.py tests/test_both.py"


def test_tests_beside_another_module_of_that_name_may_be_the_kernels(tmp_path: Path) -> None:
    files = {
        "other/softmax.py": "",
        "other/test_it.py": "from pkg.kernels.softmax import softmax\n",
    }
    assert found_tests(tmp_path, files) == "other/test_it.py"


def test_benchmarks_that_reach_the_kernel_are_known_where_none_is_given(tmp_path: Path) -> None:
    """conch's plans asked for a script, and did not name the one that lies there."""
    files = {
        "pkg/__init__.py": "",
        "pkg/add.py": CUTILE,
        "pkg/mul.py": "",
        "pkg/ops.py": "from pkg.add import add\n",
        "tests/test_add.py": "import pkg.add\n",
        "benchmarks/all_benchmark.py": "import pkg.add\n",
        "benchmarks/add_add_benchmark.py": "import pkg.add\n",
        "benchmarks/add_benchmark.py": "from pkg.add import add\n",
        "benchmarks/mul_benchmark.py": "import pkg.mul\n",
        "benchmarks/bench_ops.py": "import pkg.ops\n",
    }
    repo = make_repo(tmp_path / "one", files)
    named = ("benchmarks/add_benchmark.py", "benchmarks/add_add_benchmark.py")
    found = (*named, "benchmarks/all_benchmark.py")
    assert target_of(repo, "pkg/add.py").scripts == found
    far = {path: text for path, text in files.items() if path not in found}
    repo = make_repo(tmp_path / "two", far)
    assert target_of(repo, "pkg/add.py").scripts == ("benchmarks/bench_ops.py",)


def test_captured_tests_of_another_file_of_that_name(tmp_path: Path) -> None:
    """As the rotary embeddings of two models; one is taken out of its package by its folder."""
    packages = {f"{name}/__init__.py": "" for name in ("pkg", "pkg/one", "pkg/two")}
    kernels = {f"pkg/{name}/add.py": CUTILE for name in ("one", "two")}
    folder = 'sys.path.insert(0, str((Path(__file__).parent / "../pkg/two").resolve()))\n'
    tests = {
        "tests/test_add_captured.py": "from pkg.one.add import add\n",
        "tests/test_two_add_captured.py": f"{folder}from add import add\n",
    }
    repo = make_repo(tmp_path, {**packages, **kernels, **tests})
    assert target_of(repo, "pkg/one/add.py").tests == ("tests/test_add_captured.py",)
    assert target_of(repo, "pkg/two/add.py").tests == ("tests/test_two_add_captured.py",)


OTHER = {"tests/test_softmax.py": "def test_softmax(): pass\n"}
"""A test that is only called like the kernel; one that imports it comes first."""


@pytest.mark.parametrize(
    "statement",
    [
        "import pkg.kernels.softmax",
        "import pkg.kernels.softmax as s",
        "from pkg.kernels import softmax",
        "from pkg.kernels import other, softmax as s",
        "from pkg.kernels.softmax import softmax",
        "from pkg.kernels.softmax import *",
        "def test_it():\n    from pkg.kernels.softmax import softmax",
        "softmax = pytest.importorskip('pkg.kernels.softmax')",
        "softmax = importlib.import_module('pkg.kernels.softmax').softmax",
    ],
)
def test_imports(tmp_path: Path, statement: str) -> None:
    assert found_tests(tmp_path, {**OTHER, "tests/test_all.py": statement}) == "tests/test_all.py"


@pytest.mark.parametrize(
    "statement",
    [
        "import softmax",
        "from other.kernels import softmax",
        "from pkg import softmax",
        "from pkg.kernels import softmax_v2",
        "from .kernels import softmax",
        "from torch.nn.functional import softmax",
        "# from pkg.kernels import softmax",
        "from pkg.kernels import softmax (",
    ],
)
def test_imports_of_something_else(tmp_path: Path, statement: str) -> None:
    found = found_tests(tmp_path, {**OTHER, "tests/test_all.py": statement})
    assert found == "tests/test_softmax.py"


def test_relative_imports(tmp_path: Path) -> None:
    files = {
        "pkg/kernels/test_same.py": "from .softmax import softmax",
        "pkg/kernels/test_here.py": "from . import softmax",
        "pkg/tests/test_up.py": "from ..kernels import softmax",
        "pkg/tests/test_not.py": "from .kernels import softmax",
    }
    found = "pkg/kernels/test_here.py pkg/kernels/test_same.py pkg/tests/test_up.py"
    assert found_tests(tmp_path, {**OTHER, **files}) == found


@pytest.mark.parametrize(
    ("init", "test"),
    [
        ("from .softmax import softmax", "from pkg.kernels import softmax as s"),
        ("from .softmax import softmax as fast", "from pkg.kernels import fast"),
        ("from pkg.kernels.softmax import softmax as fast", "from pkg.kernels import fast"),
        ("from .softmax import softmax as fast", "from pkg.kernels import *"),
        ("from .softmax import *", "import pkg.kernels as k\nk.softmax(1)"),
        ("from .softmax import softmax as fast", "import pkg.kernels\npkg.kernels.fast(1)"),
    ],
)
def test_a_package_that_hands_on_the_kernel(tmp_path: Path, init: str, test: str) -> None:
    files = {"pkg/kernels/__init__.py": init, "tests/test_all.py": test}
    assert found_tests(tmp_path, {**OTHER, **files}) == "tests/test_all.py"


def test_a_package_that_hands_on_others_too(tmp_path: Path) -> None:
    files = {
        "pkg/kernels/__init__.py": "from .softmax import softmax as fast\nfrom .gelu import gelu",
        "tests/test_gelu.py": "from pkg.kernels import gelu",
    }
    assert found_tests(tmp_path, {**OTHER, **files}) == "tests/test_softmax.py"


HUB = {
    "pkg/__init__.py": "from .kernels.softmax import softmax\nfrom .kernels.gelu import gelu\n",
    "pkg/kernels/gelu.py": "def gelu(x): pass\n",
}
"""A package that hands on its operators."""


OTHERS = "".join(f"def test_gelu_{n}(): assert pkg.gelu\n" for n in range(8))
"""Tests of another operator, more than would be run with those of the kernel."""


def chosen(tmp_path: Path, files: dict[str, str]) -> list[str]:
    """The names of the tests that are taken out of tests/test_ops.py."""
    head = "import pytest\nimport pkg\n\n"
    files = {**HUB, **files, "tests/test_ops.py": f"{head}{files['tests/test_ops.py']}\n{OTHERS}"}
    return [test.partition("::")[2] for test in found_tests(tmp_path, files).split()]


@pytest.mark.parametrize(
    ("tests", "taken"),
    [
        ("def test_it(): assert pkg.softmax\n", "test_it"),
        ("def rows(x): return pkg.softmax(x)\ndef test_rows(): rows(1)\n", "test_rows"),
        (
            "def rows(x): return pkg.softmax(x)\nclass TestAll:\n"
            "    @pytest.mark.parametrize('name', ['pkg.softmax'])\n"
            "    def test_it(self, name): pass\n",
            "TestAll",
        ),
        ("OPS: dict = {'s': pkg.softmax}\ndef test_it(): OPS['s'](1)\n", "test_it"),
        (
            "@pytest.fixture(name='op')\ndef made(): return pkg.softmax\ndef test_it(op): op(1)\n",
            "test_it",
        ),
        ("if True:\n    def test_it(): assert pkg.softmax\n", "test_it"),
        ("try:\n    import x\nexcept ImportError:\n    def test_it(): pkg.softmax\n", "test_it"),
        ("from pkg import softmax as s\ndef test_it(): s(1)\n", "test_it"),
        (
            "import unittest\nclass OpsTest(unittest.TestCase):\n"
            "    def testIt(self): pkg.softmax(1)\n",
            "OpsTest",
        ),
        (
            "class OpsTest(parameterized.TestCase):\n    def testIt(self): pkg.softmax(1)\n",
            "OpsTest",
        ),
    ],
)
def test_of_many_tests_of_a_package_those_that_reach_the_kernel(
    tmp_path: Path, tests: str, taken: str
) -> None:
    """As in FlagGems, whose files of tests each hold dozens of operators."""
    assert chosen(tmp_path, {"tests/test_ops.py": tests}) == [taken]


def test_fixtures_helpers_and_other_names_reach_it_too(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": HUB["pkg/__init__.py"].replace("import softmax", "import softmax as sm"),
        "tests/conftest.py": "import pytest, pkg\n@pytest.fixture\ndef op(): return pkg.sm\n",
        "tests/util.py": "import pkg\ndef both(x): return pkg.sm(x)\n",
        "tests/test_ops.py": "from .util import both\ndef test_alias(): pkg.sm(1)\n"
        "def test_fixture(op): op(1)\ndef test_helper(): both(1)\n",
    }
    assert chosen(tmp_path, files) == ["test_alias", "test_fixture", "test_helper"]


def test_a_file_of_few_tests_is_taken_as_it_is_and_what_is_left_out_is_told(
    tmp_path: Path,
) -> None:
    few = "from pkg import softmax as s\n\ndef test_it(): s(1)\ndef test_more(): pass\n"
    none = "import pkg\nOPS = [pkg.softmax]\n\ndef test_it(): run()\ndef test_more(): run()\n"
    files = {**HUB, "tests/test_none.py": none}
    assert found_tests(tmp_path / "one", files) == "tests/test_none.py"
    files["tests/test_few.py"] = few
    files["tests/test_many.py"] = f"import pkg\ndef test_it(): pkg.softmax(1)\n{OTHERS}"
    repo = make_repo(tmp_path / "two", {**files, "pkg/kernels/softmax.py": KERNEL})
    target = target_of(repo, "pkg/kernels/softmax.py")
    assert target.tests == ("tests/test_few.py", "tests/test_many.py::test_it")
    assert any("of tests/test_many.py 1 of 9 tests are taken" in note for note in target.notes)
    assert any("left out: tests/test_none.py" in note for note in target.notes)


def test_a_benchmark_that_is_given_is_what_tests_may_be_made_of(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"softmax.py": KERNEL, "bench.py": "import softmax\n"})
    with pytest.raises(
        UsageError, match=r"`python bench\.py`: tile-agent capture .* -- python bench"
    ):
        find_target(preflight(repo / "softmax.py").tree, "softmax.py", benches=["python bench.py"])


LAYERS = {
    "pkg/__init__.py": "from .layers import Softmax\nfrom .norms import Norm\n",
    "pkg/kernels/softmax.py": f"{KERNEL}\n\ndef rows_at_once(n):\n    return n // 64\n",
    "pkg/layers.py": "from .kernels.softmax import softmax_kernel\n\n\nclass Softmax:\n"
    "    def __call__(self, x):\n        softmax_kernel[(1,)](x, BLOCK=128)\n",
    "pkg/norms.py": "from .kernels.softmax import rows_at_once\n\n\nclass Norm:\n"
    "    def __call__(self, x):\n        return rows_at_once(x)\n",
    "tests/test_norms.py": "import pkg\n\n\ndef test_norm():\n    pkg.Norm()(1)\n",
}
"""As in attorch: a module that launches the kernels, and one that takes a helper of their file."""
BY_NAME = """\
import pytest
import pkg


@pytest.mark.parametrize("layer", ["Softmax", "Softmin"])
def test_layers(layer):
    getattr(pkg, layer)()(1)
"""


def test_who_takes_a_helper_of_the_file_does_not_crowd_out_who_launches(tmp_path: Path) -> None:
    kernel = "pkg/kernels/softmax.py"
    launching = {**LAYERS, "tests/test_layers.py": BY_NAME}
    repo = make_repo(tmp_path / "both", launching)
    assert target_of(repo, kernel).tests == ("tests/test_layers.py",)
    repo = make_repo(tmp_path / "none", LAYERS)  # nobody else leads to it
    assert target_of(repo, kernel).tests == ("tests/test_norms.py",)


def test_what_a_package_hands_on_may_be_taken_by_its_name_beside_others(tmp_path: Path) -> None:
    use = "from pkg.layers import Softmax\n\n\ndef test_it():\n    Softmax()(1)\n"
    files = {**LAYERS, "tests/test_layers.py": BY_NAME, "tests/test_uses.py": use}
    repo = make_repo(tmp_path, files)
    tests = target_of(repo, "pkg/kernels/softmax.py").tests
    assert tests == ("tests/test_layers.py", "tests/test_uses.py")


def test_what_a_module_in_between_makes_of_a_kernel_counts(tmp_path: Path) -> None:
    """As in mamba, where an interface of several kernels has tests of each."""
    interface = """\
from pkg.kernels.softmax import softmax

def scan(x): return x
def attend(x): return softmax(x)
"""
    tests = "from pkg.interface import attend, scan\n\ndef test_attend(): attend(1)\n"
    tests += "".join(f"def test_scan_{n}(): scan(1)\n" for n in range(8))
    files = {"pkg/interface.py": interface, "tests/test_interface.py": tests}
    assert found_tests(tmp_path, files) == "tests/test_interface.py::test_attend"


def test_an_option_that_two_conftests_expect_to_share(tmp_path: Path) -> None:
    adds = "def pytest_addoption(parser):\n    try:\n        parser.addoption('--mode')\n"
    adds += "    except ValueError:\n        pass\n"
    test = "from pkg.kernels.softmax import softmax\n\ndef test_it(): pass\n"
    files = {f"{folder}/{name}": text for folder in ("tests/a", "tests/b") for name, text in
             (("conftest.py", adds), ("test_softmax.py", test))}  # fmt: skip
    found = found_tests(tmp_path, files)
    assert found == "tests/a/test_softmax.py tests/b/test_softmax.py"


def test_tests_and_benchmarks_whose_conftests_add_the_same_option(tmp_path: Path) -> None:
    """pytest refuses to load both, as those of FlagGems."""
    adds = "def pytest_addoption(parser):\n    parser.addoption(\n        '--mode')\n"
    test = "from pkg.kernels.softmax import softmax\n\ndef test_it(): pass\n"
    files = {f"{folder}/{name}": text for folder in ("benchmark", "tests") for name, text in
             (("conftest.py", adds), ("test_softmax.py", test))}  # fmt: skip
    repo = make_repo(tmp_path, {"pkg/kernels/softmax.py": KERNEL, **files})
    target = target_of(repo, "pkg/kernels/softmax.py")
    assert target.tests == ("tests/test_softmax.py",)
    assert any("left out: benchmark/test_softmax.py" in note for note in target.notes)


def test_src_layout_and_scripts(tmp_path: Path) -> None:
    src = {"src/pkg/__init__.py": "", "tests/test_all.py": "from pkg import softmax"}
    assert found_tests(tmp_path / "src", src, "src/pkg/softmax.py") == "tests/test_all.py"
    script = {"ops/test_all.py": "from softmax import softmax"}
    assert found_tests(tmp_path / "script", script, "ops/softmax.py") == "ops/test_all.py"
    spread = {"tests/test_all.py": "from ops.softmax import softmax"}
    assert found_tests(tmp_path / "spread", spread, "ops/softmax.py") == "tests/test_all.py"


def test_a_kernel_in_a_package_file(tmp_path: Path) -> None:
    files = {"tests/test_all.py": "from pkg.softmax import softmax"}
    assert found_tests(tmp_path, files, "pkg/softmax/__init__.py") == "tests/test_all.py"


# --- tests by name ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("tests/ops/test_softmax.py", True),
        ("test_softmax_perf.py", True),
        ("tests/softmax_test.py", True),
        ("tests/test_softmaxes.py", False),
        ("tests/test_log_softmax.py", False),
        ("tests/check_softmax.py", False),
    ],
)
def test_names(tmp_path: Path, path: str, found: bool) -> None:
    files = {path: "def test_it(): pass\n", "src/tilegym/ops/cutile/softmax.py": KERNEL}
    repo = make_repo(tmp_path, files)
    if found:
        assert target_of(repo, "src/tilegym/ops/cutile/softmax.py").tests == (path,)
    else:
        message = refusal(repo, "src/tilegym/ops/cutile/softmax.py")
        assert "no committed test imports" in message
        assert "--tests FILE[::TEST]" in message


def test_tests_that_are_called_otherwise_are_found_where_no_other_imports_the_kernel(
    tmp_path: Path,
) -> None:
    test = "from pkg.kernels import softmax\n\n\ndef test_it(): pass\n"
    files = {"test.py": test, "testing.py": "from pkg.kernels import softmax\n"}
    assert found_tests(tmp_path / "alone", files) == "test.py"
    assert (
        found_tests(tmp_path / "bench", {"bench_it.py": test, "benchmarks.py": ""}) == "bench_it.py"
    )
    files |= {"tests/test_it.py": test}
    assert found_tests(tmp_path / "beside", files) == "tests/test_it.py"


def test_what_is_no_python_file_is_told(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"README.md": "A kernel \N{ROCKET}\n"})
    assert refusal(repo, "README.md") == "README.md is no Python file: name the file of a kernel"


# --- tests that are not committed ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["tests/test_softmax.py", "tests/test_softmax_perf.py"])
def test_uncommitted_tests(tmp_path: Path, name: str) -> None:
    repo = make_repo(tmp_path)
    write(repo, {name: "def test_new(): pass\n"})
    assert refusal(repo, "kernels/softmax.py").startswith(f"{name} has uncommitted changes")


def test_uncommitted_tests_of_something_else(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    write(repo, {"tests/test_gelu.py": "def test_new(): pass\n", "scratch.py": ""})
    assert target_of(repo, "kernels/softmax.py").tests == ("tests/test_softmax.py",)


# --- tests that the user names ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("tests/test_softmax.py", "tests/test_softmax.py"),
        ("tests/test_softmax.py::test_a[x::y]", "tests/test_softmax.py::test_a[x::y]"),
        ("../repo/tests", "tests"),
        ("./tests/../tests/", "tests"),
        (".", "."),
    ],
)
def test_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, found: str) -> None:
    repo = make_repo(tmp_path)
    monkeypatch.chdir(repo)
    assert target_of(repo, "kernels/softmax.py", given).tests == (found,)


def test_given_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make_repo(tmp_path)
    monkeypatch.chdir(tmp_path)
    for given in ("tests/test_softmax.py", "repo/tests/test_softmax.py", f"{repo}/tests"):
        assert target_of(repo, "kernels/softmax.py", given).tests[0].startswith("tests")


def test_given_but_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make_repo(tmp_path)
    monkeypatch.chdir(repo)
    write(repo, {"tests/test_new.py": "", "tests/test_softmax.py": "changed = 1\n"})
    kernel = "kernels/softmax.py"
    assert "not in the repository's commit: commit it" in refusal(repo, kernel, "tests/test_new.py")
    assert "give the path of a committed file" in refusal(repo, kernel, "tests/none.py::test_x")
    assert "give the path of a committed file" in refusal(repo, kernel, "/etc/hosts")
    assert "has uncommitted changes" in refusal(repo, kernel, "tests/test_softmax.py::test_x")
    assert "has uncommitted changes" in refusal(repo, kernel, "tests")


# --- benchmark scripts --------------------------------------------------------------------------


def benches_of(repo: Path, *benches: str) -> tuple[str, ...]:
    found = preflight(repo / "kernels/softmax.py")
    return find_target(found.tree, found.kernel, (), benches).benches


def test_a_benchmark_is_named_from_the_root_with_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = make_repo(tmp_path)
    write(repo, {"benchmarks/speed.py": "def report(): pass\n"})
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "speed")
    monkeypatch.chdir(repo / "benchmarks")
    assert benches_of(repo, "python3.11 speed.py -n '1 2'", "speed.py::report") == (
        "benchmarks/speed.py -n '1 2'",
        "benchmarks/speed.py::report",
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("bash run.sh", "--bench 'bash run.sh' is no Python script: give 'python FILE"),
        ("python -m benchmarks", "is no Python script"),
        ("python", "is no Python script"),
        ("speed.py::a.b", "is no Python script"),
        ("speed.py 'half", "cannot be split into words (No closing quotation)"),
        ("speed.py::report -n 1", "names a report, which takes no arguments"),
        ("none.py", "none.py is not in the repository's commit: give the path of a committed file"),
        ("new.py", "new.py is not in the repository's commit: commit it first"),
        ("changed.py", "changed.py has uncommitted changes"),
        ("broken.py", "broken.py:1: "),
        ("kernels/softmax.py", "is the kernel's own file, which candidates change: move"),
    ],
)
def test_what_is_no_benchmark_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, said: str
) -> None:
    repo = make_repo(tmp_path)
    write(repo, {"broken.py": "def (:\n", "changed.py": ""})
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "scripts")
    write(repo, {"changed.py": "n = 1\n", "new.py": ""})
    monkeypatch.chdir(repo)
    with pytest.raises(UsageError) as refused:
        benches_of(repo, given)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("given", ["kernel.py::report", "kernel.py", "'python kernel.py"])
def test_what_is_no_benchmark_is_refused_before_the_want_of_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    repo = make_repo(tmp_path, {"kernel.py": KERNEL})
    monkeypatch.chdir(repo)
    found = preflight(repo / "kernel.py")
    with pytest.raises(UsageError) as refused:
        find_target(found.tree, found.kernel, (), (given,))
    why = (
        "cannot be split into words (No closing quotation)"
        if "'" in given
        else "is the kernel's own file, which candidates change: move the benchmark to a file of "
        "its own"
    )
    assert str(refused.value) == f"--bench {given!r} {why}"


def test_tests_in_the_kernels_own_file_are_not_its_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{KERNEL}\n\ndef test_softmax():\n    assert softmax\n"
    repo = make_repo(tmp_path, {"kernels/softmax.py": text})
    monkeypatch.chdir(repo)
    tree = preflight(repo / "kernels/softmax.py").tree
    for tests in ([], ["kernels/softmax.py::test_softmax"]):
        with pytest.raises(UsageError) as refused:
            find_target(tree, "kernels/softmax.py", tests)
        assert "move its" in str(refused.value) and "candidates change" in str(refused.value)
        assert "\n" not in str(refused.value)


# --- import roots -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "kernel", "roots"),
    [
        ([], "k.py", (".",)),
        ([], "ops/k.py", ("ops", ".")),
        (["ops/__init__.py"], "ops/k.py", (".",)),
        (["src/pkg/__init__.py", "src/pkg/a/__init__.py"], "src/pkg/a/k.py", ("src", ".")),
        (["python/pkg/__init__.py"], "python/pkg/k.py", ("python", ".")),
        (["src/pkg/__init__.py"], "bench/k.py", ("bench", "src", ".")),
        (["__init__.py"], "k.py", (".",)),
        (["py/pkg/__init__.py"], "py/pkg/a/k.py", ("py/pkg/a", "py", ".")),
        (["p/q/__init__.py", "p/__init__.py"], "p/q/a/b/k.py", ("p/q/a/b", ".")),
    ],
)
def test_import_roots(tmp_path: Path, files: list[str], kernel: str, roots: tuple[str]) -> None:
    repo = make_repo(tmp_path, {**dict.fromkeys(files, ""), kernel: KERNEL, "test_k.py": ""})
    target = target_of(repo, kernel)
    assert target.import_roots == roots
    assert target.sys_path(Path("/w")) == tuple(Path("/w") / root for root in roots)


def test_pythonpath_inside_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make_repo(tmp_path, {**FILES, "lib/helper.py": ""})
    monkeypatch.chdir(repo)
    entries = ["lib", "", str(repo / "vendor"), "/usr/lib", str(repo)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entries))
    assert target_of(repo, "kernels/softmax.py").import_roots == (".", "lib", "vendor")


# --- what pytest is asked to select -------------------------------------------------------------
