"""Models of providers, from the providers' records in etcd."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from baton.internal.v1 import cluster_pb2
from baton.telemetry.logs import get_logger
from baton.tenancy.records.providers import Provider, ProviderModel
from baton.tenancy.records.tenants import parse
from services.frontend.models.model import ProvidedBy, ServedModel

INEXACT = "it runs at a provider"

log = get_logger(__name__)


class ProvidedModels:
    """A `baton.cluster.follow.Listener` of providers. Lives on the event loop.

    A change applies from the next request on; what runs keeps its upstream. What is not listed
    stays, so that an etcd that lost its data changes nothing.
    """

    def __init__(self) -> None:
        self._providers: dict[str, Provider] = {}
        self._models: dict[str, ServedModel] = {}
        self.known = False
        """Whether there have been models."""
        self._synced = asyncio.Event()
        self.on_change: Callable[[], None] = lambda: None
        """Called when providers were added, changed or removed."""

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(list(self._models.values()))

    @property
    def providers(self) -> Mapping[str, Provider]:
        """Providers by name; a live view."""
        return MappingProxyType(self._providers)

    def get(self, name: str) -> ServedModel | None:
        """Return a model; None: no provider has it."""
        return self._models.get(name)

    async def wait_synced(self) -> None:
        """Return once etcd was listed."""
        await self._synced.wait()

    def begin(self, revision: int) -> None:
        """Start a full list, as of an etcd revision."""

    def take(self, name: str, value: bytes) -> None:
        try:
            provider = parse(Provider, name, value)
        except ValueError as error:
            log.warning("tenancy.record.unreadable", name=name, error=str(error))
            return
        self._providers.pop(name, None)
        if provider.models:
            self._providers[name] = provider
        self._changed()

    def end(self) -> None:
        self._synced.set()
        self.on_change()

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is None:
            self._providers.pop(name, None)
            self._changed()
        else:
            self.take(name, value)
        self.on_change()

    def _changed(self) -> None:
        self._models = {
            model.name: _served(provider, model)
            for provider in sorted(self._providers.values(), key=lambda one: one.id, reverse=True)
            for model in provider.models
        }
        self.known = self.known or bool(self._models)


def _served(provider: Provider, model: ProviderModel) -> ServedModel:
    card = cluster_pb2.ModelCard(
        name=model.name,
        context_tokens=model.context_tokens,
        created_seconds=provider.created_seconds,
        inexact_reason=INEXACT,
    )
    return ServedModel(
        model.name,
        None,
        (card,),
        exact_continuation=False,
        provided=ProvidedBy(provider, model),
    )
