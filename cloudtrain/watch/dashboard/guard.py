"""Access control: only the person who has the first address may use the dashboard, and only from its own pages.

Any local program can connect to a loopback address, and any web page can make a browser do so. Therefore:

- The first address contains a token. It is exchanged for a cookie, and the browser is redirected immediately.
- Browsers send a cookie to all ports of a machine. This one is limited to paths that begin with a second random name,
  so that servers on other ports of this machine do not get it.
- A request whose ``Host`` is the name of another machine is refused, because it may come from DNS rebinding. So is a
  request whose ``Origin`` is another page. A request that changes something must have an origin.
- The headers of responses forbid frames, scripts other than the dashboard's own files, and requests to other servers.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Container
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 1 << 16
"""The most bytes of a request body."""
COOKIE = "cloudtrain"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
NO_COOKIE = "Open the address that cloudtrain dashboard printed: it has the token.\n"


class Guard:
    """ASGI middleware that admits only the owner's browser, below the path `root`."""

    def __init__(self, app: ASGIApp, names: Container[str], *, any_address: bool = False) -> None:
        """Args:
        names: the names of this machine that ``Host`` may contain.
        any_address: whether ``Host`` may be any IP address, not only a loopback address. No web page can make a
            browser send an IP address that is not the server's.
        """
        self._app = app
        self._names = names
        self._any_address = any_address
        self.token = secrets.token_urlsafe(32)
        self.root = f"/{secrets.token_hex(8)}"
        self._cookie = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            answer = self._refusal(scope) or self._entry(scope) or self._locked(scope)
            await (answer or self._app)(scope, _bounded(receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        hosts, origins = _header(scope, b"host"), _header(scope, b"origin")
        if len(hosts) != 1 or not self._is_this_machine(hosts[0]):
            return PlainTextResponse("This server has another name.\n", 403)
        is_own = origins == [f"{scope['scheme']}://{hosts[0]}"]
        if not is_own and (origins or scope["method"] not in ("GET", "HEAD")):
            return PlainTextResponse("This request comes from another page.\n", 403)
        lengths = _header(scope, b"content-length")
        if lengths and (not lengths[0].isdecimal() or int(lengths[0]) > LARGEST_BODY):
            return PlainTextResponse("This request is too large.\n", 413)
        return None

    def _is_this_machine(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            return ipaddress.ip_address(name).is_loopback or self._any_address
        except ValueError:
            return name in self._names

    def _entry(self, scope: Scope) -> Response | None:
        """Exchange the token for the cookie."""
        if scope["path"] != "/enter":
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["method"] != "GET" or not _same(given, self.token):
            return PlainTextResponse("This is not the token of this server.\n", 403)
        start = f"{self.root}/"
        if _header(scope, b"sec-fetch-site") == ["cross-site"]:
            # browsers send no strict cookie with a redirect that follows a link on another page
            answer: Response = HTMLResponse(f'<meta http-equiv="refresh" content="0;url={start}">')
        else:
            answer = RedirectResponse(start, 303)
        is_secure = scope["scheme"] == "https"
        answer.set_cookie(
            COOKIE, self._cookie, path=self.root, secure=is_secure, httponly=True, samesite="strict"
        )
        return answer

    def _locked(self, scope: Scope) -> Response | None:
        for header in _header(scope, b"cookie"):
            try:
                found = SimpleCookie(header).get(COOKIE)
            except CookieError:
                continue
            if found and _same(found.value, self._cookie):
                return None
        return PlainTextResponse(NO_COOKIE, 401)


def _same(given: str, own: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), own.encode())


def _header(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


class TooLarge(Exception):
    """A request has more bytes than `LARGEST_BODY`, without a Content-Length that announces them."""


def _bounded(receive: Receive) -> Receive:
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > LARGEST_BODY:
            raise TooLarge
        return message

    return bounded


def _with_headers(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {key for key, _ in message["headers"]}
            more = [(key.lower().encode(), value.encode()) for key, value in HEADERS.items()]
            message["headers"] = [*message["headers"], *(pair for pair in more if pair[0] not in given)]
        await send(message)

    return with_headers
