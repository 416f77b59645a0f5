"""The readers of what the tools print: short excerpts of real output."""

from __future__ import annotations

import pytest

from agent.evidence import remarks, sass
from agent.evidence.cubin import digest, resources

CODE = """\
\t.section\t.text.k,"ax",@progbits
.text.k:
\t//## File "/home/me/k.py", line 7
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR8][R2.64] ;
        /*0020*/                   LDG.E.U16.CONSTANT R4, desc[UR8][R2.64] ;
\t//## File "/home/me/k.py", line 9
        /*0030*/                   STL.64 [R1+0x8], R4 ;
        /*0040*/                   STL [R1], R4 ;
\t//## File "/usr/lib/standard.py", line 500 inlined at "/home/me/k.py", line 9
        /*0050*/                   LDL.LU R4, [R1] ;
        /*0060*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24 ;
        /*0070*/              @P1 UTMALDG.2D [UR8], [UR4], desc[URZ] ;
        /*0080*/                   UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR7] ;
        /*0090*/                   HMMA.16816.F32 R4, R8, R10, R4 ;
\t//## File "/home/me/k.py", line 12
        /*00a0*/                   FFMA R4, R5, R6, R7 ;
        /*00b0*/                   FADD.FTZ R4, R5, R6 ;
        /*00c0*/                   MUFU.EX2.F16 R4, R5 ;
        /*00c8*/                   MUFU.RCP R4, R5 ;
        /*00cc*/                   MUFU.EX2 R4, R5 ;
        /*00d0*/                   LDGSTS.E.BYPASS.128 [R4], desc[UR8][R2.64] ;
        /*00e0*/             @!UP0 UBLKCP.S.G [UR8], [UR4] ;
        /*00f0*/                   STG.E desc[UR8][R2.64], R4 ;
        /*0100*/                   RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR8][R2.64], R4 ;
        /*0110*/                   NOP ;
"""


def test_instructions() -> None:
    mix = sass.count(CODE, "k.py")
    assert mix.tensor_core == {"HGMMA": 1, "UTCHMMA": 1, "HMMA": 1}
    assert mix.tma == {"UTMALDG": 1, "UBLKCP": 1}
    assert mix.global_loads == {128: 1, 16: 1}
    assert mix.global_stores == {32: 1}
    assert (mix.spill_stores, mix.spill_loads, mix.spill_lines) == (2, 1, (9,))
    assert (mix.float_ops, mix.async_copies, mix.atomics) == (2, 1, 1)
    assert mix.async_widths == {128: 1} and mix.load_widths[128] > mix.global_loads.get(128, 0)
    assert mix.special == {"MUFU.EX2": 2, "MUFU.RCP": 1}
    assert mix.total == 19  # all but the NOP


def test_instructions_in_words() -> None:
    assert str(sass.count(CODE, "k.py")) == (
        "19 instructions; 1 HGMMA; 1 UTCHMMA; 1 HMMA; 1 UTMALDG; 1 UBLKCP; 1 cp.async; "
        "loads 1 of 128 bits, 1 of 16 bits; stores 1 of 32 bits; 3 spills; "
        "2 floating-point operations; 3 special functions (2 MUFU.EX2, 1 MUFU.RCP); 1 atomics"
    )


USAGE = """\
Resource usage:
 Common:
  GLOBAL:64 CONSTANT[4]:8
 Function k:
  REG:128 STACK:16 SHARED:2048 LOCAL:0 CONSTANT[0]:1024 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
ELF = """\
\tAttribute:\tEIATTR_REQNTID
\tFormat:\tEIFMT_SVAL
\tValue:\t0x80 0x2 0x1 \n\t<0x27>
"""


def test_resources() -> None:
    found = resources(USAGE, ELF, 80)
    assert (found.registers, found.stack_bytes, found.shared_bytes, found.threads) == (
        128,
        16,
        2048,
        256,
    )
    assert resources(USAGE, "", 80).threads == 0


def test_the_systems_share_is_taken_off_where_it_is_counted() -> None:
    assert resources(USAGE, ELF, 90).shared_bytes == 1024


def test_two_kernels_in_a_cubin_are_refused() -> None:
    with pytest.raises(ValueError, match="found 2"):
        resources(USAGE * 2, ELF, 80)


def test_a_digest_is_of_an_elf_file() -> None:
    with pytest.raises(ValueError, match="not a 64-bit ELF file"):
        digest(b"\x7fELF\x01")


REMARKS = """\
--- !Failure
Pass:            Memory
Name:            RemarkMemoryTmaStoreFailed
DebugLoc:        { File: '/home/me/k.py', Line: 8, Column: 4 }
Function:        mm
Args:
  - RemarkId:    2
  - Remark:      Failed to select TMA store instruction
  - Reason:      'loc("/home/me/k.py":8:4): base pointer not 16-byte aligned'
  - Reason:      'loc("/home/me/k.py":8:4): base pointer not 16-byte aligned'
...
--- !Passed
Pass:            Tensor-core
Name:            RemarkTensorCoreMMA
DebugLoc:        { File: '/home/me/k.py', Line: 7, Column: 14 }
Function:        mm
Args:
  - RemarkId:    4
  - Remark:      MMA operation successfully optimized to use Tensor Cores
  - Instruction: Tensor-core SM90
  - Shape:       '[64, 64, 16]'
...
"""


def test_remarks() -> None:
    first, second = remarks.read(REMARKS * 2)
    assert (first.kind, first.line, first.instruction) == ("Passed", 7, "Tensor-core SM90")
    assert first.details == (("Shape", "[64, 64, 16]"),)
    assert (second.kind, second.name, second.line) == ("Failure", "RemarkMemoryTmaStoreFailed", 8)
    assert second.reason == "base pointer not 16-byte aligned"
    assert str(second) == (
        "line 8: Failed to select TMA store instruction (base pointer not 16-byte aligned)"
    )


def test_no_remarks() -> None:
    assert remarks.read("") == ()
