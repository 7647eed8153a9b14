"""How commands reach the stores of a cluster."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from baton.cli.errors import EXIT_FAILED, CommandError
from baton.cli.local.view import watching
from baton.internal.v1 import cluster_pb2
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.rpc.channels import ChannelPool
from baton.telemetry import logs

ASK_SECONDS = 10.0
PAGE = 5000


@dataclass(frozen=True)
class Where:
    """Which stores are meant: that at `address`, or all of a cluster."""

    address: str
    endpoints: tuple[str, ...]
    cluster: str


@dataclass(frozen=True)
class Store:
    address: str
    stub: Any

    async def ask(self, method: str, request: Any) -> Any:
        """Call a method.

        Raises:
            CommandError: the store does not answer, or refuses.
        """
        call = getattr(self.stub, method)(request, timeout=ASK_SECONDS)
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise CommandError(
                    f"the store at {self.address} refuses: {error.details()}."
                ) from (error)
            raise CommandError(
                f"the store at {self.address} does not answer ({error.details()}): look with "
                "`baton status` whether it runs, or name another with --store.",
                EXIT_FAILED,
            ) from error
        finally:
            call.cancel()

    async def objects(self, **fields: Any) -> AsyncIterator[pb.ObjectInfo]:
        """Every object that a ListRequest with these fields names."""
        page = b""
        while True:
            answer = await self.ask("List", pb.ListRequest(limit=PAGE, page=page, **fields))
            for info in answer.objects:
                yield info
            page = answer.next_page
            if not page:
                return


T = TypeVar("T")


def run(where: Where, act: Callable[[Sequence[Store]], Awaitable[T]]) -> T:
    """Do something with the stores that are meant.

    Raises:
        CommandError: there is none, or it does not answer.
    """
    logs.configure("kv", "kv", level="error")

    async def go() -> T:
        async with _stores(where) as stores:
            return await act(stores)

    return asyncio.run(go())


@asynccontextmanager
async def _stores(where: Where) -> AsyncIterator[Sequence[Store]]:
    async with ChannelPool() as channels:
        addresses = [_checked(where.address)] if where.address else await _addresses(where)
        if not addresses:
            raise CommandError(
                f"cluster {where.cluster!r} has no store: start one with `baton up`, or name one "
                "with --store host:port.",
                EXIT_FAILED,
            )
        yield [Store(a, KvStoreServiceStub(channels.get(a))) for a in addresses]


def _checked(address: str) -> str:
    """As it is: gRPC would take a port that is none for another one."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise CommandError(
            f"--store {address!r} is not host:port with a port of 1 to 65535: `baton status` "
            "lists the stores' addresses."
        )
    return address


async def _addresses(where: Where) -> list[str]:
    async with watching(where.endpoints, where.cluster) as view:
        if not view.synced:
            raise CommandError(
                f"etcd does not answer at {', '.join(where.endpoints)}: start a cluster with "
                "`baton up`, or name a store with --store host:port.",
                EXIT_FAILED,
            )
        members = sorted(view.instances.values(), key=lambda member: member.id)
        return [m.address for m in members if m.role == cluster_pb2.ROLE_KVSTORE]
