"""Expressions of a kernel: every node is either translated, or refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import libcst as cst

from agent.porting import dtypes, terms
from agent.porting.arithmetic import OPERATORS, Arithmetic, as_number
from agent.porting.constants import global_constant
from agent.porting.context import TL, Context
from agent.porting.folding import as_tensor
from agent.porting.terms import Phrase, atom
from agent.porting.values import (
    Number,
    Other,
    Pointer,
    Several,
    Type,
    Value,
    joined,
    literal,
    number,
    token,
    weak,
)
from agent.syntax import Function

COMPARISONS: Mapping[type[cst.CSTNode], str] = {
    cst.LessThan: "<",
    cst.LessThanEqual: "<=",
    cst.GreaterThan: ">",
    cst.GreaterThanEqual: ">=",
    cst.Equal: "==",
    cst.NotEqual: "!=",
}
UNARIES: Mapping[type[cst.CSTNode], str] = {
    cst.Minus: "-",
    cst.Plus: "+",
    cst.BitInvert: "~",
    cst.Not: "not",
}
ELEMENT_TYPES = ("element_ty", "scalar")
PACKAGES = ("triton.", "builtins.", "math.", "torch.")
"""Where functions are from that a kernel need not have a text of."""
Handler = Callable[["Expressions", cst.Call, cst.BaseExpression | None], Phrase]
HelperCall = Callable[[Function, cst.Call], Phrase]


class Expressions:
    """Translates expressions of one function, given what is known of its variables.

    Attributes:
        context: the file.
        variables: name -> what it holds, at the place that is being read.
        offsets: pointer parameter -> the variable that holds its offset once it was moved.
        arithmetic: operators, and what they take for granted of types.
        stored: the pointer parameters that something was stored through.
    """

    def __init__(
        self, context: Context, operations: Mapping[str, Handler], call_helper: HelperCall
    ) -> None:
        self.context = context
        self.variables: dict[str, Value] = {}
        self.offsets: dict[str, str] = {}
        self.arithmetic = Arithmetic(context)
        self.stored: set[str] = set()
        self._operations = operations
        self._call_helper = call_helper

    def read(self, node: cst.BaseExpression) -> Phrase:
        """The port's version of an expression.

        Raises:
            NotPortable: it has none that is known to mean the same.
        """
        match node:
            case cst.Name():
                return self._name(node)
            case cst.Integer():
                return atom(node.value, literal(node.evaluated_value))
            case cst.Float():
                return atom(node.value, literal(node.evaluated_value))
            case cst.SimpleString() | cst.ConcatenatedString() | cst.FormattedString():
                return atom(self.context.source.code(node), Other("a string"))
            case cst.BinaryOperation():
                return self._binary(node)
            case cst.UnaryOperation():
                symbol = UNARIES[type(node.operator)]
                return self.arithmetic.unary(node, symbol, self.read(node.expression))
            case cst.Comparison():
                return self._comparison(node)
            case cst.BooleanOperation():
                return self._boolean(node)
            case cst.IfExp():
                return self._choice(node)
            case cst.Tuple() | cst.List():
                return self._several(node)
            case cst.Subscript():
                return self._subscript(node)
            case cst.Attribute():
                return self._attribute(node)
            case cst.Call():
                return self._call(node)
        raise self.context.refuse(
            node, f"{_kind(node)} in a kernel", "write it with plain expressions"
        )

    def number(self, node: cst.BaseExpression) -> Phrase:
        """An expression that has to be a tile or a scalar."""
        term = self.read(node)
        as_number(self.context, node, term.value)
        return term

    def pointer(self, node: cst.BaseExpression) -> tuple[str, str, Pointer]:
        """An address, as the array that it lies in, the index of its elements, and its value."""
        term = self.read(node)
        if not isinstance(term.value, Pointer):
            raise self.context.refuse(
                node,
                "an address that is computed or handed in as a number",
                "give the kernel a pointer for each array that it reads or writes",
            )
        if not term.value.base:
            raise self.context.refuse(
                node,
                "an address whose array is chosen when the kernel runs",
                "read or write in each branch",
            )
        return term.value.base, term.text or "0", term.value

    def shape(self, node: cst.BaseExpression) -> str:
        """A shape: cuTile takes tuples."""
        if isinstance(node, cst.Tuple | cst.List):
            return self._several(node).text
        term = self.read(node)
        if isinstance(term.value, Number):
            return f"({term.text},)"
        return term.text

    # --- names -----------------------------------------------------------------------------------

    def _name(self, node: cst.Name) -> Phrase:
        if node.value in self.variables:
            value = self.variables[node.value]
            if isinstance(value, Other) and value.what.startswith("a value"):
                raise self.context.refuse(
                    node, "a variable that two branches leave with values of different kinds",
                    "give it two names", node.value,
                )  # fmt: skip
            if isinstance(value, Pointer):
                if value.offset is None:
                    return atom("", value)
                return atom(self.offsets.get(node.value, node.value), value)
            return atom(node.value, value)
        if node.value in ("True", "False"):
            return atom(node.value, weak(dtypes.BOOL))
        if node.value == "None":
            return atom("None", Other("None"))
        if (kind := self._type_named(node)) is not None:
            return kind
        return atom(node.value, global_constant(self.context, node))

    def _type_named(self, node: cst.BaseExpression) -> Phrase | None:
        """`tl.float32` and its like."""
        named = self.context.called(node) or ""
        kind = dtypes.OF_TRITON.get(named.removeprefix(TL)) if named.startswith(TL) else None
        if kind is None:
            return None
        return atom(f"{self.context.tile}.{kind}", Type(frozenset((kind,))))

    def _attribute(self, node: cst.Attribute) -> Phrase:
        if (kind := self._type_named(node)) is not None:
            return kind
        inner = node.value
        is_type = isinstance(inner, cst.Attribute) and inner.attr.value in ("dtype", "type")
        if is_type and node.attr.value in ELEMENT_TYPES:
            assert isinstance(inner, cst.Attribute)
            term = self.read(inner.value)
            if isinstance(term.value, Pointer) and node.attr.value == "element_ty":
                base = term.value.base
                return atom(f"{base}.dtype", Type(frozenset((token(base),))))
            if isinstance(term.value, Number) and node.attr.value == "scalar":
                return self._dtype_of(node, term)
        if node.attr.value == "dtype":
            return self._dtype_of(node, self.read(inner))
        if node.attr.value == "shape":
            term = self.number(inner)
            return atom(f"{term.within(terms.ATOM)}.shape", Other("a shape"))
        if node.attr.value == "T":
            term = self.number(inner)
            return atom(f"{self.context.tile}.transpose({term.text})", term.value)
        named = self.context.source.name(node) or self.context.source.code(node)
        raise self.context.refuse(
            node, f"`{_shortened(named)}`", "write it without, or port this kernel by hand"
        )

    def _dtype_of(self, node: cst.CSTNode, term: Phrase) -> Phrase:
        value = term.value
        if isinstance(value, Pointer):
            raise self.context.refuse(
                node, "the type of an address", "use `.dtype.element_ty`, the type of its elements"
            )
        found = as_number(self.context, node, value)
        if found.constant:
            raise self.context.refuse(node, "the type of a constant", "name the type")
        return atom(f"{term.within(terms.ATOM)}.dtype", Type(found.types))

    # --- operators -------------------------------------------------------------------------------

    def _binary(self, node: cst.BinaryOperation) -> Phrase:
        if type(node.operator) not in OPERATORS:
            what = self.context.source.module.code_for_node(node.operator).strip()
            raise self.context.refuse(node, f"the operator `{what}`", "write it out")
        symbol, _ = OPERATORS[type(node.operator)]
        left, right = self.read(node.left), self.read(node.right)
        if isinstance(left.value, Several) and isinstance(right.value, Several) and symbol == "+":
            items = Several((*left.value.items, *right.value.items))
            return Phrase(f"{left.text} + {right.text}", terms.SUM, items)
        return self.arithmetic.binary(node, symbol, left, right)

    def _comparison(self, node: cst.Comparison) -> Phrase:
        if len(node.comparisons) != 1:
            raise self.context.refuse(node, "a chain of comparisons", "join two of them with `&`")
        (target,) = node.comparisons
        left, right = self.read(node.left), self.read(target.comparator)
        symbol = COMPARISONS.get(type(target.operator))
        if Other("None") in (left.value, right.value):
            raise self.context.refuse(
                node, "a test for None", "cuTile takes no None: use a constant flag"
            )
        if any(isinstance(each.value, Other) for each in (left, right)):
            raise self.context.refuse(
                node, "a comparison of strings or shapes", "cuTile takes no strings: use numbers"
            )
        if symbol is None:
            what = self.context.source.module.code_for_node(target.operator).strip()
            raise self.context.refuse(node, f"the comparison `{what}`", "write it out")
        return self.arithmetic.compared(node, symbol, left, right)

    def _boolean(self, node: cst.BooleanOperation) -> Phrase:
        left, right = self.number(node.left), self.number(node.right)
        is_and = isinstance(node.operator, cst.And)
        symbol, binding = ("and", terms.AND) if is_and else ("or", terms.OR)
        constant = all(isinstance(e.value, Number) and e.value.weak for e in (left, right))
        value = weak(dtypes.BOOL) if constant else number(dtypes.BOOL)
        text = f"{left.within(binding)} {symbol} {right.within(binding)}"
        return Phrase(text, binding, value)

    def _choice(self, node: cst.IfExp) -> Phrase:
        test, one, other = self.number(node.test), self.read(node.body), self.read(node.orelse)
        if isinstance(one.value, Pointer) or isinstance(other.value, Pointer):
            raise self.context.refuse(
                node,
                "an address whose array is chosen when the kernel runs",
                "read or write in each branch",
            )
        assert isinstance(test.value, Number)
        if not test.value.weak:
            one, other = (
                as_tensor(self.context, node, each)
                if isinstance(each.value, Number) and each.value.constant
                else each
                for each in (one, other)
            )
        value = joined(one.value, other.value)
        text = (
            f"{one.within(terms.OR)} if {test.within(terms.OR)}"
            f" else {other.within(terms.CONDITIONAL)}"
        )
        return Phrase(text, terms.CONDITIONAL, value)

    def _several(self, node: cst.Tuple | cst.List) -> Phrase:
        if any(isinstance(each, cst.StarredElement) for each in node.elements):
            raise self.context.refuse(node, "a `*` in a tuple", "write the elements out")
        items = [self.read(each.value) for each in node.elements]
        for each, item in zip(node.elements, items, strict=True):
            if isinstance(item.value, Pointer):
                raise self.context.refuse(each, "an address in a tuple", "use a variable for each")
        listed = ", ".join(each.text for each in items) + ("," if len(items) == 1 else "")
        return atom(f"({listed})", Several(tuple(each.value for each in items)))

    def _subscript(self, node: cst.Subscript) -> Phrase:
        """`x[:, None]` adds axes; `x.shape[0]` is a constant."""
        base = self.read(node.value)
        if base.value == Other("a shape"):
            return atom(f"{base.text}{self._index(node)}", weak("int32", natural=True))
        for element in node.slice:
            part = element.slice
            whole = isinstance(part, cst.Slice) and not (part.lower or part.upper or part.step)
            added = isinstance(part, cst.Index) and _is_none(part.value)
            if not whole and not added:
                raise self.context.refuse(
                    node, "a subscript that picks elements", "select with `tl.where` and reduce"
                )
        if isinstance(base.value, Pointer) and base.value.offset is None:
            raise self.context.refuse(node, "a subscript of a pointer", "subscript the offsets")
        return atom(f"{base.within(terms.ATOM)}{self._index(node)}", base.value)

    def _index(self, node: cst.Subscript) -> str:
        parts = [self.context.source.code(element.slice) for element in node.slice]
        return f"[{', '.join(parts)}]"

    # --- calls -----------------------------------------------------------------------------------

    def _call(self, node: cst.Call) -> Phrase:
        source = self.context.source
        helper = source.function_of(node.func)
        if helper is not None:
            return self._call_helper(helper, node)
        named = self.context.called(node.func)
        if named == f"{TL}constexpr" and len(node.args) == 1:
            return self._constant(node)
        if named is not None and named in self._operations:
            return self._operations[named](self, node, None)
        if isinstance(node.func, cst.Attribute) and not (named or "").startswith("triton."):
            method = f"{TL}{node.func.attr.value}"
            if method in self._operations and self._is_value(node.func.value):
                return self._operations[method](self, node, node.func.value)
        what = source.code(node.func) if named is None else _shortened(named)
        if isinstance(node.func, cst.Name) and named is not None and not named.startswith(PACKAGES):
            raise self.context.refuse(
                node, f"`{node.func.value}`", "it is of another file: copy it into this one", what
            )
        raise self.context.refuse(
            node, f"`{what}`", "cuTile has no equivalent that is known here: write it out"
        )

    def _constant(self, node: cst.Call) -> Phrase:
        """`tl.constexpr(X)` is X."""
        term = self.number(node.args[0].value)
        if isinstance(term.value, Number) and term.value.weak:
            return term
        raise self.context.refuse(node, "`tl.constexpr` of a variable", "use the variable")

    def _is_value(self, node: cst.BaseExpression) -> bool:
        """Whether a method's receiver is a tile or an address and no module."""
        root = node
        while isinstance(root, cst.Attribute):
            root = root.value
        return not isinstance(root, cst.Name) or root.value in self.variables


def _is_none(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"


def _kind(node: cst.CSTNode) -> str:
    names = {
        cst.Lambda: "a lambda",
        cst.ListComp: "a list comprehension",
        cst.GeneratorExp: "a generator",
        cst.NamedExpr: "`:=`",
        cst.Dict: "a dictionary",
    }
    return names.get(type(node), f"a {type(node).__name__.lower()}")


def _shortened(named: str) -> str:
    """A name as people write it: 'tl.sort'."""
    return f"tl.{named.removeprefix(TL)}" if named.startswith(TL) else named
