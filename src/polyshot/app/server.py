"""Run an ASGI application on a socket of this computer, until Ctrl-C or SIGTERM."""

import contextlib
import socket

import uvicorn
from starlette.types import ASGIApp

from polyshot.errors import InputError


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address; an address that cannot be had is an InputError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        found = socket.create_server(address[:2], family=family)
        # connections inherit it; asyncio sets it only on sockets that name their protocol, and without it a client that
        # keeps its connection waits 40 ms for every answer (Nagle's algorithm and delayed acknowledgements)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on port {port} of {host} ({reason}); choose another port or address"
        ) from error


def run(app: ASGIApp, on: socket.socket) -> None:
    """Serve requests; those at work are answered before the end."""
    config = uvicorn.Config(
        app, log_level="warning", server_header=False, ws="none", lifespan="off", timeout_graceful_shutdown=10
    )
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[on])
