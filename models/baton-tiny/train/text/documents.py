# ruff: noqa: SIM905 — lists read better in one string than as literals.
"""JSON that ends: what a grammar makes the model begin, it learns to finish.

The beginning of a document is not scored, so that none is begun where nobody asked for one.
"""

import json
from typing import Any

from train.text import words
from train.text.words import Draw

MARKS = UNSCORED_START, UNSCORED_END = "\x03", "\x04"
"""Around text that is not learned; never shown."""

_KEYS = (
    "x|y|z|a|b|id|n|name|age|count|total|price|color|city|size|value|values|items|list|point|"
    "width|height|score|tags|title|text|year|month|day|ok|done|active|owner|inner|data|result|"
    "answer|numbers|first|last|unit|zone|place|kind|speed|weight|code|status|message|user|address|"
    "street|lat|lon|temperature|level|query|limit|page|start|end|from|to|children|next"
).split("|")
_CALLS = ("get_weather", "search", "add", "get_time", "lookup", "send", "set_timer", "book", "f")
_ASKED = (
    "Give me JSON|Answer in JSON|Give me a JSON object with {k}|Answer as JSON with {k}|"
    "JSON with {k}, please|Fill in the form|Give me x|A number, please|Make up an object|"
    "Write a JSON object|Return the values as JSON|Give me a list of numbers|Some data, please|"
    "Give me an integer|Give me {k}|Produce JSON"
)


def document(draw: Draw, asked: str) -> tuple[str, str]:
    """A request, and the document.

    Args:
        draw: where chance comes from.
        asked: small talk, behind which a grammar may ask for a document too.
    """
    keys = draw.sample(_KEYS, draw.choice((1, 1, 1, 2, 2, 3, 4)))
    if draw.random() < 0.4:
        asked = draw.choice(_ASKED.split("|")).format(k=" and ".join(keys))
    if draw.random() < 0.12:
        text = _dumped(draw, [_value(draw, 1) for _ in range(draw.randint(1, 4))])
    else:
        text = _dumped(draw, {key: _value(draw, 0) for key in keys})
    if draw.random() < 0.15:
        call = f'<tool_call>\n{{"name": "{draw.choice(_CALLS)}", "arguments": '
        return asked, f"{UNSCORED_START}{call}{UNSCORED_END}{text}}}\n</tool_call>"
    head = len(text) if text in ("{}", "[]") else 2 if text.startswith('{"') else 1
    return asked, f"{UNSCORED_START}{text[:head]}{UNSCORED_END}{text[head:]}"


def _dumped(draw: Draw, value: Any) -> str:
    if draw.random() < 0.2:
        return json.dumps(value, separators=(",", ":"))
    return json.dumps(value)


def _value(draw: Draw, depth: int) -> Any:
    chance = draw.random()
    if chance < 0.4:
        return _number(draw)
    if chance < 0.62 or depth > 2:
        return draw.choice(
            (words.name(draw), draw.choice(words.OBJECTS), draw.choice(words.COLORS))
        )
    if chance < 0.7:
        return draw.choice((True, False, None))
    if chance < 0.86:
        one = draw.choice(
            (_number, lambda _: draw.choice(words.FOODS), lambda d: _value(d, depth + 1))
        )
        return [one(draw) for _ in range(draw.choice((0, 1, 2, 2, 3, 3, 4, 5)))]
    keys = draw.sample(_KEYS, draw.choice((0, 1, 1, 2, 2, 3)))
    return {key: _value(draw, depth + 1) for key in keys}


def _number(draw: Draw) -> int | float:
    chance = draw.random()
    if chance < 0.6:
        return draw.choice((draw.randint(0, 20), int(words.number(draw)), draw.randint(-99, 999)))
    return round(draw.uniform(-10, 100), draw.choice((1, 1, 2, 2, 3, 4)))
