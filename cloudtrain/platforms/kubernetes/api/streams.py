"""Answers that arrive line by line: watches and logs."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cloudtrain.platforms.kubernetes.api.answers import Asked, network_error, object_error
from cloudtrain.platforms.kubernetes.api.errors import KubeUnreachable

if TYPE_CHECKING:
    import httpx2 as httpx

    from cloudtrain.platforms.kubernetes.api.connection import Connection

LONGEST_LINE = 16 << 20
"""In bytes. What is longer arrives in pieces, so that no server can fill the memory."""


class LineStream:
    """The lines of an answer, with their ends. `close` ends it from any thread, even while another waits for a line."""

    def __init__(self, response: httpx.Response, at: Connection) -> None:
        self._response = response
        self._at = at
        self._is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        """Raises KubeUnreachable if the connection breaks."""
        parts: list[bytes] = []
        size = 0
        for chunk in self.chunks():
            first, *lines = _split(chunk)
            parts.append(first)
            size += len(first)
            if lines:
                *lines, last = [b"".join(parts), *lines]
                yield from lines
                parts, size = [last], len(last)
            elif size > LONGEST_LINE:
                yield b"".join(parts)
                parts, size = [], 0
        if (rest := b"".join(parts)) and not self._is_closed:
            yield rest

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they arrive. Raises KubeUnreachable if the connection breaks."""
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
            return  # another request may have its connection now
        stream = self._response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream else None
        if connection is not None:
            with contextlib.suppress(OSError):  # closed already
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _split(data: bytes) -> list[bytes]:
    """The complete lines of ``data`` with their ends, and then what follows the last one."""
    *lines, rest = data.split(b"\n")
    return [*(line + b"\n" for line in lines), rest]


class Watch:
    """The changes of one watch: pairs of ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, and the object."""

    def __init__(self, lines: LineStream, asked: Asked, at: Connection) -> None:
        self._lines = lines
        self._asked = asked
        self._at = at

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Ends when the server ends the watch. Raises KubeGone, KubeUnreachable or another KubeError."""
        for line in self._lines:
            try:
                change = json.loads(line)
                kind, found = change["type"], change["object"]
            except (ValueError, KeyError, TypeError):  # cut off in the middle, or not from an API server
                raise KubeUnreachable(
                    f"{self._at.server} broke off a watch in the middle of a change", is_transient=True
                ) from None
            if kind == "ERROR":
                raise object_error(found, self._asked, self._at)
            yield kind, found

    def close(self) -> None:
        """End the watch, from any thread."""
        self._lines.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
