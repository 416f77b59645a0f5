"""Whether a port computes what its origin does: the same calls through both, without a GPU.

The tests of the origin make the calls. They run with `tile_agent_pytest.ported`, which compares the
origin, in Triton's interpreter, with the port, whose kernels run on the CPU, and compiles what was
launched for several GPUs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agent.errors import UsageError
from agent.harness.processes.script import plugin_folder, run_script
from agent.importers import Tree
from agent.on_disk import on_disk
from agent.port_answers import Checked, read
from agent.port_imports import without_triton
from agent.porting import Port
from agent.porting import port as translate
from agent.target import find_target, import_roots

TARGETS = ("sm_80", "sm_90", "sm_100")
VARIABLES = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
"""Both sides run on the CPU, wherever the check does."""
ROOTS = (".git", "pyproject.toml", "setup.py")
"""What lies in the folder of a project, the nearest above the kernel."""


@dataclass(frozen=True)
class Project:
    """What a kernel belongs to, as it lies on the disk: a port needs no commit.

    Attributes:
        root: its folder.
        tests: the test files that reach the kernel, as `run` finds them in a commit.
        sys_path: what comes first where they import.
    """

    root: Path
    tests: tuple[Path, ...]
    sys_path: tuple[Path, ...]


def project_of(kernel: Path) -> Project:
    """The project of a kernel.

    Raises:
        UsageError: the file does not parse.
    """
    tree, name = _tree_of(kernel)
    target = find_target(tree, name, needs_tests=False)
    tests = (tree.root / test.partition("::")[0] for test in target.tests)
    return Project(tree.root, tuple(dict.fromkeys(tests)), target.sys_path(tree.root))


def _tree_of(kernel: Path) -> tuple[Tree, str]:
    """The project of a file on the disk, and the file's path in it."""
    file = kernel.resolve()
    root = next((f for f in file.parents if any((f / mark).exists() for mark in ROOTS)), None)
    tree = on_disk(root or file.parent, whole=root is not None)
    return tree, file.relative_to(tree.root).as_posix()


def translated(kernel: Path, text: str) -> Port:
    """The port of a file, without Triton for the sake of what it imports of its project.

    Raises:
        NotPortable: something of it has no translation that is known to mean the same.
    """
    made = translate(text, str(kernel))
    tree, name = _tree_of(kernel)
    return without_triton(made, text, kernel, tree, import_roots(tree, name))


def check(
    port: Port,
    kernel: Path,
    project: Project,
    functions: Sequence[str],
    *,
    python: str,
    timeout_s: float,
    targets: Sequence[str] = TARGETS,
    name: str = "",
) -> Checked:
    """Compare a port with its origin on the calls that tests make.

    Args:
        port: the new file.
        kernel: the origin.
        project: what it belongs to; its tests are files or node ids for pytest.
        functions: the functions of the origin that launch kernels.
        python: the interpreter of the tests.
        timeout_s: for each of two runs of the tests.
        targets: the GPUs that what was launched is compiled for.
        name: of the file that the port is to be.

    Raises:
        UsageError: the interpreter cannot be run.
    """
    if not project.tests:
        why = "no test of it was found: name some with --tests"
        return Checked(unchecked=why, not_compared=port.kernels, not_compiled=port.kernels)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{kernel.stem}__port.py"
        ran = partial(
            _run, kernel, file, project, python, timeout_s, targets,
            name=name or f"{kernel.stem}_cutile.py",
        )  # fmt: skip
        found, failing = Checked(), frozenset[str]()
        compared: Checked | None = None
        for replace in (False, True) if functions else (True,):
            text = (port.in_place if replace else "") or port.text
            file.write_text(text, encoding="utf-8")
            run = ran(functions, replace=replace)
            if run.failing and not functions:
                failing = ran((), replace=False).not_passing
            found = read(
                run.answers, run.fate, run.log, project.root, port.kernels,
                in_place=replace, failing=failing,
            )  # fmt: skip
            if found.problems or found.remedy or (found.calls and not found.elsewhere):
                return found
            compared = found if found.calls else compared
            failing = run.not_passing
        return compared.together(found) if compared else found


@dataclass(frozen=True)
class _TestsRun:
    """What came of the tests: what the plugin answered, how they ended and what they printed."""

    answers: Sequence[Mapping[str, Any]]
    fate: str
    log: str

    @property
    def failing(self) -> frozenset[str]:
        """Node ids of the tests that failed."""
        return self._those("failing")

    @property
    def not_passing(self) -> frozenset[str]:
        """And of those that were skipped, as where there is no GPU."""
        return self.failing | self._those("skipped")

    def _those(self, outcome: str) -> frozenset[str]:
        ends = (a for a in self.answers if a["event"] == "end")
        return frozenset(each for end in ends for each in end.get(outcome, ()))


def _run(
    kernel: Path,
    port: Path,
    project: Project,
    python: str,
    timeout_s: float,
    targets: Sequence[str],
    functions: Sequence[str],
    *,
    name: str,
    replace: bool,
) -> _TestsRun:
    """Run the tests once: to compare calls, or with the port in the origin's place."""
    job = {
        "origin": str(kernel.resolve()),
        "port": str(port),
        "functions": list(functions),
        "replace": replace,
        "targets": list(targets),
    }
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        command = [
            python, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "-p", "tile_agent_pytest.mending_plugin", "-p", "tile_agent_pytest.ported",
            "--continue-on-collection-errors", *(["--tile-cpu"] if replace else []),
            *map(str, project.tests),
        ]  # fmt: skip
        theirs = filter(None, [os.environ.get("PYTHONPATH")])
        path = os.pathsep.join([*map(str, [*project.sys_path, plugin_folder(scratch)]), *theirs])
        job_at = {"TILE_AGENT_PORTED": str(scratch / "job"), "PYTHONPATH": path}
        end = run_script(
            command,
            job,
            cwd=project.root,
            variables={**VARIABLES, **job_at},
            scratch=scratch,
            timeout_s=timeout_s,
        )
        log = (scratch / "log").read_text(encoding="utf-8", errors="replace")

    def named(value: Any) -> Any:
        """What is said of the port, by the name that it will have."""
        if isinstance(value, str):
            for path in (str(port.resolve()), str(port)):
                value = value.replace(f'"{path}"', name).replace(path, name)
            return value
        if isinstance(value, Mapping):
            return {key: named(each) for key, each in value.items()}
        return [named(each) for each in value] if isinstance(value, list) else value

    return _TestsRun([named(answer) for answer in end.answers], named(end.fate), named(log))


def write_new(file: Path, text: str) -> None:
    """Write a file that does not exist.

    Raises:
        UsageError: it exists, or cannot be written.
    """
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise UsageError(f"{file} exists: name another with --output, or remove it") from None
    except OSError as problem:
        raise UsageError(
            f"{file} cannot be written ({problem.strerror}): name another with --output"
        ) from None
