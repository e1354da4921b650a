"""Sends requests, with retries, and reads responses that arrive line by line: watches and logs."""

from __future__ import annotations

import contextlib
import email.utils
import json
import random
import re
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import CloudtrainError
from cloudtrain.platforms.kubernetes.api.errors import (
    NOT_CONNECTED,
    KubeError,
    KubeTooLarge,
    KubeUnreachable,
    Subject,
    network_error,
    object_error,
    status_error,
)

if TYPE_CHECKING:
    import httpx2 as httpx

    from cloudtrain.platforms.kubernetes.api.connection import Connection

ATTEMPTS = 14
RETRY_SECONDS = 60.0
"""How long a request is retried on a server that has responded before."""
NEW_SECONDS = 1.5
"""How long it is retried on a server that has never responded: its name, port or network may be wrong."""
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')

CLOCK_ERROR = 5.0
"""Differences of the clocks up to this many seconds are ignored: responses take time, and have whole seconds."""
FIRST_BACKOFF = 0.2
LONGEST_BACKOFF = 8.0
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
LARGEST_ANSWER = 64 << 20
"""In bytes, uncompressed. Objects have at most a few megabytes, and pages of a list can be made shorter."""
LONGEST_ANSWER = 300.0
"""The seconds after which a response that is still arriving counts as broken."""
LONGEST_LINE = 16 << 20
"""In bytes. Longer lines arrive in pieces, so that no server can exhaust the memory."""


SWITCHING_PROTOCOLS = 101

_METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}


@dataclass
class Call(Subject):
    """A request that can be sent any number of times."""

    params: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    address: str = ""
    """The path of a request without a kind."""
    content_type: str = "application/json"
    accept: str = "*/*"
    headers: Mapping[str, str] = field(default_factory=dict)
    """Additional headers."""
    is_repeatable: bool = True
    """False if it must not be repeated after the server may have executed it."""
    attempts: int = ATTEMPTS
    silence: float = READ_SECONDS
    """The seconds without a byte after which the response counts as broken."""
    warnings: list[str] = field(default_factory=list)
    """Warnings of the server, for example about rules of Pod Security that pods will violate."""
    lost: list[KubeError] = field(default_factory=list)
    """The errors after which the server may have executed the request."""

    @property
    def method(self) -> str:
        return _METHODS.get(self.verb, "GET")

    @property
    def path(self) -> str:
        if self.kind is None:
            return self.address
        is_creation = self.verb == "create" and not self.subresource
        return self.kind.path(self.namespace, "" if is_creation else self.name, self.subresource)


class Transport:
    """The requests over one connection. Threads may share it."""

    def __init__(self, connection: Connection) -> None:
        self._at = connection
        self._has_answered = False
        self.ahead = 0.0
        """Seconds by which the server's clock is ahead of this machine's."""

    def json(self, call: Call) -> dict[str, Any]:
        """The object that the server returns. Raises KubeError."""
        response, body = self._answered(call, is_stream=False)
        for header in response.headers.get_list("Warning"):
            call.warnings += [re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(header)]
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            given = response.headers.get("Content-Type", "an unknown type")
            raise KubeError(
                f"{self._at.server} is not an API server: it answered with {given}",
                hint="A proxy or a login page may be in front of it.",
            )
        return answer

    def stream(self, call: Call) -> LineStream:
        """A response that has begun. Raises KubeError."""
        return LineStream(self._answered(call, is_stream=True)[0], call, self._at)

    def upgraded(self, call: Call) -> httpx.Response:
        """The response of a server that has switched to another protocol. Raises KubeError."""
        response, _ = self._answered(call, is_stream=True)
        if response.status_code != SWITCHING_PROTOCOLS:
            response.close()
            raise KubeError(f"{self._at.server}, or a proxy in front of it, does not accept WebSockets")
        return response

    def _answered(self, call: Call, *, is_stream: bool) -> tuple[httpx.Response, bytes]:
        began = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            outcome = self._attempt(call, is_stream=is_stream)
            if not isinstance(outcome, KubeError):
                return outcome
            if outcome.reason != NOT_CONNECTED and (outcome.status == 0 or outcome.status >= 500):
                call.lost.append(outcome)
            may_repeat = outcome.is_transient and (call.is_repeatable or not call.lost)
            pause = (
                outcome.retry_after
                if outcome.retry_after is not None
                else backoff(attempt, FIRST_BACKOFF, LONGEST_BACKOFF)
            )
            patience = RETRY_SECONDS if self._has_answered else NEW_SECONDS
            if not may_repeat or attempt >= call.attempts or time.monotonic() + pause - began > patience:
                raise outcome
            time.sleep(pause)

    def _attempt(self, call: Call, *, is_stream: bool) -> tuple[httpx.Response, bytes] | KubeError:
        import httpx2 as httpx
        from lightkube.core.exceptions import ConfigError

        at = self._at
        request = at.http.build_request(
            call.method,
            call.path,
            params={
                key: [*value] if isinstance(value, tuple) else str(value)
                for key, value in call.params.items()
                if value != ""
            },
            content=None if call.body is None else json.dumps(call.body).encode(),
            headers={
                "Accept": call.accept,
                **call.headers,
                **({} if call.body is None else {"Content-Type": call.content_type}),
            },
            timeout=httpx.Timeout(call.silence, connect=CONNECT_SECONDS, pool=None),
            extensions=dict(at.extensions),
        )
        try:
            response = at.http.send(request, stream=True)
            self._has_answered = True
            self._compare_clocks(response.headers.get("Date", ""))
            if is_stream and response.status_code < 300:
                return response, b""
            body = self._read(response)
            if response.status_code < 300:
                return response, body
        except ConfigError as error:  # from the token's file
            return KubeError(f"the credentials of the context {at.login.context} cannot be read: {error}")
        except CloudtrainError:  # from the program that gets the credentials
            raise
        except (httpx.HTTPError, httpx.StreamError, OSError, ValueError) as error:
            return network_error(error, at)
        return status_error(response.status_code, body, response.headers, call, at)

    def _compare_clocks(self, date: str) -> None:
        with contextlib.suppress(ValueError):
            ahead = email.utils.parsedate_to_datetime(date).timestamp() - time.time()
            self.ahead = ahead if abs(ahead) > CLOCK_ERROR else 0.0

    def _read(self, response: httpx.Response) -> bytes:
        """The whole response. Raises KubeTooLarge, KubeError, and httpx's errors if the connection breaks."""
        until = time.monotonic() + LONGEST_ANSWER
        parts, size = [], 0
        try:
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > LARGEST_ANSWER:
                    raise KubeTooLarge(
                        f"{self._at.server} answered with more than {LARGEST_ANSWER >> 20} MiB"
                    )
                if time.monotonic() > until:
                    raise KubeError(f"an answer of {self._at.server} did not end in {LONGEST_ANSWER:.0f} s")
        finally:
            response.close()
        return b"".join(parts)


