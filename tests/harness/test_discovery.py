"""Which tests judge a kernel: TileGym's expressions, what stands in for them, and the refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.frozen_tests import TestPlan
from agent.harness.discovery import Selection, discover
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import deadline_in
from tests.support.workers import Project

TILEGYM = """
    import pytest, kernel

    class Test_Softmax:
        @pytest.mark.parametrize("n", [128, 256])
        @pytest.mark.parametrize("framework", ["cutile", "triton"])
        def test_op(self, framework, n): pass

        @pytest.mark.parametrize("framework", ["cutile", "triton", "torch"])
        def test_perf(self, framework, record_property): pass
"""
PLAIN = """
    import kernel

    def test_right(): pass
    def test_also_right(): pass
    def test_perf_launch(): pass
    def test_launch(benchmark): pass
    def test_timed(tile_bench): pass
"""


def plan_of(
    project: Project,
    server: ForkServer,
    test: str,
    *,
    files: tuple[str, ...] = ("test_kernel.py",),
    framework: str = "cutile",
    **selection: Any,
) -> TestPlan:
    project.write("test_kernel.py", test)
    return discover(
        server,
        project.checkout(),
        Selection(files, **selection),
        framework=framework,
        log=project.log(),
        deadline=deadline_in(60),
    )


def names(nodeids: tuple[str, ...]) -> list[str]:
    return [nodeid.rpartition("::")[2] for nodeid in nodeids]


@pytest.mark.parametrize("framework", ["cutile", "triton"])
def test_the_defaults_are_tilegyms(project: Project, server: ForkServer, framework: str) -> None:
    plan = plan_of(project, server, TILEGYM, framework=framework)
    assert names(plan.correctness) == [f"test_op[{framework}-128]", f"test_op[{framework}-256]"]
    assert plan.perf == (f"test_kernel.py::Test_Softmax::test_perf[{framework}]",)
    assert plan.files == ("test_kernel.py",)
    assert plan.notes == ()


@pytest.mark.parametrize(("settings", "sessions"), [("", 1), ("addopts = -k op", 3)])
def test_a_session_for_each_expression_is_there_where_another_result_is_to_be_had(
    project: Project, server: ForkServer, settings: str, sessions: int
) -> None:
    project.write("pytest.ini", f"[pytest]\n{settings}\n")
    plan = plan_of(project, server, TILEGYM, framework="triton")
    assert names(plan.correctness) == ["test_op[triton-128]", "test_op[triton-256]"]
    assert names(plan.perf) == ["test_perf[triton]"]
    told = "".join(log.read_text() for log in project.root.parent.glob("*.log"))
    assert told.count("test session starts") == sessions


def test_without_the_frameworks_name_a_perf_test_is_known_by_its_name_or_its_fixture(
    project: Project, server: ForkServer
) -> None:
    pytest.importorskip("pytest_benchmark")
    plan = plan_of(project, server, PLAIN)
    assert names(plan.perf) == ["test_perf_launch", "test_launch", "test_timed"]
    assert names(plan.correctness) == ["test_right", "test_also_right"]


def test_a_perf_test_with_the_frameworks_name_and_correctness_tests_without(
    project: Project, server: ForkServer
) -> None:
    body = """
        import kernel
        def test_right(): pass
        def test_perf_cutile(): pass
    """
    plan = plan_of(project, server, body)
    assert (names(plan.correctness), names(plan.perf)) == (["test_right"], ["test_perf_cutile"])


BESIDE_TRITON = """
    import kernel

    def test_cutedsl_matches_triton(): pass
    def test_perf_triton(): pass
"""
OF_BOTH = """
    import kernel

    def test_right(): pass
    def test_perf_torch(): pass
    def test_cutile_is_right(): pass
