"""A client of etcd v3, for keys, leases, one kind of transaction and watches."""

import asyncio
import ipaddress
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from baton.cluster import etcd_messages as pb
from baton.cluster.keys import prefix_end

_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.service_config", '{"loadBalancingConfig":[{"round_robin":{}}]}'),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 10_000),  # etcd allows 5 s, and only while calls run
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
_ON_LEADER = (("hasleader", "true"),)  # a server cut off from its leader ends the stream
_EOF: object = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs


class EtcdError(Exception):
    """A request to etcd failed: it is unavailable, has no leader, or refused."""


class Compacted(EtcdError):  # noqa: N818  # a condition to act on: list again
    """The revision that a watch starts at was compacted: list again and watch from there."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A key was written or deleted."""

    key: str
    value: bytes | None
    """What was written; None: the key was deleted."""
    revision: int


class Etcd:
    """A connection to an etcd cluster, over one channel to all endpoints.

    Args:
        endpoints: `host:port` each. Several must be IP addresses; one may be a name, which may
            stand for several addresses.
        timeout: seconds that a request may take.

    Raises:
        ValueError: several endpoints, and one is a name.
    """

    def __init__(self, endpoints: Sequence[str], timeout: float = 3.0) -> None:
        self.endpoints = tuple(endpoints)
        self._timeout = timeout
        self._channel = grpc.aio.insecure_channel(_target(self.endpoints), options=_OPTIONS)
        unary = self._unary
        self._range = unary("KV/Range", pb.RangeRequest, pb.RangeResponse)
        self._put = unary("KV/Put", pb.PutRequest, pb.PutResponse)
        self._txn = unary("KV/Txn", pb.TxnRequest, pb.TxnResponse)
        self._lease = unary("Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
        self._revoke = unary("Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
        self._keep_alive = self._stream(
            "Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse
        )
        self._watch = self._stream("Watch/Watch", pb.WatchRequest, pb.WatchResponse)

    async def __aenter__(self) -> "Etcd":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key; None if it does not exist."""
        response = await self._call(self._range, pb.RangeRequest(key=key.encode()))
        return bytes(response.kvs[0].value) if response.kvs else None

    async def list(self, prefix: str, end: str = "") -> tuple[list[tuple[str, bytes]], int]:
        """Return the keys with a prefix, or from there to `end` (exclusive), and the revision.

        A watch from the revision + 1 continues where this list stops.
        """
        request = pb.RangeRequest(
            key=prefix.encode(), range_end=(end or prefix_end(prefix)).encode()
        )
        response = await self._call(self._range, request)
        pairs = [(kv.key.decode(), bytes(kv.value)) for kv in response.kvs]
        return pairs, int(response.header.revision)

    async def put(self, key: str, value: bytes, lease: int = 0) -> None:
        """Write a key; with a lease it is deleted when the lease ends."""
        await self._call(self._put, pb.PutRequest(key=key.encode(), value=value, lease=lease))

    async def create(self, key: str, value: bytes, lease: int = 0) -> bool:
        """Write a key unless it exists; return whether it was written."""
        absent = pb.Compare(target=pb.Compare.CREATE, key=key.encode(), create_revision=0)
        return await self._put_if(absent, key, value, lease)

    async def replace(self, key: str, known: bytes, value: bytes, lease: int = 0) -> bool:
        """Write a key if it holds `known`; return whether it was written."""
        same = pb.Compare(target=pb.Compare.VALUE, key=key.encode(), value=known)
        return await self._put_if(same, key, value, lease)

    async def _put_if(self, condition: Any, key: str, value: bytes, lease: int) -> bool:
        request = pb.TxnRequest(compare=[condition])  # a comparison is for equality by default
        put = request.success.add().request_put
        put.key, put.value, put.lease = key.encode(), value, lease
        return bool((await self._call(self._txn, request)).succeeded)

    async def grant(self, ttl: int) -> int:
        """Take a new lease of `ttl` seconds (etcd may make it longer); return its id."""
        return int((await self._call(self._lease, pb.LeaseGrantRequest(TTL=ttl))).ID)

    async def keep_alive(self, lease: int) -> int:
        """Renew a lease; return the seconds that it has left, 0 if it has ended."""
        call = self._keep_alive(timeout=self._timeout, metadata=_ON_LEADER)
        try:
            await call.write(pb.LeaseKeepAliveRequest(ID=lease))
            response = await call.read()
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            raise _error(error) from error
        finally:
            call.cancel()
        if response is _EOF:
            raise EtcdError("etcd ended the keep-alive stream")
        return int(response.TTL)

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys; no error if it has ended."""
        try:
            await self._call(self._revoke, pb.LeaseRevokeRequest(ID=lease))
        except EtcdError as error:
            cause = error.__cause__
            if (
                isinstance(cause, grpc.aio.AioRpcError)
                and cause.code() == grpc.StatusCode.NOT_FOUND
            ):
                return
            raise

    async def watch(
        self, prefix: str, from_revision: int, end: str = ""
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """Yield the changes of `list(prefix, end)` from a revision on, until the watch fails.

        The first batch is empty and says that the watch is open. Events come in order, those of one
        revision together. Resume from the last one's revision plus 1. Close it
        (`contextlib.aclosing`) where it is left early.

        Raises:
            Compacted: `from_revision` was compacted, or etcd was started with an empty store.
            EtcdError: etcd is unavailable.
        """
        request = pb.WatchRequest()
        request.create_request.key = prefix.encode()
        request.create_request.range_end = (end or prefix_end(prefix)).encode()
        request.create_request.start_revision = from_revision
        call = self._watch(metadata=_ON_LEADER)
        try:
            async with asyncio.timeout(self._timeout):
                await call.write(request)
                response = await call.read()
            if response is not _EOF and response.header.revision < from_revision - 1:
                # Such a watch is accepted and stays silent until the revision is reached again.
                raise Compacted(f"etcd is at {response.header.revision}, not yet {from_revision}")
            while response is not _EOF:
                if response.compact_revision:
                    raise Compacted(f"revisions before {response.compact_revision} are compacted")
                if response.canceled:
                    raise EtcdError(f"etcd cancelled the watch: {response.cancel_reason}")
                if response.events or response.created:
                    yield [_event(event) for event in response.events]
                response = await call.read()
            raise EtcdError("etcd ended the watch")
        except (grpc.RpcError, asyncio.InvalidStateError, TimeoutError) as error:
            raise _error(error) from error
        finally:
            call.cancel()

    def _unary(self, method: str, request: Any, response: Any) -> Any:
        return self._channel.unary_unary(
            f"/etcdserverpb.{method}", request.SerializeToString, response.FromString
        )

    def _stream(self, method: str, request: Any, response: Any) -> Any:
        return self._channel.stream_stream(
            f"/etcdserverpb.{method}", request.SerializeToString, response.FromString
        )

    async def _call(self, method: Any, request: Any) -> Any:
        call = method(request, timeout=self._timeout)
        try:
            return await call
        except grpc.RpcError as error:
            raise _error(error) from error
        finally:
            call.cancel()


def _event(event: Any) -> WatchEvent:
    value = None if event.type == pb.WATCH_DELETE else bytes(event.kv.value)
    return WatchEvent(event.kv.key.decode(), value, int(event.kv.mod_revision))


def _error(error: Exception) -> EtcdError:
    if isinstance(error, grpc.aio.AioRpcError):
        return EtcdError(f"{error.code().name}: {error.details()}")
    return EtcdError(f"etcd did not answer ({type(error).__name__})")


def _target(endpoints: Sequence[str]) -> str:
    hosts = [endpoint.rpartition(":")[0].strip("[]") for endpoint in endpoints]
    versions: set[int] = set()
    for host in hosts:
        try:
            versions.add(ipaddress.ip_address(host).version)
        except ValueError:
            versions.add(0)
    if versions == {0} and len(endpoints) == 1:
        return f"dns:///{endpoints[0]}"
    if versions == {4} or versions == {6}:
        return f"ipv{versions.pop()}:{','.join(endpoints)}"
    raise ValueError("several etcd endpoints must all be IPv4 or all be IPv6 addresses")
