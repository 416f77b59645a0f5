"""Machine code, as `nvdisasm -g -c` prints it, counted by what the instructions do.

The counts are of the text, not of what is executed: an instruction in a loop counts once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?(?P<name>[A-Z][A-Z0-9_.]*)"
)
_LINE = re.compile(r'^\s*//## File "(?P<file>[^"]*)", line (?P<line>\d+)(?P<inlined> inlined)?')
_TENSOR = re.compile(r"(?:HG|IG|BG|QG|DG|H|I|B|Q|O|D)MMA(?:$|\.)|UTC\w*MMA")
_TMA = re.compile(r"UTMA(?:LDG|STG|REDG)|UBLKCP|UBLKRED")
_WIDTHS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
_FLOAT = re.compile(r"[FHD](?:FMA|ADD|MUL)2?(?:$|\.)")
_ACCESSES = ("LDG", "STG", "LDGSTS")


@dataclass(frozen=True)
class InstructionMix:
    """How often the instructions that matter occur."""

    total: int = 0
    tensor_core: Mapping[str, int] = field(default_factory=dict)
    """By name: HMMA, HGMMA (Hopper's warp-group MMA), UTCHMMA (Blackwell's)."""
    tma: Mapping[str, int] = field(default_factory=dict)
    """Copies by the tensor memory accelerator: UTMALDG, UTMASTG."""
    async_copies: int = 0
    """LDGSTS, `cp.async`: from global to shared memory beside the threads."""
    async_widths: Mapping[int, int] = field(default_factory=dict)
    """Bits that one thread copies so -> how many."""
    global_loads: Mapping[int, int] = field(default_factory=dict)
    """Bits that one thread moves -> how many."""
    global_stores: Mapping[int, int] = field(default_factory=dict)
    spill_loads: int = 0
    spill_stores: int = 0
    spill_lines: tuple[int, ...] = ()
    """Lines of the source with the most spilling, at most three."""
    float_ops: int = 0
    """Additions, multiplications and multiply-adds outside the tensor cores."""
    special: Mapping[str, int] = field(default_factory=dict)
    """By name: MUFU.EX2, MUFU.RCP, MUFU.RSQ and the like."""
    barriers: int = 0
    atomics: int = 0

    @property
    def load_widths(self) -> Mapping[int, int]:
        """Bits that one thread moves from global memory, into registers or beside them."""
        return Counter(self.global_loads) + Counter(self.async_widths)

    @property
    def special_functions(self) -> int:
        """Of all kinds."""
        return sum(self.special.values())

    @property
    def spills(self) -> int:
        """Accesses of local memory."""
        return self.spill_loads + self.spill_stores

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        values = dict(vars(self))
        for name in ("async_widths", "global_loads", "global_stores"):
            values[name] = {f"{bits} bits": n for bits, n in values[name].items()}
        return values | {"spill_lines": list(self.spill_lines)}

    def __str__(self) -> str:
        said = [f"{self.total} instructions"]
        said += [f"{count} {name}" for name, count in {**self.tensor_core, **self.tma}.items()]
        if self.async_copies:
            said.append(f"{self.async_copies} cp.async")
        for what, widths in (("loads", self.global_loads), ("stores", self.global_stores)):
            if widths:
                each = ", ".join(f"{n} of {bits} bits" for bits, n in sorted(widths.items())[::-1])
                said.append(f"{what} {each}")
        said += [
            f"{count} {what}"
            for what, count in (
                ("spills", self.spills),
                ("floating-point operations", self.float_ops),
                (f"special functions ({_listed(self.special)})", self.special_functions),
                ("atomics", self.atomics),
            )
            if count
        ]
        return "; ".join(said)


def count(text: str, source_file: str = "") -> InstructionMix:
    """The mix of a disassembly.

    Args:
        text: the output of `nvdisasm -g -c`, of one kernel.
        source_file: name of the file whose lines are wanted; a line of another one is not counted.
    """
    names: Counter[str] = Counter()
    spilling: Counter[int] = Counter()
    line = 0
    for row in text.splitlines():
        if (place := _LINE.match(row)) is not None:
            if place["file"].endswith(source_file) and not place["inlined"]:
                line = int(place["line"])
        elif (instruction := _INSTRUCTION.match(row)) is not None:
            name = instruction["name"]
            names[name] += 1
            if name.startswith(("STL", "LDL")):
                spilling[line] += 1
    return _mix(names, tuple(n for n, _ in spilling.most_common(3) if n))


def _mix(names: Counter[str], spill_lines: tuple[int, ...]) -> InstructionMix:
    families: dict[str, Counter[str]] = {"tensor": Counter(), "tma": Counter(), "mufu": Counter()}
    widths: dict[str, Counter[int]] = {name: Counter() for name in _ACCESSES}
    plain: Counter[str] = Counter()
    for name, n in names.items():
        parts = name.split(".")
        head = parts[0]
        plain[head] += n
        if _TENSOR.match(name):
            families["tensor"][head] += n
        elif _TMA.match(name):
            families["tma"][head] += n
        elif head == "MUFU":
            families["mufu"][".".join(parts[:2])] += n
        elif head in widths:
            widths[head][next((_WIDTHS[p] for p in parts[1:] if p in _WIDTHS), 32)] += n
    return InstructionMix(
        total=sum(names.values()) - plain["NOP"],
        tensor_core=dict(families["tensor"]),
        tma=dict(families["tma"]),
        async_copies=plain["LDGSTS"],
        async_widths=dict(widths["LDGSTS"]),
        global_loads=dict(widths["LDG"]),
        global_stores=dict(widths["STG"]),
        spill_loads=plain["LDL"],
        spill_stores=plain["STL"],
        spill_lines=spill_lines,
        float_ops=sum(n for name, n in names.items() if _FLOAT.match(name)),
        special=dict(families["mufu"]),
        barriers=plain["BAR"],
        atomics=plain["RED"] + plain["ATOM"] + plain["ATOMG"] + plain["REDG"],
    )


def _listed(counts: Mapping[str, int]) -> str:
    """The most frequent first: '16 MUFU.EX2, 4 MUFU.RCP'."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {name}" for name, count in ordered)