"""


def test_tests_of_a_file_that_names_no_framework_count_beside_those_of_one_that_does(
    project: Project, server: ForkServer
) -> None:
    project.write("test_kernel_cutedsl.py", BESIDE_TRITON)
    files = ("test_kernel_cutedsl.py", "test_kernel.py")
    plan = plan_of(project, server, OF_BOTH, files=files, framework="triton")
    assert names(plan.correctness) == ["test_cutedsl_matches_triton", "test_right"]
    assert names(plan.perf) == ["test_perf_triton"]


def test_a_timed_test_is_no_correctness_test_too(project: Project, server: ForkServer) -> None:
    """`test_ and cutile and not test_perf` takes it in; it has been chosen for perf already."""
    body = """
        import kernel
        def test_cutile(): pass
        def test_speed_cutile(tile_bench): pass
    """
    plan = plan_of(project, server, body)
    assert names(plan.correctness) == ["test_cutile"]
    assert names(plan.perf) == ["test_speed_cutile"]


OF_A_SCRIPT = """
    import kernel, pytest

    @pytest.fixture
    def depends(missing): pass

    def test_of_a_script(rows, columns): pass
    def test_indirectly(depends): pass
    def test_perf_of_a_script(n): pass
    @pytest.mark.parametrize("n", [1])
    def test_right(n, request, tmp_path): pass
    def test_perf_right(tile_bench): pass
