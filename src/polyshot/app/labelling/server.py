"""The server of the labelling page, for the browser on the same computer."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from polyshot.app.guard import read_json_body, refused
from polyshot.app.labelling import views
from polyshot.app.labelling.exports import Exports
from polyshot.app.labelling.guard import Guard
from polyshot.app.labelling.session import Session, Stale
from polyshot.app.labelling.store import Decision
from polyshot.app.server import listen
from polyshot.app.thumbnails import thumbnail
from polyshot.errors import DataError, InputError, PolyshotError

_SIZES = {"small": 240, "large": 1600}  # pixels
_MOST_BYTES = 2**20  # of a request
_PICTURES = 500  # kept in memory
_HEARTBEAT = 1.0  # seconds after which an idle stream looks whether its reader is still there
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


class Server:
    """The page on a port of this computer.

    Parameters
    ----------
    session : Session
    exports : Exports
    port : int
        0 takes any free one.
    target : float
        The expected accuracy at which the page says that it is enough.

    Attributes
    ----------
    url : str
        The address of the page, with the token that opens it.
    """

    def __init__(self, session: Session, exports: Exports, *, port: int = 0, target: float = 0.9) -> None:
        self._session, self._exports, self._target = session, exports, target
        self._socket = listen("127.0.0.1", port)
        port = self._socket.getsockname()[1]
        token = secrets.token_urlsafe(24)
        self.url = f"http://127.0.0.1:{port}/?token={token}"
        self._picture = lru_cache(_PICTURES)(partial(_picture, session))
        routes = [
            Route("/", partial(_file, "label.html")),
            *(Route(f"/label.{kind}", partial(_file, f"label.{kind}")) for kind in ("js", "css", "svg")),
            Route("/state", self._state),
            Route("/items", self._items),
            Route("/items/{row:int}", self._item),
            Route("/images/{row:int}/{size}", self._image),
            Route("/changes", self._changes),
            *(Route(f"/{name}", self._change, methods=["POST"]) for name in _CHANGES),
            Route("/export", self._export, methods=["POST"]),
        ]
        app = Starlette(routes=routes, exception_handlers={PolyshotError: _refused, HTTPException: refused})
        config = uvicorn.Config(
            Guard(app, port, token),
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            limit_concurrency=200,
            timeout_graceful_shutdown=2,
        )
        self._uvicorn = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM."""
        with suppress(KeyboardInterrupt):  # uvicorn raises it again after it has ended in good order
            self._uvicorn.run([self._socket])

    def stop(self) -> None:
        """End `run`, from any thread."""
        self._uvicorn.should_exit = True

    def _state(self, request: Request) -> Response:
        return JSONResponse(views.overview(self._session, self._target))

    def _items(self, request: Request) -> Response:
        query = request.query_params
        offset = query.get("offset", "0")
        if not offset.isdecimal():
            raise InputError(f"offset must be a whole number, not {offset!r}")
        return JSONResponse(views.answers(self._session, query.get("list", ""), query.get("class"), int(offset)))

    def _item(self, request: Request) -> Response:
        return JSONResponse(views.whole_item(self._session, request.path_params["row"]))

    def _image(self, request: Request) -> Response:
        picture = self._picture(request.path_params["row"], request.path_params["size"])
        if picture is None:
            return JSONResponse({"error": "the image cannot be read any more"}, 404)
        return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=600"})

    async def _change(self, request: Request) -> Response:
        """Change something, and answer with what holds now."""
        content = await _json(request)
        change = _CHANGES[request.url.path.strip("/")]
        await run_in_threadpool(change, self._session, content)
        return JSONResponse(await run_in_threadpool(views.overview, self._session, self._target))

    async def _export(self, request: Request) -> Response:
        content = await _json(request)
        return JSONResponse(await run_in_threadpool(self._exports.write, _text(content, "what")))

    async def _changes(self, request: Request) -> Response:
        """A stream of the versions, one message after every change (server-sent events)."""
        return StreamingResponse(self._versions(request), media_type="text/event-stream")

    async def _versions(self, request: Request) -> AsyncIterator[str]:
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        forget = self._session.listen(lambda: _call(loop, changed.set))
        try:
            while not self._uvicorn.should_exit and not await request.is_disconnected():
                changed.clear()
                learned = self._session.learned
                now = [self._session.decisions.version, learned.version, learned.complete]
                yield f"data: {json.dumps(now)}\n\n"
                while not changed.is_set() and not self._uvicorn.should_exit:
                    try:
                        await asyncio.wait_for(changed.wait(), _HEARTBEAT)
                    except TimeoutError:
                        yield ":\n\n"
        finally:
            forget()


def _decide(session: Session, content: dict[str, Any]) -> None:
    rows, label = content.get("rows"), content.get("label")
    if not isinstance(rows, list) or not all(type(row) is int for row in rows):
        raise InputError("rows must be a list of whole numbers")
    decision = Decision(_text(content, "kind"), None if label is None else _text(content, "label"))
    session.decide(rows, decision, _seen(content))


def _rename(session: Session, content: dict[str, Any]) -> None:
    session.rename(_text(content, "old"), _text(content, "new"), _seen(content))


def _undo(session: Session, content: dict[str, Any]) -> None:
    session.undo(_seen(content))


_CHANGES: dict[str, Callable[[Session, dict[str, Any]], None]] = {
    "decide": _decide,
    "rename": _rename,
    "undo": _undo,
}


def _seen(content: dict[str, Any]) -> int:
    seen = content.get("seen")
    if type(seen) is not int:
        raise InputError("seen must be the version that the page shows")
    return seen


def _text(content: dict[str, Any], name: str) -> str:
    text = content.get(name)
    if not isinstance(text, str):
        raise InputError(f"{name} must be a text")
    return text


async def _json(request: Request) -> dict[str, Any]:
    body = await read_json_body(request, _MOST_BYTES)
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError("send a JSON object")
    return content


async def _refused(request: Request, error: Exception) -> Response:
    status = 409 if isinstance(error, Stale) else 500 if isinstance(error, DataError) else 400
    return JSONResponse({"error": str(error)}, status)


async def _file(name: str, request: Request) -> Response:
    content = files("polyshot.app.labelling").joinpath("page", name).read_bytes()
    return Response(content, headers={"Content-Type": f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8"})


def _picture(session: Session, row: int, size: str) -> bytes | None:
    if session.items.kind != "images" or not 0 <= row < len(session.items) or size not in _SIZES:
        return None
    return thumbnail(session.items.contents[row], _SIZES[size])


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call from another thread; a loop that has ended hears nothing."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)
