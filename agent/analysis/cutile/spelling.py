"""How a file spells cuda.tile, for whatever is written into it."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.dialect import CUTILE
from agent.syntax import Source


def tile_module(source: Source) -> str:
    """How the file spells cuda.tile: 'ct' where it says `@ct.kernel`.

    Raises:
        NotApplicable: it imports single names only, so that no other can be reached.
    """
    for kernel in CUTILE.kernels(source):
        decorator = kernel.decorator.decorator
        called = decorator.func if isinstance(decorator, cst.Call) else decorator
        if isinstance(called, cst.Attribute):
            return source.code(called.value)
    raise NotApplicable("the file does not import cuda.tile under a name to write ct.* with")
