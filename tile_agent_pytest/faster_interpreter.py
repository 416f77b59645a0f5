"""Triton's interpreter, which makes the same few things anew at each operation, made to keep them.

An operation of an interpreted kernel makes the types of its operands and results, their shapes and
sizes as Triton's constants; every launch, and every call of a function of Triton's own library in
it, looks through all names of `triton.language` for what it has to replace. Kept, that saves a
third to three fifths of a launch's time. Triton 3.9 is known; what another release does otherwise
is left as it is.
"""

from __future__ import annotations

import inspect
from typing import Any

BLOCK_ATTRIBUTES = {"element_ty", "shape", "numel", "name"}
TENSOR_ATTRIBUTES = {"handle", "shape", "numel", "type", "dtype"}
INTEGERS = {int}
KEPT = "constants_of_tensors"
"""Of a block's type: size and shape, as the tensors of that type have them."""


def keep(interpreter: Any) -> None:
    """Have the interpreter keep all of that; a second time changes nothing.

    Args:
        interpreter: Triton's module.
    """
    _keep_types(interpreter)
    _keep_shapes(interpreter.tl.core)
    _keep_builtins(interpreter)


def _keep_types(interpreter: Any) -> None:
    """NumPy's type of one of Triton's, whose name says all of it; Triton makes a table a call."""
    element = getattr(interpreter, "_get_np_dtype", None)
    if element is None or hasattr(element, "by_name"):
        return
    by_name: dict[str, Any] = {}

    def get_np_dtype(kind: Any) -> Any:
        if kind.name not in by_name:
            by_name[kind.name] = element(kind)
        return by_name[kind.name]

    keeping: Any = get_np_dtype
    keeping.by_name = by_name
    interpreter._get_np_dtype = keeping


def _keep_shapes(core: Any) -> None:
    """What block types and tensors of one shape have in common; nothing changes it later."""
    block_type, tensor = core.block_type, core.tensor
    make_type, make_tensor = block_type.__init__, tensor.__init__
    if hasattr(make_type, KEPT) or not _are_known(core):
        return
    by_shape: dict[tuple[int, ...], tuple[Any, int, str, Any]] = {}
    sequences = (list, core.tuple)
    of_scalars = (core.constexpr(1), core.tuple([]))

    def block_type_init(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple(shape) if isinstance(shape, sequences) else ()
        if {*map(type, sizes)} != INTEGERS:
            sizes = tuple(getattr(size, "value", size) for size in sizes)
            if {*map(type, sizes)} != INTEGERS:
                make_type(self, element_ty, shape)  # which refuses most of it
                return
        known = by_shape.get(sizes)
        if known is None:
            make_type(self, element_ty, shape)
            of_tensors = (
                core.constexpr(self.numel),
                core.tuple([core.constexpr(size) for size in self.shape]),
            )
            known = by_shape[sizes] = (self.shape, self.numel, str(self.shape), of_tensors)
        self.element_ty = element_ty
        self.shape, self.numel, text, self.constants_of_tensors = known
        self.name = f"<{text}, {element_ty}>"

    def tensor_init(self: Any, handle: Any, type: Any) -> None:
        known = getattr(type, KEPT, None) if type.is_block() else of_scalars
        if known is None:
            make_tensor(self, handle, type)
            return
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.numel, self.shape = known

    setattr(block_type_init, KEPT, True)
    block_type.__init__, tensor.__init__ = block_type_init, tensor_init


def _are_known(core: Any) -> bool:
    """Whether types and tensors are made of what they are made of here."""
    kind = core.block_type(core.float32, [2])
    return bool(
        vars(kind).keys() == BLOCK_ATTRIBUTES
        and kind.name == f"<{kind.shape}, {core.float32}>"
        and vars(core.tensor(None, kind)).keys() == TENSOR_ATTRIBUTES
    )


def _keep_builtins(interpreter: Any) -> None:
    """Which names of a module or class are functions that the interpreter replaces in a launch."""
    replace = getattr(interpreter, "_patch_builtin", None)
    if replace is None or hasattr(replace, "by_owner") or not hasattr(interpreter, "_patch_attr"):
        return
    if list(inspect.signature(replace).parameters) != ["pkg", "builder", "scope"]:
        return
    by_owner: dict[Any, tuple[int, list[tuple[str, Any]]]] = {}

    def patch_builtin(pkg: Any, builder: Any, scope: Any) -> None:
        count, found = by_owner.get(pkg, (0, []))
        if found and getattr(pkg, found[0][0], None) is not found[0][1]:
            return  # replaced already: a call within a launch
        if count != len(vars(pkg)):
            is_builtin = interpreter.tl.core.is_builtin
            found = [each for each in inspect.getmembers(pkg) if is_builtin(each[1])]
            if found:  # else it may be looked at within a launch for the first time
                by_owner[pkg] = (len(vars(pkg)), found)
        for name, member in found:
            interpreter._patch_attr(pkg, name, member, builder, scope)

    keeping: Any = patch_builtin
    keeping.by_owner = by_owner
    interpreter._patch_builtin = keeping
