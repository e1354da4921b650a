"""Connections of the server. Idle connections cannot keep others from being served."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 200
"""The most simultaneous connections. Beyond that, the oldest idle one is closed."""
FIRST_REQUEST_SECONDS = 30.0
"""A connection that has not sent a complete request after this time is closed."""


class Connection(H11Protocol):
    """A connection that gives way to later ones while it is idle, because any local program may open hundreds."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._began = self.loop.time()
        self._deadline: asyncio.TimerHandle = self.loop.call_later(FIRST_REQUEST_SECONDS, self._end_if_idle)
        if len(self.connections) > MOST:
            others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
            idle = [one for one in others if one.is_idle]
            if idle:
                min(idle, key=lambda one: one._began).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered. The client may have sent a part of one."""
        return not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete)

    def _end_if_idle(self) -> None:
        cycle: object = self.cycle
        if cycle is None:
            self.transport.abort()
