"""A model as seen by requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from baton.request.prices import Price
from baton.sampling import SamplingParams, needed_features
from baton.tenancy.records.providers import Provider, ProviderModel
from services.frontend.text.tokenizer import Tokenizer


class ProvidedBy(NamedTuple):
    """The provider that a model is of."""

    provider: Provider
    model: ProviderModel


class AutoModel(NamedTuple):
    """What `auto` is to a caller."""

    targets: "tuple[ResolvedModel, ...]"
    """The models that its rules may choose, at least one."""
    state: str
    """Of the target that could answer first."""
    request_tokens: int
    """The most tokens of the caller's requests for one of them."""

    @property
    def names(self) -> list[str]:
        """Names of the targets."""
        return [one.adapter or one.model.name for one in self.targets]

    @property
    def created_seconds(self) -> int:
        return max(one.model.created_seconds for one in self.targets)

    @property
    def context_tokens(self) -> int:
        return max(one.model.context_tokens for one in self.targets)


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model as currently available."""

    name: str
    own_tokenizer: Tokenizer | None
    """None: a provider's, which is unknown."""
    cards: tuple[cluster_pb2.ModelCard, ...]
    """One card per live layout, at least one; all name the same tokenizer."""
    adapters: Mapping[str, bytes] = field(default_factory=dict)
    """Digests of its available adapters, by name."""
    exact_continuation: bool = True
    """Whether any other worker continues a sampled output with the same tokens."""
    provided: ProvidedBy | None = None
    """None: the cluster's own workers serve it."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            BatonError: UNSUPPORTED_PARAMETER: it is a provider's.
        """
        if self.own_tokenizer is None:
            raise BatonError(
                Reason.UNSUPPORTED_PARAMETER,
                f"model: the tokenizer of {self.name!r} is its provider's, {self.owner}; use a "
                "model of this cluster",
                field="model",
            )
        return self.own_tokenizer

    @property
    def owner(self) -> str:
        """The provider; `baton`: none."""
        return "baton" if self.provided is None else self.provided.provider.id

    @cached_property
    def own_price(self) -> Price | None:
        """Its provider's price; None: there is none."""
        if self.provided is None or not self.provided.model.price:
            return None
        return Price.parse(self.provided.model.price)

    @cached_property
    def tokenizer_digest(self) -> bytes:
        """Digest of its tokenizer; workers with another one are not compatible."""
        return self.cards[0].tokenizer_digest

    @cached_property
    def weights(self) -> str:
        """Digest of the weights, hexadecimal; several, separated by commas, if workers differ."""
        return ",".join(sorted({card.weights_digest.hex() for card in self.cards}))

    @cached_property
    def context_tokens(self) -> int:
        """The most tokens of prompt plus output that every live worker accepts."""
        return min(card.context_tokens for card in self.cards)

    @cached_property
    def vocab_tokens(self) -> int:
        return min(card.vocab_tokens for card in self.cards)

    @cached_property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset(self.cards[0].eos_token_ids)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Features of all live workers, sorted."""
        return tuple(sorted(set.intersection(*(set(card.features) for card in self.cards))))

    @cached_property
    def pictures(self) -> cluster_pb2.PictureTokens | None:
        """What stands for a picture in a prompt; None: a live worker takes none."""
        first = self.cards[0].pictures
        equal = all(card.pictures == first for card in self.cards)
        return first if equal and first.tokens else None

    @cached_property
    def sampling_defaults(self) -> Mapping[str, Any]:
        """Default sampling parameters by name, as supported by every live worker."""
        card = self.cards[0].sampling_defaults
        params = SamplingParams.from_proto(card)
        needed = dict(needed_features(params))
        return {
            field.name: getattr(params, field.name)
            for field, _ in card.ListFields()
            if needed.get(field.name) in (None, *self.features)
        }

    @cached_property
    def engine(self) -> str:
        """The engine; several, separated by commas, if workers differ; empty: not reported."""
        return ",".join(sorted({card.engine for card in self.cards} - {""}))

    @cached_property
    def dtype(self) -> str:
        """The data type of its computation, in the format of `engine`."""
        return ",".join(sorted({card.dtype for card in self.cards} - {""}))

    @cached_property
    def inexact_reason(self) -> str:
        """Why another batch or worker may compute other tokens; empty: no reason is known."""
        for card in self.cards:
            if card.inexact_reason:
                return card.inexact_reason
        layouts = len({card.layout_id for card in self.cards})
        return f"its workers have {layouts} different engine layouts" if layouts > 1 else ""

    @cached_property
    def deterministic(self) -> bool | None:
        """Whether tokens do not depend on other work; None: not reported."""
        if self.inexact_reason:
            return False
        return True if all(card.engine for card in self.cards) else None

    @cached_property
    def created_seconds(self) -> int:
        return min(card.created_seconds for card in self.cards)


class ResolvedModel(NamedTuple):
    """The model and adapter that a request's names resolve to."""

    model: ServedModel
    adapter: str
    """The name of one of its adapters; empty: none."""
    adapter_digest: bytes
    """Empty without an adapter."""