"""


def test_what_pytest_cannot_call_is_left_out(project: Project, server: ForkServer) -> None:
    plan = plan_of(project, server, OF_A_SCRIPT)
    assert names(plan.correctness) == ["test_right[1]"]
    assert names(plan.perf) == ["test_perf_right"]
    assert plan.notes == (
        "test_kernel.py::test_of_a_script and 2 more are left out: "
        "pytest knows no fixture `rows`, `columns`",
    )


def test_a_file_of_a_script_alone_is_no_test(project: Project, server: ForkServer) -> None:
    project.write("test_bench.py", "import kernel\n\ndef test_speed(n): pass\n")
    plan = plan_of(project, server, PLAIN, files=("test_kernel.py", "test_bench.py"))
    assert plan.files == ("test_kernel.py",)
    with pytest.raises(UsageError) as caught:
        plan_of(project, server, "", files=("test_bench.py",))
    assert str(caught.value) == (
        "no correctness tests among the 1 collected from test_bench.py: choose them with "
        "--correctness-k or --tests, or have some made of the calls of `python test_bench.py`: "
        "tile-agent capture --kernel kernel.py -- python test_bench.py (test_bench.py::test_speed "
        "is left out: pytest knows no fixture `n`)"
    )


def test_expressions_of_the_user(project: Project, server: ForkServer) -> None:
    plan = plan_of(project, server, PLAIN, correctness_k="also", perf_k="timed or perf")
    assert names(plan.correctness) == ["test_also_right"]
    assert names(plan.perf) == ["test_perf_launch", "test_timed"]


def test_a_timed_test_is_right_only_where_nothing_else_is_asked_for(
    project: Project, server: ForkServer
) -> None:
    plan = plan_of(project, server, PLAIN, correctness_k="also or perf_launch")
    assert names(plan.correctness) == ["test_also_right"]
    plan = plan_of(project, server, PLAIN, correctness_k="perf_launch")
    assert names(plan.correctness) == ["test_perf_launch"]


def test_only_one_expression_of_the_user(project: Project, server: ForkServer) -> None:
    plan = plan_of(project, server, PLAIN, perf_k="timed")
    assert names(plan.perf) == ["test_timed"]
    assert "test_timed" not in names(plan.correctness)
    plan = plan_of(project, server, TILEGYM, correctness_k="op and 128")
    assert names(plan.correctness) == ["test_op[cutile-128]", "test_op[triton-128]"]
    assert names(plan.perf) == ["test_perf[cutile]"]


def test_node_ids_of_the_user(project: Project, server: ForkServer) -> None:
    files = (
        "test_kernel.py::Test_Softmax::test_op[cutile-256]",
        "test_kernel.py::Test_Softmax::test_perf",
    )
    plan = plan_of(project, server, TILEGYM, files=files)
    assert names(plan.correctness) == ["test_op[cutile-256]"]
    assert names(plan.perf) == ["test_perf[cutile]"]
    assert plan.files == files


def test_several_files(project: Project, server: ForkServer) -> None:
    project.write("perf/test_speed.py", "import kernel\ndef test_perf_speed(): pass\n")
    files = ("test_kernel.py", "perf/test_speed.py")
    plan = plan_of(project, server, "import kernel\ndef test_right(): pass\n", files=files)
    assert plan.correctness == ("test_kernel.py::test_right",)
    assert plan.perf == ("perf/test_speed.py::test_perf_speed",)


# --- refusals -----------------------------------------------------------------------------------


def refusal(project: Project, server: ForkServer, test: str, **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        plan_of(project, server, test, **options)
    message = str(caught.value)
    assert "\n" not in message, "one line, for a person"
    return message


def test_no_perf_tests(project: Project, server: ForkServer) -> None:
    body = "import kernel\ndef test_right(): pass\ndef test_too(): pass\n"
    assert refusal(project, server, body) == (
        "no perf tests among the 2 collected from test_kernel.py: "
        "choose them with --perf-k, --bench 'python SCRIPT' or --tests, or have some made of the "
        "calls of a script: tile-agent capture --kernel kernel.py -- python SCRIPT, or of these "
        "tests: tile-agent run --kernel kernel.py --capture 'python -m pytest test_kernel.py'"
    )


def test_the_tests_that_are_called_like_the_kernel_are_proposed(
    project: Project, server: ForkServer
) -> None:
    project.write("test_a_host.py", "import kernel\ndef test_host(): pass\n")
    files = ("test_a_host.py", "test_kernel.py")
    body = "import kernel\ndef test_right(): pass\n"
    assert "--capture 'python -m pytest test_kernel.py'" in refusal(
        project, server, body, files=files
    )


def test_the_tests_that_name_most_of_the_kernels_file_are_proposed(
    project: Project, server: ForkServer
) -> None:
    """As in stk, where tests of another file come first and launch none of its kernels."""
    project.write("kernel.py", "def softmax(x): pass\ndef rows(x): pass\n")
    project.write("test_a.py", "import kernel\ndef test_a(): pass\n")
    project.write("test_b.py", "import kernel\ndef test_b(): kernel.softmax(kernel.rows(1))\n")
    files = ("test_a.py", "test_b.py")
    body = "import kernel\ndef test_a(): pass\n"
    said = refusal(project, server, body, files=files)
    assert "--capture 'python -m pytest test_b.py'" in said


@pytest.mark.parametrize(("own", "is_told"), [(39, False), (40, True)])
def test_many_tests_beside_the_captured_ones_are_told(
    own: int, is_told: bool, project: Project, server: ForkServer
) -> None:
    many = f"@pytest.mark.parametrize('n', range({own}))\ndef test_own(n): pass\n"
    body = f"import kernel, pytest\n{many}"
    captured = (
        "import kernel\ndef test_captured(): pass\ndef test_perf_captured(tile_bench): pass\n"
    )
    project.write("test_kernel_captured.py", captured)
    files = ("test_kernel.py", "test_kernel_captured.py")
    plan = plan_of(project, server, body, files=files, captured=files[1])
    told = f"{own} tests of the project judge each candidate beside the captured ones, which "
    assert any(note.startswith(told) for note in plan.notes) is is_told


def test_a_benchmark_that_lies_there_is_named(project: Project, server: ForkServer) -> None:
    body = "import kernel\ndef test_right(): pass\n"
    said = refusal(project, server, body, scripts=("benchmarks/one.py", "benchmarks/two.py"))
    assert "choose them with --perf-k, --bench 'python benchmarks/one.py' or --tests" in said


def test_no_correctness_tests(project: Project, server: ForkServer) -> None:
    assert refusal(project, server, "import kernel\ndef test_perf(): pass\n") == (
        "no correctness tests among the 1 collected from test_kernel.py: "
        "choose them with --correctness-k or --tests, or have some made of the calls of a script: "
        "tile-agent capture --kernel kernel.py -- python SCRIPT"
    )


def test_an_expression_that_selects_nothing(project: Project, server: ForkServer) -> None:
    message = refusal(project, server, PLAIN, perf_k="no_such_test")
    assert message.startswith("no perf tests among the 5 collected from test_kernel.py")


def test_no_tests_at_all(project: Project, server: ForkServer) -> None:
    message = refusal(project, server, "import kernel\n")
    assert message == "pytest finds no tests in test_kernel.py"
    skips = "import kernel, pytest\npytest.skip('needs eight GPUs', allow_module_level=True)\n"
    message = refusal(project, server, skips)
    assert message.endswith("in test_kernel.py; test_kernel.py: Skipped: needs eight GPUs")


def test_a_log_of_the_projects_is_not_written(project: Project, server: ForkServer) -> None:
    project.write("pytest.ini", "[pytest]\nlog_file = logs/all.log\nlog_file_level = DEBUG\n")
    plan_of(project, server, PLAIN)
    assert not (project.checkout().root / "logs").exists()


def test_tests_that_do_not_say_so_are_told_beside_those_that_do(
    project: Project, server: ForkServer
) -> None:
    body = "import kernel\ndef test_cutile(): pass\ndef test_b(): pass\ndef test_triton(): pass\n"
    plan = plan_of(project, server, body + "def test_perf(tile_bench): pass\n")
    assert names(plan.correctness) == ["test_cutile"]
    (told,) = plan.notes
    assert told.startswith("1 test is left out beside others that name cutile, as test_kernel.py::")


def test_tests_that_name_no_framework_count_where_none_names_another(
    project: Project, server: ForkServer
) -> None:
    """As where one class of a file tests a module, and says so in its name."""
    body = (
        "import kernel, pytest\n"
        "class TestTritonModule:\n    def test_forward(self): pass\n"
        "class TestAgainstTorch:\n    def test_forward(self): pass\n"
        "@pytest.mark.parametrize('by', ['triton', 'torch'])\ndef test_both(by): pass\n"
        "def test_rows(): pass\ndef test_time(tile_bench): pass\ndef test_perf(tile_bench): pass\n"
    )
    plan = plan_of(project, server, body, framework="triton")
    assert names(plan.correctness) == [
        "test_forward",
        "test_both[triton]",
        "test_forward",
        "test_rows",
    ]


@pytest.mark.parametrize("addopts", ["", "-x"])
def test_an_import_that_fails(project: Project, server: ForkServer, addopts: str) -> None:
    project.write("pytest.ini", f"[pytest]\naddopts = {addopts}\n")
    message = refusal(project, server, "import no_such_module\n")
    assert message.startswith(
        "the tests cannot be collected: "
        "test_kernel.py:1: ModuleNotFoundError: No module named 'no_such_module' (see "
    )
    log = Path(message.partition("(see ")[2].partition(")")[0])
    assert "No module named 'no_such_module'" in log.read_text()
    assert message.endswith(
        "): install what provides no_such_module for the tests' interpreter, name another with "
        "--python, choose other tests with --tests, or have some made of the calls of a script: "
        "tile-agent capture --kernel kernel.py -- python SCRIPT"
    )


def test_a_file_that_needs_what_is_not_installed_is_left_out(
    project: Project, server: ForkServer
) -> None:
    project.write("test_other.py", "import no_such_reference\nimport kernel\n")
    plan = plan_of(project, server, PLAIN, files=("test_other.py", "test_kernel.py"))
    assert plan.files == ("test_kernel.py",)
    assert plan.notes[0] == (
        "test_other.py is left out: it needs no_such_reference, which is not installed"
    )
    project.write("test_other.py", "import helpers.none\n")
    project.write("helpers/__init__.py", "")
    with pytest.raises(UsageError, match=r"test_other\.py:1: ModuleNotFoundError"):
        plan_of(project, server, PLAIN, files=("test_other.py", "test_kernel.py"))


def test_a_module_beside_a_test_is_not_said_to_be_missing(
    project: Project, server: ForkServer
) -> None:
    """In a package pytest puts the folder of the package on `sys.path`, and not the test's own."""
    project.write("gpu/__init__.py", "")
    project.write("gpu/padding.py", "")
    project.write("gpu/test_kernel.py", "import padding\nimport kernel\n")
    path = "gpu/padding.py is not on sys.path, where pytest alone does not find it either: "
    told = f"{path}PYTHONPATH=gpu puts it there"
    files = ("test_kernel.py", "gpu/test_kernel.py")
    left_out = "gpu/test_kernel.py is left out: it needs padding"
    assert plan_of(project, server, PLAIN, files=files).notes[0] == f"{left_out}, and {told}"
    with pytest.raises(UsageError, match=r"gpu/test_kernel\.py:1: ModuleNotFoundError") as caught:
        plan_of(project, server, PLAIN, files=files[1:])
    assert f"), and {told}; or choose other tests with --tests, or have" in str(caught.value)


