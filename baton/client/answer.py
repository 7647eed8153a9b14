"""A whole answer, as it stands when a stream has ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from baton.stream_events import (
    ChoiceFinished,
    Delta,
    Finished,
    FinishReason,
    Started,
    Step,
    TokenLogprob,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """One output."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    reason: FinishReason
    stop_string: str


@dataclass(frozen=True, slots=True)
class Answer:
    """All outputs of a request, by choice."""

    request_id: str
    model: str
    seed: int
    choices: tuple[Choice, ...]
    usage: Usage
    steps: tuple[Step, ...]
    exact_continuation: bool = True
    """Whether it would have gone on with the same tokens at another worker."""
    adapter: str = ""
    """The adapter that answered; empty: the model itself."""

    @property
    def text(self) -> str:
        """Text of the first choice."""
        return self.choices[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Tokens of the first choice."""
        return self.choices[0].token_ids


@dataclass(slots=True)
class Output:
    """One choice while it grows."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    end: ChoiceFinished | None = None

    def add(self, delta: Delta) -> None:
        self.texts.append(delta.text)
        self.token_ids += delta.token_ids
        if delta.logprobs:
            self.logprobs += delta.logprobs

    def choice(self) -> Choice:
        """Return the finished choice.

        Raises:
            ValueError: it has not ended.
        """
        if self.end is None:
            raise ValueError("the choice has not ended")
        return Choice(
            "".join(self.texts),
            tuple(self.token_ids),
            tuple(self.logprobs),
            self.end.reason,
            self.end.stop_string,
        )


def answer_of(started: Started, outputs: Sequence[Output], finished: Finished) -> Answer:
    """Put a finished stream together."""
    return Answer(
        started.request_id,
        started.model,
        started.seed,
        tuple(output.choice() for output in outputs),
        finished.usage,
        finished.steps,
        started.exact_continuation,
        started.adapter,
    )
