"""Messages between tile-agent and its workers: a length and a JSON object, over a Unix socket.

The socket is made by the parent and handed down by descriptor, so nothing that a test prints, and
nothing else on the machine, can be taken for a message.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any

_LENGTH = struct.Struct("!I")
MAX_MESSAGE_BYTES = 64 * 2**20

Message = dict[str, Any]


class Closed(Exception):
    """The peer has closed its end."""


class Channel:
    """One end of the conversation."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._buffer = bytearray()

    def send(self, message: Message) -> None:
        """Send one message. Raises `Closed`."""
        body = json.dumps(message, default=_plain, skipkeys=True).encode()
        if len(body) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {len(body)} bytes; {MAX_MESSAGE_BYTES} are allowed")
        try:
            self.socket.sendall(_LENGTH.pack(len(body)) + body)
        except (BrokenPipeError, ConnectionResetError) as gone:
            raise Closed from gone

    def receive(self, timeout_s: float | None = None) -> Message:
        """Wait for one message.

        Raises:
            TimeoutError: none arrived whole within `timeout_s`; what has arrived is kept.
            Closed: the peer is gone.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (message := self._pop()) is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self.socket], [], [], left)[0]:
                raise TimeoutError
            try:
                chunk = self.socket.recv(1 << 16)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise Closed
            self._buffer += chunk
        return message

    def is_readable(self) -> bool:
        """Whether a message has begun to arrive, or the peer is gone."""
        return bool(self._buffer or select.select([self.socket], [], [], 0.0)[0])

    def close(self) -> None:
        """Close this end."""
        self.socket.close()

    def _pop(self) -> Message | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > MAX_MESSAGE_BYTES:
            raise Closed
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            raise Closed from None  # no peer of ours writes that
        if not isinstance(message, dict):
            raise Closed
        return message


def _plain(value: Any) -> Any:
    """What JSON does not know: numpy and torch scalars become numbers, the rest text."""
    item = getattr(value, "item", None)
    if callable(item):
        try:
            return item()
        except (TypeError, ValueError, RuntimeError):
            return repr(value)
    return repr(value)
