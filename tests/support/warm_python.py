"""Pythons that have made their imports already, and run each program in a fork of themselves.

Importing torch and Triton takes three seconds, and what the command line needs takes one; a small
kernel in the interpreter, or a refused command, takes a tenth of one. Four processes wait: one for
the command line, one for Triton's interpreter and one for its compiler, which Triton chooses
between when it is imported, and one without Triton for commands that are recorded, since the
recorder has to be there before; all processes of a test session share them. Run as a script, this
file is such a process: it makes its imports at the first call, and answers each with the exit code
of its fork.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
import weakref
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import tile_agent_pytest
from tests.support import huge_pages
from tile_agent_pytest import kept_metadata, preloading
from tile_agent_pytest.process_tree import wake_on_child_exit

SHARED = "TILE_AGENT_TEST_WARM"
"""The variable that says where those of the session are."""
MARK = "TILE_AGENT_TEST_STARTED_BY"
"""The variable of what one test has started, and may kill."""

ROOT = Path(__file__).parents[2]
PACKAGE = str(Path(tile_agent_pytest.__file__).parent)
AGENT = str(Path(PACKAGE).parent / "agent")
FLEET = str(ROOT / "tests" / "fleet")
IMPORTS = {
    "command-line": ("agent.*", "git", "pandas", "pynvml", "scipy.special"),
    "interpreter": (*preloading.PRELOADED, *preloading.EXTRAS),
    "compiler": (*preloading.PRELOADED, *preloading.EXTRAS),
    "recorded": ("numpy", "torch"),
}
"""What each has imported; `package.*` stands for all of a package but what runs it."""
READS_ITS_VARIABLES = "cuda.tile"
"""Not imported before: it reads its variables then, and is imported in no time."""
MOST_BYTES = 2**20
PYTHON = """\
#!{python} -IS
import json, os, signal, socket, sys

arguments = sys.argv[1:]
words = arguments[1:] if arguments[:1] == ["-P"] else arguments
program, first, *_ = *words[:2], "", ""
files = [0, 1, 2]
kind = ""
is_program = program.startswith({package!r}) and first != "program"
of_agent = program == "-m" and first.partition(".")[0] in ("agent", "benchmarks")
if of_agent or program.startswith(({agent!r}, {fleet!r})):
    kind = "command-line"
elif "TILE_AGENT_RECORDER" in os.environ:
    kind = "recorded" if program in ("-c", "-m") or program.endswith(".py") else ""
elif "TRITON_INTERPRET" in os.environ if program == "-m" else is_program:
    kind = "interpreter" if os.environ.get("TRITON_INTERPRET") == "1" else "compiler"
    files += [int(first)] if first.isdigit() else []
if kind == "command-line":  # it ends by it also where a shell has its background ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if kind:
    warm = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        warm.connect({folder!r} + "/" + kind)
    except OSError:  # the tests are over, and somebody goes on with their run
        pass
    else:
        job = dict(argv=words, files=files, cwd=os.getcwd(), environment=dict(os.environ))
        socket.send_fds(warm, [json.dumps(job).encode()], files)
        for file in files[3:]:
            os.close(file)
        try:
            answer = warm.recv(100)
        except KeyboardInterrupt:  # the fork is ended, and has something to put away
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            warm.shutdown(socket.SHUT_WR)
            warm.settimeout(60)
            answer = warm.recv(100)
        code = int(answer or b"1")
        if code < 0:
            os.kill(os.getpid(), -code)
        sys.exit(code)
