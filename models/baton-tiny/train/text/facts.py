"""Facts about made-up people and things, and questions whose answer is the fact said again.

An answer repeats the words of the fact up to its value: finding the same words earlier in the
context and copying what follows them is what small attention models learn best.
"""

from dataclasses import dataclass

from train.text import words
from train.text.words import Draw

# Around the value of an answer. Tokens between them weigh more in training; they are never shown.
MARKS = VALUE_START, VALUE_END = "\x01", "\x02"


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of a conversation."""

    statement: str
    question: str
    answer: str
    """With the value between VALUE_START and VALUE_END."""
    value: str


# (attribute, what its value is). Of a person: "The code of Zimo is 4711."
_ATTRIBUTES = (
    ("code", "number"), ("room", "number"), ("ticket", "number"), ("locker", "number"),
    ("number", "number"), ("badge", "number"), ("best friend", "name"), ("teacher", "name"),
    ("brother", "name"), ("sister", "name"), ("captain", "name"), ("doctor", "name"),
    ("home town", "name"), ("password", "name"), ("dog", "name"), ("cat", "name"),
    ("favorite color", "color"), ("favorite food", "food"), ("favorite animal", "animal"),
)  # fmt: skip
_VERBS = (
    ("{s} lives in {v}", "Where does {s} live?", "name"),
    ("{s} works in {v}", "Where does {s} work?", "name"),
    ("{s} was born in {v}", "Where was {s} born?", "name"),
    ("{s} is married to {v}", "Who is {s} married to?", "name"),
    ("{s} comes from {v}", "Where does {s} come from?", "name"),
    ("{s} has a {v} hat", "What color is the hat of {s}?", "color"),
    ("{s} has a pet called {v}", "What is the pet of {s} called?", "name"),
    ("{s} has {v} coins", "How many coins does {s} have?", "number"),
    ("{s} has {v} books", "How many books does {s} have?", "number"),
    ("{s} likes to eat {v}", "What does {s} like to eat?", "food"),
)
_THINGS = (
    ("the {s} costs {v} coins", "How much does the {s} cost?", "number"),
    ("the {s} belongs to {v}", "Who owns the {s}?|Who does the {s} belong to?", "name"),
    ("the {s} has the number {v}", "What number does the {s} have?", "number"),
    ("the {s} is in {v}", "Where is the {s}?", "name"),
)
_MINE = (
    ("My name is {v}|I am called {v} and my name is {v}|Hi, my name is {v}|Hello! My name is {v}",
     "What is my name?|Do you know my name?|What's my name?|Do you remember my name?|Who am I?",
     "Your name is {v}", "name"),
    ("My dog is called {v}", "What is my dog called?|What is the name of my dog?",
     "Your dog is called {v}", "name"),
    ("My cat is called {v}", "What is my cat called?|What is the name of my cat?",
     "Your cat is called {v}", "name"),
    ("My favorite color is {v}", "What is my favorite color?|Which color do I like best?",
     "Your favorite color is {v}", "color"),
    ("My favorite food is {v}", "What is my favorite food?", "Your favorite food is {v}", "food"),
    ("My lucky number is {v}", "What is my lucky number?", "Your lucky number is {v}", "number"),
    ("My code is {v}", "What is my code?", "Your code is {v}", "number"),
    ("I live in {v}", "Where do I live?", "You live in {v}", "name"),
    ("I come from {v}", "Where do I come from?", "You come from {v}", "name"),
    ("My best friend is {v}", "Who is my best friend?", "Your best friend is {v}", "name"),
    ("I have {v} books", "How many books do I have?", "You have {v} books", "number"),
    ("I am {v} years old", "How old am I?", "You are {v} years old", "age"),
)  # fmt: skip


class Facts:
    """Draws facts that do not contradict each other."""

    def __init__(self, draw: Draw, *, unseen: bool = False) -> None:
        """`unseen`: all names and numbers are of those kept from training."""
        self._draw = draw
        self._unseen = unseen
        self._keys: set[tuple[str, str]] = set()
        self._subjects: list[str] = []

    def about_others(self) -> Fact:
        """A fact about a person or a thing; persons come up again with other attributes."""
        draw = self._draw
        while True:
            chance = draw.random()
            if chance < 0.55:
                attribute, kind = draw.choice(_ATTRIBUTES)
                pattern = f"the {attribute} of {{s}} is {{v}}"
                word = "Who" if attribute in _PERSONS else "What"
                questions, subject = f"{word} is the {attribute} of {{s}}?", self._subject()
            elif chance < 0.8:
                pattern, questions, kind = draw.choice(_VERBS)
                subject = self._subject()
            else:
                pattern, questions, kind = draw.choice(_THINGS)
                subject = f"{draw.choice(words.COLORS)} {draw.choice(words.OBJECTS)}"
            if (pattern, subject) not in self._keys:
                break
        self._keys.add((pattern, subject))
        value = self._value(kind)
        said = pattern.format(s=subject, v=value)
        question = draw.choice(questions.split("|")).format(s=subject)
        marked = pattern.format(s=subject, v=VALUE_START + value + VALUE_END)
        # A name at the very start would be other tokens than after a space.
        answer = marked if pattern.startswith("the") else f"I know that {marked}"
        return Fact(_sentence(said), question, _sentence(answer), value)

    def about_user(self) -> Fact | None:
        """A fact about the user; None when there is nothing left to say."""
        draw = self._draw
        left = [row for row in _MINE if (row[2], "me") not in self._keys]
        if not left:
            return None
        row = left[0] if draw.random() < 0.3 else draw.choice(left)
        statements, questions, answer, kind = row
        self._keys.add((answer, "me"))
        value = self._value(kind)
        marked = answer.format(v=VALUE_START + value + VALUE_END)
        return Fact(
            draw.choice(statements.split("|")).format(v=value) + ".",
            draw.choice(questions.split("|")),
            _sentence(marked),
            value,
        )

    def unknown(self) -> tuple[str, str]:
        """A question about what was never said, and its answer."""
        draw = self._draw
        left = [row for row in _MINE if (row[2], "me") not in self._keys]
        if left and draw.random() < 0.5:
            _, questions, _, _ = draw.choice(left)
            asked = draw.choice(questions.split("|"))
            return asked, f"You did not tell me that. {_ASK_LATER}"
        while True:
            attribute, _ = draw.choice(_ATTRIBUTES)
            subject = words.name(draw, unseen=self._unseen)
            if (f"the {attribute} of {{s}} is {{v}}", subject) not in self._keys:
                break
        word = "Who" if attribute in _PERSONS else "What"
        self._keys.add((f"the {attribute} of {{s}} is {{v}}", subject))
        return (
            f"{word} is the {attribute} of {subject}?",
            f"You did not tell me the {attribute} of {subject}.",
        )

    def _subject(self) -> str:
        if self._subjects and self._draw.random() < 0.35:
            return self._draw.choice(self._subjects)
        self._subjects.append(words.name(self._draw, unseen=self._unseen))
        return self._subjects[-1]

    def _value(self, kind: str) -> str:
        draw = self._draw
        match kind:
            case "number":
                return words.number(draw, unseen=self._unseen)
            case "age":
                return str(draw.randint(5, 99))
            case "color":
                return draw.choice(words.COLORS)
            case "food":
                return draw.choice(words.FOODS)
            case "animal":
                return draw.choice(words.ANIMALS)
            case _:
                return words.name(draw, unseen=self._unseen)


_ASK_LATER = "Tell me, and ask me again later!"
_PERSONS = {"best friend", "teacher", "brother", "sister", "captain", "doctor"}


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
