"""A language model's HTTP API on loopback, without a model: a real server with scripted replies.

It speaks OpenAI's chat completions and responses and Anthropic's messages, plain and as
server-sent events, in the format that each request asks for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

INPUT_TOKENS, OUTPUT_TOKENS = 1000, 200
"""What every answer says that it took."""
PIECE = 400
"""Characters of an answer in one event of a stream."""


@dataclass(frozen=True)
class Reply:
    """What the server does with one request."""

    text: str = ""
    arguments: Mapping[str, Any] | str | None = None
    """A call of the tool that the request offers first, with these arguments."""
    refusal: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    """The whole body, in place of a well-formed one."""
    cut_after: int | None = None
    """Bytes of the body after which the connection ends."""
    trickle_s: float = 0.0
    """Time between one byte of the body and the next."""
    silent: bool = False
    """Never answers."""
    plain: bool = False
    """No stream, although one was asked for."""


@dataclass(frozen=True)
class Received:
    """A request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        """All that the model was told, as JSON."""
        return json.dumps(self.body, ensure_ascii=False)


class LlmServer:
    """Answers with one reply after another; the last one goes on for ever."""

    def __init__(self, *replies: Reply) -> None:
        self.replies: Sequence[Reply] = replies
        self.received: list[Received] = []
        self.ending = threading.Event()
        owner = self

        class Handler(_Handler):
            server_of = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """Base URL without a path."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def next_reply(self, received: Received) -> Reply:
        """The reply to a request, which is remembered."""
        self.received.append(received)
        return self.replies[min(len(self.received), len(self.replies)) - 1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_of: LlmServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Answer as the script says."""
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length))
        received = Received(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        reply = self.server_of.next_reply(received)
        try:
            self._reply(reply, received)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _reply(self, reply: Reply, received: Received) -> None:
        if reply.silent:
            self.server_of.ending.wait()
            self.close_connection = True
            return
        streams = bool(received.body.get("stream")) and reply.status == 200 and not reply.plain
        data = reply.raw if reply.raw is not None else _body(reply, received, streams)
        self.send_response(reply.status)
        kind = "text/event-stream" if streams else "application/json"
        for name, value in {"content-type": kind, **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if reply.trickle_s:
            for byte in data:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.server_of.ending.wait(reply.trickle_s):
                    break
        else:
            self.wfile.write(data[: reply.cut_after])
        self.wfile.flush()
        self.close_connection = reply.cut_after is not None


# --- wire formats -------------------------------------------------------------------------------


def _body(reply: Reply, received: Received, streams: bool) -> bytes:
    if reply.status != 200:
        error = {"type": "server_error", "message": f"scripted {reply.status}", "code": None}
        return json.dumps({"type": "error", "error": error}).encode()
    api = next(a for path, a in APIS.items() if received.path.endswith(path))
    if not streams:
        return json.dumps(api.whole(reply, received.body)).encode()
    return b"".join(api.events(reply, received.body))


def _event(data: Mapping[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def _pieces(text: str) -> Iterator[str]:
    for begin in range(0, max(len(text), 1), PIECE):
        yield text[begin : begin + PIECE]


def _given(reply: Reply) -> str:
    """The arguments of the tool call as text."""
    return reply.arguments if isinstance(reply.arguments, str) else json.dumps(reply.arguments)


class _Chat:
    """OpenAI's chat completions."""

    @staticmethod
    def _head(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return {"id": "chat-1", "object": kind, "created": 1700000000, "model": body["model"]}

    @staticmethod
    def _usage() -> dict[str, int]:
        return {
            "prompt_tokens": INPUT_TOKENS,
            "completion_tokens": OUTPUT_TOKENS,
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }

    def whole(self, reply: Reply, body: Mapping[str, Any]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        reason = "stop"
        if reply.refusal:
            message["refusal"] = reply.refusal
        if reply.arguments is not None:
            reason = "tool_calls"
            function = {"name": body["tools"][0]["function"]["name"], "arguments": _given(reply)}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": reason}
        head = self._head("chat.completion", body)
        return {**head, "choices": [choice], "usage": self._usage()}

    def events(self, reply: Reply, body: Mapping[str, Any]) -> Iterator[bytes]:
        head = self._head("chat.completion.chunk", body)

        def chunk(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            return _event({**head, "choices": [choice]})

        yield chunk({"role": "assistant", "content": ""})
        if reply.refusal:
            yield chunk({"refusal": reply.refusal})
        for piece in _pieces(reply.text):
            yield chunk({"content": piece})
        if reply.arguments is not None:
            name = body["tools"][0]["function"]["name"]
            call = {"index": 0, "id": "call_1", "type": "function"}
            yield chunk({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]})
            for piece in _pieces(_given(reply)):
                yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        yield chunk({}, "stop" if reply.arguments is None else "tool_calls")
        yield _event({**head, "choices": [], "usage": self._usage()})
        yield b"data: [DONE]\n\n"


class _Responses:
    """OpenAI's responses."""

    def whole(self, reply: Reply, body: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1700000000,
            "status": "completed",
            "model": body["model"],
            "output": [self._item(reply, body)],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": INPUT_TOKENS,
                "output_tokens": OUTPUT_TOKENS,
                "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }

    @staticmethod
    def _item(reply: Reply, body: Mapping[str, Any]) -> dict[str, Any]:
        if reply.arguments is not None:
            call = {"id": "fc_1", "call_id": "call_1", "status": "completed"}
            name = body["tools"][0]["name"]
            return {**call, "type": "function_call", "name": name, "arguments": _given(reply)}
        content: dict[str, Any] = {"type": "output_text", "text": reply.text, "annotations": []}
        if reply.refusal:
            content = {"type": "refusal", "refusal": reply.refusal}
        head = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        return {**head, "content": [content]}

    def events(self, reply: Reply, body: Mapping[str, Any]) -> Iterator[bytes]:
        whole, item = self.whole(reply, body), self._item(reply, body)
        where: dict[str, Any] = {"item_id": item["id"], "output_index": 0}
        events: list[dict[str, Any]] = [
            {
                "type": "response.created",
                "response": {**whole, "status": "in_progress", "output": [], "usage": None},
            }
        ]
        if reply.arguments is not None:
            begun = {**item, "arguments": "", "status": "in_progress"}
            events.append({"type": "response.output_item.added", "output_index": 0, "item": begun})
            delta = {"type": "response.function_call_arguments.delta", **where}
            events += [{**delta, "delta": piece} for piece in _pieces(_given(reply))]
            done = {"type": "response.function_call_arguments.done", **where}
            events.append({**done, "arguments": _given(reply), "name": item["name"]})
        else:
            begun = {**item, "content": [], "status": "in_progress"}
            events.append({"type": "response.output_item.added", "output_index": 0, "item": begun})
            where |= {"content_index": 0}
            part = item["content"][0]
            events.append({"type": "response.content_part.added", **where, "part": part})
            if reply.refusal:
                events.append({"type": "response.refusal.done", **where, "refusal": reply.refusal})
            else:
                delta = {"type": "response.output_text.delta", **where, "logprobs": []}
                events += [{**delta, "delta": piece} for piece in _pieces(reply.text)]
        events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
        events.append({"type": "response.completed", "response": whole})
        for number, event in enumerate(events):
            yield _event({**event, "sequence_number": number}, event["type"])


class _Messages:
    """Anthropic's messages."""

    def whole(self, reply: Reply, body: Mapping[str, Any]) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if reply.text:
            content.append({"type": "text", "text": reply.text})
        if reply.arguments is not None:
            name = body["tools"][0]["name"]
            given = json.loads(_given(reply))
            content.append({"type": "tool_use", "id": "toolu_1", "name": name, "input": given})
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": self._reason(reply),
            "stop_sequence": None,
            "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS},
        }

    @staticmethod
    def _reason(reply: Reply) -> str:
        if reply.refusal:
            return "refusal"
        return "end_turn" if reply.arguments is None else "tool_use"

    def events(self, reply: Reply, body: Mapping[str, Any]) -> Iterator[bytes]:
        begun = self.whole(Reply(), body) | {"stop_reason": None}
        events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
        blocks: list[tuple[dict[str, Any], str, str]] = []
        if reply.text:
            blocks.append(({"type": "text", "text": ""}, "text", reply.text))
        if reply.arguments is not None:
            name = body["tools"][0]["name"]
            tool = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
            blocks.append((tool, "input_json", _given(reply)))
        for index, (block, kind, text) in enumerate(blocks):
            events.append({"type": "content_block_start", "index": index, "content_block": block})
            key = "text" if kind == "text" else "partial_json"
            for piece in _pieces(text):
                delta = {"type": f"{kind}_delta", key: piece}
                events.append({"type": "content_block_delta", "index": index, "delta": delta})
            events.append({"type": "content_block_stop", "index": index})
        ended = {"stop_reason": self._reason(reply), "stop_sequence": None}
        usage = {"output_tokens": OUTPUT_TOKENS}
        events.append({"type": "message_delta", "delta": ended, "usage": usage})
        events.append({"type": "message_stop"})
        for event in events:
            yield _event(event, event["type"])


APIS: Mapping[str, Any] = {
    "/chat/completions": _Chat(),
    "/responses": _Responses(),
    "/messages": _Messages(),
}
"""End of a request's path -> the format it asks for."""
