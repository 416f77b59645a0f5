"""What confines a process before any of the user's code is imported in it.

Tier 0: a process group, the variables it was given, limits. Tier 1: Landlock as well: it writes
where it was told to and nowhere else, reads no secrets, reaches no other process and no network.
Tier 2: a filter of system calls besides. Nothing of it can be taken off again.

The kernel allows, and does not forbid: to keep a file from being read, what lies beside it is
allowed, and what lies beside every folder above it. So what is made beside a secret later cannot
be read either.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tile_agent_pytest import landlock, seccomp, secret_places
from tile_agent_pytest.landlock import READ, READ_DIR, TRUNCATE, WRITE, WRITE_FILE
from tile_agent_pytest.worker_folders import read_variables_again

FILES, SYSCALLS = 1, 2
"""The tiers above 0."""
DEVICES = (
    "null", "zero", "full", "random", "urandom", "shm",
    "nvidia*", "nvhost*", "nvmap", "dri", "kfd", "dxg",
)  # fmt: skip
"""Below /dev: what programs rely on, and GPUs. No disk, no memory, no terminal."""
_KEPT_CAPABILITIES = (0, 1, 2, 3, 4, 14)
"""Of root: to use files of others and to lock memory. Not to mount, to trace, to load modules, to
raise its own limits or its priority, to signal other users' processes."""
_CAPABILITY_VERSION = 0x20080522


def probe() -> dict[str, Any]:
    """How far this machine can confine: the `tier`, and `why` it is not a higher one, or how."""
    known = landlock.version()
    filters = seccomp.available()
    if known < landlock.FIRST_USABLE:
        lack = f"its version {known} is too old" if known else "the kernel has none, or forbids it"
        return {"tier": 0, "why": f"no Landlock: {lack}"}
    if not filters:
        return {"tier": FILES, "why": f"Landlock {known}, no filter of system calls"}
    return {"tier": SYSCALLS, "why": f"Landlock {known}, system calls filtered"}


def enter(job: dict[str, Any]) -> None:
    """Confine this process as its job says; see `tile_agent_pytest.worker.work`.

    Raises:
        OSError: the machine refuses what it said that it can.
    """
    limit(job["limits"]["file_bytes"])
    own = read_variables_again()
    rules = job["sandbox"]
    if rules is not None:
        read = [job["cwd"], *job.get("sys_path", ()), *rules["read"]]
        confine([*rules["write"], job["log"], *own], read, rules["hide"])


def make_devices(folder: Path = Path("/dev")) -> None:
    """Have the device made that CUDA opens first, where no program has used CUDA since the start.

    The driver's own library would run this setuid program; in a confined process it has no rights.
    """
    tool = shutil.which("nvidia-modprobe")
    missing = (folder / "nvidiactl").exists() and not (folder / "nvidia-uvm").exists()
    if tool and missing:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run([tool, "-u", "-c", "0"], check=False, timeout=10)


def limit(file_bytes: int) -> None:
    """Set limits that hold at every tier.

    Args:
        file_bytes: the most that a file may grow to: a log, a cache, what a test prints.
    """
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, file_bytes)):
        hard = resource.getrlimit(kind)[1]
        wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (wanted, wanted))
    with contextlib.suppress(OSError):  # when memory runs out, this process goes first
        Path("/proc/self/oom_score_adj").write_text("1000")


def confine(write: Iterable[str], read: Iterable[str], hide: Iterable[str]) -> int:
    """Confine this process as far as the machine can.

    Args:
        write: folders and files that it may write; folders that are not there are made.
        read: what it may read in any case: the machine's secrets and `hide` do not lie there.
        hide: what it may not read, besides the places where secrets are kept.

    Returns:
        The tier.

    Raises:
        OSError: the machine refuses what it said that it can.
    """
    tier: int = probe()["tier"]
    if tier >= FILES:
        written = [os.path.realpath(path) for path in write]
        make_folders(written)
        hidden = {*secret_places.places(), *(Path(os.path.realpath(path)) for path in hide)}
        rules = [*readable(hidden), *devices(), *_threads()]
        rules += [(path, READ | WRITE) for path in written]
        rules += [(os.path.realpath(path), READ) for path in read]
        landlock.restrict(rules)
        _drop_capabilities()
    if tier >= SYSCALLS:
        seccomp.restrict()
    return tier


def make_folders(paths: Iterable[str]) -> None:
    """Make those that are not there; another worker of the same kernel may make them meanwhile."""
    for path in paths:
        if not os.path.lexists(path):
            Path(path).mkdir(parents=True, exist_ok=True)


def readable(hidden: Iterable[Path]) -> Iterator[tuple[str, int]]:
    """Rules that allow to read everything but what is hidden, and to list every folder.

    A link leads to what has a rule of its own, or has none.
    """
    kept_back = set(hidden)
    above = {Path("/"), *(folder for path in kept_back for folder in path.parents)}
    kept_back.add(Path("/dev"))  # a disk is a file there
    without_rule = {str(path) for path in (*kept_back, *above)}
    yield "/", READ_DIR
    for folder in above:
        if any(parent in kept_back for parent in (folder, *folder.parents)):
            continue
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            if entry.path not in without_rule and not entry.is_symlink():
                yield entry.path, READ


def devices() -> Iterator[tuple[str, int]]:
    """Rules for the devices that may be used."""
    for pattern in DEVICES:
        for path in Path("/dev").glob(pattern):
            yield str(path), READ | WRITE


def _threads() -> Iterator[tuple[str, int]]:
    """Rules by which a process can name its threads: CUDA does, or does not start.

    The kernel lets nobody write there for another process. Root could change the whole machine
    elsewhere below /proc, so that of its processes only this one can use CUDA.
    """
    if os.geteuid() != 0:
        yield "/proc", WRITE_FILE | TRUNCATE
        return
    own = f"/proc/{os.getpid()}/task"
    os.open(own, os.O_PATH)  # never closed: while it is in use, the kernel knows it again
    yield own, WRITE_FILE | TRUNCATE


def _drop_capabilities() -> None:
    """Give up what root could undo the rest with; anybody else has nothing to give up."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    held = (ctypes.c_uint32 * 6)()  # twice effective, permitted, inheritable
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capget(header, held) != 0:
        return
    kept = sum(1 << number for number in _KEPT_CAPABILITIES)
    for place in range(6):
        held[place] &= kept if place < 3 else 0
    if libc.capset(header, held) != 0:
        raise OSError(ctypes.get_errno(), "the rights of root cannot be given up")
