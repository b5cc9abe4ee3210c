"""Who may talk to the labelling page: one browser on this computer, and no other site that is open in it."""

from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from polyshot.app.guard import is_called, is_from_here, is_token

_NAMES = ("127.0.0.1", "localhost")
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
    change something must have this page's Origin.

    Parameters
    ----------
    app : ASGIApp
    port : int
    token : str
    """

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self._app, self._port, self._token = app, port, token
        self._cookie = f"polyshot-label-{port}"  # cookies do not tell ports apart

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

        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that is not let through; None for one that is."""
        if scope["type"] != "http" or not is_called(headers, _NAMES, self._port):
            return PlainTextResponse("This page is only for this computer.", 421)
        if not self._has_token(scope) and not self._has_cookie(headers):
            return PlainTextResponse(_NO_KEY, 403)
        entry = scope["path"] == "/" and scope["method"] == "GET"
        if not entry and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return PlainTextResponse("Other sites may not use this page.", 403)
        if scope["method"] == "POST" and not is_from_here(headers):
            return PlainTextResponse("Other sites may not use this page.", 403)
        return None

    def _has_token(self, scope: Scope) -> bool:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return scope["path"] == "/" and is_token(given, self._token)

    def _has_cookie(self, headers: Headers) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and is_token(cookie.value, self._token)