os.execv({python!r}, [{python!r}, *arguments])
"""


def printed_in_interpreter(folder: Path, kernels: str, program: str) -> str:
    """What a program prints that imports `kernels`, where Triton interprets."""
    (folder / "kernels.py").write_text(kernels)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(folder)}
    done = run_python(program, environment=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run_python(
    program: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    kind: str = "",
) -> subprocess.CompletedProcess[str]:
    """What `python -c program arguments` gives, without input.

    Args:
        program: its text.
        arguments: its `sys.argv[1:]`.
        environment: of the program, on top of this process's own.
        cwd: the folder it runs in, if not this one.
        kind: of the process that runs it; by `TRITON_INTERPRET` where it is not said.
    """
    whole = {**os.environ, **(environment or {})}
    kind = kind or ("interpreter" if whole.get("TRITON_INTERPRET") == "1" else "compiler")
    with contextlib.ExitStack() as stack:
        out, err = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2))
        nothing = stack.enter_context(Path(os.devnull).open())
        warm = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        warm.connect(str(_folder() / kind))
        job = {
            "argv": ["-c", *arguments],
            "program": program,
            "files": [0, 1, 2],
            "cwd": str(cwd or Path.cwd()),
            "environment": whole,
        }
        socket.send_fds(warm, [json.dumps(job).encode()], [f.fileno() for f in (nothing, out, err)])
        code = int(warm.recv(100))
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(program, code, out.read(), err.read())


def warm_interpreter() -> str:
    """The path of a Python that runs modules, and tile-agent's programs, in such forks.

    Anything else it runs as the tests' own would, also a module where TRITON_INTERPRET is not set:
    it may set that itself. Who ends it ends the fork, but the fork is no child of it: what counts
    processes needs the tests' own Python. Where there is a GPU a run does, so that one is given: it
    blames every process on the GPU that it has not started.
    """
    return sys.executable if _has_gpu() else str(_folder() / "python")


@cache
def _has_gpu() -> bool:
    from agent.environment import probe  # not in the processes that wait

    return probe().gpu is not None


def share() -> None:
    """Have the processes that this one starts use the same as it does, which end with this one."""
    os.environ[SHARED] = str(_folder())


@cache
def _folder() -> Path:
    """Where the waiting processes are reached; they end with whoever began with them."""
    if shared := os.environ.get(SHARED):
        return Path(shared)
    folder = Path(tempfile.mkdtemp(prefix="tile-agent-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    python = folder / "python"
    places = {"agent": AGENT, "fleet": FLEET, "package": PACKAGE, "folder": str(folder)}
    text = PYTHON.format(python=sys.executable, **places)
    python.write_text(text, encoding="utf-8")
    python.chmod(0o755)
    interpreter = sys.executable if _has_gpu() else str(python)
    environment = {n: v for n, v in os.environ.items() if n not in ("TRITON_INTERPRET", MARK)}
    for kind in IMPORTS:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with listener:
            listener.bind(str(folder / kind))
            listener.listen()
            process = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno()), kind, interpreter],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                cwd=ROOT,
                env=environment | ({"TRITON_INTERPRET": "1"} if kind == "interpreter" else {}),
                start_new_session=True,  # a test that interrupts its group interrupts no other's
            )
        _kept.append(process)
    return folder


_kept: list[subprocess.Popen[bytes]] = []
"""Their pipes are open as long as this process lives."""


def serve(listener: socket.socket, kind: str) -> None:
    """Fork for everyone who calls; end whom nobody waits for any more."""
    callers: dict[int, socket.socket] = {}
    gone: set[int] = set()
    """Forks that were told to end; their callers may still wait for that."""
    wakeup = wake_on_child_exit()
    has_imported = False
    while True:
        waiting = [caller for pid, caller in callers.items() if pid not in gone]
        ready, _, _ = select.select([listener, 0, wakeup, *waiting], [], [])
        if 0 in ready:  # nothing comes there but its end
            break
        for pid, caller in list(callers.items()):
            if caller in ready:  # nor from a caller
                _end(pid)
                gone.add(pid)
        if wakeup in ready:
            os.read(wakeup, 4096)
            for pid, code in _ended():
                gone.discard(pid)
                if (caller := callers.pop(pid, None)) is not None:
                    with contextlib.suppress(OSError):
                        caller.send(str(code).encode())
                    caller.close()
        if listener in ready:
            has_imported = has_imported or _import(IMPORTS[kind])
            caller, _ = listener.accept()
            data, files, _, _ = socket.recv_fds(caller, MOST_BYTES, 8)
            if (pid := os.fork()) == 0:
                for ours in (listener, caller, *callers.values()):
                    ours.close()
                os.close(wakeup)
                _do(json.loads(data), files)
            callers[pid] = caller
            for file in files:
                os.close(file)
    for pid in callers:
        _end(pid)


def _import(names: tuple[str, ...]) -> bool:
    gc.disable()
    with _without_ends_of_libraries():
        for name in names:
            package = name.removesuffix(".*")
            wanted = [package, *(_modules(package) if package != name else ())]
            for each in wanted:
                if each != READS_ITS_VARIABLES:
                    with contextlib.suppress(ImportError):  # of an optional dependency
                        importlib.import_module(each)
    kept_metadata.keep()  # or every fork server of a test would read all of it
    kept_metadata.keep_digest_of_triton()
    if journal := sys.modules.get("agent.journal"):  # it writes code for each kind of event
        for event in vars(journal)["EVENTS"]:
            vars(journal)["_converter"].get_structure_hook(event)
            vars(journal)["_converter"].get_unstructure_hook(event)
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]  # 50 ms at each fork's end
    for each in [m for m in sys.modules if m.partition(".")[0] == "tests"]:
        del sys.modules[each]  # what a user's tests are called, too
    for each in sys.modules:
        _imported.setdefault(each.partition(".")[0], []).append(each)
    gc.collect()
    gc.freeze()
    gc.enable()
    huge_pages.gather()
    return True


_imported: dict[str, list[str]] = {}  # package -> its modules that each fork begins with


@contextlib.contextmanager
def _without_ends_of_libraries() -> Iterator[None]:
    """Have those that are compiled put nothing away at each fork's end: Triton's takes 5 ms."""
    register = atexit.register

    def register_python(function: Any, *arguments: Any, **keywords: Any) -> Any:
        file = getattr(getattr(function, "__code__", None), "co_filename", "<internal>")
        return function if file == "<internal>" else register(function, *arguments, **keywords)

    with mock.patch.object(atexit, "register", register_python):
        yield


def _modules(package: str) -> Iterator[str]:
    found = importlib.import_module(package).__path__
    below = (module.name for module in pkgutil.walk_packages(found, f"{package}."))
    yield from (module for module in below if not module.endswith("__main__"))


def _end(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGTERM)
    except ProcessLookupError:  # it has no group of its own yet, if it is there
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _ended() -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended[0], os.waitstatus_to_exitcode(ended[1])


def _do(job: dict[str, Any], files: list[int]) -> NoReturn:
    """Run a job in this process, as Python would, and end it as Python would."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for file, number in zip(files, job["files"], strict=True):
        if file != number:
            os.dup2(file, number)
            os.close(file)
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    tempfile.tempdir = None  # what TMPDIR was before
    sys.argv = job["argv"]
    sys.path[:1] = _path_of(sys.argv[0])
    _prefer(os.environ.get("PYTHONPATH", ""))
    if "TILE_AGENT_RECORDER" in os.environ:
        _switch_recorder_on()
    code = 0
    try:
        _run(job)
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


