"""Have the compiler unroll and pipeline less.

When: nothing else has helped a cuTile kernel, above all one with a loop whose body is unrolled.
Do: set `opt_level=` in `@ct.kernel` to 1; 3 is the default.
Risk: none to results. Level 0 does not pipeline loads: a matrix product gets slower by a lot.
Source: compiled with cuda-tile 1.7, where 2 gives the code of 3. With 0, a float16 rms_norm in
    tiles of 1024 columns falls from 112 to 52 registers and from 1768 to 1305 instructions for
    sm_80, and from 56784 to 7232 bytes of shared memory for sm_90; a 128 x 128 x 64 product falls
    from 197784 to 66616 bytes there and grows from 637 to 2251 instructions. Level 1 changes a few
    instructions. No public source gives a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.cutile.hints import hint_of, hintable, with_hint

HINT = "opt_level"
SWEEP = (1,)
"""Not 0: on an H200 it made ten kernels slower by 35 to 6900 %."""


class OptLevel(Optimization):
    """`@ct.kernel` -> `@ct.kernel(opt_level=1)`."""

    name = "opt-level"
    title = "compiler optimization level"
    backend = "cutile"
    family = "opt-level"
    priority: ClassVar = {
        KernelClass.MEMORY: 220,
        KernelClass.BALANCED: 240,
        KernelClass.COMPUTE: 190,
    }
    expected = "not known; seldom more than a few percent"
    hypothesis = "A loop that is unrolled less needs fewer registers and less shared memory."
    opt_in = "it gained 0.4 % at most on ten kernels, and lost up to 20.9 %"
    example: ClassVar[Params] = {HINT: 1}
    before = """\
import cuda.tile as ct
import torch

TILE = 512


@ct.kernel
def rows_kernel(x, y):
    row = ct.bid(0)
    total = ct.full((1, TILE), 0, dtype=ct.float32)
    for i in range(ct.num_tiles(x, axis=1, shape=(1, TILE))):
        total += ct.load(x, (row, i), (1, TILE), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, index=(row,), tile=ct.sum(total, axis=1))


def rows(x):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), rows_kernel, (x, y))
    return y
"""
    after = before.replace("@ct.kernel\n", "@ct.kernel(opt_level=1)\n")

    trial = TileTrial(kernel="rows_kernel", arguments=((F32, 2), (F32, 1)))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Those that are not set for every kernel."""
        source = subject.source
        kernels = hintable(subject, HINT, CUTILE.chosen(source))
        present = {hint_of(subject, kernel, HINT) for kernel in kernels}
        return [{HINT: value} for value in SWEEP if present != {value}]

    def apply(self, subject: Subject, params: Params) -> str:
        """Set it for every launched kernel."""
        kernels = hintable(subject, HINT, CUTILE.chosen(subject.source))
        return with_hint(subject, kernels, HINT, int(params[HINT]))
