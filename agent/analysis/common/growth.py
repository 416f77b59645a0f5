"""Whether a tile may grow past what divides the axis: the padding of a loop's last tile counts.

Every statement is followed with what its values have behind the array's end (see
`agent.analysis.common.padding`), up to where a reduction or a product of matrices takes that in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

import libcst as cst

from agent.analysis.common import padding
from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.dialect import Dialect, given_to
from agent.analysis.common.loop_ends import reads_past_loop
from agent.analysis.common.padding import ACROSS, INDEX, NONE, OTHER, SIZE, ZERO, Pad, Padded
from agent.analysis.common.shared_elements import element_for_a_block
from agent.syntax import Function, Source, argument, descendants, keyword

Values: TypeAlias = dict[str, Padded]
_ROUNDS, _DEEPEST = 6, 6
_ARITHMETIC: Mapping[type[cst.CSTNode], Callable[[Padded, Padded], Padded]] = {
    cst.Add: padding.plus, cst.AddAssign: padding.plus,
    cst.Subtract: padding.minus, cst.SubtractAssign: padding.minus,
    cst.Multiply: padding.times, cst.MultiplyAssign: padding.times,
    cst.Divide: padding.over, cst.DivideAssign: padding.over,
    cst.FloorDivide: padding.over, cst.FloorDivideAssign: padding.over,
    cst.Modulo: padding.modulo, cst.Power: padding.over,
    cst.BitAnd: padding.conjunction, cst.BitAndAssign: padding.conjunction,
    cst.BitOr: padding.disjunction, cst.BitOrAssign: padding.disjunction,
}  # fmt: skip
_COMPARED: Mapping[str, type[cst.BaseCompOp]] = {
    "less": cst.LessThan, "less_equal": cst.LessThanEqual, "greater": cst.GreaterThan,
    "greater_equal": cst.GreaterThanEqual, "equal": cst.Equal, "not_equal": cst.NotEqual,
}  # fmt: skip


def may_grow(flow: Flow) -> bool:
    """Whether a larger tile is right for any length of the axis, not for its multiples alone."""
    return (
        flow.guarded()
        and not _run(flow).unbounded
        and padding_that_counts(flow) is None
        and element_for_a_block(flow) is None
        and reads_past_loop(flow) is None
    )


def padding_that_counts(flow: Flow) -> cst.CSTNode | None:
    """Where a result takes in what a loop's last tile has behind the array's end."""
    return next(iter(_run(flow).counted), None) if flow.in_loop else None


def stores_without(flow: Flow) -> frozenset[cst.Call]:
    """The stores of tiles that have no elements along the constant's axis."""
    return frozenset(call for call, value in _run(flow).stored.items() if value.flat)


def contracted(flow: Flow) -> frozenset[cst.BaseExpression]:
    """The products of matrices that add up over the elements of one block."""
    return frozenset(_run(flow).contracted)


def _run(flow: Flow) -> _Run:
    return _remembered(flow.dialect, flow.source, flow.kernel.function, flow.constant)


@lru_cache(maxsize=64)
def _remembered(dialect: Dialect, source: Source, function: Function, constant: str) -> _Run:
    kernel = next(each for each in dialect.kernels(source) if each.function is function)
    flow = Flow(dialect, source, kernel, constant)
    run = _Run(flow, frozenset(flow.reductions()))
    values: Values = {flow.constant: SIZE} if flow.constant in flow.kernel.constants else {}
    run.body(flow.body, values)
    return run


