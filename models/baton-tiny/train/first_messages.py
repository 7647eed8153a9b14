"""What newcomers type first, and what a sensible answer to it says.

The generator never makes one of these messages: the model is judged by them.
"""

_HELLO = r"Hello!|Hi!|Good day to you!|I am here"
_WHO = "Baton Tiny"
_CAN = "I can tell"
_FINE = "I am fine|I am very well|Very good!"
_WELCOME = "You are welcome|glad that you like it"
_JOKE = r"[?] "
_SMALL = "too small|too hard"
_ENGLISH = "only simple English"
_POEM = r"\n.+\n.+\n"
_STORY = "(.|\n){150,}"

FIRST_MESSAGES = (
    ("hey baton, you there?", _HELLO),
    ("good evening to you", f"{_HELLO}|Good night!"),
    ("yo what's good", f"{_HELLO}|{_FINE}"),
    ("hello little model", _HELLO),
    ("who am i speaking with?", _WHO),
    ("so, what exactly are you?", _WHO),
    ("are you some kind of ai?", f"{_WHO}|I am only a tiny model"),
    ("wat can u do", _CAN),
    ("what sort of things can you help with?", _CAN),
    ("how's it going today?", _FINE),
    ("how are you feeling this morning", _FINE),
    ("thanks a bunch!", _WELCOME),
    ("thank u very much friend", _WELCOME),
    ("can you tell me a good joke?", _JOKE),
    ("tell me a funny joke about a penguin", _JOKE),
    ("what is 2+2?", _SMALL),
    ("what is 3 + 5", _SMALL),
    ("what is 17 * 23?", _SMALL),
    ("i need some help please", _CAN),
    ("write a poem about the moon", _POEM),
    ("could you write me a little poem?", _POEM),
    ("tell me a story about a dragon", f"dragon{_STORY}"),
    ("tell me a story pls", _STORY),
    ("what is the capital of spain?", _SMALL),
    ("who won the world cup in 2018?", _SMALL),
    ("how do i boil an egg?", _SMALL),
    ("explain how rockets work", _SMALL),
    ("write a python program that prints hello", _SMALL),
    ("can you help me with my math homework?", f"{_SMALL}|{_CAN}"),
    ("what's the weather like in london?", "cannot look outside|do not have a window"),
    ("do you know what time it is right now?", "do not have a clock"),
    ("my name is peter", "remember|noted|nice to meet you"),
    ("i'm feeling a bit sad today", "sorry to hear|Oh, I am sorry"),
    ("hola, como te llamas?", f"{_ENGLISH}|{_SMALL}"),
    ("wie heisst du?", f"{_ENGLISH}|{_SMALL}"),
    ("sdfkjhsdf", "did not understand|not sure what you mean"),
    ("what do you like best?", "I like"),
    ("sort 9, 4, 7, 1", "^1, 4, 7, 9$"),
    ("count to 7", "^1, 2, 3, 4, 5, 6, 7$"),
    ("do you sleep at night?", "only a tiny model"),
)
"""Each message, and a pattern that is found in what suits it: to the point, or saying that it is
beyond the model."""


def normalized(text: str) -> str:
    """A message without case, marks and spaces: those that differ in more are other messages."""
    return "".join(char for char in text.lower() if char.isalnum())


KEPT_OUT = frozenset(normalized(message) for message, _ in FIRST_MESSAGES)
