"""Lists and files of repositories on the Hugging Face Hub, read as those of an untrusted server.

Every size is announced before the first byte is read, and every wait has an end. Lists and files have limits, a commit
is named by 40 hexadecimal digits, and no name leads out of the folder of its commit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import queue
import re
import shutil
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from typing import Any

from tfrobust.common import files
from tfrobust.errors import Failure, InputError

LARGEST_LIST = 2**22  # bytes, after decompression
MOST_FILES = 10_000
OPENING_SECONDS = 60.0  # for the headers of a response
SILENT_SECONDS = 30.0  # between two parts of its body
# Every window of a body brings at least so many bytes, unless the body ends.
WINDOW_SECONDS, WINDOW_BYTES = 60.0, 2**16
_CHUNK = 2**20
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Largest sizes that the readers of the files accept, by the end of the name.
_LARGEST = {
    "saved_model.pb": 2**29,
    ".tflite": 2**29,
    "fingerprint.pb": 2**16,
    "variables.index": 2**23,
    "robustness_report.json": 2**24,
}
_MISSING = ("RepoNotFound", "RevisionNotFound", "GatedRepo")


class NotOnHubError(InputError):
    """Error for a repository or a revision that does not exist, or that the user may not read."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file as the list announces it: its size in bytes, and a checksum, (algorithm, hexadecimal digits) or None."""

    size: int
    checksum: tuple[str, str] | None


class Repository:
    """One repository of models.

    Args:
        endpoint: URL of the Hub.
        name: "owner/name".
        token: sent to the endpoint's host only; None for none.
    """

    def __init__(self, endpoint: str, name: str, token: str | None):
        self._endpoint, self._name = endpoint.rstrip("/"), name
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "tfrobust"}
        self._headers |= {"Authorization": f"Bearer {token}"} if token else {}

    def list(self, revision: str | None) -> tuple[str, dict[str, Entry]]:
        """Return the commit of a revision, and its files by name.

        Args:
            revision: branch, tag or commit; None for the default branch.

        Raises:
            InputError (a ValueError): there is no such repository, or its list is not valid.
            Failure: the server does not respond, or takes too long.
        """
        which = f"/revision/{urllib.parse.quote(revision, safe='')}" if revision else ""
        content = bytearray()
        with _opened(f"{self._endpoint}/api/models/{self._name}{which}?blobs=true", self._headers) as response:
            for part in _parts(response, LARGEST_LIST):
                content += part
        try:
            answer = json.loads(bytes(content))
        except (ValueError, RecursionError):
            answer = None
        commit, siblings = (answer.get(key) if isinstance(answer, dict) else None for key in ("sha", "siblings"))
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit) or not isinstance(siblings, list):
            raise InputError("its list of files is not one of the Hugging Face Hub: a commit has 40 hexadecimal digits")
        return commit, dict(_entry(sibling) for sibling in siblings)

    def fetch(self, commit: str, entries: dict[str, Entry], folder: pathlib.Path) -> None:
        """Download files into a folder; complete ones of the announced size are kept.

        Raises:
            InputError (a ValueError): a name that leads out of the folder, a size above the limit, or another content
                than announced.
            Failure: the server does not respond, or takes too long, or the disk has too little room.
        """
        _check(entries)
        folder.mkdir(parents=True, exist_ok=True)
        missing = {name: entry for name, entry in entries.items() if not _is_complete(folder / name, entry)}
        size, free = sum(entry.size for entry in missing.values()), shutil.disk_usage(folder).free
        if size > free:
            raise Failure(f"{len(missing)} files take {size} bytes, and {folder} has {free} left")
        for name, entry in missing.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            url = f"{self._endpoint}/{self._name}/resolve/{commit}/{urllib.parse.quote(name)}"
            with files.replacing(folder / name) as temporary, _opened(url, self._headers) as response:
                _store(response, entry, temporary, name)


def _entry(sibling) -> tuple[str, Entry]:
    fields = sibling if isinstance(sibling, dict) else {}
    name, size, lfs, blob = (fields.get(key) for key in ("rfilename", "size", "lfs", "blobId"))
    if not isinstance(name, str) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise InputError(f"its list has a file without a name or a size: {str(sibling)[:80]}")
    large = lfs.get("sha256") if isinstance(lfs, dict) else None
    checksum = ("sha256", large) if large else ("sha1", blob) if blob and not lfs else None
    return name, Entry(size, checksum)


def _check(entries: dict[str, Entry]) -> None:
    """Raise InputError for too many files, for a name that leads out of a folder, or for a size above the limit."""
    if len(entries) > MOST_FILES:
        raise InputError(f"the model has {len(entries)} files, more than {MOST_FILES}")
    for name, entry in entries.items():
        if not name.isprintable() or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise InputError(f"its file {name[:80]!r} leads out of its folder")
        most = next((limit for end, limit in _LARGEST.items() if name.endswith(end)), None)
        if most is not None and entry.size > most:
            raise InputError(f"its file {name[-80:]} has {entry.size} bytes; at most {most} are read")


