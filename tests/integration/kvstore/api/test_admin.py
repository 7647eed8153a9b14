"""Lists, lookups and drops."""

import itertools
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.rpc.channels import MAX_MESSAGE_BYTES
from services.kvstore.api.admin import stat
from tests.integration.kvstore.api.raw import KEY, Raw, ended, read_frame, reserve
from tests.support.clock import DEADLINE_SECONDS
from tests.support.stores import LAYOUT, RunningStore, connected, keys_of, put
from tests.support.wait import eventually


async def test_bad_lookups_and_denials(raw: Raw, store: RunningStore) -> None:
    for layout, keys in itertools.product([LAYOUT, b"", b"unknown"], [b"", KEY[:-1], KEY * 65_537]):
        with pytest.raises(grpc.RpcError) as caught:
            await raw.stub.Lookup(
                pb.LookupRequest(layout_id=layout, keys=keys), timeout=DEADLINE_SECONDS
            )
        assert BatonError.from_rpc_error(caught.value).reason is Reason.INVALID_FIELD
        stream = await raw.open("Put")
        await stream.read()
        stream.send(pb.PutRequest(will_not_come=pb.WillNotCome(layout_id=layout, keys=keys)))
        assert await ended(stream) is Reason.INVALID_FIELD
    await store.at_baseline(1)


async def test_bad_lists_and_drops(raw: Raw) -> None:
    cases = [
        ("List", pb.ListRequest(key_prefix=b"k" * 17), "key_prefix"),
        ("List", pb.ListRequest(layout_id=b"short"), "layout_id"),
        ("List", pb.ListRequest(limit=-1), "limit"),
        ("List", pb.ListRequest(limit=10_001), "limit"),
        ("List", pb.ListRequest(page=b"made up"), "page"),
        ("List", pb.ListRequest(tenant="t" * 129), "tenant"),
        ("Drop", pb.DropRequest(), "keys"),
        ("Drop", pb.DropRequest(keys=KEY + b"x"), "keys"),
        ("Drop", pb.DropRequest(keys=KEY * 65_537), "keys"),
        ("Drop", pb.DropRequest(keys=KEY, layout_id=b"short"), "layout_id"),
    ]
    for method, request, field in cases:
        with pytest.raises(grpc.RpcError) as caught:
            await getattr(raw.stub, method)(request, timeout=DEADLINE_SECONDS)
        error = BatonError.from_rpc_error(caught.value)
        assert error.reason is Reason.INVALID_FIELD
        assert field in str(error)


async def test_pages_of_a_list_hold_every_object_once(raw: Raw, store: RunningStore) -> None:
    async with connected(store.address, "grpc") as client:
        keys = keys_of(25)
        await put(client, keys, 64)
        seen, page = [], b""
        while True:
            answer = await raw.stub.List(
                pb.ListRequest(limit=4, page=page), timeout=DEADLINE_SECONDS
            )
            seen += [info.key for info in answer.objects]
            page = answer.next_page
            if not page:
                break
        assert seen == sorted(keys)
        assert (
            await raw.stub.Drop(
                pb.DropRequest(keys=keys[1] + b"nowhere to be fd"), timeout=DEADLINE_SECONDS
            )
        ).dropped == 1


async def test_a_layout_that_nobody_uses_is_nothing_that_is_held(
    raw: Raw, store: RunningStore
) -> None:
    async with connected(store.address, "grpc") as client:
        await put(client, [KEY], 64)
    stream = await raw.open("Get")
    await stream.read()
    stream.send(read_frame(layout_id=b"U" * 16))
    assert (await stream.read()).missing.timed_out == [0]
    lookup = pb.LookupRequest(layout_id=b"U" * 16, keys=KEY)
    assert (await raw.stub.Lookup(lookup, timeout=DEADLINE_SECONDS)).held == b"\0"


TEN_MILLION = 10_000_000
MANY = KEY * (MAX_MESSAGE_BYTES // len(KEY) + 1)
"""The fewest that no message holds."""


@pytest.mark.parametrize(
    ("method", "frame"),
    [
        ("Get", lambda: read_frame(keys=KEY * TEN_MILLION)),
        ("Get", lambda: pb.GetRequest(report_read=pb.ReportRead(layout_id=LAYOUT, keys=MANY))),
        ("Put", lambda: reserve(keys=MANY)),
        ("Put", lambda: pb.PutRequest(will_not_come=pb.WillNotCome(layout_id=LAYOUT, keys=MANY))),
        ("Lookup", lambda: pb.LookupRequest(layout_id=LAYOUT, keys=MANY)),
        ("Drop", lambda: pb.DropRequest(layout_id=LAYOUT, keys=MANY)),
    ],
)
async def test_messages_that_are_too_long_are_refused_and_leave_nothing(
    raw: Raw, store: RunningStore, method: str, frame: Callable[[], Any]
) -> None:
    # The client's own limit would keep them from being sent.
    unbounded = [("grpc.max_send_message_length", -1)]
    await raw.channel.close(None)
    raw.channel = grpc.aio.insecure_channel(store.address, options=unbounded)
    raw.stub = KvStoreServiceStub(raw.channel)
    if method in ("Get", "Put"):
        stream = await raw.open(method)
        await stream.read()
        stream.send(frame())
        assert (await ended(stream)).code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await eventually(lambda: stat(store.store).sessions == 0, 1)
    else:
        with pytest.raises(grpc.RpcError) as caught:
            await getattr(raw.stub, method)(frame(), timeout=DEADLINE_SECONDS)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "a message of more than" in caught.value.details()
    await store.at_baseline(1)
    assert (stat(store.store).objects, stat(store.store).misses) == (0, 0)
