"""HTTP requests of the runtime: to the server that the user or the cluster has named, and to no other."""

from __future__ import annotations

import ssl
import urllib.request
from typing import Any


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none: the credentials and the body are for the first server only."""


def make_opener(
    trust: ssl.SSLContext | None = None, *, proxies: bool = True
) -> urllib.request.OpenerDirector:
    """Sends requests. A redirect is an `urllib.error.HTTPError`.

    Args:
        trust: for ``https``; by default the authorities of the system.
        proxies: whether to use those of the environment.
    """
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    handlers.append(urllib.request.HTTPSHandler(context=trust or ssl.create_default_context()))
    if not proxies:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)
