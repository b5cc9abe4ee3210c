"""Who may talk to a server of polyshot: the hosts it is called by, the origins of pages, and a token.

`Guard` protects the prediction service; the labelling page has a stricter one (labelling/guard.py), made of the same
checks.
"""

import hmac
import ipaddress
import re
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from polyshot.errors import InputError

ANY_HOST = "*"
_LOCAL = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/\[\]]+)(?::(\d+))?", re.IGNORECASE)
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
        headers = request.headers
        if not is_called(headers, self.hosts):
            return refuse(421, "this server is not called so; start it with --allow-host NAME to add a name")
        if "origin" in headers and not is_from_here(headers):
            return refuse(403, "pages of other sites may not use this server")
        if self.token is not None and request.url.path not in self.open_paths:
            kind, _, given = headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not is_token(given.strip(), self.token):
                answer = refuse(401, "send the server's token as: Authorization: Bearer TOKEN")
                answer.headers["WWW-Authenticate"] = "Bearer"
                return answer
        return None


def is_called(headers: Headers, names: Collection[str], port: int | None = None) -> bool:
    """Whether the Host of a request is one of these lower-case names ("*" is any), at this port if one is given."""
    host = _HOST.fullmatch(headers.get("host", ""))
    if host is None or (port is not None and host[2] != str(port)):
        return False
    return ANY_HOST in names or host[1].strip("[]").lower() in names


def is_from_here(headers: Headers) -> bool:
    """Whether the Origin of a request is the server itself."""
    return headers.get("origin", "").partition("://")[2].lower() == headers["host"].lower()


def is_token(given: str, token: str) -> bool:
    """Whether the two are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(given.encode(), token.encode())


async def read_json_body(request: Request, n_bytes: int) -> bytes:
    """The body of a request that says it is JSON, up to a size."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "the body must be JSON, with Content-Type: application/json")
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > n_bytes:
                raise HTTPException(413, f"the body is larger than {n_bytes:,} bytes")
    except ClientDisconnect:
        raise HTTPException(400, "the request was not complete") from None
    return bytes(body)


def refuse(status: int, reason: str) -> JSONResponse:
    """An answer that says why a request is refused."""
    return JSONResponse({"error": reason}, status, {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})


async def refused(request: Request, error: Exception) -> JSONResponse:
    """An HTTPException as JSON: the `exception_handlers` of the applications."""
    assert isinstance(error, HTTPException)
    answer = refuse(error.status_code, error.detail)
    answer.headers.update(error.headers or {})
    return answer


def is_loopback(host: str) -> bool:
    """Whether only this computer can reach a server at that address."""
    return host == "localhost" or _is_address(host, "is_loopback")


def _is_address(host: str, kind: Literal["is_loopback", "is_unspecified"]) -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(host.strip("[]")), kind))
    except ValueError:
        return False


def allowed_hosts(host: str, others: Collection[str]) -> frozenset[str]:
    """The names by which a server at `host` may be called: its own, those of this computer, and `others`."""
    everywhere = _is_address(host, "is_unspecified")
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
