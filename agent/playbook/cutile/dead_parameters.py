"""Drop the parameters that a kernel never reads.

When: a cuTile kernel with a parameter that its body does not mention, such as a stride that was
    handed to a Triton kernel before.
Do: take it out of the kernel's parameters and out of the tuple of every launch.
Risk: none to results. Code in other files that launches the kernel has to change with it.
Source: rule 18 of the API reference in TileGym's cuTile skill, which warns of registers. With
    cuda-tile 1.7 they cost none: compiled for sm_80, sm_90 and sm_100, a softmax with an unused
    array and an unused integer has the registers and the instructions of the one without. What is
    left is the time that a launch takes to read its arguments, and a compilation for each value of
    a constant that nothing needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.purity import is_pure
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.common.interface import Interface
from agent.syntax import Edits, Source, names_in


class DeadParameters(OfEachKernel):
    """Parameters that nothing reads, gone."""

    name = "dead-parameters"
    title = "drop unused parameters"
    backend = "cutile"
    family = "launch"
    priority: ClassVar = {
        KernelClass.MEMORY: 230,
        KernelClass.BALANCED: 250,
        KernelClass.COMPUTE: 200,
    }
    expected = "nothing in the kernel; a little of the launch, where that is what is timed"
    otherwise = "every launched kernel reads its parameters"
    hypothesis = "A launch reads every argument it is given, needed or not."
    example: ClassVar[Params] = {}
    before = """\
import cuda.tile as ct
import torch


@ct.kernel
def negate_kernel(x, y, stride, N: ct.Constant[int]):
    row = ct.bid(0)
    ct.store(y, index=(row, 0), tile=-ct.load(x, index=(row, 0), shape=(1, N)))


def negate(x):
    y = torch.empty_like(x)
    n = 1 << (x.shape[1] - 1).bit_length()
    args = (x, y, x.stride(0), n)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), negate_kernel, args)
    return y
"""
    after = before.replace(", stride", "").replace(", x.stride(0)", "")

    trial = TileTrial(
        kernel="negate_kernel",
        arguments=((F32, 2), (F32, 2), "int32", 1024),
        arguments_after=((F32, 2), (F32, 2), 1024),
    )

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> Edits:
        """Drop them from a kernel whose launches are in plain sight."""
        names = _unread(kernel)
        return _dropping(subject.source, kernel, names) if names else {}


def _unread(kernel: Kernel) -> list[str]:
    read = names_in(kernel.function.node.body)
    names = [p.name.value for p in kernel.function.parameters]
    unread = [name for name in names if name not in read]
    return unread if len(unread) < len(names) else []


def _dropping(source: Source, kernel: Kernel, names: Sequence[str]) -> Edits:
    interface = Interface.of(source, kernel)
    for name in names:
        for given in interface.given(name):
            if not is_pure(source, given):
                raise NotApplicable(
                    f"line {source.line(given)} computes what it gives for {name}: "
                    f"`{source.code(given)}`"
                )
    return interface.dropped(names)
