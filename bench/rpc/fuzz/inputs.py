"""Bytes that a client or a server might send: frames in and out of order, then corrupted.

Everything is derived from one `random.Random`, so a number identifies an input.
"""

from collections.abc import Callable
from random import Random

from baton.rpc.http2.framing import codes, frames

PATHS = (
    b"/grpc.health.v1.Health/Check",
    b"/grpc.health.v1.Health/Watch",
    b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    b"/no.Service/Method",
)
_SIZES = (0, 1, 4, 5, 6, 8, 9, 16, 100, 1000, 16_384, 16_385, 70_000)
_NUMBERS = (0, 1, 2, 5, 255, 16_383, 16_384, 65_535, 65_536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
_VALUES = (b"", b"x", b"trailers", b"gzip", b"1", b"-1", b"99999999H", b"\0", b"a\nb", b"\xff" * 9)
_NAMES = (
    b"te", b"x-a", b"x-bin", b"grpc-timeout", b"grpc-encoding", b"content-length", b"connection",
    b"X-Upper", b"", b":status", b":path", b":unknown", b"cookie", b"x" * 300,
)  # fmt: skip


class Inputs:
    """Creates the bytes of one connection.

    Args:
        draw: determines everything.
        client: whether a client or a server sends them.
    """

    def __init__(self, draw: Random, client: bool) -> None:
        self._draw = draw
        self._client = client
        self._next = 1
        self._open = [1, 3, 5] if not client else [0]

    def make(self) -> bytes:
        """Return the bytes, mostly with the required beginning."""
        draw = self._draw
        parts = []
        if draw.random() < 0.97:
            first = [] if draw.random() < 0.5 else self._setting_pairs()
            parts = [codes.PREFACE if self._client else b"", frames.settings(first)]
        kinds: tuple[tuple[Callable[[], bytes], int], ...] = (
            (self._call, 8), (self._headers, 3), (self._data, 6), (self._settings, 2),
            (self._window_update, 4), (self._reset, 2), (self._ping, 1), (self._priority, 1),
            (self._goaway, 1), (self._continuation, 1), (self._push, 1), (self._any_frame, 2),
            (self._garbage, 1), (self._costly_block, 1),
        )  # fmt: skip
        makers = draw.choices(
            [maker for maker, _ in kinds], [weight for _, weight in kinds], k=draw.randint(1, 60)
        )
        parts += [self._damaged(maker()) for maker in makers]
        return b"".join(parts)

    def _damaged(self, data: bytes) -> bytes:
        draw = self._draw
        if not data or draw.random() > 0.04:
            return data
        at = draw.randrange(len(data))
        return draw.choice(
            (
                data[:at] + bytes((data[at] ^ 1 << draw.randrange(8),)) + data[at + 1 :],
                data[:at],
                data[at:],
                data + data,
                data[:at] + draw.randbytes(draw.randint(1, 9)) + data[at:],
                data[:3] + bytes((draw.randrange(256), draw.randrange(256))) + data[5:],
            )
        )

    def _stream(self) -> int:
        return self._draw.choice((*self._open[-8:], self._draw.choice(_NUMBERS) & 0x7FFFFFFF))

    def _call(self) -> bytes:
        """Return a call with one or a few messages, or a response of a server."""
        draw = self._draw
        if self._client:
            stream_id, self._next = self._next, self._next + 2
            self._open.append(stream_id)
        else:
            stream_id = draw.choice((1, 3, 5))
        end = draw.random() < 0.1
        sent = self._in_frames(stream_id, self._block(), end)
        for _ in range(draw.randrange(4)):
            sent += frames.frame(codes.DATA, draw.randrange(2), stream_id, self._message())
        return sent

    def _message(self) -> bytes:
        draw = self._draw
        size = draw.choice((0, 0, 2, 10, 100, 3000))
        length = size if draw.random() < 0.9 else draw.choice(_NUMBERS)
        flag = 0 if draw.random() < 0.9 else draw.randrange(4)
        payload = b"\n" + bytes((size - 2 & 0x7F,)) + b"a" * (size - 2) if size > 1 else b""
        return bytes((flag,)) + length.to_bytes(4) + payload

    def _block(self) -> bytes:
        draw = self._draw
        if draw.random() < 0.05:
            return draw.randbytes(draw.choice(_SIZES[:10]))
        if self._client:
            fields = [
                (b":method", b"POST"), (b":scheme", b"http"), (b":path", draw.choice(PATHS)),
                (b":authority", b"a"), (b"content-type", b"application/grpc"), (b"te", b"trailers"),
            ]  # fmt: skip
        else:
            fields = [(b":status", draw.choice((b"200", b"200", b"100", b"404", b"2x")))]
            if draw.random() < 0.5:
                fields.append((b"grpc-status", draw.choice((b"0", b"5", b"x"))))
        if draw.random() < 0.3:
            fields.append((draw.choice(_NAMES), draw.choice(_VALUES)))
        if draw.random() < 0.05:
            draw.shuffle(fields)
        if draw.random() < 0.05:
            del fields[draw.randrange(len(fields))]
        block = b"".join(
            draw.choice((b"\0", b"\x40", b"\x10")) + _text(name) + _text(value)
            for name, value in fields
        )
        if draw.random() < 0.2:
            block += draw.choice((b"\x82", b"\xbe", b"\xbf", b"\x80", b"\x20", b"\x3f\xff\x7f"))
        return block

    def _costly_block(self) -> bytes:
        """Return header blocks that are the most expensive to read."""
        draw = self._draw
        size = draw.choice((100, 3000, 16_000, 60_000))
        unit = draw.choice(
            (
                b"\x20", b"\x3f\xe1\x1f", b"\x82", b"\xbe", b"\x40\x01x\x01y", b"\0\x01x\x01y",
                b"\0\x81\xf3\x81\xf3", b"\x40\x81\xf3\x82\x1c\x64",
            )
        )  # fmt: skip
        block = self._block() * draw.randrange(2) + unit * (size // len(unit))
        return b"".join(
            frames.frame(codes.HEADERS, 5, self._stream(), block) for _ in range(draw.randint(1, 4))
        )

    def _in_frames(self, stream_id: int, block: bytes, end: bool) -> bytes:
        draw = self._draw
        if draw.random() < 0.9:
            return frames.header_frames(stream_id, block, end, 16_384)
        return frames.header_frames(
            stream_id, block, end, max(1, len(block) // draw.randint(1, 30))
        )

    def _headers(self) -> bytes:
        draw = self._draw
        flags = draw.choice((4, 5, 0, 1, 0x24, 0x2D, 0xFF))
        return frames.frame(codes.HEADERS, flags, self._stream(), self._block())

    def _data(self) -> bytes:
        draw = self._draw
        payload = draw.choice((self._message(), bytes(draw.choice(_SIZES)), b""))
        return frames.frame(codes.DATA, draw.choice((0, 0, 1, 8, 9, 0xF6)), self._stream(), payload)

    def _setting_pairs(self) -> list[tuple[int, int]]:
        draw = self._draw
        if draw.random() < 0.5:
            return [(codes.INITIAL_WINDOW_SIZE, draw.choice((0, 1, 10, 100, 65_535, 2**31 - 1)))]
        count = draw.choice((0, 1, 2, 3, 40))
        return [(draw.randrange(8), draw.choice(_NUMBERS)) for _ in range(count)]

    def _settings(self) -> bytes:
        if self._draw.random() < 0.3:
            return frames.frame(codes.SETTINGS, codes.ACK, 0)
        return frames.settings(self._setting_pairs())

    def _window_update(self) -> bytes:
        return frames.window_update(
            self._draw.choice((0, self._stream())), self._draw.choice(_NUMBERS)
        )

    def _reset(self) -> bytes:
        number = self._draw.choice(_NUMBERS).to_bytes(4)
        return frames.frame(codes.RST_STREAM, 0, self._stream(), number)

    def _ping(self) -> bytes:
        return frames.frame(codes.PING, self._draw.randrange(2), 0, b"01234567")

    def _priority(self) -> bytes:
        return frames.frame(codes.PRIORITY, 0, self._stream(), self._draw.randbytes(5))

    def _goaway(self) -> bytes:
        last = self._draw.choice(_NUMBERS).to_bytes(4)
        return frames.frame(
            codes.GOAWAY, 0, 0, last + self._draw.randbytes(self._draw.randrange(9))
        )

    def _continuation(self) -> bytes:
        flags = self._draw.choice((0, 4))
        return frames.frame(codes.CONTINUATION, flags, self._stream(), self._block())

    def _push(self) -> bytes:
        if self._draw.random() < 0.8:
            return b""
        return frames.frame(codes.PUSH_PROMISE, 4, self._stream(), b"\0\0\0\2" + self._block())

    def _any_frame(self) -> bytes:
        draw = self._draw
        payload = draw.randbytes(draw.choice(_SIZES[:11]))
        return frames.frame(draw.randrange(14), draw.randrange(256), self._stream(), payload)

    def _garbage(self) -> bytes:
        return b"" if self._draw.random() < 0.7 else self._draw.randbytes(self._draw.randrange(99))


def pieces(draw: Random, data: bytes) -> list[bytes]:
    """Return bytes split at random: whole, in a few pieces, or one by one."""
    how = draw.random()
    if how < 0.2 or not data:
        return [data]
    if how < 0.3:
        return [data[at : at + 1] for at in range(min(len(data), 5000))] + [data[5000:]]
    cuts = sorted(draw.randrange(len(data)) for _ in range(draw.randint(1, 20)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _text(value: bytes) -> bytes:
    size = len(value)
    head = bytes((size,)) if size < 127 else b"\x7f" + _rest(size - 127)
    return head + value


def _rest(number: int) -> bytes:
    octets = []
    while number >= 128:
        octets.append(number & 127 | 128)
        number >>= 7
    return bytes((*octets, number))