IMPORTING = "import kernel\n"
CHAINED = """\
try:
    import no_such_module
except ImportError as problem:
    raise RuntimeError("no\\n  such\\nmodule") from problem
"""
ONE_VALUE = """\
import pytest


@pytest.mark.parametrize("a, b", [(1,)])
def test(a, b):
    pass
"""


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("test_kernel.py", "def test(: pass\n", "test_kernel.py:1: SyntaxError: invalid syntax"),
        ("kernel.py", "x = 1\n  y = 2\n", "kernel.py:2: IndentationError: unexpected indent"),
        ("kernel.py", "\nimport no_such\n", "kernel.py:2: ModuleNotFoundError: No module named "),
        ("kernel.py", "from os import no\n", "kernel.py:1: ImportError: cannot import name 'no'"),
        ("kernel.py", CHAINED, "kernel.py:4: RuntimeError: no (see "),
        (
            "kernel.py",
            "raise AssertionError('Torch not compiled with CUDA enabled')\n",
            "kernel.py:1: AssertionError: Torch",
        ),
        ("kernel.py", "import sys\nsys.exit(3)\n", "kernel.py:2: SystemExit: 3 (see "),
        ("conftest.py", "import no_such\n", "conftest.py:1: ModuleNotFoundError: No module named"),
        ("conftest.py", "def f(:\n", "conftest.py:1: SyntaxError: invalid syntax (see "),
        ("test_kernel.py", ONE_VALUE, 'test_kernel.py::test: in "parametrize" the number of names'),
        (
            "kernel.py",
            "raise RuntimeError('0 active drivers')\n",
            "kernel.py:1: RuntimeError: 0 act",
        ),
        (
            "conftest.py",
            "raise OSError('CUDA_HOME environment variable is not set. Set it to a CUDA.')\n",
            "conftest.py:1: OSError: CUDA_HOME environment variable is not set. Set it to a CUDA.",
        ),
        ("pytest.ini", "[pytest]\naddopts = --no-such\n", "unrecognized arguments: --no-such"),
    ],
)
def test_what_cannot_be_collected_is_told_in_pytests_words(
    project: Project, server: ForkServer, file: str, text: str, said: str
) -> None:
    project.write(file, text)
    message = refusal(project, server, text if file == "test_kernel.py" else IMPORTING)
    assert message.startswith(f"the tests cannot be collected: {said}")
    elsewhere = (
        "; or choose other tests with --tests, or go by the calls of a script: "
        "tile-agent run --kernel kernel.py --capture 'python SCRIPT'"
    )
    assert message.endswith(elsewhere) == (file == "test_kernel.py"), message
    message = message.removesuffix(elsewhere)
    remedies = (
        "): mend and commit it",
        " or name another with --python",
        "): it asks for a GPU when it is imported, and there is none: "
        "ask when a kernel is launched, or run where there is one",
        "): set it, and hand it on with --pass-env CUDA_HOME",
    )
    assert message.endswith(remedies) == (file != "pytest.ini"), message


