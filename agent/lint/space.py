"""The configs of a search, as far as the source tells: how many, and which values of a hint."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod

import libcst as cst

from agent.analysis.cutile.dialect import CT
from agent.analysis.cutile.kernel_file import KernelFile
from agent.syntax import Function, argument, descendants, keyword, positional

SEARCH = f"{CT}tune.exhaustive_search"
LISTS = ("builtins.list", "builtins.sorted", "builtins.tuple")
LAZY = ("builtins.enumerate", "builtins.filter", "builtins.iter", "builtins.map",
        "builtins.reversed", "builtins.zip")  # fmt: skip
PRODUCT = "itertools.product"
RANGE = ("builtins.range", "range")
READERS = frozenset({*LISTS, *LAZY, PRODUCT, SEARCH, "builtins.len", "builtins.print"})
"""They leave a list that they are given as it is."""


def is_generator(file: KernelFile, expression: cst.BaseExpression) -> bool:
    """Whether a search space has no length: `exhaustive_search` takes that first."""
    value = file.source.resolve(expression)
    if isinstance(value, cst.GeneratorExp):
        return True
    if not isinstance(value, cst.Call):
        return False
    called = file.called(value)
    if called in LAZY or called.startswith("itertools."):
        return True
    function = file.source.function_of(value.func)
    return function is not None and _yields(file, function)


def at_least(file: KernelFile, expression: cst.BaseExpression) -> int:
    """So many configs there are, or more; 0 when the source does not tell."""
    value = file.source.resolve(expression)
    match value:
        case cst.List() | cst.Tuple() | cst.Set():
            return sum(
                at_least(file, e.value) if isinstance(e, cst.StarredElement) else 1
                for e in value.elements
            )
        case cst.ListComp(for_in=loop) | cst.GeneratorExp(for_in=loop) | cst.SetComp(for_in=loop):
            return _rounds(file, loop)
        case cst.Call():
            return _of_call(file, value)
    return 0


def is_empty(file: KernelFile, expression: cst.BaseExpression) -> bool:
    """Whether there surely is no config at all."""
    value = file.source.resolve(expression)
    if isinstance(expression, cst.Name) and not (
        isinstance(value, cst.Tuple) or _only_read(file, expression)
    ):
        return False
    match value:
        case cst.List() | cst.Tuple() | cst.Set():
            return all(
                isinstance(e, cst.StarredElement) and is_empty(file, e.value)
                for e in value.elements
            )
        case cst.Dict(elements=elements):
            return not elements
        case cst.ListComp(for_in=loop) | cst.GeneratorExp(for_in=loop) | cst.SetComp(for_in=loop):
            return any(is_empty(file, part.iter) for part in descendants(loop, cst.CompFor))
        case cst.IfExp(body=body, orelse=orelse):
            return all(is_empty(file, side) for side in (body, orelse))
        case cst.Call():
            return _is_empty_call(file, value)
    return False


def _is_empty_call(file: KernelFile, call: cst.Call) -> bool:
    called = file.called(call)
    given = positional(call)
    if called in LISTS:
        return not call.args or (bool(given) and is_empty(file, given[0]))
    if called in LAZY:
        return bool(given) and is_empty(file, given[-1])
    if called == PRODUCT:
        return any(is_empty(file, value) for value in given)
    if called in RANGE:
        ends = [end for value in given if (end := file.integer(value)) is not None]
        return 0 < len(ends) == len(call.args) and not range(*ends)
    function = file.source.function_of(call.func)
    if function is None:
        return False
    if _yields(file, function):
        found = descendants(function.node.body, cst.Yield)
        return not any(_is_reached(file, node, function) for node in found)
    returns = [r.value for r in descendants(function.node.body, cst.Return)]
    return len(returns) == 1 and returns[0] is not None and is_empty(file, returns[0])


def _is_reached(file: KernelFile, node: cst.Yield, function: Function) -> bool:
    """Whether a `yield` may give something."""
    if isinstance(node.value, cst.From) and is_empty(file, node.value.item):
        return False
    around = itertools.takewhile(lambda n: n is not function.node, file.source.ancestors(node))
    return not any(isinstance(n, cst.For) and is_empty(file, n.iter) for n in around)


def _only_read(file: KernelFile, name: cst.Name) -> bool:
    """Whether what a name holds stays what it is: nothing is appended to it, or may be."""
    return all(
        _is_harmless(file, use)
        for assignment in file.source.assignments(name)
        for use in file.source.uses(assignment)
    )


def _is_harmless(file: KernelFile, use: cst.Name) -> bool:
    parent, above, *_ = (*file.source.ancestors(use), None, None)
    if isinstance(parent, cst.Arg):
        return isinstance(above, cst.Call) and file.called(above) in READERS
    if isinstance(parent, cst.For | cst.CompFor):
        return parent.iter is use
    return isinstance(
        parent, cst.From | cst.If | cst.IfExp | cst.StarredElement | cst.UnaryOperation
    )


def _rounds(file: KernelFile, loop: cst.CompFor) -> int:
    """How often a comprehension's element is made."""
    if loop.ifs:
        return 0
    inner = _rounds(file, loop.inner_for_in) if loop.inner_for_in is not None else 1
    return at_least(file, loop.iter) * inner


