"""The runtime's HTTP requests, which go only to the server that the user or the cluster has specified."""

from __future__ import annotations

import ssl
import urllib.request
from typing import Any


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirect, because the credentials and the body are for the first server only."""


def make_opener(
    trust: ssl.SSLContext | None = None, *, proxies: bool = True
) -> urllib.request.OpenerDirector:
    """An opener for requests. A redirect raises `urllib.error.HTTPError`.

    Args:
        trust: the context for ``https``; by default, it trusts the system's certificate authorities.
        proxies: whether to use the proxies from the environment.
    """
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    handlers.append(urllib.request.HTTPSHandler(context=trust or ssl.create_default_context()))
    if not proxies:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)
