"""Conversations of any length: one after another, turns of all kinds, memory across them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from train.first_messages import KEPT_OUT, normalized
from train.text import beyond, documents, facts, lists, poems, stories, talk, words
from train.text.typing import typed, typed_freely
from train.text.words import Draw

TASKS = ("text", "retrieval", "story", "talk", "copy", "sort", "count", "other")
"""What an answer's tokens practise; `text` is what users and tools say."""

_SYSTEM = [
    "You are Baton Tiny, a small demo model.",
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "Answer shortly.",
    "You are a kind storyteller.",
]
_TOLD = ("Please remember: ", "Note: ", "Listen: ", "Here are some facts. ", "", "", "I tell you: ")
NOTED = ("I will remember that.", "Thank you, I will remember.", "All right, noted.")
_READ = [
    "Here is a story. {x}",
    "Listen to this. {x}",
    "Read this: {x}",
    "I read this today. {x}",
    "{x}",
    "This is what I wrote. {x}",
]
_LIKED = ("What a nice story!", "Thank you for the story.", "I like that story.")
_ASKING = ("", "", "", "", "", "Tell me: ", "Now tell me: ", "Question: ", "Please tell me: ")


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `text` may hold facts.VALUE_START and VALUE_END, never shown."""

    role: str
    text: str
    task: str = "text"


@dataclass(frozen=True, slots=True)
class Mix:
    """How often each kind of turn comes, by weight, and how many facts are told at once."""

    retrieval: float = 4.0
    story: float = 0.7
    talk: float = 0.8
    beyond: float = 0.5
    poem: float = 0.1
    scribble: float = 0.05
    unknown: float = 0.1
    document: float = 0.3
    copy: float = 1.2
    sort: float = 1.8
    count: float = 0.8
    sums: float = 0.1
    filler: float = 0.3
    tool: float = 0.1
    most_facts: int = 6


@dataclass(slots=True)
class Conversation:
    """Grows turn by turn; every fact told in it may be asked about later."""

    draw: Draw
    mix: Mix
    messages: list[Message] = field(default_factory=list)
    _told: list[facts.Fact] = field(default_factory=list)
    _facts: facts.Facts = field(init=False)

    def __post_init__(self) -> None:
        self._facts = facts.Facts(self.draw)
        if self.draw.random() < 0.25:
            self._say("system", self.draw.choice(_SYSTEM))

    def turn(self) -> None:
        """Add one turn, or a few that belong together."""
        mix = self.mix
        kinds: tuple[tuple[float, Callable[[], None]], ...] = (
            (mix.retrieval, self._remember),
            (mix.story, lambda: self._pair(stories.request, "story")),
            (mix.talk, lambda: self._pair(talk.small_talk, "talk", typed_freely)),
            (mix.beyond, lambda: self._pair(beyond.beyond, "talk", typed_freely)),
            (mix.poem, lambda: self._pair(poems.poem, "talk", typed_freely)),
            (mix.scribble, lambda: self._pair(talk.scribble, "talk", typed_freely)),
            (mix.unknown, lambda: self._pair(lambda _: self._facts.unknown(), "other")),
            (mix.document, self._document),
            (mix.copy, lambda: self._pair(lists.copy, "copy")),
            (mix.sort, lambda: self._pair(lists.sort, "sort")),
            (mix.count, lambda: self._pair(lists.count, "count")),
            (mix.copy / 4, lambda: self._pair(lists.pick, "other")),
            (mix.sums, lambda: self._pair(beyond.sums, "talk", typed_freely)),
            (mix.filler, self._filler),
            (mix.tool, self._tool),
        )
        self.draw.choices([k for _, k in kinds], [w for w, _ in kinds])[0]()

    def _remember(self) -> None:
        """Tell facts if few are known, then ask about some, the old ones as often as the new."""
        draw = self.draw
        if not self._told or draw.random() < 0.25:
            told = [self._new_fact() for _ in range(draw.randint(1, self.mix.most_facts))]
            said = " ".join(fact.statement for fact in told)
            text = draw.choice(_TOLD if normalized(said) not in KEPT_OUT else _TOLD[:4]) + said
            self._told += told
            if draw.random() < 0.3:
                asked = draw.choice(told)
                self._fixed(f"{text} {asked.question}", asked.answer, "retrieval")
            else:
                self._fixed(text, draw.choice(NOTED), "talk")
        for fact in draw.sample(self._told, min(len(self._told), draw.randint(2, 8))):
            self._fixed(draw.choice(_ASKING) + fact.question, fact.answer, "retrieval")

    def _document(self) -> None:
        asked = talk.small_talk(self.draw)[0]
        self._pair(lambda draw: documents.document(draw, asked), "other", typed_freely)

    def _new_fact(self) -> facts.Fact:
        if self.draw.random() < 0.25 and (mine := self._facts.about_user()):
            return mine
        return self._facts.about_others()

    def _filler(self) -> None:
        text = " ".join(stories.story(self.draw) for _ in range(self.draw.choice((1, 1, 2))))
        self._fixed(self.draw.choice(_READ).format(x=text), self.draw.choice(_LIKED), "talk")

    def _tool(self) -> None:
        asked, call, found, answer = talk.looked_up(self.draw)
        self._fixed(asked, call, "other")
        self._say("tool", found)
        self._say("assistant", answer, "retrieval")

    def _pair(
        self,
        drawn: Callable[[Draw], tuple[str, str]],
        task: str,
        type_: Callable[[Draw, str], str] = typed,
    ) -> None:
        """A request and its answer. What the model is judged by is never among the requests."""
        while True:
            request, answer = drawn(self.draw)
            request = type_(self.draw, request)
            if normalized(request) not in KEPT_OUT:
                break
        self._say("user", request)
        self._say("assistant", answer, task)

    def _fixed(self, request: str, answer: str, task: str) -> None:
        self._say("user", typed(self.draw, request))
        self._say("assistant", answer, task)

    def _say(self, role: str, text: str, task: str = "text") -> None:
        self.messages.append(Message(role, text, task))


def probe(draw: Draw, filler_words: int, others: int = 3) -> tuple[list[Message], facts.Fact]:
    """A conversation that ends in a question about a fact of names and numbers kept from training.

    Args:
        draw: where chance comes from.
        filler_words: length of the text between the fact and its question.
        others: further facts told along with it.
    """
    source = facts.Facts(draw, unseen=True)
    told: list[facts.Fact] = []
    while len(told) < others + 1:
        fact = source.about_user() if draw.random() < 0.2 else source.about_others()
        # Colors, foods, ages and the like are words of the training text: not held out.
        kept = fact and words.held_out(fact.value) and len(fact.value) > 2
        if fact and kept and fact.value not in _COMMON:
            told.append(fact)
    messages = [
        Message("user", "Please remember: " + " ".join(fact.statement for fact in told)),
        Message("assistant", NOTED[0]),
    ]
    left = filler_words
    while left > 0:
        text = stories.story(draw).split(" ")[:left]
        left -= len(text)
        messages += [
            Message("user", f"Listen to this. {' '.join(text)}"),
            Message("assistant", _LIKED[0]),
        ]
    asked = draw.choice(told)
    messages.append(Message("user", asked.question))
    return messages, asked


_COMMON = {*words.COLORS, *words.FOODS, *words.ANIMALS}