@dataclass
class _Run:
    """One pass through a kernel and its helpers."""

    flow: Flow
    reductions: frozenset[cst.Call]
    counted: dict[cst.CSTNode, None] = field(default_factory=dict)
    """Where padding is taken in, in the order in which it was found."""
    stored: dict[cst.Call, Padded] = field(default_factory=dict)
    """What stores write, as far as any way to them has elements along the axis."""
    unbounded: dict[cst.Call, None] = field(default_factory=dict)
    """The masked accesses that go past the axis's end: their masks bound other axes, if any."""
    contracted: dict[cst.BaseExpression, None] = field(default_factory=dict)
    """The products of two tiles that both go along the axis."""
    returned: list[Padded] = field(default_factory=list)
    deep: int = 0

    # --- statements -----------------------------------------------------------------------------

    def body(self, suite: cst.BaseSuite | cst.BaseCompoundStatement, values: Values) -> None:
        """Follow statements one after the other; `values` are those of names."""
        for line in suite.body if isinstance(suite, cst.IndentedBlock) else (suite,):
            match line:
                case cst.SimpleStatementLine(body=statements):
                    for statement in statements:
                        self._statement(statement, values)
                case cst.SimpleStatementSuite(body=statements):
                    for statement in statements:
                        self._statement(statement, values)
                case cst.If():
                    self._branches(line, values)
                case cst.For(target=target, iter=bounds):
                    self.value(bounds, values)
                    self._rounds(line, values, [n.value for n in descendants(target, cst.Name)])
                case cst.While(test=test):
                    self.value(test, values)
                    self._rounds(line, values, [])
                case cst.With(body=inner):
                    self.body(inner, values)

    def _statement(self, statement: cst.CSTNode, values: Values) -> None:
        match statement:
            case cst.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target.target, value, values)
            case cst.AnnAssign(target=target, value=cst.BaseExpression() as value):
                self._assign(target, value, values)
            case cst.AugAssign(target=cst.Name(value=name), operator=operator, value=value):
                added = self.value(value, values)
                values[name] = _made_by(operator)(values.get(name, NONE), added)
            case cst.Return(value=cst.BaseExpression() as value):
                self.returned.append(self.value(value, values))
            case cst.Expr(value=value):
                self.value(value, values)

    def _assign(
        self, target: cst.BaseExpression, value: cst.BaseExpression, values: Values
    ) -> None:
        names = target.elements if isinstance(target, cst.Tuple | cst.List) else ()
        parts = value.elements if isinstance(value, cst.Tuple | cst.List) else ()
        if names and len(names) == len(parts):
            found = [self.value(part.value, values) for part in parts]
            for name, each in zip(names, found, strict=True):
                values.update({n.value: each for n in descendants(name.value, cst.Name)})
            return
        whole = self.value(value, values)
        values.update({name.value: whole for name in descendants(target, cst.Name)})

    def _branches(self, line: cst.If, values: Values) -> None:
        """Both ways. What one masks by the length is masked: the test says where that is needed."""
        self.value(line.test, values)
        if self.flow.dialect.masks_edges(self.flow.source, line):
            self.body(line.body, values)
            return
        other = dict(values)
        self.body(line.body, values)
        if line.orelse is not None:
            rest = line.orelse.body if isinstance(line.orelse, cst.Else) else line.orelse
            self.body(rest, other)
        for name in {*values, *other}:
            one, two = (found.get(name) for found in (values, other))
            if one is None or two is None:
                values[name] = one or two or NONE
            elif one.bound != two.bound:
                values[name] = one if one.bound else two
            else:
                values[name] = padding.either(one, two)

    def _rounds(self, line: cst.For | cst.While, values: Values, counters: list[str]) -> None:
        for _ in range(_ROUNDS):
            before = dict(values)
            values.update(dict.fromkeys(counters, NONE))
            self.body(line.body, values)
            for name, had in before.items():
                values[name] = padding.either(had, values[name])
            if values == before:
                return

    # --- values ---------------------------------------------------------------------------------

    def value(self, node: cst.BaseExpression, values: Values) -> Padded:
        """What an expression is behind the array's end."""
        match node:
            case cst.Integer() | cst.Float():
                return padding.number(node.evaluated_value)
            case cst.Name():
                return self._named(node, values)
            case cst.UnaryOperation(operator=operator, expression=inner):
                found = self.value(inner, values)
                inverts = isinstance(operator, cst.BitInvert | cst.Not)
                return (
                    padding.inverse(found)
                    if inverts
                    else (padding.negative(found) if isinstance(operator, cst.Minus) else found)
                )
            case cst.BinaryOperation(left=left, operator=operator, right=right):
                return self._operation(node, self.value(left, values), self.value(right, values))
            case cst.BooleanOperation(left=left, operator=operator, right=right):
                made = padding.conjunction if isinstance(operator, cst.And) else padding.disjunction
                return made(self.value(left, values), self.value(right, values))
            case cst.Comparison(left=left, comparisons=[target]):
                one, other = self.value(left, values), self.value(target.comparator, values)
                return padding.compared(one, target.operator, other)
            case cst.IfExp(test=test, body=one, orelse=other):
                self.value(test, values)
                return padding.either(self.value(one, values), self.value(other, values))
            case cst.Tuple(elements=elements) | cst.List(elements=elements):
                return _listed([self.value(each.value, values) for each in elements])
            case cst.Subscript(value=inner):
                return self.value(inner, values)
            case cst.Attribute(value=inner, attr=cst.Name(value=attribute)):
                if attribute == "inf":
                    return padding.number(float("inf"))
                found = self.value(inner, values)
                return found if attribute == "T" else NONE
            case cst.Call():
                return self._called(node, values)
        return NONE

    def _named(self, name: cst.Name, values: Values) -> Padded:
        if name.value in values:
            return values[name.value]
        if name.value == self.flow.constant and name.value not in self.flow.kernel.constants:
            return SIZE
        behind = self.flow.source.resolve(name)
        return NONE if isinstance(behind, cst.Name | cst.Tuple) else self.value(behind, {})

    def _operation(self, node: cst.BinaryOperation, one: Padded, other: Padded) -> Padded:
        if isinstance(node.operator, cst.MatrixMultiply):
            return self._product(node, [one, other], None)
        if Pad.SIZE in (one.kind, other.kind) and one.flat and other.flat:
            is_product = isinstance(node.operator, cst.Multiply)
            both = one.kind is other.kind
            multiple = is_product or both or one.value is not None or other.value is not None
            return SIZE if multiple else NONE
        made = _made_by(node.operator)(one, other)
        source = self.flow.source
        squares = isinstance(node.operator, cst.Multiply) and source.code(node.left) == source.code(
            node.right
        )
        return replace(made, positive=True) if squares else made

    def _called(self, call: cst.Call, values: Values) -> Padded:
        source, dialect = self.flow.source, self.flow.dialect
        called = dialect.called(source, call) or ""
        bare, nodes = called.rpartition(".")[2], [a.value for a in call.args]
        if isinstance(call.func, cst.Attribute) and not dialect.owns(source.name(call.func)):
            bare, nodes = call.func.attr.value, [call.func.value, *nodes]
        given = [self.value(each, values) for each in nodes]
        helper = source.function_of(call.func)
        if helper is not None:
            return self._helped(helper, call, values)
        if call in self.reductions:
            if given and not padding.is_neutral(bare, given[0]):
                self.counted[call] = None
            return padding.scanned(bare, given[0]) if given else NONE
        if called in dialect.dots:
            accumulator = argument(call, 2, "acc")
            last = self.value(accumulator, values) if accumulator is not None else None
            return self._product(call, given[:2], last)
        self._bounded(call, values)
        if called in dialect.loads:
            return self._loaded(call, values)
        if (stored := dialect.stored(source, call)) is not None:
            written = self.value(stored, values)
            if self.stored.setdefault(call, written).flat:
                self.stored[call] = written
            self._scattered(call, bare, written, values)
            return NONE
        if called in dialect.iotas:
            return INDEX if any(each.kind is Pad.SIZE for each in given) else ACROSS
        if called in dialect.shapes and bare.startswith("make_"):
            return INDEX if any(each.kind is Pad.SIZE for each in given) else NONE
        if called in dialect.accumulators:
            return self._made(call, bare, values)
        if bare == "where" and len(given) == 3:
            return padding.chosen(given[0], given[1], given[2])
        if bare in _COMPARED and len(given) == 2:
            return padding.compared(given[0], _COMPARED[bare](), given[1])
        if bare in padding.BINARY and len(given) >= 2:
            made = padding.BINARY[bare](given[0], given[1])
            squares = bare == "mul" and source.code(nodes[0]) == source.code(nodes[1])
            return replace(made, positive=True) if squares else made
        if bare == "float" and call.args and source.code(call.args[0].value).strip("\"'") in (
            "inf", "-inf"
        ):  # fmt: skip
            return padding.number(float(source.code(call.args[0].value).strip("\"'")))
        if called in dialect.reductions and given:
            return given[0]
        if called in dialect.shape_queries or called in dialect.program_ids:
            return NONE
        return padding.mapped(bare, given)

    def _helped(self, helper: Function, call: cst.Call, values: Values) -> Padded:
        if self.deep >= _DEEPEST:
            return OTHER
        inside = {n: self.value(v, values) for n, v in given_to(helper, call).items()}
        inner = replace(self, returned=[], deep=self.deep + 1)
        inner.body(helper.node.body, inside)
        found = inner.returned or [NONE]
        for other in found[1:]:
            found[0] = padding.either(found[0], other)
        return found[0]

    def _loaded(self, call: cst.Call, values: Values) -> Padded:
        """What a load pads with, where its tile goes along the axis."""
        shape = self.flow.dialect.shapes.get(self.flow.called(call))
        given = shape.of(call) if shape is not None else None
        if given is not None:
            along = self.value(given, values).kind is Pad.SIZE
        else:
            along = not all(self.value(each.value, values).flat for each in call.args[:2])
        if not along:
            return NONE
        pads = self.flow.dialect.padding(self.flow.source, call)
        found = padding.number(pads) if isinstance(pads, float) else self.value(pads, values)
        return replace(found.filled, positive=False)

    def _bounded(self, call: cst.Call, values: Values) -> None:
        """Of an access at places along the axis, a mask has to say where the axis ends."""
        mask = self.flow.dialect.mask(self.flow.source, call)
        if mask is None or self.value(call.args[0].value, values).kind is not Pad.INDEX:
            return
        found = self.value(mask, values)
        if found.kind is not Pad.ZERO or not found.bound:
            self.unbounded[call] = None

    def _scattered(self, call: cst.Call, bare: str, stored: Padded, values: Values) -> None:
        """Of a store at places that were loaded, padding has places, too."""
        scatters = self.flow.called(call) in self.flow.dialect.scatters
        places = argument(call, 1, "indices")
        if not scatters or places is None or keyword(call, "mask") is not None:
            return
        found = self.value(places, values)
        adds_nothing = bare == "atomic_add" and stored.kind is Pad.ZERO
        if found.kind in (Pad.ZERO, Pad.OTHER) and not adds_nothing:
            self.counted[call] = None

    def _made(self, call: cst.Call, bare: str, values: Values) -> Padded:
        """A tile out of nothing, which may be what all rounds add to."""
        shape = self.flow.dialect.shapes[self.flow.called(call)]
        given = shape.of(call)
        filling = {"zeros": 0.0, "ones": 1.0}.get(bare)
        value = argument(call, 1, "fill_value") or argument(call, 1, "value")
        if filling is None and value is not None:
            filling = self.value(value, values).value
        neutral = filling is not None and padding.number(filling).filled.kind is not Pad.MASKED
        if given is None or self.value(given, values).kind is not Pad.SIZE:
            edges = given.elements if isinstance(given, cst.Tuple | cst.List) else ()
            whole = len(edges) > 1 and all(self.flow.source.code(e.value) != "1" for e in edges)
            return Padded(Pad.WHOLE if whole else Pad.NONE, value=filling)
        if filling is None:
            return NONE
        return Padded(Pad.SUM if neutral else Pad.OTHER, positive=filling >= 0, value=filling)

    def _product(
        self, node: cst.BaseExpression, sides: Sequence[Padded], accumulator: Padded | None
    ) -> Padded:
        """A product of matrices: along the axis itself where the accumulator lacks it."""
        kinds = {side.kind for side in sides}
        flat = all(side.flat for side in sides)
        if not any(side.flat for side in sides):
            self.contracted[node] = None
        zero = bool(kinds & {Pad.ZERO, Pad.MASKED}) and not kinds & {
            Pad.LOW,
            Pad.HIGH,
        }
        if accumulator is not None and accumulator.flat:
            if not flat and not zero and kinds - {Pad.SUM, *padding.FLAT}:
                self.counted[node] = None
            return Padded(accumulator.kind)
        if flat:
            return accumulator or NONE
        return ZERO if zero else (Padded(Pad.SUM) if kinds <= {Pad.SUM, *padding.FLAT} else OTHER)


def _made_by(operator: cst.CSTNode) -> Callable[[Padded, Padded], Padded]:
    return _ARITHMETIC.get(type(operator), lambda *_: OTHER)


def _listed(values: Sequence[Padded]) -> Padded:
    """A tuple: of a shape it matters whether the size is in it."""
    return SIZE if any(each.kind is Pad.SIZE for each in values) else padding.together(*values)
