"""Random requests of clients, by a seed. Pure."""

import random
from dataclasses import dataclass

MODEL = "baton-tiny"
CONTEXT_TOKENS = 4096
SHARES = {
    "answer": 60,
    "cancel": 16,
    "deadline": 3,
    "limit": 9,
    "unknown model": 3,
    "too long": 3,
    "invalid field": 4,
    "unknown key": 2,
}
"""Kinds of requests, in percent."""
REFUSED = ("unknown model", "too long", "invalid field", "unknown key")
"""Kinds that every frontend rejects."""
DEADLINE_SECONDS = 0.15
DEADLINE_TOKENS = 200
"""More than an engine generates before the deadline."""
_PREFIXES, _PREFIX_TOKENS = 6, 96


@dataclass(frozen=True)
class Ask:
    """One request of a client."""

    id: str
    kind: str
    """A kind in SHARES."""
    api: str
    """`grpc` or `http`."""
    key: int
    """Index of the key; requests of `limit` have a separate key."""
    chat: bool
    stream: bool
    """Whether to stream over HTTP; gRPC always streams."""
    prompts: tuple[tuple[int, ...], ...]
    """Token ids; more than one only of text completions over HTTP. Chat has `text`."""
    text: str
    n: int
    max_tokens: int
    ignore_eos: bool
    leaves_after: int | None
    """For `cancel`: number of events with tokens after which the client disconnects; None: any
    time."""
    leaves_seconds: float
    """Time of the disconnect if it does not depend on events."""
    model: str = MODEL

    @property
    def records(self) -> tuple[str, ...]:
        """Request ids of its records: each prompt has its own."""
        if len(self.prompts) == 1:
            return (self.id,)
        return tuple(f"{self.id}-{index}" for index in range(len(self.prompts)))


class Asks:
    """Creates requests.

    Args:
        draw: the seeded source of randomness.
        keys: number of keys.
    """

    def __init__(self, draw: random.Random, keys: int) -> None:
        self._draw = draw
        self._keys = keys
        self._prefixes = [self._tokens(_PREFIX_TOKENS) for _ in range(_PREFIXES)]

    def next(self, number: int) -> Ask:
        """Return the request with a number."""
        draw = self._draw
        (kind,) = draw.choices(tuple(SHARES), tuple(SHARES.values()))
        grpc = kind == "deadline" or draw.random() < 0.4
        chat, stream = draw.random() < 0.4, grpc or draw.random() < 0.6
        count = 1
        if not grpc and not chat and draw.random() < 0.4:
            count = draw.randint(2, 3)
        prompts = tuple(self._prompt() for _ in range(count))
        if kind == "too long":
            chat = False
            prompts = (self._tokens(CONTEXT_TOKENS + draw.randint(1, 200)),)
        max_tokens = draw.randint(1, 40)
        if kind == "invalid field":
            max_tokens = -draw.randint(1, 9)
        elif kind == "deadline":
            max_tokens = DEADLINE_TOKENS
        elif kind == "cancel":
            max_tokens += 10
        return Ask(
            id=f"ask{number:06}",
            kind=kind,
            api="grpc" if grpc else "http",
            key=draw.randrange(self._keys),
            chat=chat,
            stream=stream,
            prompts=prompts if not chat else ((),),
            text=" ".join(f"w{draw.randrange(50)}" for _ in range(draw.randint(2, 40))),
            n=draw.choice((1, 1, 1, 2)),
            max_tokens=max_tokens,
            ignore_eos=kind == "deadline" or draw.random() < 0.7,
            leaves_after=draw.randint(1, 20) if stream and draw.random() < 0.8 else None,
            leaves_seconds=draw.uniform(0, 0.2),
            model=f"no-such-{draw.randrange(9)}" if kind == "unknown model" else MODEL,
        )

    def _prompt(self) -> tuple[int, ...]:
        """Most prompts start as others do, so that some of their KV is cached."""
        draw = self._draw
        begin = draw.choice(self._prefixes) if draw.random() < 0.7 else ()
        return begin + self._tokens(draw.randint(1, 60))

    def _tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self._draw.randrange(3, 250) for _ in range(count))
