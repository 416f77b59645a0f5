"""Which operators of torch a call uses."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tile_agent_pytest.examining.tensors import torch


@contextlib.contextmanager
def called_operators(into: Counter[str], fill: int | None = None) -> Iterator[None]:
    """Count the operators of torch that are called while the block lasts.

    Args:
        into: name -> how often.
        fill: the byte that memory holds which torch gives and nobody has written.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Whether to import `torch._dynamo` at the first operator, for more than a second."""
            return False

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = str(func.overloadpacket).removeprefix("aten.")
            into[name] += 1
            made = func(*args, **(kwargs or {}))
            is_new = name.removeprefix("new_").startswith("empty")
            if fill is not None and is_new and _has_octets(made):
                octets = torch().empty(0, dtype=torch().uint8, device=made.device)
                octets.set_(made.untyped_storage()).fill_(fill)
            return made

    with Recorder():
        yield


def _has_octets(made: Any) -> bool:
    """Whether an operator's result is a tensor whose memory can be written as it lies."""
    return (
        type(made) is torch().Tensor  # not a fake one, by which a compiler asks for shapes
        and made.layout is torch().strided
        and made.device.type in ("cpu", "cuda")
    )
