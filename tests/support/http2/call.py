"""A call sent by hand, and its result."""

from tests.support.grpc.echo_service import EMPTY
from tests.support.http2.frames import data
from tests.support.http2.headers import call_fields, headers
from tests.support.http2.peer import Answer, connect


async def sent(address: str, path: str, *bodies: bytes, fields=(), without=b"") -> Answer:
    """Return the result of a call with these fields and bytes, each in its own frame."""
    given = [field for field in call_fields(path) if field[0] != without]
    async with connect(address) as peer:
        last = len(bodies) - 1
        peer.send(headers(1, [*given, *fields], end=not bodies))
        for number, body in enumerate(bodies):
            peer.send(data(1, body, end=number == last))
        answer = await peer.finished()
        if not answer.reset:
            assert (await peer.call(3, EMPTY)).grpc_status == "0"
        return answer