def _path_of(program: str) -> list[str]:
    """What Python puts first on its path, but for a folder, where `runpy` does."""
    if program in ("-c", "-m"):
        return [""]
    if "TILE_AGENT_RECORDER" in os.environ:
        return [str(Path(program).resolve().parent)]
    return [PACKAGE] if Path(program).parent == Path(PACKAGE) else []


def _switch_recorder_on() -> None:
    """As Python does when it starts, with a package of ours that nobody has imported."""
    for name in [name for name in sys.modules if name.split(".")[0] == "tile_agent_pytest"]:
        del sys.modules[name]
    sys.modules.pop("sitecustomize", None)
    importlib.import_module("sitecustomize")


def _run(job: dict[str, Any]) -> None:
    if "program" in job:
        exec(compile(job["program"], "<string>", "exec"), {"__name__": "__main__"})
    elif job["argv"][0] == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(sys.argv.pop(1), "<string>", "exec"), vars(main))
    elif job["argv"][0] == "-m":
        sys.argv = job["argv"][1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(job["argv"][0], run_name="__main__")


def _prefer(python_path: str) -> None:
    """Import from those folders first, and what they hold anew, but for what is from there."""
    folders = [folder for folder in python_path.split(os.pathsep) if folder]
    sys.path[1:1] = folders
    held: dict[str, str] = {}
    for folder in folders:
        for path in Path(folder).glob("*"):
            held.setdefault(path.name.split(".")[0], f"{folder.rstrip(os.sep)}{os.sep}")
    for top, folder in held.items():  # each other module that is looked at is a page copied
        for name in _imported.get(top, ()):
            if not (getattr(sys.modules.get(name), "__file__", None) or "").startswith(folder):
                sys.modules.pop(name, None)
    for folder in folders:  # it may not have been there
        sys.path_importer_cache.pop(folder, None)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, put there because it was run by path
    sys.path.insert(0, "")  # each job's own
    if sys.argv[2] == "command-line":
        sys.executable = sys.argv[3]
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    os._exit(0)  # its libraries would go through all that they still hold, and tell
