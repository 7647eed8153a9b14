"""The models that can be asked: those that live workers serve and whose tokenizer is loaded.

Names of models are looked up here and nowhere else; no name is ever joined to a path.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from services.frontend.text.tokenizer import Tokenizer

MAX_NAMES = 1024
"""Names of models that were served once; the oldest goes."""
_RETRY_SECONDS = 1.0
_DECODES = (cluster_pb2.ROLE_DECODE, cluster_pb2.ROLE_COMBINED)


@dataclass(frozen=True, eq=False)
class Model:
    """A model as it can be asked now."""

    name: str
    tokenizer: Tokenizer
    cards: tuple[cluster_pb2.ModelCard, ...]
    """One per live layout, at least one; all name the tokenizer."""

    @cached_property
    def tokenizer_digest(self) -> bytes:
        """Only workers with this tokenizer understand its tokens."""
        return self.cards[0].tokenizer_digest

    @cached_property
    def context_tokens(self) -> int:
        """The longest prompt plus output that every live worker takes."""
        return min(card.context_tokens for card in self.cards)

    @cached_property
    def vocab_tokens(self) -> int:
        return min(card.vocab_tokens for card in self.cards)

    @cached_property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset(self.cards[0].eos_token_ids)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """What every live worker can do, sorted."""
        return tuple(sorted(set.intersection(*(set(card.features) for card in self.cards))))

    @cached_property
    def exact_continuation(self) -> bool:
        """Whether sampled outputs go on with the same tokens at any other live worker."""
        return not any(card.inexact_continuation for card in self.cards)

    @cached_property
    def created_seconds(self) -> int:
        return min(card.created_seconds for card in self.cards)


class Registry:
    """Models by name. A pure object: it is told what is served, and which tokenizers are loaded.

    A name may be served with two tokenizers while its workers are replaced. Each request then keeps
    to one: that of most workers that take work, and on a tie the one in use.
    """

    def __init__(self) -> None:
        self._cards: dict[str, dict[bytes, list[cluster_pb2.ModelCard]]] = {}
        """By name, then by digest of the tokenizer."""
        self._workers: dict[str, cluster_pb2.Instance] = {}
        """Those that decode and take work, by id."""
        self._tokenizers: dict[bytes, Tokenizer] = {}
        self._refused: dict[bytes, str] = {}
        """Tokenizers that cannot be used, with the reason."""
        self.opened = False
        """There has been a model that can be asked: clients are welcome."""
        self._models: dict[str, Model] = {}
        self._names: dict[str, None] = {}
        """Names that were served once."""

    def set_cards(self, cards: Iterable[cluster_pb2.ModelCard]) -> None:
        """Take over the cards of what is served now; forget tokenizers that none names."""
        self._cards = {}
        for card in cards:
            of_name = self._cards.setdefault(card.name, {})
            of_name.setdefault(card.tokenizer_digest, []).append(card)
            self._remember(card.name)
        wanted = self.wanted()
        self._tokenizers = {k: v for k, v in self._tokenizers.items() if k in wanted}
        self._refused = {k: v for k, v in self._refused.items() if k in wanted}
        known = self._models
        self._models = {}
        for name in self._cards:
            self._refresh(name, known.get(name))

    def follow(self, instance: cluster_pb2.Instance, *, alive: bool) -> None:
        """Take in that an instance came, changed or went."""
        if alive and instance.role in _DECODES and not instance.draining:
            self._workers[instance.id] = instance
        elif self._workers.pop(instance.id, None) is None:
            return
        self._refresh(instance.model, self._models.get(instance.model))

    def wanted(self) -> Mapping[bytes, int]:
        """Return the size of every tokenizer that a card names, by digest."""
        return {
            digest: cards[0].tokenizer_bytes
            for of_name in self._cards.values()
            for digest, cards in of_name.items()
            if digest
        }

    def missing(self) -> set[bytes]:
        """Return the digests that are wanted, and neither loaded nor refused."""
        return self.wanted().keys() - self._tokenizers.keys() - self._refused.keys()

    def add_tokenizer(self, digest: bytes, tokenizer: Tokenizer) -> None:
        """Use a tokenizer for the models that name it."""
        self._tokenizers[digest] = tokenizer
        for name, of_name in self._cards.items():
            if digest in of_name:
                self._refresh(name, self._models.get(name))

    def refuse_tokenizer(self, digest: bytes, reason: str) -> None:
        """Do without a tokenizer that is damaged, until no card names it any more."""
        self._refused[digest] = reason

    def get(self, name: str) -> Model:
        """Return the model of that name.

        Raises:
            BatonError: MODEL_NOT_FOUND; NO_WORKER where only its workers are missing; MODEL_LOADING
                while its tokenizer is; UNAVAILABLE where that cannot be used.
        """
        model = self._models.get(name)
        if model is not None:
            return model
        if name in self._cards:
            raise self._not_loaded(name)
        if name in self._names or not self._names:
            none = f"no worker serves the model {_shown(name)} now"
            raise BatonError(Reason.NO_WORKER, none, field="model", retry_after=_RETRY_SECONDS)
        raise BatonError(
            Reason.MODEL_NOT_FOUND,
            f"the model {_shown(name)} does not exist; /v1/models lists those that do",
            field="model",
        )

    def listed(self) -> list[Model]:
        """Return the models that are served now, by name."""
        return [self._models[name] for name in sorted(self._models)]

    def _refresh(self, name: str, known: Model | None) -> None:
        """Choose the tokenizer of a model anew; `known` is the model as it was."""
        of_name = self._cards.get(name, {})
        usable = [digest for digest in of_name if digest in self._tokenizers]
        if not usable:
            self._models.pop(name, None)
            return
        digest = usable[0]
        if len(usable) > 1:
            in_use = b"" if known is None else known.tokenizer_digest
            digests = [w.tokenizer_digest for w in self._workers.values() if w.model == name]
            digest = max(usable, key=lambda one: (digests.count(one), one == in_use, one))
        self._models[name] = Model(name, self._tokenizers[digest], tuple(of_name[digest]))
        self.opened = True

    def _not_loaded(self, name: str) -> BatonError:
        """Return why a model that is served cannot be asked."""
        of_name, shown = self._cards[name], _shown(name)
        if of_name.keys() <= {b"", *self._refused}:
            reasons = [self._refused.get(digest, "its workers have none") for digest in of_name]
            return BatonError(
                Reason.UNAVAILABLE,
                f"the tokenizer of the model {shown} cannot be used: {reasons[0]}",
                field="model",
            )
        return BatonError(
            Reason.MODEL_LOADING,
            f"the tokenizer of the model {shown} is being loaded",
            field="model",
            retry_after=_RETRY_SECONDS,
        )

    def _remember(self, name: str) -> None:
        if name not in self._names:
            if len(self._names) >= MAX_NAMES:
                del self._names[next(iter(self._names))]
            self._names[name] = None


def _shown(name: str) -> str:
    return repr(name if len(name) <= 200 else name[:200] + "…")