def _is_complete(path: pathlib.Path, entry: Entry) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size == entry.size


def _store(response: _Response, entry: Entry, path: pathlib.Path, name: str) -> None:
    kind, expected = entry.checksum or ("sha256", None)
    digest, size = hashlib.new(kind, usedforsecurity=False), 0
    if kind == "sha1":  # of a blob of Git
        digest.update(b"blob %d\0" % entry.size)
    with path.open("xb") as file:
        for part in _parts(response, entry.size):
            size += len(part)
            digest.update(part)
            file.write(part)
    if size != entry.size or expected not in (None, digest.hexdigest()):
        raise InputError(f"its file {name[-80:]} is not what the list announces: {size} of {entry.size} bytes")


# ------------------------------------------------------------------------------------------------- transport


@dataclasses.dataclass(frozen=True)
class _Response:
    """A response: the encoding of its body, and the queue of its parts, which ends with an empty one."""

    encoding: str
    items: queue.Queue


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects to https, or within one host; the token is sent to the first host only."""

    def redirect_request(self, request, file, code, message, headers, address):
        """Return the next request, without the token if its host is another one."""
        before, after = urllib.parse.urlsplit(request.full_url), urllib.parse.urlsplit(address)
        elsewhere = (after.scheme, after.netloc) != (before.scheme, before.netloc)
        if elsewhere and after.scheme != "https":
            raise urllib.error.URLError(f"a redirect to {address[:80]}")
        following = super().redirect_request(request, file, code, message, headers, address)
        if following is not None and elsewhere:
            following.remove_header("Authorization")
        return following


@contextlib.contextmanager
def _opened(url: str, headers: dict[str, str]) -> Iterator[_Response]:
    """Yield the response to a GET request; it is read in another thread, which no wait of this one depends on."""
    items: queue.Queue = queue.Queue(maxsize=4)
    ended = threading.Event()

    def put(item) -> None:
        while not ended.is_set():
            with contextlib.suppress(queue.Full):
                items.put(item, timeout=1.0)
                return

    def work() -> None:
        try:
            request = urllib.request.Request(url, headers=headers)
            with urllib.request.build_opener(_Redirects).open(request, timeout=SILENT_SECONDS) as response:
                put(response.headers.get("Content-Encoding") or "identity")
                while not ended.is_set() and (part := response.read1(_CHUNK)):
                    put(part)
                put(b"")
        except Exception as error:  # noqa: BLE001 - raised again by `_next`
            put(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        yield _Response(_next(items, OPENING_SECONDS), items)
    finally:
        ended.set()


def _next(items: queue.Queue, seconds: float) -> Any:
    """Return the next item, or raise what the other thread has met."""
    try:
        item = items.get(timeout=seconds)
    except queue.Empty:
        raise Failure(f"the server has sent nothing more for {seconds:g} s") from None
    if isinstance(item, urllib.error.HTTPError):
        reason = f"status {item.code} {item.headers.get('X-Error-Message') or item.reason}"[:150]
        if item.headers.get("X-Error-Code") in _MISSING or item.code in (401, 403, 404):
            raise NotOnHubError(reason)
        raise Failure(reason)
    if isinstance(item, Exception):
        raise Failure(str(item) or type(item).__name__)
    return item


def _parts(response: _Response, most: int) -> Iterator[bytes]:
    """Yield a body of at most `most` bytes, decompressed; the server has to send it without long breaks.

    Raises:
        InputError: the body has more bytes.
        Failure: the server is too slow, or the connection breaks.
    """
    size = 0
    for part in _decompressed(_received(response.items), response.encoding):
        size += len(part)
        if size > most:
            raise InputError(f"the server sends more than the {most} bytes that it may")
        yield part


def _received(items: queue.Queue) -> Iterator[bytes]:
    began, received = time.monotonic(), 0
    while part := _next(items, SILENT_SECONDS):
        yield part
        received += len(part)
        if time.monotonic() - began > WINDOW_SECONDS:
            if received < WINDOW_BYTES:
                raise Failure(f"the server has sent only {received} bytes in {WINDOW_SECONDS:g} s")
            began, received = time.monotonic(), 0


def _decompressed(parts: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Yield parts of at most _CHUNK bytes, however many a compressed part holds."""
    if encoding == "identity":
        yield from parts
        return
    if encoding not in ("gzip", "deflate"):
        raise InputError(f"the server compresses by {encoding[:20]!r}")
    stream = zlib.decompressobj(wbits=47 if encoding == "gzip" else zlib.MAX_WBITS)
    try:
        for part in parts:
            while part:
                yield stream.decompress(part, _CHUNK)
                part = stream.unconsumed_tail
        while part := stream.decompress(b"", _CHUNK):
            yield part
    except zlib.error:
        raise InputError("what the server has compressed is damaged") from None
