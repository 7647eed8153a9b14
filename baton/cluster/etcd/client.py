"""A client of etcd v3 for keys, leases, one kind of transaction, and watches."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from baton.cluster.etcd import messages as pb
from baton.cluster.etcd.channels import EtcdChannels
from baton.cluster.keys import prefix_end
from baton.rpc.tls.watch import CertificateWatch

_ON_LEADER = (("hasleader", "true"),)  # a server cut off from its leader ends the stream
PAGE = 1000
MAX_BATCH = 128
"""Keys that etcd writes in one transaction, by default (`--max-txn-ops`)."""
Pairs = list[tuple[str, bytes]]
"""Keys and their values."""
_COMPACTED = "required revision has been compacted"
_NO_SPACE = "database space exceeded"
NO_SPACE = "etcd has no space left and refuses all writes"
_EOF: object = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs


_Method = tuple[str, Callable[[Any], bytes], Callable[[bytes], Any]]


def _method(name: str, request: Any, response: Any) -> _Method:
    return f"/etcdserverpb.{name}", request.SerializeToString, response.FromString


_RANGE = _method("KV/Range", pb.RangeRequest, pb.RangeResponse)
_PUT = _method("KV/Put", pb.PutRequest, pb.PutResponse)
_TXN = _method("KV/Txn", pb.TxnRequest, pb.TxnResponse)
_GRANT = _method("Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
_REVOKE = _method("Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
_KEEP_ALIVE = _method("Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse)
_ALARM = _method("Maintenance/Alarm", pb.AlarmRequest, pb.AlarmResponse)
_WATCH = _method("Watch/Watch", pb.WatchRequest, pb.WatchResponse)


class EtcdError(Exception):
    """A request to etcd failed: etcd is unavailable, has no leader, or rejected it."""


class Compacted(EtcdError):  # noqa: N818  # a condition to act on: list again
    """The revision that a watch starts at, or that a list reads, was compacted: list again, and
    watch from the new revision."""


class NoSpaceError(EtcdError):
    """etcd has used up its quota: it refuses all writes until an operator frees space."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A key was written or deleted."""

    key: str
    value: bytes | None
    """The new value; None: the key was deleted."""
    revision: int