def _of_call(file: KernelFile, call: cst.Call) -> int:
    called = file.called(call)
    given = positional(call)
    if called in LISTS and given:
        return at_least(file, given[0])
    if called in RANGE:
        ends = [file.integer(value) for value in given]
        if not ends or any(end is None for end in ends):
            return 0
        return len(range(*(end for end in ends if end is not None)))
    if (
        called == PRODUCT
        and keyword(call, "repeat") is None
        and len(given) == len(call.args) - sum(arg.keyword is not None for arg in call.args)
    ):
        return prod(at_least(file, value) for value in given)
    function = file.source.function_of(call.func)
    return _of_function(file, function) if function is not None else 0


def _of_function(file: KernelFile, function: Function) -> int:
    returns = [r for r in descendants(function.node.body, cst.Return) if r.value is not None]
    if _yields(file, function):
        early = any(True for _ in descendants(function.node.body, cst.Return))
        return 0 if early else _yielded(file, function.node.body)
    if len(returns) == 1 and returns[0].value is not None:
        return at_least(file, returns[0].value)
    return 0


def _yields(file: KernelFile, function: Function) -> bool:
    found = descendants(function.node.body, cst.Yield)
    return any(file.source.enclosing(node) is function for node in found)


def _yielded(file: KernelFile, suite: cst.BaseSuite) -> int:
    """How many configs the statements of a generator yield, whatever its branches."""
    return sum(_of_statement(file, statement) for statement in suite.body)


def _of_statement(file: KernelFile, statement: cst.BaseStatement | cst.BaseSmallStatement) -> int:
    match statement:
        case cst.SimpleStatementLine():
            return sum(_of_statement(file, part) for part in statement.body)
        case cst.Expr(value=cst.Yield(value=cst.From(item=item))):
            return at_least(file, item)
        case cst.Expr(value=cst.Yield()):
            return 1
        case cst.For() if not _jumps(statement):
            return at_least(file, statement.iter) * _yielded(file, statement.body)
        case cst.If(orelse=cst.Else() as orelse):
            return min(_yielded(file, statement.body), _yielded(file, orelse.body))
        case cst.If(orelse=cst.If() as orelse):
            return min(_yielded(file, statement.body), _of_statement(file, orelse))
    return 0


def _jumps(loop: cst.For) -> bool:
    """Whether a round may be cut short."""
    jumps = (*descendants(loop, cst.Break), *descendants(loop, cst.Continue))
    return bool(jumps)


def configs(file: KernelFile, expression: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The expressions that make configs: elements of a list, of a comprehension, of `yield`."""
    value = file.source.resolve(expression)
    match value:
        case cst.List() | cst.Tuple():
            for element in value.elements:
                if isinstance(element, cst.StarredElement):
                    yield from configs(file, element.value)
                else:
                    yield element.value
        case cst.ListComp(elt=element) | cst.GeneratorExp(elt=element):
            yield element
        case cst.Call():
            if file.called(value) in LISTS and value.args:
                yield from configs(file, value.args[0].value)
            function = file.source.function_of(value.func)
            if function is None:
                return
            for node in descendants(function.node.body, cst.Yield):
                if isinstance(node.value, cst.BaseExpression):
                    yield node.value
                elif isinstance(node.value, cst.From):
                    yield from configs(file, node.value.item)
            for back in descendants(function.node.body, cst.Return):
                if back.value is not None:
                    yield from configs(file, back.value)


def values(file: KernelFile, expression: cst.BaseExpression, field: str) -> set[int] | None:
    """The values of a field of the configs; None when the source does not tell them all."""
    found: set[int] = set()
    for config in configs(file, expression):
        match file.source.resolve(config):
            case cst.Call() as made:
                value = keyword(made, field)
            case cst.Dict() as made_of:
                value = next(
                    (e.value for e in made_of.elements if isinstance(e, cst.DictElement)
                     and isinstance(e.key, cst.SimpleString) and e.key.raw_value == field),
                    None,
                )  # fmt: skip
            case other:
                value = other
        ones = _integers(file, value) if value is not None else None
        if ones is None:
            return None
        found |= ones
    return found or None


def _integers(file: KernelFile, value: cst.BaseExpression) -> set[int] | None:
    """An integer, or those that a loop's variable runs through."""
    if (number := file.integer(value)) is not None:
        return {number}
    if not isinstance(value, cst.Name):
        return None
    assignments = file.source.assignments(value)
    target = assignments[0].node if len(assignments) == 1 else value
    loop = next(file.source.ancestors(target), None)
    if not isinstance(loop, cst.For | cst.CompFor) or loop.target is not target:
        return None
    items = file.source.resolve(loop.iter)
    elements = items.elements if isinstance(items, cst.List | cst.Tuple) else ()
    numbers = [file.integer(element.value) for element in elements]
    known = {number for number in numbers if number is not None}
    return known if None not in numbers else None


def hint_of_config(file: KernelFile, search: cst.Call, hint: str) -> str | None:
    """The field of a config that becomes a hint: of `lambda cfg: {"occupancy": cfg.occ}`, 'occ'."""
    made = file.result_of(argument(search, 5, "hints_fn"))
    for element in made.elements if isinstance(made, cst.Dict) else ():
        if (
            isinstance(element, cst.DictElement)
            and isinstance(element.key, cst.SimpleString)
            and element.key.raw_value == hint
        ):
            match element.value:
                case cst.Attribute(value=cst.Name(), attr=cst.Name(value=field)):
                    return field
                case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index(value=index))]):
                    return index.raw_value if isinstance(index, cst.SimpleString) else None
                case cst.Name():
                    return hint
    return None
