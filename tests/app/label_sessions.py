"""Sessions to label: made-up texts with a cheap encoder, and a server of the page in this process."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from polyshot.app import Items
from polyshot.app.labelling import Exports, Server, Session
from polyshot.app.labelling.store import Decision

WORDS = {
    "refund": ["money", "back", "refund", "charged"],
    "login": ["password", "locked", "login", "code"],
    "delivery": ["parcel", "late", "courier", "tracking"],
    "thesis": ["essay", "study", "thesis", "quote"],
}
VOCABULARY = [word for words in WORDS.values() for word in words]
MARKUP = "<b>bold</b> & <img src=x onerror=\"document.title='hacked'\"> money back"


def texts(n: int = 60) -> list[str]:
    """n texts of the four topics in turn, each with words of its topic; the first has markup in it."""
    rng = np.random.default_rng(0)
    topics = list(WORDS.values())
    found = [f"message {k} {' '.join(rng.choice(topics[k % 4], 3, replace=False))}" for k in range(n)]
    return [MARKUP, *found[1:]]


def topic(text: str) -> str:
    """The topic of a text."""
    return next(name for name, words in WORDS.items() if any(word in text.split() for word in words))


def count_words(items: list[str]) -> np.ndarray:
    """A cheap encoder: how often each word comes up, and a little noise that depends on the text."""
    noise = [np.random.default_rng(len(text) + sum(map(ord, text))).normal(0, 0.1, len(VOCABULARY)) for text in items]
    return np.array([[text.split().count(word) for word in VOCABULARY] for text in items]) + np.array(noise)


def text_session(path: Path, items: list[str] | None = None, **options: Any) -> Session:
    """A session of texts."""
    items = items or texts()
    vectors = count_words(items).astype(np.float32)
    return Session(Items.of("text", items), vectors, path, name="made-up", encoder=count_words, **options)


def label(session: Session, rows: int | list[int], answer: str | None) -> None:
    """Decide: a class, or "none", or None to skip."""
    decision = (
        Decision("skip") if answer is None else Decision("none") if answer == "none" else Decision("class", answer)
    )
    session.decide([rows] if isinstance(rows, int) else rows, decision, session.decisions.version)


class Reply(NamedTuple):
    """What the server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Client:
    """Talks to a server of the page as its own script does; `ask` can also talk as somebody else would."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.port = urlsplit(url).port
        self.token = url.partition("token=")[2]
        self.own = {
            "Host": f"127.0.0.1:{self.port}",
            "Cookie": f"polyshot-label-{self.port}={self.token}",
            "Origin": f"http://127.0.0.1:{self.port}",
            "Content-Type": "application/json",
        }

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> Reply:
        """One request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Reply:
        """A request of the page."""
        return self.ask("GET", path, self.own)

    def post(self, path: str, content: Any) -> Reply:
        """A change by the page."""
        return self.ask("POST", path, self.own, json.dumps(content).encode())


@contextmanager
def served(session: Session, folder: Path, **options: Any) -> Iterator[Client]:
    """A server of the session in another thread."""
    with session:
        server = Server(session, Exports(session, folder), **options)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield Client(server.url)
        finally:
            server.stop()
            thread.join()
