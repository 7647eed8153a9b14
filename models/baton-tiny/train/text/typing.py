# ruff: noqa: SIM905 — lists read better in one string than as literals.
"""As people type: without capitals or marks, politely, in a hurry, with a slip of a finger."""

from train.text.words import Draw

_BEFORE = (
    "please|hey|hi|hi,|hello,|ok,|ok so|so|so,|well,|um,|hey baton,|baton,|now|and|but|tell me,|"
    "say,|hello!|hi!|quick question:|one question:|i want to know:|just curious,|dear model,|"
    "right,|oh,"
).split("|")
_BEHIND = (
    "please|, please|pls|thanks|right now|today|now|this morning|tonight|my friend|friend|exactly|"
    "then|anyway|buddy|dude|man|bro|little model|baton|for me|again|actually|really|, do you know|"
    "or what|i wonder|, i mean|if i may ask|, thanks|ok|huh|for fun|quickly|in short|, can you|"
    "at the moment"
).split("|")
_CONTRACTED = (
    *(("I am", "I'm"), ("hat is", "hat's"), ("ow is", "ow's"), ("ho is", "ho's")),
    *(("here is", "here's"), ("ou are", "ou're"), ("o not", "on't"), ("annot", "an't")),
    *(("t is", "t's"), ("I will", "I'll")),
)
_SHORT = (
    *(("you are", "ur"), ("are you", "r u"), ("you", "u"), ("please", "pls")),
    *(("what is", "whats"), ("What is", "whats"), ("I am", "im"), ("do not", "dont")),
    *(("cannot", "cant"), (" to ", " 2 "), ("thanks", "thx"), ("What", "wat")),
    *(("because", "cuz"), ("I'm", "im"), ("hat's", "hats")),
)
_MARKS = "?.!"


def typed(draw: Draw, text: str) -> str:
    """Now and then without the last mark, or a request without a capital."""
    if draw.random() < 0.15:
        text = text.rstrip(_MARKS)
    if draw.random() < 0.1 and len(text) < 60:
        text = text[:1].lower() + text[1:]
    return text


def typed_freely(draw: Draw, text: str) -> str:
    """Small talk, of which every word may be wrong and the answer is still the same."""
    if draw.random() < 0.35:
        for word, short in _CONTRACTED:
            text = text.replace(word, short)
    if draw.random() < 0.12 and len(text) < 60:
        text = f"{draw.choice(_BEFORE)} {text[:1].lower()}{text[1:]}"
    if draw.random() < 0.12 and len(text) < 60:
        mark = text[-1:] if text[-1:] in _MARKS else ""
        behind = draw.choice(_BEHIND)
        text = f"{text.rstrip(_MARKS)}{'' if behind[0] == ',' else ' '}{behind}{mark}"
    if draw.random() < 0.06:
        for word, short in draw.sample(_SHORT, len(_SHORT)):
            if word in text:
                text = text.replace(word, short)
                break
    if draw.random() < 0.35:
        text = text.rstrip(_MARKS)
    elif draw.random() < 0.12:
        text = text.rstrip(_MARKS) + draw.choice(("!!", "??", "...", "!!!", " ?", " !", "?!", "."))
    chance = draw.random()
    if chance < 0.35:
        text = text.lower()
    elif chance < 0.38:
        text = text.upper()
    if draw.random() < 0.1:
        text = _slip(draw, text)
    return text


def _slip(draw: Draw, text: str) -> str:
    """A letter is missing, doubled, or has changed places with the next."""
    letters = [
        at for at in range(1, len(text) - 1) if text[at].isalpha() and text[at + 1].isalpha()
    ]
    if not letters:
        return text
    at = draw.choice(letters)
    match draw.randrange(3):
        case 0:
            return text[:at] + text[at + 1 :]
        case 1:
            return text[: at + 1] + text[at:]
        case _:
            return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