class Etcd:
    """A connection to an etcd cluster, by any of its endpoints.

    A failed request is not retried, since etcd may have executed it; the next request goes to
    another endpoint.

    Args:
        endpoints: `host:port` each, names or addresses. A name may resolve to several addresses.
        timeout: seconds that a request may take, in addition to a third of that to connect.
        certificate: to speak TLS; None: plain text.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        timeout: float = 3.0,
        certificate: CertificateWatch[grpc.ChannelCredentials] | None = None,
    ) -> None:
        self.endpoints = tuple(endpoints)
        self._timeout = timeout
        self._channels = EtcdChannels(self.endpoints, certificate=certificate)

    async def __aenter__(self) -> "Etcd":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channels.close()

    async def get(self, key: str, revision: int = 0) -> bytes | None:
        """Return the value of a key, at a revision; 0: now. None if it does not exist."""
        response = await self._call(_RANGE, pb.RangeRequest(key=key.encode(), revision=revision))
        return bytes(response.kvs[0].value) if response.kvs else None

    async def get_revised(self, key: str) -> tuple[bytes | None, int]:
        """Return the value of a key and the revision that wrote it; None and 0 if it does not
        exist."""
        response = await self._call(_RANGE, pb.RangeRequest(key=key.encode()))
        if not response.kvs:
            return None, 0
        return bytes(response.kvs[0].value), int(response.kvs[0].mod_revision)

    async def get_all(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the values of the keys that exist, for up to MAX_BATCH keys."""
        request = pb.TxnRequest()
        for key in keys:
            request.success.add().request_range.key = key.encode()
        answers = (await self._call(_TXN, request)).responses
        found = [kv for answer in answers for kv in answer.response_range.kvs]
        return {kv.key.decode(): bytes(kv.value) for kv in found}

    async def first(self, start: str, end: str) -> str | None:
        """Return the first key in the range from `start` to `end` (exclusive); None if there is
        none."""
        request = pb.RangeRequest(
            key=start.encode(), range_end=end.encode(), limit=1, keys_only=True
        )
        response = await self._call(_RANGE, request)
        return str(response.kvs[0].key.decode()) if response.kvs else None

    async def get_all_revised(self, keys: Sequence[str]) -> dict[str, tuple[bytes, int]]:
        """Return the values of the keys that exist, and the revisions that wrote them, for up to
        MAX_BATCH keys."""
        request = pb.TxnRequest()
        for key in keys:
            request.success.add().request_range.key = key.encode()
        answers = (await self._call(_TXN, request)).responses
        found = [kv for answer in answers for kv in answer.response_range.kvs]
        return {kv.key.decode(): (bytes(kv.value), int(kv.mod_revision)) for kv in found}

    async def revision(self) -> int:
        """Return the revision of the latest write."""
        request = pb.RangeRequest(key=b"/", count_only=True)
        return int((await self._call(_RANGE, request)).header.revision)

    async def count(self, prefix: str, revision: int = 0) -> int:
        """Return the number of keys with a prefix, at a revision; 0: now."""
        request = pb.RangeRequest(
            key=prefix.encode(),
            range_end=prefix_end(prefix).encode(),
            count_only=True,
            revision=revision,
        )
        return int((await self._call(_RANGE, request)).count)

    async def last(self, prefix: str, end: str = "", size: int = PAGE) -> Pairs:
        """Return up to `size` keys with a prefix and before `end`, in descending order."""
        request = pb.RangeRequest(
            key=prefix.encode(),
            range_end=(end or prefix_end(prefix)).encode(),
            limit=size,
            sort_order=pb.RangeRequest.DESCEND,
            sort_target=pb.RangeRequest.KEY,
        )
        response = await self._call(_RANGE, request)
        return [(kv.key.decode(), bytes(kv.value)) for kv in response.kvs]

    async def list(self, prefix: str, end: str = "") -> tuple[Pairs, int]:
        """Return the keys with a prefix, or from it to `end` (exclusive), and the revision.

        A watch from the revision + 1 continues where this list stops.
        """
        request = pb.RangeRequest(
            key=prefix.encode(), range_end=(end or prefix_end(prefix)).encode()
        )
        response = await self._call(_RANGE, request)
        pairs = [(kv.key.decode(), bytes(kv.value)) for kv in response.kvs]
        return pairs, int(response.header.revision)

    async def pages(
        self, prefix: str, size: int = PAGE, revision: int = 0
    ) -> AsyncGenerator[tuple[Pairs, int], None]:
        """Yield what `list` returns, at one revision, in pages of up to `size` keys; at least one
        page.

        Close the generator (`contextlib.aclosing`) if it is not read to its end.

        Args:
            prefix: of the keys.
            size: the most keys in a page.
            revision: to read at; 0: the latest when the first page is read.

        Raises:
            Compacted: the revision was compacted before the last page was read.
        """
        request = pb.RangeRequest(
            key=prefix.encode(),
            range_end=prefix_end(prefix).encode(),
            limit=size,
            revision=revision,
        )
        more = True
        while more:
            response = await self._call(_RANGE, request)
            pairs = [(kv.key.decode(), bytes(kv.value)) for kv in response.kvs]
            request.revision = request.revision or response.header.revision
            yield pairs, int(request.revision)
            more = response.more
            if more:
                request.key = pairs[-1][0].encode() + b"\0"

    async def put(self, key: str, value: bytes, lease: int = 0) -> None:
        """Write a key; with a lease, it is deleted when the lease ends."""
        await self._call(_PUT, pb.PutRequest(key=key.encode(), value=value, lease=lease))

    async def create(self, key: str, value: bytes, lease: int = 0) -> bool:
        """Write a key unless it exists; return whether it was written."""
        return await self._write([(key, value)], [_absent(key)], lease)

    async def put_all(self, pairs: Sequence[tuple[str, bytes]]) -> None:
        """Write up to MAX_BATCH keys in one transaction."""
        await self._write(pairs, [])

    async def create_all(self, pairs: Sequence[tuple[str, bytes]]) -> bool:
        """Write up to MAX_BATCH keys unless one of them exists; return whether they were
        written."""
        return await self._write(pairs, [_absent(key) for key, _ in pairs])

    async def replace(self, key: str, known: bytes, value: bytes, lease: int = 0) -> bool:
        """Write a key if its value is `known`; return whether it was written."""
        return await self._write([(key, value)], [_holds(key, known)], lease)

    async def replace_all(
        self,
        known: Sequence[tuple[str, bytes | None]],
        pairs: Sequence[tuple[str, bytes]],
        gone: Sequence[str] = (),
    ) -> bool:
        """Write and delete up to MAX_BATCH keys in one transaction; return whether it was applied.

        Args:
            known: required values of keys; None: the key must not exist.
            pairs: keys to write, with their values.
            gone: keys to delete, if they exist.
        """
        conditions = [_absent(key) if value is None else _holds(key, value) for key, value in known]
        return await self._write(pairs, conditions, gone=gone)

    async def put_all_revised(
        self, revisions: Mapping[str, int], pairs: Sequence[tuple[str, bytes]]
    ) -> bool:
        """Write up to MAX_BATCH keys if none was written since; return whether they were.

        Args:
            revisions: revision that wrote each key last, by key; 0: the key must not exist.
            pairs: keys to write, with their values.
        """
        conditions = [
            pb.Compare(target=pb.Compare.MOD, key=key.encode(), mod_revision=revision)
            for key, revision in revisions.items()
        ]
        return await self._write(pairs, conditions)

    async def _write(
        self,
        pairs: Sequence[tuple[str, bytes]],
        conditions: Sequence[Any],
        lease: int = 0,
        gone: Sequence[str] = (),
    ) -> bool:
        request = pb.TxnRequest(compare=conditions)  # a comparison is for equality by default
        for key, value in pairs:
            put = request.success.add().request_put
            put.key, put.value, put.lease = key.encode(), value, lease
        for key in gone:
            request.success.add().request_delete_range.key = key.encode()
        return bool((await self._call(_TXN, request)).succeeded)

    async def grant(self, ttl: int) -> int:
        """Take a new lease of `ttl` seconds (etcd may make it longer); return its ID."""
        return int((await self._call(_GRANT, pb.LeaseGrantRequest(TTL=ttl))).ID)

    async def keep_alive(self, lease: int) -> int:
        """Renew a lease; return the seconds that remain, 0 if it has ended."""
        channel = await self._channels.pick(self._timeout / 3)
        renew: Any = channel.stream_stream(*_KEEP_ALIVE)
        call = renew(timeout=self._timeout, metadata=_ON_LEADER)
        try:
            await call.write(pb.LeaseKeepAliveRequest(ID=lease))
            response = await call.read()
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            self._channels.failed(channel)
            raise _error(error) from error
        finally:
            call.cancel()
        if response is _EOF:
            self._channels.failed(channel)
            raise EtcdError("etcd ended the keep-alive stream")
        return int(response.TTL)

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys; no error if it has ended."""
        try:
            await self._call(_REVOKE, pb.LeaseRevokeRequest(ID=lease))
        except EtcdError as error:
            cause = error.__cause__
            if (
                isinstance(cause, grpc.aio.AioRpcError)
                and cause.code() == grpc.StatusCode.NOT_FOUND
            ):
                return
            raise

    async def alarms(self) -> Sequence[str]:
        """Return the alarms that members have raised: `NOSPACE`, `CORRUPT`."""
        response = await self._call(_ALARM, pb.AlarmRequest())  # GET, of all members
        return sorted({pb.ALARMS.get(one.alarm, str(one.alarm)) for one in response.alarms})

    async def watch(
        self, prefix: str, from_revision: int, end: str = ""
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """Yield the changes of `list(prefix, end)` from a revision on, until the watch fails.

        The first batch is empty and signals that the watch is open. Events arrive in order, those
        of one revision together. Resume from the last revision plus 1. Close the generator
        (`contextlib.aclosing`) if it is not read to its end.

        Raises:
            Compacted: `from_revision` was compacted, or etcd was started with an empty store.
            EtcdError: etcd is unavailable.
        """
        request = pb.WatchRequest()
        request.create_request.key = prefix.encode()
        request.create_request.range_end = (end or prefix_end(prefix)).encode()
        request.create_request.start_revision = from_revision
        channel = await self._channels.pick(self._timeout / 3)
        watch: Any = channel.stream_stream(*_WATCH)
        call = watch(metadata=_ON_LEADER)
        try:
            async with asyncio.timeout(self._timeout):
                await call.write(request)
                response = await call.read()
            if response is not _EOF and response.header.revision < from_revision - 1:
                # etcd accepts such a watch and sends nothing until the revision is reached again.
                raise Compacted(f"etcd is at {response.header.revision}, not yet {from_revision}")
            while response is not _EOF:
                if response.compact_revision:
                    raise Compacted(f"revisions before {response.compact_revision} are compacted")
                if response.canceled:
                    raise EtcdError(f"etcd cancelled the watch: {response.cancel_reason}")
                if response.events or response.created:
                    yield [_event(event) for event in response.events]
                response = await call.read()
            self._channels.failed(channel)
            raise EtcdError("etcd ended the watch")
        except (grpc.RpcError, asyncio.InvalidStateError, TimeoutError) as error:
            self._channels.failed(channel)
            raise _error(error) from error
        finally:
            call.cancel()

    async def _call(self, method: _Method, request: Any) -> Any:
        channel = await self._channels.pick(self._timeout / 3)
        call = channel.unary_unary(*method)(request, timeout=self._timeout)
        try:
            return await call
        except grpc.RpcError as error:
            self._channels.failed(channel)
            raise _error(error) from error
        finally:
            call.cancel()


def _absent(key: str) -> Any:
    return pb.Compare(target=pb.Compare.CREATE, key=key.encode(), create_revision=0)


def _holds(key: str, value: bytes) -> Any:
    return pb.Compare(target=pb.Compare.VALUE, key=key.encode(), value=value)


def _event(event: Any) -> WatchEvent:
    value = None if event.type == pb.WATCH_DELETE else bytes(event.kv.value)
    return WatchEvent(event.kv.key.decode(), value, int(event.kv.mod_revision))


def _error(error: Exception) -> EtcdError:
    if isinstance(error, grpc.aio.AioRpcError):
        if error.code() == grpc.StatusCode.OUT_OF_RANGE and _COMPACTED in (error.details() or ""):
            return Compacted(error.details())
        if _NO_SPACE in (error.details() or ""):
            return NoSpaceError(f"{NO_SPACE}: free some as docs/backup.md says ({error.details()})")
        return EtcdError(f"{error.code().name}: {error.details()}")
    return EtcdError(f"etcd did not respond ({type(error).__name__})")