CAPTURED = "import kernel\ndef test_cutile(): pass\ndef test_perf_cutile(): pass\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def test(: pass\n", "own/test_kernel.py:1: SyntaxError: invalid syntax"),
        ("raise OSError('CUDA_HOME environment variable is not set.')\n", "OSError: CUDA_HOME env"),
        ("import os\nos._exit(3)\n", "the worker ended by itself with exit code 3"),
        ("import no_such\n", "own/test_kernel.py is left out: it needs no_such, which is not inst"),
    ],
)
def test_what_cannot_be_collected_gives_way_to_captured_tests(
    project: Project, server: ForkServer, text: str, said: str
) -> None:
    project.write("own/test_kernel.py", text)
    project.write("test_kernel_captured.py", CAPTURED)
    files = ("own/test_kernel.py", "test_kernel_captured.py")
    plan = plan_of(project, server, "", files=files, captured=files[1])
    assert plan.files == files[1:]
    assert (names(plan.correctness), names(plan.perf)) == (["test_cutile"], ["test_perf_cutile"])
    assert plan.notes[0].startswith("own/test_kernel.py is left out") and said in plan.notes[0]
    with pytest.raises(UsageError, match="the tests cannot be collected"):
        plan_of(project, server, "", files=files[:1])


def test_what_a_conftest_is_for_gives_way_to_captured_tests(
    project: Project, server: ForkServer
) -> None:
    for name in ("own/test_a.py", "own/gpu/test_b.py", "test_kernel_captured.py"):
        project.write(name, CAPTURED)
    project.write("own/conftest.py", "import settings\n")
    project.write("settings.py", "raise RuntimeError('no')\n")
    files = ("own/test_a.py", "test_kernel.py", "own/gpu/test_b.py", "test_kernel_captured.py")
    plan = plan_of(project, server, PLAIN, files=files, captured=files[-1])
    assert plan.files == ("test_kernel.py", "test_kernel_captured.py")
    assert plan.notes[0].startswith(
        "own/test_a.py, own/gpu/test_b.py are left out, and the captured tests judge without: "
        "settings.py:1: RuntimeError: no (see "
    )


