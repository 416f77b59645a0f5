"""Host code: launches, and the few functions of Triton that it calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.porting import dtypes
from agent.porting.arrays import apart, repeatable, with_stand_ins
from agent.porting.assignments import Edit
from agent.porting.constants import unwrapped
from agent.porting.context import TL, Context, names_of
from agent.porting.functions import Translated
from agent.porting.guarded_imports import stand_ins
from agent.porting.launch_comments import remarks_of, with_remarks, without_argument
from agent.porting.pasted import brought, on_one_line
from agent.porting.tuning import Tuning
from agent.porting.validity import within_f_strings
from agent.porting.values import Pointer
from agent.syntax import Source, children, descendants, edited

DROPPED = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "warmup")
CONVERTED = {f"{TL}float32": "float", f"{TL}int32": "int"}
"""What a parameter is annotated with -> what makes that of an argument, as Triton does."""
VERSION = "3.6.0"
"""Of the Triton whose way a file takes that asks which there is."""
ROUNDED = {"triton.cdiv": "cdiv", "triton.next_power_of_2": "next_power_of_2"}


class Host:
    """The host's code of a file, and what becomes of it."""

    def __init__(self, context: Context, translated: Mapping[str, Translated]) -> None:
        self.context = context
        self.edits: dict[cst.CSTNode, Edit] = {}
        self.unsaid: set[cst.Comment] = set()  # comments of what launches drop
        self._translated = translated
        self._names = names_of(context.source)

    # --- functions of Triton ---------------------------------------------------------------------

    def functions(
        self, kernels: frozenset[cst.CSTNode], given: Sequence[cst.BaseExpression]
    ) -> None:
        """Calls and types of Triton outside of kernels; imports are not looked at.

        Args:
            kernels: what is no code of the host.
            given: expressions in it that are: defaults, configs.

        Raises:
            NotPortable: one that has no equivalent.
        """
        source = self.context.source
        nodes = list(_outside(source, kernels, given))
        self.edits |= stand_ins(source, nodes)
        for node in nodes:
            if isinstance(node, cst.Call):
                named = source.name(node.func) or ""
                if named in ROUNDED:
                    self._rename(node.func, self.context.helper(ROUNDED[named]))
                elif named == f"{TL}constexpr" and len(node.args) == 1:
                    self.edits[node] = lambda new: new.args[0].value
                continue
            if isinstance(node, cst.AnnAssign) and node.value is not None:
                if source.name(node.annotation.annotation) == f"{TL}constexpr":
                    self.edits[node] = _unannotated
                continue
            if not isinstance(node, cst.Attribute | cst.Name):
                continue
            if isinstance(node, cst.Attribute) and node.attr.value == "value":
                behind = source.resolve(node.value)
                if unwrapped(source, behind) is not behind:  # `X.value` of `X = tl.constexpr(3)`
                    self.edits[node] = lambda new: new.value
                continue
            named = source.name(node) or ""
            if named == "triton.__version__":
                self._rename(node, within_f_strings(source, node, VERSION))
                self.context.note(node, f"`triton.__version__` is taken to be {VERSION}")
            kind = dtypes.OF_TRITON.get(named.removeprefix(TL)) if named.startswith(TL) else None
            if kind is not None and source.resolve(node) is node:
                self._rename(node, f"{self.context.tile}.{kind}")

    def left_over(
        self, kernels: frozenset[cst.CSTNode], given: Sequence[cst.BaseExpression]
    ) -> None:
        """Refuse what would still need Triton.

        Raises:
            NotPortable: there is something.
        """
        source = self.context.source
        kinds = (cst.Attribute, cst.Name)
        handled = {a for node in self.edits for kind in kinds for a in descendants(node, kind)}
        for node in _outside(source, kernels, given):
            if not isinstance(node, cst.Attribute | cst.Name):
                continue
            if not handled.isdisjoint(_chain(node)):
                continue
            named = source.name(node) or ""
            if named.partition(".")[0] == "triton" and source.resolve(node) is node:
                raise self.context.refuse(
                    node, f"`{named.replace(TL, 'tl.')}` in host code",
                    "take it out, or put it into another file",
                )  # fmt: skip

    def _rename(self, node: cst.CSTNode, text: str) -> None:
        self.edits[node] = lambda _: cst.parse_expression(text)

    # --- launches --------------------------------------------------------------------------------

    def launches(self, kernel: Kernel, tuning: Tuning) -> None:
        """Translate every launch of a kernel.

        Raises:
            NotPortable: one hides what it passes, or the kernel is used in another way.
        """
        source = self.context.source
        inside = {launch.node for launch in kernel.launches}
        for name in source.mentions(kernel.function):
            around = list(source.ancestors(name))
            if isinstance(around[0], cst.Subscript) and len(around[0].slice) > 1:
                raise self.context.refuse(
                    name, "a grid that is no tuple in parentheses",
                    f"launch it as `{kernel.name}[(x, y)](...)`", kernel.name,
                )  # fmt: skip
            if inside.isdisjoint(around):
                raise self.context.refuse(
                    name, "a kernel used without a launch", "launch it as `kernel[grid](...)`",
                    kernel.name,
                )  # fmt: skip
        for launch in kernel.launches:
            self._launch(kernel, launch, tuning)

    def _launch(self, kernel: Kernel, launch: Launch, tuning: Tuning) -> None:
        call = launch.node
        if not launch.complete or launch.hidden or not launch.options_shown:
            raise self.context.refuse(call, "a launch with `*` or `**`", "write its arguments out")
        line = self._line(call)
        for name in launch.hints:
            if name not in DROPPED:
                raise self.context.refuse(
                    call, f"a launch with `{name}=`", "leave it out: no parameter has that name"
                )
            self.context.note(call, f"`{name}` is dropped: cuTile chooses for itself")
        done = self._translated[kernel.name]
        shown = self._given(kernel, launch, tuning)
        given = with_stand_ins(self.context, kernel, launch, shown, done)
        arguments = [self._argument(call, p, given, done) for p in kernel.function.parameters]
        grid, before = self._grid(launch, shown)
        ct, torch = self.context.tile, self.context.torch
        names = [parameter.name.value for parameter in kernel.function.parameters]
        head = (f"{torch}.cuda.current_stream()", grid, kernel.function.node.name.value)
        text = f"{ct}.launch{_passed(head, dict(zip(names, arguments, strict=True)), launch)}"
        self.unsaid.update(without_argument(launch))
        guard = apart(self.context, kernel, launch, shown, done)
        body = "".join(f"    {part}\n" for part in (*guard, text))
        new = f"{before}if 0 not in {grid}:\n{body}"
        self.edits[line] = lambda updated: _statements(new, updated)

    def _line(self, call: cst.Call) -> cst.SimpleStatementLine:
        """The line of a launch, which has to stand alone on it."""
        source = self.context.source
        around = list(source.ancestors(call))
        line = around[1] if isinstance(around[0], cst.Expr) else None
        if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
            return line
        if line is not None:
            raise self.context.refuse(
                call, "a launch beside another statement", "write it on a line of its own"
            )
        raise self.context.refuse(
            call, "a launch inside of an expression", "write it as a statement of its own"
        )

    def _given(self, kernel: Kernel, launch: Launch, tuning: Tuning) -> dict[str, str]:
        """Parameter -> what the port passes."""
        given = {n: self._host_code(value) for n, value in launch.arguments.items()}
        elsewhere = dict(tuning.values)
        for parameter in kernel.function.parameters:
            name = parameter.name.value
            if parameter.default is not None and name not in tuning.computed:
                elsewhere.setdefault(name, parameter.default)
        for name, value in elsewhere.items():
            if name not in given:
                given[name] = self._host_code(brought(self.context, value, launch.node))
        for name, function in tuning.computed.items():
            written = self._host_code(brought(self.context, function, launch.node))
            given[name] = f"({written})({self._meta(launch, given, function)})"
        missing = [p.name.value for p in kernel.function.parameters if p.name.value not in given]
        if missing:
            raise self.context.refuse(
                launch.node, "a launch that does not pass every parameter", "pass it",
                ", ".join(missing),
            )  # fmt: skip
        return given

    def _argument(
        self, call: cst.Call, parameter: cst.Param, given: Mapping[str, str], done: Translated
    ) -> str:
        name, written = parameter.name.value, parameter.annotation
        text = given[name]
        said = CONVERTED.get(self.context.source.name(written.annotation) or "") if written else ""
        if said:
            literal = cst.Float if said == "float" else cst.Integer
            is_literal = isinstance(cst.parse_expression(text), literal)
            return text if is_literal else f"{said}({text})"
        if isinstance(done.values[name], Pointer):
            if text == "None":
                raise self.context.refuse(
                    call, "None passed for a pointer", "pass any tensor, and a flag"
                )
            return f"{self.context.helper('flat')}({text})"
        node = cst.parse_expression(text)
        if text == "None" or isinstance(node, cst.SimpleString):
            raise self.context.refuse(
                call, "None or a string passed to a kernel", "cuTile takes numbers: use a flag",
                name,
            )  # fmt: skip
        if text.startswith((f"{self.context.tile}.", f"{self.context.torch}.")):
            raise self.context.refuse(
                call, "a data type passed to a kernel", "cuTile takes no types: name it there", name
            )
        return text

    # --- the grid --------------------------------------------------------------------------------

    def _grid(self, launch: Launch, given: Mapping[str, str]) -> tuple[str, str]:
        """The name of a tuple with the grid's extents, and what assigns it."""
        source, node = self.context.source, launch.grid
        behind = source.resolve(node)
        called = source.function_of(node) if isinstance(node, cst.Name) else None
        name = self._free("blocks")
        text = self._host_code(node)
        if isinstance(behind, cst.Lambda) or called is not None:
            function = behind if isinstance(behind, cst.Lambda) else None
            meta = self._meta(launch, given, function)
            text = f"({text})" if isinstance(node, cst.Lambda) else text
            return name, f"{name} = tuple({text}({meta}))\n"
        if isinstance(node, cst.Name):
            plain = isinstance(behind, cst.Tuple)
            return (text, "") if plain else self._chosen(launch, given, name, text)
        if isinstance(node, cst.Tuple):
            text = text if node.lpar else f"({text})"  # `kernel[n,]`
            return name, f"{name} = {text}\n"
        if isinstance(node, cst.List):
            return name, f"{name} = tuple({text})\n"
        return self._chosen(launch, given, name, text)

    def _chosen(
        self, launch: Launch, given: Mapping[str, str], name: str, text: str
    ) -> tuple[str, str]:
        """A grid of which the source does not say whether it is a function."""
        meta = self._meta(launch, given, None)
        first = "" if text.isidentifier() else f"{name} = {text}\n"  # which is evaluated once
        grid = name if first else text
        return name, f"{first}{name} = tuple({grid}({meta}) if callable({grid}) else {grid})\n"

    def _meta(
        self,
        launch: Launch,
        given: Mapping[str, str],
        function: cst.Lambda | None,
    ) -> str:
        """The dictionary that a grid's function is given: what it reads, or all where it may."""
        source = self.context.source
        wanted = list(given)
        if function is not None and len(function.params.params) == 1:
            parameter = function.params.params[0].name.value
            read = list(_read_keys(function.body, parameter))
            if None not in read:
                wanted = [n for n in given if n in read]
        for name in wanted:
            node = launch.arguments.get(name)
            if node is not None and not repeatable(source, node):
                raise self.context.refuse(
                    launch.node, "a grid's or a heuristic's function that is given a computed "
                    "argument",
                    "compute it before the launch", name,
                )  # fmt: skip
        listed = ", ".join(f'"{name}": {given[name]}' for name in wanted)
        return f"{{{listed}}}"

    def _host_code(self, node: cst.BaseExpression) -> str:
        """An expression of the host's, without Triton."""
        source = self.context.source
        node = unwrapped(source, node)
        edits = {
            each: edit for each, edit in self.edits.items()
            if each is node or any(a is node for a in source.ancestors(each))
        }  # fmt: skip
        return on_one_line(source.module, edited(node, edits) if edits else node)

    def _free(self, name: str) -> str:
        while name in self._names:
            name += "_"
        return name


