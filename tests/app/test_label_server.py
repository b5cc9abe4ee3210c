"""Who may use the labelling page, and what bad requests get."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from label_sessions import MARKUP, Client, served, text_session
from PIL import Image

from polyshot.app import Items
from polyshot.app.labelling import Session
from polyshot.errors import InputError


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("label")
    with served(text_session(folder / "labels.sqlite"), folder / "out") as found:
        yield found


def test_only_loopback_listens(client: Client) -> None:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:] if Path("/proc/net/tcp").is_file() else []
    addresses = [line.split()[1] for line in lines if line.split()[1].endswith(f":{client.port:04X}")]
    assert set(addresses) <= {f"0100007F:{client.port:04X}"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"Host": "evil.example"}, 421),  # DNS rebinding
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Cookie": ""}, 403),
        ({"Cookie": "polyshot-label-{port}=wrong"}, 403),
        ({"Cookie": "other={token}"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),  # another page of this computer
        ({"Origin": "null"}, 403),
        ({"Origin": None}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),  # what a form of another site can send
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_no_other_site_can_change_anything(client: Client, change: dict[str, Any], status: int) -> None:
    headers = {**client.own, **change}
    headers = {
        name: value.format(port=client.port, token=client.token) for name, value in headers.items() if value is not None
    }
    before = client.get("/state").json["version"]
    body = json.dumps({"rows": [1], "kind": "none", "label": None, "seen": 0}).encode()
    assert client.ask("POST", "/decide", headers, body).status == status
    assert client.get("/state").json["version"] == before


def test_nothing_can_be_read_without_the_token_or_by_another_site(client: Client) -> None:
    for path in ("/", "/state", "/items?list=unsure", "/items/0", "/label.js", "/changes", "/?token=wrong"):
        assert client.ask("GET", path, {"Host": client.own["Host"]}).status == 403
    for path in ("/state", "/label.js"):
        assert client.ask("GET", path, {**client.own, "Sec-Fetch-Site": "cross-site"}).status == 403
        assert "access-control-allow-origin" not in client.get(path).headers
    opened = client.ask("GET", f"/?token={client.token}", {"Host": client.own["Host"], "Sec-Fetch-Site": "cross-site"})
    assert opened.status == 200
    assert "HttpOnly; SameSite=Lax" in opened.headers["set-cookie"]
    assert "set-cookie" not in client.get("/state").headers


def test_every_answer_forbids_scripts_of_others_frames_and_guessing_of_types(client: Client) -> None:
    for path in ("/", "/state", "/nothing", "/images/0/small"):
        headers = client.get(path).headers
        assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"


def test_the_page_needs_no_other_computer(client: Client) -> None:
    for path in ("/", "/label.js", "/label.css", "/label.svg"):
        content = client.get(path).body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in content
        assert "https:" not in content
        assert "//" not in content.replace("// ", "")


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/decide", []),
        ("/decide", {}),
        ("/decide", {"rows": [], "kind": "none", "seen": 0}),
        ("/decide", {"rows": [0, 0], "kind": "none", "seen": 0}),
        ("/decide", {"rows": [-1], "kind": "none", "seen": 0}),
        ("/decide", {"rows": [60], "kind": "none", "seen": 0}),
        ("/decide", {"rows": [True], "kind": "none", "seen": 0}),
        ("/decide", {"rows": ["0"], "kind": "none", "seen": 0}),
        ("/decide", {"rows": [0], "kind": "other", "seen": 0}),
        ("/decide", {"rows": [0], "kind": "class", "label": "", "seen": 0}),
        ("/decide", {"rows": [0], "kind": "class", "label": 5, "seen": 0}),
        ("/decide", {"rows": [0], "kind": "class", "label": "x" * 101, "seen": 0}),
        ("/decide", {"rows": [0], "kind": "none", "label": "cat", "seen": 0}),
        ("/decide", {"rows": [0], "kind": ["none"], "seen": 0}),
        ("/decide", {"rows": [0], "kind": "none", "seen": "0"}),
        ("/rename", {"old": "nothing", "new": "a", "seen": 0}),
        ("/undo", {"seen": 0}),
        ("/export", {"what": "../../etc/passwd"}),
        ("/export", {"what": "folders"}),
    ],
)
def test_bad_requests_get_a_message_and_change_nothing(client: Client, path: str, content: Any) -> None:
    before = client.get("/state").json["version"]
    reply = client.post(path, content)
    assert reply.status == 400
    assert len(reply.json["error"]) > 10
    assert client.get("/state").json["version"] == before


def test_large_broken_and_unknown_requests(client: Client) -> None:
    assert client.ask("POST", "/decide", client.own, b"x" * (2**20 + 1)).status == 413
    assert client.ask("POST", "/decide", client.own, b"[" * 100_000).status == 400
    assert client.ask("POST", "/decide", client.own, b"\xff").status == 400
    assert client.ask("DELETE", "/decide", client.own).status == 405
    assert client.get("/items?list=unsure&offset=-1").status == 400
    assert client.get("/items?list=other").status == 400
    assert client.get("/items/99").status == 400
    for path in (
        "/images/0/small",
        "/images/0/../../labels.sqlite",
        "/page/label.js",
        "/..%2f..%2fetc/passwd",
        "/docs",
    ):
        assert client.get(path).status == 404


def test_a_stale_tab_is_told_so(tmp_path: Path) -> None:
    with served(text_session(tmp_path / "labels.sqlite"), tmp_path / "out") as own:
        assert own.post("/decide", {"rows": [1], "kind": "class", "label": "cat", "seen": 0}).json["version"] == 1
        stale = own.post("/decide", {"rows": [1], "kind": "none", "label": None, "seen": 0})
        assert (stale.status, stale.json) == (409, {"error": "this was changed in another tab; look at it again"})
        assert own.post("/undo", {"seen": 1}).json["n"]["open"] == 60


def test_many_clients_at_once_lose_nothing(tmp_path: Path) -> None:
    with served(text_session(tmp_path / "labels.sqlite"), tmp_path / "out") as own:
        statuses = []

        def send(row: int) -> None:
            content = {"rows": [row], "kind": "class", "label": f"class {row % 3}", "seen": 0}
            statuses.append(own.post("/decide", content).status)

        threads = [threading.Thread(target=send, args=(row,)) for row in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [200] * 30
        assert own.get("/state").json["n"]["class"] == 30
    with text_session(tmp_path / "labels.sqlite") as session:
        assert session.decisions.labels == {row: f"class {row % 3}" for row in range(30)}


def test_texts_go_out_as_they_are_and_long_ones_in_part(tmp_path: Path) -> None:
    with served(text_session(tmp_path / "labels.sqlite", [MARKUP, "money " * 50_000]), tmp_path / "out") as own:
        assert own.get("/items/0").json["text"] == MARKUP
        assert len(own.get("/items/1").json["text"]) == 20_001
        assert len(own.get("/items?list=unsure").body) < 5_000


def test_images_are_sent_as_new_jpegs_and_only_those_of_the_items(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    paths = [tmp_path / "photos" / name for name in ("a.png", "gone.png", "page.png")]
    Image.new("RGB", (3000, 20), "red").save(paths[0])
    Image.new("RGB", (9, 9)).save(paths[1])
    paths[2].write_text("<script>alert(1)</script>")
    items = Items.of("images", paths, [path.name for path in paths])
    session = Session(items, np.eye(3, dtype=np.float32), tmp_path / "l.sqlite", name="photos")
    paths[1].unlink()
    with served(session, tmp_path / "out") as own:
        picture = own.get("/images/0/small")
        assert (picture.status, picture.headers["content-type"]) == (200, "image/jpeg")
        assert picture.body.startswith(b"\xff\xd8")
        assert [own.get(f"/images/{k}").status for k in ("1/small", "2/small", "3/small", "0/huge")] == [404] * 4


def test_a_port_that_is_taken_is_named(client: Client, tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=f"cannot listen on port {client.port}"),
        served(text_session(tmp_path / "labels.sqlite"), tmp_path, port=client.port),
    ):
        pass
