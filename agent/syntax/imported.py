"""What imported names stand for, also where a project hands parts of a language on.

vLLM's kernels say `from vllm.triton_utils import tl, triton`, where a module of its own picks what
there is of Triton; Fast-LLM's import `triton_jit` and `tl_constexpr` from one, PyJuice's a
`triton_jit` with a launcher of its own. By their usual names such imports are what they are called.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import QualifiedName, QualifiedNameSource

from agent.syntax.tree import descendants

_USUAL = {
    "ct": "cuda.tile",
    "libdevice": "triton.language.extra.libdevice",
    "tl": "triton.language",
    "tldevice": "triton.language.extra.libdevice",
    "tl_constexpr": "triton.language.constexpr",
    "triton": "triton",
    "triton_autotune": "triton.autotune",
    "triton_heuristics": "triton.heuristics",
    "triton_jit": "triton.jit",
}
"""What everybody calls a part of a kernel language -> that part."""
_TRITON = "triton.language."
_CUTILE = "cuda.tile."


def handed_on(module: cst.Module) -> Mapping[str, str]:
    """Dotted name that `from package import tl` imports -> the part of the language that it is."""
    found = {}
    for statement in descendants(module, cst.ImportFrom):
        origin = "." * len(statement.relative)
        if statement.module is not None:
            origin += get_full_name_for_node(statement.module) or ""
        if origin.partition(".")[0] in ("triton", "cuda") or isinstance(
            statement.names, cst.ImportStar
        ):
            continue
        for alias in statement.names:
            if alias.evaluated_name in _USUAL:
                joint = "" if origin.endswith(".") else "."
                found[f"{origin}{joint}{alias.evaluated_name}"] = _USUAL[alias.evaluated_name]
    return found


def only(names: Collection[QualifiedName], known: Mapping[str, str]) -> str | None:
    """One name out of a set; what an import gives outranks a fallback such as `tl = None`.

    A function that Triton has in several modules, of which versions have one or the other, is one
    function: `from triton.language.extra.libdevice import rsqrt`, or else
    `from triton.language.math import rsqrt`. And cuTile outranks what it was called before:
    `import cuda.tile as ct`, or else `import cutile as ct`.

    Args:
        names: what a name may stand for.
        known: of `handed_on`.
    """
    imported = {_of_its_module(n.name, known) for n in names
                if n.source is QualifiedNameSource.IMPORT}  # fmt: skip
    found = imported or {n.name for n in names}
    if len(found) > 1 and all(name.startswith(_TRITON) for name in found):
        named = {name.rpartition(".")[2] for name in found}
        found = {min(found, key=lambda name: (name.count("."), name))} if len(named) == 1 else found
    if len(found) > 1 and len({name.rpartition(".")[2] for name in found}) == 1:
        theirs = {name for name in found if name.startswith(_CUTILE)}
        found = theirs if len(theirs) == 1 else found
    return found.pop().replace(".<locals>", "") if len(found) == 1 else None


def _of_its_module(name: str, known: Mapping[str, str]) -> str:
    for origin, module in known.items():
        if name == origin or name.startswith(f"{origin}."):
            return module + name.removeprefix(origin)
    return name
