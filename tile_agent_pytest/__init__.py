"""What of tile-agent runs inside the user's processes: the `tile_bench` fixture and the worker.

A package of its own, because it is imported beside the user's code, where a module named `agent`
may well exist already. It needs the standard library and pytest, nothing of the `agent` package;
torch only when a test times something.

PYTEST_DONT_REWRITE: a command that is recorded has it loaded before pytest looks at it, which then
warns in the user's output that it cannot rewrite its assertions.
"""
