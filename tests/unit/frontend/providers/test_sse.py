"""Events of an upstream, in any pieces."""

import pytest

from services.frontend.providers.sse import MAX_LINE_BYTES, EventReader, StreamTooLongError

STREAM = b'event: x\r\ndata: {"a": 1}\r\n\r\n: comment\ndata:[2]\n\ndata: [DONE]\n\ndata: half'


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_pieces_of_any_size(size: int) -> None:
    reader = EventReader()
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert [data for piece in pieces for data in reader.feed(piece)] == [
        b'{"a": 1}',
        b"[2]",
        b"[DONE]",
    ]


@pytest.mark.parametrize("size", [1000, 2**20, 2**21])
def test_a_long_line_is_refused(size: int) -> None:
    reader, fed = EventReader(), 0
    with pytest.raises(StreamTooLongError, match="a line of its stream exceeds"):
        for _ in range(10 * MAX_LINE_BYTES // size):
            fed += size
            list(reader.feed(b"x" * size))
    assert fed <= 2 * MAX_LINE_BYTES + size
