"""Creation of calls, shared by all kinds of clients. Pure, except that ids are random."""

import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from baton.client.conversations.message import MessageOptions, message_request
from baton.client.requests import (
    ChatOptions,
    GenerateOptions,
    Message,
    Options,
    PicturePart,
    TextPart,
    chat_request,
    check_names,
    generate_request,
)
from baton.client.retry import Attempts, RetryPolicy
from baton.client.state import InferenceRequest, StreamState
from baton.sampling import SamplingParams
from baton.v1 import common_pb2, inference_pb2


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is available now."""

    name: str
    context_tokens: int
    """Maximum number of prompt plus output tokens."""
    vocab_tokens: int
    """Token ids run from 0 to this, exclusive."""
    features: tuple[str, ...]
    created_seconds: int
    """Seconds since the Unix epoch."""
    exact_continuation: bool
    """Whether sampled outputs continue with the same tokens at another worker."""
    adapters: tuple[str, ...]
    """Names of the adapters that requests may select, sorted."""
    sampling_defaults: Mapping[str, Any] = field(default_factory=dict)
    """Default values, by name, of parameters that a request does not set."""
    engine: str = ""
    """Engine that serves the model: `torch`, `vllm`, `sim`; empty: not reported."""
    dtype: str = ""
    """Data type of computation; empty: not reported."""
    deterministic: bool | None = None
    """Whether a request's tokens are independent of what else is computed; None: not reported."""
    inexact_reason: str = ""
    """Reason for which they are not, and the remedy for an operator."""
    aliases: tuple[str, ...] = ()
    """Further names to request it by."""
    state: str = ""
    """`ready`, `starting`, `on_demand` (a worker starts for the first request) or `away`; empty:
    not reported."""
    request_tokens: int = 0
    """The most tokens of the caller's requests, prompt and output together; 0: not reported."""
    provider: str = ""
    """The provider that serves it; empty: the cluster's own workers."""
    targets: tuple[str, ...] = ()
    """Of `auto`, the models that its rules may choose."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of a text."""

    token_ids: tuple[int, ...]
    context_tokens: int
    """Maximum number of prompt plus output tokens of the model."""


@dataclass(frozen=True, slots=True)
class CallDefaults:
    """A client's default options, and the creation of calls with them."""

    timeout: float
    policy: RetryPolicy

    def attempts(self, timeout: float | None, now: float) -> Attempts:
        """Return the attempts of a call that begins now.

        Raises:
            ValueError: the timeout is not positive.
        """
        seconds = self.timeout if timeout is None else timeout
        if not seconds > 0:
            raise ValueError("timeout must be positive")
        return Attempts(self.policy, now + seconds)

    def generate(
        self, prompt: str | Sequence[int], model: str, options: GenerateOptions, now: float
    ) -> StreamState:
        """Create the state of a `generate` stream.

        Raises:
            TypeError: an option is unknown or has the wrong type.
            ValueError: a request cannot carry an option's value.
        """
        check_names(options)
        request = generate_request(prompt, model, _request_id(options), options)
        return self._state(request, options, now)

    def chat(
        self, messages: str | Sequence[Message], model: str, options: ChatOptions, now: float
    ) -> StreamState:
        """Create the state of a `chat` stream.

        Raises:
            TypeError: an option is unknown or has the wrong type.
            ValueError: a request cannot carry an option's value.
        """
        check_names(options, chat=True)
        request = chat_request(messages, model, _request_id(options), options)
        return self._state(request, options, now)

    def unary_attempts(self, timeout: float | None, now: float, *, repeatable: bool) -> Attempts:
        """Return the attempts of a unary call: one, if a second one could do what the first did.

        Raises:
            ValueError: the timeout is not positive.
        """
        if repeatable:
            return self.attempts(timeout, now)
        return replace(self, policy=RetryPolicy(0)).attempts(timeout, now)

    def message(
        self,
        conversation: str,
        content: str | Sequence[TextPart | PicturePart],
        options: MessageOptions,
        now: float,
    ) -> StreamState:
        """Create the state of a `conversations.send` stream.

        Raises:
            TypeError: an option is unknown or has the wrong type.
            ValueError: a request cannot carry an option's value.
        """
        name = options.get("request_id") or draw_id()
        request = message_request(conversation, content, name, options)
        # A lost one may have become part of the conversation.
        once = replace(self, policy=replace(self.policy, lost=False))
        return StreamState(request, once.attempts(options.get("timeout"), now), resume=False)

    def _state(self, request: InferenceRequest, options: Options, now: float) -> StreamState:
        # A request may be named after a trace, so each call claims a new execution.
        request.context.execution_id = options.get("execution_id") or draw_id()
        attempts = self.attempts(options.get("timeout"), now)
        return StreamState(request, attempts, resume=options.get("resume", False))


def metadata(request_id: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call."""
    return (("x-request-id", request_id),)


def traceparent() -> str:
    """Return the W3C trace context of the caller's span; empty: there is none.

    Instrumented gRPC sends it with each call, but sees a single call where many share a session.
    """
    propagate = sys.modules.get("opentelemetry.propagate")  # an app that traces has loaded it
    if propagate is None:
        return ""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent", "")


def draw_id() -> str:
    """Return a new random id of a request or an execution."""
    return uuid.uuid4().hex


def models_of(response: inference_pb2.ListModelsResponse) -> tuple[Model, ...]:
    """Return the models of a response, sorted by name."""
    return tuple(
        Model(
            model.name,
            model.context_tokens,
            model.vocab_tokens,
            tuple(model.features),
            model.created_seconds,
            model.exact_continuation or not model.HasField("exact_continuation"),
            tuple(model.adapters),
            _options(model.sampling_defaults),
            model.engine,
            model.dtype,
            model.deterministic if model.HasField("deterministic") else None,
            model.inexact_reason,
            tuple(model.aliases),
            model.state,
            model.request_tokens,
            model.provider,
            tuple(model.targets),
        )
        for model in response.models
    )


def _options(params: common_pb2.SamplingParams) -> dict[str, Any]:
    """Return the options in a message, by the names of `SamplingOptions`."""
    values = SamplingParams.from_proto(params)
    return {each.name: getattr(values, each.name) for each, _ in params.ListFields()}


def tokens_of(response: inference_pb2.TokenizeResponse) -> Tokens:
    """Return the tokens in a response."""
    return Tokens(tuple(response.token_ids), response.context_tokens)


def _request_id(options: Options) -> str:
    return options.get("request_id") or draw_id()
