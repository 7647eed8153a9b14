"""The rules of `auto`: which models a request for it may run as, by what it asks for."""

import re
from collections.abc import Iterator

import msgspec

from baton.settings.values import MODEL_NAME, TIERS
from baton.tenancy.records.classes import CLASSES

AUTO = "auto"
"""The name in requests, and the ID of the one record."""
MAX_RULES = 64
MAX_MODELS = 8
MAX_WORDS = 64
MAX_WAIT_SECONDS = 3600.0
LANGUAGES = (
    *("ar", "de", "el", "en", "es", "fr", "he", "hi", "it", "ja", "ko", "nl", "pt", "ru", "th"),
    *("und", "zh"),
)
"""What `baton.auto.languages` tells apart, as in BCP 47; `und`: none of them."""
_RANGES = ("prompt_tokens", "output_tokens", "questions")
_ANSWERS = ("code", "tools", "schema", "pictures")
_SETS = ("languages", "words", "and_words", "tiers", "classes", "labels")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_MODEL = re.compile(MODEL_NAME)
_WORD = re.compile(r"\w[\w '-]{0,63}")
MAX_NUMBER = 10**9


class AutoRule(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True, gc=False):
    """A rule: where all its conditions hold, the request runs as one of its models."""

    name: str
    models: tuple[str, ...]
    """In order of preference."""
    cheapest: bool = False
    """Whether a cheaper model of these comes first, by prices of this request."""
    min_prompt_tokens: int = 0
    """Estimated, as the tokenizer depends on the model: one per four bytes."""
    max_prompt_tokens: int = 0
    """0: any number, as for the next maxima."""
    min_output_tokens: int = 0
    """Of the request's `max_tokens`; a request without one has none."""
    max_output_tokens: int = 0
    min_questions: int = 0
    max_questions: int = 0
    code: bool | None = None
    """Whether the user's messages have code; None: either, as for the next three."""
    tools: bool | None = None
    schema: bool | None = None
    """Whether the output has to follow a schema, a grammar or be JSON."""
    pictures: bool | None = None
    languages: tuple[str, ...] = ()
    """Of LANGUAGES, that most of the user's messages is in; none: any."""
    words: tuple[str, ...] = ()
    """Words or phrases, of which the user's messages have one; none: any."""
    and_words: tuple[str, ...] = ()
    """As `words`, of which they have one, too."""
    tiers: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    """Priority classes."""
    labels: tuple[str, ...] = ()
    """Of the classifier; a request has none if there is no classifier, or it is late."""


class AutoRules(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """All rules, of which the first that matches decides."""

    id: str = AUTO
    models: tuple[str, ...] = ()
    """Where no rule matches; none: the rules were removed."""
    rules: tuple[AutoRule, ...] = ()
    max_wait_seconds: float = 0.0
    """A model whose predicted wait is longer comes after those where it is not; 0: waits do not
    matter."""
    version: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all models, each once."""
        listed = [*self.models, *(name for rule in self.rules for name in rule.models)]
        return tuple(dict.fromkeys(listed))


def check_auto(record: AutoRules) -> None:
    """Check the record's values.

    Raises:
        ValueError: the first invalid field, and its allowed values.
    """
    if record.id != AUTO:
        raise ValueError(f"id: must be {AUTO}")
    if not record.models:
        return
    _check_models("models", record.models)
    if not 0 <= record.max_wait_seconds <= MAX_WAIT_SECONDS:
        raise ValueError(f"max_wait_seconds: must be 0 to {MAX_WAIT_SECONDS:g}")
    if len(record.rules) > MAX_RULES:
        raise ValueError(f"rules: {len(record.rules)} rules exceed the limit of {MAX_RULES}")
    for number, rule in enumerate(record.rules):
        _check_rule(rule)
        for earlier in record.rules[:number]:
            if earlier.name == rule.name:
                raise ValueError(f"rules: the name {rule.name} can be used once")
            if _covers(earlier, rule):
                raise ValueError(
                    f"rules: {rule.name} can never match: {earlier.name} before it matches every "
                    "request that it would; swap them, or remove one"
                )


def _check_rule(rule: AutoRule) -> None:
    if not _NAME.fullmatch(rule.name):
        raise ValueError(
            f"rules: {rule.name[:64]!r} is not a name: lower-case letters, digits and hyphens"
        )
    of = f"of rule {rule.name}"
    _check_models(f"rules: models {of}", rule.models)
    for field in _RANGES:
        low, high = getattr(rule, f"min_{field}"), getattr(rule, f"max_{field}")
        if not (0 <= low <= MAX_NUMBER and 0 <= high <= MAX_NUMBER):
            raise ValueError(f"rules: min_{field} and max_{field} {of} must be 0 to {MAX_NUMBER}")
        if high and low > high:
            raise ValueError(
                f"rules: {rule.name} can never match: min_{field} {low} is over max_{field} {high}"
            )
    for field, known in (("languages", LANGUAGES), ("tiers", TIERS), ("classes", tuple(CLASSES))):
        for value in getattr(rule, field):
            if value not in known:
                raise ValueError(
                    f"rules: {field} {of}: {value[:64]!r} is not one of {', '.join(known)}"
                )
    for field in ("words", "and_words", "labels"):
        values = getattr(rule, field)
        if len(values) > MAX_WORDS:
            raise ValueError(f"rules: {field} {of}: at most {MAX_WORDS}")
        for value in values:
            if not _WORD.fullmatch(value):
                raise ValueError(
                    f"rules: {field} {of}: {value[:64]!r} is not a word or phrase of at most 64 "
                    "letters, digits, spaces, hyphens and apostrophes"
                )
    if not any(_conditions(rule)):
        raise ValueError(
            f"rules: {rule.name} has no condition, so that no rule after it can match: put its "
            "models into `models`, which are for all other requests"
        )


def _check_models(field: str, models: tuple[str, ...]) -> None:
    if not 1 <= len(models) <= MAX_MODELS:
        raise ValueError(f"{field}: {len(models)} models: must be 1 to {MAX_MODELS}")
    for name in models:
        if not _MODEL.fullmatch(name):
            raise ValueError(f"{field}: {name[:64]!r} is not the name of a model or adapter")
        if name == AUTO:
            raise ValueError(f"{field}: {AUTO} cannot mean itself: name a model")
    if len(set(models)) < len(models):
        raise ValueError(f"{field}: each model can be named once")


def _conditions(rule: AutoRule) -> Iterator[bool]:
    """Yield for each condition whether the rule has it."""
    for field in _RANGES:
        yield bool(getattr(rule, f"min_{field}") or getattr(rule, f"max_{field}"))
    for field in _ANSWERS:
        yield getattr(rule, field) is not None
    for field in _SETS:
        yield bool(getattr(rule, field))


def _covers(earlier: AutoRule, later: AutoRule) -> bool:
    """Return whether each condition of a rule holds where those of a later one do."""
    for field in _RANGES:
        low, high = f"min_{field}", f"max_{field}"
        if getattr(earlier, low) > getattr(later, low):
            return False
        most = getattr(earlier, high)
        if most and not 0 < getattr(later, high) <= most:
            return False
    for field in _ANSWERS:
        if getattr(earlier, field) not in (None, getattr(later, field)):
            return False
    for field in _SETS:
        wanted = set(getattr(earlier, field))
        if wanted and not (getattr(later, field) and wanted >= set(getattr(later, field))):
            return False
    return True
