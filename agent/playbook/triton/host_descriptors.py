"""Make tensor descriptors on the host, once a launch instead of once a program.

When: a Triton kernel that makes its tensor descriptors itself, from what it is given, on sm_90 or
    later. Needs judgement: with an autotuner the block sizes are known only after the config is
    chosen.
Do: `TensorDescriptor.from_tensor(x, block_shape)` of `triton.tools.tensor_descriptor` in the
    wrapper and `descriptor.load` in the kernel. With an autotuner begin with a block of ones, and
    set `nargs["x_desc"].block_shape` in a `pre_hook` of every `triton.Config`. No allocator is
    needed.
Risk: a config without the hook keeps the wrong block. A hook keeps Triton from storing what it
    tuned on disk. The base and all strides but the last must be multiples of 16 bytes, the last
    stride 1.
Source: Triton's persistent matmul tutorial, in both forms; triton.tools is part of stock Triton
    from 3.4 on, so that neither nvtriton nor Blackwell is needed.
"""

from __future__ import annotations

from typing import ClassVar

from agent.backends.base import KernelClass
from agent.backends.triton import TRITON
from agent.playbook.base import Advice, NotApplicable, Subject

FIRST_TMA = 90
MAKE = "triton.language.make_tensor_descriptor"


class HostDescriptors(Advice):
    """Prose for a model or a person."""

    name = "host-descriptors"
    title = "descriptors from the host"
    backend = "triton"
    family = "tma"
    priority: ClassVar = {KernelClass.COMPUTE: 46, KernelClass.BALANCED: 46}
    expected = "the cost of writing a descriptor in each program, about a microsecond"
    hypothesis = "No program waits for a descriptor of its own."

    def fits(self, subject: Subject) -> str:
        """A kernel that makes descriptors."""
        if 0 < subject.hardware.sm < FIRST_TMA:
            raise NotApplicable(f"sm_{subject.hardware.sm} has no tensor memory accelerator")
        source = subject.source
        for kernel in TRITON.launched(source):
            for call in TRITON.find(source, kernel.function.node.body, (MAKE,)):
                return f"{kernel.name} makes a descriptor in each program, at line " + str(
                    source.line(call)
                )
        raise NotApplicable("no launched kernel makes tensor descriptors")
