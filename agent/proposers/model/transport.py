"""How requests reach a model: recorded, tried again where that may help, and never for ever.

Every answer is read to its end before the library sees it. A connection that is cut within an
answer can therefore be tried again like one that was refused, and one deadline covers connecting,
waiting, a body that trickles in, and the pauses between attempts.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import ssl
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Protocol

import httpx2

from agent.proposers.model.exchange import Exchange, ExchangeRecorder, Replay, ReplayFailed

ATTEMPTS = 5
BACKOFF_S = 1.0
"""Before the second attempt; twice that before the third, and so on."""
LARGEST_BYTES = 16_000_000
"""No answer is larger; a server that does not stop would fill the memory."""
TOO_LARGE = f"an answer of more than {LARGEST_BYTES} bytes"
TIMED_OUT = "no whole answer within"
SILENT = "the server was silent for the last"
"""One that stalls will do so again; one that was still sending may have less to say next time."""
STALLED_SHARE = 0.5
"""Part of the timeout without a byte after which the server has stalled."""
HTTP_OK = 200
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that may pass. 529 is Anthropic's for overloaded."""


class ResponseSource(Protocol):
    """Where answers come from."""

    async def answer(
        self, request: httpx2.Request, asked: Exchange, heard: Callable[[], None]
    ) -> Exchange:
        """The request's exchange, whole: also of a status that is an error, and of a cut body.

        `heard` is called whenever something of the answer has come.
        """

    async def pause(self, seconds: float) -> None:
        """Wait before the next attempt."""

    async def close(self) -> None:
        """Let go of connections."""


class Transport(httpx2.AsyncBaseTransport):
    """What the library's HTTP client sends through."""

    def __init__(
        self,
        source: ResponseSource,
        recorder: ExchangeRecorder | None,
        timeout_s: float,
        backoff_s: float = BACKOFF_S,
    ) -> None:
        """Take where answers come from, and the most that one request may take."""
        self._source = source
        self._recorder = recorder
        self._timeout_s = timeout_s
        self._backoff_s = backoff_s
        self.requests = 0
        """Exchanges so far, attempts that failed included."""
        self.failure = ""
        """Why the last request got no answer; the library wraps its exceptions beyond use."""
        self.timed_out = False
        """It got none in time, although the server was sending; a shorter one may come."""
        self._heard_at = 0.0
        self.unstreamed = False
        """The server answered a request for a stream with a plain body."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and again where that may help.

        Raises:
            httpx2.TransportError: no answer came; `failure` says why.
        """
        self.failure, self.timed_out = "", False
        asked = Exchange(
            method=request.method,
            url=str(request.url),
            request_headers=dict(request.headers),
            request=(await request.aread()).decode(),
        )
        ends = asyncio.get_running_loop().time() + self._timeout_s
        for attempt in range(1, ATTEMPTS + 1):
            try:
                done = await self._attempt(request, asked, ends)
            except ReplayFailed as problem:
                self.failure = str(problem)
                raise httpx2.ReadError(self.failure, request=request) from problem
            wait_s = self._wait_s(done, attempt)
            left_s = ends - asyncio.get_running_loop().time()
            if wait_s is None or attempt == ATTEMPTS or wait_s >= left_s:
                break
            await self._source.pause(wait_s)
        if done.error:
            tried = f" ({attempt} attempts)" if attempt > 1 else ""
            self.failure = f"{done.error}{tried}"
            raise httpx2.ReadError(self.failure, request=request)
        if done.status == HTTP_OK and (instead := _no_api(done.response)):
            self.failure = f"it answers {instead}: is {_base(request.url)} the URL of its API?"
            raise httpx2.ReadError(self.failure, request=request)
        kind = (done.response_headers or {}).get("content-type", "")
        self.unstreamed = done.status == HTTP_OK and asked.kind[3] and "event-stream" not in kind
        headers = {"content-type": kind} if kind else {}
        return httpx2.Response(done.status, headers=headers, content=done.response, request=request)

    async def _attempt(self, request: httpx2.Request, asked: Exchange, ends: float) -> Exchange:
        begun = time.monotonic()
        self.requests += 1
        self._hear()
        try:
            async with asyncio.timeout_at(ends):
                done = await self._source.answer(request, asked, self._hear)
        except TimeoutError:
            done = replace(asked, error=self._timeout_error())
        except asyncio.CancelledError:  # what was asked may have been paid for
            self._record(replace(asked, error="interrupted"))
            raise
        self.timed_out = done.error.startswith(TIMED_OUT) and SILENT not in done.error
        self._record(replace(done, took_s=time.monotonic() - begun))
        return done

    def _hear(self) -> None:
        self._heard_at = time.monotonic()

    def _timeout_error(self) -> str:
        silent_s = time.monotonic() - self._heard_at
        error = f"{TIMED_OUT} {self._timeout_s:g} s"
        if silent_s < STALLED_SHARE * self._timeout_s:
            return error
        return f"{error}; {SILENT} {silent_s:.1f} s"

    def _record(self, exchange: Exchange) -> None:
        if self._recorder is not None:
            self._recorder.record(exchange)

    def _wait_s(self, done: Exchange, attempt: int) -> float | None:
        """How long to wait before trying again; None where that would be of no use."""
        if done.status in AGAIN and b"insufficient_quota" in done.response:
            return None
        if done.error == TOO_LARGE or done.error.startswith(TIMED_OUT):
            return None
        if not done.error and done.status not in AGAIN:
            return None
        backoff_s = self._backoff_s * 2.0 ** (attempt - 1)
        return max(backoff_s, _retry_after_s(done))

    async def aclose(self) -> None:
        """Close connections."""
        await self._source.close()


