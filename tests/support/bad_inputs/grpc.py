"""Cases for the gRPC API: messages of its methods, and frames of HTTP/2."""

import asyncio
from typing import Any

import grpc
from google.protobuf import json_format

from baton.errors import BatonError, Reason
from baton.rpc.wire.status import read_status
from baton.v1 import inference_pb2
from tests.support.bad_inputs.case import Case, pieces
from tests.support.http2.frames import ACK, Code, Kind, frame, ping
from tests.support.http2.headers import block, call_fields, message
from tests.support.http2.peer import Answer, Peer, connect

METHODS: dict[str, Any] = {
    "chat": ("Chat", inference_pb2.ChatRequest),
    "text": ("Generate", inference_pb2.GenerateRequest),
    "tokenize": ("Tokenize", inference_pb2.TokenizeRequest),
}
PATH = "/baton.v1.InferenceService/"
SECONDS = 20.0


class GrpcPlayer:
    """Sends cases to a gRPC server: messages on one channel, frames on a connection each.

    Args:
        address: the server's address.
        channel: a channel to the server.
        model: the model of requests whose case names none.
    """

    def __init__(self, address: str, channel: grpc.aio.Channel, model: str) -> None:
        self._address = address
        self._channel = channel
        self._model = model

    def prepare(self, case: Case) -> tuple[str, bytes]:
        """Return the method that a case calls, and the message; for frames, no method."""
        if case.kind == "frames":
            return "", b"".join(map(_frames, case.spec["frames"]))
        return self._call(case)

    async def play(self, case: Case, prepared: tuple[str, bytes]) -> str:
        """Send a prepared case; return the result in the terms of its `expect`."""
        method, data = prepared
        if case.kind == "frames":
            return await self._play_frames(case, data)
        call = self._channel.unary_stream(PATH + method)(data, timeout=SECONDS)
        try:
            answers = [answer async for answer in call]
        except grpc.aio.AioRpcError as refused:
            return _shown(BatonError.from_rpc_error(refused))
        return _shown(_failure(answers) if method == "Session" else None)

    def _call(self, case: Case) -> tuple[str, bytes]:
        if case.kind == "message":
            model = self._model.encode()
            # A field for a model's name of the same length as the real name.
            payload = pieces(case.spec["message"]).replace(b"@MODEL", bytes((len(model),)) + model)
            return case.spec["method"], payload
        method, kind = METHODS[case.kind]
        request = kind()
        json_format.ParseDict(_base(case.kind, self._model), request)
        for name in _LISTS & set(case.spec["grpc"]):
            request.ClearField(name)
        json_format.ParseDict(case.spec["grpc"], request)
        return method, request.SerializeToString()

    async def _play_frames(self, case: Case, data: bytes) -> str:
        start = not case.spec.get("no_preface")
        async with connect(self._address, start=start) as peer:
            peer.send(data)
            if case.expect[0].split()[0] in ("goaway", "closed", "alive"):
                return await _end_of(peer)
            return _outcome(await peer.finished())


_LISTS = {"messages"}
"""Fields for which a case gives all entries."""


def _base(kind: str, model: str) -> dict[str, Any]:
    if kind == "tokenize":
        return {"model": model, "text": "x"}
    asked: dict[str, Any] = {"context": {"model": model}, "sampling": {"maxTokens": 2}}
    if kind == "chat":
        return asked | {"messages": [{"role": "user", "content": "x"}]}
    return asked | {"text": "x"}


def _outcome(answer: Answer) -> str:
    """Return the end of a call: the result of `_shown`, `reset` and a code, or an HTTP status."""
    if answer.reset is not None:
        assert answer.reset is not Code.INTERNAL_ERROR
        return f"reset {answer.reset.name}"
    if answer.status != "200":
        return f"HTTP {answer.status}"
    fields = [(k.encode(), v.encode("latin-1")) for k, v in answer.headers[-1].items()]
    return _shown(read_status(fields))


async def _end_of(peer: Peer) -> str:
    """Return how the connection ended, or `alive` once the server has accepted everything sent."""
    peer.send(ping(b"roundtri"))
    while (got := await peer.receive()) is not None:
        if got.kind == Kind.PING and got.flags & ACK and got.payload == b"roundtri":
            return "alive"
        await asyncio.sleep(0)  # one read may contain a thousand
    if peer.goaway is None or peer.goaway.error is Code.NO_ERROR:
        return "closed"
    assert peer.goaway.error is not Code.INTERNAL_ERROR
    return f"goaway {peer.goaway.error.name}"


def _failure(answers: list[bytes]) -> BatonError | None:
    """Return the last error that a session reported."""
    error = None
    for answer in map(inference_pb2.SessionResponse.FromString, answers):
        for event in answer.events:
            if event.HasField("error"):
                error = BatonError.from_status(event.error)
    return error


def _shown(error: BatonError | None) -> str:
    """Return OK, or the reason of an error and the invalid field."""
    if error is None:
        return "OK"
    assert error.reason not in (Reason.INTERNAL, Reason.UNKNOWN), error.message
    assert 0 < len(error.message) < 2000
    return f"{error.reason.name} {error.field or ''}".strip()


def _frames(part: Any) -> bytes:
    """Return the bytes of an entry of `frames`."""
    if isinstance(part, str):
        return part.encode("latin-1")
    if isinstance(part, dict):
        each = part["frames"]
        if "times" in part:
            return b"".join(map(_frames, each)) * part["times"]
        ids = range(1, 2 * part["streams"], 2)
        return b"".join(_frame(*one[:2], stream, *one[3:]) for stream in ids for one in each)
    return _frame(*part)


def _frame(kind: str | int, flags: int, stream: int, payload: Any = "", size: int = -1) -> bytes:
    number = Kind[kind] if isinstance(kind, str) else kind
    return frame(number, flags, stream, _payload(payload), size)


def _payload(value: Any) -> bytes:
    if not isinstance(value, dict) or "base64" in value:
        return pieces(value)
    if "message" in value:
        return message(pieces(value["message"]))
    fields = [(pieces(name), pieces(text)) for name, text in value.get("fields", ())]
    if "call" in value:
        known = {name for name, _ in fields} | {pieces(one) for one in value.get("without", ())}
        given = [one for one in call_fields(PATH + value["call"]) if one[0] not in known]
        first = [one for one in fields if one[0][:1] == b":"]
        fields = first + given + [one for one in fields if one[0][:1] != b":"]
    return block(fields)
