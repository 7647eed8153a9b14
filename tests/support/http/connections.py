"""Random connections: what each sends, and what must be received."""

import asyncio
from dataclasses import dataclass, field
from random import Random
from zlib import crc32

from baton.errors import BatonError, Reason
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.body import read_json
from services.frontend.http.protocol.connection import connection_of
from services.frontend.http.responses import EventStream, send_error, send_json
from tests.support.http.answers import Answer, read_answers
from tests.support.http.doubts import DOUBTS
from tests.support.http.requests import SMUGGLED, Request, cut, draw_request
from tests.support.http.wire import Wire

_MAX_BODY = 1 << 20


@dataclass
class Application:
    """Responds with the received request, so that a response belongs to one request alone."""

    reached: list[str] = field(default_factory=list)
    """Paths of all received requests."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        self.reached.append(path)
        kind, _, number = path[1:].partition("/")
        if kind == "refused":  # before its body is read
            error = BatonError(Reason.INVALID_API_KEY, number)
            await send_error(send, error)
            return
        try:
            data = await read_json(scope, receive, _MAX_BODY, 30.0)
        except BatonError as error:
            await send_error(send, error)
            return
        said = [number, len(data), crc32(data)]
        if kind == "stream":
            stream = EventStream(connection_of(scope), send)
            for piece in said:
                if stream.push(b"%b " % str(piece).encode()):
                    await stream.begin()
                await asyncio.sleep(0)
            await stream.end(b"end")
        else:
            await send_json(send, said)


async def play_connection(seed: int) -> tuple[int, int]:
    """Run a random connection; return the number of requests and of responses.

    Raises:
        AssertionError: the response to a request is missing or is not the first one, or there are
            more responses than requests; the message contains the seed.
    """
    random, application = Random(seed), Application()
    wire = Wire(application)
    requests = [draw_request(random, at) for at in range(random.choice((1, 2, 3, 5, 9)))]
    doubt = random.choice(DOUBTS) + SMUGGLED if random.random() < 0.2 else b""
    try:
        return await _play(random, wire, application, requests, doubt)
    except Exception as error:
        raise AssertionError(f"connection {seed}: {error!r}") from error
    finally:
        wire.lose()


async def _play(
    random: Random, wire: Wire, application: Application, requests: list[Request], doubt: bytes
) -> tuple[int, int]:
    sent: list[Request] = []
    read: dict[tuple[int, int, bool], tuple[list[Answer], int]] = {}

    def came() -> tuple[list[Answer], int]:
        socket = wire.socket
        state = (len(socket.written), len(sent), socket.closed)
        if state not in read:
            asked = [one.asked for one in sent]
            read[state] = read_answers(bytes(socket.written), asked, socket.closed)
        return read[state]

    def answered(count: int) -> bool:
        try:
            return len(came()[0]) >= count
        except AssertionError:
            if wire.socket.closed:
                raise
            return False

    pipelined = b""
    for request in requests:
        sent.append(request)
        if request.framing.expects:
            for segment in cut(random, pipelined + request.head):
                wire.send(segment)
            pipelined = b""

            def told(before: int = len(sent) - 1) -> bool:
                try:
                    answers, interim = came()
                except AssertionError:
                    return wire.socket.closed
                return len(answers) > before or interim > sum(
                    one.framing.expects and one.kind != "refused" for one in sent[:before]
                )

            assert await wire.until(lambda: told() or wire.socket.closed), "neither 100 nor answer"
            if wire.socket.closed:
                break
            data = request.body
        else:
            data = pipelined + request.head + request.body
            pipelined = b""
        if random.random() < 0.5 and request is not requests[-1]:
            pipelined = data
            continue
        for segment in cut(random, data):
            wire.send(segment)
        for _ in range(random.choice((0, 1, 5))):
            await wire.turn()
        if random.random() < 0.5:
            count = len(sent)
            await wire.until(lambda count=count: wire.socket.closed or answered(count))  # type: ignore[misc]
        if wire.socket.closed:
            break
    for segment in cut(random, pipelined + doubt) if pipelined or doubt else ():
        wire.send(segment)
    ended = next((at for at, one in enumerate(sent) if one.must_end), len(sent))
    due = min(len(sent), ended + 1) + (doubt != b"" and ended == len(sent))
    await wire.until(lambda: wire.socket.closed or (answered(due) and not wire.unread))
    for _ in range(20):  # for a request that was not sent
        await wire.turn()
    answers, _ = came()
    for request, answer in zip(sent, answers, strict=False):
        request.check(answer)
    said_last = next((at for at, one in enumerate(answers) if one.last), None)
    if said_last is None:
        assert len(answers) == len(sent) and not doubt, f"{len(answers)} of {len(sent)}"
    else:
        assert len(answers) == said_last + 1
        assert wire.socket.closed
        if said_last == len(sent):
            assert doubt and answers[-1].status == 400, answers[-1]
        else:
            assert sent[said_last].may_end
    assert not [path for path in application.reached if "smuggled" in path], application.reached
    assert len(application.reached) <= len(sent)
    return len(sent), len(answers)
