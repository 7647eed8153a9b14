"""Requests with ambiguous framing: one response, and the bytes after it are ignored."""

_POST = b"POST /whole HTTP/1.1\r\nhost: x\r\n"
_END = b"\r\n\r\n0\r\n\r\n"
"""Of a head, and of a body without chunks."""

DOUBTS = (
    _POST + b"content-length: 37\r\ntransfer-encoding: chunked" + _END,
    _POST + b"transfer-encoding: chunked\r\ncontent-length: 5" + _END,
    _POST + b"content-length: 0\r\ncontent-length: 37\r\n\r\n",
    _POST + b"content-length: 0, 0\r\n\r\n",
    _POST + b"content-length : 0\r\n\r\n",
    _POST + b"content-length: +0\r\n\r\n",
    _POST + b"content-length:\r\n 0\r\n\r\n",
    _POST + b"transfer-encoding: gzip, chunked" + _END,
    _POST + b"transfer-encoding: chunked, chunked" + _END,
    _POST + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked" + _END,
    _POST + b"transfer-encoding: chunked\r\ntransfer-encoding: x" + _END,
    _POST + b"transfer-encoding: xchunked" + _END,
    _POST + b"transfer-encoding: identity\r\n\r\n",
    _POST + b"transfer-encoding : chunked" + _END,
    _POST + b"x: y\r\n transfer-encoding: chunked" + _END,
    _POST + b"transfer-encoding:\x0bchunked" + _END,
    b"POST /whole HTTP/1.0\r\nconnection: keep-alive\r\ntransfer-encoding: chunked" + _END,
    b"POST /whole HTTP/1.1\nhost: x\ncontent-length: 0\n\n",
    b"POST /whole HTTP/1.1\r\nhost: x\ncontent-length: 0\r\n\r\n",
    b"GET /whole HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
    b"GET /whole HTTP/1.1\r\n\r\n",
    b"GET /whole\r\n\r\n",
    b"GET /whole#x HTTP/1.1\r\nhost: x\r\n\r\n",
    b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)