def backoff(failures: int, first: float, longest: float) -> float:
    """The seconds to wait. They double with each failure, with jitter, so that clients do not retry simultaneously."""
    return min(first * 2.0 ** min(failures - 1, 10), longest) * random.uniform(0.5, 1.0)


class LineStream:
    """A response that arrives line by line. Use it as a context manager.

    `close` ends it from any thread, even while another thread waits for a line.
    """

    def __init__(self, response: httpx.Response, subject: Subject, at: Connection) -> None:
        self._response = response
        self._subject = subject
        self._at = at
        self._is_closed = False
        self.rest = b""

    def __enter__(self) -> LineStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._response.close()

    def __iter__(self) -> Iterator[bytes]:
        """The lines, with their line ends. Raises KubeUnreachable if the connection breaks."""
        for lines in self.batches():
            yield from lines
        if self.rest and not self._is_closed:
            yield self.rest

    def batches(self, longest: int = LONGEST_LINE) -> Iterator[list[bytes]]:
        """The lines that each part of the response completes, with their ends. `rest` has the unfinished last line.

        A line of more than ``longest`` bytes is split into pieces, regardless of how its bytes arrive. Only the last
        piece has a line end. Raises KubeUnreachable if the connection breaks.
        """
        for chunk in self._chunks():
            *complete, last = (self.rest + chunk).split(b"\n")
            lines = []
            for line in complete:
                *begun, end = _pieces(line, longest) if len(line) > longest else (line,)
                lines += [*begun, end + b"\n"]
            *begun, self.rest = _pieces(last, longest)
            yield lines + begun

    def changes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The changes of a watch: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, and the object.

        Ends when the server ends the watch. Raises KubeGone, KubeUnreachable or another KubeError.
        """
        for line in self:
            try:
                change = json.loads(line)
                kind, found = change["type"], change["object"]
            except (ValueError, KeyError, TypeError):  # cut off in the middle, or not from an API server
                raise KubeUnreachable(
                    f"{self._at.server} broke off a watch in the middle of a change", is_transient=True
                ) from None
            if kind == "ERROR":
                raise object_error(found, self._subject, self._at)
            yield kind, found

    def _chunks(self) -> Iterator[bytes]:
        import httpx2 as httpx

        try:
            yield from self._response.iter_bytes()
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            if not self._is_closed:
                raise network_error(error, self._at) from None
        finally:
            self._response.close()

    def close(self) -> None:
        """End the stream."""
        self._is_closed = True
        if self._response.is_closed:
            return  # another request may be using its connection
        stream = self._response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream else None
        if connection is not None:
            with contextlib.suppress(OSError):  # closed already
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _pieces(line: bytes, size: int) -> list[bytes]:
    return [line[at : at + size] for at in range(0, len(line), size)] or [b""]
