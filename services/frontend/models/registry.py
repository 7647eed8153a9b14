"""The available models: those with live workers, or kept ones, and a loaded tokenizer.

Names of models are resolved only here; no name is ever joined to a path.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1 import cluster_pb2
from baton.on_demand.state import ModelTurn
from baton.tenancy.directory.principal import Principal
from baton.tenancy.records.aliases import ModelAlias
from baton.tenancy.records.auto import AUTO
from services.frontend.models.adapters import AdapterRecords
from services.frontend.models.aliases import Aliases
from services.frontend.models.auto import CurrentRules
from services.frontend.models.model import ProvidedBy, ResolvedModel, ServedModel
from services.frontend.models.providers import ProvidedModels
from services.frontend.text.tokenizer import Tokenizer

N = TypeVar("N")

MAX_NAMES = 1024
"""Most remembered names of models and adapters that were served once; the oldest is dropped."""
_LISTED_NAMES = 16
"""Most names of adapters in an error."""
_RETRY_SECONDS = 1.0
_DECODES = (cluster_pb2.ROLE_DECODE, cluster_pb2.ROLE_COMBINED)


class Registry:
    """Models by name. Pure: its callers report what is served, and which tokenizers are loaded.

    A name may be served with two tokenizers while its workers are replaced, and an adapter's name
    with two digests. Each request then uses one of them: that of most workers that accept work, and
    on a tie the one in use.
    """

    def __init__(
        self,
        usable: Callable[[cluster_pb2.Instance], bool],
        aliases: Aliases | None = None,
        provided: ProvidedModels | None = None,
        auto: CurrentRules | None = None,
        adapters: AdapterRecords | None = None,
    ) -> None:
        """Start without models.

        Args:
            usable: returns whether a worker can be sent work now.
            aliases: further names of models; None: there are none.
            provided: models of providers; None: there are none.
            auto: the rules of `auto`; None: there are none.
            adapters: registered adapters; None: there are none.
        """
        self._usable = usable
        self.aliases = aliases or Aliases()
        """Further names of models."""
        self.auto = auto or CurrentRules()
        """The rules of `auto`."""
        self._provided = ProvidedModels() if provided is None else provided
        self._registered = AdapterRecords() if adapters is None else adapters
        self._cards: dict[str, dict[bytes, list[cluster_pb2.ModelCard]]] = {}
        """Cards by name, then by digest of the tokenizer."""
        self._kept: frozenset[str] = frozenset()
        """Names of models that stay known without workers."""
        self.turns: Mapping[str, ModelTurn] = {}
        """States of the models whose workers start on demand, by name."""
        self._workers: dict[str, cluster_pb2.Instance] = {}
        """Workers that decode and accept work, by id."""
        self._tokenizers: dict[bytes, Tokenizer] = {}
        self._refused: dict[bytes, str] = {}
        """Tokenizers that cannot be used, with the reason."""
        self._models: dict[str, ServedModel] = {}
        self._listed: set[str] = set()
        """Names of models that were available since they appeared."""
        self._names: dict[str, None] = {}
        """Names of models that were served once."""
        self._adapter_names: dict[tuple[str, str], None] = {}
        """Adapters that were served once: names of model and adapter."""

    def set_cards(self, cards: Iterable[cluster_pb2.ModelCard], kept: Collection[str] = ()) -> None:
        """Replace the cards of served and kept models; drop tokenizers that none names.

        Args:
            cards: of all models.
            kept: names of the models that stay known without workers.
        """
        self._cards = {}
        self._kept = frozenset(kept)
        for card in cards:
            of_name = self._cards.setdefault(card.name, {})
            of_name.setdefault(card.tokenizer_digest, []).append(card)
            _remember(self._names, card.name)
        wanted = self.wanted()
        self._tokenizers = {k: v for k, v in self._tokenizers.items() if k in wanted}
        self._refused = {k: v for k, v in self._refused.items() if k in wanted}
        known = self._models
        self._models = {}
        for name in self._cards:
            self._refresh(name, known.get(name))
        self._listed &= self._models.keys()

    def set_turns(self, turns: Mapping[str, ModelTurn]) -> None:
        """Replace the states of the models whose workers start on demand."""
        self.turns = turns

    def follow(self, instance: cluster_pb2.Instance, *, alive: bool) -> None:
        """Apply that an instance joined, changed or left."""
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
        """Return the wanted digests that are neither loaded nor rejected."""
        return self.wanted().keys() - self._tokenizers.keys() - self._refused.keys()

    def add_tokenizer(self, digest: bytes, tokenizer: Tokenizer) -> None:
        """Use a tokenizer for the models that name it."""
        self._tokenizers[digest] = tokenizer
        for name, of_name in self._cards.items():
            if digest in of_name:
                self._refresh(name, self._models.get(name))

    def refuse_tokenizer(self, digest: bytes, reason: str) -> None:
        """Mark a damaged tokenizer unusable, until no card names it any more."""
        self._refused[digest] = reason

    def get(self, name: str, adapter: str = "") -> ResolvedModel:
        """Return the model of a name, with one of its adapters if one is named.

        Without `adapter`, a name that is not a model's may be an adapter's: it then means its model
        with the adapter.

        Raises:
            BatonError: MODEL_NOT_FOUND, for the field `model` or `adapter`; NO_WORKER if only
                workers are missing; MODEL_LOADING while the tokenizer is loading; UNAVAILABLE if it
                cannot be used; INVALID_FIELD if several models have an adapter of the name.
        """
        model = self._models.get(name) or self._of_provider(name)
        if model is None:
            return self._by_adapter(name, adapter)
        if not adapter:
            return ResolvedModel(model, "", b"")
        digest = model.adapters.get(adapter)
        if digest is not None:
            return ResolvedModel(model, adapter, digest)
        if self._has_adapter(name, adapter):
            raise _no_worker("adapter", adapter)
        listed = ", ".join(sorted(model.adapters)[:_LISTED_NAMES])
        raise BatonError(
            Reason.MODEL_NOT_FOUND,
            f"model {_shown(name)} has no adapter {_shown(adapter)}; "
            + (f"its adapters: {listed}" if listed else "it has no adapters"),
            field="adapter",
        )

    def alias(self, name: str) -> ModelAlias | None:
        """Return what a name means, if it is an alias; None: it is not, or a model has the name."""
        if name in self._cards or name in self._provided:
            return None
        return self.aliases.get(name)

    def is_auto(self, name: str) -> bool:
        """Return whether rules choose the model of a name: no model has the name `auto`."""
        return name == AUTO and name not in self._cards and name not in self._provided

    def auto_targets(self, who: Principal) -> list[ResolvedModel]:
        """Return the listed models that `auto` may choose for a caller; empty: no rules are set, or
        a model has that name."""
        rules = self.auto.rules if self.is_auto(AUTO) else None
        listed = {name for model in self.listed() for name in (model.name, *model.adapters)}
        names = () if rules is None else rules.record.names
        return [
            self.get(name) for name in names if name in listed and self.aliases.permitted(who, name)
        ]

    def expects(self, name: str) -> bool:
        """Return whether a request for a model, or adapter, could run now, or once a worker
        that is to be started has started."""
        return self.can_serve(name) or self.is_starting(name) or self._of_provider(name) is not None

    def can_serve(self, name: str) -> bool:
        """Return whether a request for a model, or adapter, of that name could run now.

        Its tokenizer is loaded, and a worker that decodes with it accepts work.
        """
        model, adapter = self._models.get(name), ""
        if model is None:
            owners = [one for one in self._models.values() if name in one.adapters]
            if not owners:
                return False
            model, adapter = owners[0], name
        return any(
            self._usable(worker)
            for worker in self._workers.values()
            if (worker.model, worker.tokenizer_digest) == (model.name, model.tokenizer_digest)
            and (not adapter or any(one.name == adapter for one in worker.adapters))
        )

    def is_starting(self, name: str) -> bool:
        """Return whether a model is kept and has no worker that decodes: one is to be started."""
        return name in self._kept and not any(
            worker.model == name for worker in self._workers.values()
        )

    def update_listed(self) -> None:
        """List the models that are available now or kept; they stay while a card names them."""
        for name in self._models.keys() - self._listed:
            if name in self._kept or self.can_serve(name):
                self._listed.add(name)

    def listed(self) -> list[ServedModel]:
        """Return the models that are served now or kept, and those of providers, by name."""
        found = {name: self._models[name] for name in self._listed}
        found |= {one.name: one for one in self._provided if one.name not in self._cards}
        return [found[name] for name in sorted(found)]

    def usable_aliases(self) -> list[ModelAlias]:
        """Return the aliases whose main target is listed, by name."""
        listed = {name for model in self.listed() for name in (model.name, *model.adapters)}
        found = sorted(self.aliases.all.items())
        return [one for name, one in found if one.main in listed and self.alias(name) is not None]

    def aliases_of(self, model: ServedModel) -> list[str]:
        """Return the aliases that mean a model or one of its adapters, at least at times."""
        names = (model.name, *model.adapters)
        found = {alias for name in names for alias in self.aliases.of(name)}
        return sorted(alias for alias in found if self.alias(alias) is not None)

    def missing_reason(self) -> str:
        """Return why no model is available, if none is listed."""
        if not self._cards:
            return "no model is registered in etcd, and there is no provider"
        if not self._models:
            return "; ".join(self._not_loaded(name).message for name in self._cards)
        return f"no decode worker of {', '.join(sorted(self._models))} is connected"

    def provided(self, name: str) -> ProvidedBy | None:
        """Return the provider of a model; None: it is of no provider."""
        found = self._of_provider(name)
        return None if found is None else found.provided

    def _of_provider(self, name: str) -> ServedModel | None:
        """Return a provider's model; one of the cluster's own of the name comes first."""
        return None if name in self._cards else self._provided.get(name)

    def _refresh(self, name: str, known: ServedModel | None) -> None:
        """Choose a model's tokenizer again; `known` is its previous state."""
        of_name = self._cards.get(name, {})
        usable = [digest for digest in of_name if digest in self._tokenizers]
        if not usable:
            self._models.pop(name, None)
            self._listed.discard(name)
            return
        digest = usable[0]
        if len(usable) > 1:
            in_use = b"" if known is None else known.tokenizer_digest
            digests = [w.tokenizer_digest for w in self._workers.values() if w.model == name]
            digest = max(usable, key=lambda one: (digests.count(one), one == in_use, one))
        served = (name, digest)
        workers = [w for w in self._workers.values() if (w.model, w.tokenizer_digest) == served]
        self._models[name] = ServedModel(
            name,
            self._tokenizers[digest],
            tuple(of_name[digest]),
            self._adapters(name, workers, {} if known is None else known.adapters),
            not any(worker.inexact_continuation for worker in workers),
        )

    def _adapters(
        self, name: str, workers: Iterable[cluster_pb2.Instance], in_use: Mapping[str, bytes]
    ) -> Mapping[str, bytes]:
        """Choose the digest of each adapter of a model's workers."""
        counts: dict[str, Counter[bytes]] = {}
        for worker in workers:
            for adapter in worker.adapters:
                counts.setdefault(adapter.name, Counter())[adapter.digest] += 1
        for adapter_name in counts:
            _remember(self._adapter_names, (name, adapter_name))
        return {
            adapter: max(found, key=lambda one: (found[one], one == in_use.get(adapter), one))
            for adapter, found in counts.items()
        }

    def _has_adapter(self, name: str, adapter: str) -> bool:
        """Return whether a model has an adapter, as far as known, also without workers for it."""
        base = self._registered.base(adapter)
        return (name, adapter) in self._adapter_names if base is None else base == name

    def _by_adapter(self, name: str, adapter: str) -> ResolvedModel:
        """Resolve a name that is not a served model's."""
        if name in self._cards:
            raise self._not_loaded(name)
        owners = [one for one in self._models.values() if name in one.adapters]
        if owners and not adapter:
            if len(owners) == 1:
                return ResolvedModel(owners[0], name, owners[0].adapters[name])
            models = ", ".join(sorted(one.name for one in owners))
            raise invalid_field(
                "model",
                f"{_shown(name)} is an adapter of several models, {models}: use gRPC and set both "
                "model "
                "and adapter, or ask the operator to rename one",
            )
        known = name in self._names or any(
            name == one and self._has_adapter(model, one) for model, one in self._adapter_names
        )
        known = known or bool(self._registered.base(name))
        if known or not (self._names or self._provided.known):
            raise _no_worker("model", name)
        raise BatonError(
            Reason.MODEL_NOT_FOUND,
            f"model {_shown(name)} does not exist; /v1/models lists the models",
            field="model",
        )

    def _not_loaded(self, name: str) -> BatonError:
        """Return why a model that is served is not available."""
        of_name, shown = self._cards[name], _shown(name)
        if of_name.keys() <= {b"", *self._refused}:
            reasons = [
                self._refused.get(digest, "its workers have no tokenizer") for digest in of_name
            ]
            return BatonError(
                Reason.UNAVAILABLE,
                f"the tokenizer of model {shown} cannot be used: {reasons[0]}",
                field="model",
            )
        return BatonError(
            Reason.MODEL_LOADING,
            f"the tokenizer of model {shown} is loading; retry later",
            field="model",
            retry_after=_RETRY_SECONDS,
        )


def _remember(names: dict[N, None], name: N) -> None:
    """Remember a name; beyond the limit the oldest is dropped."""
    if name not in names:
        if len(names) >= MAX_NAMES:
            del names[next(iter(names))]
        names[name] = None


def _no_worker(field: str, name: str) -> BatonError:
    none = f"no worker serves {field} {_shown(name)} now"
    return BatonError(Reason.NO_WORKER, none, field=field, retry_after=_RETRY_SECONDS)


def _shown(name: str) -> str:
    return repr(name if len(name) <= 200 else name[:200] + "…")
