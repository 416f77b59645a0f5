"""Any program, run to its end or its deadline: nothing of it is left, and it gets no secrets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from agent.errors import Interrupted, UsageError
from agent.harness.processes.program import HEAD_BYTES, TAIL_BYTES, ProgramEnd, run_program

# Tells its own pid and those of: a child, a session leader, one without our variables, a daemon of
# a double fork. Each sleeps for longer than any test.
FAMILY = """
    import os, subprocess, sys, time
    def tell(pid):
        with open("pids", "a") as file:
            file.write(f"{pid}\\n")
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    tell(os.getpid())
    tell(subprocess.Popen(sleep).pid)
    tell(subprocess.Popen(sleep, start_new_session=True).pid)
    tell(subprocess.Popen(sleep, start_new_session=True, env={}).pid)
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            tell(os.getpid())
            time.sleep(600)
        os._exit(0)
    os.waitpid(first, 0)
    while len(open("pids").readlines()) < 5:
        time.sleep(0.01)
"""


def run(folder: Path, script: str, *, timeout_s: float = 20.0, **settings: object) -> ProgramEnd:
    """Run a Python program in an empty folder, its log beside it."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(script))
    return run_program(
        [sys.executable, str(path)],
        folder,
        log=folder.with_suffix(".log"),
        timeout_s=timeout_s,
        **settings,  # type: ignore[arg-type]
    )


def family(folder: Path) -> list[int]:
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    assert len(pids) == 5
    return pids


def gone(pids: list[int]) -> bool:
    """Whether none of them lives; a zombie that its new parent has not reaped is dead."""
    return not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def eventually(condition: Callable[[], bool], within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


# --- an ordinary end ----------------------------------------------------------------------------


def test_a_program_reads_its_input_and_its_output_is_kept(folder: Path) -> None:
    text = "täsk\n" * 50_000  # more than a pipe holds
    ended = run(
        folder,
        """
        import os, sys
        print(len(sys.stdin.read()), os.getcwd(), os.environ["PWD"], flush=True)
        print("a complaint", file=sys.stderr)
        """,
        stdin=text,
    )
    assert ended.code == 0
    assert ended.log.read_text() == f"{len(text)} {folder} {folder}\na complaint\n"
    assert 0 < ended.took_s < 20


def test_an_exit_code_and_a_signal_are_told_apart(folder: Path) -> None:
    assert run(folder, "raise SystemExit(3)").fate == "exited with 3"
    ended = run(folder, "import os; os.kill(os.getpid(), 9)")
    assert (ended.code, ended.fate) == (-9, "killed by signal 9 (Killed)")


def test_a_program_that_cannot_be_started(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"no-such-program cannot be run: No such file"):
        run_program(["no-such-program"], folder, log=folder / "log", timeout_s=20)


def test_input_that_nobody_reads_holds_nothing_up(folder: Path) -> None:
    assert run(folder, "pass", stdin="x" * 10_000_000).code == 0


# --- nothing is left ----------------------------------------------------------------------------


def test_daemons_die_when_the_program_ends(folder: Path) -> None:
    assert run(folder, FAMILY).code == 0
    assert gone(family(folder))


def test_the_whole_family_dies_at_the_deadline(folder: Path) -> None:
    ended = run(folder, f"{FAMILY}\n    time.sleep(600)", timeout_s=5.0)
    assert ended.code is None
    assert ended.fate == f"not done after {ended.took_s:.0f} s: killed"
    assert 5 <= ended.took_s < 60
    assert gone(family(folder))


def test_a_program_that_ignores_signals_dies_at_the_deadline(folder: Path) -> None:
    ended = run(
        folder,
        """
        import os, signal, time
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        open("pids", "w").write(str(os.getpid()))
        while True:
            time.sleep(1)
        """,
        timeout_s=4.0,
    )
    assert ended.code is None
    assert gone([int((folder / "pids").read_text())])


@pytest.mark.full
def test_lines_of_daemons_die_at_the_deadline(folder: Path) -> None:
    """Each of eight processes forks, leads a session and lets its parent die, again and again."""
    ended = run(
        folder,
        """
        import os, time
        for _ in range(8):
            if os.fork() == 0:
                while True:
                    os.setsid()
                    with open("pids", "a") as file:
                        file.write(f"{os.getpid()}\\n")
                    if os.fork():
                        os._exit(0)
        time.sleep(600)
        """,
        timeout_s=2.0,
    )
    assert ended.code is None
    pids = {int(pid) for pid in (folder / "pids").read_text().split()}
    assert len(pids) > 100
    assert gone([pid for pid in pids if pid in psutil.pids()])
    written = (folder / "pids").stat().st_size
    time.sleep(0.2)
    assert (folder / "pids").stat().st_size == written


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_a_program_that_turns_on_its_supervisor(folder: Path, number: signal.Signals) -> None:
    """As `pkill python` would. Those that gave up our variables are then out of reach."""
    attack = f"    os.kill(os.getppid(), {int(number)})\n    time.sleep(600)"
    ended = run(folder, f"{FAMILY}\n{attack}", timeout_s=5.0)
    assert ended.code != 0
    _, child, leader, blank, daemon = family(folder)
    try:
        assert eventually(lambda: gone([child, leader, daemon]))
        assert number == signal.SIGKILL or gone([blank])
    finally:
        if _alive(blank):
            os.kill(blank, signal.SIGKILL)


def test_kill_0_reaches_the_program_alone(folder: Path) -> None:
    assert run(folder, "import os; os.kill(0, 15)").code == -15


@pytest.mark.full
def test_an_interrupt_kills_the_program(folder: Path) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.5)
    try:
        with pytest.raises(Interrupted):
            run(folder, f"{FAMILY}\n    time.sleep(600)")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert gone(family(folder))


