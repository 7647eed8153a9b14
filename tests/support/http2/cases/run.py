"""Run a case against a server, and return its outcome."""

from tests.support.grpc.echo_service import EMPTY
from tests.support.http2.cases.case import IGNORES, Answers, Case, Closes, Outcome, Resets
from tests.support.http2.frames import Code, Kind, goaway, ping
from tests.support.http2.peer import Peer, connect

_MARKS = (b"1st mark", b"2nd mark")
_FRESH = 1001
"""The stream of a call that must still be answered."""


async def outcome(peer: Peer, case: Case) -> Outcome | None:
    """Send a case and return the first outcome; None: closed without GOAWAY.

    The case has no effect if two PINGs, one after the other, are answered: a server may answer the
    first one before it sends something else. If the allowed outcomes name streams, effects on other
    streams do not count.
    """
    named = {seen.stream_id for seen in case.outcomes if isinstance(seen, Answers | Resets)}
    answers = [expected for expected in case.outcomes if isinstance(expected, Answers)]
    peer.send(case.sent, ping(_MARKS[0]))
    while (got := await peer.receive()) is not None:
        if got.kind == Kind.GOAWAY and got.error != Code.NO_ERROR:
            return Closes(got.error)
        meant = not named or got.stream_id in named
        if meant and got.kind == Kind.RST_STREAM and got.error != Code.NO_ERROR:
            return Resets(got.error, got.stream_id)
        for expected in answers:
            if (answer := peer.answer(expected.stream_id)).ended:
                return Answers(answer.grpc_status, expected.stream_id)
        if got.kind == Kind.PING and got.payload == _MARKS[0]:
            peer.send(ping(_MARKS[1]))
        if got.kind == Kind.PING and got.payload == _MARKS[1] and not answers:
            return IGNORES
    return None


async def check(address: str, case: Case) -> None:
    """Run a case on its own connection.

    Raises:
        AssertionError: the outcome is not allowed, or the connection is in a wrong state
            afterwards.
    """
    async with connect(address) as peer:
        seen = await outcome(peer, case)
        assert seen in case.outcomes, f"{seen} instead of {case.outcomes}: {peer.frames[-6:]}"
        if isinstance(seen, Closes):
            await peer.until_closed()
            return
        if goaway(0, 0, b"bye") in case.sent:  # the case allows no more calls
            return
        await peer.round_trip()
        answer = await peer.call(_FRESH, EMPTY)
        assert answer.grpc_status == "0", f"a call after it: {answer}"
