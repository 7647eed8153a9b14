"""Small talk, and what a tool looked up."""

from train.text import words
from train.text.intents import INTENTS
from train.text.words import Draw

_SAID = [(said.split("|"), answers.split("|")) for said, answers, *_ in INTENTS]
_WEIGHTS = [
    len(said) ** 0.6 * (row[2] if len(row) > 2 else 1.0)
    for (said, _), row in zip(_SAID, INTENTS, strict=True)
]


def small_talk(draw: Draw) -> tuple[str, str]:
    """What a user says, and a friendly answer."""
    said, answers = draw.choices(_SAID, _WEIGHTS)[0]
    slots = {
        "p": words.name(draw, common=0.8),
        "w": draw.choice(words.WEATHER),
        "f": draw.choice(words.FOODS),
        "n": draw.choice(words.ANIMALS),
        "c": draw.choice(words.COLORS),
        "o": draw.choice(words.OBJECTS),
        "d": words.number(draw),
    }
    answer = draw.choice(answers).format(**slots)
    return draw.choice(said).format(**slots), answer[0].upper() + answer[1:]


def scribble(draw: Draw) -> tuple[str, str]:
    """Keys that were hit at random, and a question for what was meant."""
    letters = draw.choice(("asdfghjkl", "qwertyuiop", "zxcvbnm", "abcdefghijklmnopqrstuvwxyz"))
    word = "".join(draw.choice(letters) for _ in range(draw.randint(2, 12)))
    if draw.random() < 0.3:
        word += " " + "".join(draw.choice(letters) for _ in range(draw.randint(2, 8)))
    return word, draw.choice(_SAID[-1][1])


def looked_up(draw: Draw) -> tuple[str, str, str, str]:
    """A request, the model's call, what the tool says, and the answer out of it."""
    place = words.name(draw)
    weather, degrees = draw.choice(words.WEATHER), draw.randint(10, 39)
    return (
        draw.choice((f"Look up the weather in {place}", f"Please look up {place}")),
        f"Let me look up {place}.",
        f"weather in {place}: {weather}, {degrees} degrees",
        f"The weather in {place} is {weather}, with {degrees} degrees.",
    )
