"""Connections of the server: one that asks for nothing keeps no other from being served."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 200
"""Connections at the same time. Beyond that, the oldest one that asks for nothing is closed."""
FIRST_REQUEST_SECONDS = 30.0
"""After so long without a whole request, a connection is closed."""


class Connection(H11Protocol):
    """Gives way to later ones while it is idle: any program of this machine may open hundreds."""

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
        """Whether no request is being answered. It may have sent a part of one."""
        return not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete)

    def _end_if_idle(self) -> None:
        cycle: object = self.cycle
        if cycle is None:
            self.transport.abort()
