"""The function that launches a tuned kernel, and the call that takes the launch's place."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.absent import may_be_none, may_be_number
from agent.analysis.cutile.uses import Uses
from agent.syntax import argument, descendants, keyword
from agent.tuning.form import Form, follows_from_shapes, local_assignments
from agent.tuning.grid import GridFunction
from agent.tuning.names import SearchNames
from agent.tuning.plan import SearchPlan
from agent.tuning.staying import TILES, Staying, held_grid, tiles_of
from agent.tuning.text import INDENT, WIDTH, comment, enclosed, replaced, tupled

LOCALS = ("args", "best", "config", "grid", "kernel", "key", "scratch", "stream", "trial")
"""Names that the function uses itself."""
BUILTINS = ("str", "sum")
"""Builtins that it calls."""


class Launcher:
    """Writes both, from one list of parameters."""

    def __init__(
        self,
        plan: SearchPlan,
        grid: GridFunction,
        names: SearchNames,
        staying: Staying | None = None,
    ) -> None:
        """Decide what the wrapper hands over, and under which names.

        Raises:
            NotTunable: blocks are to stay, and the grid does not say how many tiles there are.
        """
        self._plan, self._grid, self._names = plan, grid, names
        self._staying = staying
        self._tiles = tiles_of(plan, grid, staying) if staying is not None else []
        self._locals = LOCALS if staying is None else (*LOCALS, TILES)
        self._form: Form = plan.form
        self._source = plan.form.source
        self._uses = Uses(self._source, self._form.kernel)
        modules = {names.torch, names.tile, names.os}
        self._reserved = {*self._locals, *BUILTINS, *modules, names.launch, names.kernel}
        self._parameters: dict[str, str] = {}
        """Parameter of the function -> the wrapper's expression for it."""
        self._values: dict[str, str] = {}
        """Parameter of the kernel -> what the function passes for it."""
        stream = argument(self._form.launch.node, 0, "stream")
        assert stream is not None  # `form_of` has seen four arguments
        self._add("stream", stream, reserved=True)
        if not grid.varies:
            self._add("grid", self._form.launch.grid, reserved=True)
        for name, given in self._form.launch.arguments.items():
            if name in plan.tiles:
                self._values[name] = f"config.{name}"
            elif self._is_global(name, given):
                self._values[name] = self._source.code(given)
            else:
                self._values[name] = self._add(name, given)
        self._grid_names = self._hand_over_grid_names() if grid.varies else {}

    def call(self) -> str:
        """The call in the wrapper."""
        indent = next(
            (" " * (self._column(a)) for a in self._source.ancestors(self._form.launch.node)
             if isinstance(a, cst.SimpleStatementLine)), ""
        )  # fmt: skip
        text = enclosed(f"{self._names.launch}(", list(self._parameters.values()), ")", indent)
        return textwrap.dedent(text).strip()

    def definition(self) -> str:
        """The function's source."""
        lines = [enclosed(f"def {self._names.launch}(", list(self._parameters), "):")]
        lines.append(
            f'{INDENT}"""Launch with the best config for such arrays: the first call searches."""\n'
        )
        lines += self._grid_and_args()
        lines += self._choice()
        config = "config" if self._varies else "_"
        lines.append(f"{INDENT * 2}{config}, kernel = {self._names.cache}[key]\n")
        grid = "grid(config)" if self._grid.varies else "grid"
        args = "args(config)" if self._plan.tiles else "args"
        lines.append(f"{INDENT}{self._names.tile}.launch(stream, {grid}, kernel, {args})\n")
        return "".join(lines)

    @property
    def _varies(self) -> bool:
        return self._grid.varies or bool(self._plan.tiles)

    def _grid_and_args(self) -> Iterator[str]:
        inner = INDENT * 2
        if self._grid.varies:
            yield f"\n{INDENT}def {'grid' if self._staying is None else TILES}(config):\n"
            for statement in self._grid.moved:
                for line in statement.leading_lines:
                    if line.comment is not None:
                        yield f"{inner}{line.comment.value}\n"
                yield f"{inner}{self._moved(statement)}\n"
            expression = self._grid.expression
            if isinstance(expression, cst.Tuple):
                items = [self._moved(tile) for tile in self._tiles] or [
                    "*" * isinstance(e, cst.StarredElement) + self._moved(e.value)
                    for e in expression.elements
                ]
                yield self._tuple("return ", items, inner)
            else:
                yield f"{inner}return {self._moved(expression)}\n"
        values = list(self._values.values())
        if self._staying is not None:
            yield from held_grid(self._staying, self._names.torch)
            values.append(f"*{TILES}(config)")
        if self._plan.tiles:
            written = [f"{self._values[p]}={self._values[p]}" for p in self._form.scratch]
            yield "\n" + enclosed("def args(", ["config", *written], "):", INDENT)
            yield self._tuple("return ", values, inner) + "\n"
        else:
            yield "\n" * self._grid.varies + self._tuple("args = ", values, INDENT)

    def _moved(self, node: cst.CSTNode) -> str:
        """The text of a part of the grid inside the function."""
        return replaced(self._source, node, self._grid_names, self._grid.suffixes)

    def _choice(self) -> Iterator[str]:
        """Fixed, searched for, or remembered."""
        names, two, three = self._names, INDENT * 2, INDENT * 3
        yield f'{INDENT}if {names.os}.environ.get("DISABLE_AUTOTUNE", "0") == "1":\n'
        fixed = f"{names.fixed_config}, {names.fixed_kernel}"
        head = f"config, kernel = {fixed}" if self._varies else f"kernel = {names.fixed_kernel}"
        yield f"{two}{head}\n{INDENT}else:\n"
        yield self._tuple("key = ", self._key(), two)
        yield f"{two}if key not in {names.cache}:\n"
        args = "args" if self._plan.tiles else "lambda _: args"
        if self._form.scratch:
            yield comment("Trial runs write to arrays of their own.", three)
            scratch = [self._scratch(p) for p in self._form.scratch]
            if self._plan.tiles:
                yield self._tuple("scratch = ", scratch, three)
                args = "lambda config: args(config, *scratch)"
            else:
                own = dict(zip(self._form.scratch, scratch, strict=True))
                trial = [own.get(p, value) for p, value in self._values.items()]
                yield self._tuple("trial = ", trial, three)
                args = "lambda _: trial"
        configs = f"{names.configs}()"
        if self._plan.tiles:
            configs = f"{names.configs}({', '.join([self._device(), *self._extents()])})"
        grid = "grid" if self._grid.varies else "lambda _: grid"
        yield enclosed(f"best = {names.search}(", [configs, "stream", grid, args], ")", three)
        yield comment("A kernel from replace_hints() has yet to be compiled: keep it.", three)
        tuned = f"{names.kernel}.replace_hints(**{names.hints}(best))"
        yield f"{three}{names.cache}[key] = best, {tuned}\n"

    # --- what is handed over --------------------------------------------------------------------

    def _add(self, name: str, value: cst.BaseExpression, *, reserved: bool = False) -> str:
        while name in self._parameters or (name in self._reserved and not reserved):
            name += "_"
        self._parameters[name] = self._source.code(value)
        return name

    def _is_global(self, parameter: str, value: cst.BaseExpression) -> bool:
        """A number, or a name of the module that nothing here hides: it is not handed over."""
        if isinstance(value, cst.Integer | cst.Float):
            return True
        if not isinstance(value, cst.Name) or local_assignments(self._form, value):
            return False
        if value.value in self._locals:
            return False
        return value.value == parameter or value.value not in self._form.launch.arguments

    def _hand_over_grid_names(self) -> dict[cst.Name, str]:
        """What each name in the grid's expressions becomes, parameters added for the wrapper's."""
        nodes = [self._grid.expression, *self._grid.moved]
        made = {
            name.value
            for statement in self._grid.moved
            for assign in descendants(statement, cst.AssignTarget)
            for name in descendants(assign.target, cst.Name)
        }
        shared = {expression: name for name, expression in self._parameters.items()}
        renamed = {name: f"config.{field}" for name, field in self._grid.names.items()}
        read = [
            name
            for node in nodes
            for name in descendants(node, cst.Name)
            if name not in renamed and name.value not in made and self._is_read(name)
        ]
        own = [name for name in read if local_assignments(self._form, name)]
        for name in own:
            if name.value not in shared:
                shared[name.value] = self._add(name.value, name)
        hidden = {*self._locals, *self._parameters}
        others = [name for name in read if name not in own and name.value in hidden]
        handed_over = {name.value: name for name in others}
        shared |= {name: self._add(name, first) for name, first in handed_over.items()}
        return renamed | {name: shared[name.value] for name in (*own, *others)}

    def _is_read(self, name: cst.Name) -> bool:
        """Whether it is a name by itself: no attribute's, nor a keyword's."""
        match next(self._source.ancestors(name)):
            case cst.Attribute(attr=attribute):
                return attribute is not name
            case cst.Arg(keyword=keyword):
                return keyword is not name
        return True

    # --- the key --------------------------------------------------------------------------------

    def _key(self) -> list[str]:
        """All that the best config depends on: extents, types, constants of the call, device."""
        arrays = [p for p in self._arrays() if not self._may_be_absent(p)]
        given = [p for p in arrays if not self._is_fresh(p)]
        lists = [self._values[p] for p in given if p in self._uses.lists]
        shapes = [f"{self._values[p]}.shape" for p in given if p not in self._uses.lists]
        dtypes = list(dict.fromkeys(self._dtype(p) for p in arrays if not self._says_dtype(p)))
        rounds = self._plan.template.rounds_sizes
        constants = [
            self._values[c]
            for c in self._form.kernel.constants
            if self._values[c] in self._parameters
            and (rounds or not follows_from_shapes(self._form, self._form.launch.arguments[c]))
        ]
        if rounds and shapes:
            extents = shapes[0] if len(shapes) == 1 else f"(*{', *'.join(shapes)})"
            shapes = [f"*((n - 1).bit_length() for n in {extents})"]
        shapes += [f"sum(each.numel() for each in {each}).bit_length()" for each in lists]
        absent = [self._is_absent(p) for p in self._arrays() if self._may_be_absent(p)]
        return [*shapes, *constants, *absent, *dtypes, f"str({self._device()})"]

    def _arrays(self) -> list[str]:
        """Parameters of the kernel that are arrays, one for each expression given."""
        found: dict[str, str] = {}
        for name, given in self._form.launch.arguments.items():
            if name in self._uses.arrays and name in self._values:
                found.setdefault(self._source.code(given), name)
        return list(found.values())

    def _may_be_absent(self, parameter: str) -> bool:
        """Whether a caller may leave an array out, as `bias=None` or `bias=0`."""
        given = self._form.launch.arguments[parameter]
        return may_be_none(self._source, given) or may_be_number(self._source, given)

    def _is_absent(self, parameter: str) -> str:
        """The expression that says whether a call leaves an array out."""
        value = self._values[parameter]
        if may_be_number(self._source, self._form.launch.arguments[parameter]):
            return f"not isinstance({value}, {self._names.torch}.Tensor)"
        return f"{value} is None"

    def _is_fresh(self, parameter: str) -> bool:
        """Made by the wrapper for the result, of a size that follows from the inputs."""
        return parameter in self._form.written and parameter not in self._form.scratch

    def _says_dtype(self, parameter: str) -> bool:
        """Fresh, and of another array's type."""
        made = self._source.resolve(self._form.launch.arguments[parameter])
        given = keyword(made, "dtype") if isinstance(made, cst.Call) else None
        like = isinstance(given, cst.Attribute) and given.attr.value == "dtype"
        same = isinstance(made, cst.Call) and self._source.name(made.func) == "torch.empty_like"
        return self._is_fresh(parameter) and (like or (given is None and same))

    def _dtype(self, parameter: str) -> str:
        return f"{self._one(parameter)}.dtype"

    def _device(self) -> str:
        arrays = self._arrays()
        there = [p for p in arrays if not self._may_be_absent(p)]
        return f"{self._one((there or arrays)[0])}.device"

    def _one(self, parameter: str) -> str:
        value = self._values[parameter]
        return f"{value}[0]" if parameter in self._uses.lists else value

    def _extents(self) -> list[str]:
        """The extents that the tiles cover, as one tuple, if any is known."""
        found = []
        for extent in self._plan.extents:
            parameter, _, rest = extent.partition(".")
            found.append(f"{self._values[parameter]}.{rest}")
        return [tupled(found)] if found else []

    def _scratch(self, parameter: str) -> str:
        """An array like the one that is written; with its content where the kernel reads it."""
        value, torch = self._values[parameter], self._names.torch
        read = parameter in self._form.read
        if parameter in self._uses.lists:
            each = "each.detach().clone()" if read else f"{torch}.empty_like(each)"
            return f"[{each} for each in {value}]"
        made = f"{value}.detach().clone()" if read else f"{torch}.empty_like({value})"
        if self._may_be_absent(parameter):
            return f"{value} if {self._is_absent(parameter)} else {made}"
        return made

    def _tuple(self, head: str, items: list[str], indent: str) -> str:
        one = f"{indent}{head}{tupled(items)}\n"
        if len(items) == 1 or len(one) <= WIDTH + 1:
            return one
        inside = "".join(f"{indent}{INDENT}{item},\n" for item in items)
        return f"{indent}{head}(\n{inside}{indent})\n"

    def _column(self, statement: cst.CSTNode) -> int:
        """How deep a statement is indented, in columns."""
        blocks = [a for a in self._source.ancestors(statement) if isinstance(a, cst.IndentedBlock)]
        default = self._source.module.default_indent
        return sum(len(block.indent or default) for block in blocks)
