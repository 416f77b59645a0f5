"""Values that depend on where an element stands within its block, or on which elements share one.

`tl.arange(0, BLOCK)` gives the number of an element once the number of its block times the size is
added. By itself it begins again with every block: what is masked by it, loaded at it, or asked of
it is other with blocks of another size. So is what a program puts together of its block's parts, or
counts once for the whole block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Flag

import libcst as cst

from agent.analysis.common.constant_flow import Flow, is_multiple_of
from agent.syntax import argument, assigned, children, descendants, names_in, positional


class Part(Flag):
    """What a value is computed from."""

    NONE = 0
    PLACE = 1
    """Places of elements within their block."""
    BASE = 2
    """Where a block begins."""
    DATA = 4
    """Loaded values."""


_ANY = Part.PLACE | Part.BASE | Part.DATA
"""Of what is not followed: it counts as an element's number, and as computed from it."""
_ADDING = (cst.AddAssign, cst.SubtractAssign)
_COUNTING = ("atomic_add", "atomic_xor")


def bound_to_block(flow: Flow) -> str | None:
    """Why a result may depend on which elements form a block; None where none is seen to."""
    places = _InBlock(flow)
    places.follow()
    line = flow.source.line
    if not places.blocked:
        return None
    if (found := places.compared() or places.addressed()) is not None:
        return f"line {line(found)} depends on the place of an element within its block"
    if (store := places.counted()) is not None:
        return f"line {line(store)} counts its blocks, so that they have one size"
    if (product := places.multiplied()) is not None:
        return f"line {line(product)} multiplies what one block holds with itself"
    if (value := places.accumulated()) is not None:
        return f"line {line(value)} puts the parts of one block together"
    return None


def within_block(flow: Flow, loop: cst.For) -> bool:
    """Whether a loop goes over one block, as `range(0, BLOCK, 16)` does, and not over the axis."""
    bounds = loop.iter
    if not isinstance(bounds, cst.Call) or flow.called(bounds) not in flow.dialect.ranges:
        return False
    given = positional(bounds)
    step = argument(bounds, 2, "step")
    if not given or (step is not None and flow.carries(step)):
        return False
    begins = given[0] if len(given) > 1 else None
    end = given[1] if len(given) > 1 else given[0]
    return (begins is None or not flow.carries(begins)) and _part_of_size(flow, end)


def _part_of_size(flow: Flow, node: cst.BaseExpression) -> bool:
    """Whether a value is the size, a multiple of it, or a part: `BLOCK // 16`."""
    behind = flow.source.resolve(node) if isinstance(node, cst.Name) else node
    if isinstance(behind, cst.BinaryOperation) and isinstance(behind.operator, cst.FloorDivide):
        return _part_of_size(flow, behind.left)
    if isinstance(behind, cst.Call):
        called = flow.called(behind)
        return called in flow.dialect.cdivs and _part_of_size(flow, positional(behind)[0])
    return any(
        is_multiple_of(each, flow.sizes)
        and not any(name.value not in flow.sizes for name in descendants(each, cst.Name))
        for each in (node, behind)
    )


