"""A Python that has made its imports already, and runs each program in a fork of itself.

Importing torch and Triton takes three seconds, and what the command line needs takes one; a small
kernel in the interpreter, or a refused command, takes a tenth of one. Run as a script, this file is
that process: it imports what it is told to, takes a job a line, and answers with its exit code.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TRITON = ("torch", "triton", "triton.language")
COMMAND_LINE = ("agent.*", "pandas", "scipy.special")
"""All of the package, and what it imports when it needs it."""

_KEPT: dict[tuple[str, tuple[str, ...], str | None], _Warm] = {}


def run_python(
    program: str,
    *arguments: str,
    imports: tuple[str, ...] = TRITON,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    executable: str = sys.executable,
) -> subprocess.CompletedProcess[str]:
    """What `python -c program arguments` gives, without input.

    Args:
        program: its text.
        arguments: its `sys.argv[1:]`.
        imports: what is imported before. One process is kept for each, and for each way in which
            Triton may run, which it decides at its import.
        environment: of the program, on top of this process's own.
        cwd: the folder it runs in, if not this one.
        executable: what it takes for its interpreter.
    """
    whole = {**os.environ, **(environment or {})}
    warm = _warm(executable, imports, whole.get("TRITON_INTERPRET"))
    return warm.run(program, arguments, whole, cwd or Path.cwd())


def _warm(executable: str, imports: tuple[str, ...], interpreted: str | None) -> _Warm:
    environment = {} if interpreted is None else {"TRITON_INTERPRET": interpreted}
    key = (executable, imports, interpreted)
    kept = _KEPT.get(key)
    if kept is not None and kept.process.poll() is not None:
        kept.forget()  # a test has killed whatever it had below it
        kept = None
    _KEPT[key] = kept or _Warm(executable, imports, environment)
    return _KEPT[key]


class _Warm:
    def __init__(
        self, executable: str, imports: tuple[str, ...], environment: Mapping[str, str]
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, executable, *imports],
            stdin=subprocess.PIPE,  # closed when the tests end, which ends the process
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        )

    def forget(self) -> None:
        """Close what led to a process that is gone."""
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]

    def run(
        self, program: str, arguments: tuple[str, ...], environment: Mapping[str, str], cwd: Path
    ) -> subprocess.CompletedProcess[str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            job = {
                "program": program,
                "argv": ["-c", *arguments],
                "out": str(out),
                "err": str(err),
                "cwd": str(cwd),
                "environment": dict(environment),
            }
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            code = json.loads(self.process.stdout.readline())
            return subprocess.CompletedProcess(program, code, out.read_text(), err.read_text())


def serve(executable: str, imports: list[str]) -> None:
    """Fork for each job, and wait for it."""
    sys.executable = executable
    for name in names(imports):
        with contextlib.suppress(ImportError):  # of an optional dependency
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            do(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def names(imports: list[str]) -> Iterator[str]:
    """The modules; `package.*` stands for all of a package but what runs it."""
    for name in imports:
        package = name.removesuffix(".*")
        yield package
        if package != name:
            found = importlib.import_module(package).__path__
            below = (module.name for module in pkgutil.walk_packages(found, f"{package}."))
            yield from (module for module in below if not module.endswith("__main__"))


def do(job: dict[str, Any]) -> None:
    """Run a job in this process, and end it as Python would."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.path[0] = ""
    sys.argv = job["argv"]
    code = 0
    try:
        exec(compile(job["program"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
