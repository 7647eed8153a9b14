"""The language of a text, by its script or its most frequent words. Pure."""

import re
from collections import Counter
from collections.abc import Iterable

_SCRIPTS = (
    ("ja", "\u3040-\u30ff"),  # before Han, which Japanese has too
    ("ko", "\uac00-\ud7af\u1100-\u11ff"),
    ("zh", "\u4e00-\u9fff"),
    ("ru", "\u0400-\u04ff"),
    ("ar", "\u0600-\u06ff"),
    ("hi", "\u0900-\u097f"),
    ("el", "\u0370-\u03ff"),
    ("he", "\u0590-\u05ff"),
    ("th", "\u0e00-\u0e7f"),
)
"""Languages by the characters of their scripts: the most frequent language of each."""
_SCRIPT = tuple((name, re.compile(f"[{ranges}]")) for name, ranges in _SCRIPTS)
_FREQUENT = {
    "en": "the of and to in is that it for you with was are this what how my your can be from",
    "de": "der die und das ist nicht ein eine ich zu mit den von für auf wie was dem sich bitte",
    "fr": "le les des et est une que dans pour qui sur pas vous je ce avec du comment quelle mon",
    "es": "el los las y es una que en por para con del se qué cómo cuál mi lo como más está",
    "it": "il di che è un per con del della non sono gli come cosa mi nel alla questo quale",
    "pt": "o os as um uma que não para com do da em por como qual meu você é dos seu na",
    "nl": "de het een en van ik is dat niet op te zijn met voor hoe wat mijn aan er naar",
}
_WORDS: dict[str, tuple[str, ...]] = {}
for _language, _text in _FREQUENT.items():
    for _word in _text.split():
        _WORDS[_word] = (*_WORDS.get(_word, ()), _language)
_SAMPLE = 256
"""Characters that decide the script."""
_SHARE = 0.3
"""Of the sampled characters, that make a text one of their script: code and names are Latin."""


def language_of(text: str, words: Iterable[str]) -> str:
    """Return the language of a text, as in BCP 47; `und`: it is unknown.

    Args:
        text: the text.
        words: its words, in lower case.
    """
    sample = text[:_SAMPLE]
    if not sample.isascii():
        for name, pattern in _SCRIPT:
            if len(pattern.findall(sample)) > _SHARE * len(sample):
                return name
    votes = Counter(language for word in words for language in _WORDS.get(word, ()))
    if not votes:
        return "und"
    (first, most), *others = votes.most_common(2)
    return "und" if others and others[0][1] == most else first
