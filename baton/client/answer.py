"""A complete response, assembled when a stream has ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from baton.request.stream_events import (
    CallArguments,
    CallBegun,
    ChoiceFinished,
    Delta,
    Finished,
    FinishReason,
    Reasoning,
    Started,
    Step,
    TokenLogprob,
    Usage,
)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call by the model."""

    id: str
    name: str
    arguments: str
    """JSON as the model wrote it; truncated if `max_tokens` cut it off."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One output of a request."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    reason: FinishReason
    stop_string: str
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    """The model's reasoning before its answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """All outputs of a request, ordered by choice."""

    request_id: str
    model: str
    seed: int
    choices: tuple[Choice, ...]
    usage: Usage
    steps: tuple[Step, ...]
    exact_continuation: bool = True
    """Whether another worker would have continued with the same tokens."""
    adapter: str = ""
    """Adapter that generated the output; empty: the base model."""
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    """Log probabilities of all prompt tokens but the first, if `prompt_logprobs` requested them."""
    provider: str = ""
    """Provider that generated the output; empty: the cluster's own workers."""
    requested_model: str = ""
    """The requested model, if `model` answered instead; empty: it is the requested one."""

    @property
    def text(self) -> str:
        """Return the text of the first choice."""
        return self.choices[0].text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Return the tool calls of the first choice."""
        return self.choices[0].tool_calls

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Return the token ids of the first choice."""
        return self.choices[0].token_ids


@dataclass(slots=True)
class Output:
    """One choice while its output is being received."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[CallBegun] = field(default_factory=list)
    arguments: list[list[str]] = field(default_factory=list)
    """Pieces of the arguments of each call."""
    end: ChoiceFinished | None = None

    def add(self, delta: Delta) -> None:
        self.texts.append(delta.text)
        self.token_ids += delta.token_ids
        if delta.logprobs:
            self.logprobs += delta.logprobs
        for part in delta.parts:
            match part:
                case Reasoning():
                    self.reasoning.append(part.text)
                case CallBegun():
                    self.calls.append(part)
                    self.arguments.append([])
                case CallArguments():
                    self.arguments[part.index].append(part.text)

    def choice(self) -> Choice:
        """Return the finished choice.

        Raises:
            ValueError: the choice has not ended.
        """
        if self.end is None:
            raise ValueError("the choice has not ended")
        return Choice(
            "".join(self.texts),
            tuple(self.token_ids),
            tuple(self.logprobs),
            self.end.reason,
            self.end.stop_string,
            tuple(
                ToolCall(call.id, call.name, "".join(arguments))
                for call, arguments in zip(self.calls, self.arguments, strict=True)
            ),
            "".join(self.reasoning),
        )


def answer_of(
    started: Started,
    prompt_logprobs: Sequence[TokenLogprob],
    outputs: Sequence[Output],
    finished: Finished,
) -> Answer:
    """Assemble the answer of a finished stream."""
    return Answer(
        started.request_id,
        started.model,
        started.seed,
        tuple(output.choice() for output in outputs),
        finished.usage,
        finished.steps,
        started.exact_continuation,
        started.adapter,
        tuple(prompt_logprobs),
        started.provider,
        started.requested_model,
    )
