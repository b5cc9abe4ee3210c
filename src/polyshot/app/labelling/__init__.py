"""The labelling page: a person labels the items most worth it, and sees what the model makes of them."""

from polyshot.app.labelling.exports import Exports
from polyshot.app.labelling.server import Server
from polyshot.app.labelling.session import Session
from polyshot.app.labelling.sources import open_session
from polyshot.app.labelling.store import Decision

__all__ = ["Decision", "Exports", "Server", "Session", "open_session"]
