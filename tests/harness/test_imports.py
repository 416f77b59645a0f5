"""Which file the tests really import: the checkout's, or an error that names both."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import WrongImport
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass
from agent.harness.processes.worker_session import deadline_in
from tests.support.workers import Project, collected, nodeids, start_server

PACKAGES = ("by_path", "by_finder", "at_front")
FINDER = """
import importlib.util, sys

MAPPING = {mapping!r}

class Finder:
    def __init__(self, names):
        self.names = names

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in self.names:
            return None
        folder = MAPPING[fullname]
        return importlib.util.spec_from_file_location(
            fullname, folder + "/__init__.py", submodule_search_locations=[folder]
        )

def install():
    sys.meta_path.append(Finder({{"by_finder"}}))
    sys.meta_path.insert(0, Finder({{"at_front"}}))
"""


def make_packages(root: Path, whose: str) -> None:
    """The three packages under `src/`, each with a kernel."""
    for name in PACKAGES:
        folder = root / "src" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "kernel.py").write_text(f"WHOSE = {whose!r}\n")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's own copy, which an editable install points to."""
    root = tmp_path_factory.mktemp("installed")
    make_packages(root, "user")
    return root


@pytest.fixture(scope="module")
def editable(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """A server whose interpreter has the packages installed in editable mode.

    One by a path entry, one by a finder behind Python's own (setuptools), one by a finder before
    it (meson-python, scikit-build-core).
    """
    site = tmp_path_factory.mktemp("site")
    mapping = {name: str(installed / "src" / name) for name in PACKAGES}
    by_path = tmp_path_factory.mktemp("by-path")
    (by_path / "by_path").symlink_to(mapping["by_path"])
    (site / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(site)!r})\n")
    (site / "__editable__.by_path.pth").write_text(f"{by_path}\n")
    (site / "__editable__.finder.pth").write_text(
        "import __editable___finder; __editable___finder.install()\n"
    )
    (site / "__editable___finder.py").write_text(FINDER.format(mapping=mapping))
    with start_server(site / "server.log", python=sys.executable, PYTHONPATH=str(site)) as server:
        yield server


@pytest.fixture
def source_layout(tmp_path: Path) -> Project:
    """The checkout under judgement, in a `src/` layout."""
    project = Project(tmp_path / "checkout")
    make_packages(project.root, "checkout")
    return project


def judged(project: Project, server: ForkServer, package: str, *sys_path: str) -> Pass:
    project.write(
        "test_kernel.py",
        f"from {package}.kernel import WHOSE\n"
        "def test(record_property): record_property('whose', WHOSE)\n",
    )
    checkout = project.checkout(*sys_path, kernel=f"src/{package}/kernel.py")
    with project.arm(server, checkout=checkout) as arm:
        assert not collected(arm).errors, collected(arm).errors
        return arm.run(nodeids(arm), deadline_in(30))


@pytest.mark.parametrize("package", ["by_path", "by_finder"])
def test_the_checkout_wins_over_an_editable_install(
    source_layout: Project, editable: ForkServer, package: str
) -> None:
    done = judged(source_layout, editable, package, "src", ".")
    assert done.tests[0].properties == (("whose", "checkout"),)
    assert done.modules == (str(source_layout.root / "src" / package / "kernel.py"),)


@pytest.mark.parametrize(
    ("package", "sys_path"),
    [("at_front", ("src", ".")), ("by_finder", (".",)), ("by_path", (".",))],
    ids=["a finder before Python's", "src left out, finder", "src left out, path"],
)
def test_an_installed_copy_that_wins_is_an_error_that_names_both_files(
    source_layout: Project,
    editable: ForkServer,
    installed: Path,
    package: str,
    sys_path: tuple[str, ...],
) -> None:
    with pytest.raises(WrongImport) as caught:
        judged(source_layout, editable, package, *sys_path)
    message = str(caught.value)
    assert str(installed / "src" / package / "kernel.py") in message
    assert str(source_layout.root / "src" / package / "kernel.py") in message
    assert "an installed copy hides the checkout" in message


def test_a_source_layout(source_layout: Project, server: ForkServer) -> None:
    done = judged(source_layout, server, "by_path", "src", ".")
    assert done.tests[0].properties == (("whose", "checkout"),)


def test_a_checkout_behind_a_symbolic_link(
    source_layout: Project, server: ForkServer, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(source_layout.root)
    source_layout.root = tmp_path / "link"
    assert judged(source_layout, server, "by_path", "src").tests[0].outcome == "passed"


def test_tests_that_never_import_the_kernel(project: Project, server: ForkServer) -> None:
    project.write("test_kernel.py", "def test(): pass\n")
    with pytest.raises(WrongImport, match=r"never import kernel\.py: name those that do"):
        project.run(server)


def test_tests_that_fail_before_they_import_the_kernel(
    project: Project, server: ForkServer
) -> None:
    """Their failure is the news; the import never came."""
    project.write("test_kernel.py", "def test():\n    assert 0\n    import kernel\n")
    assert project.run(server).tests[0].outcome == "failed"


def test_the_kernel_may_be_imported_as_late_as_in_the_test(
    project: Project, server: ForkServer
) -> None:
    project.write("test_kernel.py", "def test():\n    import kernel\n")
    assert project.run(server).tests[0].outcome == "passed"


def test_a_namesake_elsewhere_does_not_stand_in_for_the_kernel(
    project: Project, server: ForkServer
) -> None:
    project.write("other/kernel.py", "")
    project.write("test_kernel.py", "import other.kernel\ndef test(): pass\n")
    with pytest.raises(WrongImport, match=r"other/kernel\.py, not .*/project/kernel\.py"):
        project.run(server)
    project.write("test_kernel.py", "import kernel, other.kernel\ndef test(): pass\n")
    assert project.run(server).tests[0].outcome == "passed"


@pytest.mark.full
def test_a_checkout_hides_a_module_of_the_same_name_as_ours(tmp_path: Path) -> None:
    """A user's `agent` package is theirs, also where ours is installed beside it."""
    project = Project(tmp_path / "project")
    project.write("agent/__init__.py", "MINE = True\n")
    project.write("test_kernel.py", "import kernel, agent\ndef test(): assert agent.MINE\n")
    with start_server(tmp_path / "server.log") as server:
        assert project.run(server).tests[0].outcome == "passed"
