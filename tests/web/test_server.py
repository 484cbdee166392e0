"""The server as a stranger and as a browser meet it: what it refuses, keeps and shows, and whom it calls."""

import http.client
import ipaddress
import json
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from fewshift.errors import FewshiftError
from fewshift.estimator.kits import Opened
from fewshift.estimator.saved import load
from fewshift.web.limits import LIMITS
from fewshift.web.server import Address, serving
from fewshift.web.uploads import read_uploads

if TYPE_CHECKING:
    from conftest import Running

pytestmark = pytest.mark.slow
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def ask(url: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, named), timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as problem:
        with problem:
            return problem.code, problem.read()


def send_file(url: str, name: str, content: bytes) -> tuple[int, bytes]:
    head = f'--xyz\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n'
    body = f"{head}Content-Type: image/png\r\n\r\n".encode() + content + b"\r\n--xyz--\r\n"
    return ask(f"{url}gradio_api/upload", body, Content_Type="multipart/form-data; boundary=xyz")


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_the_page_is_there_and_has_no_outside_parts(running: "Running") -> None:
    status, content = ask(running.url)
    assert status == 200
    parts = re.findall(rb'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//([^"/]+)', content)
    assert not [host for host in parts if not host.startswith(b"127.0.0.1")]
    assert len(list(running.folder.iterdir())) == 1  # the killed page's folder was swept


def test_strangers_are_refused(running: "Running") -> None:
    assert ask(running.url, Host="evil.example")[0] == 400
    assert ask(f"{running.url}gradio_api/file=/etc/passwd")[0] == 403
    assert ask(f"{running.url}gradio_api/file={Path(__file__)}")[0] == 403


def test_an_address_in_place_of_an_upload_is_refused(running: "Running") -> None:
    image = {"image": {"path": "http://example.org/x.png", "meta": {"_type": "gradio.FileData"}}}
    body = json.dumps({"data": [None, [image]], "fn_index": 1, "session_hash": "x"}).encode()
    for place in ("queue/join", "run/predict", "api/adapt", "call/adapt"):
        found = ask(f"{running.url}gradio_api/{place}", body, Content_Type="application/json")
        assert found == (403, b"images must be uploaded")
    big = b'{"data": "' + b"x" * 3_000_000 + b'"}'
    assert ask(f"{running.url}gradio_api/queue/join", big, Content_Type="application/json")[0] == 413


def test_a_second_content_type_opens_no_way_around(running: "Running") -> None:
    """Who reads the first and who reads the second must not see two different requests."""
    image = {"image": {"path": "http://example.org/x.png", "meta": {"_type": "gradio.FileData"}}}
    body = json.dumps({"data": [None, [image]], "fn_index": 1, "session_hash": "x"}).encode()
    json_kind, form = "application/json", "multipart/form-data; boundary=xyz"
    for kinds, status in (((json_kind, form), 400), ((form, json_kind), 400), ((form,), 403)):
        connection = http.client.HTTPConnection(urlsplit(running.url).netloc, timeout=60)
        connection.putrequest("POST", "/gradio_api/queue/join")
        for kind in kinds:
            connection.putheader("Content-Type", kind)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        assert connection.getresponse().status == status
        connection.close()


def test_an_upload_says_how_large_it_is(running: "Running") -> None:
    for headers, status in (
        ({"Content-Length": str(LIMITS.upload_bytes + 1)}, 413),
        ({"Transfer-Encoding": "chunked"}, 411),
    ):
        connection = http.client.HTTPConnection(urlsplit(running.url).netloc, timeout=60)
        connection.putrequest("POST", "/gradio_api/upload")
        connection.putheader("Content-Type", "multipart/form-data; boundary=xyz")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == status
        connection.close()


def test_names_of_uploads_reach_no_path(running: "Running", draw: Callable[..., bytes]) -> None:
    before = files(running.folder)
    status, said = send_file(running.url, "../../../x;touch $HOME <b>.png", draw("red"))
    assert status == 200
    (stored,) = map(Path, json.loads(said))
    assert re.fullmatch(r"[A-Za-z0-9._-]+", stored.name)
    assert files(running.folder) - before == {stored}
    assert stored.read_bytes() == draw("red")


