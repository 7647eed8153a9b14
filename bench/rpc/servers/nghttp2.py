"""nghttp2, the C library under curl and Envoy, by ctypes; gRPC's framing on top.

Takes the system's libnghttp2.so.14 (Debian: libnghttp2-14). ctypes costs a microsecond or two per
call and callback, of which one token needs five; a compiled binding would need less.
"""

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_int32,
    c_size_t,
    c_ssize_t,
    c_uint8,
    c_uint32,
    c_void_p,
)
from typing import Any

from baton.v1.inference_pb2 import ChatResponse
from bench.rpc.servers.asyncio_base import (
    CONTENT_TYPE,
    GRPC_STATUS,
    STATUS,
    Connection,
    listen,
    message,
)
from bench.rpc.steps import Steps

_END_STREAM = 1
_DATA, _HEADERS = 0, 1
_EOF, _NO_END_STREAM = 1, 2
_DEFERRED = -508


class _Header(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("value", c_char_p),
        ("name_length", c_size_t),
        ("value_length", c_size_t),
        ("flags", c_uint8),
    )


class _Frame(Structure):
    _fields_ = (
        ("length", c_size_t),
        ("stream_id", c_int32),
        ("type", c_uint8),
        ("flags", c_uint8),
        ("reserved", c_uint8),
    )


_OnFrame = CFUNCTYPE(c_int, c_void_p, POINTER(_Frame), c_void_p)
_OnData = CFUNCTYPE(c_int, c_void_p, c_uint8, c_int32, c_void_p, c_size_t, c_void_p)
_OnHeader = CFUNCTYPE(
    c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_uint8, c_void_p
)
_OnClose = CFUNCTYPE(c_int, c_void_p, c_int32, c_uint32, c_void_p)
_Read = CFUNCTYPE(
    c_ssize_t, c_void_p, c_int32, c_void_p, c_size_t, POINTER(c_uint32), c_void_p, c_void_p
)


class _Provider(Structure):
    _fields_ = (("source", c_void_p), ("read", _Read))


def _headers(*pairs: tuple[bytes, bytes]) -> Any:
    rows = (_Header(name, value, len(name), len(value), 0) for name, value in pairs)
    return (_Header * len(pairs))(*rows)


_LIBRARY = ctypes.CDLL("libnghttp2.so.14")
_receive = _LIBRARY.nghttp2_session_mem_recv
_receive.argtypes = (c_void_p, c_char_p, c_size_t)
_receive.restype = c_ssize_t
_to_send = _LIBRARY.nghttp2_session_mem_send
_to_send.argtypes = (c_void_p, POINTER(c_void_p))
_to_send.restype = c_ssize_t
_resume = _LIBRARY.nghttp2_session_resume_data
_resume.argtypes = (c_void_p, c_int32)
_respond = _LIBRARY.nghttp2_submit_response
_respond.argtypes = (c_void_p, c_int32, c_void_p, c_size_t, POINTER(_Provider))
_trailer = _LIBRARY.nghttp2_submit_trailer
_trailer.argtypes = (c_void_p, c_int32, c_void_p, c_size_t)
_settings = _LIBRARY.nghttp2_submit_settings
_settings.argtypes = (c_void_p, c_uint8, c_void_p, c_size_t)
_delete = _LIBRARY.nghttp2_session_del
_delete.argtypes = (c_void_p,)
_RESPONSE = _headers(STATUS, CONTENT_TYPE)
_TRAILER = _headers(GRPC_STATUS)


class _Nghttp2(Connection):
    def __init__(self, steps: Steps, open_connections: set[Connection]) -> None:
        super().__init__(steps, open_connections)
        self._requests: dict[int, tuple[list[tuple[bytes, bytes]], bytearray]] = {}
        self._waiting: dict[int, bytearray] = {}
        self._ended: set[int] = set()
        self._session = c_void_p()
        self._data = c_void_p()
        # ctypes frees a callback that nothing refers to.
        self._callbacks = (
            _OnFrame(self._on_frame),
            _OnData(self._on_data),
            _OnHeader(self._on_header),
            _OnClose(self._on_close),
        )
        self._provider = _Provider(None, _Read(self._read))

    def opened(self) -> None:
        callbacks = c_void_p()
        _LIBRARY.nghttp2_session_callbacks_new(byref(callbacks))
        for name, callback in zip(
            ("frame_recv", "data_chunk_recv", "header", "stream_close"),
            self._callbacks,
            strict=True,
        ):
            getattr(_LIBRARY, f"nghttp2_session_callbacks_set_on_{name}_callback")(
                callbacks, callback
            )
        _LIBRARY.nghttp2_session_server_new(byref(self._session), callbacks, None)
        _LIBRARY.nghttp2_session_callbacks_del(callbacks)
        _settings(self._session, 0, None, 0)

    def received(self, data: bytes) -> None:
        if _receive(self._session, data, len(data)) < 0:
            self.transport.close()

    def pending(self) -> bytes:
        parts = []
        data = self._data
        while (size := _to_send(self._session, byref(data))) > 0:
            parts.append(ctypes.string_at(data, size))
        return b"".join(parts)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _delete(self._session)

    def _on_header(
        self, _: int, frame: int, name: int, names: int, value: int, values: int, *__: int
    ) -> int:
        stream_id = ctypes.cast(frame, POINTER(_Frame)).contents.stream_id
        headers = self._requests.setdefault(stream_id, ([], bytearray()))[0]
        headers.append((ctypes.string_at(name, names), ctypes.string_at(value, values)))
        return 0

    def _on_data(self, _: int, __: int, stream_id: int, data: int, size: int, ___: int) -> int:
        self._requests[stream_id][1].extend(ctypes.string_at(data, size))
        return 0

    def _on_frame(self, _: int, frame: Any, __: int) -> int:
        header = frame.contents
        if header.type in (_DATA, _HEADERS) and header.flags & _END_STREAM:
            self._call(header.stream_id)
        return 0

    def _on_close(self, _: int, stream_id: int, __: int, ___: int) -> int:
        self.steps.remove((self, stream_id))
        self._waiting.pop(stream_id, None)
        self._ended.discard(stream_id)
        return 0

    def _call(self, stream_id: int) -> None:
        _, request = self._requests.pop(stream_id)
        waiting = self._waiting[stream_id] = bytearray()
        _respond(self._session, stream_id, _RESPONSE, len(_RESPONSE), byref(self._provider))

        def on_token(response: ChatResponse, last: bool) -> None:
            waiting.extend(message(response.SerializeToString()))
            if last:
                self._ended.add(stream_id)
            _resume(self._session, stream_id)

        self.steps.add((self, stream_id), bytes(request[5:]), on_token)

    def _read(
        self, _: int, stream_id: int, into: int, size: int, flags: Any, __: int, ___: int
    ) -> int:
        waiting = self._waiting[stream_id]
        taken = min(size, len(waiting))
        ctypes.memmove(into, bytes(waiting[:taken]), taken)
        del waiting[:taken]
        if not waiting and stream_id in self._ended:
            flags[0] = _EOF | _NO_END_STREAM
            _trailer(self._session, stream_id, _TRAILER, len(_TRAILER))
        elif not taken:
            return _DEFERRED
        return taken


async def start(steps: Steps) -> int:
    """Serve."""
    return await listen(steps, _Nghttp2)
