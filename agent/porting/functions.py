"""Kernels and the helpers that they call: parameters, and what a call of a helper gives.

A helper is translated once, for what all calls of it have in common. What one call has that another
lacks changes how both are written, so all are read again until nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.porting import dtypes
from agent.porting.arithmetic import guard_texts
from agent.porting.constants import CONSTEXPR, default_annotation, kind_of, parameter_kind
from agent.porting.context import TL, Context
from agent.porting.expressions import Expressions
from agent.porting.folding import as_tensor, typed
from agent.porting.operations import OPERATIONS
from agent.porting.pasted import brought
from agent.porting.pointers import pointers
from agent.porting.statements import Body
from agent.porting.terms import Phrase, atom
from agent.porting.values import (
    SCALAR,
    Number,
    Other,
    Pointer,
    Several,
    Type,
    Value,
    is_token,
    joined,
    number,
    token,
)
from agent.syntax import Function, descendants

ROUNDS = 12
POINTERS = (f"{TL}pointer_type", f"{TL}core.pointer_type", "torch.Tensor")
"""Annotations of pointers: what is used as one needs none."""
SCALARS = {f"{TL}int32": "", f"{TL}float32": "", f"{TL}tensor": "", "int": "", "float": "",
           f"{TL}int64": "ScalarInt64"}  # fmt: skip
"""Annotations of scalars -> what the port says instead."""


@dataclass(frozen=True)
class Translated:
    """A function of the port.

    Attributes:
        function: the origin's.
        body: its edits.
        annotations: parameter -> how the port annotates it; empty for not at all.
        offsets: pointer parameters of a helper that are followed by one for their offset.
        begun: statements that the body begins with.
        values: parameter -> what it holds.
        stored: pointer parameters that something is stored through.
    """

    function: Function
    body: Body
    annotations: Mapping[str, str]
    offsets: tuple[str, ...]
    begun: tuple[str, ...]
    values: Mapping[str, Value]
    stored: frozenset[str]


class Functions:
    """The kernels and helpers of a file, translated."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._given: dict[Function, tuple[Value, ...]] = {}
        self._helpers: dict[Function, Translated] = {}
        self._returned: dict[Function, Value] = {}
        self._open: list[Function] = []
        self._changed = False

    def translate(self, kernels: Sequence[Kernel]) -> tuple[Translated, ...]:
        """The kernels and the helpers that they reach.

        Raises:
            NotPortable: something of them has no equivalent.
        """
        for _ in range(ROUNDS):
            self._changed = False
            self._helpers.clear()
            found = [self._kernel(kernel) for kernel in kernels]
            if not self._changed:
                for each in (*found, *self._helpers.values()):
                    each.body.finish()
                return (*found, *self._helpers.values())
        raise self.context.refuse(
            kernels[0].function.node, "helpers that call each other", "put them into the kernel"
        )

    # --- kernels ---------------------------------------------------------------------------------

    def _kernel(self, kernel: Kernel) -> Translated:
        function, source = kernel.function, self.context.source
        addresses = pointers(source, function)
        values: dict[str, Value] = {}
        annotations: dict[str, str] = {}
        for parameter in function.parameters:
            name = parameter.name.value
            written = self._annotation(parameter)
            if self._says_pointer(parameter):
                written = None
                read = (each.value for each in descendants(function.node.body, cst.Name))
                addresses |= {name} & {*read}
            if name in addresses:
                values[name] = Pointer(name)
                annotations[name] = f"{self.context.tile}.IndexedWithInt64"
            elif written == CONSTEXPR:
                kind = parameter_kind(source, function, parameter, kernel.launches)
                values[name] = kind
                annotations[name] = default_annotation(kind, self.context.tile)
            else:
                values[name] = self._scalar(parameter, written, kernel)
                said = SCALARS.get(written or "int", "")
                annotations[name] = f"{self.context.tile}.{said}" if said else ""
        return self._read(function, values, annotations, ())

    def _says_pointer(self, parameter: cst.Param) -> bool:
        """Whether a parameter is annotated as one, though the kernel may not touch it."""
        if parameter.annotation is None:
            return False
        written = parameter.annotation.annotation
        if isinstance(written, cst.SimpleString):
            return str(written.evaluated_value).startswith("*")
        named = written.func if isinstance(written, cst.Call) else written
        return self.context.source.name(named) in POINTERS

    def _annotation(self, parameter: cst.Param) -> str | None:
        if parameter.annotation is None:
            return None
        named = self.context.source.name(parameter.annotation.annotation)
        return (named or "?").removeprefix("builtins.")

    def _scalar(self, parameter: cst.Param, written: str | None, kernel: Kernel) -> Number:
        """A number that is known at each launch: Triton takes int32, fp32 or a boolean."""
        if written is not None and written not in SCALARS:
            raise self.context.refuse(
                parameter, "a parameter with this annotation", "leave the annotation out",
                parameter.name.value,
            )  # fmt: skip
        if written == f"{TL}int64":
            return number("int64")
        if written in (f"{TL}int32", f"{TL}float32"):
            return number(written.removeprefix(TL))
        source, name = self.context.source, parameter.name.value
        given = [launch.arguments.get(name) for launch in kernel.launches]
        kinds = [kind_of(source, each) for each in given if each is not None]
        if kinds and len(kinds) == len(given) and all(kinds):
            types = frozenset(
                "int32" if t in dtypes.INTEGERS else t for kind in kinds if kind is not None
                for t in kind.types
            )  # fmt: skip
            natural = all(kind.natural for kind in kinds if kind is not None)
            return Number(types, natural=natural)
        return number(SCALAR + name)

    # --- helpers ---------------------------------------------------------------------------------

    def _call(self, to: Expressions, helper: Function, call: cst.Call) -> Phrase:
        """A call of a helper: its text, and what it returns."""
        source = self.context.source
        if source.decorator(helper, "triton.jit") is None:
            raise self.context.refuse(
                call, "a function that is no `@triton.jit`", "decorate it", helper.name
            )
        if helper in self._open:
            raise self.context.refuse(call, "a function that calls itself", "write a loop")
        terms = [self._argument(to, each, call) for each in self._bound(helper, call)]
        given = tuple(term.value for term in terms)
        known = self._given.get(helper)
        common = given if known is None else tuple(map(joined, known, given))
        if common != known:
            self._given[helper] = common
            self._changed = True
        if common != known or helper not in self._helpers:
            self._helper(helper, common)
        done = self._helpers[helper]
        written = []
        for parameter, term, value in zip(helper.parameters, terms, common, strict=True):
            written += self._passed(to, call, parameter.name.value, term, value, done)
        names = [p.name.value for p in helper.parameters]
        to.stored |= {
            value.base
            for name, value in zip(names, given, strict=True)
            if name in done.stored and isinstance(value, Pointer)
        }
        returned = _at_the_call(self._returned[helper], dict(zip(names, given, strict=True)))
        return atom(f"{helper.node.name.value}({', '.join(written)})", returned)

    def _bound(self, helper: Function, call: cst.Call) -> list[cst.BaseExpression]:
        """The arguments of a call in the order of the parameters, defaults filled in."""
        names = [p.name.value for p in helper.parameters]
        given: dict[str, cst.BaseExpression] = {}
        for place, each in enumerate(call.args):
            if each.star:
                raise self.context.refuse(call, "a call with `*`", "write its arguments out")
            if each.keyword is None and place >= len(names):
                raise self.context.refuse(call, "this call of a helper", "it passes too much")
            given[each.keyword.value if each.keyword else names[place]] = each.value
        for parameter in helper.parameters:
            if parameter.default is not None:
                name = parameter.name.value
                if name not in given:
                    given[name] = brought(self.context, parameter.default, call)
        if given.keys() != set(names):
            raise self.context.refuse(call, "this call of a helper", "pass what it takes")
        return [given[name] for name in names]

    def _argument(self, to: Expressions, node: cst.BaseExpression, call: cst.Call) -> Phrase:
        term = to.read(node)
        if isinstance(term.value, Other):
            raise self.context.refuse(
                call, "a string or None given to a helper", "give it a number"
            )
        if isinstance(term.value, Pointer) and not term.value.base:
            to.pointer(node)  # refuses
        if isinstance(term.value, Number) and term.value.loose:
            return as_tensor(self.context, node, term)
        return term

    def _helper(self, helper: Function, given: tuple[Value, ...]) -> None:
        """Translate a helper for what its calls have in common."""
        values: dict[str, Value] = {}
        offsets = []
        for parameter, value in zip(helper.parameters, given, strict=True):
            name = parameter.name.value
            if isinstance(value, Pointer):
                moved = value.offset is not None
                values[name] = Pointer(name, number("int64") if moved else None)
                offsets += [name] if moved else []
            elif isinstance(value, Number) and not value.constant:
                known = not any(is_token(kind) for kind in value.types)
                types = value.types if known else frozenset((token(name),))
                values[name] = Number(types, natural=value.natural)
            else:
                values[name] = value
        self._open.append(helper)
        try:
            annotations = {p.name.value: "" for p in helper.parameters}
            done = self._read(helper, values, annotations, tuple(offsets))
        finally:
            self._open.pop()
        self._helpers[helper] = done
        found = done.body.returned
        value = found[0] if found else Other("nothing")
        for other in found[1:]:
            value = joined(value, other)
        self._returned[helper] = value

    def _passed(
        self,
        to: Expressions,
        call: cst.Call,
        name: str,
        term: Phrase,
        common: Value,
        done: Translated,
    ) -> list[str]:
        """What a call writes for one parameter: a pointer is its array and its offset."""
        value = term.value
        if isinstance(value, Pointer):
            if name not in done.offsets:
                return [value.base]
            offset = value.offset or Number(frozenset(("int32",)), weak=True)
            wide = to.arithmetic.in_64_bits(Phrase(term.text or "0", term.binding, offset))
            return [value.base, wide.text]
        if isinstance(value, Number) and value.weak and isinstance(common, Number):
            if common.weak:
                return [term.text]
            if value.types == {"int32"} and common.known(("int32", "int64")):
                return [typed(self.context.tile, term.text, "int32")]
            raise self.context.refuse(
                call, "a helper that is given a constant here and a tile there",
                "make a tile of the constant with `tl.full`",
            )  # fmt: skip
        return [term.text]

    # --- both ------------------------------------------------------------------------------------

    def _read(
        self,
        function: Function,
        values: dict[str, Value],
        annotations: Mapping[str, str],
        offsets: tuple[str, ...],
    ) -> Translated:
        node = function.node
        if not isinstance(node.body, cst.IndentedBlock):
            raise self.context.refuse(node, "a function on one line", "write its body below")
        if node.params.star_kwarg is not None or isinstance(node.params.star_arg, cst.Param):
            raise self.context.refuse(node, "a kernel with `*`", "write its parameters out")
        to = Expressions(self.context, OPERATIONS, lambda h, c: self._call(to, h, c))
        to.variables.update(values)
        to.offsets.update({name: f"{name}_offset" for name in offsets})
        body = Body(self.context, node, to)
        body.read()
        begun = (*guard_texts(self.context, to.arithmetic.guards), *body.begun)
        return Translated(function, body, annotations, offsets, begun, values, frozenset(to.stored))


def _at_the_call(value: Value, given: Mapping[str, Value]) -> Value:
    """What a helper returns, in the types of the caller's arguments."""
    match value:
        case Number():
            return replace(value, types=_types_at_the_call(value.types, given))
        case Type():
            return Type(_types_at_the_call(value.types, given))
        case Several():
            return Several(tuple(_at_the_call(item, given) for item in value.items))
    return value


def _types_at_the_call(types: frozenset[str], given: Mapping[str, Value]) -> frozenset[str]:
    found: set[str] = set()
    for kind in types:
        argument = given.get(kind[1:]) if is_token(kind) else None
        if isinstance(argument, Pointer):
            found.add(token(argument.base))
        elif isinstance(argument, Number):
            found |= argument.types
        else:
            found.add(kind)
    return frozenset(found)
