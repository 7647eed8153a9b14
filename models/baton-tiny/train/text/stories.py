"""Short stories: somebody somewhere wants something, meets an obstacle, and it ends well."""

from train.text import words
from train.text.words import Draw, a

OPENINGS = (
    "Once upon a time there was {a_hero} named {name} who lived in the {place}.",
    "There was once {a_hero} called {name}. The home of {name} was a {place} far away.",
    "In a {place} lived {a_hero}. Everybody called the {kind} {name}.",
    "Long ago, {a_hero} named {name} lived near the {place}.",
    "This is the story of {name}, {a_hero} from the {place}.",
)
MORNINGS = (
    "One {weather} morning, {name} woke up early.",
    "It was a {weather} day, and {name} was in a good mood.",
    "Every day {name} ate {food} for breakfast and looked out at the {place}.",
    "One day, {name} was eating {food} and thinking.",
    "The days were long, and {name} liked to walk alone.",
)
GOALS = (
    ("{name} wanted to find {a_thing}.", "find"),
    ("{name} had heard of {a_thing} and wanted to see it.", "see"),
    ("{name} had lost {a_thing} and wanted to have it back.", "lost"),
    ("{name} dreamed of giving {a_thing} to a good friend.", "give"),
    ("A friend had asked {name} to bring {a_thing} home.", "bring"),
)
JOURNEYS = (
    "So the {kind} walked to the {far}, step by step.",
    "So {name} packed some {food} and went to the {far}.",
    "The way led over a hill and down to the {far}.",
    "After a long walk, {name} came to the {far}.",
)
OBSTACLES = (
    ("But there was a wide river, and {name} could not swim.", "built a small boat"),
    ("But the night came, and it was very dark.", "lit a little lantern"),
    ("But a big stone lay on the path.", "pushed the stone away"),
    ("But a high wall stood in the way.", "climbed over the wall"),
    ("But it began to rain, and the path was full of mud.", "waited under a tree"),
    ("But the door was closed, and nobody had a key.", "knocked until it opened"),
    ("But the wind was so strong that {name} could hardly stand.", "held on to each other"),
    ("But {name} did not know which way to go.", "followed the stars"),
)
HELPERS = (
    'There {name} met {a_helper} named {friend}. "Can you help me?" asked {name}. "Of course," '
    "said {friend}.",
    '{A_helper} named {friend} came by. "Do not be sad," said {friend}. "We can do it together."',
    'Then {a_helper} called {friend} looked out from behind a tree. "I know what to do," said '
    "{friend}.",
)
DEEDS = (
    "Together, {name} and {friend} {deed}.",
    "{name} listened, and the two of them {deed}.",
    "It took a long time, but {name} and {friend} {deed}.",
)
FINDINGS = {
    "find": "And there it was: the {thing}, just behind the {far}.",
    "see": "At last {name} saw the {thing}, and it was even nicer than people had said.",
    "lost": "And under a leaf lay the {thing}, as good as new.",
    "give": "There they found the {thing}. {name} gave it to {friend}, who smiled.",
    "bring": "There was the {thing}, and {name} carried it home with care.",
}
ENDINGS = (
    "From that day on, {name} and {friend} were friends.",
    "That evening, they shared some {food} and laughed.",
    "{name} went home happy and slept well.",
    "And {name} learned that it is good to ask for help.",
    "And whenever it was {weather}, they told the story of the {thing} again.",
    "The {kind} was tired but very happy. The end.",
)
_REQUESTS = [
    "Tell me a story about {a_kind}",
    "Tell me a story about {a_kind}",
    "Write a story about {a_kind}",
    "Can you tell me a story about {a_kind}?",
    "I want to hear a story about {a_kind}",
    "A short story about {a_kind}, please",
    "Please tell me a short story about {a_kind}",
    "Make up a story about {a_kind}",
    "story about {a_kind}",
    "Do you know a story about {a_kind}?",
]
_NAMED = [
    "Tell me a story about {a_kind} named {name}",
    "Tell me a story about {a_kind} called {name}",
    "Write a story about {name}, {a_kind}",
]
_OPEN = [
    "Tell me a story",
    "Tell me a story, please",
    "Can you tell me a story?",
    "I want a story",
    "Write me a short story",
    "Another story, please",
    "Tell me something nice",
    "Tell a bedtime story",
]
AGAIN = ("Here is a story. ", "Of course! ", "With pleasure. ", "", "", "", "")


def story(draw: Draw, kind: str | None = None, hero: str | None = None) -> str:
    """A story of 90 to 200 words.

    Args:
        draw: where chance comes from.
        kind: what the hero is, such as `fox`.
        hero: the hero's name.
    """
    kind = kind or draw.choice(words.BEINGS)
    thing = f"{draw.choice(words.LOOKS)} {draw.choice(words.OBJECTS)}"
    helper = f"{draw.choice(words.ADJECTIVES)} {draw.choice(words.ANIMALS)}"
    place, far = draw.sample(words.PLACES, 2)
    goal, ending = draw.choice(GOALS)
    obstacle, deed = draw.choice(OBSTACLES)
    common = 0.8
    slots = {
        "kind": kind,
        "a_hero": a(f"{draw.choice(words.ADJECTIVES)} {kind}"),
        "name": hero or words.name(draw, common=common),
        "place": place,
        "far": far,
        "thing": thing,
        "a_thing": a(thing),
        "a_helper": a(helper),
        "A_helper": a(helper).capitalize(),
        "friend": words.name(draw, common=common),
        "deed": deed,
        "food": draw.choice(words.FOODS),
        "weather": draw.choice(words.WEATHER),
    }
    parts = [draw.choice(OPENINGS)]
    if draw.random() < 0.7:
        parts.append(draw.choice(MORNINGS))
    parts += [goal, draw.choice(JOURNEYS), obstacle, draw.choice(HELPERS), draw.choice(DEEDS)]
    parts += [FINDINGS[ending], *draw.sample(ENDINGS, draw.choice((1, 1, 2)))]
    return " ".join(parts).format(**slots)


def request(draw: Draw) -> tuple[str, str]:
    """What a user asks, and the story that answers it."""
    chance = draw.random()
    if chance < 0.2:
        return draw.choice(_OPEN), draw.choice(AGAIN) + story(draw)
    # Now and then a noun that nobody knows: the hero is copied out of the request.
    kind = draw.choice(words.BEINGS) if chance < 0.9 else words.name(draw).lower()
    if chance < 0.4:
        hero = words.name(draw)
        asked = draw.choice(_NAMED).format(a_kind=a(kind), name=hero)
        return asked, draw.choice(AGAIN) + story(draw, kind, hero)
    asked = draw.choice(_REQUESTS).format(a_kind=a(kind))
    return asked, draw.choice(AGAIN) + story(draw, kind)