@dataclass
class _InBlock:
    """The values of a kernel's names, whatever way leads to them."""

    flow: Flow
    names: dict[str, Part] = field(default_factory=dict)
    blocked: bool = False
    """The axis is seen to be cut into blocks; else one may be all of it."""

    def follow(self) -> None:
        """Find what each name is computed from."""
        augmented = {id(each.value): each for each in descendants(self.flow.body, cst.AugAssign)}

        def adds(step: cst.AugAssign) -> bool:
            return isinstance(step.operator, _ADDING)

        loops = {id(loop.iter): loop for loop in descendants(self.flow.body, cst.For)}
        while True:
            before = dict(self.names)
            for target, value in assigned(self.flow.body):
                if (loop := loops.get(id(value))) is not None:
                    self._give(target, self._counter(loop))
                    continue
                found = self.part(value)
                step = augmented.get(id(value))
                goes_on = self._continues(target, value) if step is None else adds(step)
                mentioned = names_in(value)
                if goes_on and mentioned & self.flow.sizes:
                    found |= Part.BASE
                    self.blocked = True
                self._assign(target, value, found)
            if self.names == before:
                return

    def _continues(self, target: cst.BaseExpression, value: cst.BaseExpression) -> bool:
        """Whether it is `start = start + BLOCK`."""
        return isinstance(target, cst.Name) and target.value in names_in(value)

    def _assign(self, target: cst.BaseExpression, value: cst.BaseExpression, found: Part) -> None:
        names = target.elements if isinstance(target, cst.Tuple | cst.List) else ()
        parts = value.elements if isinstance(value, cst.Tuple | cst.List) else ()
        if not names or len(names) != len(parts):
            self._give(target, found)
            return
        for name, part in zip(names, parts, strict=True):
            self._give(name.value, self.part(part.value))

    def _give(self, target: cst.BaseExpression, part: Part) -> None:
        for name in descendants(target, cst.Name):
            self.names[name.value] = self.names.get(name.value, Part.NONE) | part

    def _counter(self, loop: cst.For) -> Part:
        if not isinstance(loop.iter, cst.Call):
            return self.part(loop.iter)
        if within_block(self.flow, loop):
            return Part.PLACE
        step = argument(loop.iter, 2, "step")
        found = Part.NONE
        for arg in loop.iter.args:
            found |= self.part(arg.value)
        if step is not None and self.flow.carries(step):
            self.blocked = True
            found |= Part.BASE
        return found

    def part(self, node: cst.CSTNode) -> Part:
        """What an expression is computed from."""
        match node:
            case cst.Name(value=name):
                return self.names.get(name, Part.NONE)
            case cst.Attribute(value=inner) | cst.Arg(value=inner) | cst.Subscript(value=inner):
                return self.part(inner)
            case cst.Comparison():
                return self._below(node) & Part.DATA
            case cst.BinaryOperation():
                return self._operation(node)
            case cst.Call():
                return self._called(node)
        return self._below(node)

    def _below(self, node: cst.CSTNode) -> Part:
        found = Part.NONE
        for child in children(node):
            found |= self.part(child)
        return found

    def _operation(self, node: cst.BinaryOperation) -> Part:
        left, right = self.part(node.left), self.part(node.right)
        sizes = self.flow.sizes
        match node.operator:
            case cst.Multiply():
                for size, count, part in (
                    (node.left, node.right, right), (node.right, node.left, left)
                ):  # fmt: skip
                    fixed = isinstance(count, cst.Integer) or Part.PLACE in part
                    sized = is_multiple_of(size, sizes) or _part_of_size(self.flow, size)
                    if sized and not fixed:
                        self.blocked = True
                        return left | right | Part.BASE
            case cst.Modulo() if is_multiple_of(node.right, sizes):
                return left & ~Part.BASE
            case cst.BitAnd():
                for part, other in ((left, node.right), (right, node.left)):
                    if self._is_last_place(other):
                        return part & ~Part.BASE
        return left | right

    def _is_last_place(self, node: cst.BaseExpression) -> bool:
        """Whether it is `BLOCK - 1`, which takes the rest of a division by a power of two."""
        behind = self.flow.source.resolve(node) if isinstance(node, cst.Name) else node
        return (
            isinstance(behind, cst.BinaryOperation)
            and isinstance(behind.operator, cst.Subtract)
            and is_multiple_of(behind.left, self.flow.sizes)
            and isinstance(behind.right, cst.Integer)
        )

    def _called(self, call: cst.Call) -> Part:
        source, dialect = self.flow.source, self.flow.dialect
        called = dialect.called(source, call) or ""
        if called in dialect.iotas:
            counts = any(self.flow.carries(arg.value) for arg in call.args)
            return Part.PLACE if counts else Part.NONE
        if called in dialect.loads or called in dialect.dots:
            return Part.DATA
        if called in dialect.program_ids:
            return Part.NONE
        found = Part.NONE
        for arg in call.args:
            found |= self.part(arg.value)
        if called in dialect.reductions:
            return found & Part.DATA
        if not dialect.owns(called):
            if isinstance(call.func, cst.Attribute) and source.function_of(call.func) is None:
                return found | self.part(call.func.value)
            return _ANY
        return _ANY if called.rpartition(".")[2].startswith("make_") else found

    # --- what depends on it ---------------------------------------------------------------------

    def _is_place(self, part: Part) -> bool:
        return Part.PLACE in part and Part.BASE not in part

    def compared(self) -> cst.CSTNode | None:
        """A comparison of a place within the block with what is not left of the axis.

        `index < n - pid * BLOCK` bounds the axis; two places of one block compare as the elements
        do; and all of them are below the size.
        """
        for node in descendants(self.flow.body, cst.Comparison):
            sides = [node.left, *(target.comparator for target in node.comparisons)]
            parts = [self.part(side) for side in sides]
            whole = isinstance(node.comparisons[0].operator, cst.LessThan) and is_multiple_of(
                sides[1], {self.flow.constant}
            )
            placed = [self._is_place(part) for part in parts]
            rest = [part for part, place in zip(parts, placed, strict=True) if not place]
            alone = not any(Part.BASE in part for part in rest) and rest
            if any(placed) and alone and not whole and not self._is_one_block(node):
                return node
        return None

    def addressed(self) -> cst.Call | None:
        """A load or store at a place within the block, where other blocks have the same places."""
        accesses = {*self.flow.dialect.loads, *self.flow.dialect.stores}
        for call in self.flow.find(self.flow.body, accesses):
            at_place = bool(call.args) and self._is_place(self.part(call.args[0].value))
            if at_place and not self._is_one_block(call):
                return call
        return None

    def _is_one_block(self, node: cst.CSTNode) -> bool:
        """Whether a node runs under a test by the size: there one block may be all of the axis."""
        return any(
            isinstance(around, cst.If)
            and any(name.value in self.flow.names for name in descendants(around.test, cst.Name))
            for around in self.flow.source.ancestors(node)
        )

    def counted(self) -> cst.Call | None:
        """What adds the same once a program, whatever its block holds: `atomic_add(count, 1)`.

        Not where what was there before is asked for: a ticket tells the last program, however many
        there are.
        """
        dialect, source = self.flow.dialect, self.flow.source
        if not self._cut_by_programs:
            return None
        for call in descendants(self.flow.body, cst.Call):
            stored = dialect.stored(source, call)
            called = (dialect.called(source, call) or "").rpartition(".")[2]
            if stored is None or called not in _COUNTING:
                continue
            alone = isinstance(next(iter(source.ancestors(call)), None), cst.Expr)
            parts = [self.part(arg.value) for arg in call.args]
            if alone and not any(parts) and not self._is_chosen(call):
                return call
        return None

    def _is_chosen(self, node: cst.CSTNode) -> bool:
        """Whether some programs only come by a node: the first of them, of however many."""
        return any(isinstance(around, cst.If) for around in self.flow.source.ancestors(node))

    @property
    def _cut_by_programs(self) -> bool:
        """Whether the number of a program is what the size is multiplied by."""
        asked = {
            name.value
            for target, value in assigned(self.flow.body)
            if any(True for _ in self._asking(value))
            for name in descendants(target, cst.Name)
        }
        for product in descendants(self.flow.body, cst.BinaryOperation):
            if isinstance(product.operator, cst.Multiply):
                for count, size in ((product.left, product.right), (product.right, product.left)):
                    names = names_in(count)
                    by_number = bool(names & asked) or any(True for _ in self._asking(count))
                    if by_number and is_multiple_of(size, self.flow.sizes):
                        return True
        return False

    def _asking(self, node: cst.CSTNode) -> Iterator[cst.Call]:
        return self.flow.find(node, self.flow.dialect.program_ids)

    def accumulated(self) -> cst.CSTNode | None:
        """A value of its data that a loop within the block goes on with from part to part.

        Not where a loop over the axis goes around it, or all programs add theirs up in memory.
        """
        source = self.flow.source
        if self._adds_up:
            return None
        for loop in descendants(self.flow.body, cst.For):
            if not within_block(self.flow, loop) or any(
                isinstance(around, cst.For | cst.While) for around in source.ancestors(loop)
            ):
                continue
            steps = {id(each.value) for each in descendants(loop.body, cst.AugAssign)}
            for target, value in assigned(loop.body):
                goes_on = id(value) in steps or self._continues(target, value)
                if goes_on and Part.DATA in self.part(value):
                    return value
        return None

    def multiplied(self) -> cst.Call | None:
        """A product of matrices over the elements of one block, without a loop over the axis."""
        if self.flow.in_loop or self._adds_up:
            return None
        flow = self.flow
        return flow.dialect.product_of_block(flow.source, flow.body, flow.names)

    @property
    def _adds_up(self) -> bool:
        """Whether programs put their results together in memory."""
        source, dialect = self.flow.source, self.flow.dialect
        stores = dialect.find(source, self.flow.body, dialect.stores)
        return any("atomic" in (dialect.called(source, call) or "") for call in stores)
