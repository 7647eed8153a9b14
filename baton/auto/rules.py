"""Rules over features: the first rule that matches names the models. Pure."""

from collections.abc import Callable
from typing import NamedTuple

from baton.auto.features import RequestFeatures
from baton.tenancy.records.auto import AutoRule, AutoRules

Condition = Callable[[RequestFeatures], bool]


class AutoChoice(NamedTuple):
    """The models that a request may run as."""

    rule: str
    """Name of the rule that matched; empty: none did."""
    models: tuple[str, ...]
    """In order of preference."""
    max_wait: float = 0.0
    """Predicted seconds beyond which the next model is better; 0: waits do not matter."""


class CompiledRules:
    """A record's rules, ready to be asked; 64 rules take a few microseconds plus the features.

    Args:
        record: the rules, which are checked.
    """

    def __init__(self, record: AutoRules) -> None:
        self.record = record
        self._rules = [(rule, _conditions(rule)) for rule in record.rules]
        self.uses_labels = any(rule.labels for rule in record.rules)
        """Whether any rule asks what the classifier says."""

    def match(self, features: RequestFeatures) -> AutoRule | None:
        """Return the first rule whose conditions all hold; None: there is none."""
        for rule, conditions in self._rules:
            for condition in conditions:
                if not condition(features):
                    break
            else:
                return rule
        return None

    def choose(
        self,
        features: RequestFeatures,
        wait_of: Callable[[str], float] = lambda _: 0.0,
        cost_of: Callable[[str], int] = lambda _: 0,
    ) -> AutoChoice:
        """Return the models that a request may run as, best first.

        Args:
            features: the request.
            wait_of: returns the predicted seconds until a model has time for it.
            cost_of: returns its cost with a model, in nano-dollars.
        """
        rule = self.match(features)
        models = self.record.models if rule is None else rule.models
        most = self.record.max_wait_seconds
        cheapest = rule is not None and rule.cheapest
        if len(models) > 1 and (most or cheapest):

            def order(model: str) -> tuple[bool, int]:
                return bool(most) and wait_of(model) > most, cost_of(model) if cheapest else 0

            models = tuple(sorted(models, key=order))  # stable
        return AutoChoice("" if rule is None else rule.name, models, most)


def _conditions(rule: AutoRule) -> list[Condition]:
    """Return the conditions of a rule; those that do not read the text come first."""
    found: list[Condition] = []
    if rule.min_prompt_tokens or rule.max_prompt_tokens:
        least, most = rule.min_prompt_tokens, rule.max_prompt_tokens or float("inf")
        found.append(lambda it: least <= it.prompt_tokens <= most)
    if rule.min_output_tokens or rule.max_output_tokens:
        low, high = rule.min_output_tokens, rule.max_output_tokens or float("inf")
        found.append(lambda it: it.output_tokens > 0 and low <= it.output_tokens <= high)
    if (tools := rule.tools) is not None:
        found.append(lambda it: it.tools is tools)
    if (schema := rule.schema) is not None:
        found.append(lambda it: it.schema is schema)
    if (pictures := rule.pictures) is not None:
        found.append(lambda it: it.pictures is pictures)
    if tiers := frozenset(rule.tiers):
        found.append(lambda it: it.tier in tiers)
    if classes := frozenset(rule.classes):
        found.append(lambda it: it.priority_class in classes)
    if labels := frozenset(rule.labels):
        found.append(lambda it: it.label in labels)
    if rule.min_questions or rule.max_questions:
        fewest, top = rule.min_questions, rule.max_questions or float("inf")
        found.append(lambda it: fewest <= it.questions <= top)
    if languages := frozenset(rule.languages):
        found.append(lambda it: it.language in languages)
    found += [_has_words(words) for words in (rule.words, rule.and_words) if words]
    if (code := rule.code) is not None:
        found.append(lambda it: it.code is code)
    return found


def _has_words(words: tuple[str, ...]) -> Condition:
    normal = [" ".join(RequestFeatures((word,), 0).words) for word in words]
    single = frozenset(word for word in normal if " " not in word)
    phrases: dict[str, list[str]] = {}
    """By their first words, of which a request rarely has one."""
    for word in normal:
        if " " in word:
            phrases.setdefault(word.split()[0], []).append(f" {word} ")
    first = frozenset(phrases)

    def holds(it: RequestFeatures) -> bool:
        if not single.isdisjoint(it.word_set):
            return True
        begun = first & it.word_set
        return any(phrase in it.spaced_words for word in begun for phrase in phrases[word])

    return holds
