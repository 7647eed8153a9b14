"""A server that has a model as each kind of source has it, and that can misbehave.

As a web server at /web/, as Hugging Face's hub, and as an S3 bucket. It listens on a free port of
127.0.0.1 and keeps what it was asked.
"""

import hashlib
import json
import re
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.support.tls import CERT, KEY

Fault = Literal[
    "cut", "says-less", "says-more", "other-bytes", "slow", "no-range", "wrong-range", "busy",
    "denied", "gone", "compressed", "longer",
]  # fmt: skip
REPOSITORY = "org/name"
COMMIT = "1" * 40
BUCKET = "models"
PREFIX = "org/name"
PART_BYTES = 65_536
"""Of objects that were uploaded in parts."""


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass
class ModelServer:
    """Serves files until it is closed.

    Args:
        files: by their paths.
        extra: further files that web servers and buckets list, such as SHA256SUMS.
        secure: with TLS, by the certificate of tests.support.tls.
        redirect: where files are, as the beginning of a URL; empty: here.
        in_parts: objects of the bucket were uploaded in parts.
        encrypted: objects of the bucket are encrypted with a key of its owner's.
    """

    files: dict[str, bytes]
    extra: dict[str, bytes] = field(default_factory=dict)
    secure: bool = False
    redirect: str = ""
    in_parts: bool = False
    encrypted: bool = False
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    """By a file's path: what happens to its next requests."""
    always: dict[str, Fault] = field(default_factory=dict)
    """By a file's path: what happens to all requests."""
    asked: list[Asked] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    """Ends slow answers."""

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if self.secure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERT, KEY)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        scheme = "https" if self.secure else "http"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def fault(self, path: str) -> Fault | None:
        """Return what happens to the next request of a file."""
        waiting = self.faults.get(path)
        return waiting.pop(0) if waiting else self.always.get(path)

    def of(self, path: str) -> list[Asked]:
        """Return the requests of a file's bytes."""
        wanted = quote(path)
        return [one for one in self.asked if one.method == "GET" and wanted in one.path]


def sums(files: Mapping[str, bytes]) -> bytes:
    """Return a SHA256SUMS."""
    lines = [f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in files.items()]
    return "".join(lines).encode()


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Write nothing."""

        def end_headers(self) -> None:
            self.send_header("set-cookie", "session=1; Path=/")
            super().end_headers()

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            server.asked.append(Asked(self.command, self.path, dict(self.headers)))
            parts = urlsplit(self.path)
            path, query = unquote(parts.path), parse_qs(parts.query, keep_blank_values=True)
            if path.startswith("/web/"):
                self._file(path.removeprefix("/web/"), {**server.files, **server.extra})
            elif path.startswith(f"/api/models/{REPOSITORY}/revision/"):
                self._plain(200, _hub_answer(server.files))
            elif path.startswith(f"/{REPOSITORY}/resolve/{COMMIT}/"):
                self._file(path.removeprefix(f"/{REPOSITORY}/resolve/{COMMIT}/"), server.files)
            elif path.rstrip("/") == f"/{BUCKET}" and "list-type" in query:
                self._plain(200, _bucket_answer({**server.files, **server.extra}))
            elif path.startswith(f"/{BUCKET}/{PREFIX}/"):
                self._object(path.removeprefix(f"/{BUCKET}/{PREFIX}/"), query)
            else:
                self._plain(404, b"")

        def _object(self, path: str, query: Mapping[str, list[str]]) -> None:
            signed = "X-Amz-Signature" in query or "AWS4-HMAC-SHA256" in self.headers.get(
                "authorization", ""
            )
            objects = {**server.files, **server.extra}
            if not signed or path not in objects:
                self._plain(403 if not signed else 404, b"")
            elif self.command == "HEAD":
                self._head(objects[path], "partNumber" in query)
            else:
                self._file(path, objects)

        def _head(self, data: bytes, first: bool) -> None:
            size = min(PART_BYTES, len(data)) if first and server.in_parts else len(data)
            self.send_response(206 if first else 200)
            self.send_header("content-length", str(size))
            self.send_header("etag", f'"{_tag(data, server.in_parts)}"')
            if server.encrypted:
                self.send_header("x-amz-server-side-encryption", "aws:kms")
            self.end_headers()

        def _file(self, path: str, files: Mapping[str, bytes]) -> None:
            if path not in files:
                self._plain(404, b"")
            elif server.redirect and path in server.files and self.command == "GET":
                self.send_response(302)
                self.send_header("location", f"{server.redirect}/{quote(path)}")
                self.send_header("content-length", "0")
                self.end_headers()
            elif self.command == "HEAD":
                self.send_response(200)
                self.send_header("content-length", str(len(files[path])))
                self.end_headers()
            else:
                self._bytes(files[path], server.fault(path))

        def _bytes(self, data: bytes, fault: Fault | None) -> None:
            statuses: Mapping[str, int] = {"busy": 503, "denied": 403, "gone": 404}
            if fault in statuses:
                self._plain(statuses[str(fault)], b"", {"retry-after": "0"})
                return
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
            begin = int(asked[1]) if asked and fault != "no-range" else 0
            if fault == "other-bytes":
                data = bytes(255 - byte for byte in data)
            total = len(data) + {"says-less": -7, "says-more": 7}.get(str(fault), 0)
            left = data[begin:]
            self.send_response(206 if begin else 200)
            if begin:
                first = begin + 1 if fault == "wrong-range" else begin
                self.send_header("content-range", f"bytes {first}-{total - 1}/{total}")
            if fault == "compressed":
                self.send_header("content-encoding", "gzip")
            if fault == "longer":
                self.send_header("transfer-encoding", "chunked")
                left += b"more"
            else:
                self.send_header("content-length", str(total - begin))
            self.end_headers()
            self._send(left, fault)

        def _send(self, left: bytes, fault: Fault | None) -> None:
            if fault == "longer":
                self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(left), left))
                return
            if fault in ("cut", "slow"):
                self.wfile.write(left[: len(left) // 2])
                self.wfile.flush()
                self.close_connection = True
                if fault == "slow":
                    server.released.wait(60)
                return
            self.wfile.write(left)
            if fault in ("says-less", "says-more"):
                self.close_connection = True

        def _plain(self, status: int, data: bytes, more: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            for name, value in (more or {}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

    return Handler


def _hub_answer(files: Mapping[str, bytes]) -> bytes:
    siblings = []
    for path, data in files.items():
        blob = hashlib.sha1(b"blob %d\0%b" % (len(data), data)).hexdigest()
        one: dict[str, object] = {"rfilename": path, "size": len(data), "blobId": blob}
        if path.endswith(".safetensors"):
            lfs = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            one = {**one, "blobId": "0" * 40, "lfs": {**lfs, "pointerSize": 134}}
        siblings.append(one)
    return json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": siblings}).encode()


def _bucket_answer(objects: Mapping[str, bytes]) -> bytes:
    contents = "".join(
        f"<Contents><Key>{PREFIX}/{path}</Key><Size>{len(data)}</Size></Contents>"
        for path, data in objects.items()
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
    ).encode()


def _tag(data: bytes, in_parts: bool) -> str:
    if not in_parts:
        return hashlib.md5(data).hexdigest()
    parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
    whole = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts))
    return f"{whole.hexdigest()}-{len(parts)}"
