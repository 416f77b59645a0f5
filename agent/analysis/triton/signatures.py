"""Parameters of a kernel that Triton has no way to give: nothing of it can be launched."""

from __future__ import annotations

import libcst as cst

from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source


def unlaunchable(source: Source, *, interpreted: bool) -> str | None:
    """Why a kernel of the file cannot be launched, with the mend; None where each can.

    Args:
        source: the file. Who puts a decorator of their own around may give parameters otherwise.
        interpreted: whether Triton's interpreter is to run it.
    """
    for kernel in TRITON.kernels(source):
        parameters, line = kernel.function.node.params, source.line(kernel.function.node)
        if (rest := parameters.star_kwarg) is not None:
            return (
                f"line {line}: {kernel.name} takes **{rest.name.value}, and Triton makes no kernel "
                "of such a function: give it each parameter by name, such as BLOCK: tl.constexpr"
            )
        rest = parameters.star_arg if isinstance(parameters.star_arg, cst.Param) else None
        if rest is not None and interpreted and kernel.launches:
            return (
                f"line {line}: {kernel.name} takes *{rest.name.value}, which Triton's interpreter "
                "does not hand on: run it where there is a GPU, or give it each parameter by name"
            )
    return None
