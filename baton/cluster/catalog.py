"""Which models can be requested: a state machine with no I/O.

A model card lives in etcd under the lease of the worker that published it last. When that worker
leaves, the other workers republish it shortly after; until then, and during an etcd outage, the
card of a model that a live worker serves stays in the view.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from baton.cluster.keys import model_variant
from baton.internal.v1.cluster_pb2 import Instance, ModelCard

CardKey = tuple[str, str]
"""A model's name and the variant that workers serve (`keys.model_variant`)."""


class Catalog:
    """The model cards that one process knows. Every method returns whether the view changed."""

    def __init__(self) -> None:
        self._cards: dict[CardKey, ModelCard] = {}
        self._registered: set[CardKey] = set()
        self._serving: dict[CardKey, int] = {}

    @property
    def cards(self) -> Mapping[CardKey, ModelCard]:
        """Cards by name and variant; a live view."""
        return MappingProxyType(self._cards)

    def on_put(self, key: CardKey, card: ModelCard) -> bool:
        """Record that etcd holds this card."""
        self._registered.add(key)
        changed = self._cards.get(key) != card
        self._cards[key] = card
        return changed

    def on_delete(self, key: CardKey) -> bool:
        """Record that etcd no longer holds this card."""
        self._registered.discard(key)
        return self._drop_unneeded(key)

    def on_list(self, cards: Iterable[tuple[CardKey, ModelCard]]) -> bool:
        """Record that etcd holds exactly these cards."""
        held = dict(cards)
        changes = [self.on_delete(key) for key in self._registered - held.keys()]
        changes += [self.on_put(key, card) for key, card in held.items()]
        return any(changes)

    def on_instance_up(self, instance: Instance) -> None:
        """Keep the model of an instance that appeared in the view."""
        if instance.layout_id:
            key = (instance.model, model_variant(instance))
            self._serving[key] = self._serving.get(key, 0) + 1

    def on_instance_down(self, instance: Instance) -> bool:
        """Drop the model of an instance that left the view, unless another instance or etcd keeps
        it."""
        if not instance.layout_id:
            return False
        key = (instance.model, model_variant(instance))
        self._serving[key] -= 1
        if self._serving[key]:
            return False
        del self._serving[key]
        return self._drop_unneeded(key)

    def _drop_unneeded(self, key: CardKey) -> bool:
        if key in self._registered or key in self._serving:
            return False
        return self._cards.pop(key, None) is not None
