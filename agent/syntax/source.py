"""Reading a source file: functions, calls, and what a name stands for.

Names are resolved through the file's imports and scopes, never by their text: `T.load` is
`triton.language.load` after `import triton.language as T`, and `json.load` is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from threading import get_ident
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import (
    Assignment,
    BaseAssignment,
    CodeRange,
    GlobalScope,
    QualifiedName,
    Scope,
)
from libcst.metadata.scope_provider import ImportAssignment

from agent.syntax.edit import Edits, apply_edits
from agent.syntax.imported import handed_on, only
from agent.syntax.integers import integer_of
from agent.syntax.one_line import OnOneLine
from agent.syntax.places import Places
from agent.syntax.replaced import replaced
from agent.syntax.scopes import scopes
from agent.syntax.tree import children, descendants, value_of_target
from agent.syntax.tuples import parse

BYTE_ORDER_MARK = "\ufeff"
KEPT = 64
"""How many of the latest sources are kept, with their trees, in case they are made again."""


class Untraceable(Exception):
    """An expression is not one integer of the file; the message, a predicate, says what it is."""


@dataclass(frozen=True)
class Function:
    """A function or method of the file."""

    node: cst.FunctionDef
    name: str
    """Dotted as Python's `__qualname__`, without its `<locals>`: 'softmax', 'Softmax.forward'."""

    @property
    def parameters(self) -> tuple[cst.Param, ...]:
        """Every parameter that can be named in a call, in order."""
        listed = self.node.params
        return (*listed.posonly_params, *listed.params, *listed.kwonly_params)


@dataclass(frozen=True)
class Literal:
    """An integer of the file and the names that carry it to where it is used."""

    value: int
    node: Any
    """What an edit replaces: a `cst.Integer`, or an expression of integers alone if asked for."""
    names: tuple[cst.Name, ...] = ()
    """From the use back to the literal; empty for a literal written in place."""
    assignments: tuple[Assignment, ...] = ()
    """What each of the names is assigned by."""
    is_default: bool = False
    """It is the default of a parameter, so that a caller may pass another value."""


Node = TypeVar("Node", bound=cst.CSTNode)
Found = TypeVar("Found")


def _remembered(
    method: Callable[[Source, Node], Found],
) -> Callable[[Source, Node], Found]:
    """What a source says of a node, worked out once."""

    @wraps(method)
    def asked(source: Source, node: Node) -> Found:
        known = source.memory[method.__name__]
        if node not in known:
            known[node] = method(source, node)
        found: Found = known[node]
        return found

    return asked


