"""What HTTP/2's state alone costs, without sockets: `python -m bench.rpc.protocol`.

A call comes as HEADERS with the fields that grpc.aio sends (in the dynamic table after the first
call) and a message of 600 bytes; the answer is its head, 8 messages of 40 bytes in DATA frames of
their own, and trailers. Prints the CPU of a call and of a message more, for Baton's
`Http2Connection`, h2 and ngh2 (`make bench-rpc` installs these). Nothing of gRPC, which is the same
with all of them.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from hpack import Encoder

from baton.rpc.http2.connection import Http2Connection
from baton.rpc.http2.framing import codes, frames
from baton.rpc.http2.framing.headers import Headers, encode
from baton.rpc.http2.stream import Http2Stream, StreamOwner
from bench.harness import ROOT, cli

CALLS = 300
MESSAGES = (8, 256)
_REQUEST = [
    (":scheme", "http"), (":method", "POST"), (":authority", "127.0.0.1:50051"),
    (":path", "/baton.v1.InferenceService/Chat"), ("te", "trailers"),
    ("content-type", "application/grpc"), ("user-agent", "grpc-python-asyncio/1.85.1"),
    ("grpc-accept-encoding", "identity, deflate, gzip"), ("grpc-timeout", "29999m"),
]  # fmt: skip
_HEAD = ((b":status", b"200"), (b"content-type", b"application/grpc"))
_TRAILERS = ((b"grpc-status", b"0"),)
_MESSAGE = bytes(45)

Serve = Callable[[bytes, list[int], int], None]
"""Takes a client's bytes and the ids of their calls, and answers each with so many messages."""


def baton() -> Serve:
    """Return Baton's."""
    head, trailers = encode(_HEAD), encode(_TRAILERS)

    class Side:
        def __init__(self) -> None:
            self.streams: list[Http2Stream] = []

        def on_request(self, stream: Http2Stream, headers: Headers, end: bool) -> StreamOwner:  # noqa: ARG002
            self.streams.append(stream)
            return self  # type: ignore[return-value]  # the owner of every stream

        def on_data(self, data: bytes | memoryview, end: bool) -> None:
            pass

        def read_into(self, size: int) -> None:
            pass

        def on_drained(self) -> None:
            pass

        def on_closed(self, code: Any, message: str) -> None:  # noqa: ARG002
            raise SystemExit(f"Baton: {message}")

    side = Side()
    http2 = Http2Connection(side, client=False, wake=lambda: None)  # type: ignore[arg-type]

    def serve(data: bytes, ids: list[int], messages: int) -> None:  # noqa: ARG001
        while http2.receive(data):
            data = b""
        for stream in side.streams:
            http2.send_headers(stream, head)
        for _ in range(messages):
            for stream in side.streams:
                http2.send_data(stream, _MESSAGE)
            http2.take_output()
        for stream in side.streams:
            http2.send_headers(stream, trailers, end=True)
        http2.take_output()
        side.streams.clear()

    return serve


def h2() -> Serve:
    """Return python-hyper's."""
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.events import DataReceived

    http2 = H2Connection(
        H2Configuration(
            client_side=False,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
    )
    http2.initiate_connection()

    def serve(data: bytes, ids: list[int], messages: int) -> None:
        for event in http2.receive_data(data):
            if isinstance(event, DataReceived):
                http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        for stream_id in ids:
            http2.send_headers(stream_id, _HEAD)
        for _ in range(messages):
            for stream_id in ids:
                http2.send_data(stream_id, _MESSAGE)
            http2.data_to_send()
        for stream_id in ids:
            http2.send_headers(stream_id, _TRAILERS, end_stream=True)
        http2.data_to_send()

    return serve


def ngh2() -> Serve:
    """Return the compiled nghttp2."""
    from ngh2 import Connection as Nghttp2
    from ngh2 import Role

    http2 = Nghttp2(Role.SERVER)
    http2.initiate_connection()

    def serve(data: bytes, ids: list[int], messages: int) -> None:
        http2.receive_data(data)
        http2.events()
        for stream_id in ids:
            http2.send_response(stream_id, _HEAD)
        for _ in range(messages):
            for stream_id in ids:
                http2.send_data(stream_id, _MESSAGE)
            http2.data_to_send()
        for stream_id in ids:
            http2.send_trailers(stream_id, _TRAILERS)
        http2.data_to_send()

    return serve


STACKS = {"Baton": baton, "h2": h2, "ngh2": ngh2}


def requests(encoder: Encoder, first: int, count: int) -> tuple[bytes, list[int]]:
    """Return the bytes of so many calls, as a client sends them, and their ids."""
    ids = list(range(first, first + 2 * count, 2))
    parts = [frames.window_update(0, 1 << 20)]
    for stream_id in ids:
        parts.append(frames.header_frames(stream_id, encoder.encode(_REQUEST), False, 16_384))
        parts.append(frames.frame(codes.DATA, codes.END_STREAM, stream_id, bytes(600)))
    return b"".join(parts), ids


def seconds_per_call(make: Callable[[], Serve], messages: int) -> float:
    """Return the CPU of a call, of calls that come 64 at a time."""
    serve, encoder = make(), Encoder()
    windows = frames.settings([(codes.INITIAL_WINDOW_SIZE, 1 << 20)])
    serve(codes.PREFACE + windows + frames.window_update(0, 1 << 30), [], 0)
    batches = [requests(encoder, 1 + 128 * number, 64) for number in range(1 + CALLS // 64)]
    serve(*batches[0], messages)
    began = time.process_time()
    for data, ids in batches[1:]:
        serve(data, ids, messages)
    return (time.process_time() - began) / (64 * (len(batches) - 1))


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    sys.path.append(str(ROOT / "build" / "rpc-peers"))
    results = []
    print(f"{'':<8}us per call of {MESSAGES[0]} messages   us per message more")
    for name, make in STACKS.items():
        few, many = (
            min(seconds_per_call(make, messages) for _ in range(options.rounds)) * 1e6
            for messages in MESSAGES
        )
        more = (many - few) / (MESSAGES[1] - MESSAGES[0])
        print(f"{name:<8}{few:28.1f}   {more:19.2f}", flush=True)
        results.append({"stack": name, "us_per_call": few, "us_per_message": more})
    return results


if __name__ == "__main__":
    cli.main(
        measure, __doc__, rounds=5, smallest="--rounds 1", needs="what make bench-rpc installs"
    )
