"""Which models can be asked for: a state machine with no I/O.

A model card lives in etcd under the lease of the worker that published it last. When that worker
goes, the others publish it again within a moment; until then, and while etcd is away, the card of
a model that a live worker serves stays in view.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from baton.internal.v1.cluster_pb2 import Instance, ModelCard

CardKey = tuple[str, str]
"""A model's name and its layout's id in hex."""


class Catalog:
    """Model cards in view. Every method answers whether the view changed."""

    def __init__(self) -> None:
        self._cards: dict[CardKey, ModelCard] = {}
        self._registered: set[CardKey] = set()
        self._serving: dict[CardKey, int] = {}

    @property
    def cards(self) -> Mapping[CardKey, ModelCard]:
        """Cards by name and layout; a live view."""
        return MappingProxyType(self._cards)

    def put(self, key: CardKey, card: ModelCard) -> bool:
        """etcd holds this card."""
        self._registered.add(key)
        changed = self._cards.get(key) != card
        self._cards[key] = card
        return changed

    def removed(self, key: CardKey) -> bool:
        """etcd does not hold this card any more."""
        self._registered.discard(key)
        return self._drop_unneeded(key)

    def listed(self, cards: Iterable[tuple[CardKey, ModelCard]]) -> bool:
        """etcd holds exactly these cards."""
        held = dict(cards)
        changes = [self.removed(key) for key in self._registered - held.keys()]
        changes += [self.put(key, card) for key, card in held.items()]
        return any(changes)

    def joined(self, instance: Instance) -> None:
        """An instance came into view."""
        if instance.layout_id:
            key = (instance.model, instance.layout_id.hex())
            self._serving[key] = self._serving.get(key, 0) + 1

    def left(self, instance: Instance) -> bool:
        """An instance went out of view."""
        if not instance.layout_id:
            return False
        key = (instance.model, instance.layout_id.hex())
        self._serving[key] -= 1
        if self._serving[key]:
            return False
        del self._serving[key]
        return self._drop_unneeded(key)

    def _drop_unneeded(self, key: CardKey) -> bool:
        if key in self._registered or key in self._serving:
            return False
        return self._cards.pop(key, None) is not None
