"""A filter of system calls: what a kernel under test has no use for answers `EPERM`.

Refused are sockets other than Unix's, reading and tracing other processes, io_uring (which would
do the refused things in the kernel's name), mounts and namespaces, kernel modules and `bpf`, keys
of the kernel's keyring, the clock, reboot. The filter holds for the process and all it starts.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass

from tile_agent_pytest.landlock import no_new_privileges

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16  # in `struct seccomp_data`, low halves
_SET_MODE_FILTER, _GET_ACTION_AVAIL = 1, 2
_SPEC_ALLOW = 1 << 2
"""Without it older kernels slow down every branch of a filtered process, for another's safety."""
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_AF_UNIX = 1
_X32 = 0x40000000
"""The bit of the calls of another ABI, under which refused calls would have other numbers."""


@dataclass(frozen=True)
class _Machine:
    audit: int
    """What the kernel calls the architecture."""
    seccomp: int
    socket: int
    refused: tuple[int, ...]
    x32: bool = False


_EVERYWHERE = (
    438, 440, 425, 426, 427,  # pidfd_getfd, process_madvise, io_uring_*
    428, 429, 430, 431, 432, 433, 442,  # open_tree, move_mount, fs*, mount_setattr
)  # fmt: skip
_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        seccomp=317,
        socket=41,
        x32=True,
        refused=(
            101, 310, 311, 312,  # ptrace, process_vm_readv, process_vm_writev, kcmp
            165, 166, 155, 161, 272, 308, 304,  # mounts, chroot, unshare, setns, open_by_handle_at
            321, 298, 323, 246, 320, 175, 313, 176,  # bpf, perf, userfaultfd, kexec_*, modules
            248, 249, 250,  # add_key, request_key, keyctl
            169, 167, 168, 170, 171, 164, 227, 163, 179, 103, 172, 173,  # the whole machine
            *_EVERYWHERE,
        ),
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        seccomp=277,
        socket=198,
        refused=(
            117, 270, 271, 272,
            40, 39, 41, 51, 97, 268, 265,
            280, 241, 282, 104, 294, 105, 273, 106,
            217, 218, 219,
            142, 224, 225, 161, 162, 170, 112, 89, 60, 116,
            *_EVERYWHERE,
        ),
    ),
}  # fmt: skip


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def available() -> bool:
    """Whether the kernel filters, and this machine's calls are known."""
    machine = _machine()
    if machine is None:
        return False
    action = ctypes.c_uint32(_ERRNO)
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = ctypes.c_long(_GET_ACTION_AVAIL)
    answer: int = libc.syscall(machine.seccomp, wanted, ctypes.c_long(0), ctypes.byref(action))
    return answer == 0


def restrict() -> None:
    """Refuse those calls to this process from here on.

    Raises:
        OSError: the kernel refused, or this machine's calls are not known.
    """
    machine = _machine()
    if machine is None:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}")
    instructions = _instructions(machine)
    program = _Program(len(instructions), b"".join(instructions))
    no_new_privileges()
    libc = ctypes.CDLL(None, use_errno=True)
    pointer = ctypes.byref(program)
    how, flags = ctypes.c_long(_SET_MODE_FILTER), ctypes.c_long(_SPEC_ALLOW)
    if libc.syscall(machine.seccomp, how, flags, pointer) == 0:
        return
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, pointer, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _machine() -> _Machine | None:
    return _MACHINES.get(platform.machine()) if ctypes.sizeof(ctypes.c_void_p) == 8 else None


def _instructions(machine: _Machine) -> list[bytes]:
    """The filter, for the kernel's virtual machine: load, compare, jump so many on, return."""
    refuse = _instruction(_RETURN, _ERRNO | errno.EPERM)
    allow = _instruction(_RETURN, _ALLOW)
    filtered = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_EQUAL, machine.audit, 1, 0),
        refuse,
        _instruction(_LOAD, _NUMBER_AT),
    ]
    if machine.x32:
        filtered += [_instruction(_AT_LEAST, _X32, 0, 1), refuse]
    filtered += [
        _instruction(_EQUAL, machine.socket, 0, 4),
        _instruction(_LOAD, _FIRST_ARGUMENT_AT),
        _instruction(_EQUAL, _AF_UNIX, 0, 1),
        allow,
        refuse,
    ]
    refused = sorted(machine.refused)
    for place, number in enumerate(refused):
        filtered.append(_instruction(_EQUAL, number, len(refused) - place, 0))
    return [*filtered, allow, refuse]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
