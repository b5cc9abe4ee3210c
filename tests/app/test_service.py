"""The web service: right answers, limits, and refusals that say what is wrong."""

import asyncio
import base64
import io
import json
import socket
import threading
from typing import Any

import httpx2
import hypothesis
import numpy as np
import pytest
from PIL import Image

from polyshot.app import ItemClassifier, Items
from polyshot.app.answers import Levels
from polyshot.app.guard import allowed_hosts, checked_token, is_loopback
from polyshot.app.server import listen
from polyshot.app.service import Limits, make_service
from polyshot.errors import InputError

HOSTS = ("localhost", "testserver")
TOKEN = "0123456789abcdef"


def points(n_classes: int = 3, n: int = 12) -> ItemClassifier:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_classes * n, 4)) + 6 * np.eye(4)[np.repeat(np.arange(n_classes), n)]
    return ItemClassifier.fit(Items.of("vectors", X), [f"class {k // n}" for k in range(len(X))])


@pytest.fixture(scope="module")
def model() -> ItemClassifier:
    return points()


@pytest.fixture(scope="module")
def texts() -> ItemClassifier:
    def lengths(items: list[str]) -> list[list[float]]:
        return [[len(item), item.count(" ")] for item in items]

    return ItemClassifier.fit(Items.of("text", ["a", "b", "a longer text", "another text"]), list("ssll"), lengths)


@pytest.fixture(scope="module")
def images() -> ItemClassifier:
    def brightness(items: list[Image.Image]) -> list[list[float]]:
        return [[float(np.asarray(item).mean())] for item in items]

    grey = [Image.new("RGB", (8, 8), (v, v, v)) for v in (0, 10, 240, 255)]
    return ItemClassifier.fit(Items.of("images", grey), ["dark", "dark", "bright", "bright"], brightness)


def ask(
    app: Any, path: str = "/classify", body: Any = None, headers: dict[str, str] | None = None, method: str = "POST"
) -> httpx2.Response:
    """One request; a body that is no bytes is sent as JSON."""

    async def send() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            types = {"Content-Type": "application/json"} if method == "POST" else {}
            return await client.request(method, path, content=content, headers=types | (headers or {}))

    return asyncio.run(send())


def test_sixty_four_clients_at_once_get_right_answers(model: ItemClassifier) -> None:
    app = make_service(model)
    queries = np.random.default_rng(1).normal(scale=4, size=(64, 4)).round(3)
    expected, _ = model.answer(Items.of("vectors", queries))

    async def all_at_once() -> list[httpx2.Response]:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            return await asyncio.gather(*(client.post("/classify", json={"item": row.tolist()}) for row in queries))

    answers = [response.json() for response in asyncio.run(all_at_once())]
    assert len({answer["predicted"] for answer in answers}) == 3
    for answer, right in zip(answers, expected, strict=True):
        assert (answer["predicted"], answer["action"]) == (right.predicted, right.action)
        np.testing.assert_allclose([*answer["probabilities"].values()], right.probabilities, rtol=1e-9)
        assert answer["outlier_p_value"] == pytest.approx(right.outlier_p_value)
        assert tuple(answer["prediction_set"]) == right.prediction_set


def test_a_connection_sends_at_once() -> None:
    """Else a client that keeps its connection waits 40 ms for every answer."""
    with listen("127.0.0.1", 0) as server, socket.create_connection(server.getsockname()):
        accepted, _ = server.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_batch_answers_in_order_and_names_the_items_that_cannot_be_used(texts: ItemClassifier) -> None:
    app = make_service(texts, Levels(None, None, 1))
    answers = ask(app, "/classify/batch", {"items": ["b", "a longer one"]}).json()["answers"]
    assert [answer["predicted"] for answer in answers] == ["s", "l"]
    assert answers[0]["nearest"][0] in ({"label": "s", "example": "a"}, {"label": "s", "example": "b"})
    assert answers[0]["prediction_set"] is None
    refused = ask(app, "/classify/batch", {"items": ["b", " ", "x", "\ud800"]})
    assert refused.status_code == 422
    assert "item 3: holds half of a surrogate pair" in refused.json()["error"]
    assert ask(app, "/classify/batch", {"items": ["b", " "]}).json() == {"error": "item 1: empty text"}


def test_images_come_as_base64(images: ItemClassifier) -> None:
    app = make_service(images)
    file = io.BytesIO()
    Image.new("RGB", (5, 9), "white").save(file, "PNG")
    assert ask(app, body={"item": base64.b64encode(file.getvalue()).decode()}).json()["predicted"] == "bright"
    assert "not an image" in ask(app, body={"item": base64.b64encode(b"x").decode()}).json()["error"]
    assert "in base64" in ask(app, body={"item": "no base64!"}).json()["error"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b'{"item": [1, NaN, 0, 0]}', 400, "JSON has no NaN"),
        (b"[" * 100_000, 400, "not JSON"),
        ([], 422, 'with the field "item"'),
        ({"item": [1, 2, 3, 4], "more": 1}, 422, "and no other"),
        ({"item": [1, 2, 3]}, 422, "must be a list of 4 numbers"),
        ({"item": [1, 2, 3, "4"]}, 422, "must be a list of 4 numbers"),
        ({"item": [1, 2, 3, True]}, 422, "must be a list of 4 numbers"),
        ({"item": [1, 2, 3, 10**400]}, 422, "beyond 1e+30"),
        ({"item": "text"}, 422, "must be a list of 4 numbers"),
    ],
)
def test_bad_input_is_explained(model: ItemClassifier, body: Any, status: int, message: str) -> None:
    refused = ask(make_service(model), body=body)
    assert (refused.status_code, message in refused.json()["error"]) == (status, True), refused.text


