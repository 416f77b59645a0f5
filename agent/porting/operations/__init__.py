"""The functions of Triton that have a translation, by their qualified names."""

from collections.abc import Mapping

from agent.porting.expressions import Handler
from agent.porting.operations import atomics, elementwise, memory, reductions, shapes

OPERATIONS: Mapping[str, Handler] = {
    name: handler
    for module in (atomics, elementwise, memory, reductions, shapes)
    for name, handler in module.OPERATIONS.items()
}