def _passed(head: Sequence[str], listed: Mapping[str, str], launch: Launch) -> str:
    """What `ct.launch` is passed, in parentheses."""
    said = remarks_of(launch)
    if said and not any("\n" in each for each in listed.values()):
        return with_remarks(head, listed, said)
    arguments = ", ".join(listed.values()) + ("," if len(listed) == 1 else "")
    return f"({', '.join(head)}, ({arguments}))"


def _outside(
    source: Source, kernels: frozenset[cst.CSTNode], given: Sequence[cst.BaseExpression]
) -> Iterator[cst.CSTNode]:
    """The nodes of the host's code, outermost first."""
    left: list[cst.CSTNode] = [*reversed(given), source.module]
    while left:
        node = left.pop()
        if node in kernels or isinstance(node, cst.Import | cst.ImportFrom):
            continue
        yield node
        left.extend(reversed(children(node)))


def _chain(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """`a.b.c`, `a.b` and `a` of the first."""
    yield node
    while isinstance(node, cst.Attribute):
        node = node.value
        yield node


def _unannotated(node: cst.AnnAssign) -> cst.Assign:
    """`X = 3` of `X: tl.constexpr = 3`."""
    assert node.value is not None
    return cst.Assign([cst.AssignTarget(node.target)], node.value)


def _read_keys(body: cst.BaseExpression, parameter: str) -> Iterator[str | None]:
    """The keys that a grid's function reads; None where it uses the dictionary otherwise."""
    subscripted = set()
    for node in descendants(body, cst.Subscript):
        if isinstance(node.value, cst.Name) and node.value.value == parameter:
            index = node.slice[0].slice
            if isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString):
                subscripted.add(node.value)
                yield str(index.value.evaluated_value)
    for name in descendants(body, cst.Name):
        if name.value == parameter and name not in subscripted:
            yield None


def _statements(text: str, old: cst.SimpleStatementLine) -> cst.FlattenSentinel[cst.CSTNode]:
    """Statements in the place of one, with the comments above it."""
    parsed: Sequence[cst.CSTNode] = cst.parse_module(text).body
    first = parsed[0].with_deep_changes(parsed[0], leading_lines=old.leading_lines)
    return cst.FlattenSentinel([first, *parsed[1:]])
