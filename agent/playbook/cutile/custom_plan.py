"""Read the kernel afresh and make a plan of about five changes of its own.

When: every other entry has been tried or does not fit, and more speed is still wanted.
Do: read the kernel with all that was measured. Look for work done twice: arrays that several loops
    load, values that do not change in a loop, casts and masks made in each round; for traffic that
    one kernel could spare another by fusion; for a loop order that finds more in the L2 cache; for
    sizes so different that two kernels serve better. Write the items down, the most promising
    first, each with what it should gain and why. Try one an iteration, as any other entry.
Risk: that of each item. A fused or reordered sum rounds differently; the tests decide.
Source: TileGym's cuTile playbook, item L.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.playbook.base import Advice
from agent.syntax import Source, argument, descendants


class CustomPlan(Advice):
    """What no recipe covers."""

    name = "custom-plan"
    title = "a plan of its own"
    backend = "cutile"
    family = "custom"
    priority: ClassVar = {
        KernelClass.MEMORY: 990,
        KernelClass.BALANCED: 990,
        KernelClass.COMPUTE: 990,
    }
    expected = "depends on the kernel"
    hypothesis = "What is left to gain is particular to this kernel."

    def fits(self, subject: Subject) -> str:
        """Wherever a kernel is launched; the line names the work it does twice, if any."""
        kernels = CUTILE.chosen(subject.source)
        if not kernels:
            raise NotApplicable("the file holds no cuTile kernel")
        found = [line for kernel in kernels if (line := _repeated(subject.source, kernel))]
        return "; ".join(found) or f"the last resort for {', '.join(k.name for k in kernels)}"


def _repeated(source: Source, kernel: Kernel) -> str | None:
    """The arrays that more than one outermost loop of a kernel loads."""
    loops = [
        loop
        for loop in descendants(kernel.function.node.body, cst.For)
        if not any(isinstance(a, cst.For) for a in source.ancestors(loop))
    ]
    loaded: Counter[str] = Counter()
    for loop in loops:
        arrays = (argument(c, 0, "array") for c in CUTILE.find(source, loop.body, CUTILE.loads))
        loaded.update({source.code(array) for array in arrays if array is not None})
    several = [f"{name} in {count} loops" for name, count in loaded.items() if count > 1]
    return f"{kernel.name} loads {', '.join(several)}" if several else None
