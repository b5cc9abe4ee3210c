"""Who may talk to a server of polyshot: the hosts it is called by, the origins of pages, and a token."""

import hmac
import ipaddress
import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from polyshot.errors import InputError

ANY_HOST = "*"
_LOCAL = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/\[\]]+)(?::\d+)?", re.IGNORECASE)
_SHORTEST_TOKEN = 16


class Guard:
    """Refuse requests that a server must not answer, before it reads their body.

    - A Host that is not one of `hosts` (421): a page of another site cannot reach the server under its own name.
    - An Origin other than the server's own (403): a page of another site cannot use the browser to ask.
    - No token, or a wrong one (401), if there is one.

    Parameters
    ----------
    app : ASGI application
        What is protected.
    hosts : collection of str
        The names and addresses by which the server may be called, without ports; "*" stands for all.
    token : str or None
        What requests must have as `Authorization: Bearer TOKEN`.
    open_paths : collection of str
        Paths that need no token.
    """

    def __init__(
        self, app: ASGIApp, hosts: Collection[str], token: str | None = None, open_paths: Collection[str] = ()
    ) -> None:
        self.app, self.token, self.open_paths = app, token, frozenset(open_paths)
        self.hosts = frozenset(host.strip("[]").lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request, or pass it on."""
        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, request: Request) -> JSONResponse | None:
        header, origin = request.headers.get("host", ""), request.headers.get("origin")
        named = _HOST.fullmatch(header)
        host = named[1].strip("[]").lower() if named else ""
        if not host or not ({host, ANY_HOST} & self.hosts):
            return refuse(421, "this server is not called so; start it with --allow-host NAME to add a name")
        if origin is not None and urlsplit(origin).netloc.lower() != header.lower():
            return refuse(403, "pages of other sites may not use this server")
        if self.token is not None and request.url.path not in self.open_paths:
            kind, _, given = request.headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token.encode()):
                answer = refuse(401, "send the server's token as: Authorization: Bearer TOKEN")
                answer.headers["WWW-Authenticate"] = "Bearer"
                return answer
        return None


def refuse(status: int, reason: str) -> JSONResponse:
    """An answer that says why a request is refused."""
    return JSONResponse({"error": reason}, status, {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})


def is_loopback(host: str) -> bool:
    """Whether only this computer can reach a server at that address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def allowed_hosts(host: str, others: Collection[str]) -> frozenset[str]:
    """The names by which a server at `host` may be called: its own, those of this computer, and `others`."""
    everywhere = host.strip("[]") in ("0.0.0.0", "::")
    if everywhere and not others:
        raise InputError(
            f"the server would listen on every address of this computer ({host}); say by which names or addresses "
            f"clients will call it: --allow-host NAME, or --allow-host '{ANY_HOST}' for any"
        )
    return frozenset([*_LOCAL, *others, *([] if everywhere else [host])])


def read_token(path: Path) -> str:
    """The token in a file, without the white space around it."""
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the token cannot be read ({error})") from error


def checked_token(host: str, token: str | None) -> str | None:
    """The token, if it is good enough for a server at `host`; beyond this computer there must be one."""
    if token is None and not is_loopback(host):
        raise InputError(
            f"a server at {host} can be reached from other computers, so it needs a token: set the environment "
            "variable POLYSHOT_TOKEN, or name a file with --token-file"
        )
    if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise InputError(
            f"the token must have {_SHORTEST_TOKEN} printable ASCII characters or more; "
            "python -c 'import secrets; print(secrets.token_urlsafe())' prints one"
        )
    return token