@pytest.mark.parametrize("folder", ["", "own/"])
def test_a_conftest_that_is_for_captured_tests_too_is_said_to_be(
    project: Project, server: ForkServer, folder: str
) -> None:
    captured = f"{folder}test_kernel_captured.py"
    project.write(captured, CAPTURED)
    project.write(f"{folder}conftest.py", "def f(:\n")
    with pytest.raises(UsageError) as caught:
        plan_of(project, server, PLAIN, files=("test_kernel.py", captured), captured=captured)
    told = f"): {folder}conftest.py is for the captured tests, too: mend and commit it"
    elsewhere = (
        ", or have them outside of own/: tile-agent capture --kernel kernel.py --output "
        "test_kernel_captured.py -- COMMAND; commit them, and run with --tests "
        "test_kernel_captured.py"
    )
    assert str(caught.value).endswith(told + (elsewhere if folder else ""))


def test_a_module_of_the_checkout_is_not_to_be_installed(
    project: Project, server: ForkServer
) -> None:
    project.write("conftest.py", "import helpers.none\n")
    project.write("helpers/__init__.py", "")
    assert refusal(project, server, IMPORTING).endswith("): mend and commit it")


@pytest.mark.parametrize("by", ["the file", "another"])
def test_a_variable_of_the_shell_that_did_not_reach_the_code_is_named(
    project: Project, server: ForkServer, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setenv("PROJECT_LIGHT_ONLY", "1")
    monkeypatch.setenv("PROJECT_SECRET", "hush")  # cannot be handed on
    monkeypatch.setenv("PROJECT_UNREAD", "1")
    reads = (
        "import os\nlight = os.environ.get('PROJECT_LIGHT_ONLY') and os.environ['PROJECT_SECRET']\n"
    )
    refuses = "if not light:\n    raise RuntimeError('version file not found')\n"
    settings = "" if by == "the file" else reads
    project.write("settings.py", settings)
    project.write("kernel.py", f"{'' if settings else reads}from settings import *\n{refuses}")
    assert refusal(project, server, IMPORTING).endswith(
        "): PROJECT_LIGHT_ONLY is a variable of this shell that the repository reads, not handed "
        "on without --pass-env PROJECT_LIGHT_ONLY; if that is not why, mend and commit it"
    )
    project.write("load_tests/settings.py", project.root.joinpath("settings.py").read_text())
    project.write("settings.py", "")
    project.write("kernel.py", f"import settings\nlight = False\n{refuses}")  # nobody reads it here
    assert refusal(project, server, IMPORTING).endswith("): mend and commit it")
    project.write("kernel.py", "import settings\ndef f(:\n")  # is wrong whatever is set
    assert refusal(project, server, IMPORTING).endswith("): mend and commit it")


def test_a_file_that_is_not_there(project: Project, server: ForkServer) -> None:
    message = refusal(project, server, PLAIN, files=("missing.py",))
    assert message.startswith(
        "the tests cannot be collected: file or directory not found: missing.py (see "
    )


def test_an_expression_that_pytest_refuses(project: Project, server: ForkServer) -> None:
    message = refusal(project, server, PLAIN, perf_k="a and (")
    assert message.startswith(
        "the tests cannot be collected: Wrong expression passed to '-k': a and (: at column 8: "
    )


def test_a_test_file_that_ends_the_process(project: Project, server: ForkServer) -> None:
    message = refusal(project, server, "import os\nos._exit(3)\n")
    assert message == ("the tests cannot be collected: the worker ended by itself with exit code 3")


def test_more_tests_than_can_be_listed(project: Project, server: ForkServer) -> None:
    """As three hundred thousand of a library have it, by fewer and longer names."""
    body = """
        import kernel, pytest

        @pytest.mark.parametrize("n", range(70), ids=lambda n: f"{n}" * 600_000)
        def test_right(n): pass
    """
    told = "test_kernel.py holds more tests than can be listed: choose some with --tests FILE::TEST"
    assert refusal(project, server, body) == told
