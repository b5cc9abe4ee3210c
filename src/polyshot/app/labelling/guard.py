"""Who may talk to the labelling page: one browser on this computer, and no other site that is open in it."""

import secrets
from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MOST_BYTES = 2**20  # of a request
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_NO_KEY = "This page needs its whole address. Open the one that `polyshot label` shows in the terminal."


class Guard:
    """Middleware that lets only the page itself through.

    The address with the token sets a cookie, which every further request must carry. The Host must be this computer
    (no DNS rebinding), other sites are refused by Origin and Sec-Fetch-Site (no cross-site request), and requests that
    change something must be small JSON of this origin.

    Parameters
    ----------
    app : ASGIApp
    port : int
    token : str
    """

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self._app, self._token = app, token
        self._cookie = f"polyshot-label-{port}"  # cookies do not tell ports apart
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    out[name] = value
                out.setdefault("Cache-Control", "no-store")
                if refusal is None and self._has_token(scope):
                    out["Set-Cookie"] = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Lax"
            await send(message)

        if refusal is not None:
            await refusal(scope, receive, send_guarded)
        elif scope["method"] == "POST":
            await self._post(scope, receive, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that is not let through; None for one that is."""
        host = headers.get("host", "")
        if scope["type"] != "http" or host not in self._hosts:
            return PlainTextResponse("This page is only for this computer.", 421)
        if not self._has_token(scope) and not self._has_cookie(headers):
            return PlainTextResponse(_NO_KEY, 403)
        entry = scope["path"] == "/" and scope["method"] == "GET"
        if not entry and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return PlainTextResponse("Other sites may not use this page.", 403)
        if scope["method"] == "POST":
            if headers.get("origin") != f"http://{host}":
                return PlainTextResponse("Other sites may not use this page.", 403)
            if headers.get("content-type", "").partition(";")[0] != "application/json":
                return JSONResponse({"error": "send JSON"}, 415)
        return None

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a body that is small enough."""
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > _MOST_BYTES:
                await JSONResponse({"error": f"larger than {_MOST_BYTES} bytes"}, 413)(scope, receive, send)
                return
        await self._app(scope, _once(body, receive), send)

    def _has_token(self, scope: Scope) -> bool:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return scope["path"] == "/" and self._is_token(given)

    def _has_cookie(self, headers: Headers) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value)

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self._token.encode())


def _once(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """Receive that gives the whole body first."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
