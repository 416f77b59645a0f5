"""A cubin: what it needs of the machine, and a digest of what it does."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from agent.evidence.occupancy import RESERVED_BYTES

_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_THREADS = re.compile(
    r"EIATTR_(?P<kind>REQNTID|MAX_THREADS)\s+Format:\s+\S+\s+Value:\s+(?P<sizes>[0-9a-fx ]+)"
)
_COUNTS_RESERVED = 90
_CODE = (".text", ".nv.constant", ".nv.global.init")


@dataclass(frozen=True)
class Resources:
    """What one kernel needs."""

    registers: int
    stack_bytes: int
    shared_bytes: int
    """Without what the launch adds, and without what the system reserves."""
    threads: int
    """A block; 0 where the cubin does not say."""


def resources(usage: str, elf: str, sm: int) -> Resources:
    """Read them from two outputs of cuobjdump.

    Args:
        usage: of `--dump-resource-usage`.
        elf: of `-elf`; it holds the number of threads.
        sm: compute capability times ten. From 90 on the usage counts what the system reserves.

    Raises:
        ValueError: the cubin does not hold exactly one kernel.
    """
    found = _USAGE.findall(usage)
    if len(found) != 1:
        raise ValueError(f"expected one kernel in the cubin, found {len(found)}")
    registers, stack, shared, local = map(int, found[0])
    sizes = {m["kind"]: m["sizes"].split() for m in _THREADS.finditer(elf)}
    if sm >= _COUNTS_RESERVED:
        shared = max(0, shared - RESERVED_BYTES)
    threads = 1
    for size in sizes.get("REQNTID") or sizes.get("MAX_THREADS") or ["0x0"]:
        threads *= int(size, 16)
    return Resources(registers, stack + local, shared, threads)


def digest(cubin: bytes, *needs: int) -> str:
    """A digest that is the same for code that runs the same.

    Only machine code, constants and `needs` (registers, shared memory, threads) count. The kernel's
    name, its file, line numbers and debug information, which every edit of a comment moves, do not.

    Raises:
        ValueError: these bytes are no 64-bit ELF file.
    """
    parts = sorted(
        (next(kind for kind in _CODE if name.startswith(kind)), content)
        for name, content in _sections(cubin)
        if name.startswith(_CODE)
    )
    total = hashlib.sha256(repr(needs).encode())
    for kind, content in parts:
        total.update(f"{kind} {len(content)} ".encode())
        total.update(content)
    return total.hexdigest()


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of each section that has content in the file."""
    if elf[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names_index = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    names = headers[names_index][4]
    for name, kind, _, _, offset, length in headers:
        if kind != _NOBITS:
            start = names + name
            text = elf[start : elf.index(b"\0", start)].decode("utf-8", errors="replace")
            yield text, elf[offset : offset + length]


_NOBITS = 8
