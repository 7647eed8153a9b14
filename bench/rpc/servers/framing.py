"""Frames packed by hand, the least that a gRPC client accepts: a bound, no usable server.

It decodes headers with `hpack`, tracks the send windows, and checks nothing.
"""

from struct import Struct

from hpack import Decoder

from baton.v1.inference_pb2 import ChatResponse
from bench.rpc.servers.asyncio_base import Connection, listen
from bench.rpc.steps import Steps

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW = 0, 1, 3, 4, 6, 8
_PREFACE = 24
_HEAD = Struct(">BHBBI")
_MESSAGE = Struct(">BHBBIBI")  # a DATA frame's header and a message's
_RESPONSE = b"\x88\x0f\x10\x10application/grpc"
_TRAILERS = b"\x00\x0bgrpc-status\x010"


def _frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id) + payload


class _Framing(Connection):
    def __init__(self, steps: Steps, open_connections: set[Connection]) -> None:
        super().__init__(steps, open_connections)
        self._decoder = Decoder()
        self._buffer = bytearray()
        self._preface = False
        self._out: list[bytes] = []
        self._held: list[tuple[int, bytes]] = []
        self._requests: dict[int, bytearray] = {}
        self._window = self._initial_window = 65535
        self._windows: dict[int, int] = {}

    def opened(self) -> None:
        self._out.append(_frame(_SETTINGS, 0, 0, b""))

    def pending(self) -> bytes:
        out, self._out = self._out, []
        return b"".join(out)

    def received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        if not self._preface:
            if len(buffer) < _PREFACE:
                return
            del buffer[:_PREFACE]
            self._preface = True
        while len(buffer) >= 9:
            end = 9 + int.from_bytes(buffer[:3])
            if len(buffer) < end:
                break
            kind, flags, stream_id = buffer[3], buffer[4], int.from_bytes(buffer[5:9])
            payload = bytes(buffer[9:end])
            del buffer[:end]
            self._take(kind, flags, stream_id, payload)

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == _DATA:
            self._requests[stream_id] += payload
            if payload:
                self._out.append(_frame(_WINDOW, 0, 0, len(payload).to_bytes(4)))
        elif kind == _HEADERS:
            self._decoder.decode(payload[5:] if flags & 0x20 else payload, raw=True)
            self._requests[stream_id] = bytearray()
        elif kind == _SETTINGS and not flags & 1:
            for at in range(0, len(payload), 6):
                if payload[at : at + 2] == b"\0\4":
                    self._initial_window = int.from_bytes(payload[at + 2 : at + 6])
            self._out.append(_frame(_SETTINGS, 1, 0, b""))
        elif kind == _PING and not flags & 1:
            self._out.append(_frame(_PING, 1, 0, payload))
        elif kind == _WINDOW:
            if stream_id == 0:
                self._window += int.from_bytes(payload)
            elif stream_id in self._windows:
                self._windows[stream_id] += int.from_bytes(payload)
            held, self._held = self._held, []
            for waiting_id, data in held:
                self._send(waiting_id, data)
        elif kind == _RESET:
            self.steps.remove((self, stream_id))
            self._windows.pop(stream_id, None)
        if kind in (_DATA, _HEADERS) and flags & 1:
            self._call(stream_id, bytes(self._requests.pop(stream_id)[5:]))

    def _call(self, stream_id: int, request: bytes) -> None:
        self._windows[stream_id] = self._initial_window
        self._out.append(_frame(_HEADERS, 4, stream_id, _RESPONSE))

        def on_token(response: ChatResponse, last: bool) -> None:
            payload = response.SerializeToString()
            size = len(payload) + 5
            head = _MESSAGE.pack(size >> 16, size & 0xFFFF, _DATA, 0, stream_id, 0, len(payload))
            self._send(stream_id, head + payload)
            if last:
                self._send(stream_id, _frame(_HEADERS, 5, stream_id, _TRAILERS))

        self.steps.add((self, stream_id), request, on_token)

    def _send(self, stream_id: int, data: bytes) -> None:
        size = len(data) - 9 if data[3] == _DATA else 0
        if stream_id not in self._windows:
            return
        if self._held or size > min(self._window, self._windows[stream_id]):
            self._held.append((stream_id, data))
            return
        self._window -= size
        self._windows[stream_id] -= size
        self._out.append(data)
        if data[3] == _HEADERS:
            del self._windows[stream_id]


async def start(steps: Steps) -> int:
    """Serve."""
    return await listen(steps, _Framing)
