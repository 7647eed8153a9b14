"""The protocol spoken by hand, and frames for it."""

from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.kv.digest import object_digest
from baton.rpc.channel.channel import Channel
from baton.rpc.channels import open_channel
from baton.rpc.protocol import VERSION
from baton.rpc.streams.client import ClientStream
from baton.rpc.streams.send_queue import SendQueue
from tests.support.clock import DEADLINE_SECONDS
from tests.support.stores import (
    LAYOUT,
    keys_of,
)

KEY = keys_of(1)[0]


DATA = b"d" * 100


DIGEST = object_digest(KEY, LAYOUT, 0, 0, 0, memoryview(DATA))


class Raw:
    """Speaks the protocol by hand, without shared memory."""

    def __init__(self, address: str) -> None:
        self.channel = open_channel(address)
        self.stub: Any = KvStoreServiceStub(self.channel)
        self._link = Channel(address)
        self.streams: list[ClientStream[Any, Any]] = []

    async def open(self, method: str, **more: object) -> ClientStream[Any, Any]:
        request = pb.AttachRequest(client_id="raw", incarnation="1", protocol_version=VERSION)
        session = await self.stub.Attach(request, timeout=DEADLINE_SECONDS)
        stream = self.unopened(method)
        opening = pb.Open(**{"session_id": session.session_id, **more})
        kind = pb.PutRequest if method == "Put" else pb.GetRequest
        stream.send(kind(open=opening))
        return stream

    def unopened(self, method: str) -> ClientStream[Any, Any]:
        call = getattr(self._link.stub(KvStoreServiceStub), method)()
        stream: ClientStream[Any, Any] = ClientStream(call, SendQueue())
        self.streams.append(stream)
        return stream

    async def aclose(self) -> None:
        for stream in self.streams:
            stream.close()
        await self._link.close()
        await self.channel.close(None)


async def ended(stream: ClientStream[Any, Any]) -> Reason:
    with pytest.raises(BatonError) as caught:
        while True:
            await stream.read()
    return caught.value.reason


def reserve(**more: object) -> pb.PutRequest:
    values = {"correlation_id": 1, "layout_id": LAYOUT, "keys": KEY, "object_bytes": 100}
    return pb.PutRequest(reserve=pb.Reserve(**{**values, **more}))


def read_frame(**more: object) -> pb.GetRequest:
    values = {"correlation_id": 1, "layout_id": LAYOUT, "keys": KEY}
    return pb.GetRequest(read=pb.Read(**{**values, **more}))


def chunk(data: bytes = DATA, offset: int = 0, index: int = 0, number: int = 1) -> pb.PutRequest:
    frame = pb.WriteChunk(correlation_id=number, indexes=[index], offset_bytes=offset, data=data)
    return pb.PutRequest(write_chunk=frame)


def commit(*indexes: int, digests: bytes = DIGEST, number: int = 1) -> pb.PutRequest:
    frame = pb.Commit(correlation_id=number, indexes=indexes or [0], digests=digests)
    return pb.PutRequest(commit=frame)


async def error_of(stream: ClientStream[Any, Any]) -> BatonError:
    frame = await stream.read()
    assert frame.WhichOneof("frame") == "error", frame
    return BatonError.from_status(frame.error.status)
