"""Connections from commands to the stores of a cluster."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from baton.cli.shared.cluster_address import ClusterAddress
from baton.cli.shared.cluster_view import watch_cluster
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.options import StoreTarget
from baton.cli.shared.reach import certificate_hint
from baton.errors import BatonError
from baton.internal.v1 import cluster_pb2
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.rpc.channel.pool import ChannelPool
from baton.telemetry import logs

CALL_SECONDS = 10.0
PAGE = 5000


@dataclass(frozen=True)
class RemoteStore:
    """A store that the command calls."""

    address: str
    stub: Any

    async def call(self, method: str, request: Any) -> Any:
        """Call a method.

        Raises:
            CommandError: the store does not respond, or rejects the call.
        """
        try:
            return await getattr(self.stub, method)(request, timeout=CALL_SECONDS)
        except BatonError as error:
            if error.code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED):
                raise CommandError(
                    f"the store at {self.address} rejected the request: {error}."
                ) from error
            raise CommandError(
                f"the store at {self.address} is unreachable ({error}): check with `baton status` "
                f"whether it runs, or set another --store. {certificate_hint()}",
                EXIT_FAILED,
            ) from error

    async def objects(self, **fields: Any) -> AsyncIterator[pb.ObjectInfo]:
        """Yield every object that matches a ListRequest with these fields."""
        page = b""
        while True:
            response = await self.call("List", pb.ListRequest(limit=PAGE, page=page, **fields))
            for info in response.objects:
                yield info
            page = response.next_page
            if not page:
                return


T = TypeVar("T")


def run(target: StoreTarget, act: Callable[[Sequence[RemoteStore]], Awaitable[T]]) -> T:
    """Run a function on the selected stores, and return its result.

    Raises:
        CommandError: there is no such store, or it does not respond.
    """
    logs.configure("kv", "kv", level="error")

    async def connect_and_act() -> T:
        addresses = [target.address] if target.cluster is None else await _addresses(target.cluster)
        async with ChannelPool() as channels:
            stubs = [(a, channels.get(a).stub(KvStoreServiceStub)) for a in addresses]
            return await act([RemoteStore(*one) for one in stubs])

    return asyncio.run(connect_and_act())


async def _addresses(cluster: ClusterAddress) -> list[str]:
    async with watch_cluster(cluster.endpoints, cluster.name) as view:
        if not view.synced:
            raise CommandError(
                f"etcd is unreachable at {', '.join(cluster.endpoints)}: start a cluster with "
                f"`baton up`, or set --store host:port. {certificate_hint()}",
                EXIT_FAILED,
            )
        members = sorted(view.instances.values(), key=lambda member: member.id)
    addresses = [m.address for m in members if m.role == cluster_pb2.ROLE_KVSTORE]
    if not addresses:
        raise CommandError(
            f"cluster {cluster.name!r} has no store: start one with `baton up`, or set "
            "--store host:port.",
            EXIT_FAILED,
        )
    return addresses
