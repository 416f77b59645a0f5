"""Landlock, Linux's sandbox for unprivileged processes, by its three system calls.

A rule set names the accesses that it handles; of these a process may afterwards do only what a
rule allows for the file or for a folder above it. It holds for the process and all it starts, for
good. A process that has one can look into, trace and, with newer kernels, signal only processes
that have it too, so that another process's memory and variables are out of reach.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_ASK_FOR_VERSION = 1
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK = 1 << 6, 1 << 7, 1 << 8, 1 << 9
MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = 1 << 10, 1 << 11, 1 << 12
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15

READ = EXECUTE | READ_FILE | READ_DIR
WRITE = (
    WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
    | REFER | TRUNCATE | IOCTL_DEV
)  # fmt: skip
"""All that changes something, but device nodes: nobody needs to make one."""
_OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""What a rule for a file may hold; the rest is for folders."""
_SINCE = {2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
"""Version of the interface -> what it knows that the one before did not."""
_TCP, _TCP_SINCE = 0b11, 4  # to bind, to connect
_SCOPES, _SCOPES_SINCE = 0b11, 6  # abstract Unix sockets, signals
_LIBC = ctypes.CDLL(None, use_errno=True)
"""Opened once: a process is confined by some two hundred calls."""
FIRST_USABLE = 2
"""Version 1 forbids every rename from folder to folder, by which compilers fill their caches."""


class _RulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """Of the kernel's interface; 0 where there is none, or something forbids asking."""
    with contextlib.suppress(OSError):
        return _call(_CREATE_RULESET, None, 0, _ASK_FOR_VERSION)
    return 0


def restrict(rules: Iterable[tuple[str, int]]) -> None:
    """Allow this process, from here on, what the rules say, and no TCP.

    Args:
        rules: paths, and what is allowed there and below. A path that is not there is passed over.

    Raises:
        OSError: the kernel refused; nothing is restricted.
    """
    known = version()
    handled = READ | WRITE | MAKE_CHAR | MAKE_BLOCK
    for since, access in _SINCE.items():
        if known < since:
            handled &= ~access
    attr = _RulesetAttr(
        handled,
        _TCP if known >= _TCP_SINCE else 0,
        _SCOPES if known >= _SCOPES_SINCE else 0,
    )
    size = 8 if known < _TCP_SINCE else 16 if known < _SCOPES_SINCE else 24
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attr), size, 0)
    try:
        for path, access in rules:
            _add(ruleset, path, access & handled)
        no_new_privileges()
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def no_new_privileges() -> None:
    """Let no program that this process starts have more rights than it has: no setuid."""
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")


def _add(ruleset: int, path: str, access: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it is gone, or of somebody else's that we cannot even reach
        return
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            access &= _OF_A_FILE
        rule = _PathBeneathAttr(access, beneath)
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    except OSError as problem:
        if problem.errno != errno.EBADFD:  # a pipe or a socket, which no rule is needed for
            raise
    finally:
        os.close(beneath)


def _call(number: int, *arguments: object) -> int:
    longs = (ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    result: int = _LIBC.syscall(number, *longs)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return result
