"""A process that only registers and answers health, for the cluster tests."""

from baton.cluster.etcd.client import Etcd
from baton.cluster.members.registration import Registration
from baton.internal.v1.cluster_pb2 import ROLE_ROUTER, Instance
from baton.process.lifecycle import Process, main
from baton.rpc.server.server import Server
from baton.settings import RouterSettings


async def compose(process: Process, settings: RouterSettings) -> None:
    enter = process.stack.enter_async_context
    server = await enter(Server(settings.grpc, process.name, incarnation=process.incarnation))
    await server.start()
    etcd = await enter(Etcd(settings.etcd.endpoints))
    instance = Instance(
        id=process.instance_id,
        incarnation=process.incarnation,
        role=ROLE_ROUTER,
        address=server.address,
    )
    registration = await enter(
        Registration(etcd, settings.etcd.cluster, instance, settings=settings.etcd)
    )

    async def drain() -> None:
        await registration.update(draining=True)

    process.on_drain(drain)
    process.readiness.follow(server.set_ready)


if __name__ == "__main__":
    main(RouterSettings, compose, "router")
