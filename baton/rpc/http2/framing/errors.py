"""Errors that a peer caused."""

from baton.rpc.http2.framing.codes import ErrorCode


class ConnectionFailure(Exception):  # noqa: N818 - a connection error is a term of the protocol
    """A connection error (RFC 9113, section 5.4.1): GOAWAY is sent, and nothing after it."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message


class StreamFailure(Exception):  # noqa: N818 - a stream error is a term of the protocol
    """A stream error (RFC 9113, section 5.4.2): RST_STREAM is sent; the connection continues."""

    def __init__(self, stream_id: int, code: ErrorCode, message: str) -> None:
        super().__init__(f"stream {stream_id}: {code.name}: {message}")
        self.stream_id = stream_id
        self.code = code
        self.message = message
