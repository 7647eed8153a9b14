"""The models that can be asked: those whose tokenizer is here and that a live worker serves.

Names of models are looked up here and nowhere else; no name is ever joined to a path.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from baton.settings import StartupError
from services.frontend.text.tokenizer import Tokenizer

_REQUIRED_FILES = ("config.json", "tokenizer.json")


@dataclass(frozen=True, eq=False)
class Model:
    """A model as it can be asked now."""

    name: str
    tokenizer: Tokenizer
    cards: tuple[cluster_pb2.ModelCard, ...]
    """One per live layout, at least one."""

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
    def created_seconds(self) -> int:
        return min(card.created_seconds for card in self.cards)


class Registry:
    """Models by name. A pure object: `refresh` tells it what is alive."""

    def __init__(self, tokenizers: Mapping[str, Tokenizer]) -> None:
        self._tokenizers = dict(tokenizers)
        self._models: dict[str, Model] = {}

    def refresh(self, cards: Iterable[cluster_pb2.ModelCard]) -> None:
        """Take over the cards of what is served now, one per model and layout."""
        by_name: dict[str, list[cluster_pb2.ModelCard]] = {}
        for card in cards:
            by_name.setdefault(card.name, []).append(card)
        self._models = {
            name: Model(name, self._tokenizers[name], tuple(group))
            for name, group in by_name.items()
            if name in self._tokenizers
        }

    def get(self, name: str) -> Model:
        """Return the model of that name.

        Raises:
            BatonError: MODEL_NOT_FOUND, or NO_WORKER where only its workers are missing.
        """
        model = self._models.get(name)
        if model is not None:
            return model
        if name in self._tokenizers:
            none = f"no worker serves the model {name!r} now"
            raise BatonError(Reason.NO_WORKER, none, field="model", retry_after=1.0)
        shown = name if len(name) <= 200 else name[:200] + "…"
        raise BatonError(
            Reason.MODEL_NOT_FOUND,
            f"the model {shown!r} does not exist; /v1/models lists those that do",
            field="model",
        )

    def listed(self) -> list[Model]:
        """Return the models that are served now, by name."""
        return [self._models[name] for name in sorted(self._models)]


def load_tokenizers(entries: Iterable[str]) -> dict[str, Tokenizer]:
    """Read the tokenizers of checkpoints given as `name=directory` or `directory`.

    Raises:
        StartupError: a directory is missing, misses a file, or a name is given twice.
    """
    loaded: dict[str, Tokenizer] = {}
    for entry in entries:
        name, _, path = entry.rpartition("=")
        directory = Path(path).expanduser()
        name = name or directory.resolve().name
        if name in loaded:
            raise StartupError(
                f"the model name {name!r} is given twice: say name=directory (BATON_MODELS)"
            )
        if not directory.is_dir():
            raise StartupError(
                f"the model directory {directory} does not exist: give the directory of a Hugging "
                "Face checkpoint (BATON_MODELS)"
            )
        for required in _REQUIRED_FILES:
            if not (directory / required).is_file():
                raise StartupError(
                    f"the model directory {directory} has no {required}: give the directory of a "
                    "complete Hugging Face checkpoint (BATON_MODELS)"
                )
        try:
            loaded[name] = Tokenizer.load(directory)
        except (OSError, ValueError) as error:
            raise StartupError(f"the model {name!r} cannot be used: {error}") from error
    return loaded
