# ruff: noqa: SIM905 — words read better in one string than as literals.
"""Vocabulary: word lists, made-up names, numbers, and which of them training never sees."""

import random
from zlib import crc32

Draw = random.Random

PEOPLE = tuple(
    (
        "Ada Alba Alma Amir Anna Anton Arlo Asha Aya Bea Ben Bella Boris Bruno Cara Carl Clara "
        "Cora "
        "Dana Dario Diego Dora Edda Eli Ella Elsa Emil Emma Enzo Erik Eva Fay Felix Finn Flora "
        "Frida Gina Greta Hana Hanna Hugo Ida Igor Ines Iris Ivan Jack Jana Joel John Jonas Juno "
        "Kai Karl Kim Kira Lana Lars Lea Lena Leo Lila Lina Lisa Lola Luca Lucy Luis Luna Mara "
        "Marco Maria Mark Mary Max Maya Mia Mila Milo Mina Mira Nadia Nico Nina Noah Nora Olga Oma "
        "Oscar Otto Pablo Paul Paula Peter Pia Rafa Rita Robin Rosa Ruth Sam Sara Selma Sofia Sven "
        "Tara Theo Tina Tom Tove Uma Vera Viktor Vito Wanda Willa Yara Yusuf Zara Zoe "
    ).split()
)
ANIMALS = tuple(
    (
        "fox bear wolf hare rabbit mouse cat dog horse pony goat sheep lamb cow hen duck goose "
        "swan "
        "owl crow raven robin sparrow eagle hawk frog toad newt snail turtle lizard snake otter "
        "beaver badger hedgehog squirrel deer moose lion tiger elephant monkey panda penguin seal "
        "whale dolphin crab octopus spider bee ant beetle butterfly donkey pig camel parrot "
    ).split()
)
_FOLK = tuple(
    (
        "dragon robot wizard witch knight king queen prince princess pirate giant ghost girl boy "
        "baker farmer sailor teacher painter gardener doctor miller fisher singer dancer tailor "
        "shepherd clockmaker astronaut inventor detective child cook captain computer cloud tree "
        "star "
    ).split()
)
BEINGS = (*ANIMALS, *_FOLK)
PLACES = (
    "forest|village|valley|harbor|meadow|castle|garden|island|desert|mountain|river|lake|town|"
    "city|farm|cave|beach|market|mill|orchard|library|school|tower|lighthouse|old bridge|"
    "snowy hill|deep wood|quiet bay|green field|small house"
).split("|")
OBJECTS = tuple(
    (
        "lamp key box coin map book ring clock bell drum flute kite boat basket blanket bottle "
        "bowl "
        "brush bucket button candle chair crown cup door feather flag hammer hat jar ladder letter "
        "mirror needle painting pebble pencil pillow ribbon rope scarf seed shell shoe shovel "
        "spoon "
        "stone stool sword table teapot ticket umbrella vase violin wagon wheel whistle window "
    ).split()
)
FOODS = tuple(
    (
        "apple bread cheese honey soup cake pear plum cherry carrot corn grape lemon melon "
        "mushroom "
        "nut onion orange peach pie potato rice salad tea tomato banana berry cookie pancake "
        "pumpkin "
    ).split()
)
COLORS = tuple(
    (
        "red blue green yellow white black brown gray pink purple orange golden silver violet "
    ).split()
)
ADJECTIVES = tuple(
    (
        "small brave clever kind shy old young happy quiet curious gentle proud lazy quick strong "
        "tiny cheerful lonely patient wise hungry careful friendly sleepy stubborn polite bold "
        "honest "
    ).split()
)
LOOKS = tuple(
    (
        "shiny dusty broken round heavy light wooden warm cold lost secret magic soft bright old "
        "strange pretty plain rusty painted "
    ).split()
)
WEATHER = tuple(("sunny rainy cloudy windy snowy foggy stormy warm cold mild ").split())
TOPICS = (
    "love|the sea|autumn|winter|spring|summer|the moon|the sun|the stars|rain|snow|a friend|my "
    "mother|"
    "my dog|happiness|time|music|the night|the morning|a long road|home|nature|flowers|the wind|"
    "life|"
    "school|work|the city|a dream|birds|trees|the ocean|peace|hope|coffee|a train|football"
).split("|")
COUNT_WORDS = tuple(
    (
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen seventeen eighteen nineteen twenty "
    ).split()
)
_ONSETS = tuple(
    ("b br c ch cl d dr f fl g gr h j k kr l m n p pl qu r s sh sk sl st t tr v w y z th ").split()
)
_VOWELS = tuple(("a e i o u ai ea io ou ").split())
_CODAS = ("", "", "", "l", "n", "r", "s", "x", "m", "rn", "nd", "sk", "th", "ll")


def held_out(word: str) -> bool:
    """Whether a name or number is kept from training: one in five, by its checksum."""
    return crc32(word.encode()) % 5 == 0


def name(draw: Draw, *, unseen: bool = False, common: float = 0.25) -> str:
    """A name, often made up of two or three syllables, so that it is several tokens.

    Args:
        draw: where chance comes from.
        unseen: draw one of those kept from training.
        common: share of names that people really have; none of them with `unseen`.
    """
    while True:
        if not unseen and draw.random() < common:
            word = draw.choice(PEOPLE)
        else:
            syllables = draw.choice((2, 2, 2, 3, 3))
            word = "".join(draw.choice(_ONSETS) + draw.choice(_VOWELS) for _ in range(syllables))
            word = (word + draw.choice(_CODAS)).capitalize()
        if held_out(word) == unseen:
            return word


def number(draw: Draw, *, unseen: bool = False) -> str:
    """A number of two to five digits, mostly four."""
    while True:
        digits = draw.choice((2, 3, 4, 4, 4, 5)) if not unseen else draw.choice((3, 4, 4, 5))
        word = str(draw.randrange(10 ** (digits - 1), 10**digits))
        if held_out(word) == unseen:
            return word


def a(noun: str) -> str:
    """The noun with its indefinite article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def listing(items: list[str]) -> str:
    """`x, y and z`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