def test_two_people_with_one_file_have_two_uploads(running: "Running", draw: Callable[..., bytes]) -> None:
    one, other = (json.loads(send_file(running.url, "leaf.png", draw("blue", 9))[1])[0] for _ in range(2))
    assert [upload.name for upload in read_uploads([one, other], running.folder)] == ["leaf.png"] * 2
    Path(one).unlink()  # as one person's Forget does
    assert Path(other).read_bytes() == draw("blue", 9)


def test_an_upload_that_is_too_large_is_not_kept(running: "Running") -> None:
    before = files(running.folder)
    assert send_file(running.url, "x.png", b"x" * (LIMITS.file_bytes + 1))[0] == 413
    assert sum(path.stat().st_size for path in files(running.folder) - before) == 0


def test_a_port_in_use_is_a_sentence(running: "Running", opened: Opened) -> None:
    address = Address("127.0.0.1", int(running.url.rsplit(":", 1)[1].strip("/")))
    with pytest.raises(FewshiftError, match=f"port {address.port} cannot be used"), serving(opened, address):
        pass


@pytest.fixture
def page(running: "Running") -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    browser = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    with api.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        yield chromium.new_page(viewport={"width": 1280, "height": 1000})
        chromium.close()


def test_a_browser_from_images_to_a_classifier(
    page: Any, running: "Running", draw: Callable[..., bytes], tmp_path: Path
) -> None:
    evil = "<img src=x onerror=alert(1)>"
    requests: list[str] = []
    dialogs: list[Any] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: (dialogs.append(dialog), dialog.dismiss()))
    before = files(running.folder)

    def images(colour: str, *seeds: int) -> list[dict[str, Any]]:
        return [
            {"name": f"{colour} <b>{seed}</b>.png", "mimeType": "image/png", "buffer": draw(colour, seed)}
            for seed in seeds
        ]

    def drop(slot: str, given: list[dict[str, Any]]) -> None:
        page.set_input_files(f"{slot} input[type=file]", given)
        page.wait_for_selector(f"{slot} .thumbnail-item", timeout=60_000)

    page.goto(running.url)
    page.wait_for_selector("#adapt", timeout=60_000)
    page.click("#adapt")
    page.wait_for_selector("#said .notice.bad", timeout=60_000)
    assert "drop images into two classes at least" in page.inner_text("#said")

    for place, colour in ((1, "red"), (2, "green")):
        page.fill(f"#name-{place} input, #name-{place} textarea", colour)
        drop(f"#images-{place}", images(colour, 0, 1, 2))
    assert page.locator("#images-4").count() == 0
    page.click("#add-class")
    page.wait_for_selector("#images-4")
    page.fill("#name-4 input, #name-4 textarea", evil)
    drop("#images-4", images("blue", 0, 1, 2))
    page.click("#adapt")
    page.wait_for_selector("#said .notice.good", timeout=120_000)
    assert "3 classes from 9 images" in page.inner_text("#said")
    assert page.locator("#domains .row").count() == 3

    drop("#tries", images("blue", 7) + images("red", 8))
    page.wait_for_selector("#answers .card", timeout=60_000)
    first, second = page.locator("#answers .says").all_inner_texts()
    assert first.startswith(evil)
    assert second.startswith("red")
    for tab, content in (("Loss", "#losses"), ("Steps", "#changes")):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_selector(f"{content} .fs svg", state="visible", timeout=60_000)

    with page.expect_download() as started:
        page.click("#download")
    assert started.value.suggested_filename == "classifier.fewshift"
    started.value.save_as(tmp_path / "got.fewshift")
    fitted = load(tmp_path / "got.fewshift")
    assert fitted.predict([draw("red", 8), draw("blue", 7)]).tolist() == ["red", evil]

    assert len([path for path in files(running.folder) - before if path.suffix == ".png"]) == 11
    page.click("#forget")
    page.wait_for_selector("#said .empty", timeout=60_000)
    assert page.locator("#images-4").count() == 0
    assert page.locator(".thumbnail-item").count() == 0
    assert files(running.folder) - before == set()
    assert [url for url in requests if not url.startswith((running.url, "data:", "blob:"))] == []
    assert dialogs == []


def test_at_the_end_nothing_is_left_and_nobody_was_called(running: "Running") -> None:
    assert running.stop() == 0
    assert list(running.folder.iterdir()) == []
    assert "stopped; uploads are removed" in running.said.read_text()
    called = set(running.hosts.read_text().split()) - {"localhost", "None"}
    assert not [host for host in called if not ipaddress.ip_address(host).is_loopback]
