"""The HTTP requests of a load, and their expected outputs."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

VARIETIES = 24
"""Number of different requests."""
OF_EACH = 2
"""A request and its substitute."""
WORDS = ("sun", "moon", "river", "stone", "cloud", "winter", "garden", "letter", "window")

Body = tuple[str, dict[str, Any]]
"""A path, and the body without `stream`."""
Answer = tuple[object, int]
"""The text, and the number of output tokens."""


class Bodies:
    """Requests of many kinds, sent repeatedly.

    A request rejected as poison stays rejected for ten minutes. Without a substitute, the effect of
    one fault would count as a failure of all later ones. `replace` puts a substitute of the same
    kind in its place.

    Args:
        model: its name.
        draw: chooses texts and lengths.
        draw_output_tokens: returns the length of a request's output.
        has_logprobs: whether the engine reports log probabilities.
    """

    def __init__(
        self,
        model: str,
        draw: random.Random,
        draw_output_tokens: Callable[[int], int],
        *,
        has_logprobs: bool,
    ) -> None:
        self._model = model
        self._draw = draw
        self._draw_output_tokens = draw_output_tokens
        self._has_logprobs = has_logprobs
        self._in_use = list(range(VARIETIES))
        self._bodies = [self._made(number) for number in range(VARIETIES * OF_EACH)]
        self._answers: list[Answer] = []
        self._refused: set[int] = set()

    async def learn(self, ask: Callable[[Body], Awaitable[Answer]], *, exact: bool) -> None:
        """Send each request twice to an undisturbed cluster, and record the expected output.

        Raises:
            SystemExit: the two outputs differ although they must be exact.
        """
        asked: list[list[Answer]] = []
        for _ in range(2):
            answers: list[Answer] = []
            for first in range(0, len(self._bodies), VARIETIES):
                part = self._bodies[first : first + VARIETIES]
                answers += await asyncio.gather(*map(ask, part))
            asked.append(answers)
        for number, (first_answer, answer) in enumerate(zip(*asked, strict=True)):
            if exact and first_answer != answer:
                body = self._bodies[number]
                raise SystemExit(f"request {number} is answered in two ways: {body}")
        self._answers = asked[1]

    def get(self, number: int) -> tuple[int, Body, Answer]:
        """Return the index of a request for `refused`, the request, and its expected output."""
        index = self._in_use[number % VARIETIES]
        return index, self._bodies[index], self._answers[index]

    def refused(self, index: int) -> None:
        """Record that a request was rejected as poison."""
        self._refused.add(index)

    def replace(self) -> int:
        """Replace the rejected requests; return how many were replaced.

        A request whose substitute was rejected as well stays, and fails until the rejection
        expires.
        """
        replaced = 0
        for number, index in enumerate(self._in_use):
            if index in self._refused and index + VARIETIES < len(self._bodies):
                self._in_use[number] = index + VARIETIES
                replaced += 1
        return replaced

    def _made(self, number: int) -> Body:
        text = " ".join(self._draw.choice(WORDS) for _ in range(self._draw.randint(20, 90)))
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": self._draw_output_tokens(number),
            "seed": number,
            "temperature": 0.0 if number % 3 == 0 else 1.0,
        }
        if number % 4 == 1:
            body["n"] = 2
        if number % 6 == 2:
            body["stop"] = ["the", "a ", "e"]
        if number % 4 == 3:
            return "/v1/completions", {**body, "prompt": text}
        if self._has_logprobs and number % 4 == 2:
            body |= {"logprobs": True, "top_logprobs": 2}
        return "/v1/chat/completions", {
            **body,
            "messages": [
                {"role": "system", "content": "You are brief."},
                {"role": "user", "content": text},
            ],
        }
