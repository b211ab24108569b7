"""A Hub that lies, sends without end, or waits: each ends in one line, soon, and nothing lies outside of the cache."""

import contextlib
import gzip
import http.server
import json
import threading
import time

import pytest
import stored

from tfrobust.errors import Failure, InputError
from tfrobust.serving import hub, hub_files

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PROGRAM = {"rfilename": "1/saved_model.pb", "size": 5}


def listed(*siblings, sha=COMMIT) -> bytes:
    return json.dumps({"sha": sha, "siblings": list(siblings)}).encode()


@contextlib.contextmanager
def serving(answer):
    """A server whose every response is written by `answer(handler)`; yields its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802
            with contextlib.suppress(OSError):  # the client has left
                answer(self)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def sent(handler, body: bytes, **headers: str) -> None:
    handler.send_response(200)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@pytest.fixture
def home(monkeypatch, tmp_path):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    for name, value in {"OPENING_SECONDS": 0.3, "SILENT_SECONDS": 0.3, "WINDOW_SECONDS": 0.3}.items():
        monkeypatch.setattr(hub_files, name, value)

    def asked(answer, model="hf://me/small"):
        with serving(answer) as url:
            monkeypatch.setattr(constants, "ENDPOINT", url)
            return hub.local(model)

    asked.folder = tmp_path
    return asked


LISTS = stored.table(globals(), "lists")


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_is_none_is_refused(home, name):
    body, message = LISTS[name]
    with pytest.raises(InputError, match=message) as caught:
        home(lambda handler: sent(handler, body))
    assert len(str(caught.value)) <= 300 and not any(path.is_file() for path in home.folder.rglob("*"))


def test_a_compressed_list_is_bounded_while_it_is_decompressed(home):
    bomb = gzip.compress(bytes(2**26))
    with pytest.raises(InputError, match="sends more than the 4194304 bytes"):
        home(lambda handler: sent(handler, bomb, Content_Encoding="gzip"))
    content = {"list": gzip.compress(listed(PROGRAM)), "file": b"01234"}
    path = home(lambda handler: _answer(handler, content, Content_Encoding="gzip"))
    assert path.endswith(f"{COMMIT}/me/small/1")


def _answer(handler, content: dict, **headers):
    is_list = handler.path.startswith("/api/")
    sent(handler, content["list" if is_list else "file"], **(headers if is_list else {}))


def _without_end(handler):
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(2**16))


def _slowly(handler, start: bytes = b"HTTP/1.0 200 OK\r\n\r\n", then: bytes = b" "):
    handler.wfile.write(start)
    for _ in range(100):
        handler.wfile.write(then)
        time.sleep(0.05)


WAITS = stored.table(globals(), "waits")


@pytest.mark.parametrize("name", WAITS)
def test_a_file_that_does_not_come_as_announced_ends_soon(home, name):
    respond, error, message = WAITS[name]
    program = {"rfilename": "1/saved_model.pb", "size": 10**6 if "moment" in name else 5, "blobId": "0" * 40}

    def answer(handler):
        sent(handler, listed(program)) if handler.path.startswith("/api/") else respond(handler)

    began = time.monotonic()
    with pytest.raises(error, match=message):
        home(answer)
    assert time.monotonic() - began < 5 and not any(path.is_file() for path in home.folder.rglob("*"))


def test_the_token_goes_to_the_hub_alone(home, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    seen = []

    def elsewhere(handler):
        seen.append(handler.headers.get("Authorization"))
        sent(handler, b"01234")

    with serving(elsewhere) as url:

        def answer(handler):
            seen.append(handler.headers.get("Authorization"))
            if handler.path.startswith("/api/"):
                return sent(handler, listed(PROGRAM))
            handler.send_response(302)
            handler.send_header("Location", f"{url}/file")
            handler.end_headers()

        with pytest.raises(Failure, match="a redirect to http://127"):
            home(answer)
        assert seen == ["Bearer secret"] * 2
        request = hub_files.urllib.request.Request("https://a.example/x", headers={"Authorization": "Bearer secret"})
        following = hub_files._Redirects().redirect_request(request, None, 302, "", {}, "https://b.example/y")
        assert not following.has_header("Authorization")
