"""The cuTile version of a Triton kernel file: the same computation, written for the other language.

The data flows one way: `reading` says which functions are kernels and what launches them,
`expressions` and `statements` translate a body, `host` the launches, and `file` puts the new text
together. Nothing is guessed: what has no translation known to mean the same raises `NotPortable`.
"""

from agent.porting.file import Port, port
from agent.porting.refusal import NotPortable

__all__ = ["NotPortable", "Port", "port"]
