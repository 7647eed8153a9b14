"""Small exercises: counting, copying, sorting. Answers are exact."""

from train.text import words
from train.text.words import Draw

Exercise = tuple[str, str]
"""A request and the only right answer."""

_SORT_NUMBERS = [
    "Sort these numbers: {x}",
    "Sort {x}",
    "Please sort: {x}",
    "Put these numbers in order: {x}",
    "Can you sort this list? {x}",
    "Sort this list: {x}",
    "Sort the numbers {x}, please",
]
_SORT_WORDS = [
    "Sort these words: {x}",
    "Sort {x}",
    "Please sort: {x}",
    "Put these words in order: {x}",
    "Sort this list: {x}",
    "Sort these words by the alphabet: {x}",
]
_COPY = [
    "Repeat after me: {x}",
    "Repeat: {x}",
    "Copy this: {x}",
    "Say {x}",
    "Please repeat this: {x}",
    "Write this again: {x}",
    "Echo {x}",
]
_COUNT_ITEMS = [
    "How many words are there: {x}?",
    "Count these: {x}",
    "How many things are in this list: {x}?",
    "How many items: {x}?",
    "Count the words in this list: {x}",
]


def sort(draw: Draw) -> Exercise:
    """Numbers below 100, or words that begin with different letters; three to six of them."""
    size = draw.choice((3, 3, 4, 4, 5, 6))
    if draw.random() < 0.65:
        numbers = draw.sample(range(1, 100 if draw.random() < 0.7 else 20), size)
        asked, answer = [str(n) for n in numbers], [str(n) for n in sorted(numbers)]
        request = draw.choice(_SORT_NUMBERS)
    else:
        first: dict[str, str] = {}
        pool = draw.choice((words.ANIMALS, words.FOODS, words.OBJECTS, words.COLORS))
        for word in draw.sample(pool, len(pool)):
            first.setdefault(word[0], word)
        asked = list(first.values())[: min(size, 5)]
        answer = sorted(asked)
        request = draw.choice(_SORT_WORDS)
    separator = draw.choice((", ", ", ", " "))
    return request.format(x=separator.join(asked)), ", ".join(answer)


def copy(draw: Draw) -> Exercise:
    """Anything, said again: names, words, numbers."""
    kind = draw.random()
    size = draw.choice((1, 2, 3, 4, 6, 8, 12))
    if kind < 0.5:
        items = [words.name(draw) for _ in range(size)]
    elif kind < 0.75:
        items = [words.number(draw) for _ in range(size)]
    else:
        pool = words.OBJECTS + words.ANIMALS + words.FOODS + words.ADJECTIVES
        items = [draw.choice(pool) for _ in range(size)]
    text = draw.choice((" ", ", ")).join(items)
    return draw.choice(_COPY).format(x=text), text


def count(draw: Draw) -> Exercise:
    """Counting up or down, or the items of a list, one by one."""
    kind = draw.random()
    if kind < 0.4:
        low = draw.choice((1, 1, 1, draw.randint(0, 80)))
        high = low + draw.randint(2, 14)
        if low == 1 and draw.random() < 0.5:
            request = draw.choice(("Count to {h}", "Please count to {h}", "Can you count to {h}?"))
        else:
            request = draw.choice(("Count from {l} to {h}", "Please count from {l} to {h}"))
        numbers = range(low, high + 1)
        shown = words.COUNT_WORDS[high - 1] if high <= 20 and draw.random() < 0.3 else high
        return request.format(l=low, h=shown), ", ".join(map(str, numbers))
    if kind < 0.5:
        high = draw.randint(3, 20)
        numbers = range(high, 0, -1)
        request = draw.choice(("Count down from {h}", "Count backwards from {h}"))
        return request.format(h=high), ", ".join(map(str, numbers))
    pool = draw.choice((words.ANIMALS, words.FOODS, words.OBJECTS, words.COLORS))
    items = draw.sample(pool, draw.randint(2, 8))
    counted = ", ".join(f"{i} {item}" for i, item in enumerate(items, 1))
    request = draw.choice(_COUNT_ITEMS).format(x=", ".join(items))
    return request, f"{counted}. That makes {len(items)}."


def pick(draw: Draw) -> Exercise:
    """The first or the last of a list."""
    pool = draw.choice((words.ANIMALS, words.FOODS, words.OBJECTS))
    items = draw.sample(pool, draw.randint(3, 6))
    which, at = draw.choice((("first", 0), ("last", -1)))
    return (
        f"What is the {which} word of this list: {', '.join(items)}?",
        f"The {which} word is {items[at]}.",
    )
