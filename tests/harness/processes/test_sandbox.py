"""What a confined worker can do to the user, to tile-agent and to the machine: real attempts."""

from __future__ import annotations

import errno
import os
import textwrap
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.harness.processes.confinement import Confinement, Limits, insist
from agent.harness.processes.fork_server import ForkServer
from agent.options import Options, Sandbox
from tests.support.repo import changed, make_repo, snapshot
from tests.support.warm_python import run_python
from tests.support.workers import Project, start_server
from tile_agent_pytest.sandbox import make_devices, make_folders, probe

pytestmark = pytest.mark.skipif(probe()["tier"] < 2, reason=f"no sandbox here: {probe()['why']}")

DENIED = (errno.EACCES, errno.EPERM, errno.EXDEV)
SECRETS = (
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".netrc",
    ".config/gh/hosts.yml",
    ".cache/huggingface/token",
    ".docker/config.json",
    ".git-credentials",
)
PREAMBLE = """
    import ctypes, errno, os, pathlib, resource, signal, socket, subprocess, sys, tempfile
    import kernel, pytest

    USER, HOME, AGENT = pathlib.Path({user!r}), pathlib.Path({home!r}), {agent}
    LIBC = ctypes.CDLL(None, use_errno=True)
    KEY = HOME / ".ssh/id_ed25519"

    def call(number, *arguments):
        if LIBC.syscall(number, *map(ctypes.c_long, arguments)) < 0:
            raise OSError(ctypes.get_errno(), "refused")

    def shell(command):
        if subprocess.run(["sh", "-c", command], stderr=subprocess.DEVNULL).returncode:
            raise PermissionError(13, command)

    @pytest.fixture
    def attempt(record_property):
        def attempt(act):
            try:
                act()
            except OSError as refused:
                record_property("errno", refused.errno)
            except ValueError as refused:  # what Python makes of a limit that may not be raised
                assert "not allowed" in str(refused)
                record_property("errno", errno.EPERM)
            else:
                record_property("errno", 0)
        return attempt
"""
REFUSED = """
    @pytest.mark.parametrize("act", [
        lambda: (USER / "kernels/softmax.py").write_text("mine now"),
        lambda: (USER / "new.py").write_text("mine now"),
        lambda: (USER / "kernels/softmax.py").unlink(),
        lambda: os.truncate(USER / "kernels/softmax.py", 0),
        lambda: (USER / "kernels").rename(USER / "gone"),
        lambda: (USER / ".git/hooks/post-checkout").write_text("#!/bin/sh"),
        lambda: (USER / ".git/refs/heads/main").write_text("0" * 40),
        lambda: os.symlink("/etc/passwd", USER / "link"),
        lambda: shell(f"echo mine > {USER}/kernels/softmax.py"),
        lambda: shell(f"git -C {USER} commit --allow-empty -m mine"),
        lambda: pathlib.Path(__file__).write_text("def test(): pass"),
        lambda: pathlib.Path(kernel.__file__).unlink(),
        lambda: pathlib.Path("conftest.py").write_text(""),
        lambda: pathlib.Path("/proc/sys/kernel/core_pattern").write_text("|/tmp/x"),
        lambda: pathlib.Path("/etc/tile-agent-was-here").write_text(""),
        lambda: (HOME / ".bashrc").write_text("alias ls=true"),
    ], ids=str)
    def test_write(act, attempt): attempt(act)

    @pytest.mark.parametrize("act", [
        *(lambda name=name: (HOME / name).read_text() for name in {secrets!r}),
        lambda: (HOME / "linked").read_text(),
        lambda: (HOME / ".ssh/../.ssh/id_ed25519").read_text(),
        lambda: os.link(KEY, tempfile.mkdtemp() + "/key"),
        lambda: KEY.rename(tempfile.mkdtemp() + "/key"),
        lambda: open(f"/proc/self/root{{KEY}}").read(),
        lambda: shell(f"cat {{KEY}}"),
        lambda: (USER / ".env").read_text(),
        lambda: open(f"/proc/{{AGENT}}/environ").read(),
        lambda: open(f"/proc/{{AGENT}}/mem", "rb").read(1),
        lambda: open(f"/proc/{{os.getppid()}}/environ").read(),
        lambda: open("/etc/shadow").read(),
    ], ids=str)
    def test_read(act, attempt): attempt(act)

    @pytest.mark.parametrize("act", [
        lambda: socket.socket(socket.AF_INET),
        lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
        lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
        lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
        lambda: socket.create_connection(("127.0.0.1", 9)),
    ], ids=str)
    def test_network(act, attempt): attempt(act)

    @pytest.mark.parametrize("act", [
        lambda: os.kill(AGENT, 0),
        lambda: os.kill(os.getppid(), signal.SIGTERM),
        lambda: call({ptrace}, 16, AGENT, 0, 0),
        lambda: call({io_uring}, 8, 0),
        lambda: call({bpf}, 0, 0, 0),
        lambda: call({unshare}, 0x10000000),
        lambda: call({mount}, 0, 0, 0, 0, 0),
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1)),
        lambda: os.mknod(tempfile.mkdtemp() + "/disk", 0o60600, os.makedev(8, 0)),
        lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
    ], ids=str)
    def test_others(act, attempt): attempt(act)
"""
ALLOWED = """
    import multiprocessing, multiprocessing.shared_memory
    import torch

    @pytest.mark.parametrize("act", [
        lambda: (HOME / "notes.txt").read_text(),
        lambda: (HOME / ".cache/huggingface/hub/model.txt").read_text(),
        lambda: (USER / "kernels/softmax.py").read_text(),
        lambda: os.listdir(HOME),
        lambda: tempfile.TemporaryFile().write(b"x"),
        lambda: os.replace(tempfile.mkstemp()[1], tempfile.mkdtemp() + "/moved"),
        lambda: open("/dev/null", "w").write("x"),
        lambda: open("/dev/urandom", "rb").read(1),
        lambda: socket.socketpair(),
        lambda: socket.socket(socket.AF_UNIX).bind(tempfile.mkdtemp() + "/a-name-of-some-length"),
        lambda: multiprocessing.get_context("fork").Lock(),
        lambda: multiprocessing.shared_memory.SharedMemory(create=True, size=64).unlink(),
        lambda: torch.zeros(8).share_memory_(),
        lambda: os.makedirs(os.environ["TRITON_CACHE_DIR"] + "/a/b"),
        lambda: os.makedirs(os.environ["XDG_CACHE_HOME"] + "/a package/of its own"),
        lambda: open(os.environ["XDG_CACHE_HOME"] + "/huggingface/hub/model.txt").read(),
        lambda: os.kill(os.getpid(), 0),
        lambda: shell("exec true"),
        lambda: open(f"/proc/{os.getpid()}/environ").read(),
    ], ids=str)
    def test_act(act, attempt): attempt(act)

    def test_tmp_path(tmp_path, attempt):
        attempt(lambda: (tmp_path / "a file").write_text("x"))

    def test_child(attempt):
        child = subprocess.Popen(["sleep", "60"])
        attempt(child.kill)
        child.wait()
"""
NUMBERS = {
    "x86_64": {"ptrace": 101, "io_uring": 425, "bpf": 321, "unshare": 272, "mount": 165},
    "aarch64": {"ptrace": 117, "io_uring": 425, "bpf": 280, "unshare": 97, "mount": 40},
}[os.uname().machine]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's home folder, with secrets."""
    made = tmp_path_factory.mktemp("home")
    for name in (*SECRETS, "notes.txt", ".bashrc", ".cache/huggingface/hub/model.txt"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("a secret")
    (made / "linked").symlink_to(made / SECRETS[0])
    return made


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's own repository."""
    made = make_repo(tmp_path_factory.mktemp("user"))
    (made / ".env").write_text("DATABASE_URL=postgres://me:a-long-password@db/x\n")
    return made


@pytest.fixture(scope="module")
def confined(
    home: Path, user: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ForkServer]:
    """A fork server of that user, whose workers are confined."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("DATABASE_URL", "postgres://me:a-long-password@db/x")
        server = start_server(tmp_path_factory.mktemp("log") / "log", TRITON_INTERPRET="1")
    server.confinement = Confinement(hide=(user / ".env",))
    with server:
        yield server


def outcomes(
    project: Project, server: ForkServer, home: Path, user: Path, body: str
) -> Mapping[str, int]:
    """Test -> the error number of its attempt; 0: it went through."""
    text = textwrap.dedent(PREAMBLE + body)
    for name, value in {
        "user": str(user), "home": str(home), "agent": os.getpid(), "secrets": SECRETS, **NUMBERS,
    }.items():  # fmt: skip
        text = text.replace(f"{{{name}!r}}", repr(value)).replace(f"{{{name}}}", str(value))
    project.write("test_kernel.py", text.replace("{{", "{").replace("}}", "}"))
    done = project.run(server)
    assert [test.text for test in done.not_passed()] == []
    return {test.nodeid: dict(test.properties)["errno"] for test in done.tests}


def test_what_is_refused(project: Project, confined: ForkServer, home: Path, user: Path) -> None:
    before = snapshot(user)
    project.write("conftest.py", "")
    found = outcomes(project, confined, home, user, REFUSED)
    assert len(found) == 16 + len(SECRETS) + 11 + 5 + 10
    assert {name for name, number in found.items() if number not in DENIED} == set()
    assert not changed(before, snapshot(user))
    assert (project.root / "conftest.py").read_text() == ""


def test_what_a_test_needs_is_allowed(
    project: Project, confined: ForkServer, home: Path, user: Path
) -> None:
    found = outcomes(project, confined, home, user, ALLOWED)
    assert len(found) == 21
    assert {name: number for name, number in found.items() if number} == {}


def test_temporary_files_go_with_the_worker(project: Project, confined: ForkServer) -> None:
    body = """
        import kernel, tempfile
        def test(record_property): record_property("made", tempfile.mkdtemp())
    """
    project.write("test_kernel.py", body)
    ((_, made),) = project.run(confined).tests[0].properties
    confined.exit_code("none", 0.5)
    assert not Path(made).exists()
    assert not Path(made).parent.exists()


def test_no_sandbox_where_the_user_wants_none(
    project: Project, confined: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(file_bytes=100_000)
    monkeypatch.setattr(confined, "confinement", Confinement(strict=False, limits=limits))
    body = """
        import kernel, pytest, socket
        def test():
            socket.socket(socket.AF_INET).close()
            open("beside", "w").write("x")
            with pytest.raises(OSError, match="File too large"):
                with open("large", "w") as file:
                    file.write("x" * 100_001)
    """
    project.write("test_kernel.py", body)
    (test,) = project.run(confined).tests
    assert test.outcome == "passed", test.text
    assert (project.root / "beside").read_text() == "x"


def test_older_kernels_confine_what_they_can(tmp_path: Path) -> None:
    """As versions of Landlock's interface that this kernel knows, and once without it."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").mkdir()
    done = run_python(VERSIONS, str(tmp_path), kind="interpreter")
    assert done.stdout.splitlines() == [
        *(f"{version}: tier 2, [0, 13, 13]" for version in range(2, 8)),
        "1: tier 0, [0, 0, 0]",
        "0: tier 0, [0, 0, 0]",
    ], done.stderr


VERSIONS = """
import os, pathlib, sys
from tile_agent_pytest import landlock, sandbox

folder = pathlib.Path(sys.argv[1])

def tried(act):
    try:
        act()
    except OSError as refused:
        return refused.errno
    return 0

for version in (*range(2, 8), 1, 0):
    if pid := os.fork():
        os.waitpid(pid, 0)
        continue
    landlock.version = lambda: version
    tier = sandbox.confine([str(folder / "inside")], [], [])
    found = [
        tried(lambda: (folder / "inside" / "a").write_text("x")),
        tried(lambda: (folder / "outside" / "a").write_text("x")),
        tried(lambda: (folder / "outside" / "b").mkdir(exist_ok=True)),
    ]
    print(f"{version}: tier {tier}, {found}", flush=True)
    os._exit(0)
"""


def test_workers_that_make_the_same_folders_at_once_do_not_fail(tmp_path: Path) -> None:
    """Both arms of a calibration keep what one kernel's tuner chooses, and are forked together."""
    wanted = [str(tmp_path / str(number) / "tuned") for number in range(2_000)]
    with ProcessPoolExecutor(4) as pool:
        for made in [pool.submit(make_folders, wanted) for _ in range(4)]:
            made.result()
    assert all(Path(path).is_dir() for path in wanted)


def test_a_machine_that_cannot_is_told_so() -> None:
    lacking = {"tier": 1, "why": "Landlock 3, no filter of system calls"}
    insist(Options(), lacking)
    insist(Options(require_sandbox=True), probe())
    with pytest.raises(UsageError, match=r"cannot confine workers \(tier 1.*Landlock 3"):
        insist(Options(require_sandbox=True), lacking)
    with pytest.raises(UsageError, match="contradict each other"):
        insist(Options(require_sandbox=True, sandbox=Sandbox.OFF), probe())


@pytest.mark.parametrize("there", [("nvidiactl",), ("nvidiactl", "nvidia-uvm"), ()])
def test_the_device_that_cuda_opens_is_made_where_it_is_missing(
    there: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "nvidia-modprobe"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    for name in there:
        (tmp_path / name).touch()
    make_devices(tmp_path)
    asked = tmp_path / "asked"
    assert (asked.read_text() if asked.exists() else "") == (
        "-u -c 0\n" if there == ("nvidiactl",) else ""
    )
