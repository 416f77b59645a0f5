"""Breaks the statements that the translation made too long, as a formatter would."""

from __future__ import annotations

from typing import Any

import libcst as cst

WIDTH = 100
STEP = "    "


def laid_out(text: str, origin: str) -> str:
    """The text of a module with its long new statements over several lines.

    Args:
        text: the module.
        origin: what it was made of: lines of it stay.
    """
    kept = {line.strip() for line in origin.splitlines()}
    module = cst.parse_module(text)
    return module.visit(_Breaking(module, kept)).code


class _Breaking(cst.CSTTransformer):
    def __init__(self, module: cst.Module, kept: set[str]) -> None:
        super().__init__()
        self._module, self._kept, self._depth = module, kept, 0

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:  # noqa: N802, ARG002
        self._depth += 1

    def leave_IndentedBlock(  # noqa: N802
        self,
        original_node: cst.IndentedBlock,  # noqa: ARG002
        updated_node: cst.IndentedBlock,
    ) -> cst.IndentedBlock:
        self._depth -= 1
        return updated_node

    def leave_FunctionDef(  # noqa: N802
        self,
        original_node: cst.FunctionDef,  # noqa: ARG002
        updated_node: cst.FunctionDef,
    ) -> cst.FunctionDef:
        """A signature that is too long: its parameters on a line of their own, or a line each."""
        bare = updated_node.with_changes(
            leading_lines=[], decorators=[], body=cst.SimpleStatementSuite([cst.Pass()])
        )
        code = self._module.code_for_node(bare).rstrip().removesuffix(" pass")
        listed = list(updated_node.params.params)
        room = WIDTH - len(STEP) * self._depth
        if not listed or "#" in code or max(map(len, code.splitlines())) <= room:
            return updated_node
        if any(line.strip() in self._kept and len(line) > room for line in code.splitlines()):
            return updated_node
        space = cst.SimpleWhitespace("")
        listed = [
            p.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_param=space)
            for p in listed
        ]
        together = ", ".join(map(self._module.code_for_node, listed))
        apart = len(together) > room - len(STEP)
        for number, param in enumerate(listed[:-1]):
            behind = _newline(1) if apart else cst.SimpleWhitespace(" ")
            listed[number] = param.with_changes(comma=cst.Comma(whitespace_after=behind))
        if apart:
            listed[-1] = listed[-1].with_changes(comma=cst.Comma(whitespace_after=_newline(0)))
        else:
            listed[-1] = listed[-1].with_changes(
                comma=cst.MaybeSentinel.DEFAULT, whitespace_after_param=_newline(0)
            )
        return updated_node.with_changes(
            whitespace_before_params=_newline(1), params=cst.Parameters(params=listed)
        )

    def leave_SimpleStatementLine(  # noqa: N802
        self,
        original_node: cst.SimpleStatementLine,  # noqa: ARG002
        updated_node: cst.SimpleStatementLine,
    ) -> cst.SimpleStatementLine:
        bare = updated_node.with_changes(leading_lines=[])
        code = self._module.code_for_node(bare).strip("\n")
        room = WIDTH - len(STEP) * self._depth
        lines = code.splitlines()
        if max(map(len, lines), default=0) <= room or any(x.strip() in self._kept for x in lines):
            return updated_node
        return updated_node.with_changes(body=[self._small(s, room) for s in updated_node.body])

    def _small(self, node: Any, room: int) -> Any:
        value = getattr(node, "value", None)
        if not isinstance(value, cst.BaseExpression):
            return node
        before = len(self._module.code_for_node(node)) - len(self._module.code_for_node(value))
        return node.with_changes(value=self._broken(value, room - before, room, 1))

    def _broken(self, node: cst.BaseExpression, first: int, room: int, level: int) -> Any:
        """An expression over several lines where it has to be.

        Args:
            node: it.
            first: what its first line has room for.
            room: what a line of the statement has room for.
            level: how far its inner lines are indented.
        """
        code = self._module.code_for_node(node)
        if len(code) <= first or "\n" in code:
            return node
        inner = room - len(STEP) * level
        if isinstance(node, cst.Call) and node.args:
            together = ", ".join(self._module.code_for_node(a).rstrip(", ") for a in node.args)
            if len(together) <= inner:
                return node.with_changes(
                    whitespace_before_args=_newline(level),
                    args=[*node.args[:-1], node.args[-1].with_changes(
                        comma=cst.MaybeSentinel.DEFAULT,
                        whitespace_after_arg=_newline(level - 1),
                    )],
                )  # fmt: skip
            args = [
                arg.with_changes(
                    value=self._broken(
                        arg.value,
                        inner - 1 - (len(arg.keyword.value) + 1 if arg.keyword else 0),
                        room,
                        level + 1,
                    ),
                    comma=cst.Comma(whitespace_after=_newline(level - (n == len(node.args)))),
                )
                for n, arg in enumerate(node.args, 1)
            ]
            return node.with_changes(whitespace_before_args=_newline(level), args=args)
        if isinstance(node, cst.Tuple) and node.lpar and len(node.elements) > 1:
            elements = [
                element.with_changes(
                    value=self._broken(element.value, inner - 1, room, level + 1),
                    comma=cst.Comma(whitespace_after=_newline(level - (n == len(node.elements)))),
                )
                for n, element in enumerate(node.elements, 1)
            ]
            return node.with_changes(
                elements=elements, lpar=[cst.LeftParen(whitespace_after=_newline(level))]
            )
        if isinstance(node, cst.BinaryOperation):
            return self._sum(node, inner, room, level)
        return node

    def _sum(self, node: cst.BinaryOperation, inner: int, room: int, level: int) -> Any:
        """`(left\\n + right)`; the parentheses are added where there are none."""
        operator: Any = node.operator
        return node.with_changes(
            left=self._broken(node.left, inner, room, level + 1),
            operator=operator.with_changes(whitespace_before=_newline(level)),
            right=self._broken(node.right, inner - 3, room, level + 1),
            lpar=[cst.LeftParen(whitespace_after=_newline(level))],
            rpar=[cst.RightParen(whitespace_before=_newline(level - 1))],
        )


def _newline(level: int) -> cst.ParenthesizedWhitespace:
    return cst.ParenthesizedWhitespace(
        indent=True, last_line=cst.SimpleWhitespace(STEP * max(level, 0))
    )
