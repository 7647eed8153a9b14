"""A cluster as commands see it: its instances as listed in etcd, and their health."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from grpc_health.v1 import health_pb2, health_pb2_grpc

from baton.cli.shared.errors import CommandError
from baton.cluster.etcd import certificate as etcd_certificate
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.cluster.members.discovery import Discovery
from baton.cluster.members.membership import MembershipChange, health_address
from baton.errors import BatonError
from baton.internal.v1.cluster_pb2 import Instance, ModelCard, Role
from baton.rpc.channel.channel import Channel
from baton.rpc.channel.pool import ChannelPool
from baton.rpc.server.health import LIVENESS

HEALTH_SECONDS = 1.0
UNREACHABLE = "UNREACHABLE"
_POLL_SECONDS = 0.05


class ClusterView:
    """A cluster's instances, and whether they serve. One loop owns it."""

    def __init__(self, etcd: Etcd, discovery: Discovery, channels: ChannelPool) -> None:
        self._etcd = etcd
        self._discovery = discovery
        self._channels = channels

    @property
    def instances(self) -> Mapping[str, Instance]:
        """Instances alive now, by ID; a live view."""
        return self._discovery.instances

    def changes(self) -> AsyncGenerator[MembershipChange, None]:
        """Yield changes, beginning with the instances alive now; never ends."""
        return self._discovery.changes()

    def card(self, model: str) -> ModelCard | None:
        """Return the card of a model; if there are several, that with the shortest context."""
        return min(self.cards(model), key=lambda card: card.context_tokens, default=None)

    def cards(self, model: str) -> list[ModelCard]:
        """Return the cards of a model: one per layout and tokenizer of its workers."""
        return [card for (name, _), card in self._discovery.models.items() if name == model]

    @property
    def model_names(self) -> list[str]:
        """The models that are served now, sorted."""
        return sorted({name for name, _ in self._discovery.models})

    def is_kept(self, model: str) -> bool:
        """Return whether a model stays known without workers."""
        return model in self._discovery.kept

    @property
    def synced(self) -> bool:
        """Whether etcd responded at least once."""
        return self._discovery.synced

    async def alarms(self) -> Sequence[str]:
        """Return the alarms of etcd, as `Etcd.alarms`; none if it does not respond."""
        try:
            return await self._etcd.alarms()
        except EtcdError:
            return []

    def incarnation(self, instance_id: str) -> str:
        """Return the incarnation of the instance with this ID; empty if there is none."""
        instance = self.instances.get(instance_id)
        return instance.incarnation if instance is not None else ""

    async def wait_serving(self, ids: set[str], not_incarnation: str = "") -> None:
        """Wait until each of these is registered and its health is SERVING.

        Args:
            ids: instance ids; those that serve are removed.
            not_incarnation: an incarnation to ignore: that of a dead process.
        """
        while True:
            for identity in sorted(ids):
                instance = self.instances.get(identity)
                if instance is None or (instance.incarnation == not_incarnation != ""):
                    continue
                if await health(self._channels.get(health_address(instance))) == "SERVING":
                    ids.discard(identity)
            if not ids:
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def require_absent(self, ids: Iterable[str], cluster: str) -> None:
        """Check that none of these lives in the cluster already.

        Raises:
            CommandError: one does.
        """
        for identity in ids:
            instance = self.instances.get(identity)
            if instance is None:
                continue
            if await health(self._channels.get(health_address(instance)), LIVENESS) != UNREACHABLE:
                raise CommandError(
                    f"Cluster {cluster!r} already has instance {identity} at {instance.address}: "
                    "stop it, "
                    "or name another cluster with --cluster."
                )


@asynccontextmanager
async def watch_cluster(endpoints: Iterable[str], cluster: str) -> AsyncIterator[ClusterView]:
    """Watch a cluster; the view is empty until etcd responds."""
    etcd = Etcd(tuple(endpoints), certificate=etcd_certificate.current())
    async with etcd, Discovery(etcd, cluster) as discovery, ChannelPool() as channels:
        yield ClusterView(etcd, discovery, channels)


def role_name(role: Role.ValueType) -> str:
    """Return `frontend`, `decode`, …; the number of a role of a later release."""
    if role not in Role.values():
        return str(role)
    return Role.Name(role).removeprefix("ROLE_").lower()


async def health(channel: Channel, service: str = "") -> str:
    """Return `SERVING`, `NOT_SERVING`, or `UNREACHABLE` if there is no response within a second."""
    request = health_pb2.HealthCheckRequest(service=service)
    stub = channel.stub(health_pb2_grpc.HealthStub)
    try:
        response = await stub.Check(request, timeout=HEALTH_SECONDS)
    except BatonError:
        return UNREACHABLE
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))
