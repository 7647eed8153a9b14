"""Whether an answer makes sense: one that the generator could have given, and to the point."""

import re
from collections.abc import Iterable

from train.first_messages import FIRST_MESSAGES
from train.text import beyond, conversation, intents, poems, stories

_SLOT = re.compile(r"\\\{\w+\\\}")
_SENTENCES = re.compile(r"(?<=[.!?\"]) (?=[A-Z\"{])")


def sensible(message: str, answer: str) -> bool:
    """Return whether an answer to one of FIRST_MESSAGES is whole, well formed, and suits it."""
    suits = dict(FIRST_MESSAGES)[message]
    return well_formed(answer) and re.search(suits, answer) is not None


def well_formed(answer: str) -> bool:
    """Return whether the generator could have given it: a reply, a poem, a list, or a story."""
    return bool(_WHOLE.fullmatch(answer)) or all(
        _SENTENCE.fullmatch(sentence) for sentence in _SENTENCES.split(answer)
    )


def _pattern(forms: Iterable[str]) -> re.Pattern[str]:
    """Return what matches any of these texts, with words in place of their slots."""
    patterns = {_SLOT.sub(r"[\\w ]{1,24}", re.escape(form)) for form in forms}
    return re.compile("|".join(f"(?:{one})" for one in patterns), re.IGNORECASE)


_REPLIES = [one for _, answers, *_ in intents.INTENTS for one in answers.split("|")]
_WHOLE = _pattern(
    [
        *_REPLIES,
        *beyond.KIND_WORDS,
        *conversation.NOTED,
        *(opening + form for opening in poems.OPENINGS for form in poems.FORMS),
    ]
)
_LISTED = re.compile(r"\d+(, \d+)*")
_STORY = (
    *stories.OPENINGS, *stories.MORNINGS, *stories.JOURNEYS, *stories.HELPERS, *stories.DEEDS,
    *stories.ENDINGS, *stories.FINDINGS.values(), *stories.AGAIN,
    *(goal for goal, _ in stories.GOALS), *(obstacle for obstacle, _ in stories.OBSTACLES),
)  # fmt: skip
_SENTENCE = re.compile(
    "|".join(
        f"(?:{one.pattern})"
        for one in (
            _LISTED,
            _pattern(part for text in _STORY for part in _SENTENCES.split(text.strip()) if part),
        )
    ),
    re.IGNORECASE,
)
