"""Host code: launches, and the few functions of Triton that it calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.purity import is_pure
from agent.analysis.triton.aliasing import may_share
from agent.analysis.triton.dialect import ROUNDING
from agent.porting import dtypes
from agent.porting.assignments import Edit
from agent.porting.constants import unwrapped
from agent.porting.context import TL, Context, names_of
from agent.porting.functions import Translated
from agent.porting.tuning import Tuning
from agent.porting.values import Pointer
from agent.syntax import Source, children, descendants, edited

DROPPED = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "warmup")
ROUNDED = {"triton.cdiv": "cdiv", "triton.next_power_of_2": "next_power_of_2"}


class Host:
    """The host's code of a file, and what becomes of it."""

    def __init__(self, context: Context, translated: Mapping[str, Translated]) -> None:
        self.context = context
        self.edits: dict[cst.CSTNode, Edit] = {}
        self._translated = translated
        self._names = names_of(context.source)

    # --- functions of Triton ---------------------------------------------------------------------

    def functions(self, kernels: frozenset[cst.FunctionDef]) -> None:
        """Calls and types of Triton outside of kernels; imports are not looked at.

        Raises:
            NotPortable: one that has no equivalent.
        """
        source = self.context.source
        for node in _outside(source, kernels):
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
            kind = dtypes.OF_TRITON.get(named.removeprefix(TL)) if named.startswith(TL) else None
            if kind is not None and source.resolve(node) is node:
                self._rename(node, f"{self.context.tile}.{kind}")

    def left_over(self, kernels: frozenset[cst.FunctionDef]) -> None:
        """Refuse what would still need Triton.

        Raises:
            NotPortable: there is something.
        """
        source = self.context.source
        kinds = (cst.Attribute, cst.Name)
        handled = {a for node in self.edits for kind in kinds for a in descendants(node, kind)}
        for node in _outside(source, kernels):
            if node in handled or not isinstance(node, cst.Attribute | cst.Name):
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
            if not any(around in inside for around in source.ancestors(name)):
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
        given = self._given(kernel, launch, tuning)
        done = self._translated[kernel.name]
        arguments = [self._argument(call, p.name.value, given, done)
                     for p in kernel.function.parameters]  # fmt: skip
        grid, before = self._grid(launch, given)
        ct, torch = self.context.tile, self.context.torch
        listed = ", ".join(arguments) + ("," if len(arguments) == 1 else "")
        name = kernel.function.node.name.value
        text = f"{ct}.launch({torch}.cuda.current_stream(), {grid}, {name}, ({listed}))"
        guard = self._apart(kernel, launch, given, done)
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
        raise self.context.refuse(
            call, "a launch inside of an expression", "write it as a statement of its own"
        )

    def _given(self, kernel: Kernel, launch: Launch, tuning: Tuning) -> dict[str, str]:
        """Parameter -> what the port passes."""
        given = {n: self._host_code(value) for n, value in launch.arguments.items()}
        for name, value in tuning.values.items():
            given.setdefault(name, value)
        for parameter in kernel.function.parameters:
            name = parameter.name.value
            if parameter.default is not None and name not in tuning.computed:
                given.setdefault(name, self._host_code(parameter.default))
        for name, function in tuning.computed.items():
            listed = ", ".join(f'"{n}": {v}' for n, v in given.items())
            given[name] = f"({function})({{{listed}}})"
        missing = [p.name.value for p in kernel.function.parameters if p.name.value not in given]
        if missing:
            raise self.context.refuse(
                launch.node, "a launch that does not pass every parameter", "pass it",
                ", ".join(missing),
            )  # fmt: skip
        return given

    def _argument(
        self, call: cst.Call, name: str, given: Mapping[str, str], done: Translated
    ) -> str:
        text = given[name]
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
            return name, f"{name} = {text}\n"
        if isinstance(node, cst.List):
            return name, f"{name} = tuple({text})\n"
        return self._chosen(launch, given, name, text)

    def _chosen(
        self, launch: Launch, given: Mapping[str, str], name: str, text: str
    ) -> tuple[str, str]:
        """A grid of which the source does not say whether it is a function."""
        meta = self._meta(launch, given, None)
        return (
            name,
            f"{name} = {text}({meta}) if callable({text}) else {text}\n{name} = tuple({name})\n",
        )

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
            if node is not None and not is_pure(source, node, (*ROUNDING, "len", "builtins.len")):
                raise self.context.refuse(
                    launch.node, "a grid's function that is given a computed argument",
                    "compute it before the launch", name,
                )  # fmt: skip
        listed = ", ".join(f'"{name}": {given[name]}' for name in wanted)
        return f"{{{listed}}}"

    # --- memory ----------------------------------------------------------------------------------

    def _apart(
        self, kernel: Kernel, launch: Launch, given: Mapping[str, str], done: Translated
    ) -> list[str]:
        """The check that arrays do not overlap, where the source does not show it."""
        source = self.context.source
        arrays = [n for n, value in done.values.items() if isinstance(value, Pointer)]
        stored = done.stored
        alone = Kernel(kernel.function, kernel.decorator, kernel.constants, (launch,))
        doubtful: list[str] = []
        for place, one in enumerate(arrays):
            for other in arrays[place + 1 :]:
                if one not in stored and other not in stored:
                    continue
                if given[one] == given[other]:
                    raise self.context.refuse(
                        launch.node, "the same tensor given twice, and stored to",
                        "cuTile takes arrays to be distinct: store to another one",
                        f"{one} and {other}",
                    )  # fmt: skip
                if may_share(source, alone, one, other):
                    doubtful += [one, other]
        if not doubtful:
            return []
        lists = [
            ", ".join(given[n] for n in arrays if n in doubtful and (n in stored) is wanted)
            for wanted in (True, False)
        ]
        stores, loads = (f"({each},)" if each else "()" for each in lists)
        return [f"{self.context.helper('apart')}({stores}, {loads})"]

    def _host_code(self, node: cst.BaseExpression) -> str:
        """An expression of the host's, without Triton."""
        source = self.context.source
        node = unwrapped(source, node)
        edits = {
            each: edit for each, edit in self.edits.items()
            if each is node or any(a is node for a in source.ancestors(each))
        }  # fmt: skip
        if not edits:
            return source.code(node)
        return " ".join(cst.Module([]).code_for_node(edited(node, edits)).split())

    def _free(self, name: str) -> str:
        while name in self._names:
            name += "_"
        return name


def _outside(source: Source, kernels: frozenset[cst.FunctionDef]) -> Iterator[cst.CSTNode]:
    """The nodes of the host's code, outermost first."""
    left: list[cst.CSTNode] = [source.module]
    while left:
        node = left.pop()
        if node in kernels or isinstance(node, cst.Import | cst.ImportFrom):
            continue
        yield node
        left.extend(reversed(children(node)))


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
