"""Breaks the statements that the translation made too long, as a formatter would."""

from __future__ import annotations

from typing import Any

import libcst as cst

from agent.porting.arithmetic import OPERATORS

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
        if isinstance(node, cst.Subscript):
            behind = len(code) - len(self._module.code_for_node(node.value))
            return node.with_changes(value=self._broken(node.value, first - behind, room, level))
        if isinstance(node, cst.IfExp):
            return self._choice(node, inner, room, level)
        if isinstance(node, cst.Dict) and node.elements:
            return self._table(node, inner, room, level)
        if isinstance(node, cst.BinaryOperation):
            return self._sum(node, inner, room, level)
        return node

    def _choice(self, node: cst.IfExp, inner: int, room: int, level: int) -> cst.IfExp:
        """`(one\nif test\nelse other)`, in parentheses outside of others."""
        is_bare = level > 1 and not node.lpar
        if is_bare:
            level, inner = level - 1, inner + len(STEP)
        else:
            node = node.with_changes(
                lpar=[cst.LeftParen(whitespace_after=_newline(level))],
                rpar=[cst.RightParen(whitespace_before=_newline(level - 1))],
            )
        return node.with_changes(
            body=self._broken(node.body, inner, room, level + 1),
            whitespace_before_if=_newline(level),
            test=self._broken(node.test, inner - 3, room, level + 1),
            whitespace_before_else=_newline(level),
            orelse=self._broken(node.orelse, inner - 5, room, level + 1),
        )

    def _table(self, node: cst.Dict, inner: int, room: int, level: int) -> cst.Dict:
        """An element a line."""
        elements = []
        for number, element in enumerate(node.elements, 1):
            if isinstance(element, cst.DictElement):
                key = len(self._module.code_for_node(element.key))
                value = self._broken(element.value, inner - key - 3, room, level + 1)
                element = element.with_changes(value=value)
            behind = _newline(level - (number == len(node.elements)))
            elements.append(element.with_changes(comma=cst.Comma(whitespace_after=behind)))
        return node.with_changes(
            elements=elements, lbrace=cst.LeftCurlyBrace(whitespace_after=_newline(level))
        )

    def _sum(self, node: cst.BinaryOperation, inner: int, room: int, level: int) -> Any:
        """`(left\n+ right)`, each of many terms on a line; parentheses only where there is need.

        Within those of a call or of a tuple a line may end anywhere.
        """
        if node.lpar or level == 1:
            return self._terms(node, inner, room, level).with_changes(
                lpar=[cst.LeftParen(whitespace_after=_newline(level))],
                rpar=[cst.RightParen(whitespace_before=_newline(level - 1))],
            )
        return self._terms(node, inner + len(STEP), room, level - 1)

    def _terms(self, node: cst.BinaryOperation, inner: int, room: int, level: int) -> Any:
        """The operators of one rank, each at the beginning of a line."""
        operator: Any = node.operator
        left = node.left
        if isinstance(left, cst.BinaryOperation) and not left.lpar and _rank(left) == _rank(node):
            left = self._terms(left, inner, room, level)
        else:
            left = self._broken(left, inner, room, level + 1)
        return node.with_changes(
            left=left,
            operator=operator.with_changes(whitespace_before=_newline(level)),
            right=self._broken(node.right, inner - 3, room, level + 1),
        )


def _rank(node: cst.BinaryOperation) -> int:
    """How tightly an operator binds; what binds alike is read from the left."""
    return OPERATORS[type(node.operator)][1] if type(node.operator) in OPERATORS else 0


def _newline(level: int) -> cst.ParenthesizedWhitespace:
    return cst.ParenthesizedWhitespace(
        indent=True, last_line=cst.SimpleWhitespace(STEP * max(level, 0))
    )