@dataclass(frozen=True, eq=False, init=False)
class Source:
    """The text of a kernel file, parsed once: made again, it is the same object for a while.

    Sources that are not the same object are never equal, since their trees share no node. No node
    of a tree may be changed. Every reading property raises `libcst.ParserSyntaxError` for a text
    that is not Python.
    """

    text: str
    path: str = "kernel.py"
    timed: tuple[str, ...] = ()
    """Names of its kernels that perf tests launch, the most expensive first; none: not known."""
    moved: tuple[tuple[int, int], ...] = ()
    """Of a text that stands for the file's: its line -> how far on the file has what follows."""
    follows: bool = False
    """Whether launches count that name none of the kernels of which they launch one."""

    def __new__(
        cls,
        text: str,
        path: str = "kernel.py",
        timed: tuple[str, ...] = (),
        moved: tuple[tuple[int, int], ...] = (),
        follows: bool = False,
    ) -> Source:
        """One of the latest sources, where all of it is the same; else a new one."""
        return _source(text, path, timed, moved, follows, get_ident())

    def with_text(self, text: str) -> Source:
        """What the file would be with another text."""
        return Source(text, self.path, self.timed, follows=self.follows)

    def following(self) -> Source:
        """The file where launches by other names count; both have the nodes of one tree."""
        return Source(self.text, self.path, self.timed, self.moved, follows=True)

    @cached_property
    def memory(self) -> defaultdict[str, dict[cst.CSTNode, Any]]:
        """Method -> node -> what it says of the node."""
        return defaultdict(dict)

    @cached_property
    def module(self) -> cst.Module:
        """The root of the tree that every other property speaks of."""
        return parse(self.text)

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """All functions, nested ones and methods included, in the order of the file."""
        return tuple(
            Function(node, self._function_name(node))
            for node in descendants(self.module, cst.FunctionDef)
        )

    @cached_property
    def calls(self) -> tuple[cst.Call, ...]:
        """All calls, in the order of the file."""
        return tuple(descendants(self.module, cst.Call))

    def line(self, node: cst.CSTNode) -> int:
        """The line of the file a node begins on, from 1; a function begins at its `def`."""
        begins = node.name if isinstance(node, cst.FunctionDef) else node
        found = self.place(begins).start.line
        return found + next((by for line, by in reversed(self.moved) if line <= found), 0)

    def place(self, node: cst.CSTNode) -> CodeRange:
        """Where a node begins and ends: lines from 1, columns from 0."""
        return self._places[node]

    @_remembered
    def code(self, node: cst.CSTNode) -> str:
        """The text of a node on one line, without comments and backslashes that continue lines."""
        text = self.module.code_for_node(node)
        if "#" in text or "\\" in text:
            bare = node.visit(OnOneLine())
            assert isinstance(bare, cst.CSTNode)
            text = self.module.code_for_node(bare)
        return " ".join(text.split())

    @_remembered
    def name(self, expression: cst.CSTNode) -> str | None:
        """The dotted name an expression stands for, or None.

        Follows imports and module-level aliases, and looks through a subscript:
        `ConstInt = ct.Constant[int]` makes `ConstInt` stand for `cuda.tile.Constant`. What a call
        returns has no name, nor has a method of it: `tl.program_id(0).to`.
        """
        if isinstance(expression, cst.Subscript):
            return self.name(expression.value)
        if isinstance(expression, cst.SimpleString):
            return self._only(self._global_scope.get_qualified_names_for(str(expression.raw_value)))
        if not isinstance(expression, cst.Name | cst.Attribute):
            return None
        aliased = self.resolve(expression)
        if aliased is not expression:
            return self.name(aliased)
        root: cst.BaseExpression = expression
        while isinstance(root, cst.Attribute):
            root = root.value
        return self._only(self._qualified_names(expression)) if isinstance(root, cst.Name) else None

    @_remembered
    def resolve(self, expression: cst.BaseExpression) -> cst.BaseExpression:
        """The value behind a name that is assigned once; any other expression itself."""
        seen: set[Assignment] = set()
        while isinstance(expression, cst.Name):
            try:
                assignment, value = self._assigned_value(expression)
            except Untraceable:
                break
            if assignment in seen:
                break
            seen.add(assignment)
            expression = value
        return expression

    def function_of(self, expression: cst.BaseExpression) -> Function | None:
        """The function of this file that an expression names."""
        named = self.name(expression)
        return self._functions_by_name.get(named) if named is not None else None

    @_remembered
    def enclosing(self, node: cst.CSTNode) -> Function | None:
        """The innermost function whose body holds the node."""
        child = node
        for parent in self.ancestors(node):
            if isinstance(parent, cst.FunctionDef) and child is parent.body:
                return self._functions_by_node[parent]
            child = parent
        return None

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around a node, innermost first."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def decorator(self, function: Function, name: str) -> cst.Decorator | None:
        """The decorator of that dotted name, called or bare."""
        for decorator in function.node.decorators:
            expression = decorator.decorator
            if isinstance(expression, cst.Call):
                expression = expression.func
            if self.name(expression) == name:
                return decorator
        return None

    def trace(self, expression: cst.BaseExpression, *, computed: bool = False) -> Literal:
        """Follow an expression back to the integer it always is; if asked for, one like `2**4`.

        Raises:
            Untraceable: it is computed, imported, assigned more than once, or handed in.
        """
        names: list[cst.Name] = []
        path: list[Assignment] = []
        while isinstance(expression, cst.Name):
            assignment, value = self._assigned_value(expression, defaults=True)
            if assignment in path:
                raise Untraceable(f"is `{expression.value}`, which is assigned to itself")
            names.append(expression)
            path.append(assignment)
            expression = value
        found = integer_of(expression)
        if found is None or not (computed or isinstance(expression, cst.Integer)):
            raise Untraceable(f"is computed: `{self.code(expression)}`")
        is_default = any(isinstance(a.node, cst.Param) for a in path)
        return Literal(found, expression, tuple(names), tuple(path), is_default)

    def uses(self, assignment: Assignment) -> tuple[cst.Name, ...]:
        """Where an assigned name is read, in the order of the file."""
        nodes = {a.node for a in assignment.references if isinstance(a.node, cst.Name)}
        return tuple(sorted(nodes, key=self.line))

    def mentions(self, function: Function) -> tuple[cst.Name, ...]:
        """Where a function is named, but for its own definition."""
        wanted = function.node.name.value
        names = (n for n in descendants(self.module, cst.Name) if n.value == wanted)
        defining = {function.node.name, *(f.name for f in self.replaced)}
        return tuple(n for n in names if self.function_of(n) is function and n not in defining)

    @cached_property
    def replaced(self) -> frozenset[cst.FunctionDef]:
        """Functions of which later ones of the same name take the place: their names mean those."""
        return replaced(self.module)

    def assignments(self, name: cst.Name) -> tuple[Assignment, ...]:
        """The assignments a name may stand for, in its scope or the ones around it."""
        scope = self._scopes.get(name)
        if scope is None:
            return ()
        found: set[BaseAssignment] = scope[name.value]
        return tuple(a for a in found if isinstance(a, Assignment))

    def assigned_to(self, target: cst.CSTNode) -> cst.BaseExpression | None:
        """The value that a statement assigns to a target alone; None for a loop's, for one."""
        return value_of_target(target, self._parents)

    def scope(self, node: cst.CSTNode) -> Scope | None:
        """The scope in which a node stands; None for names that belong to another one."""
        return self._scopes.get(node)

    def rewrite(self, edits: Edits) -> str:
        """The text after the edits; everything they do not touch stays byte for byte."""
        mark = BYTE_ORDER_MARK if self.text.startswith(BYTE_ORDER_MARK) else ""
        around = {a for node in edits for a in self.ancestors(node)}
        return mark + apply_edits(self.module, edits, around)

    @cached_property
    def _functions_by_name(self) -> dict[str, Function]:
        return {f.name: f for f in reversed(self.functions) if f.node not in self.replaced}

    @cached_property
    def _functions_by_node(self) -> dict[cst.FunctionDef, Function]:
        return {f.node: f for f in self.functions}

    @cached_property
    def _places(self) -> Places:
        return Places(self.module)

    @cached_property
    def _parents(self) -> Mapping[cst.CSTNode, cst.CSTNode]:
        found: dict[cst.CSTNode, cst.CSTNode] = {}
        left: list[cst.CSTNode] = [self.module]
        for parent in left:
            for child in children(parent):
                found[child] = parent
                left.append(child)
        return found

    @cached_property
    def _scopes(self) -> Mapping[cst.CSTNode, Scope | None]:
        return scopes(self.module)

    @cached_property
    def _global_scope(self) -> Scope:
        return next(s for s in self._scopes.values() if isinstance(s, GlobalScope))

    def _function_name(self, node: cst.FunctionDef) -> str:
        """By what is around it: scopes, which take as long as all the rest, are not needed."""
        around = (a for a in self.ancestors(node) if isinstance(a, cst.FunctionDef | cst.ClassDef))
        return ".".join(reversed([each.name.value for each in (node, *around)]))

    @cached_property
    def _handed_on(self) -> Mapping[str, str]:
        return handed_on(self.module)

    def _only(self, names: Collection[QualifiedName]) -> str | None:
        return only(names, self._handed_on)

    def _qualified_names(self, node: cst.CSTNode) -> Collection[QualifiedName]:
        scope = self._scopes.get(node)
        return scope.get_qualified_names_for(node) if scope is not None else ()

    def _assigned_value(
        self, name: cst.Name, *, defaults: bool = False
    ) -> tuple[Assignment, cst.BaseExpression]:
        """The one assignment of a name and the expression it assigns."""
        assignments = self.assignments(name)
        if not assignments:
            raise Untraceable(f"is `{name.value}`, which is not assigned in this file")
        if len(assignments) > 1:
            raise Untraceable(f"is `{name.value}`, which is assigned {len(assignments)} times")
        (assignment,) = assignments
        node = assignment.node
        if isinstance(assignment, ImportAssignment):
            raise Untraceable(f"is `{name.value}`, which is imported")
        if isinstance(node, cst.Param):
            if defaults and node.default is not None:
                return assignment, node.default
            raise Untraceable(f"is `{name.value}`, which is a parameter")
        value = self.assigned_to(node)
        if value is None:
            raise Untraceable(f"is `{name.value}`, which is not assigned a plain value")
        return assignment, value


@lru_cache(maxsize=KEPT)
def _source(
    text: str,
    path: str,
    timed: tuple[str, ...],
    moved: tuple[tuple[int, int], ...],
    follows: bool,
    thread: int,  # noqa: ARG001
) -> Source:
    """A new source; a thread has its own, since a tree is worked out bit by bit."""
    source = object.__new__(Source)
    if follows:
        plain = Source(text, path, timed, moved)
        assert plain.functions is not None
        assert plain.memory is not None
        source.__dict__.update(plain.__dict__)
    object.__setattr__(source, "text", text)
    object.__setattr__(source, "path", path)
    object.__setattr__(source, "timed", timed)
    object.__setattr__(source, "moved", moved)
    object.__setattr__(source, "follows", follows)
    return source