def test_limits(model: ItemClassifier) -> None:
    app = make_service(model, Levels(None, None, 0), Limits(n_bytes=200, n_items=2))
    row = [0, 0, 0, 0]
    assert ask(app, body=b" " * 201).status_code == 413
    assert ask(app, "/classify/batch", {"items": [row] * 2}).status_code == 200
    assert ask(app, "/classify/batch", {"items": [row] * 3}).json() == {"error": "items must be a list of 1 to 2 items"}
    assert ask(app, "/classify/batch", {"items": []}).status_code == 422
    assert ask(app, body={"item": row}, headers={"Content-Type": "text/plain"}).status_code == 415
    assert ask(app, "/classify", method="GET").status_code == 405
    assert ask(app, "/nothing", method="GET").json() == {"error": "Not Found"}
    with pytest.raises(InputError, match="n_items must be at least 1"):
        Limits(n_items=0)


def test_one_request_too_many_is_told_to_come_again(model: ItemClassifier) -> None:
    started, finish = threading.Event(), threading.Event()

    def slow(items: list[str]) -> list[list[float]]:
        started.set()
        finish.wait(10)
        return [[len(item)] for item in items]

    finish.set()
    app = make_service(
        ItemClassifier.fit(Items.of("text", ["a", "bb"]), ["1", "2"], slow), Levels(None, None, 0), Limits(n_requests=1)
    )
    started.clear()
    finish.clear()

    async def two() -> tuple[httpx2.Response, httpx2.Response]:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            first = asyncio.create_task(client.post("/classify", json={"item": "a"}))
            await asyncio.to_thread(started.wait, 10)
            second = await client.post("/classify", json={"item": "a"})
            assert (await client.get("/health")).status_code == 200
            finish.set()
            return await first, second

    first, second = asyncio.run(two())
    assert (first.status_code, second.status_code, second.headers["Retry-After"]) == (200, 503, "1")
    assert ask(app, body={"item": "a"}).status_code == 200


def test_who_may_ask(model: ItemClassifier) -> None:
    app = make_service(model, token=TOKEN)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert ask(app, "/model", method="GET", headers=bearer).json()["classes"] == ["class 0", "class 1", "class 2"]
    for wrong in ({}, {"Authorization": TOKEN}, {"Authorization": f"Bearer {TOKEN}0"}, {"Authorization": "Bearer é"}):
        refused = ask(app, "/openapi.json", method="GET", headers={k: v.encode() for k, v in wrong.items()})  # type: ignore[misc]
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert ask(app, "/health", method="GET").json() == {"status": "ok"}
    for host, status in [("evil.example", 421), ("localhost.evil.example", 421), ("", 421), ("[::1]:8000", 200)]:
        assert ask(app, "/health", method="GET", headers={"Host": host}).status_code == status
    origins = [("http://localhost", 200), ("http://evil.example", 403), ("null", 403), ("http://[", 403), ("", 403)]
    for origin, status in origins:
        assert ask(app, "/health", method="GET", headers={"Origin": origin}).status_code == status


def test_beyond_this_computer_a_server_needs_a_token_and_a_name() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.1", "example.org")] == (
        [True, True, True, False, False, False]
    )
    assert checked_token("127.0.0.1", None) is None
    with pytest.raises(InputError, match="so it needs a token"):
        checked_token("10.0.0.1", None)
    with pytest.raises(InputError, match="16 printable ASCII characters"):
        checked_token("10.0.0.1", "short")
    for everywhere in ("0.0.0.0", "::", "[::]", "0:0:0:0:0:0:0:0"):
        with pytest.raises(InputError, match="--allow-host"):
            allowed_hosts(everywhere, [])
    assert "example.org" in allowed_hosts("0.0.0.0", ["example.org"])
    assert "10.0.0.1" in allowed_hosts("10.0.0.1", [])


@pytest.mark.parametrize("name", ["model", "texts", "images"])
def test_schemathesis_finds_no_server_error(name: str, request: pytest.FixtureRequest) -> None:
    """Random requests, right and wrong, get the answers that the OpenAPI document promises."""
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    app = make_service(request.getfixturevalue(name), Levels(), Limits(n_items=4), hosts=HOSTS)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    # numbers beyond what the kernel can tell apart, and strings that hold no image, are refused
    excluded = [] if name == "texts" else [positive_data_acceptance]
    statuses = set()
    for path in ("/classify", "/classify/batch"):
        for mode in schemathesis.GenerationMode:

            @hypothesis.given(case=schema[path]["POST"].as_strategy(generation_mode=mode))
            @hypothesis.settings(max_examples=10, deadline=None, database=None, derandomize=True,
                                 suppress_health_check=list(hypothesis.HealthCheck))  # fmt: skip
            def promised(case: Any) -> None:
                statuses.add(case.call_and_validate(excluded_checks=excluded).status_code)

            promised()
    assert statuses <= {200, 400, 422}
    assert statuses >= {200, 422} or name == "images"