class Network:
    """Answers from a server."""

    def __init__(self) -> None:
        """Open nothing yet."""
        self._connections: httpx2.AsyncHTTPTransport | None = None

    async def answer(
        self, request: httpx2.Request, asked: Exchange, heard: Callable[[], None]
    ) -> Exchange:
        """Send the request and read all of the answer."""
        if self._connections is None:
            trusted = _trusted(*(os.environ.get(name) for name in _CERTIFICATES))
            self._connections = httpx2.AsyncHTTPTransport(trusted, proxy=_proxy(request.url))
        status, headers, body = 0, {}, bytearray()
        error = ""
        try:
            response = await self._connections.handle_async_request(request)
            status, headers = response.status_code, dict(response.headers)
            try:
                async for piece in response.aiter_bytes():
                    body += piece
                    heard()
                    if len(body) > LARGEST_BYTES:
                        error = TOO_LARGE
                        break
            finally:
                await response.aclose()
        except (httpx2.TransportError, httpx2.DecodingError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        return replace(
            asked, status=status, response_headers=headers, response=bytes(body), error=error
        )

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close connections."""
        if self._connections is not None:
            await self._connections.aclose()


class Recordings:
    """Answers from recordings, without a network and without waiting."""

    def __init__(self, replay: Replay) -> None:
        """Take the recordings."""
        self._replay = replay

    async def answer(
        self,
        request: httpx2.Request,  # noqa: ARG002
        asked: Exchange,
        heard: Callable[[], None],  # noqa: ARG002
    ) -> Exchange:
        """What the next recording holds."""
        recorded = self._replay.answer(asked)
        return replace(
            asked,
            status=recorded.status,
            response_headers=recorded.response_headers,
            response=recorded.response,
            error=recorded.error,
        )

    async def pause(self, seconds: float) -> None:
        """Go on at once: the recording knows what came of the next attempt."""

    async def close(self) -> None:
        """Nothing is open."""


def _no_api(body: bytes) -> str:
    """What came in place of JSON or a stream of it, such as a page of HTML; else nothing.

    A wrong URL leads to the page of whatever listens there, which is no fault of one answer.
    """
    text = body.lstrip()
    if not text:
        return "nothing"
    if text.startswith((b"data:", b"event:", b"id:", b"retry:", b":")):
        return ""
    try:
        whole = json.loads(text)
    except ValueError:
        return "HTML and no JSON" if text.startswith(b"<") else "no JSON"
    return "" if isinstance(whole, dict) else "no object of JSON"


def _base(url: httpx2.URL) -> str:
    """Where a server is, without what may hold a key."""
    return f"{url.scheme}://{url.netloc.decode()}"


_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@functools.cache
def _trusted(*_: str | None) -> ssl.SSLContext:
    """Read once, which takes as long as an answer of a server nearby; by what the variables say."""
    return httpx2.create_ssl_context()


def _proxy(url: httpx2.URL) -> str | None:
    """The proxy of the environment for a URL; the library asks only where it has no transport."""
    if urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)


def _retry_after_s(done: Exchange) -> float:
    """What the server asks to wait: a number of seconds, or the date at which to come back."""
    asked = (done.response_headers or {}).get("retry-after", "")
    try:
        return max(0.0, float(asked))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
    except ValueError:
        return 0.0
