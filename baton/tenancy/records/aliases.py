"""Aliases: names that an operator points at models, one cluster-wide record each."""

import re
from collections.abc import Iterable
from hashlib import sha256
from math import log

import msgspec

from baton.settings.values import MODEL_NAME
from baton.tenancy.records.auto import AUTO

MAX_TARGETS = 8
MAX_ALIASES = 1024
MAX_TARGET_WEIGHT = 10_000
_MODEL = re.compile(MODEL_NAME)
_BITS = 64


class AliasTarget(msgspec.Struct, frozen=True, gc=False):
    """A model or adapter that an alias means, for a part of the conversations."""

    model: str
    weight: int = 1
    """Its part of the conversations is this over the sum of all targets."""


class ModelAlias(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """A further name for models."""

    id: str
    """The name in requests."""
    targets: tuple[AliasTarget, ...] = ()
    """What it means; none: it was removed."""
    version: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the targets."""
        return tuple(target.model for target in self.targets)

    @property
    def main(self) -> str:
        """The target of most conversations; of equal ones, the first."""
        return max(self.targets, key=lambda target: target.weight).model

    def choose(self, conversation: bytes) -> str:
        """Return the target of a conversation: the same one as long as the targets are the same.

        With other weights, only as many conversations change their target as must (weighted
        rendezvous hashing: a target's score is -weight / ln(u), with u uniform in (0, 1)).

        Args:
            conversation: what all requests of one conversation have in common.
        """
        if len(self.targets) == 1:
            return self.targets[0].model

        def score(target: AliasTarget) -> float:
            digest = sha256(target.model.encode() + b"\0" + conversation).digest()
            uniform = (int.from_bytes(digest[: _BITS // 8], "big") + 0.5) / 2**_BITS
            return -target.weight / log(min(uniform, 1 - 2.0**-53))

        return max(self.targets, key=score).model


def check_alias(record: ModelAlias) -> None:
    """Check a record's values.

    Raises:
        ValueError: the first invalid field, and its allowed values.
    """
    _check_name("alias", record.id)
    if record.id == AUTO and record.targets:
        raise ValueError(
            f"alias: {AUTO} chooses a model per request: set its rules with `baton auto set`"
        )
    if len(record.targets) > MAX_TARGETS:
        raise ValueError(
            f"targets: {len(record.targets)} entries exceed the limit of {MAX_TARGETS}"
        )
    for target in record.targets:
        _check_name("targets", target.model)
        if target.model == AUTO:
            raise ValueError(f"targets: {AUTO} is no model, but chooses one: name a model")
        if target.model == record.id:
            raise ValueError(f"targets: {record.id} cannot be an alias of itself")
        if not 1 <= target.weight <= MAX_TARGET_WEIGHT:
            raise ValueError(
                f"targets: the weight {target.weight} of {target.model} is out of range: 1 to "
                f"{MAX_TARGET_WEIGHT}"
            )
    if len(set(record.names)) < len(record.targets):
        raise ValueError("targets: each model can be named once")


def check_with_others(record: ModelAlias, others: Iterable[ModelAlias]) -> None:
    """Check an alias against all others: no alias means an alias, which rules out circles.

    Raises:
        ValueError: the field and the other alias.
    """
    others = [one for one in others if one.targets and one.id != record.id]
    if record.targets and len(others) >= MAX_ALIASES:
        raise ValueError(f"alias: there are {len(others)} aliases: at most {MAX_ALIASES}")
    for other in others:
        if other.id in record.names:
            raise ValueError(
                f"targets: {other.id} is an alias itself, of {', '.join(other.names)}: name a model"
            )
        if record.targets and record.id in other.names:
            raise ValueError(f"alias: {record.id} is what the alias {other.id} means: use another")


def _check_name(field: str, name: str) -> None:
    if not _MODEL.fullmatch(name):
        raise ValueError(f"{field}: {name[:64]!r} is not the name of a model or adapter")