def test_the_program_dies_with_tile_agent(folder: Path) -> None:
    (folder / "program.py").write_text(textwrap.dedent(f"{FAMILY}\n    time.sleep(600)"))
    parent = """
import sys
from pathlib import Path
from agent.harness.processes.program import run_program
folder = Path(sys.argv[1])
run_program([sys.executable, "program.py"], folder, log=folder / "log", timeout_s=600)
"""
    with subprocess.Popen([sys.executable, "-c", parent, str(folder)]) as process:
        pids = folder / "pids"
        assert eventually(lambda: pids.exists() and len(pids.read_text().split()) == 5)
        process.kill()
    assert eventually(lambda: gone(family(folder)))


# --- output -------------------------------------------------------------------------------------


def test_gigabytes_of_output_do_not_fill_the_disk(folder: Path) -> None:
    ended = run(
        folder,
        """
        import os
        os.write(1, b"first\\n")
        for _ in range(1000):
            os.write(1, b"x" * 100_000)
        os.write(2, b"\\nlast\\n")
        """,
    )
    text = ended.log.read_bytes()
    assert len(text) < HEAD_BYTES + TAIL_BYTES + 100
    assert text.startswith(b"first\nxxx") and text.endswith(b"xxx\nlast\n")
    left_out = 100_000_000 + len(b"first\n\nlast\n") - HEAD_BYTES - TAIL_BYTES
    assert f"\n[... {left_out} bytes left out ...]\n".encode() in text


def test_endless_output_ends_at_the_deadline(folder: Path) -> None:
    ended = run(folder, "while True: print('x' * 1000)", timeout_s=1.0)
    assert ended.code is None
    assert ended.took_s < 60
    assert ended.log.stat().st_size < HEAD_BYTES + TAIL_BYTES + 100


def test_what_a_killed_program_printed_is_kept(folder: Path) -> None:
    ended = run(folder, "import time; print('so far', flush=True); time.sleep(600)", timeout_s=4.0)
    assert ended.log.read_text() == "so far\n"


# --- variables ----------------------------------------------------------------------------------

DUMP = """
    import json, os, pathlib
    pathlib.Path("environ").write_text(json.dumps(dict(os.environ)))
    parent = pathlib.Path(f"/proc/{os.getppid()}/environ").read_text()
    pathlib.Path("parent").write_text(parent)
    raise SystemExit(1)
"""


def test_secrets_are_withheld_and_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if "TOKEN" in name or "KEY" in name]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "hush-hush")
    monkeypatch.setenv("HF_TOKEN", "given-on")
    monkeypatch.setenv("GIT_DIR", "/somewhere")
    monkeypatch.setenv("OLDPWD", "/somewhere/else")
    ended = run(
        folder,
        DUMP,
        pass_env=("HF_TOKEN", "NOT_SET_KEY"),
        drop_env=("GIT_DIR",),
        variables={"TMPDIR": str(folder)},
    )
    seen = json.loads((folder / "environ").read_text())
    assert seen["HF_TOKEN"] == "given-on"
    assert seen["TMPDIR"] == str(folder)
    assert not {"ANTHROPIC_API_KEY", "NOT_SET_KEY", "GIT_DIR", "OLDPWD"} & seen.keys()
    assert "hush-hush" not in (folder / "parent").read_text()
    assert ended.withheld == ("ANTHROPIC_API_KEY",)
    assert ended.fate == (
        "exited with 1; these variables were not handed on: ANTHROPIC_API_KEY; "
        "--pass-env NAME hands one on"
    )
