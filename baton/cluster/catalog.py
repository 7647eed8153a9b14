"""Which models can be requested: a state machine with no I/O.

A model card lives in etcd under the lease of the worker that published it last. When that worker
leaves, the other workers republish it shortly after; until then, and during an etcd outage, the
card of a model that a live worker serves stays in the view. Of a model without any card, the kept
cards are in view, if there are some.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from baton.cluster.keys import model_variant
from baton.internal.v1.cluster_pb2 import Instance, KeptModel, ModelCard

CardKey = tuple[str, str]
"""A model's name and the variant that workers serve (`keys.model_variant`)."""


class Catalog:
    """The model cards that one process knows. Every method returns whether the view changed."""

    def __init__(self) -> None:
        self._view: dict[CardKey, ModelCard] = {}
        self._cards: dict[CardKey, ModelCard] = {}
        self._registered: set[CardKey] = set()
        self._serving: dict[CardKey, int] = {}
        self._kept: dict[str, KeptModel] = {}

    @property
    def cards(self) -> Mapping[CardKey, ModelCard]:
        """Cards by name and variant; a live view."""
        return MappingProxyType(self._view)

    @property
    def kept(self) -> Mapping[str, KeptModel]:
        """Models that stay known without workers, by name; a live view."""
        return MappingProxyType(self._kept)

    def on_put(self, key: CardKey, card: ModelCard) -> bool:
        """Record that etcd holds this card."""
        self._registered.add(key)
        self._cards[key] = card
        return self._update()

    def on_delete(self, key: CardKey) -> bool:
        """Record that etcd no longer holds this card."""
        self._registered.discard(key)
        self._drop_unneeded(key)
        return self._update()

    def on_kept(self, name: str, kept: KeptModel | None) -> bool:
        """Record that etcd keeps a model, or no longer does (None)."""
        known = self._kept.get(name)
        if kept is None:
            self._kept.pop(name, None)
        else:
            self._kept[name] = kept
        return self._update() or (known is None) != (kept is None)

    def on_list(
        self,
        cards: Iterable[tuple[CardKey, ModelCard]],
        kept: Mapping[str, KeptModel] = MappingProxyType({}),
    ) -> bool:
        """Record that etcd holds exactly these cards, and keeps these models."""
        held = dict(cards)
        for key in self._registered - held.keys():
            self._registered.discard(key)
            self._drop_unneeded(key)
        self._registered |= held.keys()
        self._cards |= held
        changed = self._kept.keys() != kept.keys()
        self._kept.clear()
        self._kept |= kept
        return self._update() or changed

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
        self._drop_unneeded(key)
        return self._update()

    def _drop_unneeded(self, key: CardKey) -> None:
        if key not in self._registered and key not in self._serving:
            self._cards.pop(key, None)

    def _update(self) -> bool:
        """Bring the view up to date; return whether it changed."""
        there = {name for name, _ in self._cards}
        view = {
            (name, model_variant(card)): card
            for name, kept in self._kept.items()
            if name not in there
            for card in kept.cards
        }
        view |= self._cards
        if view == self._view:
            return False
        self._view.clear()
        self._view |= view
        return True
