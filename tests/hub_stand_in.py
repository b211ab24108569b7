"""A stand-in of the Hugging Face Hub on loopback: the requests of an upload and of a download, all in memory.

It keeps each commit's files. It takes every file as a regular one, in the commit itself; the real Hub takes large and
binary files by other requests (LFS, Xet).
"""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse


class StandIn:
    """Repositories as {name: [files of each commit]}, the names of private ones, and the address."""

    def __init__(self):
        self.repositories: dict[str, list[dict[str, bytes]]] = {}
        self.private: set[str] = set()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes] | None:
        """Return the files of a commit, or None."""
        commits = self.repositories.get(repo, [])
        names = {identity(number): files for number, files in enumerate(commits)}
        return (
            (commits[-1] if commits else {})
            if revision == "main" and repo in self.repositories
            else names.get(revision)
        )

    @contextlib.contextmanager
    def running(self):
        """Serve until the end of the block."""
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()


def identity(number: int) -> str:
    """Return the hash that names a commit."""
    return hashlib.sha1(str(number).encode()).hexdigest()


def _handler(hub: StandIn):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, content: bytes | dict | list, code: int = 200, **headers: str) -> None:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def do_POST(self):  # noqa: N802
            body = self.rfile.read(int(self.headers["Content-Length"]))
            route = urllib.parse.urlsplit(self.path).path
            if route == "/api/repos/create":
                asked = json.loads(body)
                repo = f"{asked['organization']}/{asked['name']}"
                code = 409 if repo in hub.repositories else 200
                if code == 200 and (asked.get("private") or asked.get("visibility") == "private"):
                    hub.private.add(repo)
                hub.repositories.setdefault(repo, [])
                return self.answer({"url": f"{hub.url}/{repo}"}, code)
            if route == "/api/validate-yaml":
                return self.answer({"errors": [], "warnings": []})
            repo, action = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main", route).groups()
            if action == "preupload":
                modes = {"uploadMode": "regular", "shouldIgnore": False}
                return self.answer({"files": [{"path": file["path"], **modes} for file in json.loads(body)["files"]]})
            files = dict(hub.files(repo))
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "deletedFile":
                    del files[line["value"]["path"]]
            hub.repositories[repo].append(files)
            name = identity(len(hub.repositories[repo]) - 1)
            return self.answer({"success": True, "commitOid": name, "commitUrl": f"{hub.url}/{repo}/commit/{name}"})

        def do_GET(self):  # noqa: N802
            route = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
            api = re.fullmatch(r"/api/models/([^/]+/[^/]+?)(?:/(revision|tree)/([^/]+))?", route)
            if api:
                repo, kind, revision = api[1], api[2], api[3] or "main"
                files = hub.files(repo, revision)
                if files is None:
                    return self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
                if kind == "tree":
                    sizes = {name: {"size": len(data), "oid": _etag(data)} for name, data in files.items()}
                    return self.answer([{"type": "file", "path": name, **facts} for name, facts in sizes.items()])
                name = identity(len(hub.repositories[repo]) - 1) if revision == "main" else revision
                siblings = [{"rfilename": file, "size": len(data), **_digest(data)} for file, data in files.items()]
                facts = {"id": repo, "sha": name, "siblings": siblings, "private": repo in hub.private}
                return self.answer(facts)
            repo, revision, path = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", route).groups()
            data = hub.files(repo, revision)[path]
            return self.answer(data, ETag=f'"{_etag(data)}"', X_Repo_Commit=revision)

        do_HEAD = do_GET  # noqa: N815

    return Handler


def _etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


def _digest(data: bytes) -> dict:
    """Describe a file as the Hub does: large ones by their SHA-256, others by that of Git."""
    if len(data) > 1000:
        return {"lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}}
    return {"blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
