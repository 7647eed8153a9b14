"""Small poems: four lines whose last words rhyme."""

from train.text import words
from train.text.words import Draw, a

FORMS = (
    "The {n} went out to see the day,\nand found {a_thing} on the way.\nIt took it home and put it "
    "down,\nthe nicest {thing} in all the town.",
    "A {adj} {n} sat by the sea\nand drank a cup of {c} tea.\nThe sun went down, the day was "
    "done,\n"
    "and all of it was so much fun.",
    "The sky is {c}, the night is deep,\nthe {adj} {n} has gone to sleep.\nIt dreams of {f} and "
    "of rain,\nand in the morning wakes again.",
    "I know a {n} who likes to sing,\nit sings about a golden ring.\nIt sings at night, it sings "
    "at noon,\nit sings its song up to the moon.",
)
_ASKED = (
    "Write a poem|Write me a poem|Write a short poem|Can you write a poem?|A poem, please|poem|"
    "I want a poem|Make up a poem|Do you know a poem?|Make a rhyme|Tell me a poem|Give me a poem|"
    "Write something that rhymes|Write a haiku|Can you rhyme?|Write some poetry|Write a verse"
)
_ABOUT = (
    "Write a poem about {x}|Write me a poem about {x}|A poem about {x}, please|poem about {x}|"
    "Can you write a poem about {x}?|Write a short poem about {x}|Make up a poem about {x}|"
    "I would like a poem about {x}|Give me a poem about {x}|Write a haiku about {x}"
)
OPENINGS = ("", "", "Here is a small poem:\n", "I will try:\n")


def poem(draw: Draw) -> tuple[str, str]:
    """What a user asks, and a poem; about what was asked for where it is an animal."""
    animal = draw.choice(words.ANIMALS)
    asked = draw.choice(_ASKED.split("|"))
    if draw.random() < 0.6:
        known = draw.random() < 0.6
        topic = a(animal) if draw.random() < 0.5 else f"{animal}s"
        asked = draw.choice(_ABOUT.split("|")).format(
            x=topic if known else draw.choice(words.TOPICS)
        )
    thing = draw.choice(words.OBJECTS)
    text = draw.choice(FORMS).format(
        n=animal,
        thing=thing,
        a_thing=a(thing),
        adj=draw.choice(tuple(word for word in words.ADJECTIVES if word[0] not in "aeiou")),
        c=draw.choice(words.COLORS),
        f=draw.choice(words.FOODS),
    )
    return asked, draw.choice(OPENINGS) + text
