"""The arguments of a call of Triton's, by the names of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from agent.porting.context import Context


class Arguments:
    """What a call passes; a method's receiver is its first argument."""

    def __init__(
        self,
        context: Context,
        call: cst.Call,
        parameters: Sequence[str],
        receiver: cst.BaseExpression | None = None,
        *,
        spread: str = "",
    ) -> None:
        """Bind them.

        Args:
            context: the file.
            call: the call.
            parameters: its parameters in order, the receiver's first.
            receiver: what the call is a method of.
            spread: the parameter that takes all further positional arguments, where one does.

        Raises:
            NotPortable: an argument that none of the parameters takes.
        """
        self._context, self._call = context, call
        self.given: dict[str, cst.BaseExpression] = {}
        self.spread: list[cst.BaseExpression] = []
        names = list(parameters)
        if receiver is not None:
            self.given[names[0]] = receiver
        place = len(self.given)
        for each in call.args:
            if each.star:
                raise context.refuse(call, "a call with `*`", "write its arguments out")
            if each.keyword is not None:
                name = each.keyword.value
                if name not in names:
                    raise self._unknown(name)
                self.given[name] = each.value
                continue
            if spread and place >= names.index(spread):
                self.spread.append(each.value)
            elif place < len(names):
                self.given[names[place]] = each.value
            else:
                raise self._unknown(f"its argument number {place + 1}")
            place += 1
        if spread and len(self.spread) == 1:
            self.given[spread] = self.spread[0]

    def __getitem__(self, name: str) -> cst.BaseExpression:
        """An argument that has to be there."""
        if name not in self.given:
            what = self._context.source.code(self._call.func)
            raise self._context.refuse(self._call, f"`{what}` without `{name}`", "pass it")
        return self.given[name]

    def get(self, name: str) -> cst.BaseExpression | None:
        """An argument; None where it is not given, or `None` is."""
        found = self.given.get(name)
        return None if isinstance(found, cst.Name) and found.value == "None" else found

    def flag(self, name: str) -> bool:
        """An argument that has to be a literal truth value; False where it is not given."""
        found = self.get(name)
        if found is None:
            return False
        if isinstance(found, cst.Name) and found.value in ("True", "False"):
            return found.value == "True"
        if isinstance(found, cst.Integer):
            return bool(found.evaluated_value)
        raise self._context.refuse(
            self._call, f"`{name}=` that is no literal", "write True or False"
        )

    def word(self, name: str) -> str | None:
        """An argument that has to be a literal string."""
        found = self.get(name)
        if found is None:
            return None
        if isinstance(found, cst.SimpleString):
            return str(found.evaluated_value)
        raise self._context.refuse(
            self._call, f"`{name}=` that is no literal", "write the string itself"
        )

    def only(self, allowed: Mapping[str, Sequence[str]]) -> None:
        """Refuse an argument with another value than these, as the source has them."""
        for name, values in allowed.items():
            found = self.get(name)
            if found is not None and self._context.source.code(found) not in values:
                code = self._context.source.code(found)
                what = self._context.source.code(self._call.func)
                raise self._context.refuse(
                    self._call, f"`{name}=` of `{what}`", "leave it out", f"`{name}={code}`"
                )

    def _unknown(self, name: str) -> Exception:
        what = self._context.source.code(self._call.func)
        return self._context.refuse(
            self._call, f"`{what}` with `{name}`", "write the call without it"
        )
